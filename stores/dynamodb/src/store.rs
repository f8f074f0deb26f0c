//! What the contract asks for, handed to where it is done.

use std::fmt;
use std::time::Duration;

use emmer_store::examine::Examination;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{Etag, Result, StoreLimits};
use emmer_store_keyvalue::{Backend, Fault, KeyValue, Marks, Tables};

use crate::client::Client;
use crate::commit::{ACTIONS_MAX, TRANSACTION_BYTES_MAX};
use crate::examine;
use crate::item::ITEM_BYTES_MAX;
use crate::settled::Settled;
use emmer_store::recent::Seen;

/// A system store in DynamoDB: `DynamoDbStore::open("dynamodb://accesskey:secret@eu-central-1")`,
/// where the host is a region, or one of the service's own hosts, or any other with `?region=`.
///
/// Who we are is an access key and its secret (before the `@`; a temporary one with
/// `?session_token=`), or those in the JSON document `?credentials_file=`, read again every minute:
/// somebody else keeps it fresh. Where the URL names none, the environment's `AWS_ACCESS_KEY_ID`,
/// `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN` are used, and `AWS_REGION` where it names no
/// region. Profiles, and services that hand out keys, are not asked.
///
/// Connections are encrypted, trusting what the system trusts or the authorities in `?ca_file=`;
/// `?tls=false` is for the emulator:
/// `dynamodb://local:local@127.0.0.1:8000?region=local&tls=false`. `?prefix=emmer` is what the
/// names of all tables begin with; `?page_rows=` is how many rows a page has at most, where its 1
/// MiB is not the end before; `?timeout_ms=4800` is how long an operation takes at most, connecting
/// included (1000 to 60000).
pub type DynamoDbStore = KeyValue<DynamoDb>;

/// A client of one region's tables.
pub struct DynamoDb {
    client: Client,
    marks: Marks,
    settled: Settled,
    recent: Seen,
}

impl fmt::Debug for DynamoDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamoDb").field(&self.client.address.place.name).finish()
    }
}

impl DynamoDb {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn settled(&self) -> &Settled {
        &self.settled
    }

    /// The last commits that were seen.
    pub(crate) const fn recent(&self) -> &Seen {
        &self.recent
    }

    /// An etag that no row ever had.
    pub(crate) fn mark(&self) -> Etag {
        self.marks.next().into()
    }

    /// Whether the service answers, and lets us read.
    async fn probe(&self) -> std::result::Result<(), Fault> {
        self.shape(&SILO_INSTANCES, self.client.deadline()).await.map(drop)
    }
}

impl Backend for DynamoDb {
    const APPEND_ROWS: usize = ACTIONS_MAX;

    async fn connect(url: &str) -> Result<Self> {
        let client = Client::new(url, |name| std::env::var(name).ok())?;
        let store = Self {
            client,
            marks: Marks::random(),
            settled: Settled::default(),
            recent: Seen::default(),
        };
        match store.probe().await {
            Ok(()) => Ok(store),
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
        // Names and keys count too.
        StoreLimits {
            mutations: ACTIONS_MAX,
            row_bytes: ITEM_BYTES_MAX - (16 << 10),
            commit_bytes: TRANSACTION_BYTES_MAX - (512 << 10),
            ..StoreLimits::default()
        }
    }

    async fn examine(&self) -> std::result::Result<Examination, Fault> {
        examine::examine(self).await
    }
}
