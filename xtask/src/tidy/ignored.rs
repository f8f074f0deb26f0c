//! An ignored test says why, in the attribute, where the test runner prints it.

use super::{Finding, Tree};

/// Finds `#[ignore]` without a reason.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.rust.iter().flat_map(|r| check_code(&r.file.path, &r.split.code)).collect())
}

fn check_code(path: &str, code: &str) -> Vec<Finding> {
    let bare = |line: &str| line.split_whitespace().collect::<String>().contains("#[ignore]");
    let finding = |line| Finding::fail(path, line, "write `#[ignore = \"why\"]`");
    code.lines()
        .enumerate()
        .filter(|(_, line)| bare(line))
        .map(|(index, _)| finding(index + 1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_attribute_fails() {
        assert_eq!(check_code("x.rs", "#[test]\n#[ ignore ]\nfn f() {}")[0].line, 2);
        assert!(check_code("x.rs", "#[ignore = \" \"]\nfn f() {}").is_empty());
    }
}
