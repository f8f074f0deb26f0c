//! The part of a failed step's output that is worth printing: from the first error on, and the end.

use std::collections::VecDeque;

/// Lines kept from the first error on.
const MAX_HEAD: usize = 100;

/// Lines kept from the end.
const MAX_TAIL: usize = 40;

/// How a line starts that tells what went wrong: the compiler, rustdoc and cargo, then rustfmt,
/// then a failed test.
const STARTS: &[&str] = &["error", "Diff in ", "---- "];

/// The line above the frames of a panic. The log keeps the frames; the excerpt has no room for
/// them.
const FRAMES: &str = "stack backtrace:";

/// Whether a line is a frame of a panic, or the place of one: `3: name`, `at file:line:column`.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    line.starts_with("at ") || line.split_once(": ").is_some_and(|(number, _)| is_number(number))
}

/// Collects line by line and forgets what it will not show.
#[derive(Debug, Default)]
pub(crate) struct Excerpt {
    head: Vec<String>,
    tail: VecDeque<String>,
    /// Lines from the first error on that are in neither part.
    left_out: usize,
    frames: Frames,
}

/// Tells the frames of a panic from the lines around them.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Whether the last line was one of them.
    within: bool,
}

impl Frames {
    /// Whether the next line of output belongs to the frames of a panic.
    pub(crate) fn hides(&mut self, line: &str) -> bool {
        self.within = line.trim_end() == FRAMES || self.within && is_frame(line);
        self.within
    }
}

impl Excerpt {
    /// Takes the next line of output.
    pub(crate) fn push(&mut self, line: String) {
        if self.frames.hides(&line) {
            return;
        }
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
        let lines =
            excerpt(before.chain(["error[E0308]: mismatched types".to_owned()]).chain(after));
        assert_eq!(lines[0], "error[E0308]: mismatched types");
        assert_eq!(lines.last().map(String::as_str), Some("  | 499"));
        assert_eq!(lines.len(), MAX_HEAD + 1 + MAX_TAIL);
        assert_eq!(lines[MAX_HEAD], "... 361 lines left out ...");
    }

    #[test]
    fn a_failed_test_is_shown_without_the_frames_of_its_panic() {
        let lines = [
            "running 2 tests",
            "---- it_counts stdout ----",
            "thread 'it_counts' panicked at src/lib.rs:3:5:",
        ]
        .into_iter()
        .chain([
            "one is not two",
            "stack backtrace:",
            "   0: begin",
            "             at ./src/lib.rs:3:5",
            "note: more",
        ]);
        let shown = excerpt(lines.map(str::to_owned));
        let panicked = "thread 'it_counts' panicked at src/lib.rs:3:5:";
        assert_eq!(shown, ["---- it_counts stdout ----", panicked, "one is not two", "note: more"]);
    }

    #[test]
    fn a_short_error_is_shown_whole() {
        let lines = ["Checking x", "error: no", "  --> here"].map(str::to_owned);
        assert_eq!(excerpt(lines), ["error: no", "  --> here"]);
    }
}
