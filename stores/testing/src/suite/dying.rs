//! The client of a commit of several rows goes away: its connection is cut, its process is killed,
//! or the server stands still until the client has given up. Whatever the server still does then,
//! the version row and all rows of a commit are there, or none of it.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer_store::{CommitOutcome, SystemStore};
use futures_util::future::join_all;

use super::proxy::{Cut, Proxy};
use super::rows::{NUMBERS, must_commit, row};
use super::whole::{Ledger, SHAPES, SIZES, Shape, advance, read, warm_up};
use super::{Store, TestServer};
use crate::process::Frozen;

/// More messages than any commit needs.
const MESSAGES_MAX: usize = 60;
/// Number of times each message is cut off: how far a server comes with a commit before it notices
/// is up to chance.
const CUTS: usize = 3;
/// Number of times a server stands still, and how many commits of each size and shape it then has
/// before it.
const FREEZES: usize = 2;
const COPIES: usize = 2;
/// Number of commits of a server after it stood still, before it is judged.
const COMMITS_AFTER: i64 = 20;
/// The writers killed for each size and shape, and how much each has done before.
const KILLS: u32 = 6;
const COMMITS_BEFORE: usize = 3;
/// Where a writer writes: URL, partition, rows, shape.
const URL: &str = "EMMER_TEST_WRITER_URL";
const PARTITION: &str = "EMMER_TEST_WRITER_PARTITION";
const SIZE: &str = "EMMER_TEST_WRITER_SIZE";
const SHAPE: &str = "EMMER_TEST_WRITER_SHAPE";

fn cases() -> impl Iterator<Item = (usize, Shape)> {
    SIZES.into_iter().flat_map(|size| SHAPES.map(|shape| (size, shape)))
}

/// The connection is cut before and after every message of a commit.
///
/// # Panics
/// A commit is there in part, or otherwise than its client was told.
pub async fn cut(server: &impl TestServer, opener: Store) {
    let proxy = Proxy::start(server.port()).await;
    let direct = opener.patient(&server.url()).await;
    direct.ensure_tables(&[&NUMBERS]).await.unwrap();
    let store = opener.patient(&server.url_at(proxy.port())).await;
    let mut ledger = Ledger::default();
    for ((size, shape), cut) in cases().flat_map(|case| (0..CUTS).map(move |cut| (case, cut))) {
        for side in [Cut::Answer, Cut::Request] {
            let mut skip = 0;
            loop {
                let partition = format!("cut-{size}-{shape:?}-{side:?}-{skip}-{cut}");
                advance(&direct, &partition, size, Shape::Writes).await;
                warm_up(&store, &partition, size, shape).await;
                let before = read(&direct, &partition).await;
                proxy.arm(side, skip);
                let outcome = store.commit(&NUMBERS, &partition, before.next(size, shape)).await;
                let was_cut = proxy.disarm();
                ledger.ended(partition, before.version, outcome);
                if !was_cut {
                    break;
                }
                skip += 1;
                assert!(skip < MESSAGES_MAX, "a commit of more than {MESSAGES_MAX} messages");
            }
        }
    }
    println!("cut: {}", ledger.judge(&direct).await);
}

/// The server stands still while commits arrive, for longer than their clients wait; then it
/// continues, without clients that hear its answers.
///
/// # Panics
/// A commit is there in part, or otherwise than its client was told.
pub async fn stopped(server: &impl TestServer, opener: Store) {
    let direct = opener.patient(&server.url()).await;
    direct.ensure_tables(&[&NUMBERS]).await.unwrap();
    let mut ledger = Ledger::default();
    for freeze in 0..FREEZES {
        let mut clients = Vec::new();
        for ((size, shape), copy) in
            cases().flat_map(|case| (0..COPIES).map(move |copy| (case, copy)))
        {
            let partition = format!("stopped-{size}-{shape:?}-{freeze}-{copy}");
            advance(&direct, &partition, size, Shape::Writes).await;
            let store = opener.hasty(&server.url()).await;
            clients.push((store, partition, size, shape));
        }
        let mut ready = Vec::new();
        for (store, partition, size, shape) in clients {
            // The connection was used just now, so the next request goes out at once.
            warm_up(&store, &partition, size, shape).await;
            let before = read(&store, &partition).await;
            ready.push((store, partition, before.version, before.next(size, shape)));
        }
        let frozen = tokio::task::block_in_place(|| Frozen::whole(server.pid())).unwrap();
        let ended = join_all(ready.into_iter().map(async |(store, partition, before, next)| {
            let outcome = store.commit(&NUMBERS, &partition, next).await;
            (partition, before, outcome)
        }));
        for (partition, before, outcome) in ended.await {
            assert!(!matches!(outcome, Ok(CommitOutcome::Committed(_))), "a frozen server answers");
            ledger.ended(partition, before, outcome);
        }
        tokio::task::block_in_place(|| drop(frozen));
        // After this number of commits in a row the server has reached the waiting ones.
        for n in 0..COMMITS_AFTER {
            must_commit(&direct, "after", vec![emmer_store::Mutation::Upsert { row: row("r", n) }])
                .await;
        }
    }
    println!("stopped: {}", ledger.judge(&direct).await);
}

/// Processes that write are killed at any point of a commit. `writer` is the name of the test in
/// this program that calls [`writer`].
///
/// # Panics
/// A commit is there in part, or one that was acknowledged is not.
pub async fn killed(url: &str, opener: Store, writer: &str) {
    let direct = opener.patient(url).await;
    direct.ensure_tables(&[&NUMBERS]).await.unwrap();
    let mut ledger = Ledger::default();
    for (size, shape) in cases() {
        for kill in 0..KILLS {
            let partition = format!("killed-{size}-{shape:?}-{kill}");
            let acknowledged = tokio::task::block_in_place(|| {
                let mut child =
                    start(writer, &super::with(url, opener.patient), &partition, size, shape);
                let mut said = Said(BufReader::new(child.stdout.take().unwrap()).lines());
                let mut took = Duration::MAX;
                for _ in 0..=COMMITS_BEFORE {
                    let begun = Instant::now();
                    assert!(said.next().is_some(), "{partition}: the writer ended by itself");
                    took = took.min(begun.elapsed());
                }
                // Each dies a little later within its commit than the one before.
                std::thread::sleep(took * kill / KILLS);
                child.kill().unwrap();
                child.wait().unwrap();
                said.fold(0, i64::max)
            });
            let acknowledged = acknowledged.max(COMMITS_BEFORE as i64 + 1);
            ledger.between(partition, acknowledged, acknowledged + 1);
        }
    }
    println!("killed: {}", ledger.judge(&direct).await);
}

/// The versions that a writer says it has reached.
struct Said(Lines<BufReader<ChildStdout>>);

impl Iterator for Said {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        self.0
            .by_ref()
            .map_while(|line| line.ok())
            .find_map(|line| line.strip_prefix("wrote ")?.parse().ok())
    }
}

fn start(writer: &str, url: &str, partition: &str, size: usize, shape: Shape) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", writer, "--nocapture", "--test-threads=1"])
        .env(URL, url)
        .env(PARTITION, partition)
        .env(SIZE, size.to_string())
        .env(SHAPE, format!("{shape:?}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Body of a process that [`killed`] has started: it commits without end and says each version it
/// reached. Nothing in the test run itself.
///
/// # Panics
/// A commit does not happen.
pub async fn writer(opener: Store) {
    let Ok(url) = std::env::var(URL) else { return };
    let partition = std::env::var(PARTITION).unwrap();
    let size = std::env::var(SIZE).unwrap().parse().unwrap();
    let shape = std::env::var(SHAPE).unwrap();
    let shape = SHAPES.into_iter().find(|known| format!("{known:?}") == shape).unwrap();
    let store: Arc<dyn SystemStore> = (opener.open)(url).await.unwrap();
    loop {
        advance(&store, &partition, size, shape).await;
        println!("\nwrote {}", read(&store, &partition).await.version);
    }
}
