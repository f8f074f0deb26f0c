//! The contract's operations, handed to their modules.

use emmer_store::examine::Examination;
use emmer_store::recent::Seen;
use emmer_store::silos::{SILO_INSTANCES, VERSION_ROW};
use emmer_store::{Address, Answered, Etag, Result, StoreLimits, TableDecl};
use emmer_store_keyvalue::{Backend, Guesses, KeyValue, Marks, Tables};
use tokio::time::Instant;

use crate::client::Client;
use crate::commit::{ACTIONS_MAX, TRANSACTION_BYTES_MAX};
use crate::examine;
use crate::item::ITEM_BYTES_MAX;

/// A system store in DynamoDB: `DynamoDbStore::open("dynamodb://accesskey:secret@eu-central-1")`,
/// where the host is a region, or one of the service's own hosts, or any other with `?region=`.
///
/// The credentials are an access key and its secret (before the `@`; a temporary one with
/// `?session_token=`), or those in the JSON document `?credentials_file=`, read again every minute.
/// Where the URL names none, the environment's `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
/// `AWS_SESSION_TOKEN` are used, and `AWS_REGION` where it names no region. Profiles, and services
/// that hand out keys, are not asked.
///
/// Connections are encrypted, trusting what the system trusts or the authorities in `?ca_file=`.
/// `?tls=false` is for the emulator:
/// `dynamodb://local:local@127.0.0.1:8000?region=local&tls=false`. `?prefix=emmer` begins the names
/// of all tables. `?page_rows=` is the most rows of a page of at most 1 MiB. `?timeout_ms=4800` is
/// the most time of an operation, connecting included (1000 to 60000).
pub type DynamoDbStore = KeyValue<DynamoDb>;

/// A client of one region's tables.
pub struct DynamoDb {
    client: Client,
    marks: Marks,
    settled: Guesses<Etag>,
    recent: Seen,
}

impl DynamoDb {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns true if the commit that gave the version row this etag is known to be there whole,
    /// with any etag if any was.
    ///
    /// A query during a transaction may see its version row and not yet its other rows. Two answers
    /// prove that a commit is there whole: its own success, and the success of a `TransactGetItems`
    /// for all of its rows. No reader gets a version before. So at most one commit of a partition,
    /// the next, is ever on its way.
    pub(crate) fn is_settled(
        &self,
        table: &TableDecl,
        partition: &str,
        etag: Option<&Etag>,
    ) -> bool {
        let known = self.settled.about(table, partition, VERSION_ROW);
        known.is_some_and(|known| etag.is_none_or(|etag| known == *etag))
    }

    /// The commit that gave the version row this etag is there whole.
    pub(crate) fn settle(&self, table: &TableDecl, partition: &str, etag: &Etag) {
        self.settled.learn(table, partition, VERSION_ROW, Some(etag.clone()));
    }

    /// The last commits that were seen.
    pub(crate) const fn recent(&self) -> &Seen {
        &self.recent
    }

    /// An etag that no row ever had.
    pub(crate) fn mark(&self) -> Etag {
        self.marks.next().into()
    }
}

impl Backend for DynamoDb {
    const APPEND_ROWS: usize = ACTIONS_MAX;

    fn new(url: &str) -> Result<Self> {
        Ok(Self {
            client: Client::new(url, |name| std::env::var(name).ok())?,
            marks: Marks::random(),
            settled: Guesses::default(),
            recent: Seen::default(),
        })
    }

    async fn probe(&self, deadline: Instant) -> Answered<()> {
        self.shape(&SILO_INSTANCES, deadline).await.map(drop)
    }

    fn address(&self) -> &Address {
        &self.client.address.place
    }

    fn limits(&self) -> StoreLimits {
        // Names and keys count too.
        StoreLimits {
            mutations: ACTIONS_MAX,
            row_bytes: ITEM_BYTES_MAX - (16 << 10),
            commit_bytes: TRANSACTION_BYTES_MAX - (512 << 10),
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> Answered<Examination> {
        examine::examine(self).await
    }
}
