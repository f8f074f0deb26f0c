//! Making tables, and finding out whether what is there is what is declared.

use emmer_store::{StoreErrorKind, TableDecl};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::Fault;
use crate::session::Session;
use crate::sql;

/// How this store lays out a file; a file with another number was made by another version.
const LAYOUT: i64 = 1;

/// What makes the table that tells about the others, for [`LAYOUT`] and no writer yet.
const META: &str = "CREATE TABLE emmer_meta (\"Name\" TEXT NOT NULL PRIMARY KEY, \"Value\" INTEGER NOT NULL) STRICT, \
                    WITHOUT ROWID; INSERT INTO emmer_meta VALUES ('layout', 1), ('writers', 0);";

/// What a file lacks of one table.
pub(crate) enum Lack {
    /// All of it.
    Table(&'static TableDecl),
    /// What a newer schema version brought: these statements add it.
    Parts(&'static TableDecl, String),
}

/// What the file lacks of `tables`, looked at without a lock: as of one moment, so that a table which somebody brings
/// forward meanwhile is seen as before or as after, never with the columns of one and the version of the other.
pub(crate) fn look(conn: &Connection, tables: &[&'static TableDecl]) -> Result<Vec<Lack>, Fault> {
    let moment = conn.unchecked_transaction()?;
    missing(&moment, tables)
}

/// What the file lacks of `tables`, inside a transaction.
///
/// Fails as corrupt when the file or one of them has another shape or a newer version.
fn missing(conn: &Connection, tables: &[&'static TableDecl]) -> Result<Vec<Lack>, Fault> {
    if !exists(conn, "emmer_meta")? {
        return Ok(tables.iter().map(|decl| Lack::Table(decl)).collect());
    }
    let layout = meta(conn, "layout")?;
    if layout != Some(LAYOUT) {
        let layout = layout.map_or_else(|| "no layout".to_owned(), |layout| format!("layout {layout}"));
        return Err(corrupt(format!(
            "the file has {layout}, this program knows layout {LAYOUT}: another version or another program made it"
        )));
    }
    let mut missing = Vec::new();
    for decl in tables {
        if !exists(conn, decl.name)? {
            missing.push(Lack::Table(decl));
        } else if let Some(parts) = check(conn, decl)? {
            missing.push(Lack::Parts(decl, parts));
        }
    }
    Ok(missing)
}

/// Makes what is missing. Inside a write transaction, which makes it safe against others doing the same.
pub(crate) fn ensure(session: &Session, tables: &[&'static TableDecl]) -> Result<(), Fault> {
    let conn = &session.conn;
    if !exists(conn, "emmer_meta")? {
        conn.execute_batch(META)?;
    }
    for lack in missing(conn, tables)? {
        let (decl, statements) = match lack {
            Lack::Table(decl) => (decl, sql::create(decl)),
            Lack::Parts(decl, statements) => (decl, statements),
        };
        conn.execute_batch(&statements)?;
        let sql = "INSERT OR REPLACE INTO emmer_meta (\"Name\", \"Value\") VALUES (?1, ?2)";
        conn.execute(sql, params![version_name(decl), decl.schema_version])?;
    }
    Ok(())
}

/// The statements that make everything in an empty file.
pub(crate) fn script(tables: &[&TableDecl]) -> String {
    let mut script = META.to_owned();
    for decl in tables {
        let (name, version) = (version_name(decl), decl.schema_version);
        script += &format!("\n{}\nINSERT INTO emmer_meta VALUES ('{name}', {version});", sql::create(decl));
    }
    script + "\n"
}

/// The statements that bring a table of an older version forward; none are needed for one of this version.
fn check(conn: &Connection, decl: &TableDecl) -> Result<Option<String>, Fault> {
    let (version, known) = (meta(conn, &version_name(decl))?, i64::from(decl.schema_version));
    let Some(version) = version else {
        return Err(corrupt(format!(
            "table {} is there and emmer_meta holds no schema version for it: another program made it",
            decl.name
        )));
    };
    if version > known {
        return Err(corrupt(format!(
            "table {} has schema version {version}, this program knows {known}: run a newer program",
            decl.name
        )));
    }
    let is_older = version < known;
    let mut statement = conn.prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
    let found: Vec<(String, String)> =
        statement.query_map([decl.name], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let wanted = sql::shape(decl);
    let is_known = found.iter().all(|column| wanted.contains(column));
    let has_keys = wanted.iter().take(3).all(|column| found.contains(column));
    if !is_known || !has_keys || (!is_older && found.len() != wanted.len()) {
        return Err(corrupt(format!("table {} has other columns than declared: {found:?}", decl.name)));
    }
    Ok(is_older.then(|| sql::forward(decl, &found)))
}

fn exists(conn: &Connection, table: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    Ok(conn.prepare(sql)?.exists([table])?)
}

fn meta(conn: &Connection, name: &str) -> Result<Option<i64>, Fault> {
    let sql = "SELECT \"Value\" FROM emmer_meta WHERE \"Name\" = ?1";
    Ok(conn.query_row(sql, [name], |row| row.get(0)).optional()?)
}

fn version_name(decl: &TableDecl) -> String {
    format!("schema {}", decl.name)
}

fn corrupt(detail: String) -> Fault {
    Fault::new(StoreErrorKind::Corrupt, detail)
}
