//! The store's address, limits and start.

use emmer_store::examine::Examination;
use emmer_store::recent::Seen;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Address, Answered, Etag, Result, StoreLimits};
use emmer_store_keyvalue::azure::Guesses;
use emmer_store_keyvalue::{Backend, KeyValue, Marks, Tables};
use tokio::time::Instant;

use crate::batch::OPERATIONS_MAX;
use crate::client::Client;
use crate::examine;

/// The most bytes of a row as JSON: the service takes 2 MiB.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 20;
/// The most bytes of a commit as JSON, without what each operation adds: a batch takes 2 MiB.
pub(crate) const COMMIT_BYTES_MAX: usize = 3 << 19;

/// A system store in Azure Cosmos DB (the API for NoSQL):
/// `CosmosStore::open("cosmos://account:key@account.documents.azure.com/database")`, or
/// `cosmos://account/database?...`.
///
/// The credentials are the account's key (before the `@`, or `?account_key=`; where the URL names
/// none, the environment's `AZURE_COSMOS_KEY`), or a token of Microsoft Entra (`?token=`, or
/// `?token_file=`, read again every minute).
///
/// All tables are in one container, `?prefix=emmer`, partitioned by `/EmmerPartition`. Without a
/// database in the URL it is `emmer`. Missing ones are made, if the credentials may: a key may,
/// tokens may not.
///
/// Connections are encrypted, trusting what the system trusts; `?tls=false` is for an emulator on
/// this host. `?page_rows=1000` is how many rows a page has at most; `?timeout_ms=4800` is how long
/// an operation takes at most, connecting included (1000 to 60000).
pub type CosmosStore = KeyValue<Cosmos>;

/// A client of one container.
pub struct Cosmos {
    client: Client,
    marks: Marks,
    guesses: Guesses,
    recent: Seen,
}

impl Cosmos {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn guesses(&self) -> &Guesses {
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
}

impl Backend for Cosmos {
    const APPEND_ROWS: usize = OPERATIONS_MAX;
    /// Its keys are escaped, and a query has no order.
    const KEEPS_ORDER: bool = false;

    fn new(url: &str) -> Result<Self> {
        Ok(Self {
            client: Client::new(url, |name| std::env::var(name).ok())?,
            marks: Marks::random(),
            guesses: Guesses::default(),
            recent: Seen::default(),
        })
    }

    /// The service must have one region that writes, too.
    async fn probe(&self, deadline: Instant) -> Answered<()> {
        examine::one_region_writes(self).await?;
        self.shape(&SILO_INSTANCES, deadline).await.map(drop)
    }

    fn address(&self) -> &Address {
        &self.client.address.place
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            mutations: OPERATIONS_MAX,
            row_bytes: ROW_BYTES_MAX,
            commit_bytes: COMMIT_BYTES_MAX,
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> Answered<Examination> {
        examine::examine(self).await
    }
}
