//! Sans-IO purity: the protocol crates reach no socket, clock, thread or OS randomness, in their
//! source or through a dependency. What a simulator cannot control it cannot replay.

use std::path::Path;

use super::{Finding, Tree, layers, scan};
use crate::workspace;

/// Packages that do IO, read a clock or ask the operating system for randomness.
const BANNED_PACKAGES: &[&str] = &[
    "async-io",
    "async-std",
    "crossbeam-channel",
    "fastrand",
    "getrandom",
    "hyper",
    "mio",
    "polling",
    "rayon",
    "reqwest",
    "rusqlite",
    "rustls",
    "signal-hook-registry",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
];

/// What the source of a sans-IO crate may not mention, and what to use instead. Clippy refuses the
/// same paths where they are used (the crate's `clippy.toml`); this check also sees imports, macros
/// and code behind a feature.
const BANNED_CODE: &[(&str, &str)] = &[
    ("TcpStream", "bytes in, bytes out: the runtime owns the socket"),
    ("TcpListener", "bytes in, bytes out: the runtime owns the socket"),
    ("UdpSocket", "bytes in, bytes out: the runtime owns the socket"),
    ("Instant::now", "the `now` that every `handle_*` is given"),
    ("SystemTime", "emmer_core's wall-clock type, given from outside"),
    ("Timestamp::now", "emmer_core's wall-clock type, given from outside"),
    ("Zoned::now", "emmer_core's wall-clock type, given from outside"),
    ("std::thread", "an effect that the runtime executes"),
    ("thread::spawn", "an effect that the runtime executes"),
    ("std::fs", "the store contract"),
    ("std::env", "an option given to the constructor"),
    ("std::process", "an effect that the runtime executes"),
    ("HashMap", "BTreeMap or IndexMap: iteration order must not depend on a random seed"),
    ("HashSet", "BTreeSet or IndexSet: iteration order must not depend on a random seed"),
    ("RandomState", "emmer_core's stable hash"),
    ("DefaultHasher", "emmer_core's stable hash"),
    ("thread_rng", "a generator seeded through the constructor"),
    ("rand::rng", "a generator seeded through the constructor"),
    ("OsRng", "a generator seeded through the constructor"),
    ("SysRng", "a generator seeded through the constructor"),
    ("getrandom", "a generator seeded through the constructor"),
    ("new_v4", "an id given from outside"),
    ("now_v7", "an id given from outside"),
    ("tokio", "an effect that the runtime executes"),
];

/// Checks the source of the sans-IO crates, then what cargo says they stand on.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for member in tree
        .workspace
        .members
        .iter()
        .filter(|m| layers::layer_of(&m.name).is_some_and(|l| l.sans_io))
    {
        let sources = format!("{}/src/", member.folder);
        for rust in tree.rust.iter().filter(|r| r.file.path.starts_with(&sources)) {
            findings.extend(check_source(&rust.file.path, &rust.split.code));
        }
        let mut below = dependencies(tree.root(), &member.name, &["--edges", "normal"])?;
        // What its tests name themselves; what a test library is made of is that library's affair.
        below.extend(dependencies(tree.root(), &member.name, &["--edges", "dev", "--depth", "1"])?);
        findings.extend(check_dependencies(&member.folder, &member.name, &below));
    }
    Ok(findings)
}

fn check_source(path: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (word, instead) in BANNED_CODE {
        for line in scan::lines_with_word(code, word) {
            findings.push(Finding::fail(
                path,
                line,
                format!("`{word}` in a sans-IO crate; use {instead}"),
            ));
        }
    }
    findings
}

/// The names of the packages below `package` when it is built alone, along these edges, itself left
/// out.
///
/// `cargo tree` rather than the resolve graph of `cargo metadata`: the latter unites the features
/// that all members ask for, and would show `getrandom` below a crate that never turned it on.
fn dependencies(root: &Path, package: &str, edges: &[&str]) -> Result<Vec<String>, String> {
    let out = workspace::cargo(root)
        .args(["tree", "--package", package, "--prefix", "none", "--format", "{p}"])
        .args(edges)
        .output()
        .map_err(|e| format!("cargo tree did not start: {e}"))?;
    if !out.status.success() {
        return Err(format!(
            "cargo tree --package {package}:\n{}",
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    Ok(package_names(&String::from_utf8_lossy(&out.stdout)))
}

/// The first word of each line after the first (the package itself).
fn package_names(tree: &str) -> Vec<String> {
    let mut names: Vec<_> = tree
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    names.sort();
    names.dedup();
    names
}

fn check_dependencies(folder: &str, package: &str, below: &[String]) -> Vec<Finding> {
    let banned = below.iter().filter(|name| BANNED_PACKAGES.contains(&name.as_str()));
    let finding = |name: &String| {
        let text = format!(
            "{package} is sans-IO and reaches {name}; see `cargo tree -p {package} -i {name}`"
        );
        Finding::fail(&format!("{folder}/Cargo.toml"), 0, text)
    };
    banned.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_code_fails_and_in_a_comment_does_not() {
        let split = scan::split("// never Instant::now\nlet t = std::time::Instant::now();\n");
        let findings = check_source("crates/core/src/x.rs", &split.code);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 2);
        assert!(findings[0].text.contains("the `now` that every"));
    }

    #[test]
    fn ordered_maps_and_plain_addresses_are_fine() {
        let code = "use std::collections::BTreeMap; use std::net::{IpAddr, SocketAddr}; use \
            std::time::Duration;";
        assert!(check_source("x.rs", code).is_empty());
    }

    #[test]
    fn an_import_of_an_unordered_map_fails() {
        assert_eq!(check_source("x.rs", "use std::collections::{BTreeMap, HashMap};").len(), 1);
    }

    #[test]
    fn tree_output_becomes_names() {
        let tree = "emmer-wire v0.1.0 (/r)\nbytes v1.12.0\nrand v0.10.0 (*)\ngetrandom \
            v0.4.0\nbytes v1.12.0 (*)\n";
        let names = package_names(tree);
        assert_eq!(names, ["bytes", "getrandom", "rand"]);
        let findings = check_dependencies("crates/wire", "emmer-wire", &names);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains("reaches getrandom"));
    }
}
