//! The membership table itself: exact, linearisable, with its whole history.
//!
//! Everything a real store does wrong (delay, outages, unknown outcomes, stale reads) happens
//! around it, in [`crate::store`]; the table is the truth that the invariants are checked against.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{SiloAddress, SiloEntry, TableId, TableVersion, Timestamp};
use emmer_membership::TableSnapshot;

use crate::time::VirtualTime;
use crate::trace::mix;

/// Time for which it is remembered that a row stood still.
const STILL_KEPT: Duration = Duration::from_secs(10);

/// Author of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Author {
    /// Index of the process in the world.
    pub process: u32,
    /// The sender's wall clock at the request: a commit is judged by its writer's knowledge.
    pub wall: Timestamp,
    /// When it sent the request.
    pub at: VirtualTime,
}

/// One row's change in one commit.
#[derive(Clone, Debug)]
pub struct Change {
    /// Address of the row.
    pub address: SiloAddress,
    /// The row before; none when it was inserted.
    pub before: Option<SiloEntry>,
    /// The row after; none when it was deleted.
    pub after: Option<SiloEntry>,
}

/// One committed write.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was applied.
    pub at: VirtualTime,
    /// Index in the world of the process that asked for it.
    pub writer: u32,
    /// Time of its wall clock when it asked.
    pub asked: Timestamp,
    /// When it asked.
    pub sent: VirtualTime,
    /// The content hash of all rows after it.
    pub content: u64,
    /// The etag of the version that it made.
    pub etag: Arc<str>,
    /// Changes of the commit.
    pub changes: Vec<Change>,
}

/// Why a commit was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The version row is not the commit's base.
    Conflict,
    /// More rows than one commit may carry, or none: a caller's mistake that a real store answers
    /// with an error.
    Malformed,
}

/// The rows, the version row, and how they came about.
#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<SiloAddress, Row>,
    version: TableVersion,
    content: u64,
    history: Vec<Record>,
    /// Number of times it fell back to an earlier version: the same number never has the same etag
    /// twice.
    fallbacks: u32,
    /// Its identity, from its first commit.
    id: TableId,
    /// It was dropped, and no process has made it again.
    pub dropped: bool,
}

#[derive(Debug)]
struct Row {
    entry: SiloEntry,
    /// When IAmAliveTime last moved (or the row was inserted), in true time.
    alive_at: VirtualTime,
    /// The time before that, and the value it had.
    alive_before: Option<(VirtualTime, Timestamp)>,
    /// The longest time for which it stood still lately, and when that ended.
    stood_still: (VirtualTime, Duration),
}

impl Table {
    /// The version row. Number 0 and an empty etag before the first commit.
    pub const fn version(&self) -> &TableVersion {
        &self.version
    }

    /// The row of `silo`.
    pub fn row(&self, silo: &SiloAddress) -> Option<&SiloEntry> {
        self.rows.get(silo).map(|row| &row.entry)
    }

    /// When the row of `silo` was last touched or inserted.
    pub fn alive_at(&self, silo: &SiloAddress) -> Option<VirtualTime> {
        self.rows.get(silo).map(|row| row.alive_at)
    }

    /// Time of the last touch but one of the row of `silo`, and its IAmAliveTime until the last
    /// touch: the knowledge of a silo with a slightly older read.
    pub fn alive_before(&self, silo: &SiloAddress) -> Option<(VirtualTime, Timestamp)> {
        self.rows.get(silo).and_then(|row| row.alive_before)
    }

    /// The longest time for which the row of `silo` stood still before a touch within the last
    /// `within`.
    pub fn stood_still(&self, silo: &SiloAddress, at: VirtualTime, within: Duration) -> Duration {
        let row = self.rows.get(silo).filter(|row| at.since(row.stood_still.0) <= within);
        row.map_or(Duration::ZERO, |row| row.stood_still.1)
    }

    /// Every row, by address.
    pub fn rows(&self) -> impl Iterator<Item = &SiloEntry> {
        self.rows.values().map(|row| &row.entry)
    }

    /// Every row with the `ip:port` of `silo`, oldest incarnation first.
    pub fn incarnations_of(&self, silo: &SiloAddress) -> impl Iterator<Item = &SiloEntry> {
        let endpoint = silo.endpoint();
        let (first, last) = (SiloAddress::new(endpoint, 0), SiloAddress::new(endpoint, u64::MAX));
        self.rows.range(first..=last).map(|(_, row)| &row.entry)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Every committed write; the write of version `n` is at `n - 1`.
    pub fn history(&self) -> &[Record] {
        &self.history
    }

    /// The content hash at version `number`; none for versions that never were.
    pub fn content_at(&self, number: u64) -> Option<u64> {
        match usize::try_from(number).ok()?.checked_sub(1) {
            None => Some(0),
            Some(index) => self.history.get(index).map(|record| record.content),
        }
    }

    /// Every row and the version, as they are now.
    pub fn snapshot(&self) -> TableSnapshot {
        TableSnapshot { version: self.version.clone(), rows: self.rows().cloned().collect() }
    }

    /// Number of commits that were made in the `last` before `at`.
    pub fn commits_since(&self, at: VirtualTime, last: Duration) -> usize {
        self.history.iter().rev().take_while(|record| at.since(record.at) < last).count()
    }

    /// Every row and the version as they were `back` commits ago: what a lagging replica shows.
    pub fn snapshot_back(&self, back: usize) -> TableSnapshot {
        let number = self.history.len().saturating_sub(back);
        let mut rows: BTreeMap<SiloAddress, SiloEntry> =
            self.rows.iter().map(|(address, row)| (*address, row.entry.clone())).collect();
        for record in self.history[number..].iter().rev() {
            for change in &record.changes {
                match &change.before {
                    Some(entry) => rows.insert(change.address, entry.clone()),
                    None => rows.remove(&change.address),
                };
            }
        }
        TableSnapshot { version: self.version_at(number), rows: rows.into_values().collect() }
    }

    /// At most `limit` rows: the next ones from `near` on, and around.
    pub fn sample(&self, near: &SiloAddress, limit: usize) -> Vec<SiloEntry> {
        let behind = self.rows().filter(|row| row.address >= *near);
        let before = self.rows().filter(|row| row.address < *near);
        behind.chain(before).take(limit).cloned().collect()
    }

    /// A read of several pages that a commit went through: the version and the first half of the
    /// rows of now, the rest as it was one commit ago. A store that keeps the contract never
    /// returns this.
    pub fn snapshot_torn(&self) -> TableSnapshot {
        let old = self.snapshot_back(1);
        let new = self.snapshot();
        let page = new.rows.len() / 2;
        let boundary = new.rows.get(page).map(|row| row.address);
        let mut rows: Vec<SiloEntry> = new.rows.into_iter().take(page).collect();
        rows.extend(old.rows.into_iter().filter(|row| boundary.is_some_and(|b| row.address >= b)));
        TableSnapshot { version: new.version, rows }
    }

    /// Applies a commit, or refuses it whole.
    ///
    /// # Errors
    /// [`Refused`], with no effect.
    pub fn commit(
        &mut self,
        at: VirtualTime,
        author: Author,
        base: &TableVersion,
        rows: &[SiloEntry],
        deletes: &[SiloAddress],
    ) -> Result<&Record, Refused> {
        let count = rows.len() + deletes.len();
        if count == 0 || count > MEMBERSHIP_ROWS_PER_COMMIT_MAX {
            return Err(Refused::Malformed);
        }
        if base.etag != self.version.etag || base.number != self.version.number {
            return Err(Refused::Conflict);
        }
        let mut changes = Vec::with_capacity(count);
        for address in deletes {
            if let Some(row) = self.rows.remove(address) {
                self.content = self.content.wrapping_sub(row_hash(&row.entry));
                changes.push(Change { address: *address, before: Some(row.entry), after: None });
            }
        }
        for row in rows {
            let before = self.write(at, row);
            changes.push(Change { address: row.address, before, after: Some(row.clone()) });
        }
        if self.history.is_empty() {
            self.id = base.table;
        } else if base.table != self.id {
            return Err(Refused::Malformed);
        }
        let number = self.history.len() + 1;
        let etag = match self.fallbacks {
            0 => format!("tag-{number}"),
            times => format!("tag-{number}-{times}"),
        };
        self.history.push(Record {
            etag: etag.into(),
            at,
            writer: author.process,
            asked: author.wall,
            sent: author.at,
            content: self.content,
            changes,
        });
        self.version = self.version_at(number);
        Ok(&self.history[self.history.len() - 1])
    }

    /// Falls back by `commits` commits, like a store that lost acknowledged ones. Returns the
    /// number of lost commits.
    pub fn fall_back(&mut self, at: VirtualTime, commits: usize) -> usize {
        let kept = self.history.len().saturating_sub(commits);
        let lost = self.history.split_off(kept);
        for change in lost.iter().rev().flat_map(|record| record.changes.iter().rev()) {
            match &change.before {
                Some(entry) => {
                    let stood_still = (at, Duration::ZERO);
                    let row =
                        Row { entry: entry.clone(), alive_at: at, alive_before: None, stood_still };
                    self.rows.insert(change.address, row);
                }
                None => drop(self.rows.remove(&change.address)),
            }
        }
        self.content = self.history.last().map_or(0, |record| record.content);
        self.version = self.version_at(kept);
        self.fallbacks += u32::from(!lost.is_empty());
        lost.len()
    }

    fn version_at(&self, number: usize) -> TableVersion {
        let etag = number
            .checked_sub(1)
            .and_then(|at| self.history.get(at))
            .map(|record| record.etag.clone());
        let table = if number == 0 { TableId::default() } else { self.id };
        TableVersion { number: number as u64, etag: etag.unwrap_or_default(), table }
    }

    fn write(&mut self, at: VirtualTime, new: &SiloEntry) -> Option<SiloEntry> {
        self.content = self.content.wrapping_add(row_hash(new));
        match self.rows.entry(new.address) {
            Entry::Vacant(slot) => {
                let stood_still = (at, Duration::ZERO);
                slot.insert(Row {
                    entry: new.clone(),
                    alive_at: at,
                    alive_before: None,
                    stood_still,
                });
                None
            }
            Entry::Occupied(mut slot) => {
                let row = slot.get_mut();
                self.content = self.content.wrapping_sub(row_hash(&row.entry));
                let mut entry = new.clone();
                entry.i_am_alive_time = row.entry.i_am_alive_time;
                Some(std::mem::replace(&mut row.entry, entry))
            }
        }
    }

    /// Sets IAmAliveTime; false when there is no such row.
    pub fn touch(&mut self, at: VirtualTime, silo: &SiloAddress, time: Timestamp) -> bool {
        self.rows.get_mut(silo).is_some_and(|row| {
            if row.entry.i_am_alive_time != time {
                let gap = at.since(row.alive_at);
                if gap >= row.stood_still.1 || at.since(row.stood_still.0) > STILL_KEPT {
                    row.stood_still = (at, gap);
                }
                row.alive_before = Some((row.alive_at, row.entry.i_am_alive_time));
                row.alive_at = at;
                row.entry.i_am_alive_time = time;
            }
            true
        })
    }
}

/// A hash of everything in a row except IAmAliveTime, which no version covers. Content hashes are
/// sums of these, so a commit changes them in proportion to its rows.
pub fn row_hash(row: &SiloEntry) -> u64 {
    let mut hasher = Mixer(0x1234_5678);
    row.address.hash(&mut hasher);
    row.status.hash(&mut hasher);
    row.votes.hash(&mut hasher);
    row.proxy_port.hash(&mut hasher);
    row.host_name.hash(&mut hasher);
    row.role_name.hash(&mut hasher);
    row.instance_name.hash(&mut hasher);
    (row.update_zone, row.fault_zone, row.start_time).hash(&mut hasher);
    hasher.finish()
}

/// A small, fast hasher that is the same in every run.
#[derive(Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = mix(self.0, u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.0 = mix(self.0, u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.0 = mix(self.0, u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = mix(self.0, u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0, n);
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = mix(self.0, n as u64);
    }

    fn finish(&self) -> u64 {
        mix(self.0, 0x5bd1_e995)
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::SiloStatus;

    use super::*;

    fn silo(n: u16) -> SiloEntry {
        let address = SiloAddress::new(([10, 0, 0, 1], n).into(), 1);
        SiloEntry::new(address, SiloStatus::Joining, Timestamp::from_millis(5))
    }

    fn author(process: u32) -> Author {
        Author { process, wall: Timestamp::default(), at: VirtualTime::default() }
    }

    fn content(rows: &[SiloEntry]) -> u64 {
        rows.iter().fold(0u64, |sum, row| sum.wrapping_add(row_hash(row)))
    }

    #[test]
    fn a_commit_needs_the_current_etag_and_a_refused_one_changes_nothing() {
        let mut table = Table::default();
        let v0 = table.version().clone();
        table.commit(VirtualTime::ZERO, author(0), &v0, &[silo(1)], &[]).unwrap();
        let lost = table.commit(VirtualTime::ZERO, author(1), &v0, &[silo(2)], &[]);
        assert_eq!(lost.map(|_| ()), Err(Refused::Conflict));
        let v1 = table.version().clone();
        assert_eq!((v1.number, table.len()), (1, 1));
        assert_eq!(
            table.commit(VirtualTime::ZERO, author(1), &v1, &[], &[]).map(|_| ()),
            Err(Refused::Malformed),
            "an empty commit"
        );
    }

    #[test]
    fn history_and_content_hash_agree_with_the_rows() {
        let mut table = Table::default();
        let mut expected = vec![table.snapshot()];
        for n in 0..20u16 {
            let base = table.version().clone();
            let mut row = silo(n / 2);
            row.status = if n % 2 == 0 { SiloStatus::Joining } else { SiloStatus::Active };
            let deletes = if n == 11 { vec![silo(0).address] } else { vec![] };
            table.commit(VirtualTime::ZERO, author(0), &base, &[row], &deletes).unwrap();
            expected.push(table.snapshot());
        }
        for (number, snapshot) in expected.iter().enumerate() {
            assert_eq!(&table.snapshot_back(20 - number), snapshot);
            assert_eq!(table.content_at(number as u64), Some(content(&snapshot.rows)));
        }
        assert_eq!(table.content_at(21), None);
    }

    #[test]
    fn a_table_that_falls_back_has_its_old_rows_and_no_etag_twice() {
        let mut table = Table::default();
        let mut seen = vec![table.snapshot()];
        for n in 1..=3 {
            let base = table.version().clone();
            table.commit(VirtualTime::ZERO, author(0), &base, &[silo(n)], &[]).unwrap();
            seen.push(table.snapshot());
        }
        assert_eq!(table.fall_back(VirtualTime::from_secs(1), 2), 2);
        assert_eq!(
            (table.snapshot(), table.content_at(1)),
            (seen[1].clone(), Some(content(&seen[1].rows)))
        );
        let base = table.version().clone();
        table.commit(VirtualTime::ZERO, author(0), &base, &[silo(9)], &[]).unwrap();
        assert_eq!(table.version().number, 2);
        assert_ne!(table.version().etag, seen[2].version.etag);
        assert_eq!(table.fall_back(VirtualTime::from_secs(1), 99), 2);
        assert_eq!((table.version().clone(), table.is_empty()), (TableVersion::default(), true));
    }

    #[test]
    fn a_touch_moves_no_version_and_a_commit_does_not_undo_it() {
        let mut table = Table::default();
        let v0 = table.version().clone();
        table.commit(VirtualTime::ZERO, author(0), &v0, &[silo(1)], &[]).unwrap();
        let before = (table.version().clone(), table.content_at(1));
        assert!(table.touch(
            VirtualTime::from_secs(9),
            &silo(1).address,
            Timestamp::from_millis(77)
        ));
        assert!(!table.touch(
            VirtualTime::from_secs(9),
            &silo(2).address,
            Timestamp::from_millis(77)
        ));
        assert_eq!((table.version().clone(), table.content_at(1)), before);
        let v1 = table.version().clone();
        table.commit(VirtualTime::ZERO, author(0), &v1, &[silo(1)], &[]).unwrap();
        assert_eq!(
            table.row(&silo(1).address).unwrap().i_am_alive_time,
            Timestamp::from_millis(77)
        );
        assert_eq!(table.alive_at(&silo(1).address), Some(VirtualTime::from_secs(9)));
    }
}
