//! Making tables, and finding out whether what is there is what is declared.

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found};
use emmer_store_relational::{Dialect, names};
use tokio_postgres::Client;

use crate::connection::Connection;
use crate::dialect::Postgres;
use crate::fault::Fault;

/// The advisory lock that those who make tables take, one at a time per database: the letters "emmer" and 1.
const MAKING_LOCK: i64 = 0x65_6d_6d_65_72_01;

/// Makes what is missing of `tables`.
pub(crate) async fn ensure(connection: &mut Connection, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    // Left in the middle, the connection is closed and the server rolls back.
    connection.in_flight = true;
    if !missing(&connection.client, tables).await?.is_empty() {
        make(&connection.client, tables).await?;
    }
    // Plans and types of what was there before are void.
    connection.forget_statements();
    connection.in_flight = false;
    Ok(())
}

/// `CREATE TABLE IF NOT EXISTS` of two sessions at once can fail; one after the other cannot.
async fn make(client: &Client, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({MAKING_LOCK})")).await?;
    let missing = missing(client, tables).await?;
    let mut script = Vec::new();
    if !missing.is_empty() && read_meta(client).await?.is_none() {
        script.push(schema::create_meta(&Postgres));
        script.push(schema::record(&Postgres, schema::LAYOUT_NAME, schema::LAYOUT));
    }
    for decl in missing {
        script.extend(schema::create(&Postgres, decl));
        let name = schema::version_name(decl);
        script.push(schema::forget(&Postgres, &name));
        script.push(schema::record(&Postgres, &name, decl.schema_version.into()));
    }
    script.push("COMMIT".to_owned());
    client.batch_execute(&script.join(";\n")).await.map_err(with_hint)
}

async fn missing(client: &Client, tables: &[&'static TableDecl]) -> Result<Vec<&'static TableDecl>, Fault> {
    // Shapes first: what is seen here was recorded before.
    let shapes = read_shapes(client, tables).await?;
    let found = Found { meta: read_meta(client).await?, shapes };
    schema::missing(&Postgres, tables, &found).map_err(|detail| Fault::new(StoreErrorKind::Corrupt, detail))
}

async fn read_shapes(
    client: &Client,
    tables: &[&'static TableDecl],
) -> Result<Vec<Vec<(String, String)>>, Fault> {
    let quoted: Vec<String> = tables.iter().map(|decl| names::quoted(&Postgres, decl.name)).collect();
    let sql = "SELECT (t.at - 1)::int, a.attname::text, format_type(a.atttypid, a.atttypmod)
               FROM unnest($1::text[]) WITH ORDINALITY AS t(name, at)
               JOIN pg_attribute a ON a.attrelid = to_regclass(t.name)
               WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY t.at, a.attnum";
    let mut shapes = vec![Vec::new(); tables.len()];
    for row in client.query(sql, &[&quoted]).await? {
        let (at, name, type_name): (i32, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if let Some(shape) = usize::try_from(at).ok().and_then(|at| shapes.get_mut(at)) {
            shape.push((name, type_name));
        }
    }
    Ok(shapes)
}

async fn read_meta(client: &Client) -> Result<Option<Vec<(String, i64)>>, Fault> {
    let name = names::quoted(&Postgres, schema::META);
    let there: bool = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&name]).await?.try_get(0)?;
    if !there {
        return Ok(None);
    }
    let rows = client.query(&schema::read_meta(&Postgres), &[]).await?;
    let recorded = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    recorded.collect::<Result<_, tokio_postgres::Error>>().map(Some).map_err(Fault::from)
}

/// An administrator who lets no application make tables is told what to do.
fn with_hint(error: tokio_postgres::Error) -> Fault {
    let mut fault = Fault::from(error);
    if fault.kind == StoreErrorKind::Refused {
        fault.detail +=
            "; either GRANT CREATE ON SCHEMA to this user, or make the tables by the script in docs/store.md";
    }
    fault
}

/// The statements an administrator runs who lets no application make tables.
pub(crate) fn script(tables: &[&TableDecl]) -> String {
    schema::script(&Postgres as &dyn Dialect, tables)
}
