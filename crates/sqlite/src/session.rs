//! One connection: how it is opened, its statements.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use emmer_store::{StoreErrorKind, TableDecl};
use rusqlite::{Connection, OpenFlags};

use crate::fault::Failed;
use crate::place::{FileId, Place};
use crate::sql::TableSql;

/// The waits between two questions for a lock another process holds: from the first step to fifty
/// of them.
const BUSY_STEP: Duration = Duration::from_micros(100);
const BUSY_STEPS_MAX: i32 = 50;
/// Number of times that a new file is asked to become a WAL file while others do the same.
const WAL_RETRIES_MAX: u32 = 200;
/// The most distinct statements one connection keeps prepared.
const STATEMENTS_MAX: usize = 256;

/// The file of a store that was found damaged, known to all its connections.
///
/// Some requests succeed on a damaged file, depending on the pages that they touch. None is made
/// after the first failure: it could read invented data, or damage more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damage(Arc<Mutex<Option<FileId>>>);

impl Damage {
    /// Remembers the file if this failure shows that it is damaged.
    fn note(&self, file: FileId, failed: &Failed) {
        if failed.0.kind == StoreErrorKind::Damaged {
            *lock(&self.0) = Some(file);
        }
    }

    fn is_of(&self, file: FileId) -> bool {
        *lock(&self.0) == Some(file)
    }
}

/// A connection and what belongs to it.
pub(crate) struct Session {
    pub(crate) conn: Connection,
    place: Place,
    read_only: bool,
    /// The file that is open. Its name may lead to another one later.
    file: FileId,
    /// The log of that file, if there is one.
    log: Option<FileId>,
    damage: Damage,
    /// Time until which to wait for a lock that another process holds.
    until: Arc<Mutex<Instant>>,
    tables: BTreeMap<&'static str, (&'static TableDecl, Arc<TableSql>)>,
}

impl Session {
    /// Opens the file: WAL, so that readers never wait for the writer; waits for locks with short,
    /// bounded retries.
    pub(crate) fn open(place: &Place, read_only: bool, damage: Damage) -> Result<Self, Failed> {
        let before = place.look()?;
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        flags.set(OpenFlags::SQLITE_OPEN_CREATE, place.create);
        let mut conn = Connection::open_with_flags(&place.path, flags)?;
        let until = Arc::new(Mutex::new(Instant::now() + place.busy_timeout));
        let shared = until.clone();
        conn.busy_handler(Some(move |retries| wait_for_lock(retries, *lock(&shared))))?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // SQLite falls back to reading when it may not write. That is enough for clients and for
        // tools that only look (`mode=rw`); a silo that cannot commit is no silo.
        let may_write = !conn.is_readonly("main")?;
        if !may_write && place.create {
            return Err(Failed::new(
                StoreErrorKind::Refused,
                "the file is read-only for this process",
            ));
        }
        let read_only = read_only || !may_write;
        if may_write {
            use_wal(&conn)?;
        }
        let synchronous = if place.full_sync { "FULL" } else { "NORMAL" };
        conn.execute_batch(&format!(
            "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 4000; \
             PRAGMA journal_size_limit = 67108864; PRAGMA cache_size = -16000; PRAGMA temp_store = \
             MEMORY;"
        ))?;
        if read_only {
            conn.execute_batch("PRAGMA query_only = ON;")?;
        }
        let file = place.file()?.ok_or_else(deleted)?;
        if before.is_some_and(|before| before != file) {
            let detail = "another file took the place of this one while it was opened";
            return Err(Failed::new(StoreErrorKind::Unavailable, detail));
        }
        let (place, log) = (place.clone(), place.log());
        Ok(Self { conn, place, read_only, file, log, damage, until, tables: BTreeMap::new() })
    }

    /// Opens the file that has the name now, if it is another file: requests must not go to a file
    /// that no other process sees. It makes no file.
    ///
    /// A file next to the log of the former one is damaged as soon as it is opened: SQLite takes
    /// the log for its own.
    pub(crate) fn follow(&mut self) -> Result<(), Failed> {
        let now = self.place.file()?.ok_or_else(deleted)?;
        if self.damage.is_of(now) {
            return Err(Failed::new(StoreErrorKind::Damaged, "the file was found damaged"));
        }
        if now == self.file {
            // SQLite makes the log with the first request.
            self.log = self.log.or_else(|| self.place.log());
        } else {
            if self.log.is_some() && self.place.log() == self.log {
                let detail = "another file took the place of this one, whose log is still there";
                let failed = Failed::new(StoreErrorKind::Damaged, detail);
                self.damage.note(now, &failed);
                return Err(failed);
            }
            let (place, damage) = (self.place.clone(), self.damage.clone());
            let there = Place { create: false, ..place.clone() };
            let opened = Self::open(&there, self.read_only, damage);
            *self = Self { place, ..opened.inspect_err(|failed| self.damage.note(now, failed))? };
        }
        Ok(())
    }

    /// Remembers what a failure of a request says of the file.
    pub(crate) fn note(&self, failed: &Failed) {
        self.damage.note(self.file, failed);
    }

    /// Sets until when statements wait for a lock that another process holds. Each asks at least
    /// once.
    pub(crate) fn wait_until(&self, moment: Instant) {
        *lock(&self.until) = moment;
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

fn deleted() -> Failed {
    Failed::new(StoreErrorKind::NotFound, "the file was deleted or renamed while it was open")
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under it.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_for_lock(retries: i32, until: Instant) -> bool {
    let Some(pause) = pause(retries, until.saturating_duration_since(Instant::now())) else {
        return false;
    };
    std::thread::sleep(pause);
    true
}

/// Time to wait before the next question for a lock; none when no time is left. SQLite's own
/// handler sleeps up to 100 ms; under many short commits that is a hundred times too long. Waits 1,
/// 2, ... 50, 50, ... steps. The clock tells the rest: a busy machine makes pauses longer than was
/// asked for, and their sum is not the time.
fn pause(retries: i32, left: Duration) -> Option<Duration> {
    let step = BUSY_STEP * retries.saturating_add(1).clamp(1, BUSY_STEPS_MAX).unsigned_abs();
    (!left.is_zero()).then_some(step.min(left))
}

/// Makes the file a WAL file. For this one change SQLite may answer busy without asking the
/// handler.
fn use_wal(conn: &Connection) -> Result<(), Failed> {
    let mut retries = 0;
    loop {
        match conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let detail =
                    format!("the file cannot be used by several processes: journal mode {mode}");
                return Err(Failed::new(StoreErrorKind::Refused, detail));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine that wakes a sleeper late.
    #[test]
    fn a_lock_is_waited_for_until_the_time_is_over_however_late_the_sleeper_wakes() {
        let timeout = Duration::from_secs(5);
        for late in [Duration::ZERO, Duration::from_millis(3)] {
            let (mut now, mut retries) = (Duration::ZERO, 0);
            while let Some(pause) = pause(retries, timeout.saturating_sub(now)) {
                now += pause + late;
                retries += 1;
            }
            assert!(now >= timeout && now <= timeout + late, "{now:?}");
        }
        assert_eq!(pause(0, Duration::ZERO), None);
        assert_eq!(pause(7, timeout), Some(BUSY_STEP * 8));
        assert_eq!(pause(i32::MAX, timeout), Some(BUSY_STEP * 50));
    }
}
