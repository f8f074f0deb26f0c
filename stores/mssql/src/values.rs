//! Values into literals, and out of rows.

use emmer_store::{StoreErrorKind, Value};
use emmer_store_relational::rows::list_to_json;
use emmer_store_relational::{Cells, Fault, calendar};
use tiberius::{ColumnData, Row};

/// Writes bytes as a literal.
pub(crate) fn bytes_literal(out: &mut String, bytes: &[u8]) {
    out.push_str("0x");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
}

/// Writes a text as a literal of the large type. A text with control characters is written as the
/// bytes of its UTF-16: a NUL may end the batch's text, and a backslash before the end of a line
/// continues the line.
fn text_literal(out: &mut String, text: &str) {
    out.push_str("CAST(");
    if text.chars().any(char::is_control) {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        bytes_literal(out, &units);
    } else {
        out.push_str("N'");
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
    out.push_str(" AS nvarchar(max))");
}

/// Writes a value, or null, as a literal of its column's type.
pub(crate) fn literal(out: &mut String, value: Option<&Value>) -> Result<(), Fault> {
    let invalid = |detail: String| Fault::new(StoreErrorKind::Invalid, detail);
    match value {
        None => out.push_str("NULL"),
        Some(Value::Text(text)) => text_literal(out, text),
        Some(Value::Int(n)) => out.push_str(&format!("CAST({n} AS bigint)")),
        Some(Value::Time(at)) => {
            out.push_str(&format!("CAST('{}' AS datetime2(3))", date(at.as_millis())?));
        }
        Some(Value::Bytes(bytes)) => bytes_literal(out, bytes),
        Some(Value::List(items)) => text_literal(out, &list_to_json(items).map_err(invalid)?),
    }
    Ok(())
}

/// A time in a form that the server reads in any language; an error for a time outside the server's
/// calendar.
pub(crate) fn date(ms: i64) -> Result<String, Fault> {
    let found = calendar::Date::from_millis(ms);
    let out_of_range =
        || Fault::new(StoreErrorKind::Invalid, format!("a time out of range: {ms} ms since 1970"));
    Ok(found.ok_or_else(out_of_range)?.to_string().replace(' ', "T"))
}

/// A row as [`emmer_store_relational`] reads it.
pub(crate) struct RowCells<'a>(pub(crate) Vec<&'a ColumnData<'static>>);

impl<'a> RowCells<'a> {
    pub(crate) fn new(row: &'a Row) -> Self {
        Self(row.cells().map(|(_, cell)| cell).collect())
    }

    fn cell(&self, at: usize) -> Result<&'a ColumnData<'static>, String> {
        self.0.get(at).copied().ok_or_else(|| "is missing".to_owned())
    }
}

impl Cells for RowCells<'_> {
    fn text(&self, at: usize) -> Result<Option<&str>, String> {
        match self.cell(at)? {
            ColumnData::String(text) => Ok(text.as_deref()),
            // A key.
            ColumnData::Binary(bytes) => {
                let utf8 = |bytes| str::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned());
                bytes.as_deref().map(utf8).transpose()
            }
            _ => Err("is not text".to_owned()),
        }
    }

    fn int(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            ColumnData::I64(n) => Ok(*n),
            ColumnData::I32(n) => Ok(n.map(i64::from)),
            _ => Err("is no integer".to_owned()),
        }
    }

    fn time(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            ColumnData::DateTime2(found) => Ok(found.map(|moment| {
                // Days since the year 1, and steps of ten to the minus scale seconds.
                let (days, time) = (i64::from(moment.date().days()), moment.time());
                let steps_per_second = 10_u64.pow(u32::from(time.scale().min(7)));
                let of_day = time.increments().saturating_mul(1_000) / steps_per_second;
                calendar::FIRST_MS + days * 86_400_000 + i64::try_from(of_day).unwrap_or(0)
            })),
            _ => Err("is no datetime2".to_owned()),
        }
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
        match self.cell(at)? {
            ColumnData::Binary(bytes) => Ok(bytes.as_deref()),
            _ => Err("is no varbinary".to_owned()),
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
        let mut out = String::new();
        literal(&mut out, value).unwrap();
        out
    }

    #[test]
    fn literals_end_where_they_should() {
        assert_eq!(shown(None), "NULL");
        assert_eq!(shown(Some(&Value::Text("a'b\\".into()))), "CAST(N'a''b\\' AS nvarchar(max))");
        assert_eq!(shown(Some(&Value::Text("".into()))), "CAST(N'' AS nvarchar(max))");
        // Characters that a batch's text may not hold, or not unescaped.
        assert_eq!(shown(Some(&Value::Text("a\0".into()))), "CAST(0x61000000 AS nvarchar(max))");
        assert_eq!(
            shown(Some(&Value::Text("\\\nä😀".into()))),
            "CAST(0x5c000a00e4003dd800de AS nvarchar(max))"
        );
        assert_eq!(
            shown(Some(&Value::List(vec!["ä".into()]))),
            "CAST(N'[\"ä\"]' AS nvarchar(max))"
        );
        assert_eq!(shown(Some(&Value::Bytes([0, 255].as_slice().into()))), "0x00ff");
        assert_eq!(shown(Some(&Value::Int(i64::MIN))), "CAST(-9223372036854775808 AS bigint)");
        let before = Value::Time(Timestamp::from_millis(-1));
        assert_eq!(shown(Some(&before)), "CAST('1969-12-31T23:59:59.999' AS datetime2(3))");
        assert!(
            literal(&mut String::new(), Some(&Value::Time(Timestamp::from_millis(i64::MAX))))
                .is_err()
        );
    }
}
