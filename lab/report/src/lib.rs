//! Tables of results, and their ways onto a terminal and into files.
//!
//! | file | subject |
//! |---|---|
//! | `lib.rs` | the table, and writing all its forms to a folder |
//! | `text.rs` | terminal, CSV, JSON lines |
//! | `numbers.rs` | what was reached, in the table of a page |

pub mod numbers;
mod text;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// One cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String),
    /// A number, printed with this number of decimals.
    Number(f64, u8),
    /// A count.
    Count(u64),
    /// Nothing was measured.
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(u64::from(count))
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl Cell {
    /// A number with three decimals; nothing when there is none.
    pub fn number(value: impl Into<Option<f64>>) -> Self {
        value.into().map_or(Self::Nothing, |value| Self::Number(value, 3))
    }

    /// The cell as text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value, decimals) => format!("{value:.*}", usize::from(*decimals)),
            Self::Count(count) => count.to_string(),
            Self::Nothing => "-".to_owned(),
        }
    }
}

/// A number that was reached, next to the number to reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Name of the measurement, with its unit.
    pub what: String,
    /// Value that was reached; none when nothing was measured.
    pub reached: Option<f64>,
    /// The most it may be.
    pub at_most: f64,
}

impl Goal {
    /// A goal of at most `at_most`.
    pub fn at_most(what: impl Into<String>, reached: impl Into<Option<f64>>, at_most: f64) -> Self {
        Self { what: what.into(), reached: reached.into(), at_most }
    }

    /// Returns true if it is met.
    pub fn is_met(&self) -> bool {
        self.reached.is_some_and(|reached| reached <= self.at_most)
    }
}

/// The table of one experiment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The experiment's name: also the files' name.
    pub name: String,
    /// Title, and the command that shows it again.
    pub title: String,
    /// The columns' names; units in the name.
    pub columns: Vec<&'static str>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// The numbers to reach.
    pub goals: Vec<Goal>,
}

impl Report {
    /// An empty table.
    pub fn new(name: &str, title: impl Into<String>, columns: &[&'static str]) -> Self {
        Self {
            name: name.to_owned(),
            title: title.into(),
            columns: columns.to_vec(),
            ..Self::default()
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a row of {}", self.name);
        self.rows.push(row);
    }

    /// The goals as text, one a line; empty when there are none.
    pub fn goals_text(&self) -> String {
        let mut text = String::new();
        for goal in &self.goals {
            let reached =
                goal.reached.map_or_else(|| "nothing measured".to_owned(), |r| format!("{r:.3}"));
            let verdict = if goal.is_met() { "reached" } else { "MISSED" };
            let _ = writeln!(
                text,
                "{verdict:>8}  {}: {reached} (goal: at most {})",
                goal.what, goal.at_most
            );
        }
        text
    }

    /// Writes the table as CSV and as JSON lines into `folder`, and its goals into the page that
    /// the environment names ([`numbers::PAGE`]); the paths written.
    ///
    /// # Errors
    /// When a file cannot be written; those before it stay.
    pub fn write(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        fs::create_dir_all(folder)?;
        let mut written = Vec::new();
        let mut put = |file: String, content: String| -> io::Result<()> {
            let path = folder.join(file);
            fs::write(&path, content)?;
            written.push(path);
            Ok(())
        };
        put(format!("{}.csv", self.name), self.to_csv())?;
        put(format!("{}.jsonl", self.name), self.to_json_lines())?;
        numbers::record(&self.name, &self.goals)?;
        Ok(written)
    }
}

/// The value below which the share `q` (0 to 1) of `values` lies; None when there are none. Between
/// two values it takes the nearer one.
pub fn quantile<T: Copy + Ord>(values: &[T], q: f64) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "q is a share of a length"
    )]
    let at = (last as f64 * q.clamp(0.0, 1.0)).round() as usize;
    sorted.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_only_by_a_measured_number() {
        assert!(Goal::at_most("p50", 4.5, 4.5).is_met());
        assert!(!Goal::at_most("p50", 4.6, 4.5).is_met());
        assert!(!Goal::at_most("p50", None, 4.5).is_met());
    }

    #[test]
    fn reports_are_written_in_every_form() {
        let folder = std::env::temp_dir().join(format!("emmer-report-{}", std::process::id()));
        let mut report = Report::new("demo", "A demo", &["profile", "p50 s"]);
        report.push(vec!["default".into(), Cell::Number(4.25, 2)]);
        let written = report.write(&folder).unwrap();
        let names: Vec<_> = written.iter().filter_map(|path| path.file_name()?.to_str()).collect();
        assert_eq!(names, ["demo.csv", "demo.jsonl"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn quantiles_of_small_lists() {
        let list: Vec<u32> = (0..=100).collect();
        assert_eq!(
            [quantile(&list, 0.0), quantile(&list, 0.5), quantile(&list, 0.99)],
            [Some(0), Some(50), Some(99)]
        );
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile::<u32>(&[], 0.5), None);
    }
}
