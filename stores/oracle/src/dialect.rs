//! Oracle's SQL.

use emmer_store::ColumnType;
use emmer_store_relational::{Dialect, SqlType};

/// The dialect of Oracle Database. Names are kept in upper case, as the server keeps unquoted
/// names.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleSql;

impl Dialect for OracleSql {
    fn name_bytes_max(&self) -> usize {
        // A database that is compatible with 12.1 takes no longer ones.
        30
    }

    fn fold(&self, name: &str) -> String {
        name.to_ascii_uppercase()
    }

    fn quote(&self, folded: &str) -> String {
        format!("\"{folded}\"")
    }

    fn parameter(&self, number: usize) -> String {
        // The driver goes by the order in the text, not by the number.
        format!(":{number}")
    }

    fn declared_type(&self, sql_type: SqlType) -> String {
        self.reported_type(sql_type)
    }

    fn reported_type(&self, sql_type: SqlType) -> String {
        match sql_type {
            SqlType::Key(bytes) => format!("VARCHAR2({bytes} BYTE)"),
            SqlType::Etag | SqlType::Column(ColumnType::Int) => "NUMBER(19)".to_owned(),
            SqlType::Column(ColumnType::Text | ColumnType::List) => "CLOB".to_owned(),
            SqlType::Column(ColumnType::Time) => "TIMESTAMP(3)".to_owned(),
            SqlType::Column(ColumnType::Bytes) => "BLOB".to_owned(),
        }
    }

    fn at_most(&self, parameter: &str) -> String {
        format!("FETCH FIRST {parameter} ROWS ONLY")
    }
}

#[cfg(test)]
mod tests {
    use emmer_store::TableDecl;
    use emmer_store::silos::SILO_INSTANCES;
    use emmer_store::state::GRAIN_STATE;
    use emmer_store_relational::{names, schema};

    use super::*;

    const TABLES: [&TableDecl; 2] = [&SILO_INSTANCES, &GRAIN_STATE];

    #[test]
    fn every_name_is_short_enough_for_the_oldest_databases() {
        for decl in TABLES {
            let columns = decl.columns.iter().map(|c| c.name);
            for name in [decl.name, decl.partition_key, decl.row_key].into_iter().chain(columns) {
                assert!(name.len() <= OracleSql.name_bytes_max(), "{name}");
            }
            for column in decl.columns {
                assert!(
                    names::index(&OracleSql, decl, column.name).len() <= OracleSql.name_bytes_max()
                );
            }
        }
    }

    #[test]
    fn a_table_has_the_servers_types_and_its_letters() {
        let [create] = schema::create(&OracleSql, &GRAIN_STATE).try_into().unwrap();
        let begin = "CREATE TABLE \"GRAIN_STATE\" (\"PARTITIONKEY\" VARCHAR2(256 BYTE) NOT \
                     NULL, \"ROWKEY\" VARCHAR2(512 BYTE) NOT NULL, \"ETAG\" NUMBER(19) NOT \
                     NULL, \"SERVICEID\" CLOB,";
        assert!(create.starts_with(begin), "{create}");
        let end = "\"PAYLOAD\" BLOB, \"MODIFIED\" TIMESTAMP(3), PRIMARY KEY \
            (\"PARTITIONKEY\", \"ROWKEY\"))";
        assert!(create.ends_with(end), "{create}");
    }
}
