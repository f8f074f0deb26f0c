//! Values into parameters and out of rows, in PostgreSQL's binary forms.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use emmer_store::{ColumnType, Value};
use emmer_store_relational::Cells;
use emmer_store_relational::rows::list_to_json;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// 2000-01-01, from which PostgreSQL counts, in milliseconds since 1970.
const EPOCH_MS: i64 = 946_684_800_000;
/// The first byte of a jsonb value: the only version of its binary form there is.
const JSONB_VERSION: u8 = 1;

type Fallible<T> = Result<T, Box<dyn Error + Sync + Send>>;

/// The type a declared column has in an answer.
pub(crate) const fn type_of(column_type: ColumnType) -> Type {
    match column_type {
        ColumnType::Text => Type::TEXT,
        ColumnType::Int => Type::INT8,
        ColumnType::Time => Type::TIMESTAMPTZ,
        ColumnType::Bytes => Type::BYTEA,
        ColumnType::List => Type::JSONB,
    }
}

/// The name of the array of that type, for casts.
pub(crate) const fn array_name(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text[]",
        ColumnType::Int => "bigint[]",
        ColumnType::Time => "timestamptz[]",
        ColumnType::Bytes => "bytea[]",
        ColumnType::List => "jsonb[]",
    }
}

/// A value, or null, as a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<'a>(pub(crate) Option<&'a Value>);

impl ToSql for Parameter<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Fallible<IsNull> {
        match self.0 {
            None => return Ok(IsNull::Yes),
            Some(Value::Text(text)) => out.put_slice(text.as_bytes()),
            Some(Value::Int(n)) => out.put_i64(*n),
            Some(Value::Time(at)) => {
                out.put_i64(microseconds(at.as_millis()).ok_or("a time out of range")?);
            }
            Some(Value::Bytes(bytes)) => out.put_slice(bytes),
            Some(Value::List(items)) => {
                out.put_u8(JSONB_VERSION);
                out.put_slice(list_to_json(items)?.as_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        [Type::TEXT, Type::INT8, Type::TIMESTAMPTZ, Type::BYTEA, Type::JSONB].contains(ty)
    }

    to_sql_checked!();
}

/// Milliseconds since 1970 as PostgreSQL keeps them.
pub(crate) fn microseconds(ms: i64) -> Option<i64> {
    ms.checked_sub(EPOCH_MS)?.checked_mul(1_000)
}

fn milliseconds(microseconds: i64) -> Result<i64, String> {
    // Both ends stand for infinity; an administrator may have written it.
    if [i64::MIN, i64::MAX].contains(&microseconds) {
        return Err("is infinite".to_owned());
    }
    // No overflow: a thousandth of any number is far from both ends.
    Ok(microseconds.div_euclid(1_000) + EPOCH_MS)
}

/// The bytes of a cell, whatever its type: the types of an answer are compared once, when its
/// statement is prepared.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Fallible<Self> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row as [`emmer_store_relational`] reads it.
pub(crate) struct RowCells<'a>(pub(crate) &'a Row);

impl RowCells<'_> {
    fn raw(&self, at: usize) -> Result<Option<&[u8]>, String> {
        let cell: Option<Raw<'_>> = self.0.try_get(at).map_err(|e| e.to_string())?;
        Ok(cell.map(|raw| raw.0))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

impl Cells for RowCells<'_> {
    fn text(&self, at: usize) -> Result<Option<&str>, String> {
        self.raw(at)?.map(utf8).transpose()
    }

    fn int(&self, at: usize) -> Result<Option<i64>, String> {
        let number = |raw: &[u8]| {
            raw.try_into().map(i64::from_be_bytes).map_err(|_| "is no bigint".to_owned())
        };
        self.raw(at)?.map(number).transpose()
    }

    fn time(&self, at: usize) -> Result<Option<i64>, String> {
        self.int(at)?.map(milliseconds).transpose()
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
        self.raw(at)
    }

    fn json(&self, at: usize) -> Result<Option<&str>, String> {
        match self.raw(at)? {
            None => Ok(None),
            Some([JSONB_VERSION, text @ ..]) => utf8(text).map(Some),
            Some(_) => Err("is no jsonb".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_2000_and_round_down() {
        assert_eq!(microseconds(EPOCH_MS), Some(0));
        assert_eq!(microseconds(0), Some(-946_684_800_000_000));
        assert_eq!(microseconds(i64::MAX), None);
        assert_eq!(microseconds(i64::MIN), None);
        for ms in [-62_135_596_800_000, -1, 0, 1, 1_795_265_085_123, 253_402_300_799_999] {
            assert_eq!(milliseconds(microseconds(ms).unwrap()), Ok(ms));
        }
        // Microseconds were written by hand into a column that lost its precision.
        assert_eq!(milliseconds(-1), Ok(EPOCH_MS - 1));
        assert!(milliseconds(i64::MAX).is_err() && milliseconds(i64::MIN).is_err());
    }
}
