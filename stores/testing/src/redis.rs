//! Redis: its own folder, its own port, a password, and every write on disk before it is answered.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;

use crate::local::{Local, Starter, log_to, output_of};
use crate::process::{POLL, READY_LIMIT, find, free_port, wait_until};
use crate::{Trouble, skip};

/// The password of every server made here. It holds characters that a URL must escape.
pub const PASSWORD: &str = "only/for:tests";
/// The password in a URL.
const PASSWORD_ESCAPED: &str = "only%2Ffor%3Atests";
/// Debian's package.
pub const PACKAGE: &str = "redis-server";

/// The programs of an installed Redis.
#[derive(Clone, Debug)]
pub struct Programs {
    server: PathBuf,
    cli: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// Returns true if a server on `port` serves.
    pub fn is_ready(&self, port: u16) -> bool {
        self.cli(port, &["PING"]).is_ok_and(|answer| answer.trim() == "PONG")
    }

    /// Output of `redis-cli` at a server made here.
    ///
    /// # Errors
    /// What it says.
    pub fn cli(&self, port: u16, arguments: &[&str]) -> Result<String, Trouble> {
        let mut command = Command::new(&self.cli);
        // Not on the command line, where every user sees it.
        command
            .env("REDISCLI_AUTH", PASSWORD)
            .args(["-h", "127.0.0.1", "-p"])
            .arg(port.to_string());
        output_of(command.args(arguments))
    }
}

impl Starter for Programs {
    const NAME: &'static str = "redis";

    fn find() -> Result<Self, Trouble> {
        let missing = |program: &str| Trouble::Missing {
            program: format!("Redis ({program})"),
            package: PACKAGE,
        };
        let found = |program: &str| find(program, &[]).ok_or_else(|| missing(program));
        Ok(Self { server: found("redis-server")?, cli: found("redis-cli")?, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let mut command = Command::new(&self.server);
        // Its title keeps the command line, which names the folder.
        command.args([
            "--set-proc-title",
            "no",
            "--daemonize",
            "no",
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        // Also for the replicas of a cluster.
        command.args(["--requirepass", PASSWORD, "--masterauth", PASSWORD]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder).args(&self.settings);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let said = output_of(Command::new(&server.programs.server).arg("--version"))?;
        let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Ok(format!("Redis {}", version.unwrap_or_default()))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address of database 0 for `emmer_store_redis`.
pub fn url(port: u16) -> String {
    format!("redis://:{PASSWORD_ESCAPED}@127.0.0.1:{port}/0")
}

/// A server for one test, which writes everything to disk before it answers. Dropped, it ends and
/// its folder is removed.
pub type RedisServer = Local<Programs>;

impl RedisServer {
    /// Output of `redis-cli`.
    ///
    /// # Errors
    /// What it says.
    pub fn cli(&self, arguments: &[&str]) -> Result<String, Trouble> {
        self.programs.cli(self.port(), arguments)
    }
}

/// The nodes of a Redis Cluster for one test, each with its share of the slots. Dropped, they end.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes: the primaries, then the replicas.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts as many nodes, at least three, and makes a cluster of them.
    ///
    /// # Errors
    /// Redis 7 is not installed or does not start.
    pub fn start(count: usize) -> Result<Self, Trouble> {
        Self::start_with(count, 0)
    }

    /// Starts a cluster with `replicas` replicas of each of the `primaries`.
    ///
    /// # Errors
    /// Redis 7 is not installed or does not start.
    pub fn start_with(primaries: usize, replicas: usize) -> Result<Self, Trouble> {
        let count = primaries * (1 + replicas);
        let mut nodes = Vec::new();
        for _ in 0..count {
            // Their own port, which otherwise is 10,000 above the other and may not exist.
            let port = free_port()?.to_string();
            let settings = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-port",
                port.as_str(),
                // A replica that has nothing yet is never promoted.
                "--repl-diskless-sync-delay",
                "0",
            ];
            nodes.push(RedisServer::start_with(&settings)?);
        }
        let cluster = Self { nodes };
        let places: Vec<String> =
            cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        if let Some(first) = cluster.nodes.first() {
            let copies = replicas.to_string();
            let create = ["--cluster-yes", "--cluster", "create"].into_iter();
            let create = create.chain(places.iter().map(String::as_str));
            first.cli(&create.chain(["--cluster-replicas", &copies]).collect::<Vec<_>>())?;
        }
        let begun = Instant::now();
        while !cluster.nodes.iter().all(|node| {
            node.cli(&["CLUSTER", "INFO"]).is_ok_and(|info| info.contains("cluster_state:ok"))
                && node.cli(&["INFO", "replication"]).is_ok_and(|info| {
                    !info.contains("role:slave") || info.contains("master_link_status:up")
                })
        }) {
            if begun.elapsed() > READY_LIMIT {
                return Err(Trouble::Failed("the nodes make no cluster".to_owned()));
            }
            std::thread::sleep(POLL);
        }
        Ok(cluster)
    }

    /// Starts them for a test that is skipped, loudly, where Redis is not installed.
    ///
    /// # Panics
    /// In CI when Redis is not installed, and everywhere when it is but does not start.
    pub fn start_or_skip(test: &str, count: usize) -> Option<Self> {
        Self::start(count).map_err(|trouble| skip(test, &trouble)).ok()
    }

    /// The address of the cluster, by its first nodes.
    pub fn url(&self, named: usize) -> String {
        let places: Vec<String> = self
            .nodes
            .iter()
            .take(named)
            .map(|node| format!("127.0.0.1:{}", node.port()))
            .collect();
        format!("redis://:{PASSWORD_ESCAPED}@{}", places.join(","))
    }

    /// The node that has the slot of `key`, and another.
    ///
    /// # Errors
    /// What they say.
    pub fn owner_and_other(&self, key: &str) -> Result<(&RedisServer, &RedisServer), Trouble> {
        let nobody = || Trouble::Failed(format!("no node has {key}"));
        let mut other = None;
        let mut owner = None;
        for node in &self.nodes {
            // Any other node names the owner.
            let moved = node.cli(&["EXISTS", key])?.contains("MOVED");
            *(if moved { &mut other } else { &mut owner }) = Some(node);
        }
        owner.zip(other).ok_or_else(nobody)
    }
}

/// A Redis Cluster whose primaries have replicas, for writers of one partition.
#[cfg(feature = "suite")]
#[derive(Debug)]
pub struct RedisFailover {
    cluster: RedisCluster,
    /// The key of the partition.
    key: &'static str,
    /// The parameters of the URL, beginning with a `?`.
    parameters: &'static str,
}

#[cfg(feature = "suite")]
impl RedisFailover {
    /// Starts three primaries with `replicas` replicas each.
    ///
    /// # Errors
    /// Redis 7 is not installed or does not start.
    pub fn start(
        replicas: usize,
        key: &'static str,
        parameters: &'static str,
    ) -> Result<Self, Trouble> {
        Ok(Self { cluster: RedisCluster::start_with(3, replicas)?, key, parameters })
    }
}

#[cfg(feature = "suite")]
impl crate::suite::members::Members for RedisFailover {
    fn url(&self) -> String {
        format!("{}{}", self.cluster.url(self.cluster.nodes.len()), self.parameters)
    }

    fn count(&self) -> usize {
        self.cluster.nodes.len()
    }

    /// The primary that has the partition: all others say that it moved.
    fn leader(&self) -> Option<usize> {
        self.cluster.nodes.iter().position(|node| {
            node.cli(&["EXISTS", self.key]).is_ok_and(|said| said.trim().parse::<u32>().is_ok())
        })
    }

    fn pid(&self, member: usize) -> u32 {
        self.cluster.nodes[member].pid()
    }

    fn kill(&mut self, member: usize) {
        self.cluster.nodes[member].kill();
    }

    fn start_again(&mut self, member: usize) -> Result<(), Trouble> {
        self.cluster.nodes[member].start_again()
    }
}
