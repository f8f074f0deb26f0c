//! One connection: how it is opened, its statements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_store::{StoreErrorKind, TableDecl};
use rusqlite::{Connection, OpenFlags};

use crate::fault::Fault;
use crate::place::Place;
use crate::sql::TableSql;

/// The waits between two questions for a lock another process holds: from the first step to fifty of them.
const BUSY_STEP: Duration = Duration::from_micros(100);
const BUSY_STEPS_MAX: i32 = 50;
/// How often a new file is asked to become a WAL file while others do the same.
const WAL_RETRIES_MAX: u32 = 200;
/// The most distinct statements one connection keeps prepared.
const STATEMENTS_MAX: usize = 256;

/// A connection and what belongs to it.
pub(crate) struct Session {
    pub(crate) conn: Connection,
    tables: BTreeMap<&'static str, (&'static TableDecl, Arc<TableSql>)>,
}

impl Session {
    /// Opens the file: WAL, so that readers never wait for the writer; waits for locks with short, bounded retries.
    pub(crate) fn open(place: &Place, read_only: bool) -> Result<Self, Fault> {
        place.look()?;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, place.create);
        let mut conn = Connection::open_with_flags(&place.path, flags)?;
        let timeout = place.busy_timeout;
        conn.busy_handler(Some(move |retries| wait_for_lock(retries, timeout)))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        if conn.is_readonly("main")? {
            // SQLite falls back to reading when it may not write; a store that cannot commit is no store.
            return Err(Fault::new(StoreErrorKind::Refused, "the file is read-only for this process"));
        }
        use_wal(&conn)?;
        let synchronous = if place.full_sync { "FULL" } else { "NORMAL" };
        conn.execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 4000; \
             PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16000; PRAGMA temp_store = MEMORY;"
        ))?;
        if read_only {
            conn.execute_batch("PRAGMA query_only = ON;")?;
        }
        Ok(Self { conn, tables: BTreeMap::new() })
    }

    /// The statements of a table.
    pub(crate) fn sql(&mut self, decl: &'static TableDecl) -> Arc<TableSql> {
        match self.tables.get(decl.name) {
            Some((known, sql)) if *known == decl => sql.clone(),
            _ => {
                let sql = Arc::new(TableSql::new(decl));
                self.tables.insert(decl.name, (decl, sql.clone()));
                sql
            }
        }
    }

    /// Runs a statement without parameters or answer.
    pub(crate) fn execute(&self, sql: &'static str) -> rusqlite::Result<()> {
        self.conn.prepare_cached(sql)?.execute([]).map(drop)
    }
}

/// SQLite's own handler sleeps up to 100 ms; under many short commits that is a hundred times too long. Waits 1, 2, ...
/// 50, 50, ... steps; gives up when the waits so far add up to the timeout.
fn wait_for_lock(retries: i32, timeout: Duration) -> bool {
    let waited_steps = {
        let ramp = retries.clamp(0, BUSY_STEPS_MAX);
        ramp * (ramp + 1) / 2 + BUSY_STEPS_MAX * (retries - ramp).clamp(0, 1_000_000)
    };
    if BUSY_STEP * waited_steps.unsigned_abs() >= timeout {
        return false;
    }
    std::thread::sleep(BUSY_STEP * (retries + 1).clamp(1, BUSY_STEPS_MAX).unsigned_abs());
    true
}

/// Makes the file a WAL file. For this one change SQLite may answer busy without asking the handler.
fn use_wal(conn: &Connection) -> Result<(), Fault> {
    let mut retries = 0;
    loop {
        match conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let detail = format!("the file cannot be used by several processes: journal mode {mode}");
                return Err(Fault::new(StoreErrorKind::Refused, detail));
            }
            Err(error) => {
                let busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
                if !busy || retries >= WAL_RETRIES_MAX {
                    return Err(error.into());
                }
            }
        }
        retries += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
}
