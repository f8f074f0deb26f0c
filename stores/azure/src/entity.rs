//! Rows as entities: one entity for a row. Its columns, also volatile ones, are properties of the
//! declared names.
//!
//! Integers are `Edm.Int64`, times `Edm.DateTime` (text beyond its years), bytes `Edm.Binary`,
//! lists the text of a JSON array. A property takes 64 KiB: the rest of a longer value is in
//! `_Name_1`, `_Name_2` and so on, up to the first that is missing or empty. Properties that begin
//! with `_` are the store's own: `_Etag` is the row's etag, `_PartitionKey` and `_RowKey` are keys
//! that had to be cut, `_Recent` of a version row names the rows of its last commits, as far as
//! there is room.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use emmer_core::Timestamp;
use emmer_store::recent::Recent;
use emmer_store::{ColumnType, Etag, Row, StoreErrorKind, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::Fault;
use serde_json::{Map, Value as Json};

use crate::keys::{self, units};

/// The property that holds the row's etag.
const ETAG: &str = "_Etag";
/// The property of a version row that names the rows of its last commits: the text of a JSON array.
const RECENT: &str = "_Recent";
const CUT_PARTITION: &str = "_PartitionKey";
const CUT_ROW: &str = "_RowKey";
/// The service's own etag, in its answers.
const SERVICE_ETAG: &str = "odata.etag";
/// The most UTF-16 units of text in one property, and the most bytes: 64 KiB.
const TEXT_UNITS_MAX: usize = 32 << 10;
const BINARY_BYTES_MAX: usize = 64 << 10;
/// The largest entity, as the service reckons.
pub(crate) const ENTITY_BYTES_MAX: usize = 1 << 20;
/// The most properties of an entity, the keys and the time of its own not counted.
const PROPERTIES_MAX: usize = 252;
/// The years that `Edm.DateTime` has: 1601 to 9999.
const TIMES: std::ops::RangeInclusive<i64> = -11_644_473_600_000..=253_402_300_799_999;

/// The properties of an entity under construction, with its size as the service counts it.
#[derive(Debug)]
pub(crate) struct Entity {
    properties: Map<String, Json>,
    bytes: usize,
}

impl Entity {
    /// An entity with its keys and nothing else.
    pub(crate) fn new(partition: &str, row_key: &str) -> Self {
        let mut entity = Self { properties: Map::new(), bytes: 4 };
        for (name, cut, key) in
            [("PartitionKey", CUT_PARTITION, partition), ("RowKey", CUT_ROW, row_key)]
        {
            let encoded = keys::encode(key);
            entity.bytes += units(&encoded.stored) * 2;
            entity.properties.insert(name.to_owned(), encoded.stored.into());
            if encoded.cut {
                entity.text(cut, key);
            }
        }
        entity
    }

    /// The entity of a row with this etag.
    pub(crate) fn of(partition: &str, row: &Row, etag: &str) -> Self {
        let mut entity = Self::new(partition, row.key());
        entity.text(ETAG, etag);
        for (name, value) in row.columns() {
            entity.value(name, value);
        }
        entity
    }

    /// Says what the last commits wrote, in the entity of a version row with this etag.
    pub(crate) fn recent(&mut self, recent: &Recent, etag: &Etag) {
        self.text(RECENT, &Json::from(recent.to_texts(etag)).to_string());
    }

    fn text(&mut self, name: &str, text: &str) {
        self.bytes += 12 + units(name) * 2 + units(text) * 2;
        self.properties.insert(name.to_owned(), text.into());
    }

    fn typed(&mut self, name: &str, edm: &str, value: String, bytes: usize) {
        self.bytes += 12 + units(name) * 2 + bytes;
        self.properties.insert(format!("{name}@odata.type"), edm.into());
        self.properties.insert(name.to_owned(), value.into());
    }

    /// Sets a column.
    pub(crate) fn value(&mut self, name: &str, value: &Value) {
        match value {
            Value::Int(number) => self.typed(name, "Edm.Int64", number.to_string(), 8),
            Value::Time(at) if TIMES.contains(&at.as_millis()) => {
                self.typed(name, "Edm.DateTime", at.to_string(), 8);
            }
            Value::Time(at) => self.text(name, &at.to_string()),
            Value::Text(text) => self.long_text(name, text),
            Value::List(items) => {
                let items: Json = items.iter().map(|item| Json::from(item.as_ref())).collect();
                self.long_text(name, &items.to_string());
            }
            Value::Bytes(bytes) => {
                let none = bytes.is_empty().then_some([].as_slice());
                for (n, part) in bytes.chunks(BINARY_BYTES_MAX).chain(none).enumerate() {
                    self.typed(&part_name(name, n), "Edm.Binary", BASE64.encode(part), part.len());
                }
            }
        }
    }

    fn long_text(&mut self, name: &str, text: &str) {
        let (mut rest, mut n) = (text, 0);
        loop {
            let mut room = TEXT_UNITS_MAX;
            let end = rest.char_indices().find(|(_, c)| match room.checked_sub(c.len_utf16()) {
                Some(left) => {
                    room = left;
                    false
                }
                None => true,
            });
            let (part, left) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
            self.text(&part_name(name, n), part);
            if left.is_empty() {
                return;
            }
            (rest, n) = (left, n + 1);
        }
    }

    /// Says that no part follows the parts of a column that were set: a merge cannot remove
    /// properties.
    pub(crate) fn end_parts(&mut self, name: &str) {
        let next = (1..).find(|n| !self.properties.contains_key(&part_name(name, *n))).unwrap_or(1);
        self.text(&part_name(name, next), "");
    }

    /// The entity as JSON, on one line.
    ///
    /// # Errors
    /// `Invalid`: it is larger than the service takes.
    pub(crate) fn json(self) -> Result<String, Fault> {
        let properties =
            self.properties.keys().filter(|name| !name.ends_with("@odata.type")).count();
        if self.bytes > ENTITY_BYTES_MAX || properties > PROPERTIES_MAX {
            let detail = format!(
                "a row of {} bytes in {properties} properties: an entity of Azure Table takes \
                 {ENTITY_BYTES_MAX} bytes (text as UTF-16) in {PROPERTIES_MAX}",
                self.bytes
            );
            return Err(Fault::new(StoreErrorKind::Invalid, detail));
        }
        Ok(escaped(Json::Object(self.properties).to_string()))
    }
}

/// JSON without the two line ends of JavaScript, which the service refuses within a text. In JSON
/// they stand nowhere else.
fn escaped(json: String) -> String {
    if json.contains(['\u{2028}', '\u{2029}']) {
        json.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
    } else {
        json
    }
}

/// The name of part `n` of a column.
fn part_name(name: &str, n: usize) -> String {
    if n == 0 { name.to_owned() } else { format!("_{name}_{n}") }
}

/// A row as it was read, with its place and the service's own etag.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) partition: String,
    pub(crate) stored: StoredRow,
    pub(crate) service_etag: String,
    /// The last commits that a version row names.
    pub(crate) recent: Recent,
}

/// Understands an entity.
///
/// # Errors
/// `Corrupt`: a foreign writer was here.
pub(crate) fn decode(decl: &TableDecl, entity: &Json) -> Result<Found, Fault> {
    let corrupt = |detail: String| Fault::corrupt(detail);
    let text = |name: &str| entity.get(name).and_then(Json::as_str);
    let key = |name: &str, cut: &str| {
        let stored = text(name).ok_or_else(|| corrupt(format!("an entity without {name}")))?;
        let whole = text(cut).map(str::to_owned).or_else(|| keys::decode(stored));
        let whole = whole.filter(|whole| keys::encode(whole).stored == stored);
        whole.ok_or_else(|| corrupt(format!("Emmer did not write the {name} {stored:?}")))
    };
    let (partition, row_key) = (key("PartitionKey", CUT_PARTITION)?, key("RowKey", CUT_ROW)?);
    let here = |what: String| corrupt(format!("row {row_key:?}: {what}"));
    let etag = text(ETAG)
        .ok_or_else(|| here(format!("there is no {ETAG}: it was not written by Emmer")))?;
    let service_etag = text(SERVICE_ETAG)
        .ok_or_else(|| here(format!("the server's answer has no {SERVICE_ETAG}")))?;
    let mut columns = Vec::with_capacity(decl.columns.len());
    for column in decl.columns {
        let Some(json) = entity.get(column.name) else { continue };
        let value = value(column.column_type, column.name, json, entity);
        let shown = || json.to_string().chars().take(80).collect::<String>();
        let value = value.ok_or_else(|| {
            here(format!("{} is {:?}, not {}", column.name, column.column_type, shown()))
        })?;
        columns.push((column.name, value));
    }
    let etag: Etag = etag.into();
    let recent = text(RECENT).and_then(|texts| serde_json::from_str::<Vec<String>>(texts).ok());
    let recent = Recent::of_texts(&etag, recent.unwrap_or_default());
    let stored = StoredRow { row: Row::of(row_key, columns), etag };
    Ok(Found { partition, stored, service_etag: service_etag.to_owned(), recent })
}

fn value(column_type: ColumnType, name: &str, json: &Json, entity: &Json) -> Option<Value> {
    let parts = || {
        let more = (1..).map_while(|n| {
            entity.get(part_name(name, n))?.as_str().filter(|part| !part.is_empty())
        });
        json.as_str().map(|first| std::iter::once(first).chain(more))
    };
    Some(match column_type {
        ColumnType::Int => Value::Int(json.as_i64().or_else(|| json.as_str()?.parse().ok())?),
        ColumnType::Time => Value::Time(json.as_str()?.parse::<Timestamp>().ok()?),
        ColumnType::Text => Value::Text(parts()?.collect::<String>().into()),
        ColumnType::List => {
            let items: Vec<String> = serde_json::from_str(&parts()?.collect::<String>()).ok()?;
            Value::List(items.into_iter().map(Into::into).collect())
        }
        ColumnType::Bytes => {
            let mut bytes = Vec::new();
            for part in parts()? {
                BASE64.decode_vec(part, &mut bytes).ok()?;
            }
            Value::Bytes(bytes.into())
        }
    })
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
            Column::new("Name", ColumnType::Text),
            Column::new("N", ColumnType::Int),
            Column::new("At", ColumnType::Time).volatile(),
            Column::new("Blob", ColumnType::Bytes),
            Column::new("Items", ColumnType::List),
        ],
        schema_version: 1,
        one_moment: true,
    };

    fn through(row: &Row) -> (Json, Row) {
        let text = Entity::of("p/1", row, "e.1").json().unwrap();
        let mut json: Json = serde_json::from_str(&text).unwrap();
        json["odata.etag"] = "W/1".into();
        let found = decode(&DECL, &json).unwrap();
        assert_eq!((found.partition.as_str(), found.stored.etag.as_ref()), ("p/1", "e.1"));
        assert_eq!(found.service_etag, "W/1");
        (json, found.stored.row)
    }

    #[test]
    fn rows_come_back_whatever_their_length() {
        for size in [0, 1, 32 << 10, (32 << 10) + 1, 100_000] {
            let row = Row::new("r?")
                .with("Name", Value::Text("🛫".repeat(size / 2).into()))
                .with("Blob", Value::Bytes(vec![7; size * 2].into()))
                .with("Items", Value::List(vec!["a\n".into(), "x".repeat(size).into()]));
            assert_eq!(through(&row).1, row, "{size}");
        }
        let row = Row::new("/".repeat(512)).with("N", Value::Int(i64::MIN));
        assert_eq!(through(&row).1, row);
    }

    #[test]
    fn columns_are_what_an_administrator_expects() {
        let at = |ms| Value::Time(Timestamp::from_millis(ms));
        let row = Row::new("10.0.0.1-11111-7").with("N", Value::Int(-1)).with("At", at(5));
        let (json, _) = through(&row);
        let wanted = serde_json::json!({
            "PartitionKey": "p%2F1", "RowKey": "10.0.0.1-11111-7", "_Etag": "e.1", "N": "-1", "N@odata.type": "Edm.Int64",
            "At": "1970-01-01T00:00:00.005Z", "At@odata.type": "Edm.DateTime", "odata.etag": "W/1",
        });
        assert_eq!(json, wanted);
        for ms in [i64::MAX, i64::MIN, *TIMES.start(), *TIMES.end() + 1] {
            let row = Row::new("r").with("At", at(ms));
            assert_eq!(through(&row).1, row);
        }
    }

    #[test]
    fn a_merge_of_a_shorter_value_hides_the_parts_of_a_longer_one() {
        let long = Row::new("r").with("Name", Value::Text("x".repeat(100_000).into()));
        let mut json: Json =
            serde_json::from_str(&Entity::of("p", &long, "e").json().unwrap()).unwrap();
        let mut merged = Entity::new("p", "r");
        merged.value("Name", &Value::Text("y".into()));
        merged.end_parts("Name");
        for (name, value) in merged.properties {
            json[name] = value;
        }
        json["odata.etag"] = "W/1".into();
        assert_eq!(
            decode(&DECL, &json).unwrap().stored.row.get("Name"),
            Some(&Value::Text("y".into()))
        );
    }

    #[test]
    fn what_is_too_large_or_foreign_is_named() {
        let large = Row::new("r").with("Name", Value::Text("x".repeat(600 << 10).into()));
        let error = Entity::of("p", &large, "e").json().unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("1048576"),
            "{error:?}"
        );
        let entity = |more: Json| {
            let mut json = serde_json::json!({"PartitionKey": "p", "RowKey": "r", "_Etag": "e", "odata.etag": "W/1"});
            for (name, value) in more.as_object().unwrap() {
                json[name] = value.clone();
            }
            decode(&DECL, &json).map(|found| found.stored.row)
        };
        assert_eq!(entity(serde_json::json!({})).unwrap(), Row::new("r"));
        for (more, word) in [
            (serde_json::json!({"N": "one"}), "one"),
            (serde_json::json!({"At": "yesterday"}), "yesterday"),
            (serde_json::json!({"Items": "[1]"}), "Items"),
            (serde_json::json!({"Blob": "%"}), "Blob"),
            (serde_json::json!({"_Etag": 1}), "_Etag"),
            (serde_json::json!({"RowKey": "%2"}), "RowKey"),
        ] {
            let error = entity(more).unwrap_err();
            assert!(
                error.kind == StoreErrorKind::Corrupt && error.detail.contains(word),
                "{error:?}"
            );
        }
    }
}
