//! Microsoft's emulator of Cosmos DB, a part of the SDK's driver: the program `cosmos-emulator` of
//! the package `emmer-store-cosmos`, which is compiled with that package's tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use crate::local::{Local, Starter, log_to};
use crate::process::{READY_LIMIT, run, wait_until};
use crate::{Trouble, ask};

/// The program, as an example of the package.
pub const EXAMPLE: &str = "cosmos-emulator";
/// The package.
pub const PACKAGE: &str = "emmer-store-cosmos";
/// The key of every emulator of Cosmos DB: the same everywhere, and public.
pub const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The program that was compiled.
#[derive(Clone, Debug)]
pub struct Programs {
    emulator: PathBuf,
}

impl Programs {
    /// Has cargo compile the program, and looks for it again.
    ///
    /// # Errors
    /// It cannot be compiled.
    pub fn compiled() -> Result<Self, Trouble> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--package", PACKAGE, "--example", EXAMPLE]);
        println!("compiling {EXAMPLE}, once");
        run(build.current_dir(env!("CARGO_MANIFEST_DIR")))?;
        Self::find()
    }

    /// Returns true if a server on `port` describes its account.
    pub fn is_ready(&self, port: u16) -> bool {
        ask::get(port, "/").is_some_and(|(status, _)| status == 200)
    }
}

impl Starter for Programs {
    const NAME: &'static str = "cosmos";
    const PAGED_ROWS: Option<usize> = Some(1_200);
    const KNOWS_REPEATS: bool = true;

    fn find() -> Result<Self, Trouble> {
        let here = std::env::current_exe().map_err(|e| Trouble::Failed(e.to_string()))?;
        // `target/debug/deps/it-...` of a test, `target/debug/services` of the program.
        let folders = here.ancestors().skip(1).take(2);
        let there = folders.map(|folder| folder.join("examples").join(EXAMPLE));
        there
            .into_iter()
            .find(|path| path.is_file())
            .map(|emulator| Self { emulator })
            .ok_or_else(|| Trouble::Missing { program: EXAMPLE.to_owned(), package: PACKAGE })
    }

    fn with(self, _settings: &[&str]) -> Self {
        self
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let mut command = Command::new(&self.emulator);
        command.arg(port.to_string()).arg(folder);
        log_to(&mut command, folder)?;
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        wait_until(child, &folder.join("log"), READY_LIMIT, || self.is_ready(port))
    }

    fn version(_server: &Local<Self>) -> Result<String, Trouble> {
        Ok("azure_data_cosmos_driver's in-memory emulator 1.0.0".to_owned())
    }

    fn url(port: u16) -> String {
        url(port)
    }
}

/// The address for `emmer_store_cosmos`.
pub fn url(port: u16) -> String {
    format!("cosmos://emulator:{KEY}@127.0.0.1:{port}/emmer?tls=false&page_rows=600")
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type CosmosServer = Local<Programs>;
