//! Rows of an answer as rows of the contract.

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{ColumnType, Row, StoredRow, TableDecl, Value};

use crate::etags;

/// One row of a server's answer: its cells by position, None for null. Errors describe the one
/// cell; the caller adds its name.
pub trait Cells {
    /// Text.
    ///
    /// # Errors
    /// The cell holds something else.
    fn text(&self, at: usize) -> Result<Option<&str>, String>;
    /// A 64-bit integer.
    ///
    /// # Errors
    /// The cell holds something else.
    fn int(&self, at: usize) -> Result<Option<i64>, String>;
    /// A time, in milliseconds since 1970 UTC.
    ///
    /// # Errors
    /// The cell holds something else, or a time out of range.
    fn time(&self, at: usize) -> Result<Option<i64>, String>;
    /// Bytes.
    ///
    /// # Errors
    /// The cell holds something else.
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String>;
    /// The JSON text of a list.
    ///
    /// # Errors
    /// The cell holds something else.
    fn json(&self, at: usize) -> Result<Option<&str>, String>;
}

/// The row in an answer of [`Statements`](crate::Statements): row key, etag, columns in order.
///
/// # Errors
/// Error in words: a cell differs from its declaration, because of a foreign writer.
pub fn stored_row(decl: &TableDecl, cells: &impl Cells) -> Result<StoredRow, String> {
    let named = |name: &str, error: String| format!("column {name} {error}");
    let null = || "is null".to_owned();
    let key =
        cells.text(0).and_then(|key| key.ok_or_else(null)).map_err(|e| named(decl.row_key, e))?;
    let etag = cells.int(1).and_then(|etag| etag.ok_or_else(null)).map_err(|e| named("etag", e))?;
    let mut columns = Vec::with_capacity(decl.columns.len());
    for (at, column) in (2..).zip(decl.columns) {
        let value = value(column.column_type, cells, at).map_err(|e| named(column.name, e))?;
        if let Some(value) = value {
            columns.push((column.name, value));
        }
    }
    Ok(StoredRow { row: Row::of(key, columns), etag: etags::text(etag) })
}

fn value(column_type: ColumnType, cells: &impl Cells, at: usize) -> Result<Option<Value>, String> {
    Ok(match column_type {
        ColumnType::Text => cells.text(at)?.map(|text| Value::Text(text.into())),
        ColumnType::Int => cells.int(at)?.map(Value::Int),
        ColumnType::Time => cells.time(at)?.map(|ms| Value::Time(Timestamp::from_millis(ms))),
        ColumnType::Bytes => cells.bytes(at)?.map(|bytes| Value::Bytes(bytes.into())),
        ColumnType::List => cells.json(at)?.map(list_from_json).transpose()?.map(Value::List),
    })
}

/// A list as relational servers keep it: a JSON array of texts.
///
/// # Errors
/// Never for texts; the encoder's words otherwise.
pub fn list_to_json(items: &[Arc<str>]) -> Result<String, String> {
    serde_json::to_string(items).map_err(|e| e.to_string())
}

fn list_from_json(json: &str) -> Result<Vec<Arc<str>>, String> {
    serde_json::from_str(json).map_err(|e| format!("is not a JSON list of texts: {e}"))
}

#[cfg(test)]
mod tests {
    use emmer_store::Column;

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("A", ColumnType::Text),
            Column::new("B", ColumnType::Int),
            Column::new("C", ColumnType::Time),
            Column::new("D", ColumnType::Bytes),
            Column::new("E", ColumnType::List),
        ],
        schema_version: 1,
        one_moment: true,
    };

    /// Every cell as text, `-` for null.
    struct Texts<'a>([&'a str; 7]);

    impl Texts<'_> {
        fn parsed(&self, at: usize) -> Result<Option<i64>, String> {
            self.text(at)?.map(|t| t.parse().map_err(|_| "is no number".to_owned())).transpose()
        }
    }

    impl Cells for Texts<'_> {
        fn text(&self, at: usize) -> Result<Option<&str>, String> {
            Ok(Some(self.0[at]).filter(|t| *t != "-"))
        }
        fn int(&self, at: usize) -> Result<Option<i64>, String> {
            self.parsed(at)
        }
        fn time(&self, at: usize) -> Result<Option<i64>, String> {
            self.parsed(at)
        }
        fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
            Ok(self.text(at)?.map(str::as_bytes))
        }
        fn json(&self, at: usize) -> Result<Option<&str>, String> {
            self.text(at)
        }
    }

    #[test]
    fn cells_become_columns_and_nulls_are_left_out() {
        let found =
            stored_row(&DECL, &Texts(["k", "-7", "a", "1", "-", "d", r#"["x","ä"]"#])).unwrap();
        let wanted = Row::new("k")
            .with("A", Value::Text("a".into()))
            .with("B", Value::Int(1))
            .with("D", Value::Bytes(b"d".as_slice().into()))
            .with("E", Value::List(vec!["x".into(), "ä".into()]));
        assert_eq!((found.row, &*found.etag), (wanted, "-7"));
    }

    #[test]
    fn a_cell_of_a_foreign_writer_is_named() {
        for (cells, word) in [
            (["-", "1", "-", "-", "-", "-", "-"], "column R is null"),
            (["k", "-", "-", "-", "-", "-", "-"], "column etag is null"),
            (["k", "1", "-", "x", "-", "-", "-"], "column B is no number"),
            (["k", "1", "-", "-", "-", "-", "[1]"], "column E is not a JSON list"),
            (["k", "1", "-", "-", "-", "-", "{}"], "column E is not a JSON list"),
        ] {
            let error = stored_row(&DECL, &Texts(cells)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
