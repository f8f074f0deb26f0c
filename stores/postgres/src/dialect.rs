//! PostgreSQL's SQL.

use emmer_store::ColumnType;
use emmer_store_relational::{Dialect, SqlType};

/// The dialect of PostgreSQL. Names are folded to lower case, as the server folds them:
/// `SELECT RowKey, Status FROM silo_instances` needs no quotes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Postgres;

impl Dialect for Postgres {
    fn name_bytes_max(&self) -> usize {
        63
    }

    fn fold(&self, name: &str) -> String {
        name.to_ascii_lowercase()
    }

    fn quote(&self, folded: &str) -> String {
        format!("\"{folded}\"")
    }

    fn parameter(&self, number: usize) -> String {
        format!("${number}")
    }

    fn declared_type(&self, sql_type: SqlType) -> String {
        let name = self.reported_type(sql_type);
        // Compared and ordered by bytes, whatever the database's locale.
        if matches!(sql_type, SqlType::Key(_)) { format!("{name} COLLATE \"C\"") } else { name }
    }

    fn reported_type(&self, sql_type: SqlType) -> String {
        let name = match sql_type {
            SqlType::Key(_) | SqlType::Column(ColumnType::Text) => "text",
            SqlType::Etag | SqlType::Column(ColumnType::Int) => "bigint",
            SqlType::Column(ColumnType::Time) => "timestamp(3) with time zone",
            SqlType::Column(ColumnType::Bytes) => "bytea",
            SqlType::Column(ColumnType::List) => "jsonb",
        };
        name.to_owned()
    }

    fn at_most(&self, parameter: &str) -> String {
        format!("LIMIT {parameter}")
    }
}
