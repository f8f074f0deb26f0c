//! Keys and values as rows.

use emmer_store::{StoredRow, TableDecl};
use emmer_store_keyvalue::document;
use emmer_store_keyvalue::layout::{Parts, parts, unescape};
use emmer_store_keyvalue::revisions::etag_of;
use emmer_store_keyvalue::rows::Rows;

use crate::fence::FENCE;
use crate::wire::KeyValue;

/// The name of the row's own key, as opposed to those of its volatile columns. No column's name
/// begins with a dot.
pub(crate) const ROW: &str = ".row";
/// The field of a row that no two commits share. No column's name begins with a dot.
pub(crate) const COMMIT: &str = ".commit";

/// The key of a row, as it follows the partition's prefix.
pub(crate) fn key(row_key: &str) -> String {
    column_key(row_key, ROW)
}

/// The key of a row's volatile column, as it follows the partition's prefix.
pub(crate) fn column_key(row_key: &str, column: &str) -> String {
    format!("{}/{column}", emmer_store::keys::escape(row_key))
}

/// The row under a key of a partition, with the mark of the commit that wrote it.
pub(crate) fn stored_row(
    decl: &TableDecl,
    escaped: &str,
    kv: &KeyValue,
) -> Result<(String, StoredRow), String> {
    let row_key = unescape(escaped).ok_or_else(|| format!("key {escaped:?} is not a row key"))?;
    let (commit, row) = document::decode_marked(decl, COMMIT, &row_key, kv.value.clone())?;
    Ok((commit, StoredRow { row, etag: etag_of(kv.modify_index) }))
}

/// The keys of a partition, in their order, as its rows, ordered by row key.
pub(crate) fn partition(
    decl: &TableDecl,
    prefix: &str,
    kvs: &[KeyValue],
) -> Result<Vec<StoredRow>, String> {
    let mut rows = Rows::new(decl, kvs.len());
    for kv in kvs {
        let rest = kv
            .key
            .strip_prefix(prefix)
            .ok_or_else(|| format!("{} is not under {prefix}", kv.key))?;
        match parts(rest) {
            Parts { row, column: Some(ROW) } => rows.row(row, stored_row(decl, row, kv)?.1),
            Parts { column: Some(_), .. } => rows.column(rest, &kv.value),
            // The fence, or a foreign writer's.
            Parts { column: None, .. } => {}
        }
    }
    rows.finish()
}

/// The fence among the keys of a partition.
pub(crate) fn fence<'a>(prefix: &str, kvs: &'a [KeyValue]) -> Option<&'a KeyValue> {
    kvs.iter().find(|kv| kv.key.strip_prefix(prefix) == Some(FENCE))
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

    fn kv(key: &str, value: &str, modify_index: i64) -> KeyValue {
        KeyValue { key: key.into(), value: value.into(), modify_index }
    }

    #[test]
    fn keys_become_rows_in_order() {
        let kvs = [
            kv("p/a/.row", r#"{".commit":"m.1","P":"p","R":"a","N":1}"#, 3),
            kv("p/a/At", "\"1970-01-01T00:00:00.007Z\"", 9),
            kv("p/gone/At", "1", 9),
            kv("p/~fence", "{}", 8),
        ];
        let at = Value::Time(Timestamp::from_millis(7));
        let wanted = [StoredRow {
            row: Row::new("a").with("N", Value::Int(1)).with("At", at),
            etag: "3".into(),
        }];
        assert_eq!(partition(&DECL, "p/", &kvs).unwrap(), wanted);
        assert_eq!(fence("p/", &kvs).unwrap().modify_index, 8);
        assert!(partition(&DECL, "q/", &kvs).is_err());
        assert!(partition(&DECL, "p/", &[kv("p/a/.row", "x", 1)]).is_err());
        assert_eq!(stored_row(&DECL, "a", &kvs[0]).unwrap().0, "m.1");
    }
}
