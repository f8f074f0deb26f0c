//! The store itself: requests into commands, answers out.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use emmer_core::Timestamp;
use emmer_store::document::declaration;
use emmer_store::examine::Examination;
use emmer_store::keys::escape;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Mutation, Result, Row, StoreError, StoreErrorKind, StoredRow, SystemStore,
    TableDecl, Value,
};
use emmer_store_keyvalue::marks::random;
use emmer_store_keyvalue::{Contention, Failure, Fault, Known, Marks, document, layout};
use redis::Value as Answer;
use tokio::time::{Instant, sleep};

use crate::durability::{Server, clock};
use crate::keys;
use crate::link::Link;
use crate::place::Address;
use crate::requests::{Arguments, score};
use crate::rows;
use crate::scripts::{COMMIT, TOUCH};

/// The most bytes of values in one commit, or of one part of an append.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// The rows one script of an append adds: it holds the server up for as long.
const APPEND_ROWS: usize = 200;
/// The most partitions a store remembers to have registered.
const REGISTERED_MAX: usize = 10_000;

/// A system store on a Redis server.
///
/// Dropping it closes its connection; the task that drives it ends with it.
pub struct RedisStore {
    pub(crate) address: Address,
    pub(crate) link: Link,
    marks: Marks,
    contention: Contention,
    known: Known,
    /// The partitions this store has written to the set of partitions, as their keys.
    registered: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.address.place.name).finish()
    }
}

impl RedisStore {
    /// Connects to `redis://user:password@host:port/database`, or `rediss://` over TLS (with `?ca_file=` trusting the
    /// authorities in that PEM file instead of the system's). Where the URL gives no password the environment's
    /// `REDISCLI_AUTH` is used. `?wait_replicas=1` acknowledges a commit only when so many
    /// replicas have it (0 to 16; the default is 0); `?prefix=emmer` is what all keys begin with; `?timeout_ms=4800` is how
    /// long an operation takes at most, connecting included (1000 to 60000).
    ///
    /// A server that may lose acknowledged commits is warned about in the log.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot be understood,
    /// `Unavailable` when nobody answers, `Refused` for wrong credentials or certificates.
    pub async fn open(url: &str) -> Result<Self> {
        let address = Address::parse(url, std::env::var("REDISCLI_AUTH").ok())?;
        let link = Link::new(address.client.clone(), address.place.timeout);
        let store = Self {
            address,
            link,
            marks: Marks::random(),
            contention: Contention::new(random()),
            known: Known::default(),
            registered: Mutex::default(),
        };
        let server = store.server().await.map_err(|fault| store.fault(fault, "open"))?;
        for loss in server.losses() {
            tracing::warn!(store = store.address.place.name, "acknowledged commits may be lost: {loss}");
        }
        Ok(store)
    }

    /// What the server says about itself.
    async fn server(&self) -> std::result::Result<Server, Fault> {
        let deadline = self.link.deadline();
        let server = match self.ask(redis::cmd("INFO").arg("everything"), deadline).await {
            Ok(info) => Server::of_info(&rows::text(info).map_err(Fault::corrupt)?),
            // A user that may do what a store needs, and no more.
            Err(fault) if fault.detail.contains("no permissions to run") => return Ok(Server::default()),
            Err(fault) => return Err(fault),
        };
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("appendfsync");
        let fsync = self.ask(&config, deadline).await;
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("save");
        let save = self.ask(&config, deadline).await;
        // Whom nobody allows to ask for settings gets by without.
        let texts = |answer: Answer| -> std::result::Result<Vec<String>, String> {
            rows::items(answer)?.into_iter().map(rows::text).collect()
        };
        let settings = [fsync, save].into_iter().flatten().filter_map(|a| texts(a).ok()).flatten();
        Ok(server.with_config(&settings.collect::<Vec<_>>()))
    }

    pub(crate) async fn ask(
        &self,
        command: &redis::Cmd,
        deadline: Instant,
    ) -> std::result::Result<Answer, Fault> {
        self.link.send(command, deadline, true).await.map_err(Failure::fault)
    }

    /// Looks whether the table is on the server, and in this shape.
    async fn look(&self, decl: &'static TableDecl, deadline: Instant) -> std::result::Result<(), Fault> {
        let mut get = redis::cmd("HGET");
        get.arg(keys::tables(&self.address.place.layout)).arg(decl.name);
        let found = rows::bytes(self.ask(&get, deadline).await?).map_err(Fault::corrupt)?;
        self.known.check(decl, found.as_deref())
    }

    pub(crate) async fn must_know(
        &self,
        decl: &'static TableDecl,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if self.known.has(decl) { Ok(()) } else { self.look(decl, deadline).await }
    }

    pub(crate) fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        keys::partition(&self.address.place.layout, decl, partition)
    }

    /// Writes a partition to the set of its table's partitions, once, before anything is written to it: a scan must not
    /// miss it.
    async fn register(
        &self,
        decl: &TableDecl,
        partition: &str,
        key: &str,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if lock(&self.registered).contains(key) {
            return Ok(());
        }
        let mut add = redis::cmd("SADD");
        add.arg(keys::partitions(&self.address.place.layout, decl)).arg(partition);
        self.ask(&add, deadline).await?;
        let mut registered = lock(&self.registered);
        if registered.len() >= REGISTERED_MAX {
            registered.clear();
        }
        registered.insert(key.to_owned());
        Ok(())
    }

    /// Runs the commit script. The position of the first condition that did not hold.
    async fn run_commit(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        arguments: &Arguments,
        deadline: Instant,
        repeatable: bool,
    ) -> std::result::Result<Option<usize>, Failure> {
        self.must_know(decl, deadline).await?;
        let key = self.partition(decl, partition);
        self.register(decl, partition, &key, deadline).await?;
        let indexes: Vec<String> = keys::indexed(decl).map(|c| keys::index(&key, c.name)).collect();
        let all: Vec<&str> =
            std::iter::once(key.as_str()).chain(indexes.iter().map(String::as_str)).collect();
        let answer = self.link.run(&COMMIT, &all, &arguments.as_slices(), deadline, repeatable).await?;
        // The script ran: what follows must not turn that into an error.
        match answer {
            Answer::Int(0) => Ok(None),
            Answer::Int(-1) => {
                // The partition was empty: if the server lost its data, the set of partitions is gone too.
                lock(&self.registered).remove(&key);
                let _ = self.register(decl, partition, &key, deadline).await;
                Ok(None)
            }
            Answer::Int(at) => match usize::try_from(at - 1) {
                Ok(at) => Ok(Some(at)),
                Err(_) => Err(Failure::Broken(Fault::corrupt(rows::strange(&answer)))),
            },
            other => Err(Failure::Broken(Fault::corrupt(rows::strange(&other)))),
        }
    }

    /// Waits until as many replicas as the operator wants have what this connection wrote.
    async fn wait(&self, deadline: Instant) -> std::result::Result<(), Fault> {
        let wanted = self.address.wait_replicas;
        if wanted == 0 {
            return Ok(());
        }
        // The server's limit ends first, so that it is the server that says how many there are.
        let left = deadline.saturating_duration_since(Instant::now()) * 5 / 6;
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(left.as_millis().max(1).to_string());
        let have = self.link.send(&wait, deadline, false).await.map_err(Failure::fault)?;
        let have = rows::integer(&have).map_err(Fault::corrupt)?;
        if have >= i64::from(wanted) {
            return Ok(());
        }
        Err(Fault::unavailable(format!("only {have} of {wanted} replicas have the commit (wait_replicas)")))
    }

    async fn read_all(
        &self,
        decl: &'static TableDecl,
        partition: &str,
    ) -> std::result::Result<Vec<StoredRow>, Fault> {
        let deadline = self.link.deadline();
        self.must_know(decl, deadline).await?;
        let mut get = redis::cmd("HGETALL");
        get.arg(self.partition(decl, partition));
        let found = rows::partition(decl, self.ask(&get, deadline).await?).map_err(Fault::corrupt)?;
        if found.is_empty() {
            self.look(decl, deadline).await?;
        }
        Ok(found)
    }

    async fn read_one(
        &self,
        decl: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> std::result::Result<Option<StoredRow>, Fault> {
        let deadline = self.link.deadline();
        self.must_know(decl, deadline).await?;
        let field = escape(row_key);
        let mut get = redis::cmd("HMGET");
        get.arg(self.partition(decl, partition)).arg(&field);
        for name in document::volatile_names(decl) {
            get.arg(layout::column(&field, name));
        }
        let values = rows::items(self.ask(&get, deadline).await?).map_err(Fault::corrupt)?;
        let found = rows::row(decl, &field, values).map_err(Fault::corrupt)?;
        if found.is_none() {
            self.look(decl, deadline).await?;
        }
        Ok(found)
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.address.place.name.as_str(), operation()))
    }

    fn fault(&self, fault: Fault, operation: impl Into<String>) -> StoreError {
        fault.at(&self.address.place.name, operation)
    }

    fn small_enough(&self, arguments: &Arguments, operation: impl Fn() -> String) -> Result<()> {
        let bytes = arguments.bytes();
        if bytes <= REQUEST_BYTES_MAX {
            return Ok(());
        }
        let detail = format!("{bytes} bytes at once, at most {REQUEST_BYTES_MAX} are allowed");
        Err(self.fault(Fault::new(StoreErrorKind::Invalid, detail), operation()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No change under these locks can end in the middle.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The answer to a commit that happened.
fn committed(mutations: &[Mutation], etag: &str) -> CommitOutcome {
    let etag: emmer_store::Etag = etag.into();
    let writes = |m: &Mutation| !matches!(m, Mutation::Delete { .. } | Mutation::Check { .. });
    CommitOutcome::Committed(mutations.iter().map(|m| writes(m).then(|| etag.clone())).collect())
}

impl SystemStore for RedisStore {
    fn describe(&self) -> String {
        self.address.place.name.clone()
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async move {
            let server = self.server().await.map_err(|fault| self.fault(fault, "examine"))?;
            let password = self.address.place.password.is_some();
            let mut found = server.examination(self.address.wait_replicas, self.address.tls, password);
            let asked = SystemTime::now();
            if let Ok(time) = self.ask(&redis::cmd("TIME"), self.link.deadline()).await {
                let texts = rows::items(time).unwrap_or_default().into_iter().map(rows::text);
                let texts: std::result::Result<Vec<String>, String> = texts.collect();
                found.clock = texts.ok().and_then(|time| clock(asked, &time, SystemTime::now()));
            }
            Ok(found)
        })
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for decl in tables {
                let operation = || format!("ensure {}", decl.name);
                self.checked(validate::table(decl), operation)?;
                let deadline = self.link.deadline();
                let mut set = redis::cmd("HSETNX");
                set.arg(keys::tables(&self.address.place.layout)).arg(decl.name).arg(declaration(decl));
                let made = self.ask(&set, deadline).await;
                made.map_err(|fault| self.fault(fault, operation()))?;
                self.look(decl, deadline).await.map_err(|fault| self.fault(fault, operation()))?;
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
            let deadline = self.link.deadline();
            let etag = self.marks.next();
            let arguments = Arguments::of_commit(table, partition, &mutations, &etag);
            self.small_enough(&arguments, operation)?;
            let begun = Instant::now();
            let ended = self.run_commit(table, partition, &arguments, deadline, false).await;
            let outcome = match ended {
                Ok(Some(at)) => CommitOutcome::Conflict(at),
                Err(Failure::Nothing(fault)) => return Err(self.fault(fault, operation())),
                Err(Failure::Broken(fault)) => CommitOutcome::Unknown(self.fault(fault, operation())),
                Ok(None) => match self.wait(deadline).await {
                    Ok(()) => committed(&mutations, &etag),
                    Err(fault) => CommitOutcome::Unknown(self.fault(fault, operation())),
                },
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
            let error = |fault: Fault| self.fault(fault, operation());
            let deadline = self.link.deadline();
            self.must_know(table, deadline).await.map_err(error)?;
            let key = self.partition(table, partition);
            let index = keys::indexed(table).find(|c| c.name == column).map(|c| keys::index(&key, c.name));
            let all: Vec<&str> = std::iter::once(key.as_str()).chain(index.as_deref()).collect();
            let field = escape(row_key);
            let (column_field, text) = (layout::column(&field, column), document::encode_value(&value));
            let number = if let Value::Int(n) = value { score(n) } else { String::new() };
            let arguments = [&field, &column_field, &text, &number].map(|text| text.as_bytes());
            let answer = self.link.run(&TOUCH, &all, &arguments, deadline, true).await;
            match answer.map_err(|failure| error(failure.fault()))? {
                Answer::Int(0) => Err(error(Fault::new(StoreErrorKind::NotFound, "the row is not there"))),
                Answer::Int(_) => Ok(()),
                other => Err(error(Fault::corrupt(rows::strange(&other)))),
            }
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
            let error = |fault: Fault| self.fault(fault, operation());
            self.must_know(table, self.link.deadline()).await.map_err(error)?;
            let etag = self.marks.next();
            for part in rows.chunks(APPEND_ROWS) {
                let arguments = Arguments::of_append(table, partition, part, &etag);
                self.small_enough(&arguments, operation)?;
                let deadline = self.link.deadline();
                let ended = self.run_commit(table, partition, &arguments, deadline, true).await;
                ended.map_err(|failure| error(failure.fault()))?;
            }
            Ok(())
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
