//! Transact-SQL.

use emmer_store::ColumnType;
use emmer_store_relational::{Dialect, SqlType};

/// The dialect of SQL Server. Names stay as they are declared; they are found in any case under the
/// usual collations.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactSql;

impl Dialect for TransactSql {
    fn name_bytes_max(&self) -> usize {
        128
    }

    fn fold(&self, name: &str) -> String {
        name.to_owned()
    }

    fn quote(&self, folded: &str) -> String {
        format!("[{folded}]")
    }

    fn parameter(&self, number: usize) -> String {
        format!("@P{number}")
    }

    fn declared_type(&self, sql_type: SqlType) -> String {
        self.reported_type(sql_type)
    }

    fn reported_type(&self, sql_type: SqlType) -> String {
        match sql_type {
            // Compared by its bytes, but for zeros at the end; keys hold no zeros (no control
            // characters at all).
            SqlType::Key(bytes) => format!("varbinary({bytes})"),
            SqlType::Etag | SqlType::Column(ColumnType::Int) => "bigint".to_owned(),
            SqlType::Column(ColumnType::Text | ColumnType::List) => "nvarchar(max)".to_owned(),
            SqlType::Column(ColumnType::Time) => "datetime2(3)".to_owned(),
            SqlType::Column(ColumnType::Bytes) => "varbinary(max)".to_owned(),
        }
    }

    fn meta_name_type(&self) -> String {
        // A text is not taken for binary without being told so.
        "varchar(100)".to_owned()
    }

    fn at_most(&self, parameter: &str) -> String {
        format!("OFFSET 0 ROWS FETCH NEXT {parameter} ROWS ONLY")
    }
}
