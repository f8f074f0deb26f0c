//! What scans, clean-ups, appends and commits ask for.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::RangeInclusive;

use emmer_core::Timestamp;
use emmer_store::{Column, Fault, Mutation, Row, StoreErrorKind, StoredRow, TableDecl, Value};

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
    /// Returns true if a partition of this name may have rows that it asks for.
    pub fn may_be_in(&self, table: &TableDecl, partition: &str) -> bool {
        let column = table.column(self.column);
        column.is_none_or(|(_, column)| column.bounds.may_have(partition, &self.range))
    }

    /// Returns true if it asks for this row.
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
    /// True if that is a volatile column.
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

    /// Returns true if it means this row.
    pub fn wants(&self, row: &Row) -> bool {
        matches!(row.get(self.column), Some(Value::Time(at)) if *at < self.cutoff)
    }

    /// Returns true for a row with this value: of its `column`, or (None) of its document, which
    /// `row` reads.
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

/// The rows of an append. Of several rows with one key the first counts, as if they came one after
/// the other.
pub fn first_of_each_key(rows: &[Row]) -> Vec<&Row> {
    let mut keys = BTreeSet::new();
    rows.iter().filter(|row| keys.insert(row.key())).collect()
}

/// A value for a volatile column of a row.
#[derive(Clone, Copy, Debug)]
pub struct Touch<'a> {
    /// The row's key.
    pub row_key: &'a str,
    /// The column.
    pub column: &'static str,
    /// The value.
    pub value: &'a Value,
}

/// Refuses a commit that is larger than the store promises to take; `size` is that of a row, in
/// bytes.
///
/// # Errors
/// `Invalid`, with both numbers.
pub fn check_sizes(
    mutations: &[Mutation],
    row_bytes_max: usize,
    commit_bytes_max: usize,
    size: impl Fn(&Row) -> usize,
) -> Result<(), Fault> {
    let refuse = |what: &str, size: usize, max: usize| {
        let detail = format!("a {what} of {size} bytes: {max} are allowed");
        Err(Fault::new(StoreErrorKind::Invalid, detail))
    };
    let mut total = 0;
    for mutation in mutations {
        if let Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } =
            mutation
        {
            let size = size(row);
            if size > row_bytes_max {
                return refuse("row", size, row_bytes_max);
            }
            total += size;
        }
    }
    if total > commit_bytes_max { refuse("commit", total, commit_bytes_max) } else { Ok(()) }
}

/// Deletes rows in parts of at most `together`, and rows of a refused part one by one. `delete`
/// deletes all of a part or none. Returns the number of deleted rows.
///
/// # Errors
/// The first error of `delete`. Rows that were deleted before stay deleted.
pub async fn delete_in_parts<'a, F>(
    rows: &'a [StoredRow],
    together: usize,
    delete: impl Fn(&'a [StoredRow]) -> F,
) -> Result<u64, Fault>
where
    F: Future<Output = Result<bool, Fault>>,
{
    let mut deleted = 0;
    for part in rows.chunks(together) {
        if delete(part).await? {
            deleted += part.len();
            continue;
        }
        for row in part {
            deleted += usize::from(delete(std::slice::from_ref(row)).await?);
        }
    }
    Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
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
            assert_eq!(
                old.wants_by(&DECL, Some("Seen"), text, row),
                Ok(value),
                "{column} {cutoff}"
            );
            assert_eq!(old.wants_by(&DECL, Some("Other"), text, row), Ok(false));
        }
    }

    #[test]
    fn the_first_of_rows_with_one_key_is_kept_in_its_place() {
        let row = |key: &str, n| Row::new(key).with("N", Value::Int(n));
        let rows = [row("b", 1), row("a", 2), row("b", 3), row("a", 4), row("c", 5)];
        assert_eq!(first_of_each_key(&rows), [&rows[0], &rows[1], &rows[4]]);
    }

    #[test]
    fn rows_and_commits_that_are_too_large_are_refused_with_both_numbers() {
        let mutations = |sizes: &[usize]| -> Vec<Mutation> {
            let row = |size: &usize| Row::new("r".repeat(*size));
            sizes.iter().map(|size| Mutation::Insert { row: row(size) }).collect()
        };
        let check = |sizes: &[usize]| check_sizes(&mutations(sizes), 10, 25, |row| row.key().len());
        assert!(check(&[10, 10, 5]).is_ok());
        for (sizes, words) in [
            (&[3, 11][..], "a row of 11 bytes: 10 are"),
            (&[10, 10, 6], "a commit of 26 bytes: 25 are"),
        ] {
            let fault = check(sizes).unwrap_err();
            assert_eq!(fault.kind, StoreErrorKind::Invalid);
            assert!(fault.detail.contains(words), "{}", fault.detail);
        }
        // What takes rows away has no size.
        let delete = Mutation::Delete { row_key: "r".repeat(99), etag: None };
        assert!(check_sizes(&[delete], 10, 25, |row| row.key().len()).is_ok());
    }

    #[tokio::test]
    async fn one_row_that_is_not_as_it_was_keeps_no_other_from_being_deleted() {
        let row = |n: usize| StoredRow { row: Row::new(format!("r{n}")), etag: "1".into() };
        let rows: Vec<_> = (0..10).map(row).collect();
        let asked = std::sync::Mutex::new(Vec::new());
        let delete = |part: &[StoredRow]| {
            asked.lock().unwrap().push(part.len());
            let changed = part.iter().any(|row| row.row.key() == "r5");
            async move { Ok(!changed) }
        };
        assert_eq!(delete_in_parts(&rows, 4, delete).await.unwrap(), 9);
        assert_eq!(*asked.lock().unwrap(), [4, 4, 1, 1, 1, 1, 2]);
    }
}
