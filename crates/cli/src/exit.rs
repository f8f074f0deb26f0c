//! The end of the command: one paragraph on stderr and a number that a script can tell apart.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Exit code of the command. `docs/commands.md` and `--help` list the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Something that has no number of its own.
    Failed = 1,
    /// Flags, configuration file or environment cannot be understood. Nothing was started.
    Usage = 2,
    /// The system store cannot be opened, read or written.
    Store = 3,
    /// An address to listen on is in use or not this host's.
    Listen = 4,
    /// The silo could not join the cluster.
    NotJoined = 5,
    /// The demo's totals are not the file's.
    Mismatch = 6,
    /// An input file cannot be read or is malformed.
    Input = 7,
    /// A simulated run, or a measurement with real processes, violated an invariant.
    Violated = 8,
    /// The doctor found a store that is not fit for a cluster.
    Unfit = 9,
    /// The store has no cluster of the name that was given.
    NoCluster = 10,
    /// The cluster declared this silo dead; it stopped itself. The same number as
    /// [`emmer::errors::EXIT_CODE_TERMINATED`], which an application's own silos end with.
    DeclaredDead = 86,
    /// The membership table has lost a commit that the silo had seen, is another one or is gone;
    /// the silo stopped itself. The same number as [`emmer::errors::EXIT_CODE_TABLE_WENT_BACK`].
    TableWentBack = 87,
    /// Interrupted before the work was done.
    Interrupted = 130,
}

/// The list shown by `--help`.
pub const HELP: &str = "\
Exit codes:
    0  done
    1  failed for another reason
    2  flags, configuration file or environment cannot be understood
    3  the system store cannot be opened, read or written
    4  an address to listen on is in use or not this host's
    5  the silo could not join the cluster
    6  the demo's totals differ from the file's
    7  an input file cannot be read or is malformed
    8  a simulated run or a measurement violated an invariant
    9  the doctor found a store that is not fit for a cluster
   10  the store has no cluster of that name
   86  the cluster declared this silo dead; start a new one
   87  the membership table has lost a commit, is another one or is gone; look at the store,
       then start a new silo
  130  interrupted";

/// Why the command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its number.
    pub code: Code,
    /// The sentence for people, without the name of the program and without an end of line.
    pub message: String,
}

impl Failure {
    /// One with a number.
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// One of the command line, the configuration file or the environment.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Code::Usage, message)
    }

    /// One of the system store.
    pub fn store(message: impl fmt::Display) -> Self {
        Self::new(Code::Store, message)
    }

    /// One without a number of its own.
    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(Code::Failed, message)
    }
}

impl From<emmer::config::ConfigError> for Failure {
    fn from(error: emmer::config::ConfigError) -> Self {
        Self::usage(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// Writes to stderr why `program` failed, if it did, and returns its exit code.
pub fn code(program: &str, ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // With the reader gone (`2>&1 | head`) the exit code still tells.
            let _ = writeln!(std::io::stderr(), "{program}: {failure}");
            failure.code.into()
        }
    }
}

/// Result of every command.
pub type Result<T> = std::result::Result<T, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_the_page_list_every_code() {
        assert_eq!(i32::from(Code::DeclaredDead as u8), emmer::errors::EXIT_CODE_TERMINATED);
        assert_eq!(i32::from(Code::TableWentBack as u8), emmer::errors::EXIT_CODE_TABLE_WENT_BACK);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let page = std::fs::read_to_string(page).unwrap();
        for code in [
            Code::Failed,
            Code::Usage,
            Code::Store,
            Code::Listen,
            Code::NotJoined,
            Code::DeclaredDead,
            Code::TableWentBack,
            Code::Mismatch,
            Code::Input,
            Code::Violated,
            Code::Unfit,
            Code::NoCluster,
            Code::Interrupted,
        ] {
            let number = code as u8;
            assert!(HELP.contains(&format!("\n{number:5}  ")), "{code:?}");
            assert!(page.contains(&format!("| {number} |")), "{code:?}");
        }
    }
}
