//! What the store costs over zookeeper-client itself, on this machine, in one run:
//! `cargo run --release -p emmer-store-zookeeper --example cost [HOST:PORT]`. Without a server it starts one of its own
//! (`forceSync=no`: the disk is the same for both sides and would only hide the difference).
//!
//! The driver does by hand what the store does: a membership commit as one `multi` (write the version row if its version
//! is the one read, write one silo row), and a read of a partition of 100 rows as careful users of ZooKeeper write it (the
//! children, then every row and heartbeat, all asked for at once), into JSON values. The two sides take turns, so that
//! whatever else the machine does hits both; the numbers are medians.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{SiloCommit, SiloTable, SystemStore};
use emmer_store_zookeeper::ZooKeeperStore;
use emmer_test_servers::ZooKeeperServer;
use futures_util::future::{try_join, try_join_all};
use serde_json::Value as Json;
use zookeeper_client::{Acls, Client, CreateMode};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 2_000;
const SILOS: u64 = 99;
const WRITERS: usize = 20;
const RACE: Duration = Duration::from_secs(4);
/// The nodes written by hand.
const BY_HAND: &str = "/by_hand";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome<()> {
    let mut own = None;
    let host = match std::env::args().nth(1) {
        Some(host) => host,
        None => format!("127.0.0.1:{}", own.insert(ZooKeeperServer::start()?).port()),
    };
    let store: Arc<dyn SystemStore> = Arc::new(ZooKeeperStore::open(&format!("zookeeper://{host}")).await?);
    let table = SiloTable::new(store, "cost".parse()?);
    table.ensure().await?;
    let raw = Raw::open(&host).await?;
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

/// The driver, with the requests a careful user would write by hand.
struct Raw {
    client: Client,
}

impl Raw {
    async fn open(host: &str) -> Outcome<Self> {
        let client = Client::connect(host).await?;
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(BY_HAND, b"", &options).await?;
        client.create(&format!("{BY_HAND}/VersionRow"), b"", &options).await?;
        client.create(&format!("{BY_HAND}/VersionRow/IAmAliveTime"), b"null", &options).await?;
        for n in 1..=SILOS {
            let row = format!("{BY_HAND}/10.0.0.1-11111-{n}");
            client.create(&row, b"{}", &options).await?;
            client.create(&format!("{row}/IAmAliveTime"), b"\"1970-01-01T00:00:00.001Z\"", &options).await?;
        }
        Ok(Self { client })
    }

    /// The version row is at `version` before.
    async fn commit(&self, version: i32, n: u64) -> Outcome<()> {
        let version_row = format!(
            r#"{{"PartitionKey":"cost","RowKey":"VersionRow","DeploymentId":"cost","MembershipVersion":{}}}"#,
            version + 1
        );
        let row = format!(
            r#"{{"PartitionKey":"cost","RowKey":"10.0.0.1-11111-{n}","DeploymentId":"cost","Address":"10.0.0.1","Port":11111,"Generation":{n},"HostName":"host-17.rack-3.example.net","Status":"Active","ProxyPort":0,"Primary":"false","RoleName":"","InstanceName":"silo-17","UpdateZone":0,"FaultZone":0,"SuspectingSilos":[],"SuspectingTimes":[],"StartTime":"1970-01-01T00:00:00.001Z"}}"#
        );
        let mut writer = self.client.new_multi_writer();
        writer.add_set_data(&format!("{BY_HAND}/VersionRow"), version_row.as_bytes(), Some(version))?;
        writer.add_set_data(&format!("{BY_HAND}/10.0.0.1-11111-{n}"), row.as_bytes(), None)?;
        writer.commit().await?;
        Ok(())
    }

    async fn read(&self) -> Outcome<usize> {
        let names = self.client.list_children(BY_HAND).await?;
        let rows = names.iter().map(|name| {
            let row = format!("{BY_HAND}/{name}");
            let (data, beat) =
                (self.client.get_data(&row), self.client.get_data(&format!("{row}/IAmAliveTime")));
            try_join(data, beat)
        });
        let mut columns = 0;
        for ((data, _), (beat, _)) in try_join_all(rows).await? {
            let row: Json = serde_json::from_slice(&data)?;
            let beat: Json = serde_json::from_slice(&beat)?;
            columns += row.as_object().map_or(0, serde_json::Map::len) + usize::from(!beat.is_null());
        }
        if columns < names.len() { Err("no columns".into()) } else { Ok(names.len()) }
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
    let (mut by_store, mut by_hand) = (Times::default(), Times::default());
    let mut base = TableVersion::default();
    for (version, round) in (0..).zip(0..ROUNDS as u64) {
        let n = round % SILOS + 1;
        base = by_store.take(commit(table, &base, n)).await?;
        by_hand.take(raw.commit(version, n)).await?;
    }
    let floor = by_hand.median();
    show("commit, the driver", floor, floor);
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
    for _ in 0..ROUNDS {
        let count = by_hand.take(raw.read()).await?;
        let read = async { Ok(table.store().read_partition(&SILO_INSTANCES, "cost").await?) };
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
