//! Words that do not belong in the tree: leftovers of work in progress, filler, paths of one
//! machine, foreign hosts.
//!
//! Every list is here and nowhere else.

use super::{Finding, Tree, scan};

/// Marks of unfinished work, as written; anywhere but in string literals.
const LEFTOVERS: &[&str] = &["TODO", "FIXME", "XXX", "HACK", "WIP"];

/// Words that tell the reader how to feel about a sentence instead of saying more; in comments and
/// documents.
const FILLER: &[&str] = &[
    "simply",
    "obviously",
    "trivially",
    "of course",
    "needless to say",
    "blazing",
    "blazingly",
    "seamless",
    "seamlessly",
];

/// Parameters that a page must not teach, because they are the default.
const DEFAULTS: &[&str] = &["?mode=rwc"];

/// First folders of absolute paths that exist on one machine only.
const MACHINE_DIRS: &[&str] = &["home", "root", "Users", "work", "mnt"];

/// Hosts a link may point to. Everything else is either a private place or will rot; add a host
/// here on purpose.
const LINK_HOSTS: &[&str] = &[
    "127.0.0.1",
    "[::1]",
    "arxiv.org",
    "creativecommons.org",
    "datatracker.ietf.org",
    "dl.acm.org",
    "doc.rust-lang.org",
    "docs.rs",
    "embarkstudios.github.io",
    "en.wikipedia.org",
    "example.com",
    "example.org",
    "github.com",
    "keepachangelog.com",
    "learn.microsoft.com",
    "localhost",
    "msgpack.org",
    "opentelemetry.io",
    "rust-lang.github.io",
    "semver.org",
    "sqlite.org",
    "www.apache.org",
    "www.cs.cornell.edu",
    "www.postgresql.org",
    "www.rfc-editor.org",
    "www.rust-lang.org",
    "www.sqlite.org",
    "www.transtats.bts.gov",
    "www.w3.org",
    "xxhash.com",
];

/// Reads every source and document.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for rust in &tree.rust {
        let path = &rust.file.path;
        findings.extend(leftovers(path, &rust.split.code));
        findings.extend(leftovers(path, &rust.split.comments));
        findings.extend(filler(path, &rust.split.comments));
        findings.extend(places(path, &rust.file.text));
    }
    for file in &tree.other {
        findings.extend(leftovers(&file.path, &file.text));
        findings.extend(filler(&file.path, &file.text));
        findings.extend(places(&file.path, &file.text));
        findings.extend(defaults(&file.path, &file.text));
    }
    let exists = |path: &str| tree.root().join(path).exists();
    let rust = tree.rust.iter().map(|rust| (&rust.file.path, &rust.split.comments));
    let pages = tree.other.iter().filter(|f| f.path.ends_with(".md")).map(|f| (&f.path, &f.text));
    for (path, text) in rust.chain(pages) {
        findings.extend(upward(path, text, &exists));
    }
    Ok(findings)
}

/// Pages must not teach defaults.
fn defaults(path: &str, text: &str) -> Vec<Finding> {
    let is_page = path.ends_with(".md");
    let lines = text.lines().enumerate().filter(|_| is_page);
    let taught = |line: &str| DEFAULTS.iter().find(|word| line.contains(**word)).copied();
    lines
        .filter_map(|(at, line)| Some((at, taught(line)?)))
        .map(|(at, word)| {
            Finding::fail(path, at + 1, format!("{word} is the default: leave it out"))
        })
        .collect()
}

/// Paths with `../` in comments and documents lead to something in this repository. (That links in
/// documents lead somewhere is checked by lychee.)
fn upward(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let in_path = |c: char| c.is_alphanumeric() || "./_-".contains(c);
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // `.../` is an ellipsis; the full stop that ends a sentence is not part of the path.
        let words = line.split(|c| !in_path(c)).filter(|w| w.starts_with("../") && w.len() > 3);
        for word in words.map(|word| word.trim_end_matches('.')) {
            let found = match resolve(path, word) {
                None => format!("{word} leaves the repository"),
                Some(to) if !exists(&to) => format!("{word} leads to {to}, which does not exist"),
                Some(_) => continue,
            };
            findings.push(Finding::fail(path, index + 1, found));
        }
    }
    findings
}

/// `target` as a path from the root when it is written in `file`; `None` when it climbs out of the
/// repository.
fn resolve(file: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|part| !["", "."].contains(part)) {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn leftovers(path: &str, text: &str) -> Vec<Finding> {
    each_word(path, text, LEFTOVERS, |word| format!("`{word}`: finish it, or file an issue"))
}

fn filler(path: &str, text: &str) -> Vec<Finding> {
    let text = text.to_lowercase();
    each_word(path, &text, FILLER, |word| format!("\"{word}\" says nothing: leave it out"))
}

fn each_word(path: &str, text: &str, words: &[&str], say: impl Fn(&str) -> String) -> Vec<Finding> {
    let lines = words
        .iter()
        .flat_map(|word| scan::lines_with_word(text, word).into_iter().map(move |l| (*word, l)));
    lines.map(|(word, line)| Finding::fail(path, line, say(word))).collect()
}

/// Paths of one machine and links to foreign hosts, in any part of the file.
fn places(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for dir in MACHINE_DIRS {
            if has_absolute(line, dir) {
                let text = format!("an absolute path below /{dir} exists on one machine only");
                findings.push(Finding::fail(path, index + 1, text));
            }
        }
        for host in link_hosts(line).filter(|host| !LINK_HOSTS.contains(host)) {
            let text =
                format!("a link to {host}, which is not in LINK_HOSTS (xtask/src/tidy/words.rs)");
            findings.push(Finding::fail(path, index + 1, text));
        }
    }
    findings
}

/// Returns true if `line` holds `/dir/` or `/dir` as the start of an absolute path.
fn has_absolute(line: &str, dir: &str) -> bool {
    let in_path = |c: char| c.is_alphanumeric() || "._-/}>*:)~$".contains(c);
    line.match_indices(&format!("/{dir}/"))
        .any(|(at, _)| !line[..at].chars().next_back().is_some_and(in_path))
}

/// The hosts of the http and https links in `line`, without port and user.
fn link_hosts(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("://").filter_map(move |(at, _)| {
        if !(line[..at].ends_with("http") || line[..at].ends_with("https")) {
            return None;
        }
        let rest = &line[at + 3..];
        let end = if rest.starts_with('[') {
            rest.find(']').map_or(rest.len(), |close| close + 1)
        } else {
            rest.find(|c: char| !(c.is_alphanumeric() || "._-".contains(c))).unwrap_or(rest.len())
        };
        // `http://{host}` in a format string names no host.
        Some(&rest[..end]).filter(|host| !host.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    fn texts(path: &str, text: &str) -> Vec<String> {
        check(&tree(&[], &[(path, text)]))
            .unwrap()
            .into_iter()
            .map(|f| format!("{}: {}", f.line, f.text))
            .collect()
    }

    #[test]
    fn a_page_that_teaches_a_default_is_found() {
        let text = "one\n  .store(\"sqlite://a.db?mode=rwc\")\n";
        assert_eq!(defaults("docs/a.md", text).len(), 1);
        assert!(defaults("crates/a/src/lib.rs", text).is_empty());
    }

    #[test]
    fn leftovers_fail_in_comments_and_documents_but_not_in_strings() {
        assert_eq!(texts("a.rs", "let a = 1;\n// TODO: later\n").len(), 1);
        assert_eq!(texts("a.md", "FIXME\n").len(), 1);
        assert!(texts("a.rs", "let s = \"TODO\"; let todos = 1;").is_empty());
    }

    #[test]
    fn filler_fails_whatever_its_case_and_not_inside_other_words() {
        assert_eq!(texts("a.md", "Simply run it.\n"), ["1: \"simply\" says nothing: leave it out"]);
        assert!(texts("a.md", "A simplyfied, obviousness.\n").is_empty());
        assert!(texts("a.rs", "fn simply() {}").is_empty(), "code may use any name");
    }

    #[test]
    fn machine_paths_fail_even_in_strings() {
        let path = format!("let p = \"/{}/someone/x\";", "home");
        assert_eq!(texts("a.rs", &path).len(), 1);
        assert!(
            texts("a.rs", "let p = \"target/work/x\"; // and ./home/x, {dir}/root/x").is_empty()
        );
    }

    #[test]
    fn no_path_leaves_the_repository() {
        let exists = |p: &str| ["docs/wire.md", "README.md"].contains(&p);
        let texts = |path: &str, text: &str| -> Vec<String> {
            upward(path, text, &exists).into_iter().map(|f| f.text).collect()
        };
        let outside = format!("see `{}/elsewhere/design.md`.", "..");
        let said = format!("{}/elsewhere/design.md leaves the repository", "..");
        assert_eq!(texts("README.md", &outside), [said]);
        assert!(texts("docs/a/b.rs", &format!("// {}/README.md.", "../..")).is_empty());
        assert_eq!(texts("docs/a/b.rs", &format!("// {}/gone.", "../..")).len(), 1);
        assert!(texts("docs/x.rs", "// a .../ellipsis and 0..1/2").is_empty());
    }

    #[test]
    fn only_listed_hosts_may_be_linked() {
        let link = |host: &str| format!("see <https:{}{host}/page>", "//");
        assert!(texts("a.md", &link("docs.rs")).is_empty());
        assert!(texts("a.md", &link("127.0.0.1:8080")).is_empty());
        assert!(texts("a.md", &link("[::1]:8080")).is_empty());
        assert!(texts("a.md", "postgres://db.internal/x").is_empty());
        assert_eq!(texts("a.md", &link("intranet.corp")).len(), 1);
    }
}
