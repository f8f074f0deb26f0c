//! What the store costs over rusqlite itself, on this machine:
//! `cargo run --release -p emmer-store-sqlite --example cost`.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer_core::{GrainKey, Timestamp};
use emmer_store::{StateTable, SystemStore, WriteOutcome};
use emmer_store_sqlite::SqliteStore;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const COMMITS: u32 = 20_000;
const WRITERS: u32 = 64;
const PAYLOAD: [u8; 200] = [7; 200];

fn main() -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let floor = rusqlite_alone(&dir.path().join("floor.db"))?;
    show("rusqlite alone, one conditional update after the other", floor, floor);
    let url = format!("sqlite://{}", dir.path().join("store.db").display());
    let store: Arc<dyn SystemStore> = Arc::new(SqliteStore::open(&url)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let states = StateTable::new(store, "cost".parse()?);
    runtime.block_on(states.ensure())?;
    show("the store, one writer", runtime.block_on(write(states.clone(), 0, COMMITS))?, floor);
    let begun = Instant::now();
    let writers: Vec<_> =
        (1..=WRITERS).map(|n| runtime.spawn(write(states.clone(), n, COMMITS / WRITERS))).collect();
    for writer in writers {
        runtime.block_on(writer)??;
    }
    show("the store, 64 writers", begun.elapsed(), floor);
    show("the store, one reader", runtime.block_on(read(states))?, floor);
    Ok(())
}

fn show(what: &str, took: Duration, floor: Duration) {
    let each = took.as_secs_f64() * 1e6 / f64::from(COMMITS);
    println!("{what}: {each:.1} us each, {:.2} of rusqlite alone", took.as_secs_f64() / floor.as_secs_f64());
}

fn rusqlite_alone(path: &std::path::Path) -> Outcome<Duration> {
    let conn = rusqlite::Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 4000;
         CREATE TABLE t (p TEXT NOT NULL, k TEXT NOT NULL, etag INTEGER NOT NULL, type TEXT, name TEXT, payload BLOB,
                         modified INTEGER, PRIMARY KEY (p, k)) STRICT;
         INSERT INTO t (p, k, etag) VALUES ('cost/Counter', 'u.0/n', 0);",
    )?;
    let begun = Instant::now();
    for n in 0..COMMITS {
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let sql = "UPDATE t SET etag = ?3, type = 'Counter', name = 'n', payload = ?4, modified = ?5 \
                   WHERE p = ?1 AND k = ?2 AND etag = ?6";
        let values = rusqlite::params!["cost/Counter", "u.0/n", n + 1, PAYLOAD, 1_795_265_085_123_i64, n];
        let changed = conn.prepare_cached(sql)?.execute(values)?;
        conn.prepare_cached("COMMIT")?.execute([])?;
        if changed != 1 {
            return Err("the update missed".into());
        }
    }
    Ok(begun.elapsed())
}

async fn write(states: StateTable, key: u32, commits: u32) -> Outcome<Duration> {
    let slot = states.slot("Counter", &GrainKey::from(u64::from(key)), "n");
    let mut etag = None;
    let begun = Instant::now();
    for n in 0..commits {
        let modified = Timestamp::from_millis(n.into());
        match slot.write(etag.as_ref(), "raw", PAYLOAD.into(), modified).await? {
            WriteOutcome::Written(new) => etag = Some(new),
            other => return Err(format!("{other:?}").into()),
        }
    }
    Ok(begun.elapsed())
}

async fn read(states: StateTable) -> Outcome<Duration> {
    let slot = states.slot("Counter", &GrainKey::from(0u64), "n");
    let begun = Instant::now();
    for _ in 0..COMMITS {
        slot.read().await?.ok_or("the state is gone")?;
    }
    Ok(begun.elapsed())
}
