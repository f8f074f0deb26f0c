//! The statements of one table.

use emmer_store::TableDecl;
use emmer_store_relational::{Names, Statements, names};

use crate::dialect::{Flavour, MySql};

/// Names are quoted alike in both flavours.
pub(crate) const EITHER: MySql = MySql(Flavour::MariaDb);

/// Prepared statements and pieces of those that are sent as text.
#[derive(Debug)]
pub(crate) struct TableSql {
    pub(crate) names: Names,
    shared: Statements,
    pub(crate) read_partition: String,
    pub(crate) read_row: String,
    /// Up to the values: `INSERT INTO t (...)`.
    pub(crate) insert: String,
    /// Behind the values: the update of an existing row, volatile columns excepted.
    pub(crate) or_update: String,
    /// Behind the values: a row that is there stays.
    pub(crate) or_keep: String,
}

impl TableSql {
    pub(crate) fn new(decl: &TableDecl) -> Self {
        let shared = Statements::new(&EITHER, decl);
        let names = Names::new(&EITHER, decl);
        let Names { table, partition, row, etag, columns } = &names;
        let listed: String = columns.iter().map(|name| format!(", {name}")).collect();
        let lasting = columns.iter().zip(decl.columns).filter(|(_, c)| !c.volatile);
        let assignments: String =
            lasting.map(|(name, _)| format!(", {name} = VALUES({name})")).collect();
        Self {
            read_partition: shared.read_partition.clone(),
            read_row: shared.read_row.clone(),
            insert: format!("INSERT INTO {table} ({partition}, {row}, {etag}{listed}) "),
            or_update: format!(" ON DUPLICATE KEY UPDATE {etag} = VALUES({etag}){assignments}"),
            or_keep: format!(" ON DUPLICATE KEY UPDATE {etag} = {etag}"),
            shared,
            names,
        }
    }

    /// Parameters: partition, row key, the most rows.
    pub(crate) fn read_some(&self, decl: &TableDecl, before: bool) -> String {
        self.shared.read_some(&EITHER, decl, before)
    }

    /// Parameters: start, end, the most rows.
    pub(crate) fn scan(&self, column: &str, wraps: bool) -> String {
        self.shared.scan(&EITHER, column, wraps)
    }

    /// Parameters: the value, partition, row key.
    pub(crate) fn touch(&self, column: &str) -> String {
        let Names { table, partition, row, .. } = &self.names;
        let column = names::quoted(&EITHER, column);
        format!("UPDATE {table} SET {column} = ? WHERE {partition} = ? AND {row} = ?")
    }

    /// Parameters: partition, cutoff, the most rows.
    pub(crate) fn delete_older_than(&self, column: &str) -> String {
        let Names { table, partition, row, .. } = &self.names;
        let column = names::quoted(&EITHER, column);
        format!("DELETE FROM {table} WHERE {partition} = ? AND {column} < ? ORDER BY {row} LIMIT ?")
    }
}
