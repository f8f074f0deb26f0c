//! The contract's operations, handed to their modules.

use emmer_store::examine::Examination;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Address, Answered, Result, StoreLimits};
use emmer_store_keyvalue::{Backend, Guesses, KeyValue, Marks, Tables};
use tokio::time::Instant;

use crate::client::Client;
use crate::examine;

/// The most bytes of a row, and of a commit: a request, and a document, end at 16 MiB.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
pub(crate) const COMMIT_BYTES_MAX: usize = 4 << 20;

/// A system store in MongoDB: `MongoDbStore::open("mongodb://user:password@host,host/database")`.
///
/// The hosts are some members of a replica set, through which the driver finds the others, unless
/// `?directConnection=true` restricts it to one host. Without a database it is `emmer`.
/// `?replicaSet=` is the set's name where it is to be compared, `?authSource=admin` the database
/// that knows the user.
///
/// `?tls=true` encrypts, trusting Mozilla's authorities or those in `?ca_file=`;
/// `?timeout_ms=4800` is how long an operation takes at most, connecting included (1000 to 60000).
pub type MongoDbStore = KeyValue<MongoDb>;

/// A client of one database.
pub struct MongoDb {
    client: Client,
    marks: Marks,
    guesses: Guesses<()>,
}

impl MongoDb {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Rows that are believed to be there.
    pub(crate) const fn guesses(&self) -> &Guesses<()> {
        &self.guesses
    }

    /// An etag that no row ever had.
    pub(crate) fn mark(&self) -> String {
        self.marks.next()
    }
}

impl Backend for MongoDb {
    const APPEND_ROWS: usize = 100;

    fn new(url: &str) -> Result<Self> {
        let (marks, guesses) = (Marks::random(), Guesses::default());
        Ok(Self { client: Client::new(url)?, marks, guesses })
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
