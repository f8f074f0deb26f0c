//! Silo statistics and client statistics (table description): one row for each value of each
//! report. Rows never change, and old ones are deleted.
//!
//! `PartitionKey` is `cluster$hour`, `RowKey` `second$name$counter`, as the table description has
//! them. Hours and seconds are counted backwards from the end of the year 9999, with leading zeros,
//! so that the newest rows come first. Values of 0 are left out.

use std::fmt;
use std::sync::Arc;

use emmer_core::{ClusterId, Timestamp};

use crate::contract::{Result, StoreError, StoreErrorKind, SystemStore};
use crate::keys;
use crate::metrics::Fields;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};
use crate::validate::APPEND_ROWS_MAX;

const COLUMNS: &[Column] = &[
    Column::new("DeploymentId", ColumnType::Text),
    Column::new("Time", ColumnType::Time),
    Column::new("Address", ColumnType::Text),
    Column::new("Name", ColumnType::Text),
    Column::new("HostName", ColumnType::Text),
    Column::new("Statistic", ColumnType::Text),
    Column::new("StatValue", ColumnType::Text),
    Column::new("IsDelta", ColumnType::Int),
];

/// The declaration of the silo statistics table.
pub static SILO_STATISTICS: TableDecl = TableDecl {
    name: "silo_statistics",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: COLUMNS,
    schema_version: 1,
    one_moment: false,
};

/// The declaration of the client statistics table.
pub static CLIENT_STATISTICS: TableDecl = TableDecl {
    name: "client_statistics",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: COLUMNS,
    schema_version: 1,
    one_moment: false,
};

/// The last second of the year 9999, from which seconds are counted backwards.
const LAST_SECOND: i64 = 253_402_300_799;
const HOUR: i64 = 3_600;
/// Rows of an hour are deleted at the latest this long after all of them are too old.
const SWEPT_HOURS: i64 = 48;

/// The statistics of silos, or of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of silos.
    Silos,
    /// Of clients.
    Clients,
}

impl Kind {
    const fn table(self) -> &'static TableDecl {
        match self {
            Self::Silos => &SILO_STATISTICS,
            Self::Clients => &CLIENT_STATISTICS,
        }
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Statistic {
    /// The name, as `emmer_turns_total`.
    pub name: Arc<str>,
    /// The value as text.
    pub value: Arc<str>,
    /// True for counts since the last report, false for a level.
    pub is_delta: bool,
}

/// The source of a report, and its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The time, by its own wall clock.
    pub at: Timestamp,
    /// `ip:port:epoch` of a silo, `ip:port` of a client.
    pub address: Arc<str>,
    /// The silo's name, or the client's number.
    pub name: Arc<str>,
    /// The host's name.
    pub host: Arc<str>,
}

/// A value with its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reported {
    /// Its source.
    pub source: Source,
    /// The value.
    pub statistic: Statistic,
}

/// The statistics of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct StatisticsTable {
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
    kind: Kind,
}

impl fmt::Debug for StatisticsTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatisticsTable({} in {})", self.cluster, self.store.describe())
    }
}

impl StatisticsTable {
    /// The statistics of `cluster` in `store`.
    pub fn new(store: Arc<dyn SystemStore>, cluster: ClusterId, kind: Kind) -> Self {
        Self { store, cluster, kind }
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`].
    pub async fn ensure(&self) -> Result<()> {
        self.store.ensure_tables(&[self.kind.table()]).await
    }

    /// The partition of a moment.
    pub fn partition(&self, at: Timestamp) -> String {
        format!("{}${:08}", self.cluster, backwards(at).div_euclid(HOUR))
    }

    /// Adds a report. After an error the same report can be added again.
    ///
    /// # Errors
    /// As the store.
    pub async fn append(&self, source: &Source, statistics: &[Statistic]) -> Result<()> {
        let partition = self.partition(source.at);
        let numbered: Vec<_> = (1..).zip(statistics).collect();
        for some in numbered.chunks(APPEND_ROWS_MAX.min(100)) {
            let rows = some.iter().map(|(number, one)| self.row(source, *number, one)).collect();
            self.store.append(self.kind.table(), &partition, rows).await?;
        }
        Ok(())
    }

    fn row(&self, source: &Source, number: usize, one: &Statistic) -> Row {
        let name = keys::escape(&source.name);
        Row::new(format!("{:012}${name}${number:06}", backwards(source.at)))
            .with("DeploymentId", Value::Text(self.cluster.as_str().into()))
            .with("Time", Value::Time(source.at))
            .with("Address", Value::Text(source.address.clone()))
            .with("Name", Value::Text(name.into()))
            .with("HostName", Value::Text(keys::escape(&source.host).into()))
            .with("Statistic", Value::Text(keys::escape(&one.name).into()))
            .with("StatValue", Value::Text(one.value.clone()))
            .with("IsDelta", Value::Int(i64::from(one.is_delta)))
    }

    /// The reports from `since` to `until`, newest first. Each hour between them is a read of its
    /// own.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub async fn between(&self, since: Timestamp, until: Timestamp) -> Result<Vec<Reported>> {
        let (first, last) = (backwards(until).div_euclid(HOUR), backwards(since).div_euclid(HOUR));
        let mut all = Vec::new();
        for hour in first..=last {
            let partition = format!("{}${hour:08}", self.cluster);
            for row in self.store.read_partition(self.kind.table(), &partition).await? {
                let reported = understand(&Fields(&row.row)).map_err(|why| {
                    let table = self.kind.table().name;
                    let operation = format!("read {table}/{partition}/{}", row.row.key());
                    StoreError::new(StoreErrorKind::Corrupt, self.store.describe(), operation, why)
                })?;
                if (since..=until).contains(&reported.source.at) {
                    all.push(reported);
                }
            }
        }
        Ok(all)
    }

    /// Deletes reports from before `cutoff`, up to two days further back.
    ///
    /// # Errors
    /// As the store.
    pub async fn clean(&self, cutoff: Timestamp) -> Result<u64> {
        let first = backwards(cutoff).div_euclid(HOUR);
        let mut deleted = 0;
        for hour in first..=first + SWEPT_HOURS {
            let partition = format!("{}${hour:08}", self.cluster);
            let table = self.kind.table();
            deleted += self.store.delete_older_than(table, &partition, "Time", cutoff).await?;
        }
        Ok(deleted)
    }
}

/// A moment in whole seconds before the end of the year 9999.
fn backwards(at: Timestamp) -> i64 {
    (LAST_SECOND - at.as_millis().div_euclid(1_000)).clamp(0, 999_999_999_999)
}

fn understand(fields: &Fields<'_>) -> std::result::Result<Reported, String> {
    Ok(Reported {
        source: Source {
            at: fields.time("Time")?,
            address: fields.text("Address")?,
            name: fields.text("Name")?,
            host: fields.text("HostName")?,
        },
        statistic: Statistic {
            name: fields.text("Statistic")?,
            value: fields.text("StatValue")?,
            is_delta: fields.count("IsDelta")? > 0,
        },
    })
}
