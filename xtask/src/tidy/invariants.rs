//! Each invariant that the documents name is checked by the simulator or by a test that says so, or
//! the documents say where it follows from.

use std::collections::BTreeSet;

use super::{Finding, Tree, scan};

/// Where the simulator's checks live, one file per invariant.
const FOLDER: &str = "lab/sim/src/invariants/";

/// The highest invariant number in use.
const HIGHEST: usize = 14;

/// Words that make a sentence about an invariant an answer to "where is it checked?".
const ANSWERS: &[&str] = &["follows from", "follows by", "not checked yet", "not yet checked"];

/// Does nothing while the folder does not exist.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let checks: Vec<_> = tree.rust.iter().filter(|r| r.file.path.starts_with(FOLDER)).collect();
    if checks.is_empty() {
        return Ok(Vec::new());
    }
    let mut findings = Vec::new();
    let mut covered = BTreeSet::new();
    for rust in checks {
        let doc = module_doc(&rust.file.text);
        let ids = ids_in(&doc);
        if ids.is_empty() && !doc.contains("description") && !rust.file.path.ends_with("/mod.rs") {
            let text = "its module doc names neither an invariant (I1 to I14) nor the description \
                its rule comes from";
            findings.push(Finding::fail(&rust.file.path, 1, text));
        }
        covered.extend(ids);
    }
    for rust in tree
        .rust
        .iter()
        .filter(|r| r.file.path.starts_with("crates/") && r.file.path.contains("/tests/"))
    {
        let named = rust.split.comments.lines().filter(|line| line.contains("nvariant "));
        covered.extend(named.flat_map(ids_in));
    }
    for file in tree.other.iter().filter(|f| f.path.ends_with(".md")) {
        let lines: Vec<_> = file.text.lines().collect();
        let answered = lines.iter().filter(|l| ANSWERS.iter().any(|a| l.contains(a)));
        covered.extend(answered.flat_map(|line| ids_in(line)));
    }
    for file in tree.other.iter().filter(|f| f.path.ends_with(".md")) {
        for id in ids_in(&file.text).difference(&covered) {
            let line = scan::lines_with_word(&file.text, id).first().copied().unwrap_or(0);
            let text = format!(
                "{id} has no check in {FOLDER} and no test says that it is one, nor does a \
                 sentence say where it follows from"
            );
            findings.push(Finding::fail(&file.path, line, text));
        }
    }
    Ok(findings)
}

/// The `//!` lines at the top of a module.
fn module_doc(text: &str) -> String {
    text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n")
}

fn ids_in(text: &str) -> BTreeSet<String> {
    let ids = (1..=HIGHEST).map(|n| format!("I{n}"));
    ids.filter(|id| text.lines().any(|line| scan::has_word(line, id))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const ONE: (&str, &str) =
        ("lab/sim/src/invariants/version.rs", "//! I1: the version grows by one.\n");

    #[test]
    fn a_named_invariant_needs_a_check_or_an_answer() {
        let named = tree(&[], &[ONE, ("docs/membership.md", "Invariants: I1,\nI10.\n")]);
        let findings = check(&named).unwrap();
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].line, findings[0].text.starts_with("I10 has no check")), (2, true));
        let answered = tree(&[], &[ONE, ("docs/membership.md", "I1\nI10 follows from I1.\n")]);
        assert!(check(&answered).unwrap().is_empty());
        let test = (
            "crates/directory/tests/world/checks.rs",
            "/// Invariant I10: whole again.\nfn check() {}\n",
        );
        let tested = tree(&[], &[ONE, test, ("docs/membership.md", "I1\nI10\n")]);
        assert!(check(&tested).unwrap().is_empty());
    }

    #[test]
    fn a_check_names_its_invariant_or_its_source() {
        let nameless = tree(&[], &[("lab/sim/src/invariants/version.rs", "//! Versions.\n")]);
        assert_eq!(check(&nameless).unwrap().len(), 1);
        let sourced = tree(
            &[],
            &[(
                "lab/sim/src/invariants/join.rs",
                "//! A joiner dials (membership description, step 8).\n",
            )],
        );
        assert!(check(&sourced).unwrap().is_empty());
    }

    #[test]
    fn nothing_is_asked_before_the_folder_exists() {
        assert!(check(&tree(&[], &[("docs/membership.md", "I7\n")])).unwrap().is_empty());
    }
}
