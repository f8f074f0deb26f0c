//! Values as the driver has them, and rows as they come.

use emmer_core::Timestamp;
use emmer_store::{ColumnType, Row, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::Fault;
use scylla::value::{CqlTimestamp, CqlValue, MaybeUnset};

/// Value of a question mark: a value, null, or unset, which leaves a column as it is.
pub(crate) type Bound = MaybeUnset<Option<CqlValue>>;

/// A text.
pub(crate) fn text(text: &str) -> Bound {
    MaybeUnset::Set(Some(CqlValue::Text(text.to_owned())))
}

/// A value, or null.
pub(crate) fn bound(value: Option<&Value>) -> Bound {
    MaybeUnset::Set(value.map(cql))
}

/// A value, or nothing.
pub(crate) fn bound_if_any(value: Option<&Value>) -> Bound {
    value.map_or(MaybeUnset::Unset, |value| bound(Some(value)))
}

fn cql(value: &Value) -> CqlValue {
    let text = |text: &str| CqlValue::Text(text.to_owned());
    match value {
        Value::Int(number) => CqlValue::BigInt(*number),
        Value::Time(at) => CqlValue::Timestamp(CqlTimestamp(at.as_millis())),
        Value::Text(content) => text(content),
        Value::Bytes(bytes) => CqlValue::Blob(bytes.to_vec()),
        Value::List(items) => CqlValue::List(items.iter().map(|item| text(item)).collect()),
    }
}

fn value(column_type: ColumnType, found: CqlValue) -> Result<Value, CqlValue> {
    Ok(match (column_type, found) {
        (ColumnType::Int, CqlValue::BigInt(number)) => Value::Int(number),
        (ColumnType::Time, CqlValue::Timestamp(at)) => Value::Time(Timestamp::from_millis(at.0)),
        (ColumnType::Text, CqlValue::Text(text)) => Value::Text(text.into()),
        (ColumnType::Bytes, CqlValue::Blob(bytes)) => Value::Bytes(bytes.into()),
        (ColumnType::List, CqlValue::List(items)) => {
            let texts = items.into_iter().map(|item| match item {
                CqlValue::Text(text) => Ok(text.into()),
                other => Err(other),
            });
            Value::List(texts.collect::<Result<_, _>>()?)
        }
        (_, other) => return Err(other),
    })
}

/// A row of [`select`](crate::cql::Cql::select): partition, key, etag, then the declared columns.
/// None where there is no row: the columns of the partition alone, or a volatile column that was
/// left over.
///
/// # Errors
/// `Corrupt`: a foreign writer was here.
pub(crate) fn decode(
    decl: &TableDecl,
    columns: Vec<Option<CqlValue>>,
) -> Result<Option<(String, StoredRow)>, Fault> {
    let mut columns = columns.into_iter();
    let mut next_text = || match columns.next().flatten() {
        Some(CqlValue::Text(text)) => Some(text),
        _ => None,
    };
    let (Some(partition), Some(row_key), Some(etag)) = (next_text(), next_text(), next_text())
    else {
        return Ok(None);
    };
    let mut found = Vec::with_capacity(decl.columns.len());
    for (column, content) in decl.columns.iter().zip(columns) {
        let Some(content) = content else { continue };
        let content = value(column.column_type, content).map_err(|other| {
            let shown: String = format!("{other:?}").chars().take(80).collect();
            Fault::corrupt(format!(
                "row {row_key:?}: {} is {shown}, not {:?}",
                column.name, column.column_type
            ))
        })?;
        found.push((column.name, content));
    }
    Ok(Some((partition, StoredRow { row: Row::of(row_key, found), etag: etag.into() })))
}

/// About how many bytes of a request a row takes.
pub(crate) fn size(row: &Row) -> usize {
    let of = |value: &Value| match value {
        Value::Int(_) | Value::Time(_) => 8,
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(|item| 4 + item.len()).sum(),
    };
    row.columns().iter().map(|(_, value)| of(value)).sum()
}

#[cfg(test)]
mod tests {
    use emmer_store::Column;

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[Column::new("N", ColumnType::Int), Column::new("Items", ColumnType::List)],
        schema_version: 1,
        one_moment: true,
    };

    fn some(text: &str) -> Option<CqlValue> {
        Some(CqlValue::Text(text.into()))
    }

    #[test]
    fn rows_are_understood_or_named() {
        let items = Value::List(vec!["a".into(), "".into()]);
        let row = vec![some("p"), some("r"), some("e"), None, Some(cql(&items))];
        let (partition, stored) = decode(&DECL, row).unwrap().unwrap();
        assert_eq!((partition.as_str(), stored.etag.as_ref()), ("p", "e"));
        assert_eq!(stored.row, Row::new("r").with("Items", items));
        // The columns of a partition, and what a touch left behind.
        for row in [
            vec![some("p"), None, None],
            vec![some("p"), some("r"), None, Some(CqlValue::BigInt(1))],
        ] {
            assert_eq!(decode(&DECL, row), Ok(None));
        }
        let error = decode(&DECL, vec![some("p"), some("r"), some("e"), some("one")]).unwrap_err();
        assert!(error.detail.contains("one") && error.detail.contains('N'), "{error:?}");
    }
}
