//! DynamoDB Local, the vendor's emulator of DynamoDB: its own folder, its own port.
//!
//! It is a Java program that a package of npm carries, under Amazon's licence for DynamoDB Local:
//! for development and tests, not for passing on. npm fetches it once, and it is unpacked, not
//! installed: into a folder of this user's below the temporary folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::local::{Local, Starter, log_to, output_of};
use crate::process::{READY_LIMIT, find, programs_folder, run, wait_until};
use crate::{Trouble, ask};

/// Debian's package of what fetches it.
pub const PACKAGE: &str = "npm";
/// Debian's package of what runs it.
pub const JAVA_PACKAGE: &str = "default-jre-headless";
/// The package of npm that carries it, and its version.
const CARRIER: &str = "amplify-dynamodb-simulator@2.9.30";
/// The setting of a server that keeps its data in memory: quicker, and all is gone when it ends.
pub const IN_MEMORY: &str = "-inMemory";
/// The version it says it has.
const VERSION: &str = "1.25.1";
/// The program.
const JAR: &str = "DynamoDBLocal.jar";
/// The credentials of the URLs: any will do, letters and digits only.
pub const ACCESS_KEY: &str = "local";
/// The secret that goes with them.
pub const SECRET_KEY: &str = "local";

/// The programs of a DynamoDB Local that was fetched.
#[derive(Clone, Debug)]
pub struct Programs {
    java: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    fn java(&self) -> Command {
        let mut command = Command::new(&self.java);
        command.args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        let mut libraries = std::ffi::OsString::from("-Djava.library.path=");
        libraries.push(self.folder.join("DynamoDBLocal_lib"));
        command.arg(libraries).arg("-jar").arg(self.folder.join(JAR));
        command
    }

    /// Returns true if a server on `port` refuses an invalid question.
    pub fn is_ready(&self, port: u16) -> bool {
        ask::get(port, "/").is_some_and(|(status, _)| status == 400)
    }
}

/// The folder of an earlier fetch, or of this one.
fn fetched() -> Result<PathBuf, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let folder = programs_folder()?;
    let unpacked = folder.join(format!("dynamodb-local-{VERSION}"));
    if unpacked.join(JAR).is_file() {
        return Ok(unpacked);
    }
    let missing = || Trouble::Missing { program: "npm".to_owned(), package: PACKAGE };
    let npm = find("npm", &[]).ok_or_else(missing)?;
    println!("fetching DynamoDB Local by npm, once");
    let work = TempDir::new_in(&folder).map_err(failed)?;
    let packed =
        output_of(Command::new(npm).args(["pack", "--silent", CARRIER]).current_dir(work.path()));
    let file = match packed {
        Ok(said) => said.trim().to_owned(),
        Err(trouble) => {
            println!("DynamoDB Local cannot be fetched: {trouble}");
            return Err(Trouble::Missing {
                program: "DynamoDB Local".to_owned(),
                package: PACKAGE,
            });
        }
    };
    run(Command::new("tar").args(["xzf", &file, "package/emulator"]).current_dir(work.path()))?;
    // The second one finds the first one's, which is as good.
    let _ = fs::rename(work.path().join("package/emulator"), &unpacked);
    if unpacked.join(JAR).is_file() {
        Ok(unpacked)
    } else {
        Err(Trouble::Failed(format!("{CARRIER} carries no {JAR}")))
    }
}

// A kill may lose its last writes, though it acknowledged them; ended by this signal it keeps them.
impl Starter for Programs {
    const NAME: &'static str = "dynamodb";
    const CRASH: &'static str = "TERM";
    const PAGED_ROWS: Option<usize> = Some(800);
    const KNOWS_REPEATS: bool = true;

    fn find() -> Result<Self, Trouble> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = || Trouble::Missing { program: "java".to_owned(), package: JAVA_PACKAGE };
        let java = find("java", &[]).ok_or_else(missing)?;
        Ok(Self { java, folder: fetched()?, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let data = folder.join("data");
        fs::create_dir_all(&data)
            .map_err(|e| Trouble::Failed(format!("{}: {e}", data.display())))?;
        let mut command = self.java();
        command.args(["-sharedDb", "-disableTelemetry", "-port"]).arg(port.to_string());
        command.args(&self.settings);
        if !self.settings.iter().any(|setting| setting == IN_MEMORY) {
            command.arg("-dbPath").arg(data);
        }
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        Ok(format!("DynamoDB Local {}", output_of(server.programs.java().arg("-version"))?.trim()))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_dynamodb`.
pub fn url(port: u16) -> String {
    format!("dynamodb://{ACCESS_KEY}:{SECRET_KEY}@127.0.0.1:{port}?region=local&tls=false")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type DynamoDbServer = Local<Programs>;
