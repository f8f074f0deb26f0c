//! The first tier, `cargo xtask test`: the tests of the crates that users link, with SQLite, and
//! the book's first page. One set of features, so that nothing is compiled twice, and only steps
//! that test.

use std::process::Command;
use std::time::Instant;

use crate::report::{Row, Verdict};
use crate::run::Context;
use crate::tests;
use crate::workspace::Workspace;

/// Features added to the packages' own. The other tiers take them too, to share compiled code.
pub(crate) const FEATURES: &[&str] =
    &["emmer/test", "emmer-cli/otlp", "emmer-cli/tls", "emmer-cli/top", "emmer-cli/console"];

/// The packages: all of `crates/`.
pub(crate) fn packages() -> Result<Vec<String>, String> {
    let members = Workspace::load()?.members;
    let here = members.into_iter().filter(|member| member.folder.starts_with("crates/"));
    Ok(here.map(|member| member.name).collect())
}

/// The tests of all packages, or of those that are named.
pub(crate) fn rows(context: &Context) -> Result<Vec<Row>, String> {
    let is_whole = context.packages.is_empty();
    let packages = if is_whole { packages()? } else { context.packages.clone() };
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    // Most wait for processes and timers: more at a time than there are cores.
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let run = tests::Run {
        name: "test",
        threads: u32::try_from(2 * cores).ok(),
        packages: &packages,
        features: if is_whole { FEATURES } else { &[] },
        stated: 420,
        ..tests::Run::default()
    };
    let mut rows = vec![toolchain(context)];
    rows.extend(tests::run(context, &run)?);
    if is_whole {
        rows.push(context.step("start", 110, script(context, "getting-started.sh"))?);
    }
    Ok(rows)
}

/// A script of this folder.
pub(crate) fn script(context: &Context, name: &str) -> Command {
    let mut command = Command::new("bash");
    command.current_dir(&context.root).arg(format!("xtask/{name}"));
    command
}

/// Tools that compile it; a missing component is named here instead of failing three times below.
pub(crate) fn toolchain(context: &Context) -> Row {
    let start = Instant::now();
    let version = |args: &[&str]| -> Option<String> {
        let out = crate::workspace::cargo(&context.root).args(args).output().ok()?;
        out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let missing: Vec<&str> =
        [("rustfmt", ["fmt", "--version"]), ("clippy", ["clippy", "--version"])]
            .into_iter()
            .filter_map(|(component, args)| version(&args).is_none().then_some(component))
            .collect();
    let verdict = if missing.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("missing: run `rustup component add {}`", missing.join(" ")))
    };
    let is = version(&["--version"]).unwrap_or_default();
    let manifest = std::fs::read_to_string(context.root.join("Cargo.toml")).unwrap_or_default();
    let note = format!("{is}: {}", oldest(&is, &manifest));
    Row::check("toolchain", verdict, start.elapsed()).noted(note)
}

/// Says whether this run proves the `rust-version` of the manifests.
fn oldest(cargo: &str, manifest: &str) -> String {
    let stated = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let stated = stated.map_or("", |rest| rest.trim_end_matches('"'));
    let is = cargo.split_whitespace().nth(1).unwrap_or_default();
    let is_oldest = is.strip_prefix(stated).is_some_and(|rest| rest.starts_with('.'));
    if is_oldest && !stated.is_empty() {
        format!("the oldest that the manifests state, {stated}")
    } else {
        format!("says nothing of the oldest that the manifests state, {stated:?}")
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_the_stated_version_proves_itself() {
        let manifest = "[workspace.package]\nrust-version = \"1.95\"\n";
        assert!(oldest("cargo 1.95.0 (abc 2026-03-21)", manifest).starts_with("the oldest"));
        for other in ["cargo 1.96.1 (abc)", "cargo 1.9.0", ""] {
            assert!(oldest(other, manifest).starts_with("says nothing"), "{other}");
        }
    }
}
