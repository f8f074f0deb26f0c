//! Rust files stay short enough to read in one sitting.

use super::{Finding, Tree};

/// Above this many lines a file is named as a warning: it is time to split it.
const WARN_LINES: usize = 500;

/// Above this many lines the check fails.
const MAX_LINES: usize = 600;

/// Counts the lines of every Rust file, tests included.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let files = tree.rust.iter().map(|rust| &rust.file);
    Ok(files.filter_map(|file| check_file(&file.path, file.text.lines().count())).collect())
}

fn check_file(path: &str, lines: usize) -> Option<Finding> {
    if lines > MAX_LINES {
        Some(Finding::fail(
            path,
            0,
            format!("{lines} lines, {MAX_LINES} at most: one subject per module"),
        ))
    } else if lines > WARN_LINES {
        Some(Finding::warn(
            path,
            0,
            format!("{lines} lines; split it before it passes {MAX_LINES}"),
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_two_limits() {
        let level = |lines| check_file("x.rs", lines).map(|f| f.level);
        assert_eq!(level(500), None);
        assert_eq!(level(501), Some(Level::Warn));
        assert_eq!(level(600), Some(Level::Warn));
        assert_eq!(level(601), Some(Level::Fail));
    }
}
