//! Commits that name the same rows in different orders: all of them happen, and none costs a wait
//! for a deadlock.

use std::sync::Arc;

use emmer_core::Timestamp;
use emmer_store::silos::VERSION_ROW;
use emmer_store::{CommitOutcome, Mutation, StoredRow, SystemStore, Value};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::rows::{NUMBERS, must_commit, row, same_number};
use super::{Store, TestServer};

/// Orders in which callers name the same rows: each begins with another one.
const ORDERS: [[&str; 4]; 4] = [
    ["a", "b", "c", VERSION_ROW],
    ["b", "c", VERSION_ROW, "a"],
    ["c", VERSION_ROW, "b", "a"],
    [VERSION_ROW, "b", "a", "c"],
];

/// Existing rows, on a server that counts its deadlocks: there are none.
///
/// # Panics
/// There is one, or a commit does not happen.
pub async fn without_deadlocks(server: &impl TestServer, store: Store) {
    old_rows(&server.url(), store).await;
    assert_eq!(server.deadlocks(), Ok(0), "commits waited for each other");
}

/// Rows that are made and deleted, on a server that counts its deadlocks: there are none where it
/// locks no gaps.
///
/// # Panics
/// There is one, or a commit does not happen.
pub async fn new_rows_without_deadlocks(server: &impl TestServer, store: Store) {
    new_rows(&server.url(), store).await;
    let deadlocks = server.deadlocks().unwrap();
    println!("{deadlocks} deadlocks");
    assert!(
        deadlocks == 0 || server.locks_gaps(),
        "{deadlocks} times commits waited for each other"
    );
}

/// Commits of the same rows in different orders all happen, whether they replace what they read or
/// not. A conflict is reported by the caller's order.
///
/// # Panics
/// It is otherwise.
pub async fn old_rows(url: &str, store: Store) {
    const COMMITS: i64 = 25;
    let opener = store;
    let store = opener.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let mut writers = JoinSet::new();
    for keys in [ORDERS, ORDERS].concat() {
        let store = opener.patient(url).await;
        writers.spawn(async move {
            for n in 0..COMMITS {
                let upserts =
                    keys.iter().map(|key| Mutation::Upsert { row: row(*key, n) }).collect();
                must_commit(&store, "p", upserts).await;
                let replaced = async || {
                    let found = store.read_partition(&NUMBERS, "p").await.unwrap();
                    store.commit(&NUMBERS, "p", replace(&found, &keys, n)).await.unwrap()
                };
                while !matches!(replaced().await, CommitOutcome::Committed(_)) {}
            }
        });
    }
    writers.join_all().await;
    let found = store.read_partition(&NUMBERS, "p").await.unwrap();
    assert_eq!(same_number(&found, ORDERS.len()), COMMITS - 1);
    for keys in ORDERS {
        for stale in 0..keys.len() {
            let mut mutations = replace(&found, &keys, COMMITS);
            for mutation in mutations.iter_mut().skip(stale) {
                if let Mutation::Replace { etag, .. } = mutation {
                    *etag = "1".into();
                }
            }
            let outcome = store.commit(&NUMBERS, "p", mutations).await.unwrap();
            assert_eq!(outcome, CommitOutcome::Conflict(stale), "{keys:?}");
        }
    }
}

/// Replaces the rows with these keys, in this order, with etags that were read before.
fn replace(found: &[StoredRow], keys: &[&str], n: i64) -> Vec<Mutation> {
    let etag = |key: &str| found.iter().find(|found| found.row.key() == key).unwrap().etag.clone();
    keys.iter().map(|key| Mutation::Replace { row: row(*key, n), etag: etag(key) }).collect()
}

/// The work of the writers of [`new_rows`] in one round, all at the same moment, each in its own
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// Half of the rows by inserts, half by upserts: the first writer makes them, the others'
    /// inserts conflict.
    Mixed,
    /// Upserts of rows that do not exist yet: all happen.
    Upserts,
    /// Half of the writers make all rows, half make some and delete the others, if these are there.
    Deletes,
    /// Half of the writers make all rows, half append the same rows and clean them up.
    Others,
}

/// Number of rows that stand for one name of [`ORDERS`] in [`new_rows`]: large enough that writers
/// meet in the middle.
const EACH: usize = 20;

/// Commits that make and delete the same rows in different orders all come to an end: the first one
/// makes them.
///
/// # Panics
/// It is otherwise.
pub async fn new_rows(url: &str, store: Store) {
    const ROUNDS: usize = 40;
    let opener = store;
    let store = opener.patient(url).await;
    store.ensure_tables(&[&NUMBERS]).await.unwrap();
    let writers = [ORDERS, ORDERS].concat();
    let together = Arc::new(Barrier::new(writers.len()));
    let mut tasks = JoinSet::new();
    for (number, names) in writers.into_iter().enumerate() {
        let (store, together) = (opener.patient(url).await, together.clone());
        let key = |name: &str, i| if i == 0 { name.to_owned() } else { format!("{name}{i:02}") };
        let keys: Vec<String> =
            names.iter().flat_map(|name| (0..EACH).map(move |i| key(name, i))).collect();
        tasks.spawn(async move {
            let mut happened = Vec::new();
            for n in 0..ROUNDS {
                let round = [Round::Mixed, Round::Upserts, Round::Deletes, Round::Others][n % 4];
                together.wait().await;
                happened.push(take_part(&store, round, &format!("new-{n}"), number, &keys).await);
            }
            happened
        });
    }
    let happened = tasks.join_all().await;
    for n in (0..ROUNDS).step_by(4) {
        let count = |n: usize| happened.iter().filter(|each| each[n]).count();
        assert_eq!((count(n), count(n + 1)), (1, happened.len()), "round {n}");
        for n in [n, n + 1] {
            let rows = store.read_partition(&NUMBERS, &format!("new-{n}")).await.unwrap();
            same_number(&rows, ORDERS.len() * EACH);
        }
    }
}

/// One writer's part of a round; whether its commit happened.
async fn take_part(
    store: &Arc<dyn SystemStore>,
    round: Round,
    partition: &str,
    number: usize,
    keys: &[String],
) -> bool {
    let n = i64::try_from(number).unwrap();
    let old = Value::Time(Timestamp::from_millis(0));
    let upsert = |key: &String| Mutation::Upsert { row: row(key, n).with("At", old.clone()) };
    let insert = |key: &String| Mutation::Insert { row: row(key, n) };
    let delete = |key: &String| Mutation::Delete { row_key: key.clone(), etag: None };
    let (front, back) = keys.split_at(keys.len() / 2);
    let mutations: Vec<Mutation> = match round {
        Round::Mixed => front.iter().map(insert).chain(back.iter().map(upsert)).collect(),
        Round::Deletes if number >= ORDERS.len() => {
            front.iter().map(upsert).chain(back.iter().map(delete)).collect()
        }
        Round::Others if number >= ORDERS.len() => {
            let rows = keys.iter().map(|key| row(key, n).with("At", old.clone())).collect();
            store.append(&NUMBERS, partition, rows).await.unwrap();
            store
                .delete_older_than(&NUMBERS, partition, "At", Timestamp::from_millis(1))
                .await
                .unwrap();
            return true;
        }
        Round::Upserts | Round::Deletes | Round::Others => keys.iter().map(upsert).collect(),
    };
    match store.commit(&NUMBERS, partition, mutations).await.unwrap() {
        CommitOutcome::Committed(_) => true,
        CommitOutcome::Conflict(_) => false,
        CommitOutcome::Unknown(error) => panic!("{round:?}: {error}"),
    }
}
