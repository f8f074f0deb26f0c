//! The store itself: requests in, answers out.

use std::fmt;
use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::examine::Examination;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Mutation, Result, Row, StoreError, StoredRow, SystemStore, TableDecl, Value,
};
use emmer_store_keyvalue::marks::random;
use emmer_store_keyvalue::{Contention, Failure, Fault, Known, Marks};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::examine;
use crate::guesses::Guesses;
use crate::wire::Operation;

/// A system store in Consul's key-value store.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
pub struct ConsulStore {
    client: Client,
    known: Known,
    marks: Marks,
    contention: Contention,
    guesses: Guesses,
}

impl fmt::Debug for ConsulStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConsulStore").field(&self.client.place.name).finish()
    }
}

impl ConsulStore {
    /// Connects to `consul://host:port,host:port`, any agents of one datacenter. `?token=` is who we are (where the URL gives
    /// none the environment's `CONSUL_HTTP_TOKEN` is used); it needs `key_prefix "emmer/" { policy = "write" }`. `?dc=` names
    /// another datacenter than the agent's; `?tls=true` encrypts, trusting what the system trusts; `?ca_file=` encrypts,
    /// trusting the authorities in that PEM file; `?prefix=emmer` is what all keys begin with; `?timeout_ms=4800` is how long an
    /// operation takes at most, connecting included (1000 to 60000).
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a token: `Invalid` for a URL that cannot be understood, `Unavailable`
    /// when nobody answers or there is no leader, `Refused` for a wrong token or certificate, or a token that may not read.
    pub async fn open(url: &str) -> Result<Self> {
        let client = Client::new(url, std::env::var("CONSUL_HTTP_TOKEN").ok())?;
        let store = Self {
            client,
            known: Known::default(),
            marks: Marks::random(),
            contention: Contention::new(random()),
            guesses: Guesses::default(),
        };
        store.probe().await.map_err(|fault| store.fault(fault, "open"))?;
        Ok(store)
    }

    /// Whether a leader answers, and lets us read: reads alone leave out silently what a token may not see, a check of an
    /// index does not.
    async fn probe(&self) -> std::result::Result<(), Fault> {
        let nothing = format!("{}/.tables/~nothing", self.client.place.layout.prefix());
        let check = [Operation::check(&nothing, 1)];
        match self.client.txn(&check, self.client.deadline(), true).await.map_err(Failure::fault)? {
            // There is no such key: that is the answer of a leader to whom may ask.
            Ok(_) | Err(_) => Ok(()),
        }
    }

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
        self.client.place.layout.partition(decl, partition)
    }

    /// Looks whether the table is on the server, and in this shape.
    pub(crate) async fn look(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        let key = self.client.place.layout.shape(decl);
        let found = self.client.read(&[&key], deadline).await?;
        // Other tables' names may begin with this one's.
        let found = found.iter().find(|kv| kv.key == key);
        self.known.check(decl, found.map(|kv| kv.value.as_slice()))
    }

    pub(crate) async fn must_know(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if self.known.has(decl) { Ok(()) } else { self.look(decl, deadline).await }
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.client.place.name.as_str(), operation()))
    }

    fn fault(&self, fault: Fault, operation: impl Into<String>) -> StoreError {
        fault.at(&self.client.place.name, operation)
    }
}

impl SystemStore for ConsulStore {
    fn describe(&self) -> String {
        self.client.place.name.clone()
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(
            async move { examine::examine(&self.client).await.map_err(|fault| self.fault(fault, "examine")) },
        )
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for decl in tables {
                let operation = || format!("ensure {}", decl.name);
                self.checked(validate::table(decl), operation)?;
                self.ensure(decl).await.map_err(|fault| self.fault(fault, operation()))?;
            }
            Ok(())
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            self.read_all(table, partition).await.map_err(|fault| self.fault(fault, operation()))
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}/{row_key}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            self.checked(validate::row_key(row_key), operation)?;
            self.read_one(table, partition, row_key).await.map_err(|fault| self.fault(fault, operation()))
        })
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("scan {} by {column}", table.name);
            self.checked(validate::scan(table, column), operation)?;
            let found = self.scan_all(table, column, range, limit).await;
            found.map_err(|fault| self.fault(fault, operation()))
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            let operation = || format!("commit {}/{partition}", table.name);
            self.checked(validate::commit(table, partition, &mutations), operation)?;
            let begun = Instant::now();
            let outcome = match self.run_commit(table, partition, &mutations).await {
                Ok(outcome) => outcome,
                Err(Failure::Nothing(fault)) => return Err(self.fault(fault, operation())),
                Err(Failure::Broken(fault)) => CommitOutcome::Unknown(self.fault(fault, operation())),
            };
            let wait = self.contention.wait(table.name, partition, &mutations, &outcome, begun.elapsed());
            if !wait.is_zero() {
                sleep(wait).await;
            }
            Ok(outcome)
        })
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("touch {column} of {}/{partition}/{row_key}", table.name);
            self.checked(validate::touch(table, partition, row_key, column, &value), operation)?;
            let touched = self.touch_one(table, partition, row_key, column, &value).await;
            touched.map_err(|fault| self.fault(fault, operation()))
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("append {}/{partition}", table.name);
            self.checked(validate::append(table, partition, &rows), operation)?;
            let appended = self.append_all(table, partition, rows).await;
            appended.map_err(|failure| self.fault(failure.fault(), operation()))
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let operation = || format!("clean up {}/{partition}", table.name);
            self.checked(validate::delete_older_than(table, partition, column), operation)?;
            let deleted = self.clean_up(table, partition, column, cutoff).await;
            deleted.map_err(|fault| self.fault(fault, operation()))
        })
    }
}
