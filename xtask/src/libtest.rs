//! Reads what `cargo test` prints: how many tests of which package ran, and how they ended.

use std::time::Duration;

use crate::excerpt::Frames;
use crate::limited;

/// Lines kept of the failing tests' own output.
const MAX_FAILURE_LINES: usize = 200;

/// Where a group's tests live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Beside the code.
    Unit,
    /// In `tests/`, compile-fail tests included.
    Integration,
    /// In doc comments.
    Doc,
}

impl Kind {
    /// The word in the table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Integration => "integration",
            Self::Doc => "doc",
        }
    }
}

/// The tests of one kind in one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The crate's name as rustc writes it: `emmer_core`.
    pub(crate) krate: String,
    pub(crate) kind: Kind,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    pub(crate) took: Duration,
}

/// What has been read so far.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    groups: Vec<Group>,
    /// The crate and kind of the binary that runs now.
    current: Option<(String, Kind)>,
    /// The names of failed tests.
    pub(crate) failed: Vec<String>,
    /// Ignored tests with the reason they give.
    pub(crate) ignored: Vec<String>,
    /// What the failing tests printed.
    pub(crate) failure_output: Vec<String>,
    /// Tests of the program that runs now, which take long.
    slow: Vec<String>,
    in_failures: bool,
    frames: Frames,
}

impl Reader {
    /// Takes the next line of output.
    pub(crate) fn line(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(rest) = trimmed.strip_prefix("Running ") {
            self.running(rest);
        } else if let Some(krate) = trimmed.strip_prefix("Doc-tests ") {
            self.current = Some((krate.trim().to_owned(), Kind::Doc));
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.in_failures = false;
            self.result(result);
        } else if line == "failures:" {
            self.in_failures = true;
        } else if let Some(program) = line.strip_prefix(limited::ENDED) {
            self.ended(program);
        } else if let Some(test) = line.strip_prefix("test ") {
            self.test(test);
        } else if self.in_failures && self.failure_output.len() < MAX_FAILURE_LINES {
            // The log keeps the frames of a panic.
            if !self.frames.hides(line) {
                self.failure_output.push(line.to_owned());
            }
        }
    }

    /// `unittests src/lib.rs (target/debug/deps/emmer_core-1f2e)` or
    /// `tests/a.rs (target/debug/deps/a-1f2e)`.
    fn running(&mut self, rest: &str) {
        let Some((source, binary)) = rest.split_once(" (") else { return };
        let file = binary.trim_end_matches(')').rsplit(['/', '\\']).next().unwrap_or_default();
        let krate = file.rsplit_once('-').map_or(file, |(name, _)| name);
        self.slow.clear();
        self.current = Some(if source == "unittests src/lib.rs" {
            (krate.to_owned(), Kind::Unit)
        } else if source.starts_with("unittests ") {
            // A program may bear the name of the library it is built on.
            (format!("{krate} (bin)"), Kind::Unit)
        } else {
            // Cargo runs a package's unit tests right before its integration tests, whose own names
            // say less.
            let package =
                self.current.take().map_or_else(|| krate.to_owned(), |(package, _)| package);
            (package, Kind::Integration)
        });
    }

    /// A program that was ended: the tests that hung.
    fn ended(&mut self, program: &str) {
        self.in_failures = false;
        let place = self.current.as_ref().map_or("", |(krate, _)| krate.as_str());
        match std::mem::take(&mut self.slow) {
            none if none.is_empty() => {
                self.failed.push(format!("{place} (it took too long: {program})"));
            }
            slow => self.failed.extend(slow.iter().map(|name| format!("{place} {name} (it hung)"))),
        }
    }

    /// `name has been running for over 60 seconds`, `name ... ok`, `name ... FAILED`,
    /// `name ... ignored, reason`.
    fn test(&mut self, test: &str) {
        if let Some((name, _)) = test.split_once(" has been running for over ") {
            return self.slow.push(name.to_owned());
        }
        let Some((name, outcome)) = test.rsplit_once(" ... ") else { return };
        self.slow.retain(|slow| slow != name);
        let place = self.current.as_ref().map_or("", |(krate, _)| krate.as_str());
        if outcome.starts_with("FAILED") {
            self.failed.push(format!("{place} {name}"));
        } else if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            self.ignored.push(format!("{place} {name}: {reason}"));
        }
    }

    /// `ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`.
    fn result(&mut self, result: &str) {
        let Some((krate, kind)) = self.current.clone() else { return };
        let count = |word: &str| {
            let piece = result.split([';', '.']).map(str::trim).find(|piece| piece.ends_with(word));
            piece.and_then(|p| p.split(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
        };
        let seconds = result
            .rsplit_once("finished in ")
            .and_then(|(_, s)| s.trim().trim_end_matches('s').parse().ok());
        let group = match self.groups.iter_mut().position(|g| g.krate == krate && g.kind == kind) {
            Some(index) => &mut self.groups[index],
            None => {
                self.groups.push(Group {
                    krate,
                    kind,
                    passed: 0,
                    failed: 0,
                    ignored: 0,
                    took: Duration::ZERO,
                });
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            }
        };
        group.passed += count(" passed");
        group.failed += count(" failed");
        group.ignored += count(" ignored");
        group.took += Duration::try_from_secs_f64(seconds.unwrap_or(0.0)).unwrap_or_default();
    }

    /// The groups that have any tests, in the order they ran.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|g| g.passed + g.failed + g.ignored > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reader {
        let mut reader = Reader::default();
        text.lines().for_each(|line| reader.line(line));
        reader
    }

    const RUN: &str = "   Compiling emmer-core v0.1.0
     Running unittests src/lib.rs (target/debug/deps/emmer_core-0a1b2c)

running 3 tests
test ring::tests::wraps ... ok
test ring::tests::slow ... ignored, takes an hour
test ring::tests::breaks ... FAILED

failures:

---- ring::tests::breaks stdout ----
assertion failed: 1 == 2
stack backtrace:
   0: core::panicking::panic
             at /rustc/core/src/panicking.rs:1:1
note: more is in the log

failures:
    ring::tests::breaks

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.25s

     Running tests/vectors.rs (target/debug/deps/vectors-99)
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
     Running tests/more.rs (target/debug/deps/more-98)
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.50s
     Running unittests src/lib.rs (target/debug/deps/emmer_wire-77)
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests emmer_core
test crates/core/src/lib.rs - (line 3) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn groups_are_counted_by_crate_and_kind() {
        let reader = read(RUN);
        let rows: Vec<_> = reader
            .groups()
            .map(|g| (g.krate.as_str(), g.kind, g.passed, g.failed, g.ignored))
            .collect();
        assert_eq!(
            rows,
            [
                ("emmer_core", Kind::Unit, 1, 1, 1),
                ("emmer_core", Kind::Integration, 6, 0, 0),
                ("emmer_core", Kind::Doc, 1, 0, 0),
            ]
        );
        assert_eq!(reader.groups().nth(1).map(|g| g.took), Some(Duration::from_millis(1500)));
    }

    #[test]
    fn failures_and_reasons_are_kept() {
        let reader = read(RUN);
        assert_eq!(reader.failed, ["emmer_core ring::tests::breaks"]);
        assert_eq!(reader.ignored, ["emmer_core ring::tests::slow: takes an hour"]);
        assert!(reader.failure_output.iter().any(|l| l.contains("assertion failed")));
        assert!(
            !reader.failure_output.iter().any(|l| l.contains("panicking")),
            "{:?}",
            reader.failure_output
        );
    }

    #[test]
    fn a_program_is_told_from_the_library_of_its_name() {
        let result = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; \
            finished in 0.01s";
        let run = |source: &str| {
            format!("Running unittests {source} (target/debug/deps/emmer-1)\n{result}\n")
        };
        let reader = read(&(run("src/lib.rs") + &run("src/main.rs")));
        let names: Vec<_> = reader.groups().map(|g| g.krate.as_str()).collect();
        assert_eq!(names, ["emmer", "emmer (bin)"]);
    }

    #[test]
    fn a_test_that_hung_has_failed_by_its_name() {
        let run = "Running tests/calls.rs (target/debug/deps/calls-1)
test first has been running for over 60 seconds
test second has been running for over 60 seconds
test first ... ok
ended for taking too long: target/debug/deps/calls-1, 480 s
Running tests/more.rs (target/debug/deps/more-1)
ended for taking too long: target/debug/deps/more-1, 480 s
";
        let failed = read(run).failed;
        assert_eq!(
            failed,
            ["calls second (it hung)", "calls (it took too long: target/debug/deps/more-1, 480 s)"]
        );
    }

    #[test]
    fn strange_output_is_not_counted() {
        let reader = read("test result: ok. 5 passed; 0 failed\nRunning away\ntest of patience\n");
        assert_eq!(reader.groups().count(), 0);
    }
}
