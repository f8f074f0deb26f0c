//! Making tables, and comparing existing ones with their declarations.

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Dialect, Fault, names};
use tokio_postgres::Client;

use crate::connection::Connection;
use crate::dialect::Postgres;
use crate::fault;

/// The advisory lock for making tables, one holder at a time per database: the letters "emmer" and
/// 1.
const MAKING_LOCK: i64 = 0x65_6d_6d_65_72_01;
/// Time that makers wait for each other, and for a statement of their own: longer than a request
/// may take otherwise.
const MAKING_WAIT: &str = "25s";

/// Makes missing tables of `tables`.
pub(crate) async fn ensure(
    connection: &mut Connection,
    tables: &[&'static TableDecl],
) -> Result<(), Fault> {
    // Left in the middle, the connection is closed and the server rolls back.
    connection.in_flight = true;
    if !schema::is_all_there(missing(&connection.client, tables).await)? {
        make(&connection.client, tables).await?;
    }
    // Earlier plans and types are void.
    connection.forget_statements();
    connection.in_flight = false;
    Ok(())
}

/// `CREATE TABLE IF NOT EXISTS` of two sessions at once can fail; one after the other cannot.
async fn make(client: &Client, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    let lock = format!(
        "BEGIN; SET LOCAL statement_timeout = '{MAKING_WAIT}'; \
         SELECT pg_advisory_xact_lock({MAKING_LOCK})"
    );
    client.batch_execute(&lock).await.map_err(refused)?;
    let mut script = missing(client, tables).await?;
    script.push("COMMIT".to_owned());
    client.batch_execute(&script.join(";\n")).await.map_err(with_hint)
}

async fn missing(client: &Client, tables: &[&'static TableDecl]) -> Result<Vec<String>, Fault> {
    // Tables first: a table seen here was recorded before.
    let tables_found = read_tables(client, tables).await.map_err(refused)?;
    let found = Found { meta: read_meta(client).await?, tables: tables_found };
    schema::missing(&Postgres, tables, &found).map_err(Fault::corrupt)
}

async fn read_tables(
    client: &Client,
    tables: &[&'static TableDecl],
) -> Result<Vec<FoundTable>, tokio_postgres::Error> {
    let quoted: Vec<String> =
        tables.iter().map(|decl| names::quoted(&Postgres, decl.name)).collect();
    let columns = "SELECT (t.at - 1)::int, a.attname::text, format_type(a.atttypid, a.atttypmod)
                   FROM unnest($1::text[]) WITH ORDINALITY AS t(name, at)
                   JOIN pg_attribute a ON a.attrelid = to_regclass(t.name)
                   WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY t.at, a.attnum";
    let indexes = "SELECT (t.at - 1)::int, c.relname::text
                   FROM unnest($1::text[]) WITH ORDINALITY AS t(name, at)
                   JOIN pg_index i ON i.indrelid = to_regclass(t.name)
                   JOIN pg_class c ON c.oid = i.indexrelid";
    let mut found = vec![FoundTable::default(); tables.len()];
    let table = |at: i32| usize::try_from(at).ok();
    for row in client.query(columns, &[&quoted]).await? {
        if let Some(table) = table(row.try_get(0)?).and_then(|at| found.get_mut(at)) {
            table.columns.push((row.try_get(1)?, row.try_get(2)?));
        }
    }
    for row in client.query(indexes, &[&quoted]).await? {
        if let Some(table) = table(row.try_get(0)?).and_then(|at| found.get_mut(at)) {
            table.indexes.push(row.try_get(1)?);
        }
    }
    Ok(found)
}

async fn read_meta(client: &Client) -> Result<Option<Vec<(String, i64)>>, Fault> {
    let name = names::quoted(&Postgres, schema::META);
    let there: bool = client
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&name])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(refused)?;
    if !there {
        return Ok(None);
    }
    let rows = client.query(&schema::read_meta(&Postgres), &[]).await.map_err(refused)?;
    let recorded = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    recorded.collect::<Result<_, tokio_postgres::Error>>().map(Some).map_err(refused)
}

#[allow(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn refused(error: tokio_postgres::Error) -> Fault {
    fault::fault(&error)
}

/// An administrator who lets no application make tables gets a hint.
fn with_hint(error: tokio_postgres::Error) -> Fault {
    let mut fault = refused(error);
    if fault.kind == StoreErrorKind::Refused {
        fault.detail += "; either GRANT CREATE ON SCHEMA to this user, or make the tables by the \
            script of `emmer schema`";
    }
    fault
}

/// The `CREATE` script for an administrator who lets no application make tables.
pub fn script(tables: &[&TableDecl]) -> String {
    schema::script(&Postgres as &dyn Dialect, tables)
}
