//! What a store costs over its server's driver, on this machine, in one run: the two take turns, so
//! that whatever else the machine does hits both; the numbers are medians.

use std::error::Error;
use std::time::{Duration, Instant};

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_report::quantile;
use emmer_store::silos::SILO_INSTANCES;
use emmer_store::{SiloCommit, SiloTable};
use futures_util::future::try_join_all;

use emmer_test_servers::suite::Store;

/// What a measurement returns.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The cluster measured.
pub(crate) const CLUSTER: &str = "cost";
const ROUNDS: usize = 2_000;
const SILOS: u64 = 99;
const WRITERS: usize = 20;
/// How long one race lasts, and how many there are of each shape.
const RACE: Duration = Duration::from_secs(2);
const RACES: u32 = 4;
/// How often the processes start.
const STARTS: u32 = 20;

/// The driver, with the statements a careful user would write by hand, on a table of its own that
/// is like the store's.
pub(crate) trait ByHand {
    /// A membership commit in one transaction, each statement waiting for the answer of the one
    /// before: move the version row on from `number - 1` to `number` if it is there, write the row
    /// of `silo`.
    fn commit(&self, number: i64, silo: u64) -> impl Future<Output = Outcome<()>> + Send;

    /// Reads the partition and every cell of it; the number of rows.
    fn read(&self) -> impl Future<Output = Outcome<usize>> + Send;
}

/// The silo that is written.
pub(crate) fn silo(n: u64) -> SiloEntry {
    let endpoint = std::net::SocketAddr::from(([10, 0, 0, 1], 11_111));
    let mut silo = SiloEntry::new(
        SiloAddress::new(endpoint, n),
        SiloStatus::Active,
        Timestamp::from_millis(1),
    );
    silo.host_name = "host-17.rack-3.example.net".into();
    silo.instance_name = "silo-17".into();
    silo
}

/// Prints what the store at `url`, an empty database, costs. `by_hand` connects when the store has
/// made its tables.
///
/// # Errors
/// The server's.
pub(crate) async fn measure<H: ByHand, F: Future<Output = Outcome<H>>>(
    url: &str,
    store: Store,
    by_hand: impl FnOnce() -> F,
) -> Outcome<()> {
    let table = SiloTable::new((store.open)(url.to_owned()).await?, CLUSTER.parse()?);
    table.ensure().await?;
    let by_hand = by_hand().await?;
    commits(&table, &by_hand).await?;
    reads(&table, &by_hand).await?;
    race(&table, url, store).await
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

    fn median(self) -> Duration {
        quantile(&self.0, 0.5).unwrap_or_default()
    }
}

fn show(what: &str, took: Duration, floor: Duration) {
    let ratio = took.as_secs_f64() / floor.as_secs_f64();
    println!("{what}: median {:.0} us, {ratio:.2} of the driver", took.as_secs_f64() * 1e6);
}

async fn commits(table: &SiloTable, by_hand: &impl ByHand) -> Outcome<()> {
    let (mut store, mut driver) = (Times::default(), Times::default());
    let mut base = TableVersion::default();
    for round in 0..ROUNDS as u64 {
        let n = round % SILOS + 1;
        base = store.take(commit(table, &base, n)).await?;
        driver.take(by_hand.commit(round.cast_signed() + 1, n)).await?;
    }
    let floor = driver.median();
    show("commit, the driver, statement by statement", floor, floor);
    show("commit, the store", store.median(), floor);
    Ok(())
}

async fn commit(table: &SiloTable, base: &TableVersion, n: u64) -> Outcome<TableVersion> {
    match table.commit(base, vec![silo(n)], vec![]).await? {
        SiloCommit::Committed(version) => Ok(version),
        other => Err(format!("{other:?}").into()),
    }
}

async fn reads(table: &SiloTable, by_hand: &impl ByHand) -> Outcome<()> {
    let (mut store, mut driver, mut understood) =
        (Times::default(), Times::default(), Times::default());
    for _ in 0..ROUNDS {
        let count = driver.take(by_hand.read()).await?;
        let read = async { Ok(table.store().read_partition(&SILO_INSTANCES, CLUSTER).await?) };
        let rows = store.take(read).await?;
        let (_, silos) = understood.take(async { Ok(table.read_all().await?) }).await?;
        if (count, rows.len()) != (silos.len() + 1, silos.len() + 1) {
            return Err(format!("{count} rows by hand, {} by the store", rows.len()).into());
        }
    }
    let floor = driver.median();
    show("read of 100 rows, the driver", floor, floor);
    show("read of 100 rows, the store", store.median(), floor);
    show("read of 100 rows, the store, as silos", understood.median(), floor);
    Ok(())
}

/// The shapes of a race take turns too.
async fn race(table: &SiloTable, url: &str, store: Store) -> Outcome<()> {
    let mut own = Vec::new();
    for _ in 0..WRITERS {
        own.push(SiloTable::new((store.open)(url.to_owned()).await?, CLUSTER.parse()?));
    }
    let shapes = [vec![table.clone()], vec![table.clone(); WRITERS], own];
    let mut tallies = [Tally::default(); 3];
    for _ in 0..RACES {
        for (tables, tally) in shapes.iter().zip(&mut tallies) {
            tally.add(writers(tables).await?);
        }
    }
    let mut starts = Times::default();
    for _ in 0..STARTS {
        starts.take(start(&shapes[2])).await?;
    }
    let [alone, sharing, apart] = tallies;
    let per_second = |tally: Tally| tally.won as f64 / (RACE * RACES).as_secs_f64();
    println!(
        "one writer, reading the version before each commit: {:.0} commits/s",
        per_second(alone)
    );
    for (how, tally) in [("sharing one store", sharing), ("with a store each", apart)] {
        println!(
            "{WRITERS} writers racing, {how}: {:.0} commits/s, {:.2} of one; {} lost for 100 won; \
             none waited longer than {} ms",
            per_second(tally),
            tally.won as f64 / alone.won as f64,
            100 * tally.lost / tally.won.max(1),
            tally.longest.as_millis()
        );
    }
    let took = starts.median();
    println!(
        "{WRITERS} processes that start at once: all have committed twice after {} ms, median of \
         {STARTS}",
        took.as_millis()
    );
    Ok(())
}

/// Every writer commits twice, as a silo does that joins.
async fn start(tables: &[SiloTable]) -> Outcome<()> {
    let tasks = (1..).zip(tables.to_vec()).map(|(n, table)| {
        tokio::spawn(async move {
            let mut won = 0;
            while won < 2 {
                let base = table.read_version().await?;
                if let SiloCommit::Committed(_) = table.commit(&base, vec![silo(n)], vec![]).await?
                {
                    won += 1;
                }
            }
            Ok::<(), emmer_store::StoreError>(())
        })
    });
    for ended in try_join_all(tasks).await? {
        ended?;
    }
    Ok(())
}

/// The commits of some writers.
#[derive(Clone, Copy, Default)]
struct Tally {
    won: u64,
    lost: u64,
    /// The longest time from one commit of a writer to its next.
    longest: Duration,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.won += other.won;
        self.lost += other.lost;
        self.longest = self.longest.max(other.longest);
    }
}

/// Some writers race.
async fn writers(tables: &[SiloTable]) -> Outcome<Tally> {
    let begun = Instant::now();
    let tasks = (1..).zip(tables.to_vec()).map(|(n, table)| {
        tokio::spawn(async move {
            let (mut tally, mut last) = (Tally::default(), begun);
            while begun.elapsed() < RACE {
                let base = table.read_version().await?;
                match table.commit(&base, vec![silo(n)], vec![]).await? {
                    SiloCommit::Committed(_) => {
                        tally.won += 1;
                        tally.longest = tally.longest.max(last.elapsed());
                        last = Instant::now();
                    }
                    _ => tally.lost += 1,
                }
            }
            Ok::<Tally, emmer_store::StoreError>(tally)
        })
    });
    let mut all = Tally::default();
    for ended in try_join_all(tasks).await? {
        all.add(ended?);
    }
    Ok(all)
}
