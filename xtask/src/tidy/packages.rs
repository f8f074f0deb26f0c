//! Rules for a published package: its parts, and what it may not reach for.

use super::{Finding, Tree};
use crate::workspace::Member;

/// Files next to the manifest of a package that is published.
const FILES: [&str; 3] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// The line that keeps a package private: the workspace's `publish = false`.
const PRIVATE: &str = "publish.workspace = true";

/// The folders whose packages are published.
pub(crate) fn is_published(member: &Member) -> bool {
    let folder = member.folder.as_str();
    let is_store = folder.starts_with("stores/") && folder != "stores/testing";
    folder.starts_with("crates/") || is_store || folder == "examples/flights"
}

/// Checks each member's manifest, files and sources.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for member in &tree.workspace.members {
        let manifest = format!("{}/Cargo.toml", member.folder);
        let text = tree.text(&manifest).unwrap_or_default();
        let published = is_published(member);
        if text.lines().any(|line| line == PRIVATE) == published {
            let why = if published {
                format!("it is published, or in another folder: without `{PRIVATE}`")
            } else {
                format!("it is private: `{PRIVATE}`")
            };
            findings.push(Finding::fail(&manifest, 0, why));
        }
        if published {
            findings.extend(check_published(tree, member, text));
        }
    }
    Ok(findings)
}

fn check_published(tree: &Tree, member: &Member, manifest: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folder = &member.folder;
    for key in [
        "description",
        "documentation",
        "license.workspace",
        "keywords.workspace",
        "categories.workspace",
    ] {
        if !manifest.lines().any(|line| line.starts_with(&format!("{key} = "))) {
            let path = format!("{folder}/Cargo.toml");
            findings.push(Finding::fail(&path, 0, format!("a published package has {key}")));
        }
    }
    for file in FILES {
        // A link to the root's file: cargo packs its target.
        if !tree.root().join(folder).join(file).is_file() {
            let text = "a published package has one: copy it, or link to the root's";
            findings.push(Finding::fail(&format!("{folder}/{file}"), 0, text));
        }
    }
    let sources = format!("{folder}/src/");
    for rust in tree.rust.iter().filter(|rust| rust.file.path.starts_with(&sources)) {
        let depth = rust.file.path[sources.len()..].matches('/').count() + 1;
        for (line, text) in rust.file.text.lines().enumerate() {
            if escapes(text, depth) {
                let text = "a package has no file of the repository: read it in a test, or move it";
                findings.push(Finding::fail(&rust.file.path, line + 1, text));
            }
        }
    }
    findings
}

/// Returns true if a line includes a file above the package: `depth` folders above its own is the
/// package.
fn escapes(line: &str, depth: usize) -> bool {
    let included = ["include_str!(\"", "include_bytes!(\"", "include!(\""];
    let mut paths = included.iter().filter_map(|call| line.split_once(call).map(|(_, rest)| rest));
    paths.any(|path| path.matches("../").count() > depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_include_may_go_up_to_its_package_and_no_further() {
        let line = |path: &str| format!("const DATA: &str = include_str!(\"{path}\");");
        assert!(!escapes(&line("../data/x.csv"), 1));
        assert!(escapes(&line("../../docs/x.md"), 1));
        assert!(!escapes(&line("../../data/x.csv"), 2));
        assert!(!escapes("let up = \"../../..\";", 1));
    }
}
