//! The names at the root of the public crate: few enough to be read in one look. The others are in
//! modules by subject.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// The root of the crate that users depend on.
const ROOT: &str = "crates/emmer/src/lib.rs";

/// Names at the root, at most; modules are not counted.
const NAMES_MAX: usize = 30;

/// Counts the names.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let Some(file) = tree.rust.iter().find(|rust| rust.file.path == ROOT) else {
        return Err(format!("{ROOT} is missing"));
    };
    let names = names(&file.split.code, &file.file.text);
    if names.len() <= NAMES_MAX {
        return Ok(Vec::new());
    }
    let text = format!(
        "{} names at the root, the limit is {NAMES_MAX}: move some into the module of their \
         subject ({})",
        names.len(),
        names.into_iter().collect::<Vec<_>>().join(", ")
    );
    Ok(vec![Finding::fail(ROOT, 0, text)])
}

/// The public names that start in the first column and are not hidden.
fn names(code: &str, text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let (mut statement, mut hidden) = (String::new(), false);
    for (line, whole) in code.lines().zip(text.lines()) {
        if statement.is_empty() {
            hidden = (hidden || whole.starts_with("#[doc(hidden)]"))
                && (whole.starts_with("#[") || line.starts_with("pub "));
            if !line.starts_with("pub ") || line.starts_with("pub mod ") {
                continue;
            }
        }
        statement += line.trim();
        if !statement.starts_with("pub use ") || statement.ends_with(';') {
            if !hidden {
                names.extend(named(&statement));
            }
            (statement, hidden) = (String::new(), false);
        }
    }
    names
}

/// The names that a public item brings.
fn named(item: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(paths) = item.strip_prefix("pub use ") else {
        let kinds = ["pub const fn ", "pub fn ", "pub type ", "pub struct ", "pub const "];
        return kinds.iter().filter_map(|kind| item.strip_prefix(kind)).take(1).map(word).collect();
    };
    let paths = paths.split(['{', '}', ',', ';']).map(str::trim);
    let paths = paths.filter(|path| !path.is_empty() && !path.ends_with("::"));
    let last = |path: &str| path.rsplit("::").next().map(str::to_owned);
    paths.filter_map(|path| path.rsplit(" as ").next().and_then(last)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const SOURCE: &str = "
#[doc(hidden)]
pub use a::hidden;
pub use self::b::{
    C, d,
};
#[cfg(feature = \"x\")]
pub use e::F as G;
pub use {h::I, j::C};
pub type K<T> = L<T>;
pub const fn m(n: u64) -> u64 {
    n
}
pub mod o {
    pub use p::{Q, R};
}
";

    #[test]
    fn names_are_counted_once_and_without_modules_and_hidden_ones() {
        let tree = tree(&[], &[(ROOT, SOURCE)]);
        let file = &tree.rust[0];
        let names: Vec<_> = names(&file.split.code, SOURCE).into_iter().collect();
        assert_eq!(names, ["C", "G", "I", "K", "d", "m"]);
        assert!(check(&tree).unwrap().is_empty());
    }

    #[test]
    fn a_name_too_many_fails() {
        let many: String = (0..=NAMES_MAX).map(|n| format!("pub use a::B{n};\n")).collect();
        let found = check(&tree(&[], &[(ROOT, &many)])).unwrap();
        assert!(found[0].text.contains("31 names at the root"), "{}", found[0].text);
    }
}
