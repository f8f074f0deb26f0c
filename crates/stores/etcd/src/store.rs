//! The store itself: requests into transactions, answers out.

use std::fmt;
use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::document::declaration;
use emmer_store::examine::Examination;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Mutation, Result, Row, StoreError, StoreErrorKind, StoredRow, SystemStore,
    TableDecl, Value,
};
use emmer_store_keyvalue::marks::random;
use emmer_store_keyvalue::{Contention, Failure, Fault, Known, document, layout};
use serde_json::Value as Json;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::examine;
use crate::requests::{Commit, add};
use crate::rows;
use crate::wire::{Txn, get, get_all, is_missing, is_there, put, txn};

/// The rows one transaction of an append adds.
const APPEND_ROWS: usize = 100;

/// A system store in an etcd cluster.
///
/// Dropping it closes its connections; the tasks that drive them end with them.
pub struct EtcdStore {
    client: Client,
    known: Known,
    contention: Contention,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdStore").field(&self.client.place.name).finish()
    }
}

impl EtcdStore {
    /// Connects to `etcd://user:password@host:port,host:port`, any members of one cluster. Where the URL gives a user no
    /// password the environment's `ETCDCTL_PASSWORD` is used. `?tls=true` encrypts, trusting what
    /// the system trusts; `?ca_file=` encrypts, trusting the authorities in that PEM file; `?prefix=emmer` is what all keys
    /// begin with; `?timeout_ms=4800` is how long an operation takes at most, connecting included (1000 to 60000).
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot be understood,
    /// `Unavailable` when nobody answers, `Refused` for wrong credentials or certificates, or a user who may not read.
    pub async fn open(url: &str) -> Result<Self> {
        let client = Client::new(url, std::env::var("ETCDCTL_PASSWORD").ok())?;
        let store = Self { client, known: Known::default(), contention: Contention::new(random()) };
        let deadline = store.client.deadline();
        let opened = async {
            store.client.authenticate(deadline).await?;
            // A read that a leader must answer: the credentials are looked at, and the cluster works.
            let probe = format!("{}/.tables/", store.client.place.layout.prefix());
            store.transact(&txn(&[], &[get(&probe)], &[]), deadline).await
        };
        opened.await.map_err(|fault| store.fault(fault, "open"))?;
        Ok(store)
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// A transaction whose repetition does no harm.
    async fn transact(&self, body: &Json, deadline: Instant) -> std::result::Result<Txn, Fault> {
        self.client.txn(body, deadline, true).await.map_err(Failure::fault)
    }

    /// Looks whether the table is on the server, and in this shape.
    async fn look(&self, decl: &'static TableDecl, deadline: Instant) -> std::result::Result<(), Fault> {
        let key = self.client.place.layout.shape(decl);
        let answer = self.transact(&txn(&[], &[get(&key)], &[]), deadline).await?;
        self.check(decl, &answer)
    }

    fn check(&self, decl: &'static TableDecl, answer: &Txn) -> std::result::Result<(), Fault> {
        let range = answer.responses.first().and_then(|r| r.response_range.as_ref());
        self.known.check(decl, range.and_then(|r| r.kvs.first()).map(|kv| kv.value.as_slice()))
    }

    pub(crate) async fn must_know(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if self.known.has(decl) { Ok(()) } else { self.look(decl, deadline).await }
    }

    fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        self.client.place.layout.partition(decl, partition)
    }

    /// Makes a table, or finds it made.
    async fn ensure(&self, decl: &'static TableDecl) -> std::result::Result<(), Fault> {
        let deadline = self.client.deadline();
        let key = self.client.place.layout.shape(decl);
        let make = txn(&[is_missing(&key)], &[put(&key, &declaration(decl))], &[]);
        self.transact(&make, deadline).await?;
        self.look(decl, deadline).await
    }

    async fn read_all(
        &self,
        decl: &'static TableDecl,
        partition: &str,
    ) -> std::result::Result<Vec<StoredRow>, Fault> {
        let deadline = self.client.deadline();
        self.must_know(decl, deadline).await?;
        let prefix = self.partition(decl, partition);
        let kvs = self.read_keys(&prefix, deadline).await?;
        if kvs.is_empty() {
            // A server that lost its data must not look like an empty table.
            self.look(decl, deadline).await?;
        }
        rows::partition(decl, &prefix, &kvs).map_err(Fault::corrupt)
    }

    async fn read_one(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> std::result::Result<Option<StoredRow>, Fault> {
        let deadline = self.client.deadline();
        self.must_know(decl, deadline).await?;
        let prefix = self.partition(decl, partition);
        let key = layout::row(&prefix, row_key);
        let mut reads = vec![get(&key)];
        if document::volatile_names(decl).next().is_some() {
            reads.push(get_all(&format!("{key}/")));
        }
        let answer = self.transact(&txn(&[], &reads, &[]), deadline).await?;
        let ranges = answer.responses.into_iter().filter_map(|r| r.response_range);
        let kvs: Vec<_> = ranges.flat_map(|range| range.kvs).collect();
        if kvs.is_empty() {
            self.look(decl, deadline).await?;
        }
        Ok(rows::partition(decl, &prefix, &kvs).map_err(Fault::corrupt)?.into_iter().next())
    }

    async fn run_commit(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        mutations: &[Mutation],
    ) -> std::result::Result<CommitOutcome, Failure> {
        let deadline = self.client.deadline();
        self.must_know(decl, deadline).await?;
        let prefix = self.partition(decl, partition);
        let commit = Commit::new(decl, partition, &prefix, mutations);
        let answer = self.client.txn(&commit.body, deadline, false).await?;
        commit.outcome(mutations, &answer).map_err(|e| Failure::Broken(Fault::corrupt(e)))
    }

    async fn touch_one(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &str,
        value: &Value,
    ) -> std::result::Result<(), Fault> {
        let deadline = self.client.deadline();
        self.must_know(decl, deadline).await?;
        let key = layout::row(&self.partition(decl, partition), row_key);
        let set = put(&layout::column(&key, column), &document::encode_value(value));
        if self.transact(&txn(&[is_there(&key)], &[set], &[]), deadline).await?.succeeded {
            return Ok(());
        }
        Err(Fault::new(StoreErrorKind::NotFound, "the row is not there"))
    }

    async fn append_all(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        rows: &[Row],
    ) -> std::result::Result<(), Fault> {
        self.must_know(decl, self.client.deadline()).await?;
        let prefix = self.partition(decl, partition);
        for part in rows.chunks(APPEND_ROWS) {
            let adds: Vec<Json> = part.iter().map(|row| add(decl, partition, &prefix, row)).collect();
            self.transact(&txn(&[], &adds, &[]), self.client.deadline()).await?;
        }
        Ok(())
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

impl SystemStore for EtcdStore {
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
            self.append_all(table, partition, &rows).await.map_err(|fault| self.fault(fault, operation()))
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
