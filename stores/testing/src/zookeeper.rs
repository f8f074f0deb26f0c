//! ZooKeeper: one server, its own data folder, its own port.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::Trouble;
use crate::certificates::Certificates;
use crate::group::{Group, Ports};
use crate::local::{Local, Starter, log_to, output_of};
use crate::process::{READY_LIMIT, find, free_port, wait_until};

/// Debian's package.
pub const PACKAGE: &str = "zookeeper";
/// A user for tests of passwords (ZooKeeper keeps no users: the client that makes a node names its
/// owner).
pub const USER: &str = "silo";
/// That user's password. It holds characters that a URL must escape.
pub const PASSWORD: &str = "only/for:tests";
/// The password in a URL.
pub const PASSWORD_ESCAPED: &str = "only%2Ffor%3Atests";
/// Time for which one question waits for its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Where Debian puts the server; its manifest names the other jars.
const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/zookeeper/zookeeper.jar"];
/// Files that encrypted connections need, where they are installed: the manifest leaves them out.
const TLS_JARS: [&str; 3] = [
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-resolver.jar",
    "/usr/share/java/netty-transport-native-unix-common.jar",
];
/// The server alone, and as a member of several.
const ALONE: &str = "org.apache.zookeeper.server.ZooKeeperServerMain";
const MEMBER: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// A setting that is no line of `zoo.cfg`: the number of a member.
const MY_ID: &str = "myid=";
/// Where Debian puts the command line client.
const CLI_FOLDERS: [&str; 2] = ["/usr/share/zookeeper/bin", "/opt/zookeeper/bin"];

/// The programs of an installed ZooKeeper.
#[derive(Clone, Debug)]
pub struct Programs {
    java: PathBuf,
    jar: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// `zkCli.sh`, ready for its commands.
    ///
    /// # Errors
    /// [`Trouble::Missing`].
    pub fn cli(&self) -> Result<PathBuf, Trouble> {
        let folders = CLI_FOLDERS.map(PathBuf::from);
        let missing = || Trouble::Missing { program: "zkCli.sh".to_owned(), package: PACKAGE };
        find("zkCli.sh", &folders).ok_or_else(missing)
    }
}

/// The answer of the server on `port` to a question about its health, behind `start`. A server says
/// its mode only when it accepts sessions; `ruok` is answered before.
fn answer_of(port: u16, start: &str) -> Option<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(b"srvr")?;
        let mut answer = String::new();
        stream.take(8 * 1024).read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().ok()?;
    answer.lines().find_map(|line| line.strip_prefix(start)).map(|rest| rest.trim().to_owned())
}

impl Starter for Programs {
    const NAME: &'static str = "zookeeper";

    fn find() -> Result<Self, Trouble> {
        let missing =
            |program: &str| Trouble::Missing { program: program.to_owned(), package: PACKAGE };
        let java = find("java", &[]).ok_or_else(|| missing("Java"))?;
        let jar = JARS.iter().map(PathBuf::from).find(|jar| jar.is_file());
        let jar = jar.ok_or_else(|| missing("ZooKeeper (zookeeper.jar)"))?;
        Ok(Self { java, jar, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let (own, settings): (Vec<&String>, Vec<&String>) =
            self.settings.iter().partition(|line| line.starts_with(MY_ID));
        let settings: Vec<&str> = settings.into_iter().map(String::as_str).collect();
        let settings = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\ntickTime=500\n\
             maxClientCnxns=0\n{}\n",
            folder.join("data").display(),
            settings.join("\n")
        );
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        fs::create_dir_all(folder.join("data")).map_err(failed)?;
        fs::write(folder.join("zoo.cfg"), settings).map_err(failed)?;
        let id = own.first().and_then(|line| line.strip_prefix(MY_ID));
        if let Some(id) = id {
            fs::write(folder.join("data/myid"), id).map_err(failed)?;
        }
        let main = if id.is_some() { MEMBER } else { ALONE };
        let mut command = Command::new(&self.java);
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        // The kernel still writes the bytes of a killed server; only a host that dies would lose
        // them. Waiting for a busy disk would say nothing about the store.
        command.args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]);
        let jars = [self.jar.clone()].into_iter().chain(TLS_JARS.map(PathBuf::from));
        let jars = std::env::join_paths(jars).map_err(|e| Trouble::Failed(e.to_string()))?;
        command.arg("-cp").arg(jars).arg(main);
        command.arg(folder.join("zoo.cfg"));
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || answer_of(port, "Mode:").is_some())
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let mut command = Command::new(&server.programs.java);
        let said = output_of(
            command
                .arg("-cp")
                .arg(&server.programs.jar)
                .arg("org.apache.zookeeper.version.VersionInfoMain"),
        )?;
        let version = said.lines().find_map(|line| line.strip_prefix("Apache ZooKeeper, version "));
        let version = version.and_then(|rest| rest.split([' ', '-']).next());
        Ok(format!("ZooKeeper {}", version.unwrap_or_default()))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address of an empty node for `emmer_store_zookeeper`.
pub fn url(port: u16) -> String {
    format!("zookeeper://{USER}:{PASSWORD_ESCAPED}@127.0.0.1:{port}/emmer")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type ZooKeeperServer = Local<Programs>;

impl ZooKeeperServer {
    /// A server that listens for encrypted connections too; their port. The files that the server
    /// needs are written next to the certificates.
    ///
    /// # Errors
    /// ZooKeeper is not installed or does not start.
    pub fn start_with_tls(certificates: &Certificates) -> Result<(Self, u16), Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
        let secure = free_port()?;
        let read = |file: &Path| fs::read_to_string(file).map_err(failed);
        let store = certificates.key.with_file_name("zookeeper.pem");
        fs::write(&store, read(&certificates.key)? + &read(&certificates.certificate)?)
            .map_err(failed)?;
        let settings = [
            format!("secureClientPort={secure}"),
            "secureClientPortAddress=127.0.0.1".to_owned(),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            "ssl.clientAuth=none".to_owned(),
            format!("ssl.keyStore.location={}", store.display()),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={}", certificates.authority.display()),
            "ssl.trustStore.type=PEM".to_owned(),
        ];
        let settings = settings.each_ref().map(String::as_str);
        Ok((Self::start_with(&settings)?, secure))
    }

    /// Output of a shell command line in which `zkCli.sh` is that of this ZooKeeper.
    ///
    /// # Errors
    /// The shell's output.
    pub fn shell(&self, line: &str) -> Result<String, Trouble> {
        let cli = self.programs.cli()?;
        let folder = cli.parent().map(Path::to_path_buf).unwrap_or_default();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&paths)));
        let paths = paths.map_err(|e| Trouble::Failed(format!("{line}: {e}")))?;
        output_of(Command::new("sh").args(["-c", line]).env("PATH", paths))
    }
}

/// Three members of one cluster, or as many.
///
/// # Errors
/// ZooKeeper is not installed or does not start.
pub fn cluster(count: usize) -> Result<Group<Programs>, Trouble> {
    let settings = |n: usize, all: &[Ports]| {
        let member = |(n, ports): (usize, &Ports)| {
            let [one, other] = ports.peers;
            format!("server.{}=127.0.0.1:{one}:{other}", n + 1)
        };
        let members = all.iter().enumerate().map(member);
        let more = ["initLimit=20".to_owned(), "syncLimit=4".to_owned()];
        [format!("{MY_ID}{}", n + 1)].into_iter().chain(more).chain(members).collect()
    };
    let leads =
        |node: &ZooKeeperServer| answer_of(node.port(), "Mode:").is_some_and(|m| m == "leader");
    let url = |places: &str| format!("zookeeper://{USER}:{PASSWORD_ESCAPED}@{places}/emmer");
    Group::start(count, settings, leads, url)
}
