//! Rows as items: one item for a row. Its columns, also volatile ones, are attributes of the
//! declared names.
//!
//! Integers are numbers, times readable text, lists lists of text. Attributes that begin with `_`
//! are the store's own: `_Etag` is the row's etag, `_Written` of a version row names the other rows
//! of its last commit, and `_Recent` those of its last commits, as far as there is room. A volatile
//! column is in every item, null where it has no value, so that `if_not_exists` tells an existing
//! item from a new one.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue as Attribute;
use emmer_core::Timestamp;
use emmer_store::recent::Recent;
use emmer_store::{ColumnType, Etag, Row, StoreErrorKind, StoredRow, TableDecl, Value};
use emmer_store_keyvalue::Fault;

/// The attribute that holds the row's etag.
pub(crate) const ETAG: &str = "_Etag";
/// The attribute of a version row that names the other rows of its last commit.
pub(crate) const WRITTEN: &str = "_Written";
/// The attribute of a version row that names the rows of its last commits, as texts.
pub(crate) const RECENT: &str = "_Recent";
/// The largest item.
pub(crate) const ITEM_BYTES_MAX: usize = 400 << 10;
/// The most bytes a number takes.
const NUMBER_BYTES: usize = 21;

/// An item, as the SDK has it.
pub(crate) type Item = HashMap<String, Attribute>;

/// A value as an attribute.
pub(crate) fn attribute(value: &Value) -> Attribute {
    match value {
        Value::Int(number) => Attribute::N(number.to_string()),
        Value::Time(at) => Attribute::S(at.to_string()),
        Value::Text(text) => Attribute::S(text.to_string()),
        Value::Bytes(bytes) => Attribute::B(Blob::new(bytes.to_vec())),
        Value::List(items) => {
            Attribute::L(items.iter().map(|item| Attribute::S(item.to_string())).collect())
        }
    }
}

/// The key of a row.
pub(crate) fn key(decl: &TableDecl, partition: &str, row_key: &str) -> Item {
    [(decl.partition_key, partition), (decl.row_key, row_key)]
        .map(|(name, key)| (name.to_owned(), Attribute::S(key.to_owned())))
        .into()
}

/// The whole item of a new row with this etag.
///
/// # Errors
/// `Invalid`: it is larger than the service takes.
pub(crate) fn of(decl: &TableDecl, partition: &str, row: &Row, etag: &str) -> Result<Item, Fault> {
    let mut item = key(decl, partition, row.key());
    item.insert(ETAG.to_owned(), Attribute::S(etag.to_owned()));
    for column in decl.columns {
        match row.get(column.name) {
            Some(value) => drop(item.insert(column.name.to_owned(), attribute(value))),
            None if column.volatile => {
                drop(item.insert(column.name.to_owned(), Attribute::Null(true)));
            }
            None => {}
        }
    }
    match size(&item) {
        bytes if bytes > ITEM_BYTES_MAX => {
            let detail =
                format!("a row of {bytes} bytes with its names: an item takes {ITEM_BYTES_MAX}");
            Err(Fault::new(StoreErrorKind::Invalid, detail))
        }
        _ => Ok(item),
    }
}

/// The size of an item, as the service reckons.
pub(crate) fn size(item: &Item) -> usize {
    item.iter().map(|(name, attribute)| name.len() + bytes(attribute)).sum()
}

fn bytes(attribute: &Attribute) -> usize {
    match attribute {
        Attribute::S(text) => text.len(),
        Attribute::B(blob) => blob.as_ref().len(),
        Attribute::L(items) => 3 + items.iter().map(|item| 1 + bytes(item)).sum::<usize>(),
        Attribute::N(_) => NUMBER_BYTES,
        _ => 1,
    }
}

/// A text of an item; none when it is missing or something else.
pub(crate) fn text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name).and_then(|attribute| attribute.as_s().ok()).map(String::as_str)
}

/// The other rows that the last commit of a version row wrote.
pub(crate) fn written(item: &Item) -> Vec<String> {
    let listed = item.get(WRITTEN).and_then(|attribute| attribute.as_l().ok());
    listed.into_iter().flatten().filter_map(|key| key.as_s().ok().cloned()).collect()
}

/// The last commits that a version row with this etag names.
pub(crate) fn recent(item: &Item, etag: &Etag) -> Recent {
    let listed = item.get(RECENT).and_then(|attribute| attribute.as_l().ok());
    Recent::of_texts(etag, listed.into_iter().flatten().map_while(|text| text.as_s().ok().cloned()))
}

/// The attribute that says it.
pub(crate) fn recent_attribute(recent: &Recent, etag: &Etag) -> Attribute {
    Attribute::L(recent.to_texts(etag).into_iter().map(Attribute::S).collect())
}

/// Understands an item: its partition, and the row.
///
/// # Errors
/// `Corrupt`: a foreign writer was here.
pub(crate) fn decode(decl: &TableDecl, item: &Item) -> Result<(String, StoredRow), Fault> {
    let key = |name: &str| {
        text(item, name)
            .map(str::to_owned)
            .ok_or_else(|| Fault::corrupt(format!("an item without {name}")))
    };
    let (partition, row_key) = (key(decl.partition_key)?, key(decl.row_key)?);
    let here = |what: String| Fault::corrupt(format!("row {row_key:?}: {what}"));
    let etag = text(item, ETAG)
        .ok_or_else(|| here(format!("there is no {ETAG}: it was not written by Emmer")))?;
    let mut columns = Vec::with_capacity(decl.columns.len());
    for column in decl.columns {
        let Some(attribute) = item.get(column.name).filter(|attribute| !attribute.is_null()) else {
            continue;
        };
        let shown = || format!("{attribute:?}").chars().take(80).collect::<String>();
        let value = value(column.column_type, attribute);
        let value = value.ok_or_else(|| {
            here(format!("{} is {:?}, not {}", column.name, column.column_type, shown()))
        })?;
        columns.push((column.name, value));
    }
    let stored = StoredRow { row: Row::of(row_key, columns), etag: etag.into() };
    Ok((partition, stored))
}

fn value(column_type: ColumnType, attribute: &Attribute) -> Option<Value> {
    let text = || attribute.as_s().ok().map(String::as_str);
    Some(match column_type {
        ColumnType::Int => Value::Int(attribute.as_n().ok()?.parse().ok()?),
        ColumnType::Time => Value::Time(text()?.parse::<Timestamp>().ok()?),
        ColumnType::Text => Value::Text(text()?.into()),
        ColumnType::Bytes => Value::Bytes(attribute.as_b().ok()?.as_ref().into()),
        ColumnType::List => {
            let items =
                attribute.as_l().ok()?.iter().map(|item| Some(item.as_s().ok()?.as_str().into()));
            Value::List(items.collect::<Option<_>>()?)
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

    fn through(row: &Row) -> (Item, Row) {
        let item = of(&DECL, "p/1", row, "e.1").unwrap();
        let (partition, stored) = decode(&DECL, &item).unwrap();
        assert_eq!((partition.as_str(), stored.etag.as_ref()), ("p/1", "e.1"));
        (item, stored.row)
    }

    #[test]
    fn rows_come_back_and_are_what_an_administrator_expects() {
        for size in [0, 1, 60_000] {
            let row = Row::new("r?")
                .with("Name", Value::Text("🛫".repeat(size).into()))
                .with("Blob", Value::Bytes(vec![7; size].into()))
                .with("Items", Value::List(vec!["a\n".into(), "x".repeat(size).into()]));
            assert_eq!(through(&row).1, row, "{size}");
        }
        for ms in [i64::MAX, i64::MIN, 5] {
            let row = Row::new("r").with("At", Value::Time(Timestamp::from_millis(ms)));
            assert_eq!(through(&row).1, row);
        }
        let (item, _) = through(&Row::new("10.0.0.1-11111-7").with("N", Value::Int(i64::MIN)));
        assert_eq!(text(&item, "R"), Some("10.0.0.1-11111-7"));
        assert_eq!(item.get("N"), Some(&Attribute::N(i64::MIN.to_string())));
        assert_eq!(item.get("At"), Some(&Attribute::Null(true)), "there from the beginning");
        assert_eq!(item.get("Name"), None);
    }

    #[test]
    fn what_is_too_large_or_foreign_is_named() {
        let large = Row::new("r").with("Name", Value::Text("x".repeat(ITEM_BYTES_MAX).into()));
        let error = of(&DECL, "p", &large, "e").unwrap_err();
        assert!(
            error.kind == StoreErrorKind::Invalid && error.detail.contains("409600"),
            "{error:?}"
        );
        let item = |name: &str, attribute| {
            let mut item = of(&DECL, "p", &Row::new("r"), "e").unwrap();
            item.insert(name.to_owned(), attribute);
            decode(&DECL, &item).map(|(_, stored)| stored.row)
        };
        let text = |text: &str| Attribute::S(text.to_owned());
        assert_eq!(item("Other", text("x")).unwrap(), Row::new("r"));
        for (name, attribute, word) in [
            ("N", text("one"), "one"),
            ("N", Attribute::N("1.5".to_owned()), "1.5"),
            ("At", text("yesterday"), "yesterday"),
            ("Items", Attribute::L(vec![Attribute::Bool(true)]), "Items"),
            ("Blob", text("%"), "Blob"),
            (ETAG, Attribute::Bool(true), ETAG),
            ("R", Attribute::Bool(true), "R"),
        ] {
            let error = item(name, attribute).unwrap_err();
            assert!(
                error.kind == StoreErrorKind::Corrupt && error.detail.contains(word),
                "{error:?}"
            );
        }
    }
}
