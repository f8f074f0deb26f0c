//! Child processes: as which user, on which port, how they end.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Trouble;

/// Time for which a server is given to end by itself.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Interval at which something that takes a moment is asked for.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Time for which a server is given to be ready, after a crash too.
pub(crate) const READY_LIMIT: Duration = Duration::from_secs(60);
/// The ports of servers.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// Number of them that are tried.
const PORTS_TRIED: usize = 100;
/// Maximum bytes of a log that an error repeats.
const LOG_TAIL_BYTES: u64 = 2_000;

/// The variable that names the folder for servers' data; one in memory spares the disk. A server
/// that is killed loses nothing there: its files are the kernel's.
const DATA: &str = "EMMER_TEST_DATA";

/// A new folder for the data of a server, removed when it is dropped.
///
/// # Errors
/// It cannot be made.
pub(crate) fn data_folder(prefix: &str) -> Result<TempDir, Trouble> {
    let parent = std::env::var_os(DATA).map_or_else(std::env::temp_dir, PathBuf::from);
    TempDir::with_prefix_in(prefix, &parent)
        .map_err(|e| Trouble::Failed(format!("{}: {e}", parent.display())))
}

/// Returns true if this process runs as root, as which several servers refuse to run.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// `program`, run as `user` when this process is root.
pub fn command_as(user: &str, program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"))
        .arg("--init-groups")
        .arg(program);
    command
}

/// Gives a folder to `user` when this process is root.
///
/// # Errors
/// There is no such user.
pub fn give_to(user: &str, folder: &Path) -> Result<(), Trouble> {
    if is_root() { run(Command::new("chown").arg(user).arg(folder)) } else { Ok(()) }
}

/// Runs a command to its end.
///
/// # Errors
/// It does not start or fails; its own words.
pub fn run(command: &mut Command) -> Result<(), Trouble> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |words: String| Trouble::Failed(format!("{program}: {words}"));
    let ended = command.stdin(Stdio::null()).output().map_err(|e| failed(e.to_string()))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(failed(format!("{}; {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim())))
}

/// A port of this host that is free at this moment.
///
/// A port outside the range that the kernel gives to clients. Otherwise a client that looks for an
/// absent server would sooner or later get the server's own port, be connected to itself, and keep
/// the server from coming back.
///
/// # Errors
/// There is no free port.
pub fn free_port() -> Result<u16, Trouble> {
    let random = || RandomState::new().build_hasher().finish();
    let count = u64::from(PORTS.end - PORTS.start);
    let mut tried = std::iter::repeat_with(|| {
        PORTS.start + u16::try_from(random() % count).unwrap_or_default()
    });
    let free = tried
        .by_ref()
        .take(PORTS_TRIED)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.ok_or_else(|| Trouble::Failed(format!("no free port of {PORTS_TRIED} that were tried")))
}

/// Asks `ready` until it says yes; not longer than `limit`, nor than the server lives.
///
/// # Errors
/// The end of its log.
pub fn wait_until(
    child: &mut Child,
    log: &Path,
    limit: Duration,
    mut ready: impl FnMut() -> bool,
) -> Result<(), Trouble> {
    let begun = Instant::now();
    loop {
        if ready() {
            return Ok(());
        }
        let ended = child.try_wait().map_err(|e| Trouble::Failed(e.to_string()))?;
        let words = match ended {
            Some(status) => format!("the server ended: {status}"),
            None if begun.elapsed() > limit => format!("the server is not ready after {limit:?}"),
            None => {
                std::thread::sleep(POLL);
                continue;
            }
        };
        return Err(Trouble::Failed(format!("{words}; its log ends:\n{}", tail(log))));
    }
}

/// The end of a file.
fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(LOG_TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_or_else(|e| e.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Sends a signal (`INT`, `TERM`, `KILL`, `STOP`, `CONT`) to one process.
///
/// # Errors
/// There is no such process.
pub fn signal(pid: u32, name: &str) -> Result<(), Trouble> {
    run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()))
}

/// A process that stands still (SIGSTOP), with all its children. Dropping it lets them continue.
#[derive(Debug)]
pub struct Frozen(Vec<u32>);

impl Frozen {
    /// Stops a process and its children, those of its children too.
    ///
    /// # Errors
    /// There is no such process, it does not stop, or processes cannot be listed.
    pub fn whole(pid: u32) -> Result<Self, Trouble> {
        let mut frozen = Self(Vec::new());
        // A process that stands still starts no others: who is not seen after that is not there.
        while let Some(&next) = family(pid)?.iter().find(|pid| !frozen.0.contains(pid)) {
            signal(next, "STOP")?;
            frozen.0.push(next);
            stopped(next)?;
        }
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for pid in self.0.iter().rev() {
            // It may have been killed.
            let _ = signal(*pid, "CONT");
        }
    }
}

/// Waits until all threads of a process stand still: each runs on until the system next looks at
/// it.
fn stopped(pid: u32) -> Result<(), Trouble> {
    let begun = Instant::now();
    let failed = |e: std::io::Error| Trouble::Failed(format!("process {pid}: {e}"));
    loop {
        let mut states = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task")).map_err(failed)? {
            // A thread that has just ended is of no interest.
            states.extend(status(&entry.map_err(failed)?.path()).map(|(state, _)| state));
        }
        if states.iter().all(|state| "TtZX".contains(*state)) {
            return Ok(());
        }
        if begun.elapsed() > END_LIMIT {
            return Err(Trouble::Failed(format!("process {pid} does not stop: {states:?}")));
        }
        std::thread::sleep(POLL);
    }
}

/// The state and the parent of the process or thread with this folder; none when it is gone.
fn status(folder: &Path) -> Option<(char, u32)> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // Behind the program's name, which may hold anything.
    let mut rest = stat.rsplit(") ").next()?.split(' ');
    Some((rest.next()?.chars().next()?, rest.next()?.parse().ok()?))
}

/// A process, its children, and theirs.
fn family(pid: u32) -> Result<Vec<u32>, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(format!("/proc: {e}"));
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(child) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process that has just ended is of no interest.
        parents.extend(status(&Path::new("/proc").join(name)).map(|(_, parent)| (child, parent)));
    }
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| *child));
        at += 1;
    }
    Ok(found)
}

/// Asks a child to end by a signal, and kills it if it does not.
pub fn end(child: &mut Child, name: &str) {
    let begun = Instant::now();
    // A process that is gone needs no signal.
    let _ = signal(child.id(), name);
    while begun.elapsed() < END_LIMIT {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The first of `folders`, then of the environment's `PATH`, that has `program`.
pub fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = folders.iter().cloned().chain(std::env::split_paths(&path));
    all.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The folder of programs that were fetched and unpacked, not installed: this user's, below the
/// temporary folder.
///
/// # Errors
/// It is another user's.
pub(crate) fn programs_folder() -> Result<PathBuf, Trouble> {
    let failed = |e: std::io::Error| Trouble::Failed(e.to_string());
    let me = fs::metadata("/proc/self").map_err(failed)?.uid();
    let folder = std::env::temp_dir().join(format!("emmer-test-programs-{me}"));
    // No other user may have put a program there.
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    let found = fs::symlink_metadata(&folder).map_err(failed)?;
    if made.is_err() && (!found.is_dir() || found.uid() != me || found.mode() & 0o022 != 0) {
        return Err(Trouble::Failed(format!("{} belongs to somebody else", folder.display())));
    }
    Ok(folder)
}
