//! The history of the membership: each change of a silo, with the view that brought it, its
//! evidence and the silo that wrote it.
//!
//! The silo that commits a version writes its changes, a moment later: those of a silo that dies in
//! that moment are missing. `RowKey` is the version counted backwards and the number of the change
//! in it, with leading zeros, so that the newest come first.

use std::fmt;
use std::sync::Arc;

use emmer_core::{ClusterId, Timestamp};

use crate::contract::{Result, StoreError, StoreErrorKind, SystemStore};
use crate::keys;
use crate::metrics::Fields;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};
use crate::validate::APPEND_ROWS_MAX;

/// The declaration of the table.
pub static MEMBERSHIP_HISTORY: TableDecl = TableDecl {
    name: "membership_history",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("DeploymentId", ColumnType::Text),
        Column::new("MembershipVersion", ColumnType::Int),
        Column::new("Time", ColumnType::Time),
        Column::new("Writer", ColumnType::Text),
        Column::new("Address", ColumnType::Text),
        Column::new("SiloName", ColumnType::Text),
        Column::new("HostName", ColumnType::Text),
        Column::new("Change", ColumnType::Text),
        Column::new("Evidence", ColumnType::List),
    ],
    schema_version: 1,
    one_moment: false,
};

/// The partition with a row for each cluster whose history is kept. No cluster has this name: none
/// begins with a dot.
const CLUSTERS: &str = ".clusters";

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The version of the table that brought it.
    pub version: u64,
    /// Its number among the changes of that version, from 0.
    pub number: u64,
    /// The time of its writing, by the writer's wall clock.
    pub at: Timestamp,
    /// `ip:port:epoch` of the silo that wrote it.
    pub writer: Arc<str>,
    /// `ip:port:epoch` of the silo that it is about.
    pub silo: Arc<str>,
    /// The name of that silo.
    pub name: Arc<str>,
    /// The name of that silo's host.
    pub host: Arc<str>,
    /// One word: `joined`, `suspected`, `died`, ...
    pub change: Arc<str>,
    /// The evidence, one line for each piece.
    pub evidence: Vec<Arc<str>>,
}

/// The history of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct HistoryTable {
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
}

impl fmt::Debug for HistoryTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HistoryTable({} in {})", self.cluster, self.store.describe())
    }
}

impl HistoryTable {
    /// The history of `cluster` in `store`.
    pub fn new(store: Arc<dyn SystemStore>, cluster: ClusterId) -> Self {
        Self { store, cluster }
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`].
    pub async fn ensure(&self) -> Result<()> {
        self.store.ensure_tables(&[&MEMBERSHIP_HISTORY]).await
    }

    /// Adds changes. After an error the same ones can be added again.
    ///
    /// # Errors
    /// As the store.
    pub async fn append(&self, all: &[Recorded]) -> Result<()> {
        for some in all.chunks(APPEND_ROWS_MAX.min(100)) {
            let rows = some.iter().map(|one| self.row(one)).collect();
            self.store.append(&MEMBERSHIP_HISTORY, self.cluster.as_str(), rows).await?;
        }
        Ok(())
    }

    /// Adds the cluster to the [list](clusters) of those in the store, if it is not there yet.
    ///
    /// # Errors
    /// As the store.
    pub async fn enlist(&self, at: Timestamp) -> Result<()> {
        let row = Row::new(self.cluster.as_str())
            .with("DeploymentId", Value::Text(self.cluster.as_str().into()))
            .with("Time", Value::Time(at));
        self.store.append(&MEMBERSHIP_HISTORY, CLUSTERS, vec![row]).await
    }

    fn row(&self, one: &Recorded) -> Row {
        let text = |text: &Arc<str>| Value::Text(keys::escape(text).into());
        let version = i64::try_from(one.version).unwrap_or(i64::MAX);
        Row::new(format!("{:020}${:06}", u64::MAX - one.version, one.number))
            .with("DeploymentId", Value::Text(self.cluster.as_str().into()))
            .with("MembershipVersion", Value::Int(version))
            .with("Time", Value::Time(one.at))
            .with("Writer", text(&one.writer))
            .with("Address", text(&one.silo))
            .with("SiloName", text(&one.name))
            .with("HostName", text(&one.host))
            .with("Change", text(&one.change))
            .with("Evidence", Value::List(one.evidence.clone()))
    }

    /// Every change that is kept, newest first.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub async fn read(&self) -> Result<Vec<Recorded>> {
        let rows = self.store.read_partition(&MEMBERSHIP_HISTORY, self.cluster.as_str()).await?;
        let understood = rows.iter().map(|row| {
            understand(&Fields(&row.row), row.row.key()).map_err(|why| {
                let table = MEMBERSHIP_HISTORY.name;
                let operation = format!("read {table}/{}/{}", self.cluster, row.row.key());
                StoreError::new(StoreErrorKind::Corrupt, self.store.describe(), operation, why)
            })
        });
        understood.collect()
    }

    /// Deletes rows that were written before `cutoff`.
    ///
    /// # Errors
    /// As the store.
    pub async fn clean(&self, cutoff: Timestamp) -> Result<u64> {
        let partition = self.cluster.as_str();
        self.store.delete_older_than(&MEMBERSHIP_HISTORY, partition, "Time", cutoff).await
    }
}

/// The clusters with a history in the store, by name, each with the time at which it was first
/// seen.
///
/// # Errors
/// Fails as the store does; `NotFound` when no history was ever kept.
pub async fn clusters(store: &dyn SystemStore) -> Result<Vec<(ClusterId, Timestamp)>> {
    let rows = store.read_partition(&MEMBERSHIP_HISTORY, CLUSTERS).await?;
    // A row of unknown form there names no cluster.
    let known = |row: &Row| Some((ClusterId::new(row.key()).ok()?, Fields(row).time("Time").ok()?));
    let mut all: Vec<_> = rows.iter().filter_map(|row| known(&row.row)).collect();
    all.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    Ok(all)
}

fn understand(fields: &Fields<'_>, key: &str) -> std::result::Result<Recorded, String> {
    let number = key.split_once('$').and_then(|(_, number)| number.parse().ok());
    Ok(Recorded {
        version: fields.count("MembershipVersion")?,
        number: number.ok_or("the row key is not version$number")?,
        at: fields.time("Time")?,
        writer: fields.text("Writer")?,
        silo: fields.text("Address")?,
        name: fields.text("SiloName")?,
        host: fields.text("HostName")?,
        change: fields.text("Change")?,
        evidence: fields.list("Evidence"),
    })
}
