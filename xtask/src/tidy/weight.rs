//! The packages below a package. The facade brings an application few. The operators' program has
//! none of tests or of the laboratory, a sans-IO crate none that does IO. (Its `clippy.toml` says
//! which names its own sources may not use.)

use super::{Finding, Tree, layers};
use crate::workspace;

/// The most packages that a lock file may have because of the facade with its default features
/// (SQLite among them), on all systems together, the facade's own packages included.
const FACADE_MAX: usize = 130;

/// The most packages that the README's first command compiles.
const PROGRAM_MAX: usize = 126;

/// Packages and features that the program of operators may not contain, as cargo names them.
const NOT_SHIPPED: &[&str] = &[
    "emmer-benches ",
    "emmer-lab ",
    "emmer-report ",
    "emmer-sim ",
    "emmer-swarm ",
    "emmer-test-servers ",
    "emmer-testkit ",
    "emmer-virtual ",
    "tokio feature \"test-util\"",
];

/// Packages that do IO, read a clock or ask the operating system for randomness: what a simulator
/// cannot control it cannot replay.
const IMPURE: &[&str] = &[
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

/// Asks cargo for the graphs.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let facade =
        graph(tree, &["--package", "emmer", "--edges", "normal,build", "--target", "all"])?;
    let program = graph(tree, &["--package", "emmer-cli", "--edges", "normal,build,features"])?;
    let few = [
        few("an application takes on", "crates/emmer/Cargo.toml", packages(&facade), FACADE_MAX),
        few("the first command compiles", "crates/cli/Cargo.toml", packages(&program), PROGRAM_MAX),
    ];
    let mut findings: Vec<_> = few.into_iter().flatten().chain(shipped(&program)).collect();
    let layers = layers::layers(tree);
    for member in &tree.workspace.members {
        if layers::layer_of(&layers, &member.name).is_some_and(|layer| layer.sans_io) {
            // By `cargo tree` for this package alone: the workspace as a whole resolves to the
            // features of all members. A test library may depend on anything.
            for edges in [&["--edges", "normal"][..], &["--edges", "dev", "--depth", "1"]] {
                let below = graph(tree, &[&["--package", &member.name], edges].concat())?;
                findings.extend(impure(&member.name, &below));
            }
        }
    }
    Ok(findings)
}

fn graph(tree: &Tree, arguments: &[&str]) -> Result<String, String> {
    let out = workspace::cargo(tree.root())
        .args(["tree", "--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .output()
        .map_err(|e| format!("cargo tree did not start: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo tree:\n{}", String::from_utf8_lossy(&out.stderr)));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Number of different packages in a tree, by name and version.
fn packages(tree: &str) -> usize {
    let name_and_version =
        |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let is_package =
        |line: &&str| line.split_whitespace().nth(1).is_some_and(|v| v.starts_with('v'));
    let mut packages: Vec<_> = tree.lines().filter(is_package).map(name_and_version).collect();
    packages.sort();
    packages.dedup();
    packages.len()
}

fn few(what: &str, manifest: &str, count: usize, most: usize) -> Option<Finding> {
    (count > most)
        .then(|| Finding::fail(manifest, 0, format!("{what} {count} packages, {most} at most")))
}

/// Packages below a sans-IO package that do IO.
fn impure(package: &str, below: &str) -> Vec<Finding> {
    let packages = below.lines().skip(1).filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        rest.starts_with('v').then_some(name)
    });
    let banned = packages.filter(|name| IMPURE.contains(name));
    let say = |name| {
        let text = format!(
            "{package} is sans-IO and reaches {name}: see `cargo tree -p {package} -i {name}`"
        );
        Finding::fail("Cargo.toml", 0, text)
    };
    banned.map(say).collect()
}

/// Contents of the program that do not belong there.
fn shipped(program: &str) -> Vec<Finding> {
    let found =
        NOT_SHIPPED.iter().filter(|name| program.lines().any(|line| line.starts_with(**name)));
    let say = |name: &&str| {
        Finding::fail("crates/cli/Cargo.toml", 0, format!("the program contains {}", name.trim()))
    };
    found.map(say).collect()
}

#[cfg(test)]
mod test {
    use super::*;

    const PROGRAM: &str = "emmer-cli v0.1.0 (/r)\nbytes v1.12.0\ntokio feature \"net\"\n\
                           syn v2.0.1\nbytes v1.12.0 (*)\nsyn v3.0.0\n\n";

    #[test]
    fn a_package_counts_once_for_each_version() {
        assert_eq!(packages(PROGRAM), 4);
        assert!(few("it has", "x", 120, 120).is_none());
        assert!(few("it has", "x", 121, 120).is_some_and(|finding| finding.text.contains("121")));
    }

    #[test]
    fn a_clock_below_a_sans_io_package_is_found() {
        assert!(impure("emmer-wire", PROGRAM).is_empty());
        let found = impure("emmer-wire", &format!("{PROGRAM}tokio v1.0.0 (*)\n"));
        assert!(found[0].text.contains("reaches tokio"));
    }

    #[test]
    fn code_of_tests_is_found_in_the_program() {
        assert!(shipped(PROGRAM).is_empty());
        for line in ["tokio feature \"test-util\"", "emmer-virtual v0.1.0 (/r/crates/virtual)"] {
            assert_eq!(shipped(&format!("{PROGRAM}{line}\n")).len(), 1, "{line}");
        }
    }
}
