//! Making tables, and finding out whether what is there is what is declared.

use emmer_store::{StoreErrorKind, TableDecl};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::Fault;
use crate::session::Session;
use crate::sql;

/// How this store lays out a file; a file with another number was made by another version.
const LAYOUT: i64 = 1;

/// Which of `tables` are missing.
///
/// Fails as corrupt when the file or one of them has another shape or version.
pub(crate) fn missing(
    conn: &Connection,
    tables: &[&'static TableDecl],
) -> Result<Vec<&'static TableDecl>, Fault> {
    if !exists(conn, "emmer_meta")? {
        return Ok(tables.to_vec());
    }
    let layout = meta(conn, "layout")?;
    if layout != Some(LAYOUT) {
        return Err(corrupt(format!("the file has layout {layout:?}, this version knows {LAYOUT}")));
    }
    let mut missing = Vec::new();
    for decl in tables {
        if exists(conn, decl.name)? {
            check(conn, decl)?;
        } else {
            missing.push(*decl);
        }
    }
    Ok(missing)
}

/// Makes what is missing. Inside a write transaction, which makes it safe against others doing the same.
pub(crate) fn ensure(session: &Session, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    let conn = &session.conn;
    if !exists(conn, "emmer_meta")? {
        conn.execute_batch(
            "CREATE TABLE emmer_meta (\"Name\" TEXT NOT NULL PRIMARY KEY, \"Value\" INTEGER NOT NULL) \
             STRICT, WITHOUT ROWID;",
        )?;
        set_meta(conn, "layout", LAYOUT)?;
        set_meta(conn, "writers", 0)?;
    }
    for decl in missing(conn, tables)? {
        conn.execute_batch(&sql::create(decl))?;
        set_meta(conn, &version_name(decl), decl.schema_version.into())?;
    }
    Ok(())
}

fn check(conn: &Connection, decl: &TableDecl) -> Result<(), Fault> {
    let version = meta(conn, &version_name(decl))?;
    if version != Some(decl.schema_version.into()) {
        return Err(corrupt(format!(
            "table {} has schema version {version:?}, this version knows {}",
            decl.name, decl.schema_version
        )));
    }
    let mut statement = conn.prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
    let found: Vec<(String, String)> =
        statement.query_map([decl.name], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    if found == sql::shape(decl) {
        Ok(())
    } else {
        Err(corrupt(format!("table {} has other columns than declared: {found:?}", decl.name)))
    }
}

fn exists(conn: &Connection, table: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(conn.prepare(sql)?.exists([table])?)
}

fn meta(conn: &Connection, name: &str) -> Result<Option<i64>, Fault> {
    let sql = "SELECT \"Value\" FROM emmer_meta WHERE \"Name\" = ?1";
    Ok(conn.query_row(sql, [name], |row| row.get(0)).optional()?)
}

fn set_meta(conn: &Connection, name: &str, value: i64) -> Result<(), Fault> {
    let sql = "INSERT INTO emmer_meta (\"Name\", \"Value\") VALUES (?1, ?2)";
    Ok(conn.execute(sql, params![name, value]).map(drop)?)
}

fn version_name(decl: &TableDecl) -> String {
    format!("schema {}", decl.name)
}

fn corrupt(detail: String) -> Fault {
    Fault::new(StoreErrorKind::Corrupt, detail)
}
