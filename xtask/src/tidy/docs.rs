//! The book lists every page and stays short; the code map of `ARCHITECTURE.md` names every crate.

use super::{Finding, Tree};

/// The pages that stand at the root, outside the book.
const ROOT_PAGES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

const SUMMARY: &str = "docs/SUMMARY.md";

/// The part of the book about Emmer's own code. All other parts are for users.
const INTERNALS: &str = "How it works";

/// Words of the parts for users, at most.
const USERS_WORDS_MAX: usize = 39_000;
/// Words of [`INTERNALS`], at most.
const INTERNALS_WORDS_MAX: usize = 15_000;
/// Words of a page for users, at most.
const PAGE_WORDS_MAX: usize = 2_000;

/// Checks pages against the summary and crates against the code map.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for page in ROOT_PAGES.iter().filter(|page| tree.text(page).is_none()) {
        findings.push(Finding::fail(page, 0, "this page is missing"));
    }
    findings.extend(check_summary(tree));
    findings.extend(check_words(tree));
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

/// The book is short enough to be read.
fn check_words(tree: &Tree) -> Vec<Finding> {
    let (mut findings, mut part) = (Vec::new(), "");
    let (mut users, mut internals) = (0, 0);
    for line in tree.text(SUMMARY).unwrap_or_default().lines() {
        part = line.strip_prefix("# ").unwrap_or(part);
        let page = line.split_once("](").and_then(|(_, rest)| rest.strip_suffix(')'));
        let Some(page) = page.map(|page| format!("docs/{page}")) else { continue };
        let words = tree.text(&page).map_or(0, words);
        if part == INTERNALS {
            internals += words;
            continue;
        }
        users += words;
        if words > PAGE_WORDS_MAX {
            let text = format!("{words} words, {PAGE_WORDS_MAX} at most: split the page");
            findings.push(Finding::fail(&page, 0, text));
        }
    }
    for (part, words, most) in [
        ("the parts for users", users, USERS_WORDS_MAX),
        (INTERNALS, internals, INTERNALS_WORDS_MAX),
    ] {
        if words > most {
            let text = format!("{part}: {words} words, {most} at most: shorten a page");
            findings.push(Finding::fail(SUMMARY, 0, text));
        }
    }
    findings
}

/// The words of a page, without blocks of code and targets of links.
fn words(page: &str) -> usize {
    let mut is_code = false;
    let prose = page.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let text = prose.collect::<Vec<_>>().join("\n");
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once(')').map_or("", |(_, rest)| rest));
    let text = rest.fold(first, |text, part| text + "]" + part);
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
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
    fn words_are_counted_without_code_and_links() {
        let page =
            "# A page\n\n| [one two](three.md#four five) | - |\n\n```sh\nls\n```\nsix, `7`\n";
        assert_eq!(words(page), 6);
    }

    #[test]
    fn a_page_too_long_fails_unless_it_is_about_the_code() {
        let long = "word ".repeat(PAGE_WORDS_MAX + 1);
        let summary = "# Users\n- [A](a.md)\n# How it works\n- [B](b.md)\n";
        let files = [(SUMMARY, summary), ("docs/a.md", &*long), ("docs/b.md", &*long)];
        let found = check_words(&tree(&[], &files));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "docs/a.md");
        let many = "word ".repeat(INTERNALS_WORDS_MAX + 1);
        let files = [(SUMMARY, summary), ("docs/a.md", "x"), ("docs/b.md", &*many)];
        assert!(check_words(&tree(&[], &files))[0].text.contains("How it works: 15001 words"));
    }

    #[test]
    fn missing_root_pages_and_summary_fail() {
        assert_eq!(check(&tree(&[], &[])).unwrap().len(), ROOT_PAGES.len() + 1);
    }
}
