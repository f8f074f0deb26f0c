//! The statements of one table that are the same on every server, as text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use emmer_store::TableDecl;

use crate::dialect::Dialect;
use crate::names::{Names, quoted};

/// A driver's statements for each table, made once.
#[derive(Debug)]
pub struct Made<S>(Mutex<BTreeMap<&'static str, (&'static TableDecl, Arc<S>)>>);

impl<S> Default for Made<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> Made<S> {
    /// The statements for `decl`; `make` makes them the first time.
    pub fn of(&self, decl: &'static TableDecl, make: impl FnOnce() -> S) -> Arc<S> {
        // A panic in between leaves the map as it was.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match made.get(decl.name) {
            Some((found, statements)) if *found == decl => statements.clone(),
            _ => {
                let statements = Arc::new(make());
                made.insert(decl.name, (decl, statements.clone()));
                statements
            }
        }
    }
}

/// Reads of one table. Every `SELECT` answers the row key, the etag, then the columns in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statements {
    /// All rows of partition 1, ordered by row key. One statement, so one snapshot.
    pub read_partition: String,
    /// The row with partition 1 and row key 2.
    pub read_row: String,
    select: String,
    order: String,
}

impl Statements {
    /// The statements for `decl`.
    pub fn new(dialect: &dyn Dialect, decl: &TableDecl) -> Self {
        let names = Names::new(dialect, decl);
        let Names { table, partition, row, etag, columns } = &names;
        let columns: String = columns.iter().map(|name| format!(", {name}")).collect();
        let select = format!("SELECT {row}, {etag}{columns} FROM {table}");
        let (one, two) = (dialect.parameter(1), dialect.parameter(2));
        Self {
            read_partition: format!("{select} WHERE {partition} = {one} ORDER BY {row}"),
            read_row: format!("{select} WHERE {partition} = {one} AND {row} = {two}"),
            order: format!("ORDER BY {partition}, {row}"),
            select,
        }
    }

    /// At most parameter 3 rows of partition 1, ordered by row key, with keys from parameter 2 on,
    /// or `before` it.
    pub fn read_some(&self, dialect: &dyn Dialect, decl: &TableDecl, before: bool) -> String {
        let Names { partition, row, .. } = Names::new(dialect, decl);
        let (one, two) = (dialect.parameter(1), dialect.parameter(2));
        let (side, at_most) =
            (if before { "<" } else { ">=" }, dialect.at_most(&dialect.parameter(3)));
        let select = &self.select;
        format!(
            "{select} WHERE {partition} = {one} AND {row} {side} {two} ORDER BY {row} {at_most}"
        )
    }

    /// The rows whose integer `column` is from parameter 1 to parameter 2, or outside when the
    /// range wraps around; at most parameter 3.
    pub fn scan(&self, dialect: &dyn Dialect, column: &str, wraps: bool) -> String {
        let (column, word) = (quoted(dialect, column), if wraps { "OR" } else { "AND" });
        let (one, two) = (dialect.parameter(1), dialect.parameter(2));
        let at_most = dialect.at_most(&dialect.parameter(3));
        let Self { select, order, .. } = self;
        format!("{select} WHERE ({column} >= {one} {word} {column} <= {two}) {order} {at_most}")
    }
}

/// Sets `column` of the row with partition 1 and row key 2 to parameter 3.
pub fn touch(dialect: &dyn Dialect, decl: &TableDecl, column: &str) -> String {
    let Names { table, partition, row, .. } = Names::new(dialect, decl);
    let [one, two, three] = [1, 2, 3].map(|n| dialect.parameter(n));
    let column = quoted(dialect, column);
    format!("UPDATE {table} SET {column} = {three} WHERE {partition} = {one} AND {row} = {two}")
}

/// Deletes at most parameter 3 rows of partition 1 whose time `column` is before parameter 2.
pub fn delete_older_than(dialect: &dyn Dialect, decl: &TableDecl, column: &str) -> String {
    let Names { table, partition, row, .. } = Names::new(dialect, decl);
    let [one, two, three] = [1, 2, 3].map(|n| dialect.parameter(n));
    let old = format!("{partition} = {one} AND {} < {two}", quoted(dialect, column));
    let some =
        format!("SELECT {row} FROM {table} WHERE {old} ORDER BY {row} {}", dialect.at_most(&three));
    // The time is compared again outside: a row that was moved on while this statement waited for
    // it stays.
    format!("DELETE FROM {table} WHERE {old} AND {row} IN ({some})")
}
