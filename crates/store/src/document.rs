//! Rows as JSON objects with the declared column names, for servers that keep documents instead of
//! columns.
//!
//! `{"PartitionKey":"prod","RowKey":"10.0.0.1-11111-1795265085000000","Status":"Active","SuspectingSilos":[],...}`:
//! integers are numbers, times RFC 3339 in UTC with milliseconds, bytes base64, lists arrays of
//! texts. A null column is left out. The keys are there for people; reading takes them from the
//! place the document was found at.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value as Json};

use crate::one_pass;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// `row` of `partition` as JSON on one line, with the columns in `wanted`, in declared order.
pub fn encode(
    decl: &TableDecl,
    partition: &str,
    row: &Row,
    wanted: impl Fn(&Column) -> bool,
) -> String {
    let mut text = String::with_capacity(512);
    let mut field = |name: &str, value: &Json| {
        text.push(if text.is_empty() { '{' } else { ',' });
        // `Display` of a JSON value escapes what must be escaped; the names of columns need none. A
        // string takes everything.
        let _ = write!(text, "\"{name}\":{value}");
    };
    field(decl.partition_key, &partition.into());
    field(decl.row_key, &row.key().into());
    for column in decl.columns.iter().filter(|column| wanted(column)) {
        if let Some(value) = row.get(column.name) {
            field(column.name, &encode_value(value));
        }
    }
    text.push('}');
    text
}

/// The row under `row_key` that [`encode`] wrote.
///
/// # Errors
/// In words: no JSON object, a column that is not declared or has a value of another type.
pub fn decode(decl: &TableDecl, row_key: &str, text: &[u8]) -> Result<Row, String> {
    one_pass::row(decl, row_key, text).map_or_else(|| decode_slowly(decl, row_key, text), Ok)
}

/// Decodes a document that is not as [`encode`] writes them, or whose fault is to be named.
fn decode_slowly(decl: &TableDecl, row_key: &str, text: &[u8]) -> Result<Row, String> {
    let fields: Map<String, Json> = serde_json::from_slice(text)
        .map_err(|error| format!("row {row_key:?} is not a JSON object: {error}"))?;
    let mut columns = Vec::with_capacity(fields.len());
    for (name, json) in &fields {
        if name == decl.partition_key || name == decl.row_key {
            continue;
        }
        let Some((_, column)) = decl.column(name) else {
            return Err(format!("row {row_key:?} has a column {name:?} that is not declared"));
        };
        if let Some(value) =
            decode_value(column, json).map_err(|error| format!("row {row_key:?}: {error}"))?
        {
            columns.push((column.name, value));
        }
    }
    Ok(Row::of(row_key, columns))
}

/// One value as JSON.
pub fn encode_value(value: &Value) -> Json {
    match value {
        Value::Text(text) => Json::from(text.as_ref()),
        Value::Int(number) => Json::from(*number),
        Value::Time(at) => Json::from(at.to_string()),
        Value::Bytes(bytes) => Json::from(BASE64.encode(bytes)),
        Value::List(items) => items.iter().map(|item| Json::from(item.as_ref())).collect(),
    }
}

/// The value that [`encode_value`] wrote for `column`; none for `null`.
///
/// # Errors
/// In words: it is of another type.
pub fn decode_value(column: &Column, json: &Json) -> Result<Option<Value>, String> {
    let found = match (column.column_type, json) {
        (_, Json::Null) => return Ok(None),
        (ColumnType::Text, Json::String(text)) => Some(Value::Text(text.as_str().into())),
        (ColumnType::Int, Json::Number(number)) => number.as_i64().map(Value::Int),
        (ColumnType::Time, Json::String(text)) => text.parse().ok().map(Value::Time),
        (ColumnType::Bytes, Json::String(text)) => {
            BASE64.decode(text).ok().map(|b| Value::Bytes(b.into()))
        }
        (ColumnType::List, Json::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(Into::into))
            .collect::<Option<_>>()
            .map(Value::List),
        _ => None,
    };
    let shown = || json.to_string().chars().take(80).collect::<String>();
    found
        .map(Some)
        .ok_or_else(|| format!("{} is {:?}, not {}", column.name, column.column_type, shown()))
}

/// The declaration itself as JSON, to be kept with the table and compared by every process that
/// opens it.
pub fn declaration(decl: &TableDecl) -> String {
    let columns = decl.columns.iter().map(|column| {
        serde_json::json!({
            "name": column.name,
            "type": format!("{:?}", column.column_type).to_ascii_lowercase(),
            "volatile": column.volatile,
            "indexed": column.indexed,
        })
    });
    let json = serde_json::json!({
        "table": decl.name,
        "schema_version": decl.schema_version,
        "partition_key": decl.partition_key,
        "row_key": decl.row_key,
        "columns": columns.collect::<Vec<_>>(),
    });
    json.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use emmer_core::Timestamp;

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "things",
        partition_key: "Part",
        row_key: "Id",
        columns: &[
            Column::new("Name", ColumnType::Text),
            Column::new("Number", ColumnType::Int).indexed(),
            Column::new("At", ColumnType::Time).volatile(),
            Column::new("Blob", ColumnType::Bytes),
            Column::new("Items", ColumnType::List),
        ],
        schema_version: 1,
        one_moment: true,
    };

    #[test]
    fn rows_come_back_and_are_readable() {
        let at = Timestamp::from_millis(1_795_265_085_123);
        let row = Row::new("a \"b\"")
            .with("Name", Value::Text("it's \u{1}🛫".into()))
            .with("Number", Value::Int(i64::MIN))
            .with("At", Value::Time(at))
            .with("Blob", Value::Bytes([0, 255, 7].into()))
            .with("Items", Value::List(vec![Arc::from(""), Arc::from("x,\"y")]));
        let text = encode(&DECL, "p", &row, |_| true);
        assert!(text.starts_with(r#"{"Part":"p","Id":"a \"b\"","Name":"#), "{text}");
        assert!(text.contains(r#""At":"2026-11-21T12:44:45.123Z""#), "{text}");
        assert_eq!(one_pass::row(&DECL, "a \"b\"", text.as_bytes()).as_ref(), Some(&row));
        assert_eq!(decode_slowly(&DECL, "a \"b\"", text.as_bytes()), Ok(row));
        let empty = Row::new("r");
        assert_eq!(encode(&DECL, "p", &empty, |_| true), r#"{"Part":"p","Id":"r"}"#);
        let stable =
            encode(&DECL, "p", &Row::new("r").with("At", Value::Time(at)), |c| !c.volatile);
        assert_eq!(decode(&DECL, "r", stable.as_bytes()), Ok(empty));
    }

    #[test]
    fn nulls_blanks_and_repetitions_are_understood() {
        let text = br#" { "Id" : 7, "Name" : null, "Number" : 1, "Items" : [ ], "Number" : 2 } "#;
        let row =
            Row::new("r").with("Number", Value::Int(2)).with("Items", Value::List(Vec::new()));
        assert_eq!(decode(&DECL, "r", text), Ok(row));
    }

    #[test]
    fn times_beyond_the_calendar_come_back() {
        for ms in [i64::MAX, i64::MIN, 253_402_300_799_999, -1] {
            let row = Row::new("r").with("At", Value::Time(Timestamp::from_millis(ms)));
            assert_eq!(decode(&DECL, "r", encode(&DECL, "p", &row, |_| true).as_bytes()), Ok(row));
        }
    }

    #[test]
    fn what_a_foreign_hand_wrote_is_named() {
        for (text, word) in [
            ("[]", "JSON"),
            (r#"{"Number":"1"}"#, "Number"),
            (r#"{"Number":1.5}"#, "1.5"),
            (r#"{"At":"yesterday"}"#, "yesterday"),
            (r#"{"Blob":"%"}"#, "Blob"),
            (r#"{"Items":[1]}"#, "Items"),
            (r#"{"Colour":"red"}"#, "Colour"),
        ] {
            let error = decode(&DECL, "r", text.as_bytes()).unwrap_err();
            assert!(error.contains(word) && error.contains("\"r\""), "{error}");
        }
        assert_eq!(decode(&DECL, "r", br#"{"Number":null}"#), Ok(Row::new("r")));
    }

    #[test]
    fn declarations_differ_when_tables_do() {
        let other = TableDecl { schema_version: 2, ..DECL };
        assert_ne!(declaration(&DECL), declaration(&other));
        assert!(declaration(&DECL).contains(r#""name":"Number""#));
    }
}
