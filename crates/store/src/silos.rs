//! The silo instances table (table description): one row per incarnation of a silo and the
//! version row that every write moves on by one (invariant I1).

use std::fmt;
use std::sync::Arc;

use emmer_core::limits::{COMMIT_MUTATIONS_MAX, Limits};
use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};

use crate::contract::{
    CommitOutcome, Mutation, Result, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
use crate::limits::StoreLimits;
use crate::silo_rows;
pub use crate::silo_rows::VERSION_ROW;
use crate::table::{Column, ColumnType, TableDecl, Value};
use crate::validate::SAMPLE_ROWS_MAX;

/// Number of incarnations of one `ip:port` that are looked for at first.
const INCARNATIONS: usize = 16;

/// The most silo rows in one sample: the version row may be another.
pub const SAMPLE_SILOS_MAX: usize = SAMPLE_ROWS_MAX - 1;

/// The declaration of the table. Columns and their names are those of the table description;
/// PartitionKey is the cluster id, RowKey is `ip-port-epoch`.
pub static SILO_INSTANCES: TableDecl = TableDecl {
    name: "silo_instances",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("DeploymentId", ColumnType::Text),
        Column::new("Address", ColumnType::Text),
        Column::new("Port", ColumnType::Int),
        Column::new("Generation", ColumnType::Int),
        Column::new("HostName", ColumnType::Text),
        Column::new("Status", ColumnType::Text),
        Column::new("ProxyPort", ColumnType::Int),
        // Deprecated in the table description; always "false", so that tools made for the
        // original's table find it.
        Column::new("Primary", ColumnType::Text),
        Column::new("RoleName", ColumnType::Text),
        Column::new("InstanceName", ColumnType::Text),
        Column::new("UpdateZone", ColumnType::Int),
        Column::new("FaultZone", ColumnType::Int),
        Column::new("SuspectingSilos", ColumnType::List),
        Column::new("SuspectingTimes", ColumnType::List),
        Column::new("StartTime", ColumnType::Time),
        Column::new("IAmAliveTime", ColumnType::Time).volatile(),
        // The version row's only column of its own. Its InstanceName is the table's identity.
        Column::new("MembershipVersion", ColumnType::Int),
        // Null while the silo has its full duty.
        Column::new("Duty", ColumnType::Text),
    ],
    schema_version: 2,
    one_moment: true,
};

/// The bytes of a silo's row that a full commit is reckoned with: names of a hundred bytes and ten
/// votes take about half.
const SILO_ROW_BYTES: usize = 2_048;

/// Sizes that the table needs of its store: the membership machine commits up to
/// [`MEMBERSHIP_ROWS_PER_COMMIT_MAX`](emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX) rows and
/// the version row.
fn needed() -> StoreLimits {
    let commit_bytes = COMMIT_MUTATIONS_MAX * SILO_ROW_BYTES;
    StoreLimits { commit_bytes, row_bytes: SILO_ROW_BYTES, ..StoreLimits::default() }
}

/// Outcome of [`SiloTable::commit`].
#[derive(Clone, Debug, PartialEq)]
pub enum SiloCommit {
    /// It happened; the version row is now this.
    Committed(TableVersion),
    /// The commit did not happen: the version row is no longer `base`, or a row to delete is gone
    /// (only a person can remove it without moving the version). Read and decide again.
    Conflict,
    /// It may or may not have happened. Read the version to find out.
    Unknown(StoreError),
}

/// Outcome of [`SiloTable::touch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiloTouch {
    /// The time is written.
    Touched,
    /// The silo has no row.
    RowMissing,
}

/// The membership table of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct SiloTable {
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
    rows_max: usize,
}

impl fmt::Debug for SiloTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiloTable({} in {})", self.cluster, self.store.describe())
    }
}

impl SiloTable {
    /// The table of `cluster` in `store`.
    pub fn new(store: Arc<dyn SystemStore>, cluster: ClusterId) -> Self {
        Self { store, cluster, rows_max: Limits::default().membership_rows_max }
    }

    /// Sets the most rows that are read ([`Limits::membership_rows_max`], default 20,000).
    #[must_use]
    pub const fn with_rows_max(mut self, rows_max: usize) -> Self {
        self.rows_max = rows_max;
        self
    }

    /// The cluster whose table this is.
    pub const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The store the table is in.
    pub const fn store(&self) -> &Arc<dyn SystemStore> {
        &self.store
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`]; `Invalid` when the store takes less at once than the
    /// membership machine commits.
    pub async fn ensure(&self) -> Result<()> {
        if let Some(lack) = self.store.limits().lack(&needed()) {
            return Err(self.error("ensure", StoreErrorKind::Invalid, lack));
        }
        self.store.ensure_tables(&[&SILO_INSTANCES]).await
    }

    /// Every silo row and the version, as one snapshot. The default version (0, no etag) when
    /// nothing was written yet.
    ///
    /// # Errors
    /// Fails as the store does; `Corrupt` when a row cannot be understood or the version row is
    /// missing among others.
    pub async fn read_all(&self) -> Result<(TableVersion, Vec<SiloEntry>)> {
        let stored = self.store.read_partition(&SILO_INSTANCES, self.cluster.as_str()).await?;
        if stored.len() > self.rows_max.saturating_add(1) {
            let detail = format!(
                "{} rows, more than membership_rows_max = {}: raise limits.membership_rows_max here",
                stored.len(),
                self.rows_max
            );
            return Err(self.error("read", StoreErrorKind::Refused, detail));
        }
        snapshot(&stored).map_err(|detail| self.error("read", StoreErrorKind::Corrupt, detail))
    }

    /// The version row alone; the default version when nothing was written yet.
    ///
    /// # Errors
    /// As the store; `Corrupt` when the row cannot be understood.
    pub async fn read_version(&self) -> Result<TableVersion> {
        let found =
            self.store.read_row(&SILO_INSTANCES, self.cluster.as_str(), VERSION_ROW).await?;
        let version = found.as_ref().map(version_of).transpose();
        version
            .map(Option::unwrap_or_default)
            .map_err(|detail| self.error("read", StoreErrorKind::Corrupt, detail))
    }

    /// Some silo rows, at most `rows` (up to [`SAMPLE_SILOS_MAX`]), from where that of `near` is or
    /// would be: to find a silo that is in. Dead ones may be among them.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub async fn read_some(&self, near: &SiloAddress, rows: usize) -> Result<Vec<SiloEntry>> {
        // The version row may be among them.
        let mut silos = self.sample(near, rows.min(SAMPLE_SILOS_MAX) + 1).await?;
        silos.truncate(rows);
        Ok(silos)
    }

    async fn sample(&self, near: &SiloAddress, limit: usize) -> Result<Vec<SiloEntry>> {
        let from = silo_rows::row_key(near);
        let stored =
            self.store.read_some(&SILO_INSTANCES, self.cluster.as_str(), &from, limit).await?;
        let silos = stored.iter().filter(|found| found.row.key() != VERSION_ROW).map(entry_of);
        silos
            .collect::<std::result::Result<_, _>>()
            .map_err(|detail| self.error("sample", StoreErrorKind::Corrupt, detail))
    }

    /// The rows of all incarnations of the `ip:port` of `silo`. Of a store that keeps an order a
    /// few rows are read for it, whatever the size of the table.
    ///
    /// # Errors
    /// As [`read_all`](Self::read_all).
    pub async fn incarnations(&self, silo: &SiloAddress) -> Result<Vec<SiloEntry>> {
        let mine = |row: &SiloEntry| row.address.same_endpoint(silo);
        if self.store.keeps_order() {
            let first = SiloAddress::new(silo.endpoint(), 0);
            // The next rows: if one of them is not of this endpoint, there are no further ones.
            let found: Vec<_> =
                self.sample(&first, INCARNATIONS).await?.into_iter().filter(mine).collect();
            if found.len() < INCARNATIONS {
                return Ok(found);
            }
        }
        let (_, mut all) = self.read_all().await?;
        all.retain(mine);
        Ok(all)
    }

    /// The row of one silo, or none.
    ///
    /// # Errors
    /// As the store; `Corrupt` when the row cannot be understood.
    pub async fn read_silo(&self, silo: &SiloAddress) -> Result<Option<SiloEntry>> {
        let key = silo_rows::row_key(silo);
        let found = self.store.read_row(&SILO_INSTANCES, self.cluster.as_str(), &key).await?;
        let entry = found.as_ref().map(entry_of).transpose();
        entry.map_err(|detail| self.error("read", StoreErrorKind::Corrupt, detail))
    }

    /// The rows clients connect to: Active silos with a gateway port.
    ///
    /// # Errors
    /// As [`read_all`](Self::read_all).
    pub async fn gateways(&self) -> Result<Vec<SiloEntry>> {
        let (_, mut silos) = self.read_all().await?;
        silos.retain(|s| s.status == SiloStatus::Active && s.proxy_port != 0);
        Ok(silos)
    }

    /// In one atomic commit: moves the version from `base` to `base.number + 1`, writes `rows`
    /// whole (IAmAliveTime only of rows that are new), deletes `deletes`. At most 99 rows together
    /// ([`MEMBERSHIP_ROWS_PER_COMMIT_MAX`](emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX)).
    ///
    /// A `base` without etag says that the table is empty; its `table` is the identity that the
    /// table gets. Later commits have to give it again. A row to delete that is gone makes it a
    /// [`Conflict`](SiloCommit::Conflict).
    ///
    /// # Errors
    /// As the store: then nothing was changed. `Invalid` for too many rows or one silo twice.
    pub async fn commit(
        &self,
        base: &TableVersion,
        rows: Vec<SiloEntry>,
        deletes: Vec<SiloAddress>,
    ) -> Result<SiloCommit> {
        let mutations = mutations(&self.cluster, base, &rows, &deletes)
            .map_err(|detail| self.error("commit", StoreErrorKind::Invalid, detail))?;
        let number = base.number.saturating_add(1);
        match self.store.commit(&SILO_INSTANCES, self.cluster.as_str(), mutations).await? {
            CommitOutcome::Conflict(_) => Ok(SiloCommit::Conflict),
            CommitOutcome::Unknown(error) => Ok(SiloCommit::Unknown(error)),
            CommitOutcome::Committed(etags) => match etags.into_iter().next().flatten() {
                Some(etag) => {
                    Ok(SiloCommit::Committed(TableVersion { number, etag, table: base.table }))
                }
                // A store that breaks the contract; that the commit happened is all that is known.
                None => Ok(SiloCommit::Unknown(self.error(
                    "commit",
                    StoreErrorKind::Corrupt,
                    "the store gave no etag for the version row",
                ))),
            },
        }
    }

    /// Sets IAmAliveTime of one row, touching no etag and no version.
    ///
    /// # Errors
    /// As the store, except for a missing row.
    pub async fn touch(&self, silo: &SiloAddress, at: Timestamp) -> Result<SiloTouch> {
        let key = silo_rows::row_key(silo);
        let partition = self.cluster.as_str();
        let touched = self
            .store
            .touch(&SILO_INSTANCES, partition, &key, "IAmAliveTime", Value::Time(at))
            .await;
        match touched {
            Ok(()) => Ok(SiloTouch::Touched),
            // A missing table is NotFound as well: told apart by asking again for the row.
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                match self.store.read_row(&SILO_INSTANCES, partition, &key).await {
                    Ok(_) => Ok(SiloTouch::RowMissing),
                    Err(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn error(&self, verb: &str, kind: StoreErrorKind, detail: impl fmt::Display) -> StoreError {
        let operation = format!("{verb} {}/{}", SILO_INSTANCES.name, self.cluster);
        StoreError::new(kind, self.store.describe(), operation, detail)
    }
}

/// The mutations of [`SiloTable::commit`], for a store that is not asynchronous
/// ([`MemoryTables`](crate::MemoryTables) in a simulation).
///
/// # Errors
/// In words: a version or epoch that is out of range.
pub fn mutations(
    cluster: &ClusterId,
    base: &TableVersion,
    rows: &[SiloEntry],
    deletes: &[SiloAddress],
) -> std::result::Result<Vec<Mutation>, String> {
    let row = silo_rows::version_row(cluster, base.number.saturating_add(1), base.table)?;
    let mut mutations = Vec::with_capacity(1 + rows.len() + deletes.len());
    mutations.push(if base.etag.is_empty() {
        Mutation::Insert { row }
    } else {
        Mutation::Replace { row, etag: base.etag.clone() }
    });
    for entry in rows {
        mutations.push(Mutation::Upsert { row: silo_rows::to_row(cluster, entry)? });
    }
    let delete = |silo| Mutation::Delete { row_key: silo_rows::row_key(silo), etag: None };
    mutations.extend(deletes.iter().map(delete));
    Ok(mutations)
}

/// The version and the silos in the rows of a partition, as [`SiloTable::read_all`] gives them.
///
/// # Errors
/// In words: a row cannot be understood, or there are silo rows but no version row.
pub fn snapshot(
    stored: &[StoredRow],
) -> std::result::Result<(TableVersion, Vec<SiloEntry>), String> {
    let mut version = None;
    let mut silos = Vec::with_capacity(stored.len());
    for found in stored {
        if found.row.key() == VERSION_ROW {
            version = Some(version_of(found)?);
        } else {
            silos.push(entry_of(found)?);
        }
    }
    match version {
        None if !silos.is_empty() => Err(format!("{} silo rows but no {VERSION_ROW}", silos.len())),
        version => Ok((version.unwrap_or_default(), silos)),
    }
}

/// The row key of a silo: `ip-port-epoch`.
pub fn row_key(silo: &SiloAddress) -> String {
    silo_rows::row_key(silo)
}

fn version_of(found: &StoredRow) -> std::result::Result<TableVersion, String> {
    let number =
        silo_rows::version_number(&found.row).map_err(|e| format!("row {VERSION_ROW}: {e}"))?;
    let table = silo_rows::table_id(&found.row).map_err(|e| format!("row {VERSION_ROW}: {e}"))?;
    Ok(TableVersion { number, etag: found.etag.clone(), table })
}

fn entry_of(found: &StoredRow) -> std::result::Result<SiloEntry, String> {
    silo_rows::from_row(&found.row).map_err(|detail| format!("row {}: {detail}", found.row.key()))
}

/// The rows a clean-up may delete: Dead, and neither started nor alive nor voted on since `before`.
///
/// Only Dead rows, as the original has it since 2026. A row that never
/// became Active is declared Dead first, by votes, like any other.
pub fn defunct(silos: &[SiloEntry], before: Timestamp) -> Vec<SiloAddress> {
    let newest = |s: &SiloEntry| {
        s.votes.iter().map(|v| v.at).fold(s.start_time.max(s.i_am_alive_time), Timestamp::max)
    };
    silos
        .iter()
        .filter(|s| s.status == SiloStatus::Dead && newest(s) < before)
        .map(|s| s.address)
        .collect()
}
