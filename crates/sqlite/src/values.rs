//! Values into statements and out of rows.

use emmer_store::Value;
use emmer_store_relational::Cells;
use emmer_store_relational::rows::list_to_json;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

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
                let json = list_to_json(items)
                    .map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))?;
                ToSqlOutput::Owned(rusqlite::types::Value::Text(json))
            }
        })
    }
}

/// The row a `SELECT row key, etag, columns...` stands on.
pub(crate) struct RowCells<'a>(pub(crate) &'a rusqlite::Row<'a>);

impl RowCells<'_> {
    /// Converts a cell with `take`; none for a null.
    fn cell<'c, T>(
        &'c self,
        at: usize,
        take: impl FnOnce(ValueRef<'c>) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match self.0.get_ref(at).map_err(|e| e.to_string())? {
            ValueRef::Null => Ok(None),
            found => take(found).map(Some).ok_or_else(|| format!("holds {}", found.data_type())),
        }
    }
}

impl Cells for RowCells<'_> {
    fn text(&self, at: usize) -> Result<Option<&str>, String> {
        let bytes = self.cell(at, |found| match found {
            ValueRef::Text(bytes) => Some(bytes),
            _ => None,
        })?;
        bytes.map(str::from_utf8).transpose().map_err(|_| "is not UTF-8".to_owned())
    }

    fn int(&self, at: usize) -> Result<Option<i64>, String> {
        self.cell(at, |found| match found {
            ValueRef::Integer(n) => Some(n),
            _ => None,
        })
    }

    fn time(&self, at: usize) -> Result<Option<i64>, String> {
        self.int(at)
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
        self.cell(at, |found| match found {
            ValueRef::Blob(bytes) => Some(bytes),
            _ => None,
        })
    }

    fn json(&self, at: usize) -> Result<Option<&str>, String> {
        self.text(at)
    }
}
