//! Rules for every crate: it has the workspace's lints. A sans-IO one has a clippy file that bans
//! clocks, OS randomness and unordered iteration.

use super::{Finding, Tree, layers};

/// The line of a manifest that turns the workspace's lints on.
const LINTS: &str = "[lints]\nworkspace = true";

/// Checks each member's manifest and clippy file.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for member in &tree.workspace.members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        if !tree.text(&manifest).is_some_and(|text| text.contains(LINTS)) {
            findings.push(Finding::fail(
                &manifest,
                0,
                "turn the workspace's lints on: `[lints] workspace = true`",
            ));
        }
    }
    findings.extend(check_clippy_files(tree));
    Ok(findings)
}

/// Clippy reads one file only, the nearest: that of a sans-IO crate must therefore repeat the
/// root's settings. The sans-IO crates' files are the same text, so that a ban added to one is
/// added to all.
fn check_clippy_files(tree: &Tree) -> Vec<Finding> {
    let layers = layers::layers(tree);
    let sans_io = |name: &str| layers::layer_of(&layers, name).is_some_and(|layer| layer.sans_io);
    let settings: Vec<&str> = tree.text("clippy.toml").map(settings).unwrap_or_default();
    let mut findings = Vec::new();
    let mut first: Option<(String, &str)> = None;
    for member in tree.workspace.members.iter().filter(|m| sans_io(&m.name)) {
        let path = format!("{}/clippy.toml", member.folder);
        let Some(text) = tree.text(&path) else {
            findings.push(Finding::fail(
                &path,
                0,
                "a sans-IO crate bans clocks and unordered maps here: copy crates/core's",
            ));
            continue;
        };
        for setting in settings.iter().filter(|s| !text.contains(**s)) {
            findings.push(Finding::fail(
                &path,
                0,
                format!("repeat `{setting}` from the root's clippy.toml"),
            ));
        }
        match &first {
            Some((other, same)) if *same != text => {
                findings.push(Finding::fail(
                    &path,
                    0,
                    format!("differs from {other}: the sans-IO crates share one text"),
                ));
            }
            Some(_) => {}
            None => first = Some((path, text)),
        }
    }
    findings
}

/// The `key = value` lines of a clippy file.
fn settings(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#') && line.contains(" = "))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    #[test]
    fn a_crate_needs_the_lints() {
        let members: &[(&str, &str, &[&str])] = &[("emmer-store", "crates/store", &[])];
        let found =
            |manifest| check(&tree(members, &[("crates/store/Cargo.toml", manifest)])).unwrap();
        assert!(found("[package]\n\n[lints]\nworkspace = true\n").is_empty());
        assert_eq!(found("[package]\n").len(), 1);
    }

    #[test]
    fn sans_io_crates_share_one_clippy_file_that_repeats_the_root() {
        let members: &[(&str, &str, &[&str])] =
            &[("emmer-core", "crates/core", &[]), ("emmer-wire", "crates/wire", &[])];
        let root = ("clippy.toml", "# all\nallow-unwrap-in-tests = true\n");
        let layers = (layers::PAGE, include_str!("../../../ARCHITECTURE.md"));
        let same = "allow-unwrap-in-tests = true\ndisallowed-types = []\n";
        let files = |core: &'static str, wire: &'static str| {
            tree(
                members,
                &[
                    root,
                    layers,
                    ("crates/core/clippy.toml", core),
                    ("crates/wire/clippy.toml", wire),
                ],
            )
        };
        assert!(check_clippy_files(&files(same, same)).is_empty());
        assert_eq!(check_clippy_files(&files(same, "allow-unwrap-in-tests = true\n")).len(), 1);
        assert_eq!(check_clippy_files(&files("x = 1\n", "x = 1\n")).len(), 2);
        assert_eq!(check_clippy_files(&tree(members, &[root, layers])).len(), 2);
    }
}
