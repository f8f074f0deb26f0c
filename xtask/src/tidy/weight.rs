//! What an application takes on with Emmer: the number of packages in its lock file stays small.

use super::{Finding, Tree};
use crate::workspace;

/// The most packages that a lock file may have because of the facade with its default features
/// (SQLite among them), on all systems together, the facade's own packages included.
const PACKAGES_MAX: usize = 130;

/// Counts the packages below the facade.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let out = workspace::cargo(tree.root())
        .args(["tree", "--package", "emmer", "--edges", "normal,build", "--target", "all"])
        .args(["--prefix", "none", "--format", "{p}"])
        .output()
        .map_err(|e| format!("cargo tree did not start: {e}"))?;
    if !out.status.success() {
        return Err(format!(
            "cargo tree --package emmer:\n{}",
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    Ok(judge(packages(&String::from_utf8_lossy(&out.stdout))).into_iter().collect())
}

/// How many different packages there are in a tree, by name and version.
fn packages(tree: &str) -> usize {
    let name_and_version =
        |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let mut packages: Vec<_> =
        tree.lines().map(name_and_version).filter(|line| !line.is_empty()).collect();
    packages.sort();
    packages.dedup();
    packages.len()
}

fn judge(count: usize) -> Option<Finding> {
    (count > PACKAGES_MAX).then(|| {
        let text =
            format!("an application takes on {count} packages with emmer, {PACKAGES_MAX} at most");
        Finding::fail("crates/emmer/Cargo.toml", 0, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_for_each_version() {
        let tree =
            "emmer v0.1.0 (/r)\nbytes v1.12.0\nsyn v2.0.1\nbytes v1.12.0 (*)\nsyn v3.0.0\n\n";
        assert_eq!(packages(tree), 4);
    }

    #[test]
    fn too_many_are_too_many() {
        assert!(judge(PACKAGES_MAX).is_none());
        assert!(judge(PACKAGES_MAX + 1).is_some_and(|finding| finding.text.contains("131")));
    }
}
