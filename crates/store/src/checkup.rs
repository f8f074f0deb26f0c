//! A short check of a store in use: may this user do what a cluster needs, does the server keep the
//! contract's most important promises, how long do a commit and a read take. It works in the tables
//! themselves, in a partition without a cluster ([`SCRATCH`]), and leaves it empty.

mod race;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer_core::Timestamp;

use crate::TABLES;
use crate::contract::{CommitOutcome, Etag, Mutation, StoreError, SystemStore};
use crate::silos::SILO_INSTANCES;
use crate::table::{Row, Value};

/// The cluster id whose partition is used.
pub const SCRATCH: &str = "emmer-doctor";

/// Number of commits, and of reads, that are measured.
pub const MEASURED: usize = 25;

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct Checkup {
    /// The checks in their order, up to the first that failed, and the clean-up.
    pub checks: Vec<Check>,
    /// Durations of commits of two rows.
    pub commit: Option<Latency>,
    /// Durations of reads of one row.
    pub read: Option<Latency>,
}

/// One check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Requirement of the check.
    pub name: &'static str,
    /// Why it does not.
    pub trouble: Option<Trouble>,
}

/// Why a check failed.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The store cannot or may not.
    Store(StoreError),
    /// The store answered, against its contract.
    Wrong(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Wrong(what) => f.write_str(what),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Durations of something that was done several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Half of them took no longer.
    pub median: Duration,
    /// The longest.
    pub worst: Duration,
    /// Number of measurements.
    pub count: usize,
}

impl Latency {
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let (median, worst) = (times.get(times.len() / 2)?, times.last()?);
        Some(Self { median: *median, worst: *worst, count: times.len() })
    }
}

impl Checkup {
    /// First check that failed.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.checks.iter().find_map(|check| check.trouble.as_ref())
    }
}

/// Checks `store`, and with `other`, a second handle to the same tables, two writers that want the
/// same row. `nonce` tells this run's rows from those of another run at the same time.
pub async fn run(
    store: &Arc<dyn SystemStore>,
    other: &Arc<dyn SystemStore>,
    nonce: u64,
) -> Checkup {
    let mut found = Checkup::default();
    let rows = Rows {
        store,
        version: format!("doctor-{nonce}-version"),
        silo: format!("doctor-{nonce}-silo"),
    };
    if examine(&rows, &mut found).await.is_ok() {
        let raced = race::run([store, other], &rows.version, &rows.silo).await;
        if found.note("two connections that race for a row lose no commit", raced).is_ok() {
            found.measure(&rows).await;
        }
    }
    let cleaned = rows.clean_up().await;
    // A table that could not be made holds nothing to clean up.
    if found.checks.len() > 1 || cleaned.is_ok() {
        // The result is noted; no step follows.
        let _ = found.note("what was written is deleted", cleaned);
    }
    found
}

/// The check failed; it is noted.
struct Failed;

impl Checkup {
    fn note<T>(&mut self, name: &'static str, result: Result<T, Trouble>) -> Result<T, Failed> {
        let (done, trouble) = match result {
            Ok(done) => (Ok(done), None),
            Err(trouble) => (Err(Failed), Some(trouble)),
        };
        self.checks.push(Check { name, trouble });
        done
    }

    async fn measure(&mut self, rows: &Rows<'_>) {
        let measured = async {
            let (mut commits, mut reads) = (Vec::new(), Vec::new());
            for number in 0..MEASURED {
                let begun = Instant::now();
                let both = [&rows.version, &rows.silo]
                    .map(|key| Mutation::Upsert { row: row(key, number as i64) });
                committed(rows.commit(both.to_vec()).await?)?;
                commits.push(begun.elapsed());
                let begun = Instant::now();
                rows.read(&rows.version).await?;
                reads.push(begun.elapsed());
            }
            Ok::<_, Trouble>((commits, reads))
        };
        if let Ok((commits, reads)) = self.note("many commits and reads in a row", measured.await) {
            (self.commit, self.read) = (Latency::of(commits), Latency::of(reads));
        }
    }
}

async fn examine(rows: &Rows<'_>, found: &mut Checkup) -> Result<(), Failed> {
    let tables = rows.store.ensure_tables(&TABLES).await;
    found.note("the tables are there, or can be made", tables.map_err(Trouble::from))?;
    let etags = found.note("rows can be inserted, two in one commit", rows.insert().await)?;
    found.note(
        "a second insert of the same row is a conflict and changes nothing",
        rows.insert_again().await,
    )?;
    found.note("a partition and a row read back what was written", rows.read_back(&etags).await)?;
    found.note(
        "a commit that fails at its second row leaves the first alone",
        rows.fail_late(&etags).await,
    )?;
    let etags =
        found.note("a replace needs the row's etag and changes it", rows.replace(&etags).await)?;
    found.note("a heartbeat changes no etag", rows.touch(&etags).await)
}

struct Rows<'s> {
    store: &'s Arc<dyn SystemStore>,
    version: String,
    silo: String,
}

fn row(key: &str, number: i64) -> Row {
    Row::new(key)
        .with("DeploymentId", Value::Text(SCRATCH.into()))
        .with("InstanceName", Value::Text("written by emmer doctor; may be deleted".into()))
        .with("MembershipVersion", Value::Int(number))
}

fn committed(outcome: CommitOutcome) -> Result<Vec<Etag>, Trouble> {
    match outcome {
        CommitOutcome::Committed(etags) => Ok(etags.into_iter().flatten().collect()),
        CommitOutcome::Unknown(error) => Err(error.into()),
        CommitOutcome::Conflict(at) => Err(Trouble::Wrong(format!(
            "a commit whose conditions hold is a conflict at mutation {at}"
        ))),
    }
}

fn conflict(outcome: CommitOutcome, wanted: usize) -> Result<(), Trouble> {
    match outcome {
        CommitOutcome::Conflict(at) if at == wanted => Ok(()),
        CommitOutcome::Unknown(error) => Err(error.into()),
        other => Err(Trouble::Wrong(format!(
            "a conflict at mutation {wanted} was to be found, not {other:?}"
        ))),
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(what.into()))
}

impl Rows<'_> {
    async fn commit(&self, mutations: Vec<Mutation>) -> Result<CommitOutcome, Trouble> {
        Ok(self.store.commit(&SILO_INSTANCES, SCRATCH, mutations).await?)
    }

    async fn read(&self, key: &str) -> Result<(i64, Etag), Trouble> {
        let Some(found) = self.store.read_row(&SILO_INSTANCES, SCRATCH, key).await? else {
            return wrong(format!("row {key} is not there"));
        };
        match found.row.get("MembershipVersion") {
            Some(Value::Int(number)) => Ok((*number, found.etag)),
            other => wrong(format!("row {key} reads {other:?} instead of a number")),
        }
    }

    async fn insert(&self) -> Result<Vec<Etag>, Trouble> {
        let both = [&self.version, &self.silo].map(|key| Mutation::Insert { row: row(key, 1) });
        committed(self.commit(both.to_vec()).await?)
    }

    async fn insert_again(&self) -> Result<(), Trouble> {
        let again = vec![Mutation::Insert { row: row(&self.version, 7) }];
        conflict(self.commit(again).await?, 0)?;
        self.still(1).await
    }

    /// Both rows hold this number.
    async fn still(&self, number: i64) -> Result<(), Trouble> {
        for key in [&self.version, &self.silo] {
            let (found, _) = self.read(key).await?;
            if found != number {
                return wrong(format!("row {key} holds {found} instead of {number}"));
            }
        }
        Ok(())
    }

    async fn read_back(&self, etags: &[Etag]) -> Result<(), Trouble> {
        let all = self.store.read_partition(&SILO_INSTANCES, SCRATCH).await?;
        for (key, etag) in [&self.version, &self.silo].into_iter().zip(etags) {
            let (_, alone) = self.read(key).await?;
            let together = all.iter().find(|found| found.row.key() == key).map(|found| &found.etag);
            if (Some(&alone), Some(etag)) != (together, Some(&alone)) {
                return wrong(format!(
                    "row {key}: etag {etag} written, {alone} and {together:?} read"
                ));
            }
        }
        Ok(())
    }

    async fn fail_late(&self, etags: &[Etag]) -> Result<(), Trouble> {
        let Some(etag) = etags.first().cloned() else { return wrong("an insert gave no etag") };
        let first = Mutation::Replace { row: row(&self.version, 7), etag };
        let second = Mutation::Insert { row: row(&self.silo, 7) };
        conflict(self.commit(vec![first, second]).await?, 1)?;
        self.still(1).await
    }

    async fn replace(&self, etags: &[Etag]) -> Result<Vec<Etag>, Trouble> {
        let both = || {
            let keys = [&self.version, &self.silo].into_iter().zip(etags);
            keys.map(|(key, etag)| Mutation::Replace { row: row(key, 2), etag: etag.clone() })
                .collect()
        };
        let new = committed(self.commit(both()).await?)?;
        if new.iter().zip(etags).any(|(new, old)| new == old) {
            return wrong("a replace kept an etag");
        }
        conflict(self.commit(both()).await?, 0)?;
        self.still(2).await?;
        Ok(new)
    }

    async fn touch(&self, etags: &[Etag]) -> Result<(), Trouble> {
        let beat = Value::Time(Timestamp::from_millis(1_000));
        self.store
            .touch(&SILO_INSTANCES, SCRATCH, &self.silo, "IAmAliveTime", beat.clone())
            .await?;
        let found = self.store.read_row(&SILO_INSTANCES, SCRATCH, &self.silo).await?;
        let found = found.map(|found| (found.row.get("IAmAliveTime").cloned(), Some(found.etag)));
        if found != Some((Some(beat), etags.get(1).cloned())) {
            return wrong(format!("after a heartbeat the row reads {found:?}"));
        }
        Ok(())
    }

    async fn clean_up(&self) -> Result<(), Trouble> {
        for key in [&self.version, &self.silo] {
            // One that was never written is a conflict, which is as good.
            self.commit(vec![Mutation::Delete { row_key: key.clone(), etag: None }]).await?;
            if self.store.read_row(&SILO_INSTANCES, SCRATCH, key).await?.is_some() {
                return wrong(format!("row {key} is still there"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[tokio::test]
    async fn a_good_store_passes_and_is_left_empty() {
        let memory = MemoryStore::new();
        let store: Arc<dyn SystemStore> = Arc::new(memory.clone());
        let found = run(&store, &store, 7).await;
        assert!(found.trouble().is_none(), "{found:?}");
        assert_eq!(found.checks.len(), 10);
        assert_eq!(found.commit.unwrap().count, MEASURED);
        assert!(found.read.unwrap().median <= found.read.unwrap().worst);
        assert!(store.read_partition(&SILO_INSTANCES, SCRATCH).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_another_run_left_behind_is_none_of_its_business() {
        let store: Arc<dyn SystemStore> = Arc::new(MemoryStore::new());
        store.ensure_tables(&[&SILO_INSTANCES]).await.unwrap();
        let left = vec![Mutation::Insert { row: row("doctor-1-version", 3) }];
        store.commit(&SILO_INSTANCES, SCRATCH, left).await.unwrap();
        assert!(run(&store, &store, 2).await.trouble().is_none());
        assert_eq!(store.read_partition(&SILO_INSTANCES, SCRATCH).await.unwrap().len(), 1);
        // For rows that exist already the first check that meets them says so.
        let found = run(&store, &store, 1).await;
        assert!(matches!(found.trouble(), Some(Trouble::Wrong(_))), "{found:?}");
    }
}
