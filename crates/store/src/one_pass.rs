//! Documents read in one pass, without a map in between: most of what reading a partition costs a
//! store of documents.
//!
//! It reads only the output of [`document`](crate::document). Everything else is left to the slower
//! way there, which can describe the fault.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// The columns told apart, to see that none comes twice.
const COLUMNS_MAX: usize = 128;

/// The row of a document; none where something is not as it should be.
pub(crate) fn row(table: &TableDecl, row_key: &str, text: &[u8]) -> Option<Row> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let columns = Columns(table).deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    Some(Row::of(row_key, columns))
}

struct Columns<'t>(&'t TableDecl);

impl<'de> DeserializeSeed<'de> for Columns<'_> {
    type Value = Vec<(&'static str, Value)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Columns<'_> {
    type Value = Vec<(&'static str, Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut columns = Vec::with_capacity(self.0.columns.len());
        let mut seen = 0_u128;
        while let Some(name) = map.next_key_seed(Name(self.0))? {
            let Some((at, column)) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if at >= COLUMNS_MAX || seen & (1 << at) != 0 {
                return Err(A::Error::custom("a column twice"));
            }
            seen |= 1 << at;
            if let Some(value) = map.next_value_seed(Cell(column))? {
                columns.push((column.name, value));
            }
        }
        Ok(columns)
    }
}

/// The column of a name; none for the keys.
struct Name<'t>(&'t TableDecl);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<(usize, &'static Column)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<(usize, &'static Column)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        if name == self.0.partition_key || name == self.0.row_key {
            return Ok(None);
        }
        self.0.column(name).map(Some).ok_or_else(|| E::custom("no column"))
    }
}

/// A value of a column; none for null.
struct Cell(&'static Column);

impl<'de> DeserializeSeed<'de> for Cell {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Cell {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.column_type)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        match self.0.column_type {
            ColumnType::Int => Ok(Some(Value::Int(number))),
            _ => Err(E::custom("a number")),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_i64(i64::try_from(number).map_err(E::custom)?)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let found = match self.0.column_type {
            ColumnType::Text => Some(Value::Text(text.into())),
            ColumnType::Time => text.parse().ok().map(Value::Time),
            ColumnType::Bytes => BASE64.decode(text).ok().map(|bytes| Value::Bytes(bytes.into())),
            ColumnType::Int | ColumnType::List => None,
        };
        found.map(Some).ok_or_else(|| E::custom("a text"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        if self.0.column_type != ColumnType::List {
            return Err(A::Error::custom("a list"));
        }
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<String>()? {
            list.push(item.into());
        }
        Ok(Some(Value::List(list)))
    }
}
