//! Keys and values as rows.

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::document;
use emmer_store_keyvalue::layout::{Parts, parts, unescape};
use emmer_store_keyvalue::revisions::etag_of;
use emmer_store_keyvalue::rows::Rows;

use crate::wire::KeyValue;

/// Rest of a key behind `prefix`.
pub(crate) fn rest<'a>(kv: &'a KeyValue, prefix: &str) -> Result<&'a str, String> {
    let key = std::str::from_utf8(&kv.key).ok();
    let rest = key.and_then(|key| key.strip_prefix(prefix));
    rest.ok_or_else(|| format!("a key under {prefix} that is not text: a foreign writer was here"))
}

/// The row under an escaped row key.
pub(crate) fn stored_row(
    decl: &TableDecl,
    escaped: &str,
    kv: &KeyValue,
) -> Result<StoredRow, String> {
    let row_key = unescape(escaped).ok_or_else(|| format!("key {escaped:?} is not a row key"))?;
    let row = document::decode(decl, &row_key, &kv.value)?;
    Ok(StoredRow { row, etag: etag_of(kv.mod_revision) })
}

/// All keys of a partition, in their order, as its rows, ordered by row key.
pub(crate) fn partition(
    decl: &TableDecl,
    prefix: &str,
    kvs: &[KeyValue],
) -> Result<Vec<StoredRow>, String> {
    let mut rows = Rows::new(decl, kvs.len());
    for kv in kvs {
        let key = rest(kv, prefix)?;
        match parts(key) {
            Parts { row, column: None } => rows.row(row, stored_row(decl, row, kv)?),
            Parts { column: Some(_), .. } => rows.column(key, &kv.value),
        }
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;
    use emmer_store::{Column, ColumnType, Row, Value};

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

    fn kv(key: &str, value: &str, mod_revision: i64) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), mod_revision }
    }

    #[test]
    fn keys_become_rows_in_order() {
        let kvs = [
            kv("p/a", r#"{"P":"p","R":"a","N":1}"#, 3),
            kv("p/a!", r#"{"P":"p","R":"a!"}"#, 4),
            kv("p/a/At", "\"1970-01-01T00:00:00.007Z\"", 9),
            kv("p/gone/At", "1", 9),
        ];
        let at = Value::Time(Timestamp::from_millis(7));
        let wanted = [
            StoredRow {
                row: Row::new("a").with("N", Value::Int(1)).with("At", at),
                etag: "3".into(),
            },
            StoredRow { row: Row::new("a!"), etag: "4".into() },
        ];
        assert_eq!(partition(&DECL, "p/", &kvs).unwrap(), wanted);
        assert!(partition(&DECL, "q/", &kvs).is_err());
        assert!(partition(&DECL, "p/", &[kv("p/a", "x", 1)]).unwrap_err().contains("JSON"));
    }
}
