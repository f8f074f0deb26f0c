//! Making tables, and comparing existing ones with their declarations.
//!
//! A `CREATE` commits everything before it and frees every lock. So a second session holds the lock
//! that lets one process at a time make tables: the row `layout` of `emmer_meta`. A holder that
//! dies frees it with its session.

use std::time::Duration;

use emmer_store::{StoreErrorKind, TableDecl};
use emmer_store_relational::schema::{self, Found, FoundTable};
use emmer_store_relational::{Dialect, Fault, names};

use crate::connection::{Connection, Threads};
use crate::dialect::OracleSql;
use crate::fault::{DUPLICATE, NO_TABLE, TABLE_EXISTS, Trouble};
use crate::place::Place;
use crate::session::Session;
use crate::values::{Bound, Kind};

/// Longest time of one statement here: others may be making tables.
const PATIENCE: Duration = Duration::from_secs(28);

/// Time that one maker waits for the others that make tables, and for writers to a table that gets
/// an index, in seconds.
const WAIT: u32 = 25;

/// Types as [`OracleSql::reported_type`] spells them. The views of `ALL_` show what this user may
/// see, in whichever schema it works.
pub(crate) const COLUMNS: &str = "SELECT column_name, \
     CASE data_type WHEN 'VARCHAR2' THEN 'VARCHAR2(' || data_length || DECODE(char_used, 'B', ' \
     BYTE)', ' CHAR)') WHEN 'NUMBER' THEN 'NUMBER(' || data_precision || ')' ELSE data_type END \
     FROM all_tab_columns WHERE owner = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND table_name = \
     :1 ORDER BY column_id";

/// The indexes of a table.
pub(crate) const INDEXES: &str = "SELECT index_name FROM all_indexes \
     WHERE table_owner = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND table_name = :1";

/// Takes the lock for making tables.
pub(crate) fn lock() -> String {
    let [meta, name] = [schema::META, "name"].map(|n| names::quoted(&OracleSql, n));
    format!(
        "SELECT {name} FROM {meta} WHERE {name} = '{}' FOR UPDATE WAIT {WAIT}",
        schema::LAYOUT_NAME
    )
}

/// Time that a `CREATE` waits for writers.
pub(crate) fn patient_ddl() -> String {
    format!("ALTER SESSION SET DDL_LOCK_TIMEOUT = {WAIT}")
}

/// Makes missing tables of `tables`.
pub(crate) async fn ensure(
    place: &Place,
    threads: &Threads,
    connection: &mut Connection,
    tables: &[&'static TableDecl],
) -> Result<(), Fault> {
    let plain = |trouble: Trouble| trouble.fault;
    let (tables, usual) = (tables.to_vec(), place.limits.statement_timeout());
    let wanted = tables.clone();
    // A table that looks wrong may be half made by others: it is wrong if it looks so under the
    // lock.
    let is_all_there = move |session: &mut Session| {
        Ok(missing(session, &wanted)?.is_ok_and(|statements| statements.is_empty()))
    };
    if connection.run(is_all_there).await.map_err(plain)? {
        return Ok(());
    }
    connection.run(make_meta).await.map_err(with_hint)?;
    let mut guard = Connection::open(place, threads).await?;
    let lock = |session: &mut Session| {
        session.patience(PATIENCE)?;
        session.query(&lock(), &[], &[Kind::Text]).map(drop)
    };
    guard.run(lock).await.map_err(with_hint)?;
    let made = connection.run(move |session| make(session, &tables, usual)).await;
    // Its session ends, and with it the lock.
    drop(guard);
    connection.in_flight |= made.is_err();
    made.map_err(with_hint)
}

/// Makes the table that holds the lock, and its row, unless they are there or another process is
/// faster.
fn make_meta(session: &mut Session) -> Result<(), Trouble> {
    let found = read_meta(session)?;
    let tolerant =
        |session: &mut Session, text: String, code: u32| match session.execute(&text, &[]) {
            Err(trouble) if trouble.code == Some(code) => Ok(0),
            ended => ended,
        };
    if found.is_none() {
        tolerant(session, schema::create_meta(&OracleSql), TABLE_EXISTS)?;
    }
    if found.is_none_or(|meta| meta.is_empty()) {
        let record = schema::record(&OracleSql, schema::LAYOUT_NAME, schema::LAYOUT);
        session.transact(|session| {
            tolerant(session, record, DUPLICATE)?;
            session.commit()
        })?;
    }
    Ok(())
}

/// Makes the tables, under the lock.
fn make(
    session: &mut Session,
    tables: &[&'static TableDecl],
    usual: Duration,
) -> Result<(), Trouble> {
    session.patience(PATIENCE)?;
    session.execute(&patient_ddl(), &[])?;
    let made = session.transact(|session| {
        // A `CREATE` commits the records before it, so that a table is recorded before it is made.
        for statement in missing(session, tables)?.map_err(Fault::corrupt)? {
            session.execute(&statement, &[])?;
        }
        session.commit()
    });
    session.patience(usual)?;
    made
}

/// The statements that make missing tables. The inner error names, in words, a table that differs
/// from its declaration.
fn missing(
    session: &mut Session,
    tables: &[&'static TableDecl],
) -> Result<Result<Vec<String>, String>, Trouble> {
    // Tables first: a table seen here was recorded before.
    let mut found = Found::default();
    for decl in tables {
        found.tables.push(read_table(session, decl)?);
    }
    found.meta = read_meta(session)?;
    Ok(schema::missing(&OracleSql, tables, &found))
}

fn read_table(session: &mut Session, decl: &TableDecl) -> Result<FoundTable, Trouble> {
    let name = [Bound::key(&OracleSql.fold(decl.name))];
    let mut found = FoundTable::default();
    for row in session.query(COLUMNS, &name, &[Kind::Text, Kind::Text])? {
        found.columns.push((row.word(0)?.to_owned(), row.word(1)?.to_owned()));
    }
    for row in session.query(INDEXES, &name, &[Kind::Text])? {
        found.indexes.push(row.word(0)?.to_owned());
    }
    Ok(found)
}

fn read_meta(session: &mut Session) -> Result<Option<Vec<(String, i64)>>, Trouble> {
    let rows = match session.query(&schema::read_meta(&OracleSql), &[], &[Kind::Text, Kind::Int]) {
        Err(trouble) if trouble.code == Some(NO_TABLE) => return Ok(None),
        ended => ended?,
    };
    let mut meta = Vec::with_capacity(rows.len());
    for row in &rows {
        meta.push((row.word(0)?.to_owned(), row.number(1)?));
    }
    Ok(Some(meta))
}

/// An administrator who lets no application make tables gets a hint.
fn with_hint(trouble: Trouble) -> Fault {
    let mut fault = trouble.fault;
    if fault.kind == StoreErrorKind::Refused {
        fault.detail += "; either GRANT CREATE TABLE and a quota on the tablespace to this user, \
                         or make the tables by the script of `emmer schema`";
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_make_tables_queue_on_one_row() {
        let text =
            "SELECT \"NAME\" FROM \"EMMER_META\" WHERE \"NAME\" = 'layout' FOR UPDATE WAIT 25";
        assert_eq!(lock(), text);
    }

    #[test]
    fn a_missing_right_comes_with_what_to_do() {
        let hint = |code| with_hint(crate::fault::server(code, "words")).detail;
        assert!(hint(1_031).contains("emmer schema") && hint(1_950).contains("quota"));
        assert!(!hint(3_113).contains("emmer schema"));
    }
}
