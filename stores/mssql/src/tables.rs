//! Making tables, and comparing existing ones with their declarations.

use std::time::Duration;

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Cells, Failure, Fault};

use crate::connection::{Connection, settings};
use crate::dialect::TransactSql;
use crate::values::RowCells;

/// Time that makers of tables wait for each other.
const MAKING_WAIT: Duration = Duration::from_secs(25);

/// Begins a transaction that one process at a time can be in.
pub(crate) const LOCK: &str = "BEGIN TRANSACTION; DECLARE @locked int; \
     EXEC @locked = sp_getapplock @Resource = 'emmer', @LockMode = 'Exclusive', @LockTimeout = \
     25000; IF @locked < 0 THROW 51000, 'others are making tables for too long', 1;";

/// Ends it.
pub(crate) const COMMIT: &str = "COMMIT TRANSACTION";

/// Types as [`TransactSql::reported_type`](emmer_store_relational::Dialect::reported_type) spells
/// them.
pub(crate) const COLUMNS: &str = "SELECT c.name, t.name + CASE \
     WHEN t.name IN ('varbinary', 'nvarchar') AND c.max_length = -1 THEN '(max)' \
     WHEN t.name = 'varbinary' THEN '(' + CAST(c.max_length AS varchar(10)) + ')' \
     WHEN t.name = 'datetime2' THEN '(' + CAST(c.scale AS varchar(10)) + ')' ELSE '' END \
     FROM sys.columns c JOIN sys.types t ON t.user_type_id = c.user_type_id \
     WHERE c.object_id = OBJECT_ID(@P1) ORDER BY c.column_id";

/// The indexes of a table.
pub(crate) const INDEXES: &str =
    "SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(@P1) AND name IS NOT NULL";

/// True if there is a table.
pub(crate) const IS_THERE: &str = "SELECT name FROM sys.tables WHERE object_id = OBJECT_ID(@P1)";

/// Makes missing tables of `tables`, one process at a time, in one transaction.
pub(crate) async fn ensure(
    connection: &mut Connection,
    tables: &[&'static TableDecl],
    usual_wait: Duration,
) -> Result<(), Fault> {
    let is_all_there = match missing(connection, tables).await {
        // A reader of the catalogue may be the victim of others that change it: then it is found
        // out under the lock.
        Err(Failure::Again(_)) => false,
        look => schema::is_all_there(look.map_err(Failure::fault))?,
    };
    if is_all_there {
        return Ok(());
    }
    connection.batch(&settings(MAKING_WAIT)).await.map_err(Failure::fault)?;
    // From here on a transaction is open: left in the middle, the connection is closed and the
    // server rolls back.
    let made = make(connection, tables).await;
    connection.in_flight |= made.is_err();
    made?;
    connection.batch(&settings(usual_wait)).await.map_err(Failure::fault).map(drop)
}

async fn make(connection: &mut Connection, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    connection.batch(LOCK).await.map_err(Failure::fault)?;
    // Each in a batch of its own: a batch is understood as a whole, before its tables are there.
    for statement in missing(connection, tables).await.map_err(Failure::fault)? {
        connection.batch(&statement).await.map_err(with_hint)?;
    }
    connection.batch(COMMIT).await.map_err(Failure::fault).map(drop)
}

async fn missing(
    connection: &mut Connection,
    tables: &[&'static TableDecl],
) -> Result<Vec<String>, Failure> {
    // Tables first: a table seen here was recorded before.
    let mut found = Found::default();
    for decl in tables {
        found.tables.push(read_table(connection, decl).await?);
    }
    found.meta = read_meta(connection).await?;
    schema::missing(&TransactSql, tables, &found)
        .map_err(|detail| Failure::Nothing(Fault::corrupt(detail)))
}

async fn read_table(connection: &mut Connection, decl: &TableDecl) -> Result<FoundTable, Failure> {
    let mut found = FoundTable::default();
    for row in connection.query(COLUMNS, &[&decl.name]).await? {
        let cells = RowCells::new(&row);
        found.columns.push((text(&cells, 0)?, text(&cells, 1)?));
    }
    for row in connection.query(INDEXES, &[&decl.name]).await? {
        found.indexes.push(text(&RowCells::new(&row), 0)?);
    }
    Ok(found)
}

async fn read_meta(connection: &mut Connection) -> Result<Option<Vec<(String, i64)>>, Failure> {
    // A separate request: its error, such as a missing table, would end a transaction around it.
    if connection.query(IS_THERE, &[&schema::META]).await?.is_empty() {
        return Ok(None);
    }
    let rows = connection.query(&schema::read_meta(&TransactSql), &[]).await?;
    let mut meta = Vec::with_capacity(rows.len());
    for row in &rows {
        let cells = RowCells::new(row);
        let value = cells.int(1).map_err(corrupt)?.unwrap_or_default();
        meta.push((text(&cells, 0)?, value));
    }
    Ok(Some(meta))
}

fn corrupt(detail: String) -> Failure {
    Failure::Nothing(Fault::corrupt(detail))
}

fn text(cells: &RowCells<'_>, at: usize) -> Result<String, Failure> {
    Ok(cells.text(at).map_err(corrupt)?.unwrap_or_default().to_owned())
}

/// An administrator who lets no application make tables gets a hint.
fn with_hint(failure: Failure) -> Fault {
    let mut fault = failure.fault();
    if fault.kind == StoreErrorKind::Refused {
        fault.detail += "; either GRANT CREATE TABLE and ALTER ON SCHEMA to this user, or make the \
                         tables by the script of `emmer schema`";
    }
    fault
}
