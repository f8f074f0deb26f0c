//! The command, run to its end.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the command, configured by nothing but its flags.
pub(crate) fn run(args: &[&str]) -> Output {
    run_by(&[], args).unwrap()
}

/// As [`run`], as the arguments of the command `before`; none if there is no such command.
pub(crate) fn run_by(before: &[&str], args: &[&str]) -> Option<Output> {
    let words: Vec<&str> =
        before.iter().copied().chain([env!("CARGO_BIN_EXE_emmer-lab")]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("EMMER_")) {
            command.env_remove(name);
        }
    }
    match command.args(args).stdin(Stdio::null()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        output => Some(output.unwrap()),
    }
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
