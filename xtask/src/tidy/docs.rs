//! The book lists every page, and the code map of `ARCHITECTURE.md` names every crate.

use super::{Finding, Tree};

/// The pages that stand at the root, outside the book.
const ROOT_PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks pages against the summary and crates against the code map.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for page in ROOT_PAGES.iter().filter(|page| tree.text(page).is_none()) {
        findings.push(Finding::fail(page, 0, "this page is missing"));
    }
    findings.extend(check_summary(tree));
    if let Some(map) = tree.text("ARCHITECTURE.md") {
        for member in tree.workspace.members.iter().filter(|m| !map.contains(&m.folder)) {
            let text = format!("the code map does not name {} ({})", member.folder, member.name);
            findings.push(Finding::fail("ARCHITECTURE.md", 0, text));
        }
    }
    Ok(findings)
}

/// Every page directly in `docs/` is linked from the summary. (That links lead somewhere is the
/// `links` rule.)
fn check_summary(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.text(SUMMARY) else {
        return vec![Finding::fail(SUMMARY, 0, "the book's summary is missing")];
    };
    let pages = tree.other.iter().filter_map(|f| f.path.strip_prefix("docs/"));
    let pages = pages.filter(|page| page.ends_with(".md") && *page != "SUMMARY.md");
    let unlisted = pages.filter(|page| !summary.contains(&format!("({page})")));
    unlisted
        .map(|page| Finding::fail(SUMMARY, 0, format!("docs/{page} is not in the book")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const PAGES: [(&str, &str); 4] = [
        ("README.md", "x"),
        ("ARCHITECTURE.md", "the map: `crates/core`"),
        ("CONTRIBUTING.md", "x"),
        ("CHANGELOG.md", "x"),
    ];

    #[test]
    fn an_unlisted_page_and_an_unmapped_crate_fail() {
        let members: &[(&str, &str, &[&str])] =
            &[("emmer-core", "crates/core", &[]), ("emmer-wire", "crates/wire", &[])];
        let mut files = PAGES.to_vec();
        files.extend([
            (SUMMARY, "- [Wire](wire.md)\n"),
            ("docs/wire.md", "x"),
            ("docs/store.md", "x"),
        ]);
        let texts: Vec<_> =
            check(&tree(members, &files)).unwrap().into_iter().map(|f| f.text).collect();
        assert_eq!(
            texts,
            [
                "docs/store.md is not in the book",
                "the code map does not name crates/wire (emmer-wire)"
            ]
        );
    }

    #[test]
    fn missing_root_pages_and_summary_fail() {
        assert_eq!(check(&tree(&[], &[])).unwrap().len(), ROOT_PAGES.len() + 1);
    }
}
