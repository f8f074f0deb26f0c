//! The statements of one table. Parameters stand in the order their values are given in: the driver
//! goes by that.

use std::fmt::Write;
use std::time::Duration;

use emmer_store::{Column, TableDecl};
use emmer_store_relational::{Names, Statements, names};

use crate::dialect::OracleSql;

/// Ends a transaction so that it survives the server's host, whatever the database's defaults are.
pub(crate) const COMMIT: &str = "COMMIT WRITE IMMEDIATE WAIT";

/// The statements of one table.
#[derive(Debug)]
pub(crate) struct TableSql {
    names: Names,
    shared: Statements,
    /// Time to wait for a lock, in seconds.
    lock_wait: u64,
    /// All rows of partition 1 by row key.
    pub(crate) read_partition: String,
    /// The row with partition 1 and row key 2.
    pub(crate) read_row: String,
    /// Adds a row: partition, row key, etag, columns in order.
    pub(crate) insert: String,
    /// Replaces the non-volatile part of a row: etag, columns in order without the volatile ones,
    /// partition, row key.
    pub(crate) update: String,
    /// Deletes the row with partition 1 and row key 2.
    pub(crate) delete: String,
}

impl TableSql {
    /// The statements for `decl`, which wait `lock_wait` for a lock.
    pub(crate) fn new(decl: &TableDecl, lock_wait: Duration) -> Self {
        let shared = Statements::new(&OracleSql, decl);
        let names = Names::new(&OracleSql, decl);
        Self {
            insert: insert(&names),
            update: update(&names, decl.columns),
            delete: format!("DELETE FROM {} WHERE {}", names.table, one_row(&names, 1)),
            read_partition: shared.read_partition.clone(),
            read_row: shared.read_row.clone(),
            lock_wait: lock_wait.as_secs().max(1),
            shared,
            names,
        }
    }

    /// At most parameter 3 rows of partition 1 with row keys from parameter 2 on, or before it.
    pub(crate) fn read_some(&self, decl: &TableDecl, before: bool) -> String {
        self.shared.read_some(&OracleSql, decl, before)
    }

    /// The rows whose integer `column` is from parameter 1 to 2, or outside when the range wraps
    /// around; at most 3.
    pub(crate) fn scan(&self, column: &str, wraps: bool) -> String {
        self.shared.scan(&OracleSql, column, wraps)
    }

    /// Locks rows of partition 1 that are there, whose keys are `keys` further parameters, and
    /// answers with their keys and etags.
    pub(crate) fn lock(&self, keys: usize) -> String {
        let Names { table, partition, row, etag, .. } = &self.names;
        let mut out = format!("SELECT {row}, {etag} FROM {table} WHERE {partition} = :1 AND {row}");
        if keys == 1 {
            out.push_str(" = :2");
        } else {
            out.push_str(" IN (");
            for number in 0..keys {
                let separator = if number == 0 { "" } else { ", " };
                // Writing to a string cannot fail.
                let _ = write!(out, "{separator}:{}", number + 2);
            }
            // By key, so that two commits that meet on several rows wait for each other instead of
            // each for the other.
            let _ = write!(out, ") ORDER BY {row}");
        }
        let _ = write!(out, " FOR UPDATE WAIT {}", self.lock_wait);
        out
    }

    /// Sets `column` to parameter 1 in the row with partition 2 and row key 3.
    pub(crate) fn touch(&self, column: &str) -> String {
        let column = names::quoted(&OracleSql, column);
        format!("UPDATE {} SET {column} = :1 WHERE {}", self.names.table, one_row(&self.names, 2))
    }

    /// Deletes at most parameter 3 rows of partition 1 whose time `column` is before parameter 2.
    pub(crate) fn delete_older_than(&self, column: &str) -> String {
        let Names { table, partition, .. } = &self.names;
        let column = names::quoted(&OracleSql, column);
        format!("DELETE FROM {table} WHERE {partition} = :1 AND {column} < :2 AND ROWNUM <= :3")
    }
}

/// The condition for one row, whose partition is parameter `first` and whose row key the next.
fn one_row(names: &Names, first: usize) -> String {
    format!("{} = :{first} AND {} = :{}", names.partition, names.row, first + 1)
}

fn insert(names: &Names) -> String {
    let Names { table, partition, row, etag, columns } = names;
    let listed: String = columns.iter().map(|name| format!(", {name}")).collect();
    let values: String = (4..4 + columns.len()).map(|number| format!(", :{number}")).collect();
    format!("INSERT INTO {table} ({partition}, {row}, {etag}{listed}) VALUES (:1, :2, :3{values})")
}

fn update(names: &Names, declared: &[Column]) -> String {
    let Names { table, etag, columns, .. } = names;
    let kept = columns.iter().zip(declared).filter(|(_, column)| !column.volatile);
    let set: Vec<String> =
        std::iter::once(etag).chain(kept.map(|(name, _)| name)).zip(1..).map(assigned).collect();
    format!("UPDATE {table} SET {} WHERE {}", set.join(", "), one_row(names, set.len() + 1))
}

fn assigned((name, number): (&String, usize)) -> String {
    format!("{name} = :{number}")
}

#[cfg(test)]
mod tests {
    use emmer_store::ColumnType;

    use super::*;

    static DECL: TableDecl = TableDecl {
        name: "t",
        partition_key: "P",
        row_key: "R",
        columns: &[
            Column::new("A", ColumnType::Int).indexed(),
            Column::new("B", ColumnType::Time).volatile(),
            Column::new("C", ColumnType::Text),
        ],
        schema_version: 1,
        one_moment: true,
    };

    fn sql() -> TableSql {
        TableSql::new(&DECL, Duration::from_millis(4_000))
    }

    /// The parameters of a statement in the order they stand there.
    fn parameters(text: &str) -> Vec<usize> {
        let ends = |c: char| !c.is_ascii_digit();
        text.split(':')
            .skip(1)
            .map(|rest| rest.split(ends).next().unwrap_or_default().parse().unwrap())
            .collect()
    }

    #[test]
    fn every_statement_has_its_parameters_in_their_order_and_each_once() {
        let sql = sql();
        let all = [
            sql.read_partition.clone(),
            sql.read_row.clone(),
            sql.insert.clone(),
            sql.update.clone(),
            sql.delete.clone(),
            sql.read_some(&DECL, false),
            sql.read_some(&DECL, true),
            sql.scan("A", false),
            sql.scan("A", true),
            sql.lock(1),
            sql.lock(8),
            sql.touch("B"),
            sql.delete_older_than("B"),
        ];
        for text in all {
            let found = parameters(&text);
            assert_eq!(found, (1..=found.len()).collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn writes_speak_the_dialect() {
        let sql = sql();
        assert_eq!(
            sql.insert,
            "INSERT INTO \"T\" (\"P\", \"R\", \"ETAG\", \"A\", \"B\", \"C\") VALUES (:1, :2, :3, \
             :4, :5, :6)"
        );
        // A commit leaves volatile columns of existing rows alone.
        assert_eq!(
            sql.update,
            "UPDATE \"T\" SET \"ETAG\" = :1, \"A\" = :2, \"C\" = :3 WHERE \"P\" = :4 AND \"R\" = :5"
        );
        assert_eq!(sql.delete, "DELETE FROM \"T\" WHERE \"P\" = :1 AND \"R\" = :2");
        assert_eq!(sql.touch("B"), "UPDATE \"T\" SET \"B\" = :1 WHERE \"P\" = :2 AND \"R\" = :3");
        let clean_up = "DELETE FROM \"T\" WHERE \"P\" = :1 AND \"B\" < :2 AND ROWNUM <= :3";
        assert_eq!(sql.delete_older_than("B"), clean_up);
    }

    #[test]
    fn reads_and_locks_speak_the_dialect() {
        let sql = sql();
        let select = "SELECT \"R\", \"ETAG\", \"A\", \"B\", \"C\" FROM \"T\" WHERE";
        assert_eq!(sql.read_partition, format!("{select} \"P\" = :1 ORDER BY \"R\""));
        assert_eq!(sql.read_row, format!("{select} \"P\" = :1 AND \"R\" = :2"));
        let end = "ORDER BY \"P\", \"R\" FETCH FIRST :3 ROWS ONLY";
        assert_eq!(sql.scan("A", true), format!("{select} (\"A\" >= :1 OR \"A\" <= :2) {end}"));
        let select = "SELECT \"R\", \"ETAG\" FROM \"T\" WHERE \"P\" = :1 AND \"R\"";
        assert_eq!(sql.lock(1), format!("{select} = :2 FOR UPDATE WAIT 4"));
        assert_eq!(sql.lock(2), format!("{select} IN (:2, :3) ORDER BY \"R\" FOR UPDATE WAIT 4"));
        let hasty = TableSql::new(&DECL, Duration::from_millis(833));
        assert!(hasty.lock(1).ends_with("WAIT 1"));
    }
}
