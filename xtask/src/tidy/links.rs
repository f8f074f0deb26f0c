//! Relative paths in documents and comments lead to something in this repository.

use std::path::Path;

use super::{Finding, Tree};

/// Checks the links of every Markdown file, and every `../` path in Markdown and in Rust comments.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let exists = |path: &str| tree.root().join(path).exists();
    let mut findings = Vec::new();
    for file in tree.other.iter().filter(|f| f.path.ends_with(".md")) {
        findings.extend(check_text(&file.path, &file.text, true, &exists));
    }
    for rust in &tree.rust {
        findings.extend(check_text(&rust.file.path, &rust.split.comments, false, &exists));
    }
    Ok(findings)
}

fn check_text(
    path: &str,
    text: &str,
    markdown: bool,
    exists: &dyn Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let links = if markdown { link_targets(line) } else { Vec::new() };
        let mut targets: Vec<_> = links.into_iter().chain(upward_paths(line)).collect();
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            match resolve(path, target) {
                None => {
                    findings.push(Finding::fail(
                        path,
                        index + 1,
                        format!("{target} leaves the repository"),
                    ));
                }
                Some(to) if !exists(&to) => {
                    findings.push(Finding::fail(
                        path,
                        index + 1,
                        format!("{target} leads to {to}, which does not exist"),
                    ));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

/// The relative targets of the Markdown links in `line`, without their fragments.
fn link_targets(line: &str) -> Vec<&str> {
    let starts = line.match_indices("](").map(|(at, _)| &line[at + 2..]);
    let targets = starts.filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets
        .filter(|t| {
            !t.is_empty() && !t.contains("://") && !t.starts_with("mailto:") && !t.contains("::")
        })
        .collect()
}

/// The words in `line` that start with `../`.
fn upward_paths(line: &str) -> Vec<&str> {
    let in_path = |c: char| c.is_alphanumeric() || "./_-".contains(c);
    let words = line.split(|c| !in_path(c));
    // `.../` is an ellipsis; the full stop that ends a sentence is not part of the path.
    words
        .filter(|word| word.starts_with("../") && word.len() > 3)
        .map(|word| word.trim_end_matches('.'))
        .collect()
}

/// `target` as a path from the root when it is written in `file`; `None` when it climbs out of the
/// repository.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => return None,
        None => Path::new(file).parent()?.iter().filter_map(|p| p.to_str()).collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        let exists = |p: &str| ["docs/wire.md", "README.md", "docs"].contains(&p);
        check_text(path, text, path.ends_with(".md"), &exists).into_iter().map(|f| f.text).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        assert!(texts("README.md", "[wire](docs/wire.md#frames) and [up](docs/)").is_empty());
        assert!(
            texts("docs/wire.md", "[read](../README.md), [self](#frames), [type](emmer::Silo)")
                .is_empty()
        );
        assert_eq!(
            texts("docs/wire.md", "[gone](gone.md)"),
            ["gone.md leads to docs/gone.md, which does not exist"]
        );
    }

    #[test]
    fn no_path_leaves_the_repository() {
        let outside = format!("see `{}/elsewhere/design.md`.", "..");
        assert_eq!(
            texts("README.md", &outside),
            [format!("{}/elsewhere/design.md leaves the repository", "..")]
        );
        assert_eq!(texts("docs/a/b.rs", &format!("// {}/gone.", "../..")).len(), 1);
        assert!(texts("docs/x.rs", "// a .../ellipsis and 0..1/2").is_empty());
    }
}
