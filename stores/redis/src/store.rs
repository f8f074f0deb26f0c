//! The contract, as commands.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use emmer_store::document::declaration;
use emmer_store::examine::{Examination, FindingLevel, FindingSubject};
use emmer_store::keys::escape;
use emmer_store::{
    CommitOutcome, Etag, Mutation, Result, Row, StoreErrorKind, StoreLimits, TableDecl, Value,
};
use emmer_store_keyvalue::outcome::committed;
use emmer_store_keyvalue::{
    Answered, At, Backend, Commits, Failure, Fault, KeyValue, Marks, Old, Tables, Touch, Writes,
    document, layout,
};
use redis::Value as Answer;
use tokio::time::Instant;

use crate::address::Address;
use crate::durability::{Server, clock, other_primaries};
use crate::keys;
use crate::nodes::Nodes;
use crate::requests::{Arguments, score};
use crate::rows;
use crate::scripts::{COMMIT, TOUCH};

/// The most bytes of values in one commit, or of one part of an append.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// The most partitions a store remembers to have registered.
const REGISTERED_MAX: usize = 10_000;

/// A system store on a Redis server:
/// `RedisStore::open("redis://user:password@host:port/database")`, or `rediss://` over TLS. Of a
/// Redis Cluster the URL names a node or some, `redis://host:port,host:port`; the others are found.
///
/// `?ca_file=` trusts the authorities in that PEM file instead of the system's. Where the URL gives
/// no password the environment's `REDISCLI_AUTH` is used. `?wait_replicas=1` acknowledges a commit
/// only when this number of replicas has it (0 to 16; the default is 0); `?prefix=emmer` is what
/// all keys begin with; `?timeout_ms=4800` is how long an operation takes at most, connecting
/// included (1000 to 60000).
///
/// A server that may lose acknowledged commits is warned about in the log.
pub type RedisStore = KeyValue<Redis>;

/// A client of one Redis server.
pub struct Redis {
    pub(crate) address: Arc<Address>,
    pub(crate) nodes: Nodes,
    marks: Marks,
    /// The partitions this store has written to the set of partitions, as their keys.
    registered: Mutex<BTreeSet<String>>,
}

impl Redis {
    /// A node's description of itself; None: the node that was asked first.
    async fn server(&self, node: Option<&str>, deadline: Instant) -> Answered<Server> {
        let server =
            match self.nodes.ask(node, redis::cmd("INFO").arg("everything"), deadline).await {
                Ok(info) => Server::of_info(&rows::text(info).map_err(Fault::corrupt)?),
                // A user with exactly the rights that a store needs.
                Err(fault) if fault.detail.contains("no permissions to run") => {
                    return Ok(Server::default());
                }
                Err(fault) => return Err(fault),
            };
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("appendfsync");
        let fsync = self.nodes.ask(node, &config, deadline).await;
        let mut config = redis::cmd("CONFIG");
        config.arg("GET").arg("save");
        let save = self.nodes.ask(node, &config, deadline).await;
        // A user who may not ask for settings gets by without.
        let texts = |answer: Answer| -> std::result::Result<Vec<String>, String> {
            rows::items(answer)?.into_iter().map(rows::text).collect()
        };
        let settings = [fsync, save].into_iter().flatten().filter_map(|a| texts(a).ok()).flatten();
        Ok(server.with_config(&settings.collect::<Vec<_>>()))
    }

    /// Adds findings about the other primaries of the cluster.
    async fn examine_others(&self, found: &mut Examination) {
        let deadline = self.nodes.deadline();
        let mut ask = redis::cmd("CLUSTER");
        let answer = self.nodes.ask(None, ask.arg("NODES"), deadline).await;
        let Some(nodes) = answer.ok().and_then(|nodes| rows::text(nodes).ok()) else {
            let text = "the server is a node of a cluster, and this user may not list its nodes \
                        (CLUSTER NODES)";
            return found.add(FindingLevel::Note, FindingSubject::Permission, text);
        };
        for name in other_primaries(&nodes) {
            match self.server(Some(&name), self.nodes.deadline()).await {
                Ok(server) => server
                    .risks(self.address.wait_replicas)
                    .into_iter()
                    .for_each(|risk| found.may_lose_writes(format!("{name}: {risk}"))),
                Err(fault) => {
                    let text = format!(
                        "{name}, a primary of the cluster, does not answer: {}",
                        fault.detail
                    );
                    found.add(FindingLevel::Problem, FindingSubject::Setup, text);
                }
            }
        }
    }

    /// Sends a command about `key` that does no harm when it is done twice.
    pub(crate) async fn ask(
        &self,
        key: &str,
        command: &redis::Cmd,
        deadline: Instant,
    ) -> std::result::Result<Answer, Fault> {
        self.nodes.send(key, command, deadline, true).await.map_err(Failure::fault)
    }

    pub(crate) fn partition(&self, decl: &TableDecl, partition: &str) -> String {
        keys::partition(&self.address.layout, decl, partition)
    }

    /// Writes a partition to the set of its table's partitions, once, before anything is written to
    /// it: a scan must not miss it. A table that no scan can ask for has no such set, which would
    /// grow by an entry for each grain.
    async fn register(
        &self,
        decl: &TableDecl,
        partition: &str,
        key: &str,
        deadline: Instant,
    ) -> std::result::Result<(), Fault> {
        if keys::indexed(decl).next().is_none() || lock(&self.registered).contains(key) {
            return Ok(());
        }
        let mut add = redis::cmd("SADD");
        let all = keys::partitions(&self.address.layout, decl);
        add.arg(&all).arg(partition);
        self.ask(&all, &add, deadline).await?;
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
        let key = self.partition(decl, partition);
        self.register(decl, partition, &key, deadline).await?;
        let indexes: Vec<String> = keys::indexed(decl).map(|c| keys::index(&key, c.name)).collect();
        let all: Vec<&str> =
            std::iter::once(key.as_str()).chain(indexes.iter().map(String::as_str)).collect();
        let answer =
            self.nodes.run(&COMMIT, &all, &arguments.as_slices(), deadline, repeatable).await?;
        // The script ran: what follows must not turn that into an error.
        match answer {
            Answer::Int(0) => Ok(None),
            Answer::Int(-1) => {
                // The partition was empty: if the server lost its data, the set of partitions is
                // gone too.
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
    async fn wait(&self, key: &str, deadline: Instant) -> std::result::Result<(), Fault> {
        let wanted = self.address.wait_replicas;
        if wanted == 0 {
            return Ok(());
        }
        // The server's limit ends first, so that it is the server that says how many there are.
        let left = deadline.saturating_duration_since(Instant::now()) * 5 / 6;
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(left.as_millis().max(1).to_string());
        let have = self.nodes.send(key, &wait, deadline, false).await.map_err(Failure::fault)?;
        let have = rows::integer(&have).map_err(Fault::corrupt)?;
        if have >= i64::from(wanted) {
            return Ok(());
        }
        Err(Fault::unavailable(format!(
            "only {have} of {wanted} replicas have the commit (wait_replicas)"
        )))
    }
}

fn small_enough(arguments: &Arguments) -> std::result::Result<(), Fault> {
    let bytes = arguments.bytes();
    if bytes <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{bytes} bytes at once, at most {REQUEST_BYTES_MAX} are allowed");
    Err(Fault::new(StoreErrorKind::Invalid, detail))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // No change under these locks can end in the middle.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backend for Redis {
    /// A script blocks the server while it runs.
    const APPEND_ROWS: usize = 200;
    const IN_MEMORY: bool = true;
    /// A hash has none.
    const KEEPS_ORDER: bool = false;
    /// A lost commit is a few comparisons.
    const LOSER_WAITS: Duration = Duration::from_millis(100);

    fn new(url: &str) -> Result<Self> {
        let address = Address::parse(url, std::env::var("REDISCLI_AUTH").ok().as_deref())?;
        let address = Arc::new(address);
        let nodes = Nodes::new(address.clone());
        Ok(Self { address, nodes, marks: Marks::random(), registered: Mutex::default() })
    }

    async fn probe(&self, deadline: Instant) -> Answered<()> {
        for loss in self.server(None, deadline).await?.losses() {
            let store = &self.address.place.name;
            tracing::warn!(store, "acknowledged commits may be lost: {loss}");
        }
        Ok(())
    }

    fn address(&self) -> &emmer_store::Address {
        &self.address.place
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::of_commits(REQUEST_BYTES_MAX)
    }

    async fn examine(&self) -> std::result::Result<Examination, Fault> {
        let password = self.address.place.password.is_some();
        let server = self.server(None, self.nodes.deadline()).await?;
        let mut found = server.examination(self.address.wait_replicas, self.address.tls, password);
        if server.is_node() {
            self.examine_others(&mut found).await;
        }
        let asked = SystemTime::now();
        if let Ok(time) = self.nodes.ask(None, &redis::cmd("TIME"), self.nodes.deadline()).await {
            let texts = rows::items(time).unwrap_or_default().into_iter().map(rows::text);
            let texts: std::result::Result<Vec<String>, String> = texts.collect();
            found.clock = texts.ok().and_then(|time| clock(asked, &time, SystemTime::now()));
        }
        Ok(found)
    }
}

impl Tables for Redis {
    async fn make(&self, table: &'static TableDecl, deadline: Instant) -> Answered<()> {
        let key = keys::tables(&self.address.layout);
        let mut set = redis::cmd("HSETNX");
        set.arg(&key).arg(table.name).arg(declaration(table));
        self.ask(&key, &set, deadline).await.map(drop)
    }

    async fn shape(
        &self,
        table: &'static TableDecl,
        deadline: Instant,
    ) -> Answered<Option<Vec<u8>>> {
        let key = keys::tables(&self.address.layout);
        let mut get = redis::cmd("HGET");
        get.arg(&key).arg(table.name);
        rows::bytes(self.ask(&key, &get, deadline).await?).map_err(Fault::corrupt)
    }
}

impl Commits for Redis {
    async fn commit(&self, at: At<'_>, mutations: &[Mutation]) -> Answered<CommitOutcome, Failure> {
        let At { table, partition, deadline } = at;
        let etag: Etag = self.marks.next().into();
        let arguments = Arguments::of_commit(table, partition, mutations, &etag);
        small_enough(&arguments)?;
        if let Some(at) = self.run_commit(table, partition, &arguments, deadline, false).await? {
            return Ok(CommitOutcome::Conflict(at));
        }
        self.wait(&self.partition(table, partition), deadline).await.map_err(Failure::Broken)?;
        Ok(committed(mutations, |_| etag.clone()))
    }
}

impl Writes for Redis {
    async fn touch(&self, at: At<'_>, touch: Touch<'_>) -> Answered<bool> {
        let Touch { row_key, column, value } = touch;
        let At { table, partition, deadline } = at;
        let key = self.partition(table, partition);
        let index =
            keys::indexed(table).find(|c| c.name == column).map(|c| keys::index(&key, c.name));
        let all: Vec<&str> = std::iter::once(key.as_str()).chain(index.as_deref()).collect();
        let field = escape(row_key);
        let (column_field, text) = (layout::column(&field, column), document::encode_value(value));
        let number = if let Value::Int(n) = value { score(*n) } else { String::new() };
        let arguments = [&field, &column_field, &text, &number].map(|text| text.as_bytes());
        let answer = self.nodes.run(&TOUCH, &all, &arguments, deadline, true).await;
        let found = rows::integer(&answer.map_err(Failure::fault)?).map_err(Fault::corrupt)?;
        Ok(found != 0)
    }

    async fn append(&self, at: At<'_>, rows: &[Row]) -> Answered<()> {
        let At { table, partition, deadline } = at;
        let arguments = Arguments::of_append(table, partition, rows, &self.marks.next());
        small_enough(&arguments)?;
        let ended = self.run_commit(table, partition, &arguments, deadline, true).await;
        ended.map(drop).map_err(Failure::fault)
    }

    async fn clean_up(&self, at: At<'_>, asked: &Old) -> Answered<u64> {
        self.delete_old(at, asked).await
    }
}
