//! Several processes on one file: none loses a commit, and `kill -9` in the middle of commits
//! leaves the file whole.
//!
//! The processes are this test program itself, told by the environment to run only [`child`].

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, Timestamp};
use emmer_store::{
    Column, ColumnType, CommitOutcome, Mutation, Row, SiloCommit, SiloTable, StoredRow,
    SystemStore, TableDecl, Value,
};
use emmer_store_sqlite::SqliteStore;

const FILE: &str = "EMMER_TEST_SQLITE_FILE";
const ROLE: &str = "EMMER_TEST_SQLITE_ROLE";
const NUMBER: &str = "EMMER_TEST_SQLITE_NUMBER";

const PROCESSES: u64 = 4;
const EACH: u64 = 200;
/// The rows a killed writer rewrites in every commit.
const ROWS: i64 = 40;

static KILLED: TableDecl = TableDecl {
    name: "killed",
    partition_key: "Part",
    row_key: "Id",
    columns: &[Column::new("N", ColumnType::Int), Column::new("Text", ColumnType::Text)],
    schema_version: 1,
    one_moment: true,
};

fn start(role: &str, file: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
        .env(FILE, file)
        .env(ROLE, role)
        .env(NUMBER, number.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

fn open(file: &str) -> Arc<dyn SystemStore> {
    Arc::new(SqliteStore::open(file).unwrap())
}

fn cluster() -> ClusterId {
    "prod".parse().unwrap()
}

/// Body of a child process; nothing in the test run itself.
#[test]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let number: u64 = std::env::var(NUMBER).unwrap().parse().unwrap();
    match std::env::var(ROLE).unwrap().as_str() {
        "counter" => runtime().block_on(count(&file, number)),
        "writer" => runtime().block_on(write_for_ever(&file)),
        other => panic!("unknown role {other}"),
    }
}

/// Moves the version on `EACH` times, racing the other processes.
async fn count(file: &str, number: u64) {
    let table = SiloTable::new(open(file), cluster());
    table.ensure().await.unwrap();
    // All begin together: the parent answers when the last one is here.
    println!("\nready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let endpoint = std::net::SocketAddr::from(([127, 0, 0, 1], 11_111));
    let me = SiloAddress::new(endpoint, number);
    let mut done = 0;
    while done < EACH {
        let (version, silos) = table.read_all().await.unwrap();
        let mine = silos.into_iter().find(|s| s.address == me);
        let mut mine = mine.unwrap_or_else(|| SiloEntry {
            update_zone: 0,
            ..SiloEntry::new(me, SiloStatus::Active, Timestamp::from_millis(1))
        });
        mine.update_zone += 1;
        match table.commit(&version, vec![mine], vec![]).await.unwrap() {
            SiloCommit::Committed(_) => done += 1,
            SiloCommit::Conflict => {}
            SiloCommit::Unknown(error) => panic!("{error}"),
        }
    }
}

fn rows(n: i64) -> Vec<Mutation> {
    let text = || Value::Text("x".repeat(500).into());
    let row = |i| Row::new(format!("r{i:03}")).with("N", Value::Int(n)).with("Text", text());
    (0..ROWS).map(|i| Mutation::Upsert { row: row(i) }).collect()
}

fn number(row: &StoredRow) -> i64 {
    match row.row.get("N") {
        Some(Value::Int(n)) => *n,
        other => panic!("N is {other:?}"),
    }
}

/// Writes all rows with the next number, for ever, and says each number once its commit is
/// answered.
async fn write_for_ever(file: &str) {
    let store = open(file);
    store.ensure_tables(&[&KILLED]).await.unwrap();
    let mut n = store.read_partition(&KILLED, "p").await.unwrap().first().map_or(0, number);
    loop {
        n += 1;
        let outcome = store.commit(&KILLED, "p", rows(n)).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        println!("\nwrote {n}");
    }
}

#[test]
fn processes_that_race_lose_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    // All of them also race to make the file and its tables.
    let mut children: Vec<Child> = (0..PROCESSES).map(|n| start("counter", &file, n)).collect();
    let mut outputs: Vec<_> = children
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()).lines())
        .collect();
    for lines in &mut outputs {
        assert!(
            lines.map_while(|line| line.ok()).any(|line| line == "ready"),
            "a child ended early"
        );
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    for (mut child, lines) in children.into_iter().zip(outputs) {
        let said: Vec<String> = lines.map_while(|line| line.ok()).collect();
        assert!(child.wait().unwrap().success(), "{said:?}");
    }
    runtime().block_on(async {
        let table = SiloTable::new(open(file.to_str().unwrap()), cluster());
        let (version, silos) = table.read_all().await.unwrap();
        assert_eq!(version.number, PROCESSES * EACH);
        let counts: Vec<i32> = silos.iter().map(|s| s.update_zone).collect();
        assert_eq!(counts, vec![EACH as i32; PROCESSES as usize]);
    });
}

#[test]
fn killed_writers_leave_whole_commits_and_everything_they_were_answered() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.db");
    let mut answered = 0;
    for round in 0..8 {
        let mut child = start("writer", &file, round);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Different rounds die at different points of their work: after more and more commits.
        for _ in 0..=round * 7 {
            answered = next_written(&mut lines).expect("the writer ended by itself");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Writes it reported before it died were answered too.
        while let Some(n) = next_written(&mut lines) {
            answered = n;
        }
        let store = open(file.to_str().unwrap());
        let found = runtime().block_on(store.read_partition(&KILLED, "p")).unwrap();
        let numbers: Vec<i64> = found.iter().map(number).collect();
        assert_eq!(numbers.len(), ROWS as usize);
        assert!(numbers.iter().all(|n| *n == numbers[0]), "a torn commit: {numbers:?}");
        assert!(
            (answered..=answered + 1).contains(&numbers[0]),
            "{answered} answered, {} found",
            numbers[0]
        );
    }
    let conn = rusqlite::Connection::open(&file).unwrap();
    let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

fn next_written(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Option<i64> {
    lines.map_while(|line| line.ok()).find_map(|line| line.strip_prefix("wrote ")?.parse().ok())
}
