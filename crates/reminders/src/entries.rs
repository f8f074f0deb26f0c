//! The reminders in memory, by place on the ring and by the time at which something is to be done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::reminder::{Missed, Schedule, bucket_of, hash_of};
use emmer_core::{GrainId, Reminder, Timestamp};

use crate::api::{EntryId, Etag};

/// What is being done for a reminder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing: it waits in the order of due times.
    Waiting,
    /// The tick of this occurrence is under way.
    Firing(u64),
    /// Its row is being written or removed.
    Settling,
    /// Its row is being read.
    Looking,
}

/// What is to be done next, when its time comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Fire what is due.
    Fire,
    /// Write that an occurrence was delivered.
    Settle(Box<Reminder>),
    /// Remove the row: no occurrence is left.
    Remove,
    /// Read the row again.
    Look,
}

/// A reminder in little room: there may be hundreds of thousands.
#[derive(Debug)]
struct Kept {
    grain: GrainId,
    grain_type: Arc<str>,
    name: Arc<str>,
    start: Timestamp,
    /// In milliseconds; 0 for none.
    period: u64,
    /// [`NEVER`] for none.
    end: Timestamp,
    /// [`NEVER`] for none.
    last_fired: Timestamp,
    fired: u64,
    missed_count: u64,
    missed: Missed,
}

const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

impl From<Reminder> for Kept {
    fn from(reminder: Reminder) -> Self {
        let Schedule { start, period, end } = reminder.schedule;
        let millis = |period: Duration| u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        Self {
            grain: reminder.grain,
            grain_type: reminder.grain_type,
            name: reminder.name,
            start,
            period: period.map_or(0, |period| millis(period).max(1)),
            end: end.unwrap_or(NEVER),
            last_fired: reminder.last_fired.unwrap_or(NEVER),
            fired: reminder.fired,
            missed_count: reminder.missed_count,
            missed: reminder.missed,
        }
    }
}

/// One reminder.
#[derive(Debug)]
pub(crate) struct Entry {
    kept: Kept,
    pub(crate) etag: Etag,
    pub(crate) doing: Doing,
    pub(crate) next: Next,
    /// The number of the last occurrence that was given up, or 0. The table does not know yet.
    pub(crate) given_up: u64,
    /// Failures in a row.
    pub(crate) attempts: u32,
    /// The row was said to have changed while something was being done.
    pub(crate) changed: bool,
    /// When the machine last learnt something of it, by its count of events.
    pub(crate) known_at: u64,
    /// Its place in the order of due times while it waits.
    wakes: Timestamp,
    generation: u32,
}

impl Entry {
    pub(crate) fn reminder(&self) -> Reminder {
        let kept = &self.kept;
        let some = |time: Timestamp| (time != NEVER).then_some(time);
        Reminder {
            grain: kept.grain.clone(),
            grain_type: kept.grain_type.clone(),
            name: kept.name.clone(),
            schedule: Schedule {
                start: kept.start,
                period: (kept.period > 0).then(|| Duration::from_millis(kept.period)),
                end: some(kept.end),
            },
            missed: kept.missed,
            fired: kept.fired,
            last_fired: some(kept.last_fired),
            missed_count: kept.missed_count,
        }
    }

    /// Takes up another content of its row.
    pub(crate) fn set(&mut self, reminder: Reminder) {
        self.kept = reminder.into();
    }

    fn hash(&self) -> u32 {
        hash_of(&self.kept.grain)
    }

    pub(crate) fn bucket(&self) -> u16 {
        bucket_of(self.hash())
    }

    /// Returns true if it waits for nothing but its next occurrence, or for another try of one.
    pub(crate) fn is_idle(&self) -> bool {
        self.doing == Doing::Waiting && self.next == Next::Fire
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// In boxes: growing moves little, and leaves little room unused.
    slots: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    by_hash: BTreeSet<(u32, u32)>,
    by_time: BTreeSet<(Timestamp, u32)>,
    generation: u32,
}

fn id(slot: u32, generation: u32) -> EntryId {
    EntryId((u64::from(generation) << 32) | u64::from(slot))
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is the slot")]
const fn slot_of(entry: EntryId) -> u32 {
    entry.0 as u32
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(crate) fn get(&mut self, entry: EntryId) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(slot_of(entry) as usize)?.as_mut()?;
        (u64::from(slot.generation) == entry.0 >> 32).then_some(slot)
    }

    /// The reminder of this name, if it is in memory.
    pub(crate) fn find(&self, grain: &GrainId, name: &str) -> Option<EntryId> {
        let hash = hash_of(grain);
        self.by_hash.range((hash, 0)..=(hash, u32::MAX)).find_map(|(_, slot)| {
            let entry = self.slots.get(*slot as usize)?.as_ref()?;
            let same = entry.kept.grain == *grain && *entry.kept.name == *name;
            same.then(|| id(*slot, entry.generation))
        })
    }

    /// Puts in a reminder that is not there; it waits until `wakes`.
    pub(crate) fn insert(
        &mut self,
        reminder: Reminder,
        etag: Etag,
        known_at: u64,
        wakes: Timestamp,
    ) -> EntryId {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.by_hash.insert((reminder.hash(), slot));
        self.by_time.insert((wakes, slot));
        let generation = self.generation;
        self.slots[slot as usize] = Some(Box::new(Entry {
            kept: reminder.into(),
            etag,
            doing: Doing::Waiting,
            next: Next::Fire,
            given_up: 0,
            attempts: 0,
            changed: false,
            known_at,
            wakes,
            generation,
        }));
        id(slot, generation)
    }

    /// Lets it wait until `wakes`, and then do `next`.
    pub(crate) fn wait(&mut self, entry: EntryId, wakes: Timestamp, next: Next) {
        let Some(found) = self.get(entry) else { return };
        let before = (found.doing == Doing::Waiting).then_some(found.wakes);
        (found.doing, found.next, found.wakes) = (Doing::Waiting, next, wakes);
        if let Some(before) = before {
            self.by_time.remove(&(before, slot_of(entry)));
        }
        self.by_time.insert((wakes, slot_of(entry)));
    }

    /// Takes it out of the order of due times: something is done for it now.
    pub(crate) fn busy(&mut self, entry: EntryId, doing: Doing) {
        let Some(found) = self.get(entry) else { return };
        let before = (found.doing == Doing::Waiting).then_some(found.wakes);
        found.doing = doing;
        if let Some(before) = before {
            self.by_time.remove(&(before, slot_of(entry)));
        }
    }

    pub(crate) fn remove(&mut self, entry: EntryId) -> Option<Box<Entry>> {
        self.get(entry)?;
        let slot = slot_of(entry);
        let removed = self.slots.get_mut(slot as usize)?.take()?;
        self.by_hash.remove(&(removed.hash(), slot));
        self.by_time.remove(&(removed.wakes, slot));
        self.free.push(slot);
        if self.by_hash.is_empty() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
        Some(removed)
    }

    /// The one that has waited longest, and until when.
    pub(crate) fn first(&self) -> Option<(Timestamp, EntryId)> {
        let (wakes, slot) = self.by_time.first()?;
        let generation = self.slots.get(*slot as usize)?.as_ref()?.generation;
        Some((*wakes, id(*slot, generation)))
    }

    /// Those in the buckets `from..=to`.
    pub(crate) fn in_buckets(&self, from: u16, to: u16) -> Vec<EntryId> {
        let (first, last) = (u32::from(from) << 20, (u32::from(to) << 20) | 0xf_ffff);
        let of = |(_, slot): &(u32, u32)| {
            Some(id(*slot, self.slots.get(*slot as usize)?.as_ref()?.generation))
        };
        self.by_hash.range((first, 0)..=(last, u32::MAX)).filter_map(of).collect()
    }
}
