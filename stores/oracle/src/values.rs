//! Values into binds, and out of rows.
//!
//! This server takes an empty text for null, and the driver reads an empty `CLOB` or `BLOB` as
//! null. So a text that is empty or only blanks is stored with one more blank, and bytes that are
//! empty or only zeros with one more zero; reading removes it. All other values are stored
//! unchanged. Keys and lists are never empty.

use emmer_core::Timestamp;
use emmer_store::{ColumnType, StoreErrorKind, Value};
use emmer_store_relational::rows::list_to_json;
use emmer_store_relational::{Cells, Fault, calendar};
use oracledb::{OracleTimestamp, ToDbValue};

/// Byte that stands for "nothing" in bytes.
const ZERO: u8 = 0;

/// A value of a statement's parameter, or a null of its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    Text(Option<String>),
    Int(Option<i64>),
    Time(Option<OracleTimestamp>),
    Bytes(Option<Vec<u8>>),
}

impl Bound {
    /// A key, which is never empty.
    pub(crate) fn key(key: &str) -> Self {
        Self::Text(Some(key.to_owned()))
    }

    /// A number.
    pub(crate) const fn int(n: i64) -> Self {
        Self::Int(Some(n))
    }

    /// The value of a column of this type, or null.
    pub(crate) fn column(column_type: ColumnType, value: Option<&Value>) -> Result<Self, Fault> {
        let invalid = |detail: String| Fault::new(StoreErrorKind::Invalid, detail);
        Ok(match (column_type, value) {
            (_, Some(Value::Text(text))) => Self::Text(Some(kept_text(text))),
            (_, Some(Value::Int(n))) => Self::Int(Some(*n)),
            (_, Some(Value::Time(at))) => Self::Time(Some(timestamp(*at)?)),
            (_, Some(Value::Bytes(bytes))) => Self::Bytes(Some(kept_bytes(bytes))),
            (_, Some(Value::List(items))) => {
                Self::Text(Some(list_to_json(items).map_err(invalid)?))
            }
            (ColumnType::Text | ColumnType::List, None) => Self::Text(None),
            (ColumnType::Int, None) => Self::Int(None),
            (ColumnType::Time, None) => Self::Time(None),
            (ColumnType::Bytes, None) => Self::Bytes(None),
        })
    }

    /// The value as the driver takes it.
    pub(crate) fn as_parameter(&self) -> &dyn ToDbValue {
        match self {
            Self::Text(text) => text,
            Self::Int(n) => n,
            Self::Time(at) => at,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A text as it is kept.
fn kept_text(text: &str) -> String {
    let mut kept = text.to_owned();
    if text.bytes().all(|b| b == b' ') {
        kept.push(' ');
    }
    kept
}

/// The text that is kept like this.
fn read_text(kept: &str) -> &str {
    if kept.bytes().all(|b| b == b' ') { kept.strip_suffix(' ').unwrap_or(kept) } else { kept }
}

/// Bytes as they are kept.
fn kept_bytes(bytes: &[u8]) -> Vec<u8> {
    let mut kept = bytes.to_vec();
    if bytes.iter().all(|b| *b == ZERO) {
        kept.push(ZERO);
    }
    kept
}

/// The bytes that are kept like this.
fn read_bytes(kept: &[u8]) -> &[u8] {
    if kept.iter().all(|b| *b == ZERO) { kept.strip_suffix(&[ZERO]).unwrap_or(kept) } else { kept }
}

/// A time in UTC as the server stores it; an error for one outside its calendar.
pub(crate) fn timestamp(at: Timestamp) -> Result<OracleTimestamp, Fault> {
    let ms = at.as_millis();
    let out_of_range =
        || Fault::new(StoreErrorKind::Invalid, format!("a time out of range: {ms} ms since 1970"));
    let date = calendar::Date::from_millis(ms).ok_or_else(out_of_range)?;
    let year = i16::try_from(date.year).map_err(|_| out_of_range())?;
    let nanoseconds = u32::from(date.millisecond) * 1_000_000;
    let calendar::Date { month, day, hour, minute, second, .. } = date;
    Ok(OracleTimestamp::new_timestamp(year, month, day, hour, minute, second, nanoseconds))
}

/// Milliseconds since 1970 of a time as the server keeps it.
pub(crate) fn millis(at: &OracleTimestamp) -> Result<i64, String> {
    let year = u16::try_from(at.year()).ok().filter(|year| (1..=9_999).contains(year));
    let date = calendar::Date {
        year: year.ok_or("is a time out of range")?,
        month: at.month(),
        day: at.day(),
        hour: at.hour(),
        minute: at.minute(),
        second: at.second(),
        millisecond: u16::try_from(at.nanoseconds() / 1_000_000).unwrap_or(0),
    };
    Ok(date.millis())
}

/// Type as which a column of an answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Int,
    Time,
    Bytes,
}

impl From<ColumnType> for Kind {
    fn from(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::Text | ColumnType::List => Self::Text,
            ColumnType::Int => Self::Int,
            ColumnType::Time => Self::Time,
            ColumnType::Bytes => Self::Bytes,
        }
    }
}

/// One value of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Text(String),
    Int(i64),
    Time(i64),
    Bytes(Vec<u8>),
}

/// A row of an answer: a key first, then values as they are kept.
pub(crate) struct Fetched(pub(crate) Vec<Cell>);

impl Fetched {
    fn cell(&self, at: usize) -> Result<&Cell, String> {
        self.0.get(at).ok_or_else(|| "is missing".to_owned())
    }

    /// A text as it stands there.
    fn plain(&self, at: usize) -> Result<Option<&str>, String> {
        match self.cell(at)? {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            _ => Err("is not text".to_owned()),
        }
    }

    /// A text as it stands there, which is never null.
    pub(crate) fn word(&self, at: usize) -> Result<&str, Fault> {
        let word = self.plain(at).and_then(|text| text.ok_or_else(|| "is null".to_owned()));
        word.map_err(|error| Fault::corrupt(format!("column {at} {error}")))
    }

    /// A number that is never null.
    pub(crate) fn number(&self, at: usize) -> Result<i64, Fault> {
        let number = self.int(at).and_then(|n| n.ok_or_else(|| "is null".to_owned()));
        number.map_err(|error| Fault::corrupt(format!("column {at} {error}")))
    }
}

impl Cells for Fetched {
    fn text(&self, at: usize) -> Result<Option<&str>, String> {
        let text = self.plain(at)?;
        // The row key stands as it is.
        Ok(if at == 0 { text } else { text.map(read_text) })
    }

    fn int(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            Cell::Null => Ok(None),
            Cell::Int(n) => Ok(Some(*n)),
            _ => Err("is no integer".to_owned()),
        }
    }

    fn time(&self, at: usize) -> Result<Option<i64>, String> {
        match self.cell(at)? {
            Cell::Null => Ok(None),
            Cell::Time(ms) => Ok(Some(*ms)),
            _ => Err("is not a timestamp".to_owned()),
        }
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, String> {
        match self.cell(at)? {
            Cell::Null => Ok(None),
            Cell::Bytes(bytes) => Ok(Some(read_bytes(bytes))),
            _ => Err("is no BLOB".to_owned()),
        }
    }

    fn json(&self, at: usize) -> Result<Option<&str>, String> {
        self.plain(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts a value as the server and the driver do: nothing of it is null.
    fn through(bound: Bound) -> Cell {
        match bound {
            Bound::Text(Some(text)) if !text.is_empty() => Cell::Text(text),
            Bound::Bytes(Some(bytes)) if !bytes.is_empty() => Cell::Bytes(bytes),
            Bound::Int(Some(n)) => Cell::Int(n),
            Bound::Time(Some(at)) => millis(&at).map_or(Cell::Null, Cell::Time),
            _ => Cell::Null,
        }
    }

    fn read(column_type: ColumnType, value: Option<&Value>) -> Fetched {
        let cell = through(Bound::column(column_type, value).unwrap());
        Fetched(vec![Cell::Text("  ".to_owned()), cell])
    }

    #[test]
    fn texts_come_back_as_they_were_and_stay_apart() {
        let texts = ["", " ", "  ", "a", "a ", " a", "\0", "\u{a0}", "'", "ä😀"];
        let mut kept = std::collections::BTreeSet::new();
        for text in texts {
            assert_eq!(
                read(ColumnType::Text, Some(&Value::Text(text.into()))).text(1),
                Ok(Some(text)),
                "{text:?}"
            );
            assert!(kept.insert(kept_text(text)), "{text:?} is kept as another is");
        }
        assert_eq!(read(ColumnType::Text, None).text(1), Ok(None));
        // A key of blanks is one.
        assert_eq!(read(ColumnType::Text, None).text(0), Ok(Some("  ")));
    }

    #[test]
    fn bytes_come_back_as_they_were_and_stay_apart() {
        let all: [&[u8]; 7] = [&[], &[0], &[0, 0], &[0, 1], &[1, 0], &[32], &[255, 0, 255]];
        let mut kept = std::collections::BTreeSet::new();
        for bytes in all {
            let value = Value::Bytes(bytes.into());
            assert_eq!(read(ColumnType::Bytes, Some(&value)).bytes(1), Ok(Some(bytes)));
            assert!(kept.insert(kept_bytes(bytes)), "{bytes:?} are kept as others are");
        }
        assert_eq!(read(ColumnType::Bytes, None).bytes(1), Ok(None));
    }

    #[test]
    fn lists_numbers_and_times_come_back_as_they_were() {
        for items in [vec![], vec!["".into()], vec![" ".into(), "a".into()]] {
            let row = read(ColumnType::List, Some(&Value::List(items.clone())));
            assert_eq!(row.json(1).unwrap(), Some(list_to_json(&items).unwrap().as_str()));
        }
        for n in [0, 10, 100, -1, -100, i64::MIN, i64::MAX] {
            assert_eq!(read(ColumnType::Int, Some(&Value::Int(n))).int(1), Ok(Some(n)));
        }
        for ms in [0, -1, 1, 951_782_400_123, calendar::FIRST_MS, calendar::LAST_MS] {
            let value = Value::Time(Timestamp::from_millis(ms));
            assert_eq!(read(ColumnType::Time, Some(&value)).time(1), Ok(Some(ms)));
        }
        let far = Value::Time(Timestamp::from_millis(i64::MAX));
        let error = Bound::column(ColumnType::Time, Some(&far)).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Invalid);
    }

    #[test]
    fn a_null_has_the_type_of_its_column() {
        let null = |column_type| Bound::column(column_type, None).unwrap();
        assert_eq!(null(ColumnType::List), Bound::Text(None));
        assert_eq!(null(ColumnType::Int), Bound::Int(None));
        assert_eq!(null(ColumnType::Time), Bound::Time(None));
        assert_eq!(null(ColumnType::Bytes), Bound::Bytes(None));
        assert_eq!(null(ColumnType::Bytes).as_parameter().db_type(), oracledb::DB_TYPE_RAW);
    }

    #[test]
    fn a_time_of_a_foreign_writer_before_the_calendar_is_named() {
        let before = OracleTimestamp::new_date(-4_712, 1, 1);
        assert_eq!(millis(&before), Err("is a time out of range".to_owned()));
    }
}
