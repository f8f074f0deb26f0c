//! Rows as [`emmer_store::document`] writes them, without the volatile columns, and the volatile
//! columns one by one.
//!
//! ```text
//! {"PartitionKey":"prod","RowKey":"10.0.0.1-11111-7","Address":"10.0.0.1","Port":11111,"SuspectingSilos":[],
//!  "StartTime":"2026-11-21T12:44:45.000Z"}
//! ```
//!
//! A *mark* is a field of the store's own, always the first, whose text needs no escapes.

use emmer_store::document;
use emmer_store::{Row, TableDecl, Value};
use serde_json::Value as Json;

/// The document of a row, without its volatile columns; with a mark, a name and a text of letters,
/// digits and dots.
pub fn encode(decl: &TableDecl, partition: &str, row: &Row, mark: Option<(&str, &str)>) -> String {
    let document = document::encode(decl, partition, row, |column| !column.volatile);
    match (mark, document.strip_prefix('{')) {
        (Some((name, text)), Some(fields)) => format!("{{\"{name}\":\"{text}\",{fields}"),
        _ => document,
    }
}

/// Reads a document without a mark.
///
/// # Errors
/// In words: it is no such document, a foreign writer was here.
pub fn decode(decl: &TableDecl, row_key: &str, text: &[u8]) -> Result<Row, String> {
    document::decode(decl, row_key, text)
}

/// Reads a document with the mark `name`; the mark and the row.
///
/// # Errors
/// In words: it is no such document, a foreign writer was here.
pub fn decode_marked(
    decl: &TableDecl,
    name: &str,
    row_key: &str,
    mut text: Vec<u8>,
) -> Result<(String, Row), String> {
    let begin = format!("{{\"{name}\":\"");
    let mark =
        text.strip_prefix(begin.as_bytes()).and_then(|rest| rest.split(|b| *b == b'"').next());
    let mark = mark.and_then(|mark| std::str::from_utf8(mark).ok()).map(str::to_owned);
    let mark = mark.ok_or_else(|| format!("row {row_key:?} does not begin with {name}"))?;
    // The comma behind the mark becomes the opening brace of the rest.
    let at = begin.len() + mark.len() + 1;
    if let Some(comma @ b',') = text.get_mut(at) {
        *comma = b'{';
    }
    let row = decode(decl, row_key, text.get(at..).unwrap_or_default())?;
    Ok((mark, row))
}

/// The volatile columns of a row that are set, as name and JSON value.
pub fn volatile<'a>(
    decl: &'a TableDecl,
    row: &'a Row,
) -> impl Iterator<Item = (&'static str, String)> + 'a {
    volatile_names(decl).filter_map(|name| row.get(name).map(|v| (name, encode_value(v))))
}

/// The names of a table's volatile columns.
pub fn volatile_names(decl: &TableDecl) -> impl Iterator<Item = &'static str> + use<> {
    decl.columns.iter().filter(|column| column.volatile).map(|column| column.name)
}

/// A value alone.
pub fn encode_value(value: &Value) -> String {
    document::encode_value(value).to_string()
}

/// Sets a volatile column of a row. One that is not declared, or not volatile, is left out.
///
/// # Errors
/// Error in words: a value differs from its declaration.
pub fn set_volatile(
    decl: &TableDecl,
    row: &mut Row,
    name: &str,
    text: &[u8],
) -> Result<(), String> {
    let Some((_, column)) = decl.column(name).filter(|(_, column)| column.volatile) else {
        return Ok(());
    };
    let named = |e: String| format!("row {:?}: {e}", row.key());
    let json: Json = serde_json::from_slice(text)
        .map_err(|e| named(format!("column {name} is not JSON: {e}")))?;
    if let Some(value) = document::decode_value(column, &json).map_err(named)? {
        row.set(column.name, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::{Column, ColumnType};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("A", ColumnType::Text),
            Column::new("C", ColumnType::Time),
            Column::new("F", ColumnType::Time).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn documents_are_readable_and_leave_volatile_columns_out() {
        let at = Value::Time(Timestamp::from_millis(1_795_265_085_123));
        let row =
            Row::new("k").with("A", Value::Text("a".into())).with("C", at.clone()).with("F", at);
        let text = encode(&DECL, "p", &row, None);
        assert_eq!(text, r#"{"P":"p","R":"k","A":"a","C":"2026-11-21T12:44:45.123Z"}"#);
        let volatile: Vec<_> = volatile(&DECL, &row).collect();
        assert_eq!(volatile, [("F", r#""2026-11-21T12:44:45.123Z""#.to_owned())]);
        let mut read = decode(&DECL, "k", text.as_bytes()).unwrap();
        set_volatile(&DECL, &mut read, "F", volatile[0].1.as_bytes()).unwrap();
        set_volatile(&DECL, &mut read, "Unknown", b"1").unwrap();
        assert_eq!(read, row);
        assert!(set_volatile(&DECL, &mut read, "F", b"x").unwrap_err().contains("column F"));
    }

    #[test]
    fn marks_come_first_and_come_back() {
        let row = Row::new("k").with("A", Value::Text("\"etag\":\"y\"".into()));
        let text = encode(&DECL, "p", &row, Some(("etag", "x.1")));
        assert!(text.starts_with(r#"{"etag":"x.1","P":"#), "{text}");
        let read = decode_marked(&DECL, "etag", "k", text.into_bytes());
        assert_eq!(read, Ok(("x.1".to_owned(), row)));
        for bad in
            ["", "{}", r#"{"etag""#, r#"{"etag":"x"#, r#"{"etag":"x"}"#, r#"{"P":"p","etag":"x"}"#]
        {
            let error = decode_marked(&DECL, "etag", "k", bad.into()).unwrap_err();
            assert!(error.contains("\"k\""), "{bad}: {error}");
        }
    }
}
