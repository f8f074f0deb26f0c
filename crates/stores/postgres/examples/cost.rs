//! What the store costs over tokio-postgres itself, on this machine, in one run:
//! `cargo run --release -p emmer-store-postgres --example cost [URL of an empty database]`. Without a URL it starts a
//! server of its own (`fsync=off`: the disk is the same for both sides and would only hide the difference).
//!
//! The driver does by hand what the store does: a membership commit as one transaction (lock and move on the version
//! row if its etag is the one read, write one silo row), once waiting for each answer, once with all of it
//! sent together; and a read of a partition of 100 rows into values. The two sides take turns, so that whatever else
//! the machine does hits both; the numbers are medians.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_store::{SiloCommit, SiloTable, SystemStore};
use emmer_store_postgres::PostgresStore;
use emmer_test_servers::PostgresServer;
use futures_util::future::{try_join_all, try_join3, try_join4};
use tokio_postgres::{Client, NoTls, Statement};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 2_000;
const SILOS: u64 = 99;
const WRITERS: usize = 20;
const RACE: Duration = Duration::from_secs(4);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut own = None;
    let url = match std::env::args().nth(1) {
        Some(url) => url,
        None => own.insert(PostgresServer::start()?).url("postgres"),
    };
    let store: Arc<dyn SystemStore> = Arc::new(PostgresStore::open(&url).await?);
    let table = SiloTable::new(store, "cost".parse()?);
    table.ensure().await?;
    let raw = Raw::open(&url).await?;
    commits(&table, &raw).await?;
    reads(&table, &raw).await?;
    race(&table).await?;
    drop(own);
    Ok(())
}

fn silo(n: u64) -> SiloEntry {
    let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], 11_111));
    let mut silo =
        SiloEntry::new(SiloAddress::new(endpoint, n), SiloStatus::Active, Timestamp::from_millis(1));
    silo.host_name = "host-17.rack-3.example.net".into();
    silo.instance_name = "silo-17".into();
    silo
}

/// The driver, with the statements a careful user would write by hand.
struct Raw {
    client: Client,
    version: Statement,
    silo: Statement,
    read: Statement,
}

impl Raw {
    async fn open(url: &str) -> Outcome<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(async move { drop(connection.await) });
        client.batch_execute("CREATE TABLE by_hand (LIKE silo_instances INCLUDING ALL)").await?;
        client
            .batch_execute(
                "INSERT INTO by_hand (partitionkey, rowkey, etag, membershipversion) VALUES ('cost', 'VersionRow', 0, 0)",
            )
            .await?;
        let version = "UPDATE by_hand SET etag = $2, membershipversion = $2 \
                       WHERE partitionkey = 'cost' AND rowkey = 'VersionRow' AND etag = $1";
        let silo = "INSERT INTO by_hand VALUES ('cost', $1, $2, 'cost', '10.0.0.1', 11111, $3, $4, 'Active', 0, \
                    'false', '', $5, 0, 0, '[]', '[]', '1970-01-01', '1970-01-01', NULL) \
                    ON CONFLICT (partitionkey, rowkey) DO UPDATE SET etag = excluded.etag, \
                    deploymentid = excluded.deploymentid, address = excluded.address, port = excluded.port, \
                    generation = excluded.generation, hostname = excluded.hostname, status = excluded.status, \
                    proxyport = excluded.proxyport, \"primary\" = excluded.\"primary\", rolename = excluded.rolename, \
                    instancename = excluded.instancename, updatezone = excluded.updatezone, \
                    faultzone = excluded.faultzone, suspectingsilos = excluded.suspectingsilos, \
                    suspectingtimes = excluded.suspectingtimes, starttime = excluded.starttime";
        let read = "SELECT rowkey, etag, deploymentid, address, port, generation, hostname, status, proxyport, \
                    \"primary\", rolename, instancename, updatezone, faultzone, suspectingsilos::text, \
                    suspectingtimes::text, (extract(epoch FROM starttime) * 1000)::bigint, \
                    (extract(epoch FROM iamalivetime) * 1000)::bigint, membershipversion \
                    FROM by_hand WHERE partitionkey = $1 ORDER BY rowkey";
        let (version, silo, read) =
            try_join3(client.prepare(version), client.prepare(silo), client.prepare(read)).await?;
        Ok(Self { client, version, silo, read })
    }

    /// A commit whose statements each wait for their answer.
    async fn commit(&self, number: i64, silo: u64) -> Outcome<()> {
        self.client.batch_execute("BEGIN").await?;
        let moved = self.move_version(number).await?;
        let wrote = self.write_silo(number, silo).await?;
        self.client.batch_execute("COMMIT").await?;
        if (moved, wrote) == (1, 1) { Ok(()) } else { Err("the update missed".into()) }
    }

    /// The same, all sent at once; it can only find out afterwards that it should not have committed.
    async fn commit_together(&self, number: i64, silo: u64) -> Outcome<()> {
        let ((), moved, wrote, ()) = try_join4(
            self.client.batch_execute("BEGIN"),
            self.move_version(number),
            self.write_silo(number, silo),
            self.client.batch_execute("COMMIT"),
        )
        .await?;
        if (moved, wrote) == (1, 1) { Ok(()) } else { Err("the update missed".into()) }
    }

    async fn move_version(&self, number: i64) -> Result<u64, tokio_postgres::Error> {
        self.client.execute(&self.version, &[&(number - 1), &number]).await
    }

    async fn write_silo(&self, number: i64, silo: u64) -> Result<u64, tokio_postgres::Error> {
        let epoch = silo.cast_signed();
        let key = format!("10.0.0.1-11111-{silo}");
        let (host, name) = ("host-17.rack-3.example.net", "silo-17");
        self.client.execute(&self.silo, &[&key, &number, &epoch, &host, &name]).await
    }

    async fn read(&self) -> Outcome<usize> {
        let rows = self.client.query(&self.read, &[&"cost"]).await?;
        let mut cells = 0;
        for row in &rows {
            for at in [0, 2, 3, 6, 7, 9, 10, 11, 14, 15] {
                cells += usize::from(row.try_get::<_, Option<String>>(at)?.is_some());
            }
            for at in [1, 4, 5, 8, 12, 13, 16, 17, 18] {
                cells += usize::from(row.try_get::<_, Option<i64>>(at)?.is_some());
            }
        }
        if cells < rows.len() { Err("no cells".into()) } else { Ok(rows.len()) }
    }
}

/// The times of one side.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    async fn take<T>(&mut self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let begun = Instant::now();
        let done = work.await?;
        self.0.push(begun.elapsed());
        Ok(done)
    }

    fn median(mut self) -> Duration {
        self.0.sort_unstable();
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }
}

fn show(what: &str, took: Duration, floor: Duration) {
    let ratio = took.as_secs_f64() / floor.as_secs_f64();
    println!("{what}: median {:.0} us, {ratio:.2} of the driver", took.as_secs_f64() * 1e6);
}

async fn commits(table: &SiloTable, raw: &Raw) -> Outcome<()> {
    let (mut by_store, mut by_hand, mut together) = (Times::default(), Times::default(), Times::default());
    let mut base = TableVersion::default();
    for round in 0..ROUNDS as u64 {
        let n = round % SILOS + 1;
        base = by_store.take(commit(table, &base, n)).await?;
        by_hand.take(raw.commit(2 * round.cast_signed() + 1, n)).await?;
        together.take(raw.commit_together(2 * round.cast_signed() + 2, n)).await?;
    }
    let floor = by_hand.median();
    show("commit, the driver, statement by statement", floor, floor);
    show("commit, the driver, all statements at once", together.median(), floor);
    show("commit, the store", by_store.median(), floor);
    Ok(())
}

async fn commit(table: &SiloTable, base: &TableVersion, n: u64) -> Outcome<TableVersion> {
    match table.commit(base, vec![silo(n)], vec![]).await? {
        SiloCommit::Committed(version) => Ok(version),
        other => Err(format!("{other:?}").into()),
    }
}

async fn reads(table: &SiloTable, raw: &Raw) -> Outcome<()> {
    let (mut by_store, mut by_hand, mut understood) = (Times::default(), Times::default(), Times::default());
    let decl = &emmer_store::silos::SILO_INSTANCES;
    for _ in 0..ROUNDS {
        let count = by_hand.take(raw.read()).await?;
        let read = async { Ok(table.store().read_partition(decl, "cost").await?) };
        let rows = by_store.take(read).await?;
        let (_, silos) = understood.take(async { Ok(table.read_all().await?) }).await?;
        if (count, rows.len()) != (silos.len() + 1, silos.len() + 1) {
            return Err(format!("{count} rows by hand, {} by the store", rows.len()).into());
        }
    }
    let floor = by_hand.median();
    show("read of 100 rows, the driver", floor, floor);
    show("read of 100 rows, the store", by_store.median(), floor);
    show("read of 100 rows, the store, as silos", understood.median(), floor);
    Ok(())
}

async fn race(table: &SiloTable) -> Outcome<()> {
    let alone = writers(table, 1).await?;
    let crowd = writers(table, WRITERS).await?;
    let ratio = crowd as f64 / alone as f64;
    let per_second = |n: u64| n as f64 / RACE.as_secs_f64();
    println!("one writer, reading the version before each commit: {:.0} commits/s", per_second(alone));
    println!("{WRITERS} writers racing: {:.0} commits/s, {ratio:.2} of one", per_second(crowd));
    Ok(())
}

/// The commits of some writers that race.
async fn writers(table: &SiloTable, count: usize) -> Outcome<u64> {
    let done = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let tasks = (1..=count as u64).map(|n| {
        let (table, done) = (table.clone(), done.clone());
        tokio::spawn(async move {
            while begun.elapsed() < RACE {
                let base = table.read_version().await?;
                if let SiloCommit::Committed(_) = table.commit(&base, vec![silo(n)], vec![]).await? {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok::<(), emmer_store::StoreError>(())
        })
    });
    for ended in try_join_all(tasks).await? {
        ended?;
    }
    Ok(done.load(Ordering::Relaxed))
}
