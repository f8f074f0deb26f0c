//! Lines of comments and pages fit a window: 100 columns, as rustfmt keeps them for code.

use super::{Finding, Tree};

/// Columns of a line.
const COLUMNS: usize = 100;

/// Reads the comments of every Rust file, and every page.
pub(crate) fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for rust in &tree.rust {
        let lines = rust.split.comments.lines().map(text_of_comment);
        findings.extend(too_long(&rust.file.path, lines));
    }
    for page in tree.other.iter().filter(|file| file.path.ends_with(".md")) {
        let lines = page.text.lines().map(|line| (line.chars().count(), line));
        findings.extend(too_long(&page.path, lines));
    }
    Ok(findings)
}

/// The end of a comment in its line, and its words without the marker; the code before it is blank.
fn text_of_comment(line: &str) -> (usize, &str) {
    let comment = line.trim();
    let marker = ["//!", "///", "//"].into_iter().find(|marker| comment.starts_with(marker));
    (line.trim_end().chars().count(), &comment[marker.map_or(0, str::len)..])
}

/// The lines that are too long, each with its length and its text. What cannot be broken may be
/// long: tables, samples, a command, and one long word.
fn too_long<'a>(path: &str, lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_sample = false;
    for (at, (columns, text)) in lines.enumerate() {
        let text = text.trim();
        if text.starts_with("```") {
            in_sample = !in_sample;
        }
        let is_free = in_sample || text.starts_with('|') || is_command(text);
        if columns > COLUMNS && !is_free && text.contains(' ') {
            let what = format!("{columns} columns: break the line before column {COLUMNS}");
            findings.push(Finding::fail(path, at + 1, what));
        }
    }
    findings
}

/// Returns true if a line is one piece of code and nothing else.
fn is_command(text: &str) -> bool {
    let end = text.strip_prefix('`').and_then(|text| text.split_once('`'));
    end.is_some_and(|(_, rest)| rest.len() <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::scan;

    fn lines_of(source: &str) -> Vec<usize> {
        let split = scan::split(source);
        let lines = split.comments.lines().map(text_of_comment);
        too_long("a.rs", lines).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn prose_is_held_to_the_width_and_what_cannot_be_broken_is_not() {
        let long = "word ".repeat(20);
        let source = format!(
            "/// {long}\n//! | {long} |\n// short\nlet a = 1; // {long}\n/// ```\n/// {long}\n/// \
             ```\nlet text = \"{long}{long}\";\n    // {long}\n/// {}",
            "x".repeat(120)
        );
        assert_eq!(lines_of(&source), [1, 4, 9]);
    }

    #[test]
    fn a_command_is_one_piece_and_prose_that_begins_with_code_is_not() {
        let long = "word ".repeat(30);
        assert_eq!(lines_of(&format!("//! `{long}`.\n//! `a` {long}\n")), [2]);
    }

    #[test]
    fn the_hundredth_column_is_the_last_one() {
        let fits = format!("// {} b", "a".repeat(95));
        assert_eq!(lines_of(&fits), Vec::<usize>::new());
        assert_eq!(lines_of(&format!("{fits}b")), [1]);
    }
}
