//! Reminders: a typed view of the reminders table of the table description.
//!
//! Rows belong to a service, not to a cluster: a new cluster of the same service finds its grains'
//! reminders again. `PartitionKey` is `service_hash`, the hash as eight hexadecimal digits, so the
//! reminders of one grain are in one partition.
//!
//! Two columns are indexed. `GrainRefConsistentHash` finds the rows in a range of the ring.
//! `DueIndex` finds due rows in a part of it, without reading the others: the top 17 bits of the
//! service's hash, 12 bits of the part ([`REMINDER_BUCKETS`]) and 34 bits of the next due time in
//! seconds since 1970. Scans cover all services of a store; rows of other services are left out
//! here.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use emmer_core::hash::stable64;
use emmer_core::reminder::{REMINDER_BUCKETS, Reminder, Schedule};
use emmer_core::{ClusterId, GrainId, GrainTypeId, Timestamp};

use crate::contract::{
    CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow, SystemStore,
};
use crate::keys;
use crate::table::{Column, ColumnType, Row, TableDecl, Value};

/// The declaration of the table. Columns up to `GrainRefConsistentHash` are those of the table
/// description.
pub static REMINDERS: TableDecl = TableDecl {
    name: "reminders",
    partition_key: "PartitionKey",
    row_key: "RowKey",
    columns: &[
        Column::new("GrainReference", ColumnType::Text),
        Column::new("ReminderName", ColumnType::Text),
        Column::new("ServiceId", ColumnType::Text),
        Column::new("DeploymentId", ColumnType::Text),
        Column::new("StartAt", ColumnType::Time),
        // Milliseconds; null for a reminder that is due once.
        Column::new("Period", ColumnType::Int),
        Column::new("GrainRefConsistentHash", ColumnType::Int).indexed().bounded(hashes_in),
        Column::new("EndAt", ColumnType::Time),
        Column::new("MissedPolicy", ColumnType::Text),
        Column::new("DueAt", ColumnType::Time),
        Column::new("DueIndex", ColumnType::Int).indexed().bounded(indexes_in),
        Column::new("Fired", ColumnType::Int),
        Column::new("LastFiredAt", ColumnType::Time),
        Column::new("MissedCount", ColumnType::Int),
    ],
    schema_version: 1,
    one_moment: false,
};

/// The bits of a due time in `DueIndex`.
const SECONDS_BITS: u32 = 34;
/// The bits of a part of the ring in `DueIndex`.
const BUCKET_BITS: u32 = REMINDER_BUCKETS.ilog2();
/// The bits of a service's hash in `DueIndex`; the sign is no part of it.
const SERVICE_BITS: u32 = 63 - SECONDS_BITS - BUCKET_BITS;
const SECONDS_MAX: i64 = (1 << SECONDS_BITS) - 1;

/// A reminder as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReminder {
    /// The reminder.
    pub reminder: Reminder,
    /// The token for the next conditional write.
    pub etag: Etag,
}

impl StoredReminder {
    /// Its grain, as the column `GrainReference` has it.
    pub fn reference(&self) -> String {
        keys::reference(&self.reminder.grain_type, self.reminder.grain.key())
    }
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderWrite {
    /// It is written; this is the new etag.
    Written(Etag),
    /// It is not written: the row is no longer the expected one.
    EtagMismatch,
    /// It may or may not be written. Read to find out.
    Unknown(StoreError),
}

/// The outcome of a removal.
#[derive(Clone, Debug, PartialEq)]
pub enum ReminderRemoval {
    /// The row is gone.
    Removed,
    /// Nothing was removed: the row does not exist, or is not the expected one.
    EtagMismatch,
    /// It may or may not be removed. Read to find out.
    Unknown(StoreError),
}

/// The result of a scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scanned {
    /// The reminders of this service, in no order that means anything.
    pub found: Vec<StoredReminder>,
    /// The scan came to its limit: there may be more.
    pub is_full: bool,
    /// Rows that cannot be understood, and why: a foreign writer, or a newer version.
    pub refused: Vec<StoreError>,
}

/// The reminders of one service. Cheap to clone.
#[derive(Clone)]
pub struct ReminderTable {
    store: Arc<dyn SystemStore>,
    service: ClusterId,
    cluster: ClusterId,
    texts: Arc<Texts>,
}

impl fmt::Debug for ReminderTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReminderTable({} in {})", self.service, self.store.describe())
    }
}

impl ReminderTable {
    /// The reminders of `service` in `store`; `cluster` is who writes, for the `DeploymentId`.
    pub fn new(store: Arc<dyn SystemStore>, service: ClusterId, cluster: ClusterId) -> Self {
        Self { store, service, cluster, texts: Arc::default() }
    }

    /// Creates the table if it is missing.
    ///
    /// # Errors
    /// As [`SystemStore::ensure_tables`].
    pub async fn ensure(&self) -> Result<()> {
        self.store.ensure_tables(&[&REMINDERS]).await
    }

    fn partition(&self, hash: u32) -> String {
        format!("{}_{hash:08X}", self.service)
    }

    /// The partition and the row of a reminder.
    pub fn place(&self, grain: &GrainId, grain_type: &str, name: &str) -> (String, String) {
        let reference = keys::reference(grain_type, grain.key());
        let hash = emmer_core::reminder::hash_of(grain);
        (self.partition(hash), keys::reminder_row(&reference, name))
    }

    /// One reminder, or none.
    ///
    /// # Errors
    /// As the store; `Corrupt` when the row cannot be understood.
    pub async fn read(
        &self,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
    ) -> Result<Option<StoredReminder>> {
        let (partition, row) = self.place(grain, grain_type, name);
        let Some(found) = self.store.read_row(&REMINDERS, &partition, &row).await? else {
            return Ok(None);
        };
        let found = self.understand(&found)?;
        match found {
            Some(found) if found.reminder.grain == *grain && *found.reminder.name == *name => {
                Ok(Some(found))
            }
            _ => Err(self.corrupt(&row, "the row belongs to another reminder")),
        }
    }

    /// The reminders of a grain, by name.
    ///
    /// # Errors
    /// As the store; `Corrupt` when a row cannot be understood.
    pub async fn of_grain(&self, grain: &GrainId) -> Result<Vec<StoredReminder>> {
        let partition = self.partition(emmer_core::reminder::hash_of(grain));
        let mut all = Vec::new();
        for row in self.store.read_partition(&REMINDERS, &partition).await? {
            all.extend(self.understand(&row)?.filter(|found| found.reminder.grain == *grain));
        }
        all.sort_by(|a, b| a.reminder.name.cmp(&b.reminder.name));
        Ok(all)
    }

    /// Writes a reminder whether it is there or not.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn upsert(&self, reminder: &Reminder) -> Result<ReminderWrite> {
        self.write(reminder, |row| Mutation::Upsert { row }).await
    }

    /// Writes a reminder that must not be there yet.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn insert(&self, reminder: &Reminder) -> Result<ReminderWrite> {
        self.write(reminder, |row| Mutation::Insert { row }).await
    }

    /// Writes a reminder if its row still is what was read.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn replace(&self, reminder: &Reminder, etag: &Etag) -> Result<ReminderWrite> {
        self.write(reminder, |row| Mutation::Replace { row, etag: etag.clone() }).await
    }

    async fn write(
        &self,
        reminder: &Reminder,
        mutation: impl FnOnce(Row) -> Mutation,
    ) -> Result<ReminderWrite> {
        let (partition, row) = self.row(reminder);
        let key = row.key().to_owned();
        match self.store.commit(&REMINDERS, &partition, vec![mutation(row)]).await? {
            CommitOutcome::Conflict(_) => Ok(ReminderWrite::EtagMismatch),
            CommitOutcome::Unknown(error) => Ok(ReminderWrite::Unknown(error)),
            CommitOutcome::Committed(etags) => Ok(match etags.into_iter().next().flatten() {
                Some(etag) => ReminderWrite::Written(etag),
                None => ReminderWrite::Unknown(self.corrupt(&key, "the store gave no etag")),
            }),
        }
    }

    /// Removes a reminder; one with another etag stays, if one is given.
    ///
    /// # Errors
    /// As the store: then nothing was changed.
    pub async fn remove(
        &self,
        grain: &GrainId,
        grain_type: &str,
        name: &str,
        etag: Option<&Etag>,
    ) -> Result<ReminderRemoval> {
        let (partition, row_key) = self.place(grain, grain_type, name);
        let delete = Mutation::Delete { row_key, etag: etag.cloned() };
        Ok(match self.store.commit(&REMINDERS, &partition, vec![delete]).await? {
            CommitOutcome::Conflict(_) => ReminderRemoval::EtagMismatch,
            CommitOutcome::Unknown(error) => ReminderRemoval::Unknown(error),
            CommitOutcome::Committed(_) => ReminderRemoval::Removed,
        })
    }

    /// The reminders whose hash lies after `after`, up to and including `through`; around, where
    /// `after` is above `through`; all of them where both are equal.
    ///
    /// # Errors
    /// As the store.
    pub async fn in_range(&self, after: u32, through: u32, limit: usize) -> Result<Scanned> {
        let [first, last] = match after == through {
            true => [0, u32::MAX],
            false => [after.wrapping_add(1), through],
        };
        let range = i64::from(first)..=i64::from(last);
        let rows = self.store.scan(&REMINDERS, "GrainRefConsistentHash", range, limit).await?;
        Ok(self.scanned(&rows, limit))
    }

    /// The reminders in the buckets `from..=to`. With a time, only those that are due by then, and
    /// `from` and `to` are one bucket.
    ///
    /// # Errors
    /// As the store.
    pub async fn due(
        &self,
        (from, to): (u16, u16),
        by: Option<Timestamp>,
        limit: usize,
    ) -> Result<Scanned> {
        let last = by.map_or(SECONDS_MAX, seconds);
        let range = self.index(from, 0)..=self.index(to, last);
        let rows = self.store.scan(&REMINDERS, "DueIndex", range, limit).await?;
        Ok(self.scanned(&rows, limit))
    }

    fn scanned(&self, rows: &[StoredRow], limit: usize) -> Scanned {
        let mut scanned = Scanned { is_full: rows.len() >= limit, ..Scanned::default() };
        for row in rows {
            match self.understand(row) {
                Ok(found) => scanned.found.extend(found),
                Err(why) => scanned.refused.push(why),
            }
        }
        scanned
    }

    fn index(&self, bucket: u16, seconds: i64) -> i64 {
        index(self.service.as_str(), bucket, seconds)
    }

    fn row(&self, reminder: &Reminder) -> (String, Row) {
        let reference = keys::reference(&reminder.grain_type, reminder.grain.key());
        let (hash, due) = (reminder.hash(), reminder.next().map(|(_, at)| at));
        let schedule = &reminder.schedule;
        let mut row = Row::new(keys::reminder_row(&reference, &reminder.name))
            .with("GrainReference", Value::Text(reference.into()))
            .with("ReminderName", Value::Text(keys::escape(&reminder.name).into()))
            .with("ServiceId", Value::Text(self.service.as_str().into()))
            .with("DeploymentId", Value::Text(self.cluster.as_str().into()))
            .with("StartAt", Value::Time(schedule.start))
            .with("GrainRefConsistentHash", Value::Int(i64::from(hash)))
            .with("MissedPolicy", Value::Text(reminder.missed.name().into()))
            .with("DueIndex", {
                let due = due.map_or(SECONDS_MAX, seconds);
                Value::Int(self.index(reminder.bucket(), due))
            })
            .with("Fired", Value::Int(i64::try_from(reminder.fired).unwrap_or(i64::MAX)))
            .with("MissedCount", {
                Value::Int(i64::try_from(reminder.missed_count).unwrap_or(i64::MAX))
            });
        if let Some(period) = schedule.period {
            let millis = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
            row.set("Period", Value::Int(millis));
        }
        let times = [("EndAt", schedule.end), ("DueAt", due), ("LastFiredAt", reminder.last_fired)];
        for (column, time) in times {
            if let Some(time) = time {
                row.set(column, Value::Time(time));
            }
        }
        (self.partition(hash), row)
    }

    /// The row's reminder; none when it is another service's.
    fn understand(&self, found: &StoredRow) -> Result<Option<StoredReminder>> {
        let row = &found.row;
        match row.get("ServiceId") {
            Some(Value::Text(service)) if **service != *self.service.as_str() => return Ok(None),
            _ => {}
        }
        let reminder = parse(row, &self.texts).map_err(|why| self.corrupt(row.key(), &why))?;
        Ok(Some(StoredReminder { reminder, etag: found.etag.clone() }))
    }

    fn corrupt(&self, row: &str, why: &str) -> StoreError {
        let operation = format!("read {}/{}/{row}", REMINDERS.name, self.service);
        StoreError::new(StoreErrorKind::Corrupt, self.store.describe(), operation, why)
    }
}

fn index(service: &str, bucket: u16, seconds: i64) -> i64 {
    let service = stable64(service.as_bytes()) >> (u64::BITS - SERVICE_BITS);
    let service = i64::try_from(service).unwrap_or(0);
    (((service << BUCKET_BITS) | i64::from(bucket)) << SECONDS_BITS) | seconds
}

/// The hashes in a partition: one.
fn hashes_in(partition: &str) -> Option<RangeInclusive<i64>> {
    let (_, hash) = parse_partition(partition)?;
    Some(i64::from(hash)..=i64::from(hash))
}

/// The due times in a partition: all in one part of the ring.
fn indexes_in(partition: &str) -> Option<RangeInclusive<i64>> {
    let (service, hash) = parse_partition(partition)?;
    let bucket = emmer_core::reminder::bucket_of(hash);
    Some(index(service, bucket, 0)..=index(service, bucket, SECONDS_MAX))
}

fn parse_partition(partition: &str) -> Option<(&str, u32)> {
    let (service, hash) = partition.rsplit_once('_')?;
    Some((service, u32::from_str_radix(hash, 16).ok()?))
}

/// Seconds since 1970 that fit the index: rounded down, so that a reminder is never found late.
fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1_000).clamp(0, SECONDS_MAX)
}

/// Names of types and reminders, each of them once in memory: a million rows have a few.
#[derive(Default)]
struct Texts(Mutex<BTreeSet<Arc<str>>>);

impl Texts {
    /// Names that are never the same are not kept.
    const MAX: usize = 1_000;

    fn get(&self, text: &str) -> Arc<str> {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        if texts.len() < Self::MAX {
            texts.insert(new.clone());
        }
        new
    }
}

fn parse(row: &Row, texts: &Texts) -> std::result::Result<Reminder, String> {
    let text = |column: &'static str| match row.get(column) {
        Some(Value::Text(text)) => Ok(text),
        _ => Err(format!("{column} is null")),
    };
    let time = |column: &'static str| match row.get(column) {
        Some(Value::Time(time)) => Some(*time),
        _ => None,
    };
    let int = |column: &'static str| match row.get(column) {
        Some(Value::Int(n)) => Some(*n),
        _ => None,
    };
    let count = |column: &'static str| {
        let n = int(column).ok_or_else(|| format!("{column} is null"))?;
        u64::try_from(n).map_err(|_| format!("{column} is {n}, a count is expected"))
    };
    let reference = text("GrainReference")?;
    let (grain_type, key) = keys::parse_reference(reference).ok_or_else(|| {
        format!("GrainReference is {reference:?}, expected type/kind.key as in thermostat/s.attic")
    })?;
    let grain = GrainId::new(GrainTypeId::of(&grain_type), key);
    let name = text("ReminderName")?;
    let name =
        keys::unescape(name).ok_or_else(|| format!("ReminderName is {name:?}, badly escaped"))?;
    let period = match int("Period") {
        None => None,
        Some(millis) => match u64::try_from(millis) {
            Ok(millis) if millis > 0 => Some(Duration::from_millis(millis)),
            _ => return Err(format!("Period is {millis}, milliseconds above 0 are expected")),
        },
    };
    let start = time("StartAt").ok_or("StartAt is null")?;
    let missed = text("MissedPolicy")?.parse().map_err(|e| format!("MissedPolicy: {e}"))?;
    Ok(Reminder {
        grain,
        grain_type: texts.get(&grain_type),
        name: texts.get(&name),
        schedule: Schedule { start, period, end: time("EndAt") },
        missed,
        fired: count("Fired")?,
        last_fired: time("LastFiredAt"),
        missed_count: count("MissedCount")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn places_are_frozen_and_those_of_the_page() {
        let service: ClusterId = "prod".parse().unwrap();
        let table = ReminderTable::new(Arc::new(MemoryStore::new()), service.clone(), service);
        let grain = GrainId::new(GrainTypeId::of("thermostat"), "attic");
        let (partition, row) = table.place(&grain, "thermostat", "a-b");
        assert_eq!(
            (partition.as_str(), row.as_str()),
            ("prod_FA6C89EF", "thermostat/s.attic-a%2Db")
        );
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reminders.md");
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains(&format!("emmer:{{reminders/{partition}}}")));
        let of_partition = indexes_in(&partition).unwrap();
        let hash = emmer_core::reminder::hash_of(&grain);
        let due = table.index(emmer_core::reminder::bucket_of(hash), 7);
        assert!(of_partition.contains(&due) && due > 0);
        assert_eq!(hashes_in(&partition), Some(i64::from(hash)..=i64::from(hash)));
        assert!(hashes_in("prod").is_none() && indexes_in("prod_x").is_none());
    }

    #[test]
    fn due_times_are_ordered_within_a_bucket_and_fit() {
        let ends = [0, 1, SECONDS_MAX].map(|seconds| index("any", 4_095, seconds));
        assert!(ends.is_sorted() && ends[2] > 0 && index("any", 0, SECONDS_MAX) < ends[0]);
        let old = Timestamp::from_millis(-5);
        assert_eq!([old, Timestamp::from_millis(i64::MAX)].map(seconds), [0, SECONDS_MAX]);
        assert_eq!(seconds(Timestamp::from_millis(1_999)), 1);
    }
}
