//! Values into parameters and literals, and out of rows.

use emmer_store::{StoreErrorKind, Value};
use emmer_store_relational::rows::list_to_json;
use emmer_store_relational::{Cells, Date, Fault};
use mysql_async::Value as Cell;

/// The date of a time; an error for one outside the server's calendar.
fn date(ms: i64) -> Result<Date, Fault> {
    // The manual promises the years from 1000 on.
    let found = Date::from_millis(ms).filter(|date| date.year >= 1_000);
    found.ok_or_else(|| {
        Fault::new(StoreErrorKind::Invalid, format!("a time out of range: {ms} ms since 1970"))
    })
}

/// A value as a parameter.
pub(crate) fn parameter(value: &Value) -> Result<Cell, Fault> {
    Ok(match value {
        Value::Text(text) => Cell::Bytes(text.as_bytes().to_vec()),
        Value::Int(n) => Cell::Int(*n),
        Value::Time(at) => {
            let Date { year, month, day, hour, minute, second, millisecond } =
                date(at.as_millis())?;
            Cell::Date(year, month, day, hour, minute, second, u32::from(millisecond) * 1_000)
        }
        Value::Bytes(bytes) => Cell::Bytes(bytes.to_vec()),
        Value::List(items) => Cell::Bytes(list(items)?.into_bytes()),
    })
}

fn list(items: &[std::sync::Arc<str>]) -> Result<String, Fault> {
    list_to_json(items).map_err(|e| Fault::new(StoreErrorKind::Invalid, e))
}

/// Writes a text as a literal. The session's character set is utf8mb4, in which only these ASCII
/// characters end a literal, and its SQL mode keeps the backslash's meaning.
pub(crate) fn text_literal(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'\'');
    for &byte in text {
        match byte {
            0 => out.extend_from_slice(b"\\0"),
            b'\'' => out.extend_from_slice(b"\\'"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            other => out.push(other),
        }
    }
    out.push(b'\'');
}

/// Writes a value, or null, as a literal.
pub(crate) fn literal(out: &mut Vec<u8>, value: Option<&Value>) -> Result<(), Fault> {
    match value {
        None => out.extend_from_slice(b"NULL"),
        Some(Value::Text(text)) => text_literal(out, text.as_bytes()),
        Some(Value::Int(n)) => integer(out, *n),
        Some(Value::Time(at)) => text_literal(out, date(at.as_millis())?.to_string().as_bytes()),
        Some(Value::Bytes(bytes)) => {
            out.extend_from_slice(b"_binary");
            text_literal(out, bytes);
        }
        Some(Value::List(items)) => text_literal(out, list(items)?.as_bytes()),
    }
    Ok(())
}

/// Writes an integer as a literal.
pub(crate) fn integer(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(n.to_string().as_bytes());
}

/// A row as [`emmer_store_relational`] reads it.
pub(crate) struct RowCells<'a>(pub(crate) &'a mysql_async::Row);

impl RowCells<'_> {
    fn cell(&self, at: usize) -> Result<Option<&Cell>, String> {
        match self.0.as_ref(at) {
            None => Err("is missing".to_owned()),
            Some(Cell::NULL) => Ok(None),
            Some(cell) => Ok(Some(cell)),
        }
    }
}

impl Cells for RowCells<'_> {
    fn text(&self, at: usize) -> Result<Option<&str>, String> {
        let utf8 = |bytes| str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
        self.bytes(at)?.map(utf8).transpose()
    }

    fn int(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            None => Ok(None),
            Some(Cell::Int(n)) => Ok(Some(*n)),
            Some(Cell::UInt(n)) => {
                i64::try_from(*n).map(Some).map_err(|_| "is too large".to_owned())
            }
            Some(_) => Err("is no integer".to_owned()),
        }
    }

    fn time(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            None => Ok(None),
            Some(Cell::Date(
                year @ 1..,
                month @ 1..,
                day @ 1..,
                hour,
                minute,
                second,
                microsecond,
            )) => {
                let (year, month, day) = (*year, *month, *day);
                let (hour, minute, second) = (*hour, *minute, *second);
                let millisecond = u16::try_from(microsecond / 1_000).unwrap_or(999);
                Ok(Some(Date { year, month, day, hour, minute, second, millisecond }.millis()))
            }
            Some(_) => Err("is no date".to_owned()),
        }
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
        match self.cell(at)? {
            None => Ok(None),
            Some(Cell::Bytes(bytes)) => Ok(Some(bytes)),
            Some(_) => Err("is neither text nor bytes".to_owned()),
        }
    }

    fn json(&self, at: usize) -> Result<Option<&str>, String> {
        self.text(at)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;

    use super::*;

    fn shown(value: Option<&Value>) -> String {
        let mut out = Vec::new();
        literal(&mut out, value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn literals_end_where_they_should() {
        assert_eq!(shown(None), "NULL");
        assert_eq!(shown(Some(&Value::Text(r"a'b\".into()))), r"'a\'b\\'");
        assert_eq!(shown(Some(&Value::Bytes(b"\0'".as_slice().into()))), r"_binary'\0\''");
        assert_eq!(shown(Some(&Value::Int(i64::MIN))), "-9223372036854775808");
        assert_eq!(
            shown(Some(&Value::Time(Timestamp::from_millis(-1)))),
            "'1969-12-31 23:59:59.999'"
        );
        let far = Value::Time(Timestamp::from_millis(i64::MAX));
        assert!(literal(&mut Vec::new(), Some(&far)).is_err() && parameter(&far).is_err());
    }
}
