//! The SQL of MariaDB and MySQL.

use emmer_store::{Column, ColumnType};
use emmer_store_relational::{Dialect, SqlType};

/// Family of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// Oracle's MySQL and what descends from it.
    MySql,
}

/// The dialect. Names stay as they are declared; columns are found in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MySql(pub Flavour);

impl MySql {
    /// The collation that compares by bytes and cares for trailing spaces.
    const fn collation(self) -> &'static str {
        match self.0 {
            Flavour::MariaDb => "utf8mb4_nopad_bin",
            Flavour::MySql => "utf8mb4_0900_bin",
        }
    }
}

impl Dialect for MySql {
    fn name_bytes_max(&self) -> usize {
        64
    }

    fn fold(&self, name: &str) -> String {
        name.to_owned()
    }

    fn quote(&self, folded: &str) -> String {
        format!("`{folded}`")
    }

    fn parameter(&self, _: usize) -> String {
        // Counted by where they stand: the sender of a statement gives its parameters in that
        // order.
        "?".to_owned()
    }

    fn declared_type(&self, sql_type: SqlType) -> String {
        let collation = self.collation();
        match sql_type {
            SqlType::Key(bytes) => {
                format!("VARCHAR({bytes}) CHARACTER SET utf8mb4 COLLATE {collation}")
            }
            SqlType::Etag | SqlType::Column(ColumnType::Int) => "BIGINT".to_owned(),
            SqlType::Column(ColumnType::Text) => {
                format!("LONGTEXT CHARACTER SET utf8mb4 COLLATE {collation}")
            }
            SqlType::Column(ColumnType::Time) => "DATETIME(3)".to_owned(),
            SqlType::Column(ColumnType::Bytes) => "LONGBLOB".to_owned(),
            SqlType::Column(ColumnType::List) => "JSON".to_owned(),
        }
    }

    fn reported_type(&self, sql_type: SqlType) -> String {
        let collation = self.collation();
        match sql_type {
            SqlType::Key(bytes) => format!("varchar({bytes}) {collation}"),
            SqlType::Etag | SqlType::Column(ColumnType::Int) => "bigint".to_owned(),
            SqlType::Column(ColumnType::Text) => format!("longtext {collation}"),
            SqlType::Column(ColumnType::Time) => "datetime(3)".to_owned(),
            SqlType::Column(ColumnType::Bytes) => "longblob".to_owned(),
            SqlType::Column(ColumnType::List) => match self.0 {
                // A text with a check.
                Flavour::MariaDb => "longtext utf8mb4_bin".to_owned(),
                Flavour::MySql => "json".to_owned(),
            },
        }
    }

    fn table_options(&self, _: &[Column]) -> String {
        " ENGINE=InnoDB ROW_FORMAT=DYNAMIC".to_owned()
    }

    fn at_most(&self, parameter: &str) -> String {
        format!("LIMIT {parameter}")
    }
}
