//! Values into statements and out of rows.

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{ColumnType, Etag, Row, StoreErrorKind, StoredRow, TableDecl, Value};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use crate::fault::Fault;

/// A value, or null, as a parameter. Borrows everything but lists.
pub(crate) struct Parameter<'a>(pub(crate) Option<&'a Value>);

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            None => ToSqlOutput::Borrowed(ValueRef::Null),
            Some(Value::Text(text)) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Some(Value::Int(n)) => ToSqlOutput::Borrowed(ValueRef::Integer(*n)),
            Some(Value::Time(at)) => ToSqlOutput::Borrowed(ValueRef::Integer(at.as_millis())),
            Some(Value::Bytes(bytes)) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Some(Value::List(items)) => {
                let json = serde_json::to_string(items)
                    .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
                ToSqlOutput::Owned(rusqlite::types::Value::Text(json))
            }
        })
    }
}

/// The row a `SELECT row key, etag, columns...` stands on.
pub(crate) fn stored_row(decl: &TableDecl, found: &rusqlite::Row<'_>) -> Result<StoredRow, Fault> {
    let key = text(found.get_ref(0)?, decl.row_key)?;
    let mut columns = Vec::with_capacity(decl.columns.len());
    let etag: i64 = found.get(1)?;
    for (i, column) in decl.columns.iter().enumerate() {
        let content = found.get_ref(i + 2)?;
        if content != ValueRef::Null {
            columns.push((column.name, value(column.column_type, content, column.name)?));
        }
    }
    Ok(StoredRow { row: Row::of(key, columns), etag: etag_text(etag) })
}

fn value(column_type: ColumnType, content: ValueRef<'_>, column: &str) -> Result<Value, Fault> {
    Ok(match (column_type, content) {
        (ColumnType::Text, content) => Value::Text(text(content, column)?.into()),
        (ColumnType::Int, ValueRef::Integer(n)) => Value::Int(n),
        (ColumnType::Time, ValueRef::Integer(ms)) => Value::Time(Timestamp::from_millis(ms)),
        (ColumnType::Bytes, ValueRef::Blob(bytes)) => Value::Bytes(bytes.into()),
        (ColumnType::List, content) => {
            let items: Vec<Arc<str>> = serde_json::from_str(text(content, column)?)
                .map_err(|e| corrupt(column, &format!("is no JSON list of texts: {e}")))?;
            Value::List(items)
        }
        (_, other) => return Err(corrupt(column, &format!("holds {}", other.data_type()))),
    })
}

fn text<'a>(content: ValueRef<'a>, column: &str) -> Result<&'a str, Fault> {
    match content {
        ValueRef::Text(bytes) => str::from_utf8(bytes).map_err(|_| corrupt(column, "is no UTF-8")),
        other => Err(corrupt(column, &format!("holds {}", other.data_type()))),
    }
}

fn corrupt(column: &str, what: &str) -> Fault {
    Fault::new(StoreErrorKind::Corrupt, format!("column {column} {what}"))
}

/// An etag as the contract shows it.
pub(crate) fn etag_text(etag: i64) -> Etag {
    etag.to_string().into()
}

/// An etag as SQLite keeps it; none for a text this store never gave out. The text must be the one spelling of its
/// number: an etag is equal only to itself.
pub(crate) fn etag_number(etag: &str) -> Option<i64> {
    etag.parse().ok().filter(|n: &i64| n.to_string() == etag)
}
