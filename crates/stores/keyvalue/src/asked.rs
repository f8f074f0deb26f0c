//! What scans and clean-ups ask for.

use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::{Column, Row, TableDecl, Value};

use crate::document;

/// The rows of a table whose column lies in a range.
#[derive(Clone, Debug)]
pub struct Scan {
    /// The column, an integer.
    pub column: &'static str,
    /// The range; one whose start is above its end wraps around.
    pub range: RangeInclusive<i64>,
    /// The most rows to find, the first ones.
    pub limit: usize,
}

impl Scan {
    /// Whether it asks for this row.
    pub fn wants(&self, row: &Row) -> bool {
        let Some(Value::Int(n)) = row.get(self.column) else { return false };
        let (start, end) = (self.range.start(), self.range.end());
        if start <= end { self.range.contains(n) } else { n >= start || n <= end }
    }
}

/// The rows of a partition whose time is before a moment.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    /// The column of the time.
    pub column: &'static str,
    /// Whether that is a volatile column.
    pub volatile: bool,
    /// The moment.
    pub cutoff: Timestamp,
}

impl Old {
    /// Rows whose `column` of `table` is before `cutoff`.
    pub fn new(table: &TableDecl, column: &'static str, cutoff: Timestamp) -> Self {
        let found: Option<&Column> = table.column(column).map(|(_, column)| column);
        Self { column, volatile: found.is_some_and(|column| column.volatile), cutoff }
    }

    /// Whether it means this row.
    pub fn wants(&self, row: &Row) -> bool {
        matches!(row.get(self.column), Some(Value::Time(at)) if *at < self.cutoff)
    }

    /// Whether it means the row one of whose values is this: that of its `column`, or (none) its document, which `row` reads.
    ///
    /// # Errors
    /// In words: the value cannot be understood.
    pub fn wants_by(
        &self,
        table: &TableDecl,
        column: Option<&str>,
        value: &[u8],
        row: impl FnOnce() -> Result<Row, String>,
    ) -> Result<bool, String> {
        match column {
            None if !self.volatile => Ok(self.wants(&row()?)),
            Some(name) if self.volatile && name == self.column => {
                let mut alone = Row::new("");
                document::set_volatile(table, &mut alone, name, value)?;
                Ok(self.wants(&alone))
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::ColumnType;

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("N", ColumnType::Int).indexed(),
            Column::new("At", ColumnType::Time),
            Column::new("Seen", ColumnType::Time).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn ranges_wrap_around() {
        let scan = |start, end| Scan { column: "N", range: start..=end, limit: 1 };
        let row = |n| Row::new("r").with("N", Value::Int(n));
        let wants = |start, end| [-5, 0, 5].map(|n| scan(start, end).wants(&row(n)));
        assert_eq!(wants(-1, 5), [false, true, true]);
        assert_eq!(wants(1, -1), [true, false, true]);
        assert!(!scan(i64::MIN, i64::MAX).wants(&Row::new("r")), "a row without a number");
    }

    #[test]
    fn what_is_old_is_told_by_the_key_that_has_the_time() {
        let at = |ms| Timestamp::from_millis(ms);
        let row = || Ok(Row::new("r").with("At", Value::Time(at(5))));
        let text = b"\"1970-01-01T00:00:00.005Z\"";
        for (column, cutoff, document, value) in [
            ("At", 6, true, false),
            ("At", 5, false, false),
            ("Seen", 6, false, true),
            ("Seen", 5, false, false),
        ] {
            let old = Old::new(&DECL, column, at(cutoff));
            assert_eq!(old.wants_by(&DECL, None, b"", row), Ok(document), "{column} {cutoff}");
            assert_eq!(old.wants_by(&DECL, Some("Seen"), text, row), Ok(value), "{column} {cutoff}");
            assert_eq!(old.wants_by(&DECL, Some("Other"), text, row), Ok(false));
        }
    }
}
