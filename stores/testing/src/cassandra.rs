//! Apache Cassandra: one node in a folder and on ports of its own.
//!
//! Its programs are jars that Maven fetches once, not into the system: into a folder of this user's
//! below the temporary folder. The settings are the server's own defaults but for places, ports and
//! the size of its memory.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use tempfile::TempDir;

use crate::Trouble;
use crate::database::{Database, Databases};
use crate::local::{Local, Starter, kept_port, log_to};
use crate::process::{find, free_port, programs_folder, run, wait_until};

/// Debian's package of what fetches it.
pub const PACKAGE: &str = "maven";
/// Debian's package of what runs it. The server wants Java 11 or 17.
pub const JAVA_PACKAGE: &str = "default-jre-headless";
/// The version that is fetched.
const VERSION: &str = "5.0.5";
/// Setting of a server that writes to its disk before it acknowledges. By default it writes up to
/// ten seconds later, and a kill loses the commits of the last tenth of a second.
pub const SYNC_EACH: &str = "commitlog_sync: batch";
/// The keyspace of URLs.
const KEYSPACE: &str = "emmer";
/// A setting of a server that asks for a user: at first `cassandra` with this password.
pub const ONLY_FOR_USERS: &str = "authenticator: PasswordAuthenticator";
/// The first user of a server that asks, and the password.
pub const USER: &str = "cassandra";
/// What its log says when it serves, and when it has its first user.
const LISTENS: &str = "Starting listening for CQL clients";
const HAS_USER: &str = "Created default superuser role";
/// Debian's package of what fetches its command line.
pub const PIP_PACKAGE: &str = "python3-pip";
/// The version of the command line that is fetched.
const CQLSH_VERSION: &str = "6.2.2";
/// Where a node of its own listens.
const ADDRESS: &str = "127.0.0.1";
/// The program.
const MAIN: &str = "org.apache.cassandra.service.CassandraDaemon";
/// Time that it is given to be ready: it takes six seconds on a processor of its own, and a minute
/// where ten want one.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Time for which one question waits for its answer.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// The version of the protocol that is asked in.
const PROTOCOL: u8 = 4;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What the server's own script opens to it of the Java runtime: exports, then opens.
const EXPORTS: &[&str] = &[
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
];
const OPENS: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
];

/// The programs of a Cassandra that was fetched.
#[derive(Clone, Debug)]
pub struct Programs {
    java: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
    place: Place,
}

/// Where a node listens, and whom it looks for.
#[derive(Clone, Debug)]
struct Place {
    address: String,
    /// The port between nodes, and the node that is asked for the others; none for a node that is
    /// alone.
    cluster: Option<(u16, String)>,
    heap_mb: u32,
}

impl Programs {
    /// Makes it a node of a cluster: its address, the port between the nodes, and the address of
    /// the first of them.
    #[must_use]
    pub fn member(mut self, address: &str, storage_port: u16, first: &str) -> Self {
        let cluster = Some((storage_port, first.to_owned()));
        self.place = Place { address: address.to_owned(), cluster, heap_mb: 384 };
        self
    }

    fn is_alone(&self) -> bool {
        self.place.cluster.is_none()
    }

    /// The file of a jar by how its name begins.
    fn jar(&self, begins: &str) -> Result<PathBuf, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", self.folder.display()));
        let named = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(begins))
        };
        let mut files = fs::read_dir(&self.folder).map_err(failed)?.filter_map(Result::ok);
        let found = files.find_map(|entry| Some(entry.path()).filter(named));
        found.ok_or_else(|| {
            Trouble::Failed(format!("no {begins}*.jar in {}", self.folder.display()))
        })
    }

    fn settings(&self, folder: &Path, port: u16) -> Result<String, Trouble> {
        let address = &self.place.address;
        let (storage_port, first) = match &self.place.cluster {
            Some((port, first)) => (*port, first.as_str()),
            None => (kept_port(folder, "storage-port")?, ADDRESS),
        };
        let mut text = format!(
            "cluster_name: emmer\nnum_tokens: 1\npartitioner: \
             org.apache.cassandra.dht.Murmur3Partitioner\n\
             endpoint_snitch: SimpleSnitch\nlisten_address: {address}\nrpc_address: {address}\n\
             storage_port: {storage_port}\nnative_transport_port: {port}\nstart_native_transport: \
             true\n\
             seed_provider:\n  - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n    \
             parameters:\n      - seeds: \"{first}:{storage_port}\"\nauto_snapshot: false\n"
        );
        let mut line =
            |line: &str| writeln!(text, "{line}").map_err(|e| Trouble::Failed(e.to_string()));
        if !self.settings.iter().any(|setting| setting.starts_with("commitlog_sync:")) {
            line("commitlog_sync: periodic\ncommitlog_sync_period: 10000ms")?;
        }
        for setting in &self.settings {
            line(setting)?;
        }
        line(&format!("data_file_directories:\n  - {}/data", folder.display()))?;
        for name in ["commitlog", "saved_caches", "hints", "cdc_raw"] {
            line(&format!("{name}_directory: {}/{name}", folder.display()))?;
        }
        Ok(text)
    }

    /// Returns true if a server on `port` answers a question.
    pub fn is_ready(&self, port: u16) -> bool {
        ask(&self.place.address, port).is_ok_and(|is_answered| is_answered)
    }
}

/// Its log goes to where its output goes.
const LOG_SETTINGS: &str = "<configuration><appender name=\"OUT\" class=\"ch.qos.logback.core.ConsoleAppender\"><encoder>\
    <pattern>%d{HH:mm:ss.SSS} %-5level %logger{0} %msg%n</pattern></encoder></appender>\
    <root level=\"INFO\"><appender-ref ref=\"OUT\"/></root></configuration>\n";

/// Asks a server that may be there for its version, in its own protocol; whether it gives rows.
/// That it listens is too early.
fn ask(address: &str, port: u16) -> std::io::Result<bool> {
    const STARTUP: u8 = 1;
    const READY: u8 = 2;
    const QUERY: u8 = 7;
    const RESULT: u8 = 8;
    let parsed = address.parse().map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(parsed, port), ASK_LIMIT)?;
    stream.set_read_timeout(Some(ASK_LIMIT))?;
    stream.set_write_timeout(Some(ASK_LIMIT))?;
    let mut send = |opcode: u8, body: &[u8]| -> std::io::Result<u8> {
        let length = u32::try_from(body.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        let mut frame = vec![PROTOCOL, 0, 0, 0, opcode];
        frame.extend(length.to_be_bytes());
        frame.extend(body);
        stream.write_all(&frame)?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = head.iter().skip(5).fold(0, |n, byte| n << 8 | usize::from(*byte));
        stream.read_exact(&mut vec![0; length.min(ANSWER_BYTES_MAX)])?;
        Ok(head.get(4).copied().unwrap_or_default())
    };
    // A map of one pair of texts.
    if send(STARTUP, b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0")? != READY {
        return Ok(false);
    }
    let question = "SELECT release_version FROM system.local";
    let length = u32::try_from(question.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let mut body = length.to_be_bytes().to_vec();
    body.extend(question.as_bytes());
    // At consistency ONE, without anything else.
    body.extend([0, 1, 0]);
    Ok(send(QUERY, &body)? == RESULT)
}

/// The folder of an earlier fetch, or of this one.
fn fetched() -> Result<PathBuf, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let folder = programs_folder()?;
    let jars = folder.join(format!("cassandra-{VERSION}"));
    if jars.is_dir() {
        return Ok(jars);
    }
    let missing = || Trouble::Missing { program: "mvn".to_owned(), package: PACKAGE };
    let maven = find("mvn", &[]).ok_or_else(missing)?;
    println!("fetching Cassandra by Maven, once");
    let work = TempDir::new_in(&folder).map_err(failed)?;
    let project = format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>emmer</groupId><artifactId>cassandra</artifactId>\
         <version>1</version><dependencies><dependency><groupId>org.apache.cassandra</groupId>\
         <artifactId>cassandra-all</artifactId><version>{VERSION}</version></dependency></dependencies></project>"
    );
    fs::write(work.path().join("pom.xml"), project).map_err(failed)?;
    let goal = ["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"];
    if let Err(trouble) = run(Command::new(maven).args(goal).current_dir(work.path())) {
        println!("Cassandra cannot be fetched: {trouble}");
        return Err(Trouble::Missing { program: "Cassandra".to_owned(), package: PACKAGE });
    }
    // The second one finds the first one's, which is as good.
    let _ = fs::rename(work.path().join("jars"), &jars);
    if jars.is_dir() { Ok(jars) } else { Err(Trouble::Failed("Maven fetched no jars".to_owned())) }
}

/// The server's own command line `cqlsh`, which pip fetches once: its folder, to stand in
/// `PYTHONPATH`, with the program in its `bin`.
///
/// # Errors
/// [`Trouble::Missing`], also when the registry cannot be reached.
pub fn cqlsh() -> Result<PathBuf, Trouble> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = programs_folder()?;
    let unpacked = folder.join(format!("cqlsh-{CQLSH_VERSION}"));
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    let missing =
        |program: &str| Trouble::Missing { program: program.to_owned(), package: PIP_PACKAGE };
    let python = find("python3", &[]).ok_or_else(|| missing("python3"))?;
    println!("fetching cqlsh by pip, once");
    let work = TempDir::new_in(&folder).map_err(|e| Trouble::Failed(e.to_string()))?;
    let target = work.path().join("cqlsh");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(&target);
    if let Err(trouble) = run(pip.arg(format!("cqlsh=={CQLSH_VERSION}"))) {
        println!("cqlsh cannot be fetched: {trouble}");
        return Err(missing("pip"));
    }
    // The second one finds the first one's, which is as good.
    let _ = fs::rename(&target, &unpacked);
    if unpacked.is_dir() {
        Ok(unpacked)
    } else {
        Err(Trouble::Failed("pip fetched no cqlsh".to_owned()))
    }
}

// Its data are not needed when it ends; in good order it would take five seconds.
impl Starter for Programs {
    const NAME: &'static str = "cassandra";
    const END: &'static str = "KILL";
    const PAGED_ROWS: Option<usize> = Some(6_000);
    const KNOWS_REPEATS: bool = true;

    fn find() -> Result<Self, Trouble> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Trouble::Missing { program: "java".to_owned(), package: JAVA_PACKAGE };
        let java = find("java", &[]).ok_or_else(missing)?;
        let place = Place { address: ADDRESS.to_owned(), cluster: None, heap_mb: 512 };
        Ok(Self { java, folder: fetched()?, settings: Vec::new(), place })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        let settings = folder.join("cassandra.yaml");
        fs::write(&settings, self.settings(folder, port)?).map_err(failed)?;
        let log = folder.join("logback.xml");
        fs::write(&log, LOG_SETTINGS).map_err(failed)?;
        let of = |key: &str, path: &Path| format!("-D{key}={}", path.display());
        let mut command = Command::new(&self.java);
        command
            .args([format!("-Xms{}m", self.place.heap_mb), format!("-Xmx{}m", self.place.heap_mb)]);
        // It lives for seconds: a quick start is better than a high peak speed.
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args([
            "-Djdk.attach.allowAttachSelf=true",
            "-Dio.netty.tryReflectionSetAccessible=true",
        ]);
        command.args(EXPORTS.iter().map(|name| format!("--add-exports={name}=ALL-UNNAMED")));
        command.args(OPENS.iter().map(|name| format!("--add-opens={name}=ALL-UNNAMED")));
        command.arg(format!("-javaagent:{}", self.jar("jamm-")?.display()));
        command.arg(format!("-Dcassandra.config=file://{}", settings.display()));
        command.args([of("cassandra.storagedir", folder), of("java.library.path", folder)]);
        command.arg(of("logback.configurationFile", &log));
        command.args(["-Dcassandra-foreground=yes", "-Dcassandra.superuser_setup_delay_ms=0"]);
        command.arg("-Dcassandra.skip_wait_for_gossip_to_settle=0");
        // Time for which a node waits until the others know of it.
        command.arg(format!(
            "-Dcassandra.ring_delay_ms={}",
            if self.is_alone() { 100 } else { 1_000 }
        ));
        command.arg("-Dcassandra.consistent.rangemovement=false");
        command
            .arg("-cp")
            .arg(format!("{}:{}/*", folder.display(), self.folder.display()))
            .arg(MAIN);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        let log = folder.join("log");
        if self.settings.iter().any(|setting| setting == ONLY_FOR_USERS) {
            // It answers no question without a user.
            let has = |text: &str| fs::read_to_string(&log).is_ok_and(|log| log.contains(text));
            return wait_until(child, &log, START_LIMIT, || has(LISTENS) && has(HAS_USER));
        }
        wait_until(child, &log, START_LIMIT, || self.is_ready(port))
    }

    fn version(_server: &Local<Self>) -> Result<String, Trouble> {
        Ok(format!("Cassandra {VERSION}"))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_cassandra`.
pub fn url(port: u16) -> String {
    url_of(port, KEYSPACE)
}

fn url_of(port: u16, keyspace: &str) -> String {
    format!("cassandra://{ADDRESS}:{port}/{keyspace}?replication=1")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type CassandraServer = Local<Programs>;

impl Databases for Programs {
    const DATABASE: &'static str = KEYSPACE;

    fn url_of(port: u16, keyspace: &str) -> String {
        url_of(port, keyspace)
    }

    fn shared() -> &'static Mutex<Weak<CassandraServer>> {
        static SHARED: Mutex<Weak<CassandraServer>> = Mutex::new(Weak::new());
        &SHARED
    }
}

/// A keyspace of its own for one test.
pub type CassandraKeyspace = Database<Programs>;

/// Several nodes that are one cluster, on the addresses 127.0.0.1 and following.
#[derive(Debug)]
pub struct CassandraCluster {
    /// The nodes; the first one is whom the others ask for the cluster.
    pub nodes: Vec<CassandraServer>,
}

impl CassandraCluster {
    /// Starts them, one after the other: each waits until the others know of it.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(count: usize) -> Result<Self, Trouble> {
        let (port, storage_port) = (free_port()?, free_port()?);
        let node = |n: usize| {
            let programs = Programs::find()?.member(&address(n), storage_port, ADDRESS);
            CassandraServer::start_as(programs, port)
        };
        // On a busy machine a node may give up before the others know of it.
        Ok(Self {
            nodes: (0..count).map(|n| node(n).or_else(|_| node(n))).collect::<Result<_, _>>()?,
        })
    }

    /// The URL of an empty store with as many copies of each row as there are nodes.
    pub fn url(&self) -> String {
        let count = self.nodes.len();
        let port = self.nodes.first().map_or(0, Local::port);
        let hosts: Vec<String> = (0..count).map(|n| format!("{}:{port}", address(n))).collect();
        format!("cassandra://{}/{KEYSPACE}?replication={count}", hosts.join(","))
    }
}

#[cfg(feature = "suite")]
impl crate::suite::members::Members for CassandraCluster {
    fn url(&self) -> String {
        Self::url(self)
    }

    fn count(&self) -> usize {
        self.nodes.len()
    }

    /// There is no leader: the first node, of which the others ask for the cluster.
    fn leader(&self) -> Option<usize> {
        Some(0)
    }

    fn pid(&self, member: usize) -> u32 {
        self.nodes[member].pid()
    }

    fn kill(&mut self, member: usize) {
        self.nodes[member].kill();
    }

    fn start_again(&mut self, member: usize) -> Result<(), Trouble> {
        self.nodes[member].start_again()
    }
}

/// The address of a node of a cluster.
fn address(n: usize) -> String {
    format!("127.0.0.{}", n + 1)
}
