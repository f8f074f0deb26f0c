//! SQLite's SQL.

use emmer_store::{Column, ColumnType};
use emmer_store_relational::{Dialect, SqlType, names};

/// The dialect. Names stay as they are declared; SQLite finds them in any case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sqlite;

impl Dialect for Sqlite {
    fn name_bytes_max(&self) -> usize {
        // SQLite has no limit of its own.
        usize::MAX
    }

    fn fold(&self, name: &str) -> String {
        // As every file has it.
        if name == names::ETAG { "Etag".to_owned() } else { name.to_owned() }
    }

    fn quote(&self, folded: &str) -> String {
        format!("\"{folded}\"")
    }

    fn parameter(&self, number: usize) -> String {
        format!("?{number}")
    }

    fn declared_type(&self, sql_type: SqlType) -> String {
        self.reported_type(sql_type)
    }

    fn reported_type(&self, sql_type: SqlType) -> String {
        let name = match sql_type {
            // Lists are JSON arrays of texts. Texts are compared by their bytes.
            SqlType::Key(_) | SqlType::Column(ColumnType::Text | ColumnType::List) => "TEXT",
            // Times are milliseconds since 1970 UTC.
            SqlType::Etag | SqlType::Column(ColumnType::Int | ColumnType::Time) => "INTEGER",
            SqlType::Column(ColumnType::Bytes) => "BLOB",
        };
        name.to_owned()
    }

    fn table_options(&self, columns: &[Column]) -> String {
        // Rows inside the key's own tree save a second search; with large values they would spread
        // the keys too thin.
        let large = columns.iter().any(|c| c.column_type == ColumnType::Bytes);
        if large { " STRICT" } else { " STRICT, WITHOUT ROWID" }.to_owned()
    }

    fn at_most(&self, parameter: &str) -> String {
        format!("LIMIT {parameter}")
    }
}
