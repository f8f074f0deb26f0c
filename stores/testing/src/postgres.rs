//! PostgreSQL: its own data folder, its own port, one user with a password.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::Trouble;
use crate::local::{Local, Starter};
use crate::process::{READY_LIMIT, command_as, find, free_port, give_to, run, wait_until};

#[cfg(feature = "suite")]
pub mod pair;

/// The superuser of every server made here.
pub const USER: &str = "postgres";
/// Its password. It holds characters that a URL must escape.
pub const PASSWORD: &str = "only/for:tests";
/// The password in a URL.
const PASSWORD_ESCAPED: &str = "only%2Ffor%3Atests";
/// Debian's package.
pub const PACKAGE: &str = "postgresql";
/// Debian's package of PgBouncer, a pooler.
pub const POOLER_PACKAGE: &str = "pgbouncer";

/// The programs of an installed PostgreSQL.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Makes an empty data folder, `data`, in `folder`.
    ///
    /// # Errors
    /// What initdb says.
    pub fn initialize(&self, folder: &Path) -> Result<(), Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        let password = folder.join("password");
        fs::write(&password, PASSWORD).map_err(failed)?;
        give_to(USER, folder)?;
        give_to(USER, &password)?;
        let mut initdb = command_as(USER, &self.folder.join("initdb"));
        initdb.arg("-D").arg(folder.join("data")).args([
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--no-sync",
            "-E",
            "UTF8",
        ]);
        // A locale that orders text otherwise than by bytes, where there is one: keys must not
        // care.
        initdb.args(["--locale", "C.UTF-8"]).arg("--pwfile").arg(&password).current_dir(folder);
        run(&mut initdb)
    }

    /// Returns true if a server on `port` accepts connections.
    pub fn is_ready(&self, port: u16) -> bool {
        let mut ask = Command::new(self.folder.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p"]).arg(port.to_string());
        run(&mut ask).is_ok()
    }

    /// `psql` of the same version.
    pub fn psql(&self) -> PathBuf {
        self.folder.join("psql")
    }
}

/// The address of a database for `emmer_store_postgres`.
pub fn url(port: u16, database: &str) -> String {
    format!("postgres://{USER}:{PASSWORD_ESCAPED}@127.0.0.1:{port}/{database}")
}

impl Starter for Programs {
    const NAME: &'static str = "postgres";
    const END: &'static str = "INT";

    fn find() -> Result<Self, Trouble> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let number =
            |folder: &PathBuf| -> Option<u32> { folder.file_name()?.to_str()?.parse().ok() };
        let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
        folders.sort_by_key(|folder| std::cmp::Reverse(number(folder)));
        let folders: Vec<PathBuf> = folders.into_iter().map(|folder| folder.join("bin")).collect();
        let initdb =
            find("initdb", &folders).filter(|file| file.with_file_name("postgres").is_file());
        let folder = initdb.and_then(|file| file.parent().map(Path::to_path_buf));
        let missing = || Trouble::Missing {
            program: "PostgreSQL (initdb, postgres)".to_owned(),
            package: PACKAGE,
        };
        Ok(Self { folder: folder.ok_or_else(missing)? })
    }

    /// It has none.
    fn with(self, _settings: &[&str]) -> Self {
        self
    }

    fn prepare(&self, folder: &Path) -> Result<(), Trouble> {
        self.initialize(folder)
    }

    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
        let log =
            File::options().create(true).append(true).open(folder.join("log")).map_err(failed)?;
        let mut command = command_as(USER, &self.folder.join("postgres"));
        command.arg("-D").arg(folder.join("data")).current_dir(folder);
        for setting in [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            format!("unix_socket_directories={}", folder.display()),
            "max_connections=200".to_owned(),
            // What a killed server has written the kernel still writes; only a host that dies would
            // lose it. Waiting for a disk that others keep busy would say nothing about the store.
            "fsync=off".to_owned(),
        ] {
            command.arg("-c").arg(setting);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        Ok(command)
    }

    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble> {
        let asks = || self.is_ready(port);
        wait_until(child, &folder.join("log"), READY_LIMIT, asks)
    }

    fn version(server: &Local<Self>) -> Result<String, Trouble> {
        let said = server.psql(&["-Atc", "SELECT split_part(version(), ' on ', 1)"])?;
        Ok(said.trim().to_owned())
    }

    fn deadlocks(server: &Local<Self>) -> Result<usize, Trouble> {
        // Its statistics come late, its log does not.
        let log = fs::read(server.folder.path().join("log"));
        let log = log.map_err(|e| Trouble::Failed(e.to_string()))?;
        Ok(String::from_utf8_lossy(&log).matches("deadlock detected").count())
    }

    fn url(port: u16) -> String {
        url(port, "postgres")
    }
}

/// A server for one test. Dropped, it ends and its folder is removed.
pub type PostgresServer = Local<Programs>;

impl PostgresServer {
    /// The address of a database on it.
    pub fn url_of(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// Output of `psql` for `sql` in the database `postgres`.
    ///
    /// # Errors
    /// What psql says.
    pub fn psql(&self, arguments: &[&str]) -> Result<String, Trouble> {
        let failed = |words: String| Trouble::Failed(format!("psql: {words}"));
        let ended =
            Command::new(self.programs.psql()).arg("-X").arg(self.url()).args(arguments).output();
        let ended = ended.map_err(|e| failed(e.to_string()))?;
        if !ended.status.success() {
            return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }

    /// Its data folder, where its configuration is too.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// PgBouncer's program.
///
/// # Errors
/// It is not installed.
pub fn pooler() -> Result<PathBuf, Trouble> {
    let missing = || Trouble::Missing { program: "PgBouncer".to_owned(), package: POOLER_PACKAGE };
    find("pgbouncer", &[PathBuf::from("/usr/sbin")]).ok_or_else(missing)
}

/// A PgBouncer before a server. Dropped, it ends.
#[derive(Debug)]
pub struct Pooler {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pooler {
    /// Starts one with this `pool_mode`.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(server: &PostgresServer, mode: &str) -> Result<Self, Trouble> {
        let failed = |e: std::io::Error| Trouble::Failed(format!("pgbouncer: {e}"));
        let program = pooler()?;
        let folder = tempfile::tempdir().map_err(failed)?;
        let port = free_port()?;
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user={USER} password={PASSWORD}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             unix_socket_dir =\npool_mode = {mode}\n",
            server.port
        );
        fs::write(&settings, text).map_err(failed)?;
        give_to(USER, folder.path())?;
        give_to(USER, &settings)?;
        let log = folder.path().join("log");
        let out = File::create(&log).map_err(failed)?;
        let mut command = command_as(USER, &program);
        command.arg(&settings).current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(out.try_clone().map_err(failed)?).stderr(out);
        let mut child = command.spawn().map_err(failed)?;
        let asks = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until(&mut child, &log, READY_LIMIT, asks)?;
        Ok(Self { child, port, _folder: folder })
    }

    /// The address of the database `postgres` through it.
    pub fn url(&self) -> String {
        url(self.port, "postgres")
    }
}
