//! What servers have in common that are one process with one folder and one port.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use tempfile::TempDir;

use crate::process::{POLL, data_folder, end, free_port, signal};
use crate::{Trouble, skip};

/// The programs of a server, found on this machine, and how it is started.
pub trait Starter: Sized {
    /// The server's name, for folders.
    const NAME: &'static str;

    /// Signal that ends it like a crash; another one for a server that loses acknowledged commits
    /// at a kill.
    const CRASH: &'static str = "KILL";

    /// The signal that ends it when it is no longer needed.
    const END: &'static str = "TERM";

    /// The number of rows of a partition that it hands out in pages, each of another moment.
    const PAGED_ROWS: Option<usize> = None;

    /// True if a commit whose answer was lost may be sent again, and is then told what became of
    /// it.
    const KNOWS_REPEATS: bool = false;

    /// True if it locks the gaps between rows, where two commits that make rows may wait for each
    /// other.
    const LOCKS_GAPS: bool = false;

    /// True if one of the first reads after a crash may show rows that are one commit too old.
    const RECOVERS_BEHIND_READS: bool = false;

    /// Looks for the programs.
    ///
    /// # Errors
    /// [`Trouble::Missing`].
    fn find() -> Result<Self, Trouble>;

    /// This starter with more settings.
    #[must_use]
    fn with(self, settings: &[&str]) -> Self;

    /// Makes the server's files in a new folder.
    ///
    /// # Errors
    /// The folder cannot be written, or what a program says.
    fn prepare(&self, _folder: &Path) -> Result<(), Trouble> {
        Ok(())
    }

    /// A server on a folder that was given to it before, or was prepared; not started yet.
    ///
    /// # Errors
    /// The folder cannot be written.
    fn server(&self, folder: &Path, port: u16) -> Result<Command, Trouble>;

    /// Waits until it serves.
    ///
    /// # Errors
    /// It ends or takes longer than a minute; the end of its log.
    fn wait_until_ready(&self, child: &mut Child, folder: &Path, port: u16) -> Result<(), Trouble>;

    /// The name and version of a server that runs.
    ///
    /// # Errors
    /// It does not say.
    fn version(server: &Local<Self>) -> Result<String, Trouble>;

    /// The deadlocks that a server has met since it was made; 0 for one that knows of none.
    ///
    /// # Errors
    /// It cannot be asked.
    fn deadlocks(_server: &Local<Self>) -> Result<usize, Trouble> {
        Ok(0)
    }

    /// The address of an empty store, if the server were reached at this port of 127.0.0.1.
    fn url(port: u16) -> String;
}

/// A server for one test. Dropped, it ends and its folder is removed.
#[derive(Debug)]
pub struct Local<S: Starter> {
    pub(crate) programs: S,
    /// None for a server of another process.
    pub(crate) child: Option<Child>,
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
}

impl<S: Starter> Local<S> {
    /// Starts a server.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start() -> Result<Self, Trouble> {
        Self::start_with(&[])
    }

    /// Starts a server with more settings, as its [`Starter::with`] takes them.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start_with(settings: &[&str]) -> Result<Self, Trouble> {
        let (programs, folder) = (S::find()?.with(settings), Self::folder()?);
        programs.prepare(folder.path())?;
        // Between the choice of a port and its use another process may take it.
        let (port, child) = match try_launch(&programs, folder.path()) {
            Ok(started) => started,
            Err(_) => try_launch(&programs, folder.path())?,
        };
        Ok(Self { programs, child: Some(child), folder, port })
    }

    /// Starts a server on this port, for settings that must name it.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start_at(port: u16, settings: &[&str]) -> Result<Self, Trouble> {
        let (programs, folder) = (S::find()?.with(settings), Self::folder()?);
        programs.prepare(folder.path())?;
        let child = launch(&programs, folder.path(), port)?;
        Ok(Self { programs, child: Some(child), folder, port })
    }

    /// Starts a server with programs that were set up otherwise.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn start_as(programs: S, port: u16) -> Result<Self, Trouble> {
        let folder = Self::folder()?;
        programs.prepare(folder.path())?;
        let child = launch(&programs, folder.path(), port)?;
        Ok(Self { programs, child: Some(child), folder, port })
    }

    /// [`start`](Self::start) for a test that is skipped, loudly, where the server is not
    /// installed.
    ///
    /// # Panics
    /// In CI when it is not installed, and everywhere when it is but does not start.
    pub fn start_or_skip(test: &str) -> Option<Self> {
        Self::start_with_or_skip(test, &[])
    }

    /// [`start_with`](Self::start_with) for a test that is skipped, loudly, where the server is not
    /// installed.
    ///
    /// # Panics
    /// As [`start_or_skip`](Self::start_or_skip).
    pub fn start_with_or_skip(test: &str, settings: &[&str]) -> Option<Self> {
        Self::start_with(settings).map_err(|trouble| skip(test, &trouble)).ok()
    }

    /// The server that tests share; or (`is_alone`) one of its own, which a test may kill.
    ///
    /// Where the environment names the port of one (`EMMER_SHARED_` and the server's name), that
    /// is shared, by several processes. Otherwise the tests of this process share one, which
    /// `shared` knows while one of them runs, started by the first who asks.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub(crate) fn shared(
        shared: &Mutex<Weak<Self>>,
        settings: &[&str],
        is_alone: bool,
    ) -> Result<Arc<Self>, Trouble> {
        if is_alone {
            return Ok(Arc::new(Self::start_with(settings)?));
        }
        if settings.is_empty()
            && let Ok(port) = std::env::var(format!("EMMER_SHARED_{}", S::NAME.to_uppercase()))
        {
            let port = port.parse().map_err(|_| Trouble::Failed(format!("no port: {port}")))?;
            return Ok(Arc::new(Self {
                programs: S::find()?,
                child: None,
                folder: Self::folder()?,
                port,
            }));
        }
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match shared.upgrade() {
            Some(server) => server,
            None => Arc::new(Self::start_with(settings)?),
        };
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    pub(crate) fn folder() -> Result<TempDir, Trouble> {
        data_folder(&format!("emmer-{}-", S::NAME))
    }

    /// The address of an empty store on it.
    pub fn url(&self) -> String {
        S::url(self.port)
    }

    /// The port it listens on, at 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process; 0 for a server of another process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Sends it a signal (`STOP`, `CONT`, ...).
    ///
    /// # Errors
    /// It is gone, or is another process's.
    pub fn signal(&self, name: &str) -> Result<(), Trouble> {
        match &self.child {
            Some(child) => signal(child.id(), name),
            None => Err(Trouble::Failed("this server belongs to somebody else".to_owned())),
        }
    }

    /// Kills it as a crash would, or ends it by [`Starter::CRASH`].
    pub fn kill(&mut self) {
        let Some(child) = &mut self.child else { return };
        if S::CRASH != "KILL" {
            return end(child, S::CRASH);
        }
        // It may have died by itself.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts it again on the same data and port after [`kill`](Self::kill).
    ///
    /// # Errors
    /// It does not start within a minute.
    pub fn start_again(&mut self) -> Result<(), Trouble> {
        let begun = Instant::now();
        loop {
            // The kernel may hold the port for a moment.
            match launch(&self.programs, self.folder.path(), self.port) {
                Ok(child) => {
                    self.child = Some(child);
                    return Ok(());
                }
                Err(trouble) if begun.elapsed() > crate::process::READY_LIMIT => {
                    return Err(trouble);
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }
}

#[cfg(feature = "suite")]
impl<S: Starter + Send + 'static> crate::suite::TestServer for Local<S> {
    fn version(&self) -> String {
        S::version(self).unwrap_or_default()
    }

    fn deadlocks(&self) -> Result<usize, Trouble> {
        S::deadlocks(self)
    }

    fn locks_gaps(&self) -> bool {
        S::LOCKS_GAPS
    }

    fn recovers_behind_reads(&self) -> bool {
        S::RECOVERS_BEHIND_READS
    }

    fn port(&self) -> u16 {
        self.port
    }

    fn url_at(&self, port: u16) -> String {
        S::url(port)
    }

    fn paged_rows(&self) -> Option<usize> {
        S::PAGED_ROWS
    }

    fn knows_repeats(&self) -> bool {
        S::KNOWS_REPEATS
    }

    fn pid(&self) -> u32 {
        Self::pid(self)
    }

    fn kill(&mut self) {
        Self::kill(self);
    }

    fn start_again(&mut self) -> Result<(), Trouble> {
        Self::start_again(self)
    }
}

fn try_launch<S: Starter>(starter: &S, folder: &Path) -> Result<(u16, Child), Trouble> {
    let port = free_port()?;
    launch(starter, folder, port).map(|child| (port, child))
}

pub(crate) fn launch<S: Starter>(starter: &S, folder: &Path, port: u16) -> Result<Child, Trouble> {
    let mut child =
        starter.server(folder, port)?.spawn().map_err(|e| Trouble::Failed(e.to_string()))?;
    if let Err(trouble) = starter.wait_until_ready(&mut child, folder, port) {
        end(&mut child, S::END);
        return Err(trouble);
    }
    Ok(child)
}

impl<S: Starter> Drop for Local<S> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            end(child, S::END);
        }
    }
}

/// Lets a command write to the file `log` in `folder`.
pub(crate) fn log_to(command: &mut Command, folder: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    let log = File::options().create(true).append(true).open(folder.join("log")).map_err(failed)?;
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .current_dir(folder);
    Ok(())
}

/// A port of the server's own that its clients do not use: chosen once for a folder, so that a
/// server that is started again is the same one to itself.
pub(crate) fn kept_port(folder: &Path, name: &str) -> Result<u16, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("{}: {e}", folder.display()));
    let file = folder.join(name);
    if let Some(port) = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()) {
        return Ok(port);
    }
    let port = free_port()?;
    fs::write(&file, port.to_string()).map_err(failed)?;
    Ok(port)
}

/// Output of a program.
pub(crate) fn output_of(command: &mut Command) -> Result<String, Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |words: String| Trouble::Failed(format!("{program}: {words}"));
    let ended = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if !ended.status.success() {
        return Err(failed(String::from_utf8_lossy(&ended.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
}
