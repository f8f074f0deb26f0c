//! Tables as data: declared once, created as real tables with real columns by every relational
//! store, kept under readable field names by every other.

use std::ops::RangeInclusive;
use std::sync::Arc;

use emmer_core::Timestamp;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text.
    Text,
    /// A 64-bit signed integer.
    Int,
    /// Milliseconds since 1970 UTC; readable as a date by an administrator where the server allows.
    Time,
    /// Bytes.
    Bytes,
    /// A list of texts, in order.
    List,
}

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name as the table description spells it, e.g. `SuspectingSilos`.
    pub name: &'static str,
    /// The type.
    pub column_type: ColumnType,
    /// True if [`touch`](crate::SystemStore::touch) may set it; it is then outside the etag.
    pub volatile: bool,
    /// True if [`scan`](crate::SystemStore::scan) may range over it (integer columns only).
    pub indexed: bool,
    /// The bounds of its values that a partition's name gives.
    pub bounds: Bounds,
}

/// The bounds that a partition's name gives for the values of a column. Stores whose scans go from
/// partition to partition leave most of them out by it. Only readers use it: tables do not differ
/// by it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds(Option<BoundsOf>);

/// The least and the greatest value in the partition of this name; none if the name says nothing.
pub type BoundsOf = fn(&str) -> Option<RangeInclusive<i64>>;

impl Bounds {
    /// Returns true if the partition may have values in `range`, which wraps around where its start
    /// is above its end.
    pub fn may_have(&self, partition: &str, range: &RangeInclusive<i64>) -> bool {
        let Some(values) = self.0.and_then(|of| of(partition)) else { return true };
        let (low, high) = (*values.start(), *values.end());
        let (start, end) = (*range.start(), *range.end());
        if start <= end { low <= end && start <= high } else { high >= start || low <= end }
    }
}

impl PartialEq for Bounds {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Bounds {}

impl Column {
    /// A plain column.
    pub const fn new(name: &'static str, column_type: ColumnType) -> Self {
        Self { name, column_type, volatile: false, indexed: false, bounds: Bounds(None) }
    }

    /// Makes the column settable by a touch.
    pub const fn volatile(mut self) -> Self {
        self.volatile = true;
        self
    }

    /// Gives the column an index for scans.
    pub const fn indexed(mut self) -> Self {
        self.indexed = true;
        self
    }

    /// Bounds the column's values by the name of their partition. None where the name says nothing.
    pub const fn bounded(mut self, bounds: BoundsOf) -> Self {
        self.bounds = Bounds(Some(bounds));
        self
    }
}

/// A table: its name, its key columns and the rest. Partition and row key are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDecl {
    /// The name, lower case with underscores, e.g. `silo_instances`.
    pub name: &'static str,
    /// The name of the partition key column.
    pub partition_key: &'static str,
    /// The name of the row key column.
    pub row_key: &'static str,
    /// Every other column.
    pub columns: &'static [Column],
    /// Version of the declaration, raised with each change. A store compares it with the stored
    /// one.
    pub schema_version: u32,
    /// True if a read of a partition must be one moment (membership). False (grain state,
    /// statistics): every row is as it was at some moment during the read, and one pass is enough.
    /// Only readers use it, so servers do not keep it.
    pub one_moment: bool,
}

impl TableDecl {
    /// The column called `name`, with its position.
    pub fn column(&self, name: &str) -> Option<(usize, &'static Column)> {
        self.columns.iter().enumerate().find(|(_, c)| c.name == name)
    }
}

/// The content of one column of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Arc<str>),
    /// An integer.
    Int(i64),
    /// A time.
    Time(Timestamp),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A list of texts.
    List(Vec<Arc<str>>),
}

impl Value {
    /// The type of column this value fits.
    pub const fn column_type(&self) -> ColumnType {
        match self {
            Self::Text(_) => ColumnType::Text,
            Self::Int(_) => ColumnType::Int,
            Self::Time(_) => ColumnType::Time,
            Self::Bytes(_) => ColumnType::Bytes,
            Self::List(_) => ColumnType::List,
        }
    }
}

/// One row: its key and its columns by name. A missing column is null. Rows are equal when they
/// hold the same columns, in whatever order these were set.
#[derive(Clone, Debug, Default, Eq)]
pub struct Row {
    key: String,
    columns: Vec<(&'static str, Value)>,
}

impl Row {
    /// An empty row under `key`.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), columns: Vec::new() }
    }

    /// A row under `key` with these columns, each once. For stores, which read them in the order of
    /// a declaration and need no look-up of each.
    pub fn of(key: impl Into<String>, columns: Vec<(&'static str, Value)>) -> Self {
        debug_assert!(
            columns
                .iter()
                .enumerate()
                .all(|(at, (name, _))| columns.iter().skip(at + 1).all(|(n, _)| n != name)),
            "a column twice"
        );
        Self { key: key.into(), columns }
    }

    /// The row key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Sets a column.
    #[must_use]
    pub fn with(mut self, column: &'static str, value: Value) -> Self {
        self.set(column, value);
        self
    }

    /// Sets a column.
    pub fn set(&mut self, column: &'static str, value: Value) {
        match self.columns.iter_mut().find(|(name, _)| *name == column) {
            Some((_, old)) => *old = value,
            None => self.columns.push((column, value)),
        }
    }

    /// The value of a column, none when it is null.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.columns.iter().find(|(name, _)| *name == column).map(|(_, v)| v)
    }

    /// The columns that are set.
    pub fn columns(&self) -> &[(&'static str, Value)] {
        &self.columns
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.columns.len() == other.columns.len()
            && self.columns.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_by_content() {
        let ab = Row::new("k").with("a", Value::Int(1)).with("b", Value::Int(2));
        let ba = Row::new("k").with("b", Value::Int(2)).with("a", Value::Int(1));
        assert_eq!(ab, ba);
        assert_ne!(ab, Row::new("k").with("a", Value::Int(1)));
        assert_ne!(ab, Row::new("k").with("a", Value::Int(1)).with("c", Value::Int(2)));
    }

    #[test]
    fn bounds_leave_out_what_cannot_be_in_the_range() {
        fn of(partition: &str) -> Option<RangeInclusive<i64>> {
            partition.parse::<i64>().ok().map(|n| n..=n + 9)
        }
        let bounds = Column::new("n", ColumnType::Int).bounded(of).bounds;
        for (start, end, has) in [
            (0, 9, false),
            (0, 10, true),
            (15, 16, true),
            (19, 30, true),
            (20, 30, false),
            // Around.
            (30, 9, false),
            (30, 10, true),
            (19, 0, true),
        ] {
            let range = RangeInclusive::new(start, end);
            assert_eq!(bounds.may_have("10", &range), has, "{range:?}");
        }
        assert!(bounds.may_have("?", &(0..=0)) && Bounds::default().may_have("10", &(0..=0)));
    }

    #[test]
    fn the_last_value_set_wins() {
        let row = Row::new("k").with("a", Value::Int(1)).with("a", Value::Int(3));
        assert_eq!((row.get("a"), row.columns().len()), (Some(&Value::Int(3)), 1));
    }
}
