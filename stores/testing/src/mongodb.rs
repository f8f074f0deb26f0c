//! SecantusDB, a server that speaks MongoDB's protocol: its own folder, its own port. It is **not
//! mongod**, of which no package registry has a program.
//!
//! It is a program in Python under the GNU GPL: a process of its own that tests talk to, and
//! nothing that is linked or passed on. pip fetches it once, with the driver for Python that an
//! administrator's commands use, and it is unpacked beside, not installed: into a folder of this
//! user's below the temporary folder.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::local::{Local, Starter, log_to};
use crate::process::{READY_LIMIT, find, programs_folder, run, wait_until};
use crate::{Trouble, skip};

/// Debian's packages of what fetches and runs it.
pub const PACKAGE: &str = "python3";
/// What fetches it.
pub const PIP_PACKAGE: &str = "python3-pip";
/// The version that is fetched.
const VERSION: &str = "0.7.0b3";
/// The setting of a server that has on its disk what it acknowledged.
pub const SYNC: &str = "--sync-on-commit";
/// The setting of a server that lets nobody in without a password.
const AUTH: &str = "--auth";
/// The database of a server's only client.
const DATABASE: &str = "emmer";

/// The programs of a SecantusDB that was fetched.
#[derive(Clone, Debug)]
pub struct Programs {
    python: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// Python, where it finds the server and the driver.
    pub fn python(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("PYTHONPATH", &self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Whether a server on `port` takes connections.
    pub fn is_ready(&self, port: u16) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    }
}

/// The folder of an earlier fetch, or of this one.
fn fetched(python: &Path) -> Result<PathBuf, Trouble> {
    let folder = programs_folder()?;
    let unpacked = folder.join(format!("secantusdb-{VERSION}"));
    if unpacked.join("secantus").is_dir() {
        return Ok(unpacked);
    }
    println!("fetching SecantusDB by pip, once");
    let work = TempDir::new_in(&folder).map_err(|e| Trouble::Failed(e.to_string()))?;
    let target = work.path().join("secantusdb");
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(&target);
    if let Err(trouble) = run(pip.arg(format!("secantusdb=={VERSION}"))) {
        println!("SecantusDB cannot be fetched: {trouble}");
        return Err(Trouble::Missing { program: "pip".to_owned(), package: PIP_PACKAGE });
    }
    // Compiled once, not by each server that starts.
    let mut compile = Command::new(python);
    compile.args(["-m", "compileall", "-q"]).arg(&target);
    if let Err(trouble) = run(&mut compile) {
        println!("not everything was compiled: {trouble}");
    }
    // Whoever is second finds the first one's, which is as good.
    let _ = fs::rename(&target, &unpacked);
    if unpacked.join("secantus").is_dir() {
        Ok(unpacked)
    } else {
        Err(Trouble::Failed("pip fetched no SecantusDB".to_owned()))
    }
}

// Its data are not needed any more when it ends.
impl Starter for Programs {
    const NAME: &'static str = "mongodb";
    const END: &'static str = "KILL";
    const KNOWS_REPEATS: bool = true;

    fn find() -> Result<Self, Trouble> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Trouble::Missing { program: "python3".to_owned(), package: PACKAGE };
        let python = find("python3", &[]).ok_or_else(missing)?;
        Ok(Self { folder: fetched(&python)?, python, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let mut command = self.python();
        command.args(["-m", "secantus", "--host", "127.0.0.1", "--cache-size", "64M"]);
        command.args(["--log-level", "WARNING", "--port"]).arg(port.to_string());
        command.arg("--storage-path").arg(folder.join("data")).args(&self.settings);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(&self) -> Result<String, Trouble> {
        Ok(format!("SecantusDB {VERSION}, not mongod"))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_mongodb`.
pub fn url(port: u16) -> String {
    url_of(port, DATABASE)
}

/// A test may stand between: the other hosts that the server names are not asked.
fn url_of(port: u16, database: &str) -> String {
    format!("mongodb://127.0.0.1:{port}/{database}?directConnection=true")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type MongoDbServer = Local<Programs>;

/// A database of its own for one test, on a server that the tests of this program share: a server
/// takes seconds to start. It ends with the last of them.
#[derive(Debug)]
pub struct MongoDbDatabase {
    server: Arc<MongoDbServer>,
    name: String,
}

impl MongoDbDatabase {
    /// A database on the shared server, which is started by the first who asks; or (`is_alone`) on
    /// a server of its own, which a test may kill.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(settings: &[&str], is_alone: bool) -> Result<Self, Trouble> {
        static SHARED: Mutex<Weak<MongoDbServer>> = Mutex::new(Weak::new());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Several processes may share a server.
        let name = format!("{DATABASE}_{}_{number}", std::process::id());
        Ok(Self { server: MongoDbServer::shared(&SHARED, settings, is_alone)?, name })
    }

    /// The same for a test that is skipped, loudly, where the server is not installed.
    ///
    /// # Panics
    /// In CI when it is not installed, and everywhere when it is but does not start.
    pub fn start_or_skip(test: &str, settings: &[&str], is_alone: bool) -> Option<Self> {
        Self::start(settings, is_alone).map_err(|trouble| skip(test, &trouble)).ok()
    }

    /// The name of the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port that the server listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Makes a user who may do everything, and starts the server, which nobody else uses, again: it
    /// asks for passwords then.
    ///
    /// # Errors
    /// It does not start again.
    pub fn ask_for_passwords(&mut self, user: &str, password: &str) -> Result<(), Trouble> {
        self.python(&format!(
            "db.client.admin.command('createUser', '{user}', pwd='{password}', roles=['root'])"
        ))?;
        let shared = || Trouble::Failed("a server that others use is not started again".to_owned());
        let server = Arc::get_mut(&mut self.server).ok_or_else(shared)?;
        server.kill();
        server.programs.settings.push(AUTH.to_owned());
        server.start_again()
    }

    /// Runs a program in Python on the database `db`, as an administrator does; what it prints.
    ///
    /// # Errors
    /// It fails; its own words.
    pub fn python(&self, program: &str) -> Result<String, Trouble> {
        let connect = format!(
            "import pymongo; from bson.json_util import dumps; \
             db = pymongo.MongoClient('127.0.0.1', {}, directConnection=True)['{}']\n",
            self.port(),
            self.name
        );
        let program: OsString = (connect + program).into();
        crate::local::output_of(self.server.programs.python().arg("-c").arg(program))
    }

    /// A shell in which Python finds the driver and a program finds the server.
    pub fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let programs = &self.server.programs;
        shell.args(["-c", command]).env("PYTHONPATH", &programs.folder);
        shell.env("MONGODB_URI", format!("mongodb://127.0.0.1:{}/{}", self.port(), self.name));
        shell
    }
}

#[cfg(feature = "suite")]
impl crate::suite::TestServer for MongoDbDatabase {
    fn version(&self) -> String {
        self.server.version()
    }

    fn port(&self) -> u16 {
        Self::port(self)
    }

    fn url_at(&self, port: u16) -> String {
        url_of(port, &self.name)
    }

    fn knows_repeats(&self) -> bool {
        self.server.knows_repeats()
    }

    fn pid(&self) -> u32 {
        self.server.pid()
    }

    fn kill(&mut self) {
        // Nobody kills what others use.
        if let Some(server) = Arc::get_mut(&mut self.server) {
            server.kill();
        }
    }

    fn start_again(&mut self) -> Result<(), Trouble> {
        let shared = || Trouble::Failed("a server that others use is not started again".to_owned());
        Arc::get_mut(&mut self.server).ok_or_else(shared)?.start_again()
    }
}
