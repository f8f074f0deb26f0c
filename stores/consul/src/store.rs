//! The contract, handed to the places where it is done.

use std::time::Duration;

use emmer_store::examine::Examination;
use emmer_store::{Address, Answered, Result, StoreLimits, TableDecl};
use emmer_store_keyvalue::{Backend, Failure, KeyValue, Marks};
use tokio::time::Instant;

use crate::client::Client;
use crate::examine;
use crate::guesses::Guesses;
use crate::wire::{Operation, TRANSACTION_BYTES_MAX};

/// A system store in Consul's key-value store: `ConsulStore::open("consul://host:port,host:port")`,
/// any agents of one datacenter.
///
/// `?token=` is the token (where the URL has none the environment's `CONSUL_HTTP_TOKEN`); it needs
/// `key_prefix "emmer/" { policy = "write" }`. `?dc=` names another datacenter than the agent's.
/// `?tls=true` encrypts, trusting what the system trusts; `?ca_file=` encrypts, trusting the
/// authorities in that PEM file. `?prefix=emmer` begins all keys. `?timeout_ms=4800` is the most
/// time of an operation, connecting included (1000 to 60000).
pub type ConsulStore = KeyValue<Consul>;

/// A client of one Consul datacenter.
pub struct Consul {
    client: Client,
    marks: Marks,
    guesses: Guesses,
}

impl Consul {
    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) const fn guesses(&self) -> &Guesses {
        &self.guesses
    }

    pub(crate) fn mark(&self) -> String {
        self.marks.next()
    }

    pub(crate) fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        self.client.layout.partition(decl, partition)
    }
}

impl Backend for Consul {
    /// One transaction each, at least an operation for a row.
    const APPEND_ROWS: usize = 30;
    const IN_MEMORY: bool = true;
    /// Here losers cost the winner's reads time as well: a consistent read waits for the commits
    /// before it.
    const LOSER_WAITS: Duration = Duration::from_millis(800);

    fn new(url: &str) -> Result<Self> {
        let client = Client::new(url, std::env::var("CONSUL_HTTP_TOKEN").ok())?;
        Ok(Self { client, marks: Marks::random(), guesses: Guesses::default() })
    }

    /// A leader must answer it, and let us read. Reads alone leave out silently the keys that a
    /// token may not see; a check of an index does not.
    async fn probe(&self, deadline: Instant) -> Answered<()> {
        let nothing = format!("{}/.tables/~nothing", self.client.layout.prefix());
        let check = [Operation::check(&nothing, 1)];
        // There is no such key: a refusal that says so is the answer of a leader.
        self.client.txn(&check, deadline, true).await.map(drop).map_err(Failure::fault)
    }

    fn address(&self) -> &Address {
        &self.client.address
    }

    fn limits(&self) -> StoreLimits {
        // Sent as base64, every three bytes of a value are four.
        StoreLimits::of_commits(TRANSACTION_BYTES_MAX / 4 * 3)
    }

    async fn examine(&self) -> Answered<Examination> {
        examine::examine(&self.client).await
    }
}
