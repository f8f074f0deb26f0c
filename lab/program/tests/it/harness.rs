//! The command, run to its end.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the command, configured by nothing but its flags.
pub(crate) fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emmer-lab"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("EMMER_")) {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// Exit code and stderr of a command that fails: one paragraph, and nothing on stdout.
pub(crate) fn failure(output: &Output) -> (i32, String) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(said.starts_with("emmer-lab: ") && said.trim_end().lines().count() == 1, "{said}");
    (output.status.code().unwrap(), said)
}

/// The URL of a SQLite store in `dir`.
pub(crate) fn store_in(dir: &Path) -> String {
    format!("sqlite://{}", dir.join("cluster.db").display())
}
