//! The part of a failed step's output that is worth printing: from the first error on, and the end.

use std::collections::VecDeque;

/// Lines kept from the first error on.
const MAX_HEAD: usize = 100;

/// Lines kept from the end.
const MAX_TAIL: usize = 40;

/// How a line starts that tells what went wrong: the compiler, rustdoc and cargo, then rustfmt.
const STARTS: &[&str] = &["error", "Diff in "];

/// Collects line by line and forgets what it will not show.
#[derive(Debug, Default)]
pub(crate) struct Excerpt {
    head: Vec<String>,
    tail: VecDeque<String>,
    /// Lines from the first error on that are in neither part.
    left_out: usize,
}

impl Excerpt {
    /// Takes the next line of output.
    pub(crate) fn push(&mut self, line: String) {
        let started = !self.head.is_empty() || STARTS.iter().any(|start| line.starts_with(start));
        if started && self.head.len() < MAX_HEAD {
            self.tail.clear();
            self.head.push(line);
            return;
        }
        if self.tail.len() == MAX_TAIL {
            self.tail.pop_front();
            self.left_out += usize::from(started);
        }
        self.tail.push_back(line);
    }

    /// What to print.
    pub(crate) fn lines(&self) -> Vec<String> {
        let gap = (self.left_out > 0).then(|| format!("... {} lines left out ...", self.left_out));
        self.head.iter().cloned().chain(gap).chain(self.tail.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excerpt(lines: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut excerpt = Excerpt::default();
        lines.into_iter().for_each(|line| excerpt.push(line));
        excerpt.lines()
    }

    #[test]
    fn without_an_error_the_end_is_shown() {
        let lines = excerpt((0..1000).map(|n| n.to_string()));
        assert_eq!((lines.len(), lines.first().map(String::as_str)), (MAX_TAIL, Some("960")));
    }

    #[test]
    fn the_first_error_is_shown_however_much_follows() {
        let before = (0..500).map(|n| format!("Compiling {n}"));
        let after = (0..500).map(|n| format!("  | {n}"));
        let lines = excerpt(before.chain(["error[E0308]: mismatched types".to_owned()]).chain(after));
        assert_eq!(lines[0], "error[E0308]: mismatched types");
        assert_eq!(lines.last().map(String::as_str), Some("  | 499"));
        assert_eq!(lines.len(), MAX_HEAD + 1 + MAX_TAIL);
        assert_eq!(lines[MAX_HEAD], "... 361 lines left out ...");
    }

    #[test]
    fn a_short_error_is_shown_whole() {
        let lines = ["Checking x", "error: no", "  --> here"].map(str::to_owned);
        assert_eq!(excerpt(lines), ["error: no", "  --> here"]);
    }
}
