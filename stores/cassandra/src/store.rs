//! The contract, handed to the places where it is done.

use std::sync::atomic::{AtomicU64, Ordering};

use emmer_store::examine::Examination;
use emmer_store::recent::{Room, Seen};
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Address, Answered, Etag, Result, StoreLimits};
use emmer_store_keyvalue::{Backend, Guesses, KeyValue, Marks, Tables};
use tokio::time::Instant;

use crate::client::Client;
use crate::examine;

/// The most bytes of a row, and of a commit: the server's defaults take some more.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
pub(crate) const COMMIT_BYTES_MAX: usize = 4 << 20;

/// A system store in Cassandra:
/// `CassandraStore::open("cassandra://user:password@host,host/keyspace")`.
///
/// The hosts are some of the cluster's nodes; the others are found by them. Without a keyspace it
/// is `emmer`. One that is missing is made, with `?replication=3` copies of each row.
///
/// `?tls=true` encrypts, trusting what the system trusts or the authorities in `?ca_file=`; a
/// node's certificate is for its address (IP). `?page_rows=` is how many rows a page has at most;
/// `?timeout_ms=4800` is how long an operation takes at most, connecting included (1000 to 60000).
pub type CassandraStore = KeyValue<Cassandra>;

/// The room for the last commits of a partition: a node does some hundreds of them in a second.
const RECENT: Room = Room { commits: 256, bytes: 16 << 10 };

/// A client of one keyspace.
pub struct Cassandra {
    client: Client,
    marks: Marks,
    guesses: Guesses<()>,
    recent: Seen,
    writer: String,
    /// Number of commits with an unknown outcome.
    left_behind: AtomicU64,
}

impl Cassandra {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Rows that are believed to be there.
    pub(crate) const fn guesses(&self) -> &Guesses<()> {
        &self.guesses
    }

    /// The last commits that were seen.
    pub(crate) const fn recent(&self) -> &Seen {
        &self.recent
    }

    /// An etag that no row ever had.
    pub(crate) fn mark(&self) -> Etag {
        self.marks.next().into()
    }

    /// Name under which this store's commits are remembered. No other store has it, nor has a
    /// commit of this store that may still be on its way.
    pub(crate) fn writer(&self) -> String {
        format!("{}-{}", self.writer, self.left_behind.load(Ordering::SeqCst))
    }

    /// Begins an attempt whose end may not be seen.
    pub(crate) fn attempt(&self) -> Attempt<'_> {
        Attempt { left_behind: &self.left_behind, ended: false }
    }
}

/// An attempt of a commit. If it is dropped before its end, because its caller gives up, the next
/// commit has another name, for this one may still happen.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    left_behind: &'a AtomicU64,
    ended: bool,
}

impl Attempt<'_> {
    /// What became of it is known.
    pub(crate) fn ended(mut self) {
        self.ended = true;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.left_behind.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Backend for Cassandra {
    const APPEND_ROWS: usize = 100;

    fn new(url: &str) -> Result<Self> {
        let marks = Marks::random();
        Ok(Self {
            client: Client::new(url)?,
            guesses: Guesses::default(),
            recent: Seen::with(RECENT),
            // Marks are `maker.number`.
            writer: marks.next().split('.').next().unwrap_or_default().to_owned(),
            left_behind: AtomicU64::new(0),
            marks,
        })
    }

    async fn probe(&self, deadline: Instant) -> Answered<()> {
        self.shape(&SILO_INSTANCES, deadline).await.map(drop)
    }

    fn address(&self) -> &Address {
        &self.client.address.place
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            row_bytes: ROW_BYTES_MAX,
            commit_bytes: COMMIT_BYTES_MAX,
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> Answered<Examination> {
        examine::examine(self).await
    }
}
