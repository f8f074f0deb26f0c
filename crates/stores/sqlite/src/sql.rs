//! The statements for one table, made from its declaration once per connection.

use std::fmt::Write as _;

use emmer_store::{ColumnType, TableDecl};

/// Every statement with a fixed text. `?1` is the partition key, `?2` the row key, `?3` the new etag, then the columns in
/// order, then the expected etag.
pub(crate) struct TableSql {
    pub(crate) read_partition: String,
    pub(crate) read_row: String,
    pub(crate) etag: String,
    pub(crate) insert: String,
    pub(crate) upsert: String,
    pub(crate) replace: String,
    pub(crate) delete: String,
    pub(crate) delete_if: String,
    /// Everything up to `WHERE`, for scans.
    select: String,
    order: String,
}

impl TableSql {
    pub(crate) fn new(decl: &TableDecl) -> Self {
        let (table, part, row) = (quoted(decl.name), quoted(decl.partition_key), quoted(decl.row_key));
        let names: String = decl.columns.iter().map(|c| format!(", {}", quoted(c.name))).collect();
        let marks: String = (0..decl.columns.len()).map(|i| format!(", ?{}", i + 4)).collect();
        let this_row = format!("{part} = ?1 AND {row} = ?2");
        let mut from_new = String::new();
        let mut from_marks = String::new();
        for (i, column) in decl.columns.iter().enumerate().filter(|(_, c)| !c.volatile) {
            let name = quoted(column.name);
            // Writing to a String cannot fail.
            let _ = write!(from_new, ", {name} = excluded.{name}");
            let _ = write!(from_marks, ", {name} = ?{}", i + 4);
        }
        let select = format!("SELECT {row}, \"Etag\"{names} FROM {table}");
        let insert =
            format!("INSERT INTO {table} ({part}, {row}, \"Etag\"{names}) VALUES (?1, ?2, ?3{marks})");
        Self {
            read_partition: format!("{select} WHERE {part} = ?1 ORDER BY {row}"),
            read_row: format!("{select} WHERE {this_row}"),
            etag: format!("SELECT \"Etag\" FROM {table} WHERE {this_row}"),
            upsert: format!(
                "{insert} ON CONFLICT ({part}, {row}) DO UPDATE SET \"Etag\" = excluded.\"Etag\"{from_new}"
            ),
            insert: format!("{insert} ON CONFLICT ({part}, {row}) DO NOTHING"),
            replace: format!(
                "UPDATE {table} SET \"Etag\" = ?3{from_marks} WHERE {this_row} AND \"Etag\" = ?{}",
                expected_etag(decl)
            ),
            delete: format!("DELETE FROM {table} WHERE {this_row}"),
            delete_if: format!("DELETE FROM {table} WHERE {this_row} AND \"Etag\" = ?3"),
            order: format!("ORDER BY {part}, {row}"),
            select,
        }
    }

    /// Rows whose integer `column` is from `?1` to `?2`, or outside when it wraps around; at most `?3`.
    pub(crate) fn scan(&self, column: &str, wraps: bool) -> String {
        let (column, word) = (quoted(column), if wraps { "OR" } else { "AND" });
        format!("{} WHERE ({column} >= ?1 {word} {column} <= ?2) {} LIMIT ?3", self.select, self.order)
    }
}

/// The number of the parameter that holds the expected etag of a replace.
pub(crate) const fn expected_etag(decl: &TableDecl) -> usize {
    decl.columns.len() + 4
}

/// Sets `column` of one row to `?3`.
pub(crate) fn touch(decl: &TableDecl, column: &str) -> String {
    let (table, part, row) = (quoted(decl.name), quoted(decl.partition_key), quoted(decl.row_key));
    format!("UPDATE {table} SET {} = ?3 WHERE {part} = ?1 AND {row} = ?2", quoted(column))
}

/// Deletes the rows of a partition whose `column` is below `?2`.
pub(crate) fn delete_older_than(decl: &TableDecl, column: &str) -> String {
    let (table, part) = (quoted(decl.name), quoted(decl.partition_key));
    format!("DELETE FROM {table} WHERE {part} = ?1 AND {} < ?2", quoted(column))
}

/// The statements that make a table and its indexes.
pub(crate) fn create(decl: &TableDecl) -> String {
    let (table, part, row) = (quoted(decl.name), quoted(decl.partition_key), quoted(decl.row_key));
    let columns: String =
        decl.columns.iter().map(|c| format!(", {} {}", quoted(c.name), type_name(c.column_type))).collect();
    // Rows inside the key's own tree save a second search; with large values they would spread the keys too thin.
    let large = decl.columns.iter().any(|c| c.column_type == ColumnType::Bytes);
    let layout = if large { "STRICT" } else { "STRICT, WITHOUT ROWID" };
    let sql = format!(
        "CREATE TABLE {table} ({part} TEXT NOT NULL, {row} TEXT NOT NULL, \"Etag\" INTEGER NOT NULL{columns}, \
         PRIMARY KEY ({part}, {row})) {layout};"
    );
    sql + &indexes(decl)
}

fn indexes(decl: &TableDecl) -> String {
    let index = |column: &emmer_store::Column| {
        let index = quoted(&format!("{}_by_{}", decl.name, column.name));
        format!(" CREATE INDEX IF NOT EXISTS {index} ON {} ({});", quoted(decl.name), quoted(column.name))
    };
    decl.columns.iter().filter(|c| c.indexed).map(index).collect()
}

/// The statements that add what a table with the columns `found` lacks.
pub(crate) fn forward(decl: &TableDecl, found: &[(String, String)]) -> String {
    let is_new = |column: &&emmer_store::Column| found.iter().all(|(name, _)| name != column.name);
    let add = |column: &emmer_store::Column| {
        let (table, type_name) = (quoted(decl.name), type_name(column.column_type));
        format!("ALTER TABLE {table} ADD COLUMN {} {type_name};", quoted(column.name))
    };
    decl.columns.iter().filter(is_new).map(add).collect::<String>() + &indexes(decl)
}

/// The columns and their types as SQLite reports them for a table made by [`create`].
pub(crate) fn shape(decl: &TableDecl) -> Vec<(String, String)> {
    let keys = [(decl.partition_key, "TEXT"), (decl.row_key, "TEXT"), ("Etag", "INTEGER")];
    let columns = decl.columns.iter().map(|c| (c.name, type_name(c.column_type)));
    keys.into_iter().chain(columns).map(|(n, t)| (n.to_owned(), t.to_owned())).collect()
}

const fn type_name(column_type: ColumnType) -> &'static str {
    match column_type {
        // Lists are JSON arrays of texts.
        ColumnType::Text | ColumnType::List => "TEXT",
        // Times are milliseconds since 1970 UTC.
        ColumnType::Int | ColumnType::Time => "INTEGER",
        ColumnType::Bytes => "BLOB",
    }
}

/// Declared names hold no quotes (they are checked), so this is enough.
fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}
