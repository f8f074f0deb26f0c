//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy checks.
//!
//! Each rule is a module of its own: a function from the [`Tree`] to its [`Finding`]s, with its
//! tables in the same file.

mod circles;
mod crates;
mod docs;
mod layers;
pub(crate) mod packages;
mod parts;
mod rooms;
mod root;
mod scan;
mod size;
mod weight;
mod width;
mod words;

use std::path::Path;

use crate::workspace::{self, TextFile, Workspace};

/// Level of a finding: an error breaks the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// The rule is broken.
    Fail,
    /// Close to breaking; printed, never fatal.
    Warn,
}

/// One place where a rule is broken or nearly so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// The file or folder, relative to the root.
    pub(crate) path: String,
    /// The 1-based line; 0 when the finding is about the whole file.
    pub(crate) line: usize,
    /// The fault and its remedy.
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn fail(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { level: Level::Fail, path: path.to_owned(), line, text: text.into() }
    }

    pub(crate) fn warn(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { level: Level::Warn, path: path.to_owned(), line, text: text.into() }
    }
}

/// A Rust file with its code and its comments apart.
#[derive(Debug)]
pub(crate) struct RustFile {
    pub(crate) file: TextFile,
    pub(crate) split: scan::Split,
}

/// Input of the rules.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) workspace: Workspace,
    pub(crate) rust: Vec<RustFile>,
    /// Documents, settings and scripts.
    pub(crate) other: Vec<TextFile>,
}

impl Tree {
    /// Reads every source and document below `workspace`'s root.
    fn read(workspace: Workspace) -> Result<Self, String> {
        let rust = workspace::text_files(&workspace.root, &["rs"])?;
        let other = workspace::text_files(&workspace.root, OTHER_EXTENSIONS)?;
        Ok(Self::from_files(workspace, rust, other))
    }

    fn from_files(workspace: Workspace, rust: Vec<TextFile>, other: Vec<TextFile>) -> Self {
        let rust = rust
            .into_iter()
            .map(|file| RustFile { split: scan::split(&file.text), file })
            .collect();
        Self { workspace, rust, other }
    }

    /// The text of the non-Rust file at `path`.
    fn text(&self, path: &str) -> Option<&str> {
        self.other.iter().find(|f| f.path == path).map(|f| f.text.as_str())
    }

    /// Where the workspace is on disk.
    fn root(&self) -> &Path {
        &self.workspace.root
    }
}

/// The text that is not Rust: documents, settings, scripts, and what the compile-fail tests expect
/// to read.
const OTHER_EXTENSIONS: &[&str] = &["md", "toml", "sh", "yml", "yaml", "stderr"];

/// A rule: its name, its purpose, and its check.
struct Rule {
    name: &'static str,
    about: &'static str,
    check: fn(&Tree) -> Result<Vec<Finding>, String>,
}

const RULES: &[Rule] = &[
    Rule { name: "layers", about: "dependencies point down only", check: layers::check },
    Rule {
        name: "rooms",
        about: "the rooms of the runtime know whom they may",
        check: rooms::check,
    },
    Rule {
        name: "parts",
        about: "the parts of a machine do not know each other",
        check: parts::check,
    },
    Rule { name: "circles", about: "few files name each other in a circle", check: circles::check },
    Rule { name: "size", about: "Rust files stay readable", check: size::check },
    Rule { name: "width", about: "comments and pages fit 100 columns", check: width::check },
    Rule {
        name: "words",
        about: "no leftovers, filler, machine paths or foreign hosts",
        check: words::check,
    },
    Rule {
        name: "crates",
        about: "each crate has its lints and its clippy file",
        check: crates::check,
    },
    Rule {
        name: "packages",
        about: "what is published is whole, what is private stays so",
        check: packages::check,
    },
    Rule { name: "root", about: "few names at the root of the public crate", check: root::check },
    Rule { name: "docs", about: "the book and the code map are complete", check: docs::check },
    Rule {
        name: "weight",
        about: "few packages, no test code in the program, no IO below sans-IO crates",
        check: weight::check,
    },
];

/// Findings of one rule.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) findings: Vec<Finding>,
}

impl Outcome {
    /// Number of findings that break the build.
    pub(crate) fn failures(&self) -> usize {
        self.findings.iter().filter(|f| f.level == Level::Fail).count()
    }
}

/// Runs every rule on the tree this task belongs to. An error means that a rule could not be
/// checked at all.
pub(crate) fn run() -> Result<Vec<Outcome>, String> {
    let tree = Tree::read(Workspace::load()?)?;
    RULES
        .iter()
        .map(|rule| {
            let mut findings = (rule.check)(&tree).map_err(|e| format!("{}: {e}", rule.name))?;
            findings.sort();
            Ok(Outcome { name: rule.name, about: rule.about, findings })
        })
        .collect()
}

/// The outcomes as text: one line per rule, its findings below it.
pub(crate) fn render(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let failures = outcome.failures();
        let warnings = outcome.findings.len() - failures;
        let verdict = match (failures, warnings) {
            (0, 0) => "ok".to_owned(),
            (0, warnings) => format!("ok, {warnings} warned"),
            (failures, 0) => format!("{failures} FAILED"),
            (failures, warnings) => format!("{failures} FAILED, {warnings} warned"),
        };
        text += &format!("{:<11} {verdict:<20} {}\n", outcome.name, outcome.about);
        for finding in &outcome.findings {
            let level = if finding.level == Level::Fail { "fail" } else { "warn" };
            let place =
                if finding.line == 0 { String::new() } else { format!(":{}", finding.line) };
            text += &format!("    {level} {}{place}: {}\n", finding.path, finding.text);
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod testing {
    //! A tree made of text, for the rules' tests.

    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::Tree;
    use crate::workspace::{EdgeKind, Member, TextFile, Workspace};

    /// A tree with these members `(name, folder, normal dependencies)` and these files
    /// `(path, text)`.
    pub(crate) fn tree(members: &[(&str, &str, &[&str])], files: &[(&str, &str)]) -> Tree {
        let members =
            members.iter().map(|(name, folder, deps)| member(name, folder, deps)).collect();
        let file = |(path, text): &(&str, &str)| TextFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let (rust, other) = files.iter().map(file).partition(|f| f.path.ends_with(".rs"));
        Tree::from_files(Workspace { root: PathBuf::from("/nowhere"), members }, rust, other)
    }

    fn member(name: &str, folder: &str, deps: &[&str]) -> Member {
        let internal: BTreeMap<_, _> =
            deps.iter().map(|d| ((*d).to_owned(), vec![EdgeKind::Normal])).collect();
        Member { name: name.to_owned(), folder: folder.to_owned(), internal }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_shown_but_does_not_fail() {
        let findings = vec![Finding::warn("a.rs", 0, "long"), Finding::fail("b.rs", 3, "bad")];
        let outcome = Outcome { name: "size", about: "x", findings };
        assert_eq!(outcome.failures(), 1);
        let text = render(&[outcome]);
        assert!(text.contains("1 FAILED, 1 warned"), "{text}");
        assert!(text.contains("fail b.rs:3: bad") && text.contains("warn a.rs: long"), "{text}");
    }
}
