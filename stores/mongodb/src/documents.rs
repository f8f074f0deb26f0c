//! Rows as parts of a partition's document.
//!
//! Where a row lies is a path like `rows.10%2E0%2E0%2E1-11111-7`: the server takes a point in it
//! for a step down, so keys are escaped.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::{Column, ColumnType, Etag, Row, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::Fault;
use mongodb::bson::raw::CStr;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, RawBsonRef, RawDocument};

/// The field of a document's key: the partition.
pub(crate) const ID: &str = "_id";
/// The field of the rows; each without its volatile columns.
pub(crate) const ROWS: &str = "rows";
/// The field of the volatile columns, by row.
pub(crate) const VOLATILE: &str = "volatile";
/// The field of the mark of the last commit.
pub(crate) const LAST: &str = "last";
/// The field of a row's etag.
pub(crate) const ETAG: &str = "etag";

/// A row key as the name of a field.
pub(crate) fn escape(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for c in key.chars() {
        match c {
            '.' | '$' | '%' => {
                let _ = write!(name, "%{:02X}", u32::from(c));
            }
            c => name.push(c),
        }
    }
    name
}

/// Where the row of a key lies.
pub(crate) fn row_path(key: &str) -> String {
    format!("{ROWS}.{}", escape(key))
}

/// Where a field of the row lies.
pub(crate) fn field_path(key: &str, field: &str) -> String {
    format!("{}.{field}", row_path(key))
}

/// Where the volatile columns of a row lie.
pub(crate) fn volatile_path(key: &str) -> String {
    format!("{VOLATILE}.{}", escape(key))
}

/// Where a column of a row lies.
pub(crate) fn column_path(key: &str, column: &Column) -> String {
    if column.volatile {
        format!("{}.{}", volatile_path(key), column.name)
    } else {
        field_path(key, column.name)
    }
}

/// A value as the server has it.
pub(crate) fn encode(value: &Value) -> Bson {
    match value {
        Value::Text(text) => Bson::String(text.to_string()),
        Value::Int(number) => Bson::Int64(*number),
        Value::Time(at) => Bson::DateTime(DateTime::from_millis(at.as_millis())),
        Value::Bytes(bytes) => {
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
        }
        Value::List(items) => {
            Bson::Array(items.iter().map(|item| Bson::String(item.to_string())).collect())
        }
    }
}

/// The value of a column.
fn decode_value(column: &Column, found: RawBsonRef<'_>) -> Result<Option<Value>, String> {
    let value = match (column.column_type, found) {
        (_, RawBsonRef::Null) => return Ok(None),
        (ColumnType::Text, RawBsonRef::String(text)) => Value::Text(text.into()),
        (ColumnType::Int, RawBsonRef::Int64(number)) => Value::Int(number),
        // A number as a shell writes it.
        (ColumnType::Int, RawBsonRef::Int32(number)) => Value::Int(number.into()),
        (ColumnType::Time, RawBsonRef::DateTime(at)) => {
            Value::Time(Timestamp::from_millis(at.timestamp_millis()))
        }
        (ColumnType::Bytes, RawBsonRef::Binary(found)) => Value::Bytes(found.bytes.into()),
        (ColumnType::List, RawBsonRef::Array(items)) => {
            let text = |item| {
                if let Ok(RawBsonRef::String(text)) = item { Some(Arc::from(text)) } else { None }
            };
            let items: Option<Vec<Arc<str>>> = items.into_iter().map(text).collect();
            Value::List(
                items.ok_or_else(|| format!("{} holds something else than texts", column.name))?,
            )
        }
        (wanted, other) => {
            let shown: String = format!("{other:?}").chars().take(80).collect();
            return Err(format!("{} is {wanted:?}, not {shown}", column.name));
        }
    };
    Ok(Some(value))
}

/// The bytes of a row's values, and something for each name.
pub(crate) fn size(row: &Row) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(|item| item.len() + 8).sum(),
        Value::Int(_) | Value::Time(_) => 8,
    };
    row.columns().iter().map(|(name, content)| name.len() + value(content)).sum()
}

/// A row without its volatile columns, with the mark of the commit that writes it.
pub(crate) fn row_of(decl: &TableDecl, partition: &str, row: &Row, mark: &str) -> Document {
    let mut document = Document::new();
    document.insert(ETAG, mark);
    document.insert(decl.partition_key, partition);
    document.insert(decl.row_key, row.key());
    for column in decl.columns.iter().filter(|column| !column.volatile) {
        if let Some(value) = row.get(column.name) {
            document.insert(column.name, encode(value));
        }
    }
    document
}

/// The volatile columns of a row; none where it has none.
pub(crate) fn volatile_of(decl: &TableDecl, row: &Row) -> Option<Document> {
    let brought = decl.columns.iter().filter(|column| column.volatile);
    let brought = brought.filter_map(|c| Some((c.name.to_owned(), encode(row.get(c.name)?))));
    let brought: Document = brought.collect();
    (!brought.is_empty()).then_some(brought)
}

/// The fields of a document that is a field of another; none where there is no such field.
fn fields<'d>(
    document: &'d RawDocument,
    name: &str,
) -> Result<Vec<(&'d str, &'d RawDocument)>, Fault> {
    let foreign = || Fault::corrupt(format!("the field {name} of a partition holds no rows"));
    let found = match document.get(name).map_err(|_| foreign())? {
        None | Some(RawBsonRef::Null) => return Ok(Vec::new()),
        Some(RawBsonRef::Document(found)) => found,
        Some(_) => return Err(foreign()),
    };
    let field = |field| match field {
        Ok((name, RawBsonRef::Document(content))) => Ok((name_of(name), content)),
        _ => Err(foreign()),
    };
    found.iter().map(field).collect()
}

/// The name of a field.
fn name_of(name: &CStr) -> &str {
    name.as_str()
}

/// The rows of a partition's document, ordered by row key.
///
/// # Errors
/// A foreign writer was here: the row is named.
pub(crate) fn rows(decl: &TableDecl, document: &RawDocument) -> Result<Vec<StoredRow>, Fault> {
    let volatile: BTreeMap<&str, &RawDocument> = fields(document, VOLATILE)?.into_iter().collect();
    let found = fields(document, ROWS)?;
    let mut rows = Vec::with_capacity(found.len());
    for (name, content) in found {
        let row = decode(decl, name, content, volatile.get(name).copied());
        rows.push(row.map_err(|why| Fault::corrupt(format!("row {name:?}: {why}")))?);
    }
    rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
    Ok(rows)
}

fn decode(
    decl: &TableDecl,
    name: &str,
    content: &RawDocument,
    beside: Option<&RawDocument>,
) -> Result<StoredRow, String> {
    let (mut key, mut etag) = (None, None::<Etag>);
    let mut columns = Vec::with_capacity(decl.columns.len());
    let beside = beside.into_iter().flat_map(RawDocument::iter).map(|field| (field, true));
    for (field, volatile) in content.iter().map(|field| (field, false)).chain(beside) {
        let (field, value) = field.map_err(|e| e.to_string())?;
        match (name_of(field), value) {
            (ETAG, RawBsonRef::String(text)) if !volatile => etag = Some(text.into()),
            (field, RawBsonRef::String(text)) if field == decl.row_key => key = Some(text),
            (field, _) if field == decl.partition_key => {}
            (field, value) => {
                let column =
                    decl.column(field).map(|(_, column)| column).filter(|c| c.volatile == volatile);
                let column = column.ok_or_else(|| format!("{field:?} is not a column here"))?;
                if let Some(value) = decode_value(column, value)? {
                    columns.push((column.name, value));
                }
            }
        }
    }
    let key =
        key.filter(|key| escape(key) == name).ok_or("its key is another one's, or missing")?;
    let etag = etag.ok_or("it has no etag")?;
    Ok(StoredRow { row: Row::of(key, columns), etag })
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{RawDocumentBuf, doc};

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("A", ColumnType::Text),
            Column::new("B", ColumnType::Int),
            Column::new("C", ColumnType::Time),
            Column::new("D", ColumnType::Bytes),
            Column::new("E", ColumnType::List),
            Column::new("F", ColumnType::Time).volatile(),
        ],
        schema_version: 1,
        one_moment: true,
    };

    fn read(document: &Document) -> Result<Vec<StoredRow>, Fault> {
        rows(&DECL, &RawDocumentBuf::try_from(document).unwrap())
    }

    fn document(key: &str, row: &Row) -> Document {
        let mut document = doc! { "_id": "p", "last": "m.1", "rows": {}, "volatile": {} };
        document
            .get_document_mut("rows")
            .unwrap()
            .insert(escape(key), row_of(&DECL, "p", row, "m.1"));
        if let Some(volatile) = volatile_of(&DECL, row) {
            document.get_document_mut("volatile").unwrap().insert(escape(key), volatile);
        }
        document
    }

    #[test]
    fn rows_come_back_and_their_fields_are_no_paths() {
        for key in ["10.0.0.1-11111-7", "$set", "%2E", "a..b", "17", "🛫"] {
            let at = |ms| Value::Time(Timestamp::from_millis(ms));
            let row = Row::new(key)
                .with("A", Value::Text("$a.b".into()))
                .with("B", Value::Int(i64::MIN))
                .with("C", at(1_795_265_085_123))
                .with("D", Value::Bytes([0, 255].into()))
                .with("E", Value::List(vec!["".into(), "x".into()]))
                .with("F", at(-1));
            let document = document(key, &row);
            assert!(escape(key).chars().all(|c| c != '.' && c != '$'), "{key}");
            let found = read(&document).unwrap();
            assert_eq!(found, [StoredRow { row, etag: "m.1".into() }]);
        }
        assert_ne!(escape("a.b"), escape("a%2Eb"));
        assert_eq!(read(&doc! { "_id": "p" }), Ok(Vec::new()));
    }

    #[test]
    fn rows_are_in_the_order_of_their_keys_and_not_of_their_fields() {
        let mut both = document("a.", &Row::new("a."));
        let other = document("a-", &Row::new("a-"));
        both.get_document_mut("rows").unwrap().extend(other.get_document("rows").unwrap().clone());
        let found = read(&both).unwrap();
        assert_eq!(found.iter().map(|row| row.row.key()).collect::<Vec<_>>(), ["a-", "a."]);
    }

    #[test]
    fn what_a_foreign_hand_wrote_is_named() {
        for (row, word) in [
            (doc! { "etag": "x", "R": "k", "B": "1" }, "B"),
            (doc! { "etag": "x", "R": "k", "Colour": "red" }, "Colour"),
            (doc! { "etag": "x", "R": "k", "F": DateTime::from_millis(1) }, "F"),
            (doc! { "etag": "x", "R": "k", "E": [1] }, "E"),
            (doc! { "etag": "x", "R": "l" }, "another"),
            (doc! { "R": "k" }, "etag"),
        ] {
            let error = read(&doc! { "_id": "p", "rows": { "k": row } }).unwrap_err();
            assert!(error.detail.contains(word) && error.detail.contains("\"k\""), "{error:?}");
        }
        assert!(read(&doc! { "_id": "p", "rows": { "k": 1 } }).is_err());
        assert!(read(&doc! { "_id": "p", "rows": [] }).is_err());
        // A shell writes small numbers so.
        let shell = doc! { "_id": "p", "rows": { "k": { "etag": "x", "R": "k", "B": 7_i32 } } };
        assert_eq!(read(&shell).unwrap()[0].row.get("B"), Some(&Value::Int(7)));
    }
}
