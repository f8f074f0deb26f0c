//! The contract, handed to the places where it is done.

use emmer_store::examine::Examination;
use emmer_store::recent::Seen;
use emmer_store::{Address, Answered, Etag, Result, StoreErrorKind, StoreLimits};
use emmer_store_keyvalue::azure::Guesses;
use emmer_store_keyvalue::{Backend, KeyValue, Marks};
use tokio::time::Instant;

use crate::batch::{BATCH_BYTES_MAX, OPERATIONS_MAX};
use crate::client::Client;
use crate::entity::ENTITY_BYTES_MAX;
use crate::examine;

/// A system store in Azure Table Storage:
/// `AzureTableStore::open("azure-table://account:key@account.table.core.windows.net")`, or
/// `azure-table://account?...`.
///
/// The credentials are the account's key (before the `@`, or `?account_key=`), a shared access
/// signature (`?sas_token=`, its `&` and `%` written as `%XX`) or a bearer token (`?token=`, or
/// `?token_file=`, read again every minute). Where the URL names none, the environment's
/// `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN` is used. Tokens that must be asked for (a
/// managed identity) are not.
///
/// Connections are encrypted, trusting what the system trusts or the authorities in `?ca_file=`.
/// `?tls=false` is for the emulator, whose URLs have the account in the path:
/// `azure-table://account:key@127.0.0.1:10002/account?tls=false`. `?prefix=emmer` begins the names
/// of all tables, letters and digits. `?page_rows=1000` is the most rows of a page;
/// `?timeout_ms=4800` is the most time of an operation, connecting included (1000 to 60000).
pub type AzureTableStore = KeyValue<AzureTable>;

/// A client of one account's tables.
pub struct AzureTable {
    client: Client,
    marks: Marks,
    guesses: Guesses,
    recent: Seen,
}

impl AzureTable {
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

impl Backend for AzureTable {
    const APPEND_ROWS: usize = OPERATIONS_MAX;
    /// Its keys are escaped, and compared as UTF-16.
    const KEEPS_ORDER: bool = false;

    fn new(url: &str) -> Result<Self> {
        Ok(Self {
            client: Client::new(url, |name| std::env::var(name).ok())?,
            marks: Marks::random(),
            guesses: Guesses::default(),
            recent: Seen::default(),
        })
    }

    async fn probe(&self, deadline: Instant) -> Answered<()> {
        match self.client.query(&self.declarations(), "", 1, None, deadline).await {
            // No store has made a table yet.
            Err(fault) if fault.kind == StoreErrorKind::NotFound => Ok(()),
            other => other.map(drop),
        }
    }

    fn address(&self) -> &Address {
        &self.client.address.place
    }

    fn limits(&self) -> StoreLimits {
        // A letter takes two bytes of an entity. Sent as base64, three bytes become four; names and
        // headers are not counted.
        StoreLimits {
            mutations: OPERATIONS_MAX,
            row_bytes: ENTITY_BYTES_MAX / 2 - (16 << 10),
            commit_bytes: BATCH_BYTES_MAX / 2,
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> Answered<Examination> {
        examine::examine(self).await
    }
}
