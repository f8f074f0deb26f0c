//! ZooKeeper: one server, its own data folder, its own port.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::certificates::Certificates;
use crate::process::{end, find, free_port, signal, wait_until};
use crate::{Trouble, skip};

/// Debian's package.
pub const PACKAGE: &str = "zookeeper";
/// A user for tests of passwords (ZooKeeper knows no users: whoever makes a node may say whose it is).
pub const USER: &str = "silo";
/// That user's password. It holds characters that a URL must escape.
pub const PASSWORD: &str = "only/for:tests";
/// The same in a URL.
pub const PASSWORD_ESCAPED: &str = "only%2Ffor%3Atests";
/// How long a server is given to accept sessions, after a crash too.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long one question waits for its answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Where Debian puts the server; its manifest names the other jars.
const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/zookeeper/zookeeper.jar"];
/// What encrypted connections need besides, where it is installed: the manifest leaves them out.
const TLS_JARS: [&str; 3] = [
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-resolver.jar",
    "/usr/share/java/netty-transport-native-unix-common.jar",
];
/// Where Debian puts the command line client.
const CLI_FOLDERS: [&str; 2] = ["/usr/share/zookeeper/bin", "/opt/zookeeper/bin"];

/// The programs of an installed ZooKeeper.
#[derive(Clone, Debug)]
pub struct Programs {
    java: PathBuf,
    jar: PathBuf,
}

impl Programs {
    /// Looks for Java on the `PATH` and for the server where Debian puts it.
    ///
    /// # Errors
    /// [`Trouble::Missing`].
    pub fn find() -> Result<Self, Trouble> {
        let missing = |program: &str| Trouble::Missing { program: program.to_owned(), package: PACKAGE };
        let java = find("java", &[]).ok_or_else(|| missing("Java"))?;
        let jar = JARS.iter().map(PathBuf::from).find(|jar| jar.is_file());
        Ok(Self { java, jar: jar.ok_or_else(|| missing("ZooKeeper (zookeeper.jar)"))? })
    }

    /// Writes the settings into `folder`; the server makes its data folder itself.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn initialize(&self, folder: &Path, port: u16) -> Result<(), Trouble> {
        let settings = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\ntickTime=500\n\
             maxClientCnxns=0\n",
            folder.join("data").display()
        );
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        fs::create_dir_all(folder.join("data")).map_err(failed)?;
        fs::write(folder.join("zoo.cfg"), settings).map_err(failed)
    }

    /// The server on an initialized folder; it writes to `log` there.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn server(&self, folder: &Path) -> Result<Command, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        let log = File::options().create(true).append(true).open(folder.join("log")).map_err(failed)?;
        let mut command = Command::new(&self.java);
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        // What a killed server has written the kernel still writes; only a host that dies would lose it. Waiting for a disk
        // that others keep busy would say nothing about the store.
        command.args(["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]);
        let jars = [self.jar.clone()].into_iter().chain(TLS_JARS.map(PathBuf::from));
        let jars = std::env::join_paths(jars).map_err(|e| Trouble::Failed(e.to_string()))?;
        command.arg("-cp").arg(jars).arg("org.apache.zookeeper.server.ZooKeeperServerMain");
        command.arg(folder.join("zoo.cfg")).current_dir(folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        Ok(command)
    }

    /// Waits until a server accepts sessions.
    ///
    /// # Errors
    /// It ends or takes longer than a minute; the end of its log.
    pub fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || answer_of(port, "Mode:").is_some())
    }

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

/// What the server on `port` says behind `start` when it is asked how it is. A server says its mode only when it accepts
/// sessions; `ruok` is answered before.
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

/// The address of an empty node for `emmer_store_zookeeper`.
pub fn url(port: u16) -> String {
    format!("zookeeper://{USER}:{PASSWORD_ESCAPED}@127.0.0.1:{port}/emmer")
}

/// A server for one test. Dropped, it ends and its folder is removed.
#[derive(Debug)]
pub struct ZooKeeperServer {
    programs: Programs,
    child: Child,
    folder: TempDir,
    port: u16,
}

impl ZooKeeperServer {
    /// Makes a data folder and starts a server on it.
    ///
    /// # Errors
    /// ZooKeeper is not installed or does not start.
    pub fn start() -> Result<Self, Trouble> {
        let programs = Programs::find()?;
        let folder = TempDir::with_prefix("emmer-zookeeper-").map_err(|e| Trouble::Failed(e.to_string()))?;
        let port = free_port()?;
        programs.initialize(folder.path(), port)?;
        let child = launch(&programs, folder.path(), port)?;
        Ok(Self { programs, child, folder, port })
    }

    /// The same, listening for encrypted connections too; their port.
    ///
    /// # Errors
    /// ZooKeeper is not installed or does not start.
    pub fn start_with_tls(certificates: &Certificates) -> Result<(Self, u16), Trouble> {
        let programs = Programs::find()?;
        let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
        let folder = TempDir::with_prefix("emmer-zookeeper-").map_err(failed)?;
        let (port, secure) = (free_port()?, free_port()?);
        programs.initialize(folder.path(), port)?;
        let read = |file: &Path| fs::read_to_string(file).map_err(failed);
        let store = folder.path().join("server.pem");
        fs::write(&store, read(&certificates.key)? + &read(&certificates.certificate)?).map_err(failed)?;
        let settings = folder.path().join("zoo.cfg");
        let more = format!(
            "secureClientPort={secure}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nssl.clientAuth=none\n\
             ssl.keyStore.location={0}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={1}\nssl.trustStore.type=PEM\n",
            store.display(),
            certificates.authority.display()
        );
        fs::write(&settings, read(&settings)? + &more).map_err(failed)?;
        let child = launch(&programs, folder.path(), port)?;
        Ok((Self { programs, child, folder, port }, secure))
    }

    /// The same as [`start`](Self::start) for a test that is skipped, loudly, where ZooKeeper is not installed.
    ///
    /// # Panics
    /// In CI when ZooKeeper is not installed, and everywhere when it is but does not start.
    pub fn start_or_skip(test: &str) -> Option<Self> {
        Self::start().map_err(|trouble| skip(test, &trouble)).ok()
    }

    /// The address of its store.
    pub fn url(&self) -> String {
        url(self.port)
    }

    /// The port it listens on, at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its version.
    pub fn version(&self) -> String {
        let said = answer_of(self.port, "Zookeeper version:").unwrap_or_default();
        said.split(['-', ',']).next().unwrap_or_default().to_owned()
    }

    /// What a shell command line prints in which `zkCli.sh` is that of this ZooKeeper.
    ///
    /// # Errors
    /// What it says.
    pub fn shell(&self, line: &str) -> Result<String, Trouble> {
        let cli = self.programs.cli()?;
        let folder = cli.parent().map(Path::to_path_buf).unwrap_or_default();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&paths)));
        let failed = |words: String| Trouble::Failed(format!("{line}: {words}"));
        let mut command = Command::new("sh");
        command.args(["-c", line]).env("PATH", paths.map_err(|e| failed(e.to_string()))?);
        let ended = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
        if !ended.status.success() {
            return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    /// Sends the process a signal (`STOP`, `CONT`, ...).
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, name: &str) -> Result<(), Trouble> {
        signal(self.child.id(), name)
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        // It may have died by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same data and port after [`kill`](Self::kill).
    ///
    /// # Errors
    /// It does not start within a minute.
    pub fn start_again(&mut self) -> Result<(), Trouble> {
        self.child = launch(&self.programs, self.folder.path(), self.port)?;
        Ok(())
    }
}

fn launch(programs: &Programs, folder: &Path, port: u16) -> Result<Child, Trouble> {
    let mut child = programs.server(folder)?.spawn().map_err(|e| Trouble::Failed(e.to_string()))?;
    if let Err(trouble) = programs.wait_until_ready(&mut child, folder, port) {
        end(&mut child, "TERM");
        return Err(trouble);
    }
    Ok(child)
}

impl Drop for ZooKeeperServer {
    fn drop(&mut self) {
        // Nothing of it is kept: no reason to wait for a goodbye.
        self.kill();
    }
}

#[cfg(feature = "suite")]
impl crate::suite::TestServer for ZooKeeperServer {
    fn version(&self) -> String {
        format!("ZooKeeper {}", Self::version(self))
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn url_at(&self, port: u16) -> String {
        url(port)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&mut self) {
        Self::kill(self);
    }

    fn start_again(&mut self) -> Result<(), Trouble> {
        Self::start_again(self)
    }
}
