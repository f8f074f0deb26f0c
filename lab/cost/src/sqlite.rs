//! What the store costs over rusqlite itself, on this machine, in one run. The driver blocks the
//! thread that calls it; with `threads` it is called as an asynchronous program must call it, on a
//! thread for blocking calls.

use std::sync::{Arc, Mutex, PoisonError};

use crate::measure::{ByHand, CLUSTER, Outcome, measure};
use emmer_store::{BoxFuture, SystemStore};
use emmer_store_sqlite::SqliteStore;
use emmer_test_servers::suite::Store;
use rusqlite::{Connection, OptionalExtension};

fn open(url: String) -> BoxFuture<'static, emmer_store::Result<Arc<dyn SystemStore>>> {
    Box::pin(async move { Ok(Arc::new(SqliteStore::open(&url)?) as Arc<dyn SystemStore>) })
}

/// Measures.
pub(crate) async fn run(words: &[String]) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("cost.db");
    let url = format!("sqlite://{}", path.display());
    let on_threads = words.iter().any(|word| word == "threads");
    let by_hand = || async { Raw::open(&path, on_threads) };
    measure(&url, Store { open, patient: "", hasty: "" }, by_hand).await
}

/// The driver, with the statements a careful user would write by hand.
struct Raw {
    conn: Arc<Mutex<Connection>>,
    on_threads: bool,
}

const VERSION: &str = "UPDATE by_hand SET \"Etag\" = ?2, \"MembershipVersion\" = ?2 \
                       WHERE \"PartitionKey\" = 'cost' AND \"RowKey\" = 'VersionRow' AND \"Etag\" \
                       = ?1";
const SILO: &str = "INSERT INTO by_hand VALUES ('cost', ?1, ?2, 'cost', '10.0.0.1', 11111, ?3, ?4, 'Active', 0, \
                    'false', '', ?5, 0, 0, '[]', '[]', 0, 0, NULL) \
                    ON CONFLICT DO UPDATE SET \"Etag\" = excluded.\"Etag\", \
                    \"DeploymentId\" = excluded.\"DeploymentId\", \"Address\" = \
                    excluded.\"Address\", \
                    \"Port\" = excluded.\"Port\", \"Generation\" = excluded.\"Generation\", \
                    \"HostName\" = excluded.\"HostName\", \"Status\" = excluded.\"Status\", \
                    \"ProxyPort\" = excluded.\"ProxyPort\", \"Primary\" = excluded.\"Primary\", \
                    \"RoleName\" = excluded.\"RoleName\", \"InstanceName\" = \
                    excluded.\"InstanceName\", \
                    \"UpdateZone\" = excluded.\"UpdateZone\", \"FaultZone\" = \
                    excluded.\"FaultZone\", \
                    \"SuspectingSilos\" = excluded.\"SuspectingSilos\", \
                    \"SuspectingTimes\" = excluded.\"SuspectingTimes\", \"StartTime\" = \
                    excluded.\"StartTime\"";
const READ: &str = "SELECT \"RowKey\", \"Etag\", \"DeploymentId\", \"Address\", \"Port\", \"Generation\", \"HostName\", \
                    \"Status\", \"ProxyPort\", \"Primary\", \"RoleName\", \"InstanceName\", \"UpdateZone\", \
                    \"FaultZone\", \"SuspectingSilos\", \"SuspectingTimes\", \"StartTime\", \"IAmAliveTime\", \
                    \"MembershipVersion\" FROM by_hand WHERE \"PartitionKey\" = ?1 ORDER \
                    BY \"RowKey\"";

impl Raw {
    /// On the same file, so that both sides write to the same log.
    fn open(path: &std::path::Path, on_threads: bool) -> Outcome<Self> {
        let conn = Connection::open(path)?;
        conn.busy_timeout(std::time::Duration::from_secs(5))?;
        conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;")?;
        let like = "SELECT sql FROM sqlite_master WHERE name = 'silo_instances'";
        let like: Option<String> = conn.query_row(like, [], |row| row.get(0)).optional()?;
        let create = like.ok_or("no table")?.replacen("silo_instances", "by_hand", 1);
        conn.execute_batch(&create)?;
        conn.execute_batch(
            "INSERT INTO by_hand (\"PartitionKey\", \"RowKey\", \"Etag\", \"MembershipVersion\") \
             VALUES ('cost', 'VersionRow', 0, 0)",
        )?;
        Ok(Self { conn: Arc::new(Mutex::new(conn)), on_threads })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Outcome<T> {
        let conn = self.conn.clone();
        let work = move || work(&conn.lock().unwrap_or_else(PoisonError::into_inner));
        if self.on_threads { Ok(tokio::task::spawn_blocking(work).await??) } else { Ok(work()?) }
    }
}

impl ByHand for Raw {
    async fn commit(&self, number: i64, silo: u64) -> Outcome<()> {
        let work = move |conn: &Connection| {
            conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let moved = conn.prepare_cached(VERSION)?.execute([number - 1, number])?;
            let key = format!("10.0.0.1-11111-{silo}");
            let (host, name) = ("host-17.rack-3.example.net", "silo-17");
            let values = rusqlite::params![key, number, silo.cast_signed(), host, name];
            let wrote = conn.prepare_cached(SILO)?.execute(values)?;
            conn.prepare_cached("COMMIT")?.execute([])?;
            Ok((moved, wrote))
        };
        if self.run(work).await? == (1, 1) { Ok(()) } else { Err("the update missed".into()) }
    }

    async fn read(&self) -> Outcome<usize> {
        let work = |conn: &Connection| {
            let mut statement = conn.prepare_cached(READ)?;
            let mut rows = statement.query([CLUSTER])?;
            let (mut count, mut cells) = (0, 0);
            while let Some(row) = rows.next()? {
                for at in [0, 2, 3, 6, 7, 9, 10, 11, 14, 15] {
                    cells += usize::from(row.get::<_, Option<String>>(at)?.is_some());
                }
                for at in [1, 4, 5, 8, 12, 13, 16, 17, 18] {
                    cells += usize::from(row.get::<_, Option<i64>>(at)?.is_some());
                }
                count += 1;
            }
            Ok((count, cells))
        };
        let (count, cells) = self.run(work).await?;
        if cells < count { Err("no cells".into()) } else { Ok(count) }
    }
}
