//! Rows put together from the keys they were read from.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use emmer_store::{StoredRow, TableDecl};

use crate::document;
use crate::layout::{Parts, parts};

/// The rows of a partition while their keys come in, in any order. `K` is the text of a key as it
/// follows the partition, `V` a value.
#[derive(Debug)]
pub struct Rows<'d, K, V> {
    table: &'d TableDecl,
    rows: BTreeMap<K, StoredRow>,
    columns: Vec<(K, V)>,
}

impl<'d, K: Borrow<str> + Ord, V: AsRef<[u8]>> Rows<'d, K, V> {
    /// No rows yet; about `keys` will come.
    pub fn new(table: &'d TableDecl, keys: usize) -> Self {
        Self { table, rows: BTreeMap::new(), columns: Vec::with_capacity(keys / 2) }
    }

    /// The row whose escaped key is `key`.
    pub fn row(&mut self, key: K, row: StoredRow) {
        self.rows.insert(key, row);
    }

    /// A volatile column, under the key that [`column`](crate::layout::column) gave it.
    pub fn column(&mut self, key: K, value: V) {
        self.columns.push((key, value));
    }

    /// All rows with their columns, ordered by row key.
    ///
    /// # Errors
    /// Error in words: a column's value differs from its declaration.
    pub fn finish(self) -> Result<Vec<StoredRow>, String> {
        let Self { table, mut rows, columns } = self;
        for (key, value) in columns {
            let Parts { row, column } = parts(key.borrow());
            // A column without its row comes from a foreign writer: there is no row to set it in.
            if let (Some(found), Some(column)) = (rows.get_mut(row), column) {
                document::set_volatile(table, &mut found.row, column, value.as_ref())?;
            }
        }
        let mut rows: Vec<StoredRow> = rows.into_values().collect();
        // By the keys themselves: escaped they may have another order.
        rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::{Column, ColumnType, Row, Value};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[Column::new("At", ColumnType::Time).volatile()],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn rows_get_their_columns_and_their_order() {
        let row = |key: &str| StoredRow { row: Row::new(key), etag: "1".into() };
        let mut rows = Rows::new(&DECL, 5);
        rows.column("b/At", b"\"1970-01-01T00:00:00.007Z\"".as_slice());
        rows.column("gone/At", b"1");
        // `%2F` is before `.`, which `/` is not.
        rows.row("a%2F", row("a/"));
        rows.row("a.", row("a."));
        rows.row("b", row("b"));
        let found = rows.finish().unwrap();
        let keys: Vec<_> = found.iter().map(|row| row.row.key()).collect();
        assert_eq!(keys, ["a.", "a/", "b"]);
        assert_eq!(found[2].row.get("At"), Some(&Value::Time(Timestamp::from_millis(7))));
        let mut rows = Rows::new(&DECL, 2);
        rows.row("a", row("a"));
        rows.column("a/At", b"x");
        assert!(rows.finish().unwrap_err().contains("column At"));
    }
}
