//! Making tables, and finding out whether what is there is what is declared.

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Cells, Failure, Fault};

use crate::connection::Connection;
use crate::dialect::TransactSql;
use crate::values::RowCells;

/// Makes what is missing of `tables`, one process at a time, in one transaction.
pub(crate) async fn ensure(connection: &mut Connection, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    if schema::is_all_there(missing(connection, tables).await)? {
        return Ok(());
    }
    let lock = "SET XACT_ABORT ON; BEGIN TRANSACTION; DECLARE @locked int; \
                EXEC @locked = sp_getapplock @Resource = 'emmer', @LockMode = 'Exclusive', @LockTimeout = 25000; \
                IF @locked < 0 THROW 51000, 'others are making tables for too long', 1;";
    connection.batch(lock).await.map_err(Failure::fault)?;
    // From here on a transaction is open: left in the middle, the connection is closed and the server rolls back.
    let made = make(connection, tables).await;
    connection.in_flight |= made.is_err();
    made
}

async fn make(connection: &mut Connection, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    // Each in a batch of its own: a batch is understood as a whole, before its tables are there.
    for statement in missing(connection, tables).await? {
        connection.batch(&statement).await.map_err(with_hint)?;
    }
    connection.batch("COMMIT TRANSACTION").await.map_err(Failure::fault).map(drop)
}

async fn missing(connection: &mut Connection, tables: &[&'static TableDecl]) -> Result<Vec<String>, Fault> {
    // Tables first: what is seen here was recorded before.
    let mut found = Found::default();
    for decl in tables {
        found.tables.push(read_table(connection, decl).await?);
    }
    found.meta = read_meta(connection).await?;
    schema::missing(&TransactSql, tables, &found).map_err(Fault::corrupt)
}

async fn read_table(connection: &mut Connection, decl: &TableDecl) -> Result<FoundTable, Fault> {
    let columns = "SELECT c.name, t.name + CASE
                     WHEN t.name IN ('varbinary', 'nvarchar') AND c.max_length = -1 THEN '(max)'
                     WHEN t.name = 'varbinary' THEN '(' + CAST(c.max_length AS varchar(10)) + ')'
                     WHEN t.name = 'datetime2' THEN '(' + CAST(c.scale AS varchar(10)) + ')'
                     ELSE '' END
                   FROM sys.columns c JOIN sys.types t ON t.user_type_id = c.user_type_id
                   WHERE c.object_id = OBJECT_ID(@P1) ORDER BY c.column_id";
    let indexes = "SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(@P1) AND name IS NOT NULL";
    let mut found = FoundTable::default();
    for row in connection.query(columns, &[&decl.name]).await.map_err(Failure::fault)? {
        let cells = RowCells::new(&row);
        found.columns.push((text(&cells, 0)?, text(&cells, 1)?));
    }
    for row in connection.query(indexes, &[&decl.name]).await.map_err(Failure::fault)? {
        found.indexes.push(text(&RowCells::new(&row), 0)?);
    }
    Ok(found)
}

async fn read_meta(connection: &mut Connection) -> Result<Option<Vec<(String, i64)>>, Fault> {
    let rows = match connection.query(&schema::read_meta(&TransactSql), &[]).await {
        Err(Failure::Nothing(fault)) if fault.kind == StoreErrorKind::NotFound => return Ok(None),
        ended => ended.map_err(Failure::fault)?,
    };
    let mut meta = Vec::with_capacity(rows.len());
    for row in &rows {
        let cells = RowCells::new(row);
        let value = cells.int(1).map_err(Fault::corrupt)?.unwrap_or_default();
        meta.push((text(&cells, 0)?, value));
    }
    Ok(Some(meta))
}

fn text(cells: &RowCells<'_>, at: usize) -> Result<String, Fault> {
    Ok(cells.text(at).map_err(Fault::corrupt)?.unwrap_or_default().to_owned())
}

/// An administrator who lets no application make tables is told what to do.
fn with_hint(failure: Failure) -> Fault {
    let mut fault = failure.fault();
    if fault.kind == StoreErrorKind::Refused {
        fault.detail += "; either GRANT CREATE TABLE and ALTER ON SCHEMA to this user, or make the tables by the script of \
                         `emmer schema`";
    }
    fault
}
