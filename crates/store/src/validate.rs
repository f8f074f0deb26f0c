//! The limits every request keeps: one set of checks, called by every store before it sends
//! anything.
//!
//! The numbers are the smallest ceilings among the real servers, so that a program that runs on one
//! store runs on all of them.

use std::fmt;

use emmer_core::limits::COMMIT_MUTATIONS_MAX;

use crate::contract::{Mutation, StoreError, StoreErrorKind};
pub use crate::limits::{PARTITION_KEY_BYTES_MAX, ROW_KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// The most rows in one append.
pub const APPEND_ROWS_MAX: usize = 1_000;

/// The most rows in one sample ([`SystemStore::read_some`](crate::SystemStore::read_some)): with a
/// partition's fence they fit one transaction of Consul (64 operations).
pub const SAMPLE_ROWS_MAX: usize = 50;

/// A rule of the contract that a request breaks. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    /// The error a store answers with.
    pub fn at(self, store: impl Into<String>, operation: impl Into<String>) -> StoreError {
        StoreError::new(StoreErrorKind::Invalid, store, operation, self.0)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

type Checked = Result<(), Violation>;

fn refuse(text: impl Into<String>) -> Checked {
    Err(Violation(text.into()))
}

/// Checks a declaration: names of letters, digits and underscores that no store reserves, each
/// once; volatile and indexed only where they mean something.
///
/// # Errors
/// The first rule broken.
pub fn table(decl: &TableDecl) -> Checked {
    let legal = |name: &str| {
        name.len() <= 60
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.eq_ignore_ascii_case("etag")
    };
    let mut names = vec![decl.partition_key, decl.row_key];
    names.extend(decl.columns.iter().map(|c| c.name));
    if !legal(decl.name) || decl.name.starts_with("emmer_") {
        return refuse(format!("{:?} is not a table name", decl.name));
    }
    for (i, name) in names.iter().enumerate() {
        if !legal(name) || names.iter().take(i).any(|n| n.eq_ignore_ascii_case(name)) {
            return refuse(format!(
                "table {}: {name:?} is not a column name, or appears twice",
                decl.name
            ));
        }
    }
    match decl.columns.iter().find(|c| c.indexed && c.column_type != ColumnType::Int) {
        Some(column) => {
            refuse(format!("table {}: column {} is indexed but no integer", decl.name, column.name))
        }
        None => Ok(()),
    }
}

/// Checks a partition key.
///
/// # Errors
/// It is empty, too long or holds a control character.
pub fn partition_key(key: &str) -> Checked {
    self::key("partition key", key, PARTITION_KEY_BYTES_MAX)
}

/// Checks a row key.
///
/// # Errors
/// It is empty, too long or holds a control character.
pub fn row_key(key: &str) -> Checked {
    self::key("row key", key, ROW_KEY_BYTES_MAX)
}

fn key(what: &str, key: &str, max: usize) -> Checked {
    if key.is_empty() {
        refuse(format!("an empty {what}"))
    } else if key.len() > max {
        refuse(format!("a {what} of {} bytes, at most {max} are allowed", key.len()))
    } else if key.chars().any(char::is_control) {
        refuse(format!("a {what} with a control character: {key:?}"))
    } else {
        Ok(())
    }
}

/// Checks a commit: its size, one mutation per row, keys, columns and values.
///
/// # Errors
/// The first rule broken.
pub fn commit(decl: &TableDecl, partition: &str, mutations: &[Mutation]) -> Checked {
    partition_key(partition)?;
    if mutations.len() > COMMIT_MUTATIONS_MAX {
        return refuse(format!(
            "{} mutations, at most {COMMIT_MUTATIONS_MAX} are allowed",
            mutations.len()
        ));
    }
    let mut keys: Vec<&str> = mutations.iter().map(Mutation::row_key).collect();
    keys.sort_unstable();
    if let Some(pair) = keys.windows(2).find(|pair| pair.first() == pair.last()) {
        return refuse(format!("two mutations of row {:?}", pair.first().unwrap_or(&"")));
    }
    for mutation in mutations {
        match mutation {
            Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
                self::row(decl, row)?;
            }
            Mutation::Delete { row_key, .. } | Mutation::Check { row_key, .. } => {
                self::row_key(row_key)?;
            }
        }
    }
    Ok(())
}

/// Checks a row: its key, and that each column exists and has a value of its type.
///
/// # Errors
/// The first rule broken.
pub fn row(decl: &TableDecl, row: &Row) -> Checked {
    row_key(row.key())?;
    row.columns().iter().try_for_each(|(name, value)| self::value(column(decl, name)?, value))
}

/// Checks a touch.
///
/// # Errors
/// The column is not there, not volatile or of another type, or a key is not legal.
pub fn touch(
    decl: &TableDecl,
    partition: &str,
    row_key: &str,
    name: &str,
    value: &Value,
) -> Checked {
    partition_key(partition)?;
    self::row_key(row_key)?;
    let column = column(decl, name)?;
    if !column.volatile {
        return refuse(format!(
            "column {name} of {} is not volatile: only a commit may set it",
            decl.name
        ));
    }
    self::value(column, value)
}

/// Checks a sample.
///
/// # Errors
/// Too many rows are wanted, or a key is not legal.
pub fn read_some(partition: &str, from: &str, limit: usize) -> Checked {
    partition_key(partition)?;
    row_key(from)?;
    if limit > SAMPLE_ROWS_MAX {
        return refuse(format!("a sample of {limit} rows, at most {SAMPLE_ROWS_MAX} are allowed"));
    }
    Ok(())
}

/// Checks a scan.
///
/// # Errors
/// The column is not there or not indexed.
pub fn scan(decl: &TableDecl, name: &str) -> Checked {
    if column(decl, name)?.indexed {
        Ok(())
    } else {
        refuse(format!("column {name} of {} is not indexed", decl.name))
    }
}

/// Checks an append.
///
/// # Errors
/// Too many rows, or one of them breaks a rule.
pub fn append(decl: &TableDecl, partition: &str, rows: &[Row]) -> Checked {
    partition_key(partition)?;
    if rows.len() > APPEND_ROWS_MAX {
        return refuse(format!("{} rows, at most {APPEND_ROWS_MAX} are allowed", rows.len()));
    }
    rows.iter().try_for_each(|row| self::row(decl, row))
}

/// Checks a clean-up.
///
/// # Errors
/// The column is not there or no time.
pub fn delete_older_than(decl: &TableDecl, partition: &str, name: &str) -> Checked {
    partition_key(partition)?;
    if column(decl, name)?.column_type == ColumnType::Time {
        Ok(())
    } else {
        refuse(format!("column {name} of {} is not a time", decl.name))
    }
}

fn column(decl: &TableDecl, name: &str) -> Result<&'static Column, Violation> {
    let unknown = || Violation(format!("table {} has no column {name}", decl.name));
    decl.column(name).map(|(_, column)| column).ok_or_else(unknown)
}

fn value(column: &Column, value: &Value) -> Checked {
    if value.column_type() != column.column_type {
        return refuse(format!(
            "column {} is {:?}, the value is {:?}",
            column.name,
            column.column_type,
            value.column_type()
        ));
    }
    let (bytes, nul) = match value {
        Value::Text(text) => (text.len(), text.contains('\0')),
        Value::List(items) => {
            (items.iter().map(|i| i.len()).sum(), items.iter().any(|i| i.contains('\0')))
        }
        Value::Bytes(bytes) => (bytes.len(), false),
        Value::Int(_) | Value::Time(_) => (8, false),
    };
    if bytes > VALUE_BYTES_MAX {
        refuse(format!(
            "{bytes} bytes in column {}, at most {VALUE_BYTES_MAX} are allowed",
            column.name
        ))
    } else if nul {
        // PostgreSQL's text cannot hold it.
        refuse(format!("U+0000 in column {}", column.name))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn decl(name: &'static str, columns: &'static [Column]) -> TableDecl {
        TableDecl {
            name,
            partition_key: "P",
            row_key: "R",
            columns,
            schema_version: 1,
            one_moment: true,
        }
    }

    #[test]
    fn declarations_are_checked() {
        static GOOD: TableDecl = decl("good_1", &[Column::new("A", ColumnType::Int).indexed()]);
        static BAD: [TableDecl; 6] = [
            decl("bad name", &[]),
            decl("emmer_meta", &[]),
            decl("t", &[Column::new("Etag", ColumnType::Int)]),
            decl("t", &[Column::new("p", ColumnType::Int)]),
            decl("t", &[Column::new("A", ColumnType::Text).indexed()]),
            decl("t", &[Column::new("A", ColumnType::Text), Column::new("A", ColumnType::Text)]),
        ];
        assert!(table(&GOOD).is_ok());
        for bad in &BAD {
            assert!(table(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_keep_their_lengths() {
        assert!(row_key(&"ä".repeat(256)).is_ok());
        assert!(row_key(&"ä".repeat(257)).unwrap_err().to_string().contains("514 bytes"));
        assert!(partition_key("").is_err() && partition_key("a\nb").is_err());
    }
}
