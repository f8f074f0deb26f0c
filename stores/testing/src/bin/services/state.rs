//! Running servers, remembered between two calls of this task.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmer_test_servers::Trouble;

/// Time for which a server is given to end.
const END_LIMIT: Duration = Duration::from_secs(20);
/// Interval of its checks meanwhile.
const POLL: Duration = Duration::from_millis(50);

/// A server this task started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) url: String,
}

/// Where one server's data and the note about it are kept.
pub(super) struct State {
    folder: PathBuf,
}

impl State {
    /// The data are in the system's temporary folder, where the server's own user may reach them,
    /// under a name made of the repository's path.
    pub(super) fn of(name: &str) -> Self {
        let place = env!("CARGO_MANIFEST_DIR").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        Self { folder: std::env::temp_dir().join(format!("emmer-services{place}")).join(name) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the data of last time. What cannot be removed is started with.
    pub(super) fn forget(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }

    fn note(&self) -> PathBuf {
        self.folder.with_extension("running")
    }

    pub(super) fn write(&self, running: &Running) -> Result<(), Trouble> {
        let note = self.note();
        fs::write(&note, format!("{}\n{}\n", running.pid, running.url))
            .map_err(|e| Trouble::Failed(format!("{}: {e}", note.display())))
    }

    /// The server of the last start, if it still is that server: its command line names our folder.
    pub(super) fn running(&self) -> Option<Running> {
        let text = fs::read_to_string(self.note()).ok()?;
        let (pid, url) = text.trim_end().split_once('\n')?;
        let running = Running { pid: pid.parse().ok()?, url: url.to_owned() };
        self.is_ours(running.pid).then_some(running)
    }

    fn is_ours(&self, pid: u32) -> bool {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command_line).contains(&self.folder.display().to_string())
    }

    pub(super) fn wait_until_gone(&self, running: &Running) -> Result<(), Trouble> {
        let begun = Instant::now();
        while self.is_ours(running.pid) {
            if begun.elapsed() > END_LIMIT {
                return Err(Trouble::Failed(format!("process {} does not end", running.pid)));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_ours_is_not_running() {
        let state = State::of(&format!("test-{}", std::process::id()));
        fs::create_dir_all(state.folder()).unwrap();
        assert_eq!(state.running(), None);
        // A process that lives and is another.
        let other = Running { pid: std::process::id(), url: "postgres://somewhere".to_owned() };
        state.write(&other).unwrap();
        assert_eq!(state.running(), None);
        fs::remove_dir_all(state.folder()).unwrap();
        fs::remove_file(state.note()).unwrap();
    }
}
