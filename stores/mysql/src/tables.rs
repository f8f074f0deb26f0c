//! Making tables, and comparing existing ones with their declarations.

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Fault, names};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};

use crate::Flavour;
use crate::connection::Connection;
use crate::dialect::MySql;
use crate::fault;

/// The lock for making tables, one holder at a time per database.
const MAKING_LOCK: &str = "CONCAT('emmer ', LEFT(DATABASE(), 50))";
/// Time that one maker waits for the others, in seconds.
const MAKING_WAIT: u32 = 25;
/// There is no such table.
const NO_TABLE: u16 = 1146;

/// Makes missing tables of `tables`.
pub(crate) async fn ensure(
    connection: &mut Connection,
    tables: &[&'static TableDecl],
) -> Result<(), Fault> {
    let dialect = MySql(connection.flavour);
    // Left in the middle, the connection is closed, and the server frees the lock.
    connection.in_flight = true;
    let conn = connection.raw();
    if !schema::is_all_there(missing(conn, dialect, tables).await)? {
        make(conn, dialect, tables).await?;
    }
    connection.in_flight = false;
    Ok(())
}

/// `CREATE` cannot be rolled back here: one at a time, in an order that the next one completes.
async fn make(conn: &mut Conn, dialect: MySql, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    // Longer than a request may take otherwise.
    let lock = match dialect.0 {
        Flavour::MariaDb => format!(
            "SET STATEMENT max_statement_time = 0 FOR SELECT GET_LOCK({MAKING_LOCK}, {MAKING_WAIT})"
        ),
        Flavour::MySql => format!(
            "SELECT /*+ MAX_EXECUTION_TIME({}) */ GET_LOCK({MAKING_LOCK}, {MAKING_WAIT})",
            2_000 * MAKING_WAIT
        ),
    };
    let locked: Option<Option<i64>> = conn.query_first(lock).await.map_err(refused)?;
    if locked.flatten() != Some(1) {
        return Err(Fault::unavailable("others are making tables for too long"));
    }
    for statement in missing(conn, dialect, tables).await? {
        conn.query_drop(statement).await.map_err(with_hint)?;
    }
    conn.query_drop(format!("DO RELEASE_LOCK({MAKING_LOCK})")).await.map_err(refused)
}

async fn missing(
    conn: &mut Conn,
    dialect: MySql,
    tables: &[&'static TableDecl],
) -> Result<Vec<String>, Fault> {
    // Tables first: a table seen here was recorded before.
    let mut found = Found::default();
    for decl in tables {
        found.tables.push(read_table(conn, decl).await.map_err(refused)?);
    }
    found.meta = read_meta(conn, dialect).await?;
    schema::missing(&dialect, tables, &found).map_err(Fault::corrupt)
}

async fn read_table(conn: &mut Conn, decl: &TableDecl) -> Result<FoundTable, Error> {
    // Older servers show integers with a width, which means nothing. A text is shown with how it
    // compares.
    let columns =
        "SELECT COLUMN_NAME, CONCAT(IF(COLUMN_TYPE LIKE 'bigint(%', 'bigint', COLUMN_TYPE),
                          IF(COLLATION_NAME IS NULL, '', CONCAT(' ', COLLATION_NAME)))
                   FROM information_schema.COLUMNS
                   WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION";
    let indexes = "SELECT DISTINCT INDEX_NAME FROM information_schema.STATISTICS
                   WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?";
    Ok(FoundTable {
        columns: conn.exec(columns, (decl.name,)).await?,
        indexes: conn.exec(indexes, (decl.name,)).await?,
    })
}

async fn read_meta(conn: &mut Conn, dialect: MySql) -> Result<Option<Vec<(String, i64)>>, Fault> {
    match conn.query(schema::read_meta(&dialect)).await {
        Ok(rows) => Ok(Some(rows)),
        Err(Error::Server(error)) if error.code == NO_TABLE => Ok(None),
        Err(error) => Err(fault::fault(&error)),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn refused(error: Error) -> Fault {
    fault::fault(&error)
}

/// An administrator who lets no application make tables gets a hint.
fn with_hint(error: Error) -> Fault {
    let mut fault = refused(error);
    if fault.kind == StoreErrorKind::Refused {
        let meta = names::quoted(&crate::sql::EITHER, schema::META);
        fault.detail += &format!(
            "; either GRANT CREATE, ALTER, INDEX on the database (and INSERT, DELETE on {meta}) to \
             this user, or make the tables by the script of `emmer schema`"
        );
    }
    fault
}
