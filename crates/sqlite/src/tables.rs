//! Making tables, and comparing existing ones with their declarations.

use emmer_store::{ColumnType, StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Dialect as _, Names};
use rusqlite::{Connection, OptionalExtension as _};

use crate::dialect::Sqlite;
use crate::fault::Failed;

/// Returns true if the file has all of `tables`. It looks without a lock, as of one moment: a table
/// that another process upgrades meanwhile is seen before or after, never with the columns of one
/// and the version of the other.
///
/// Fails as corrupt when the file or one of them has another shape or a newer version.
pub(crate) fn is_all_there(
    conn: &Connection,
    tables: &[&'static TableDecl],
) -> Result<bool, Failed> {
    let moment = conn.unchecked_transaction()?;
    Ok(missing(&moment, tables)?.is_empty())
}

/// Makes missing tables. Inside a write transaction, which makes it safe against other processes
/// doing the same.
pub(crate) fn ensure(conn: &Connection, tables: &[&'static TableDecl]) -> Result<(), Failed> {
    Ok(conn.execute_batch(&missing(conn, tables)?.join(";\n"))?)
}

/// The `CREATE` script of an empty file, for an administrator who wants to see it or run it.
pub fn script(tables: &[&TableDecl]) -> String {
    let views = tables.iter().map(|decl| format!("{};\n", create_view(decl)));
    std::iter::once(schema::script(&Sqlite, tables)).chain(views).collect()
}

/// The view of a table that shows times as dates. No declared name may begin as its name does.
fn view_name(decl: &TableDecl) -> String {
    format!("emmer_readable_{}", decl.name)
}

/// The statement that makes it. SQLite has no type for times, and keeps milliseconds, which no
/// client shows as a date.
fn create_view(decl: &TableDecl) -> String {
    let Names { table, partition, row, etag, columns } = Names::new(&Sqlite, decl);
    let shown: String = columns
        .iter()
        .zip(decl.columns)
        .map(|(name, column)| match column.column_type {
            ColumnType::Time => {
                format!(", strftime('%Y-%m-%d %H:%M:%f', {name} / 1000.0, 'unixepoch') AS {name}")
            }
            _ => format!(", {name}"),
        })
        .collect();
    let view = Sqlite.quote(&view_name(decl));
    format!("CREATE VIEW {view} AS SELECT {partition}, {row}, {etag}{shown} FROM {table}")
}

/// The statements that make the view of a table; none when the view exists as declared.
fn missing_view(conn: &Connection, decl: &TableDecl) -> rusqlite::Result<Option<String>> {
    let mut found =
        conn.prepare("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = ?1")?;
    let found: Option<String> = found.query_row([view_name(decl)], |row| row.get(0)).optional()?;
    let wanted = create_view(decl);
    let view = Sqlite.quote(&view_name(decl));
    Ok((found.as_ref() != Some(&wanted)).then(|| format!("DROP VIEW IF EXISTS {view};\n{wanted}")))
}

fn missing(conn: &Connection, tables: &[&'static TableDecl]) -> Result<Vec<String>, Failed> {
    let mut found = Found { meta: read_meta(conn)?, tables: Vec::with_capacity(tables.len()) };
    for decl in tables {
        found.tables.push(read_table(conn, decl)?);
    }
    let missing = schema::missing(&Sqlite, tables, &found);
    let mut missing = missing.map_err(|detail| Failed::new(StoreErrorKind::Corrupt, detail))?;
    for decl in tables {
        missing.extend(missing_view(conn, decl)?);
    }
    Ok(missing)
}

fn read_table(conn: &Connection, decl: &TableDecl) -> rusqlite::Result<FoundTable> {
    let mut columns = conn.prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
    let mut indexes = conn.prepare("SELECT name FROM pragma_index_list(?1)")?;
    Ok(FoundTable {
        columns: columns
            .query_map([decl.name], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?,
        indexes: indexes
            .query_map([decl.name], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?,
    })
}

fn read_meta(conn: &Connection) -> rusqlite::Result<Option<Vec<(String, i64)>>> {
    let there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if !conn.prepare(there)?.exists([schema::META])? {
        return Ok(None);
    }
    let mut statement = conn.prepare(&schema::read_meta(&Sqlite))?;
    let recorded = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    recorded.collect::<rusqlite::Result<_>>().map(Some)
}
