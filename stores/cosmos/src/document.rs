//! Rows as items: one JSON document for a row. Its columns, also volatile ones, are fields of the
//! declared names.
//!
//! ```text
//! {"id":"10.0.0.1-11111-7","EmmerPartition":"silo_instances/prod","EmmerTable":"silo_instances",
//!  "DeploymentId":"prod","SiloKey":"10.0.0.1-11111-7","Status":"Active", ..., "EmmerEtag":"9f3c2a17d00b4e55.7"}
//! ```
//!
//! The service's numbers are floating point: an integer beyond 2^53 is text. `EmmerEtag` is the
//! row's etag, `EmmerRecent` of a version row names the rows of its last commits.

use emmer_store::document::{decode_value, encode_value};
use emmer_store::recent::Recent;
use emmer_store::{Column, Etag, Row, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::Fault;
use emmer_store_keyvalue::azure::keys;
use serde_json::{Map, Value as Json};

/// The field that the container is partitioned by.
pub(crate) const PARTITION: &str = "EmmerPartition";
/// The field that names the table.
pub(crate) const TABLE: &str = "EmmerTable";
const ETAG: &str = "EmmerEtag";
const RECENT: &str = "EmmerRecent";
/// The service's own etag.
const SERVICE_ETAG: &str = "_etag";
/// The fields that the service adds.
const SERVICE_FIELDS: [&str; 5] = ["_rid", "_self", SERVICE_ETAG, "_attachments", "_ts"];
/// The largest integer that every number up to it has exactly.
const EXACT: u64 = 1 << 53;

/// The value that a partition of a table has in the field [`PARTITION`].
pub(crate) fn partition_value(table: &str, partition: &str) -> String {
    format!("{table}/{partition}")
}

/// The id of a row: its key as Azure takes keys, with `~` instead of `%`, which some programs
/// decode twice in the path of a URL. Ids that a path would lose (dots alone, a space at the end)
/// are written in the same way.
pub(crate) fn id(row_key: &str) -> String {
    // A `~` stands only before the hash of a key that was cut.
    let text = keys::encode(row_key).stored.replace('~', "~~").replace('%', "~");
    match text.as_str() {
        "." | ".." => text.replace('.', "~2E"),
        _ => match text.strip_suffix(' ') {
            Some(rest) => format!("{rest}~20"),
            None => text,
        },
    }
}

/// Upper bound below which a row is not measured.
const SMALL: usize = 8 << 10;

/// Estimate of the size of a row as it is sent, in bytes; for a small row an upper bound.
pub(crate) fn size(row: &Row) -> usize {
    // A control character is six bytes of JSON, and three bytes are four letters of base64.
    let most = |(name, value): &(&str, Value)| {
        name.len()
            + match value {
                Value::Text(text) => text.len() * 6,
                Value::Bytes(bytes) => bytes.len() * 2,
                Value::List(items) => items.iter().map(|item| item.len() * 6 + 4).sum(),
                Value::Int(_) | Value::Time(_) => 32,
            }
    };
    let most = row.columns().iter().map(most).sum::<usize>();
    if most <= SMALL {
        return most;
    }
    let of = |(name, value): &(&str, Value)| name.len() + 4 + field(value).to_string().len();
    row.key().len() * 2 + row.columns().iter().map(of).sum::<usize>()
}

/// A value as a field of a document.
pub(crate) fn field(value: &Value) -> Json {
    match value {
        Value::Int(number) if number.unsigned_abs() > EXACT => Json::from(number.to_string()),
        value => encode_value(value),
    }
}

/// The document of a row with this etag; of a version row, with its last commits.
pub(crate) fn encode(
    table: &TableDecl,
    partition: &str,
    row: &Row,
    etag: &Etag,
    recent: Option<&Recent>,
) -> Json {
    let mut fields = Map::with_capacity(row.columns().len() + 8);
    let mut set = |name: &str, value: Json| drop(fields.insert(name.to_owned(), value));
    set("id", id(row.key()).into());
    set(PARTITION, partition_value(table.name, partition).into());
    set(TABLE, table.name.into());
    set(table.partition_key, partition.into());
    set(table.row_key, row.key().into());
    for (name, value) in row.columns() {
        set(name, field(value));
    }
    set(ETAG, etag.to_string().into());
    if let Some(recent) = recent {
        // One text: to the service a list is a hundred values.
        set(RECENT, Json::from(recent.to_texts(etag)).to_string().into());
    }
    Json::Object(fields)
}

/// A row as it was read, with its place and the service's own etag.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) partition: String,
    pub(crate) stored: StoredRow,
    pub(crate) service_etag: String,
    /// The last commits that a version row names.
    pub(crate) recent: Recent,
    /// The document, without the fields of the service.
    pub(crate) document: Json,
}

/// Understands a document.
///
/// # Errors
/// `Corrupt`: a foreign writer was here.
pub(crate) fn decode(table: &TableDecl, mut document: Json) -> Result<Found, Fault> {
    let text = |name: &str| {
        let found = document.get(name).and_then(Json::as_str).map(str::to_owned);
        found
            .ok_or_else(|| Fault::corrupt(format!("an item has no {name}: Emmer did not write it")))
    };
    let (partition, row_key) = (text(table.partition_key)?, text(table.row_key)?);
    let here = |what: String| Fault::corrupt(format!("row {row_key:?}: {what}"));
    if text("id")? != id(&row_key) || text(PARTITION)? != partition_value(table.name, &partition) {
        return Err(here("the item has another place than its keys say".to_owned()));
    }
    let (etag, service_etag) = (Etag::from(text(ETAG)?), text(SERVICE_ETAG)?);
    let mut columns = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let Some(json) = document.get(column.name) else { continue };
        columns.extend(value(column, json).map_err(here)?.map(|value| (column.name, value)));
    }
    let recent = document.get(RECENT).and_then(Json::as_str);
    let recent = recent.and_then(|texts| serde_json::from_str::<Vec<String>>(texts).ok());
    let recent = Recent::of_texts(&etag, recent.unwrap_or_default());
    let stored = StoredRow { row: Row::of(row_key, columns), etag };
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|name, _| !SERVICE_FIELDS.contains(&name.as_str()));
    }
    Ok(Found { partition, stored, service_etag, recent, document })
}

fn value(column: &Column, json: &Json) -> Result<Option<Value>, String> {
    match (column.column_type, json) {
        (emmer_store::ColumnType::Int, Json::String(text)) => text
            .parse()
            .map(|number| Some(Value::Int(number)))
            .map_err(|_| format!("{} is Int, not {json}", column.name)),
        _ => decode_value(column, json),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use emmer_core::Timestamp;
    use emmer_store::{ColumnType, StoreErrorKind};

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

    fn stored(row: &Row) -> Json {
        let mut document = encode(&DECL, "p", row, &Etag::from("m.1".to_owned()), None);
        document["_etag"] = "\"x\"".into();
        document["_ts"] = 7.into();
        document
    }

    #[test]
    fn rows_come_back_and_are_readable() {
        for n in [0, 1 << 53, (1 << 53) + 1, i64::MIN, i64::MAX] {
            let row = Row::new("a/b")
                .with("Name", Value::Text("\u{2028}\0🛫".into()))
                .with("N", Value::Int(n))
                .with("At", Value::Time(Timestamp::from_millis(7)))
                .with("Blob", Value::Bytes([0, 255].into()))
                .with("Items", Value::List(vec![Arc::from(""), Arc::from("x")]));
            let document = stored(&row);
            assert_eq!(document["id"], "a~2Fb");
            assert_eq!(document["EmmerPartition"], "t/p");
            assert_eq!(document["R"], "a/b");
            let found = decode(&DECL, document).unwrap();
            assert_eq!((found.partition.as_str(), &found.stored.row), ("p", &row));
            assert_eq!((&*found.stored.etag, found.service_etag.as_str()), ("m.1", "\"x\""));
            assert!(found.document.get("_etag").is_none() && found.document.get("Name").is_some());
        }
    }

    #[test]
    fn ids_differ_and_survive_a_path() {
        let long = "/".repeat(512);
        let keys = [".", "..", "...", "%2E", "~2E", "a ", "a%20", "a/b", "a%2Fb", "a~2Fb", &long];
        let ids: std::collections::BTreeSet<String> = keys.iter().map(|key| id(key)).collect();
        assert_eq!(ids.len(), keys.len());
        for id in ids {
            assert!(!id.contains(['/', '\\', '?', '#', '%']) && !id.ends_with(' '), "{id:?}");
            assert!(id.len() <= 1_023 && id != "." && id != "..", "{id:?}");
        }
    }

    #[test]
    fn a_foreign_document_is_corrupt_and_named() {
        let whole = stored(&Row::new("k").with("N", Value::Int(1)));
        for (field, value, word) in [
            ("EmmerEtag", Json::Null, "EmmerEtag"),
            ("id", "other".into(), "another place"),
            ("EmmerPartition", "t/q".into(), "another place"),
            ("N", "1x".into(), "N is Int"),
            ("At", 5.into(), "At"),
            ("R", 5.into(), "no R"),
        ] {
            let mut document = whole.clone();
            document[field] = value;
            let fault = decode(&DECL, document).unwrap_err();
            assert_eq!(fault.kind, StoreErrorKind::Corrupt);
            assert!(fault.detail.contains(word), "{field}: {}", fault.detail);
        }
    }
}
