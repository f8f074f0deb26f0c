//! SecantusDB, a server that speaks MongoDB's protocol: its own folder, its own port. It is **not
//! mongod**, of which no package registry has a program.
//!
//! It is a program in Python under the GNU GPL: a process of its own that tests talk to, and
//! nothing that is linked or passed on. pip fetches it once, with the driver for Python that an
//! administrator's commands use, and it is unpacked, not installed: into a folder of this
//! user's below the temporary folder.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::Trouble;
use crate::database::{Database, Databases};
use crate::local::{Local, Starter, log_to};
use crate::process::{READY_LIMIT, find, programs_folder, run, wait_until};

/// Debian's packages of what fetches and runs it.
pub const PACKAGE: &str = "python3";
/// What fetches it.
pub const PIP_PACKAGE: &str = "python3-pip";
/// The version that is fetched.
const VERSION: &str = "0.7.0b3";
/// Setting of a server that syncs each commit before it acknowledges.
pub const SYNC: &str = "--sync-on-commit";
/// The setting of a server that lets no client in without a password.
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

    /// Returns true if a server on `port` takes connections.
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
    // The second one finds the first one's, which is as good.
    let _ = fs::rename(&target, &unpacked);
    if unpacked.join("secantus").is_dir() {
        Ok(unpacked)
    } else {
        Err(Trouble::Failed("pip fetched no SecantusDB".to_owned()))
    }
}

// Its data are not needed when it ends.
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

    fn version(_server: &Local<Self>) -> Result<String, Trouble> {
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

impl Databases for Programs {
    const DATABASE: &'static str = DATABASE;

    fn url_of(port: u16, database: &str) -> String {
        url_of(port, database)
    }

    fn shared() -> &'static Mutex<Weak<MongoDbServer>> {
        static SHARED: Mutex<Weak<MongoDbServer>> = Mutex::new(Weak::new());
        &SHARED
    }
}

/// A database of its own for one test.
pub type MongoDbDatabase = Database<Programs>;

impl MongoDbDatabase {
    /// Makes a user who may do everything, and starts the server, which no other test uses, again:
    /// it asks for passwords then.
    ///
    /// # Errors
    /// It does not start again.
    pub fn ask_for_passwords(&mut self, user: &str, password: &str) -> Result<(), Trouble> {
        self.python(&format!(
            "db.client.admin.command('createUser', '{user}', pwd='{password}', roles=['root'])"
        ))?;
        let server = self.alone()?;
        server.kill();
        server.programs.settings.push(AUTH.to_owned());
        server.start_again()
    }

    /// Runs a program in Python on the database `db`, like an administrator. Returns its output.
    ///
    /// # Errors
    /// It fails; its own words.
    pub fn python(&self, program: &str) -> Result<String, Trouble> {
        let connect = format!(
            "import pymongo; from bson.json_util import dumps; \
             db = pymongo.MongoClient('127.0.0.1', {}, directConnection=True)['{}']\n",
            self.port(),
            self.name()
        );
        let program: OsString = (connect + program).into();
        crate::local::output_of(self.server.programs.python().arg("-c").arg(program))
    }

    /// A shell in which Python finds the driver and a program finds the server.
    pub fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        let programs = &self.server.programs;
        shell.args(["-c", command]).env("PYTHONPATH", &programs.folder);
        shell.env("MONGODB_URI", format!("mongodb://127.0.0.1:{}/{}", self.port(), self.name()));
        shell
    }
}
