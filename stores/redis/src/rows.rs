//! Answers of the server as rows.

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::document;
use emmer_store_keyvalue::layout::{parts, unescape};
use emmer_store_keyvalue::rows::Rows;
use redis::Value;

/// The field of a row's etag in its document. No column may be called so.
pub(crate) const ETAG: &str = "etag";

/// Error text for an answer of the wrong form.
pub(crate) fn strange(answer: &Value) -> String {
    let shown: String = format!("{answer:?}").chars().take(80).collect();
    format!("the server answered something else: {shown}")
}

/// The bytes of an answer, none for nil.
pub(crate) fn bytes(answer: Value) -> Result<Option<Vec<u8>>, String> {
    match answer {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        other => Err(strange(&other)),
    }
}

/// The items of an answer.
pub(crate) fn items(answer: Value) -> Result<Vec<Value>, String> {
    match answer {
        Value::Array(items) | Value::Set(items) => Ok(items),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect()),
        other => Err(strange(&other)),
    }
}

/// The integer of an answer.
pub(crate) fn integer(answer: &Value) -> Result<i64, String> {
    match answer {
        Value::Int(n) => Ok(*n),
        other => Err(strange(other)),
    }
}

/// Reads the document under a row's field.
pub(crate) fn stored_row(
    decl: &TableDecl,
    field: &str,
    document: Vec<u8>,
) -> Result<StoredRow, String> {
    let row_key = unescape(field).ok_or_else(|| format!("field {field:?} is not a row key"))?;
    let (etag, row) = document::decode_marked(decl, ETAG, &row_key, document)?;
    Ok(StoredRow { row, etag: etag.into() })
}

/// Pairs of fields and values as rows, ordered by row key.
pub(crate) fn partition(decl: &TableDecl, answer: Value) -> Result<Vec<StoredRow>, String> {
    let items = items(answer)?;
    let mut rows = Rows::new(decl, items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(field), Some(value)) = (items.next(), items.next()) {
        let (field, value) = (text(field)?, bytes(value)?.unwrap_or_default());
        if parts(&field).column.is_some() {
            rows.column(field, value);
        } else {
            let row = stored_row(decl, &field, value)?;
            rows.row(field, row);
        }
    }
    rows.finish()
}

/// The values of a row's field and of its volatile columns, in the order of the declaration, as the
/// row.
pub(crate) fn row(
    decl: &TableDecl,
    field: &str,
    values: Vec<Value>,
) -> Result<Option<StoredRow>, String> {
    let mut values = values.into_iter();
    let Some(document) = bytes(values.next().unwrap_or_default())? else { return Ok(None) };
    let mut found = stored_row(decl, field, document)?;
    for (name, value) in document::volatile_names(decl).zip(values) {
        if let Some(value) = bytes(value)? {
            document::set_volatile(decl, &mut found.row, name, &value)?;
        }
    }
    Ok(Some(found))
}

/// An answer that must be text.
pub(crate) fn text(answer: Value) -> Result<String, String> {
    let bytes = bytes(answer)?.unwrap_or_default();
    String::from_utf8(bytes)
        .map_err(|_| "a field is not UTF-8: a foreign writer was here".to_owned())
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::{Column, ColumnType, Row, Value as Cell};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("N", ColumnType::Int),
            Column::new("At", ColumnType::Time).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };

    fn field(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn fields_become_rows_in_order() {
        let answer = Value::Array(vec![
            field("b/At"),
            field("\"1970-01-01T00:00:00.007Z\""),
            field("b"),
            field(r#"{"etag":"x.2","P":"p","R":"b","N":2}"#),
            field("a"),
            field(r#"{"etag":"x.1","P":"p","R":"a"}"#),
            field("gone/At"),
            field("1"),
        ]);
        let rows = partition(&DECL, answer).unwrap();
        let at = Cell::Time(Timestamp::from_millis(7));
        let wanted = [
            StoredRow { row: Row::new("a"), etag: "x.1".into() },
            StoredRow {
                row: Row::new("b").with("N", Cell::Int(2)).with("At", at),
                etag: "x.2".into(),
            },
        ];
        assert_eq!(rows, wanted);
    }

    #[test]
    fn what_a_foreign_writer_left_is_named() {
        let one =
            |text: &str| partition(&DECL, Value::Array(vec![field("a"), field(text)])).unwrap_err();
        assert!(one("x").contains("does not begin with etag"));
        assert!(one(r#"{"etag":"x.1","N":"?"}"#).contains('N'));
        assert!(one(r#"{"P":"p","R":"a"}"#).contains("etag"));
        assert!(partition(&DECL, Value::Int(1)).unwrap_err().contains("something else"));
        assert_eq!(row(&DECL, "a", vec![Value::Nil, Value::Nil]), Ok(None));
    }
}
