//! The table at the end of a run, and the closing line that tools read.

use std::time::Duration;

/// Result of a line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// With what to say about it.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    /// Counts of the step; a check without counts counts as one.
    pub(crate) counts: Counts,
    pub(crate) took: Duration,
    /// A remark on a row that passed.
    pub(crate) note: String,
}

/// Tests and checks by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

impl Row {
    /// A check that is one thing: it counts as one.
    pub(crate) fn check(name: &str, verdict: Verdict, took: Duration) -> Self {
        let counts = match verdict {
            Verdict::Passed => Counts { passed: 1, ..Counts::default() },
            Verdict::Failed(_) => Counts { failed: 1, ..Counts::default() },
            Verdict::Skipped(_) => Counts { skipped: 1, ..Counts::default() },
        };
        Self { name: name.to_owned(), verdict, counts, took, note: String::new() }
    }

    /// This row, with a remark when it took more than twice as long as the stated seconds.
    pub(crate) fn stated(self, seconds: u64) -> Self {
        if self.took.as_secs() <= 2 * seconds {
            return self;
        }
        let slow = format!("SLOW: stated to take {seconds} s on two quiet cores");
        let note = if self.note.is_empty() { slow } else { format!("{}; {slow}", self.note) };
        self.noted(note)
    }

    /// This row with a remark.
    pub(crate) fn noted(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// The sum of all rows.
pub(crate) fn total(rows: &[Row]) -> Counts {
    rows.iter().fold(Counts::default(), |sum, row| Counts {
        passed: sum.passed + row.counts.passed,
        failed: sum.failed + row.counts.failed,
        skipped: sum.skipped + row.counts.skipped,
    })
}

/// The table, without the closing line.
pub(crate) fn table(rows: &[Row]) -> String {
    let width =
        rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max("what ran".len());
    let mut text = format!("{:<width$}  result   passed  failed  skipped      time\n", "what ran");
    text += &format!("{}\n", "-".repeat(width + 46));
    for row in rows {
        let (word, note) = match &row.verdict {
            Verdict::Passed => ("passed", row.note.as_str()),
            Verdict::Failed(why) => ("FAILED", why.as_str()),
            Verdict::Skipped(why) => ("skipped", why.as_str()),
        };
        let Counts { passed, failed, skipped } = row.counts;
        let seconds = row.took.as_secs_f64();
        let line = format!(
            "{:<width$}  {word:<7}  {passed:>6}  {failed:>6}  {skipped:>7}  {seconds:>6.1} s  \
             {note}",
            row.name
        );
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// `N passed, N failed, N skipped`: the last line of a run.
pub(crate) fn closing_line(rows: &[Row]) -> String {
    let Counts { passed, failed, skipped } = total(rows);
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

/// Returns true if any row failed.
pub(crate) fn failed(rows: &[Row]) -> bool {
    rows.iter().any(|row| matches!(row.verdict, Verdict::Failed(_)) || row.counts.failed > 0)
}

#[cfg(test)]
mod test {
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            Row::check("fmt", Verdict::Passed, Duration::from_millis(900)),
            Row {
                counts: Counts { passed: 40, failed: 0, skipped: 1 },
                ..Row::check("core unit", Verdict::Passed, Duration::ZERO)
            },
            Row::check("deny", Verdict::Skipped("not installed".to_owned()), Duration::ZERO),
        ]
    }

    #[test]
    fn the_closing_line_adds_everything_up() {
        assert_eq!(closing_line(&rows()), "41 passed, 0 failed, 2 skipped");
        assert!(!failed(&rows()));
    }

    #[test]
    fn a_failed_row_fails_the_run_and_says_why() {
        let mut rows = rows();
        rows.push(Row::check(
            "doc",
            Verdict::Failed("exit code 101".to_owned()),
            Duration::from_secs(2),
        ));
        assert!(failed(&rows));
        assert!(table(&rows).contains("FAILED"), "{}", table(&rows));
        assert!(table(&rows).contains("exit code 101"));
        assert_eq!(closing_line(&rows), "41 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn a_row_that_takes_twice_its_time_says_so() {
        let row = |secs| Row::check("doc", Verdict::Passed, Duration::from_secs(secs)).stated(10);
        assert_eq!(row(20).note, "");
        assert!(row(21).note.contains("stated to take 10 s"));
    }

    #[test]
    fn a_skipped_row_gives_its_reason() {
        assert!(
            table(&rows()).lines().any(|l| l.starts_with("deny") && l.ends_with("not installed"))
        );
    }
}
