//! The statements for one table, made from its declaration once per connection.

use std::fmt::Write as _;

use emmer_store::TableDecl;
use emmer_store_relational::{Names, Statements, names};

use crate::dialect::Sqlite;

/// Every statement with a fixed text. `?1` is the partition key, `?2` the row key, `?3` the new
/// etag, then the columns in order, then the expected etag.
pub(crate) struct TableSql {
    /// Reads.
    pub(crate) shared: Statements,
    pub(crate) etag: String,
    pub(crate) insert: String,
    pub(crate) upsert: String,
    pub(crate) replace: String,
    pub(crate) delete: String,
    pub(crate) delete_if: String,
}

impl TableSql {
    pub(crate) fn new(decl: &TableDecl) -> Self {
        let Names { table, partition, row, etag, columns } = Names::new(&Sqlite, decl);
        let names: String = columns.iter().map(|name| format!(", {name}")).collect();
        let marks: String = (0..columns.len()).map(|i| format!(", ?{}", i + 4)).collect();
        let this_row = format!("{partition} = ?1 AND {row} = ?2");
        let (mut from_new, mut from_marks) = (String::new(), String::new());
        let lasting =
            columns.iter().zip(decl.columns).enumerate().filter(|(_, (_, c))| !c.volatile);
        for (i, (name, _)) in lasting {
            // Writing to a String cannot fail.
            let _ = write!(from_new, ", {name} = excluded.{name}");
            let _ = write!(from_marks, ", {name} = ?{}", i + 4);
        }
        let insert = format!(
            "INSERT INTO {table} ({partition}, {row}, {etag}{names}) VALUES (?1, ?2, ?3{marks})"
        );
        Self {
            shared: Statements::new(&Sqlite, decl),
            etag: format!("SELECT {etag} FROM {table} WHERE {this_row}"),
            upsert: format!(
                "{insert} ON CONFLICT ({partition}, {row}) DO UPDATE SET {etag} = \
                 excluded.{etag}{from_new}"
            ),
            insert: format!("{insert} ON CONFLICT ({partition}, {row}) DO NOTHING"),
            replace: format!(
                "UPDATE {table} SET {etag} = ?3{from_marks} WHERE {this_row} AND {etag} = ?{}",
                expected_etag(decl)
            ),
            delete: format!("DELETE FROM {table} WHERE {this_row}"),
            delete_if: format!("DELETE FROM {table} WHERE {this_row} AND {etag} = ?3"),
        }
    }
}

/// The number of the parameter that holds the expected etag of a replace.
pub(crate) const fn expected_etag(decl: &TableDecl) -> usize {
    decl.columns.len() + 4
}

/// Deletes the rows of a partition whose `column` is below `?2`.
pub(crate) fn delete_older_than(decl: &TableDecl, column: &str) -> String {
    let Names { table, partition, .. } = Names::new(&Sqlite, decl);
    format!(
        "DELETE FROM {table} WHERE {partition} = ?1 AND {} < ?2",
        names::quoted(&Sqlite, column)
    )
}
