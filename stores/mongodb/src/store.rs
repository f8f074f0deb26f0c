//! What the contract asks for, handed to where it is done.

use std::fmt;
use std::time::Duration;

use emmer_store::examine::Examination;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Result, StoreLimits};
use emmer_store_keyvalue::{Backend, Fault, Guesses, KeyValue, Marks, Tables};

use crate::client::Client;
use crate::examine;

/// The most bytes of a row, and of a commit: a request, and a document, end at 16 MiB.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
pub(crate) const COMMIT_BYTES_MAX: usize = 4 << 20;

/// A system store in MongoDB: `MongoDbStore::open("mongodb://user:password@host,host/database")`.
///
/// The hosts are some members of a replica set; the others are found by them, unless
/// `?directConnection=true` says that the one host is meant. Without a database it is `emmer`.
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

impl fmt::Debug for MongoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MongoDb").field(&self.client.address.place.name).finish()
    }
}

impl MongoDb {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Which rows are believed to be there.
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

    async fn connect(url: &str) -> Result<Self> {
        let store =
            Self { client: Client::new(url)?, marks: Marks::random(), guesses: Guesses::default() };
        // Whether a server answers, and lets us read.
        match store.shape(&SILO_INSTANCES, store.client.deadline()).await {
            Ok(_) => Ok(store),
            Err(fault) => Err(fault.at(&store.client.address.place.name, "open")),
        }
    }

    fn name(&self) -> &str {
        &self.client.address.place.name
    }

    fn timeout(&self) -> Duration {
        self.client.address.place.timeout
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            row_bytes: ROW_BYTES_MAX,
            commit_bytes: COMMIT_BYTES_MAX,
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> std::result::Result<Examination, Fault> {
        examine::examine(self).await
    }
}
