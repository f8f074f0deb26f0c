//! cargo-deny: licences, bans and sources of everything that is compiled in.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;

/// The version that is installed and accepted; its configuration format is that of `deny.toml`.
const VERSION: &str = "0.20.2";

/// The checks that need nothing but the packages themselves.
pub(crate) const CHECKS: &[&str] = &["bans", "licenses", "sources"];

/// Why the fourth check does not run by default.
pub(crate) const NO_ADVISORIES: &str = "NOT CHECKED: known vulnerabilities. Their database is fetched from the network; run with --advisories";

/// Where a copy of our own is kept: `EMMER_TOOLS`, or `target/tools`.
pub(crate) fn tools_dir(root: &Path) -> PathBuf {
    std::env::var_os("EMMER_TOOLS").map_or_else(|| root.join("target").join("tools"), PathBuf::from)
}

/// An installed cargo-deny of the right version: our own, else the one on the path.
pub(crate) fn find(root: &Path) -> Option<PathBuf> {
    let name = format!("cargo-deny{}", std::env::consts::EXE_SUFFIX);
    let own = tools_dir(root).join("bin").join(&name);
    [own, PathBuf::from(name)]
        .into_iter()
        .find(|program| version_of(program).is_some_and(|v| v == VERSION))
}

/// The version a tool says it is.
pub(crate) fn version_of(program: &Path) -> Option<String> {
    let out = Command::new(program).arg("--version").output().ok()?;
    parse_version(&String::from_utf8_lossy(&out.stdout))
}

/// `cargo-deny 0.20.2` gives `0.20.2`.
fn parse_version(line: &str) -> Option<String> {
    line.split_whitespace().nth(1).map(str::to_owned)
}

/// The command that compiles and installs it. Compiled for a quick compile, not for a quick run: it
/// runs for seconds.
pub(crate) fn install(root: &Path) -> Command {
    install_tool(root, "cargo-deny", VERSION)
}

/// The command that compiles `tool` into the tools' folder.
pub(crate) fn install_tool(root: &Path, tool: &str, version: &str) -> Command {
    let mut command = workspace::cargo(root);
    command
        .args(["install", tool, "--locked", "--debug", "--version"])
        .arg(format!("={version}"))
        .arg("--root")
        .arg(tools_dir(root))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_NET_RETRY", "10");
    command
}

/// The command that checks the workspace.
pub(crate) fn check(root: &Path, program: &Path, advisories: bool) -> Command {
    // cargo-deny asks cargo for the graph; the same environment as every other step.
    let mut command = Command::new(program);
    command.current_dir(root).args(["--color", "never", "--workspace", "check"]).args(CHECKS);
    if advisories {
        command.arg("advisories");
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_second_word() {
        assert_eq!(parse_version("cargo-deny 0.20.2\n").as_deref(), Some("0.20.2"));
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn a_missing_program_has_no_version() {
        assert_eq!(version_of(Path::new("no-such-program-anywhere")), None);
    }
}
