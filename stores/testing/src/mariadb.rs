//! MariaDB: its own data folder, its own port, one user with a password.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::Trouble;
use crate::local::{Local, Starter};
use crate::process::{READY_LIMIT, command_as, find, give_to, run, wait_until};

/// The system's user it runs as, when this process is root.
pub const SYSTEM_USER: &str = "mysql";
/// The user of every server made here, who may do everything.
pub const USER: &str = "emmer";
/// Its password. It holds characters that a URL must escape.
pub const PASSWORD: &str = "only/for:tests";
/// The password in a URL.
const PASSWORD_ESCAPED: &str = "only%2Ffor%3Atests";
/// The database of every server made here.
pub const DATABASE: &str = "emmer";
/// Debian's package.
pub const PACKAGE: &str = "mariadb-server";
/// Small, for many servers on one disk.
const LOG_SIZE: &str = "--innodb-log-file-size=16M";

/// The programs of an installed MariaDB.
#[derive(Clone, Debug)]
pub struct Programs {
    server: PathBuf,
    install: PathBuf,
    admin: PathBuf,
    client: PathBuf,
    /// More of the server's options.
    options: Vec<String>,
}

impl Programs {
    /// Makes an empty data folder, `data`, in `folder`.
    ///
    /// # Errors
    /// What the programs say.
    pub fn initialize(&self, folder: &Path) -> Result<(), Trouble> {
        give_to(SYSTEM_USER, folder)?;
        let mut install = Command::new(&self.install);
        install.arg("--no-defaults").arg(format!("--datadir={}", folder.join("data").display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db", LOG_SIZE]);
        install.arg(format!("--tmpdir={}", temporary(folder)?.display()));
        if crate::process::is_root() {
            install.arg(format!("--user={SYSTEM_USER}"));
        }
        run(install.current_dir(folder))
    }

    /// Returns true if a server on `port` accepts connections of the user.
    pub fn is_ready(&self, port: u16) -> bool {
        // `ping` is content with a refusal; `status` is not.
        let mut ask = Command::new(&self.admin);
        connect(&mut ask, port).arg("status");
        run(&mut ask).is_ok()
    }

    /// The command line client.
    pub fn client(&self) -> &Path {
        &self.client
    }
}

/// The temporary folder of the server on `folder`, made if it is not there. A server that starts
/// deletes every `#sql` file in its temporary folder: in `/tmp` those of its neighbours, which are
/// at work on them.
fn temporary(folder: &Path) -> Result<PathBuf, Trouble> {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary)
        .map_err(|e| Trouble::Failed(format!("{}: {e}", temporary.display())))?;
    give_to(SYSTEM_USER, &temporary)?;
    Ok(temporary)
}

/// How a program connects.
fn connect(command: &mut Command, port: u16) -> &mut Command {
    command.arg("--no-defaults").args(["--protocol=tcp", "-h", "127.0.0.1", "-u", USER]);
    command.arg(format!("--port={port}")).env("MYSQL_PWD", PASSWORD)
}

/// The address of a database for `emmer_store_mysql`.
pub fn url(port: u16, database: &str) -> String {
    format!("mariadb://{USER}:{PASSWORD_ESCAPED}@127.0.0.1:{port}/{database}")
}

impl Starter for Programs {
    const NAME: &'static str = "mariadb";
    // Its data go with it: nothing to put in order first.
    const END: &'static str = "KILL";
    const LOCKS_GAPS: bool = true;
    const RECOVERS_BEHIND_READS: bool = true;

    fn find() -> Result<Self, Trouble> {
        let folders = [PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")];
        let program = |name: &str| {
            let missing =
                || Trouble::Missing { program: format!("MariaDB ({name})"), package: PACKAGE };
            find(name, &folders).ok_or_else(missing)
        };
        Ok(Self {
            server: program("mariadbd")?,
            install: program("mariadb-install-db")?,
            admin: program("mariadb-admin")?,
            client: program("mariadb")?,
            options: Vec::new(),
        })
    }

    fn with(mut self, settings: &[&str]) -> Self {
        self.options = settings.iter().map(|&setting| setting.to_owned()).collect();
        self
    }

    fn prepare(&self, folder: &Path) -> Result<(), Trouble> {
        copy_template(self, folder)
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        let log =
            File::options().create(true).append(true).open(folder.join("log")).map_err(failed)?;
        let init = folder.join("init.sql");
        let script = format!(
            "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
             GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n\
             CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET latin1;\n"
        );
        fs::write(&init, script).map_err(failed)?;
        let mut command = command_as(SYSTEM_USER, &self.server);
        command.arg("--no-defaults").current_dir(folder);
        for setting in [
            format!("--datadir={}", folder.join("data").display()),
            format!("--tmpdir={}", temporary(folder)?.display()),
            format!("--socket={}", folder.join("s.sock").display()),
            format!("--pid-file={}", folder.join("pid").display()),
            format!("--init-file={}", init.display()),
            format!("--port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--skip-name-resolve".to_owned(),
            "--max-connections=500".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
            LOG_SIZE.to_owned(),
            // What a killed server has written the kernel still writes; only a host that dies would
            // lose it. Waiting for a disk that others keep busy would say nothing about the store.
            "--innodb-flush-log-at-trx-commit=2".to_owned(),
        ] {
            command.arg(setting);
        }
        command
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log);
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        let asks = || self.is_ready(port);
        wait_until(child, &folder.join("log"), READY_LIMIT, asks)
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let version = server.sql("SELECT VERSION()")?;
        Ok(format!("MariaDB {}", version.lines().nth(1).unwrap_or_default()))
    }

    fn deadlocks(server: &Local<Self>) -> Result<usize, Trouble> {
        let told = server.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")?;
        let count = told.split_whitespace().last().and_then(|word| word.parse().ok());
        count.ok_or_else(|| Trouble::Failed(format!("no number of deadlocks: {told}")))
    }

    fn url(port: u16) -> String {
        url(port, DATABASE)
    }
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type MariadbServer = Local<Programs>;

impl MariadbServer {
    /// The address of a database on it.
    pub fn url_of(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// Output of the command line client for `sql` in the database [`DATABASE`], one line a row,
    /// tabs between columns.
    ///
    /// # Errors
    /// What the client says.
    pub fn sql(&self, sql: &str) -> Result<String, Trouble> {
        let failed = |words: String| Trouble::Failed(format!("mariadb: {words}"));
        let mut client = Command::new(self.programs.client());
        connect(&mut client, self.port).args([
            "--batch",
            "--default-character-set=utf8mb4",
            "-e",
            sql,
            DATABASE,
        ]);
        let ended = client.output().map_err(|e| failed(e.to_string()))?;
        if !ended.status.success() {
            return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }
}

/// Copies an empty data folder that is made once on this machine, in the system's temporary folder:
/// making one takes seconds.
fn copy_template(programs: &Programs, folder: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let about = fs::metadata(&programs.server).map_err(failed)?;
    // One for each version of the server and each user.
    let who = if crate::process::is_root() { "root" } else { "user" };
    let name = format!("emmer-mariadb-empty-{who}-{}-{}", about.len(), about.mtime());
    let template = std::env::temp_dir().join(name);
    if !template.is_dir() {
        let made = TempDir::with_prefix("emmer-mariadb-").map_err(failed)?;
        programs.initialize(made.path())?;
        // Another process may be faster.
        if fs::rename(made.path(), &template).is_ok() {
            let _ = made.keep();
        }
    }
    run(Command::new("cp").arg("-a").arg(template.join("data")).arg(folder))?;
    give_to(SYSTEM_USER, folder)
}
