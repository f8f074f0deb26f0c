//! The reminders in memory, by place on the ring and by the time at which something is to be done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::reminder::{MissedPolicy, Schedule, bucket_of, hash_of};
use emmer_core::{GrainId, Reminder, Timestamp};

use crate::api::{EntryId, Etag};

/// The work under way for a reminder.
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

/// The next step, when its time comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Fire due reminders.
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
    missed: MissedPolicy,
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

/// An etag; a short one, as most are, without memory of its own.
#[derive(Debug)]
enum KeptEtag {
    Short([u8; SHORT], u8),
    Long(Etag),
}

const SHORT: usize = 22;

impl KeptEtag {
    fn new(etag: Etag) -> Self {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..etag.len()), u8::try_from(etag.len())) {
            (Some(room), Ok(len)) => {
                room.copy_from_slice(etag.as_bytes());
                Self::Short(bytes, len)
            }
            _ => Self::Long(etag),
        }
    }
}

/// Slots for entries, by number. They grow by a piece at a time, and no entry moves.
#[derive(Debug, Default)]
struct Slots(Vec<Vec<Option<Entry>>>);

impl Slots {
    const PIECE: usize = 256;

    fn get(&self, slot: u32) -> Option<&Entry> {
        self.0.get(slot as usize / Self::PIECE)?.get(slot as usize % Self::PIECE)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.place(slot)?.as_mut()
    }

    fn place(&mut self, slot: u32) -> Option<&mut Option<Entry>> {
        self.0.get_mut(slot as usize / Self::PIECE)?.get_mut(slot as usize % Self::PIECE)
    }

    fn put(&mut self, slot: u32, entry: Entry) {
        if let Some(place) = self.place(slot) {
            *place = Some(entry);
        }
    }

    fn take(&mut self, slot: u32) -> Option<Entry> {
        self.place(slot)?.take()
    }

    /// The number of a new slot.
    fn grow(&mut self) -> u32 {
        if self.0.last().is_none_or(|last| last.len() == Self::PIECE) {
            self.0.push(Vec::with_capacity(Self::PIECE));
        }
        let before = (self.0.len() - 1) * Self::PIECE;
        let Some(last) = self.0.last_mut() else { return 0 };
        last.push(None);
        u32::try_from(before + last.len() - 1).unwrap_or(u32::MAX)
    }
}

/// One reminder.
#[derive(Debug)]
pub(crate) struct Entry {
    kept: Kept,
    etag: KeptEtag,
    pub(crate) doing: Doing,
    pub(crate) next: Next,
    /// The number of the last occurrence that was given up, or 0. The table does not know yet.
    pub(crate) given_up: u64,
    /// The number of the occurrence that was tried last, or 0.
    pub(crate) trying: u64,
    /// Failures in a row.
    pub(crate) attempts: u32,
    /// The row was said to have changed while something was being done.
    pub(crate) changed: bool,
    /// Time of the machine's last knowledge of it, by its count of events.
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

    pub(crate) fn etag(&self) -> Etag {
        match &self.etag {
            KeptEtag::Short(bytes, len) => {
                let text = bytes.get(..usize::from(*len)).and_then(|b| std::str::from_utf8(b).ok());
                text.unwrap_or_default().into()
            }
            KeptEtag::Long(etag) => etag.clone(),
        }
    }

    pub(crate) fn set_etag(&mut self, etag: Etag) {
        self.etag = KeptEtag::new(etag);
    }

    fn hash(&self) -> u32 {
        hash_of(&self.kept.grain)
    }

    pub(crate) fn bucket(&self) -> u16 {
        bucket_of(self.hash())
    }

    /// Returns true if it waits only for its next occurrence, or for another try of one.
    pub(crate) fn is_idle(&self) -> bool {
        self.doing == Doing::Waiting && self.next == Next::Fire
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    slots: Slots,
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
        let slot = self.slots.get_mut(slot_of(entry))?;
        (u64::from(slot.generation) == entry.0 >> 32).then_some(slot)
    }

    /// The reminder of this name, if it is in memory.
    pub(crate) fn find(&self, grain: &GrainId, name: &str) -> Option<EntryId> {
        let hash = hash_of(grain);
        self.by_hash.range((hash, 0)..=(hash, u32::MAX)).find_map(|(_, slot)| {
            let entry = self.slots.get(*slot)?;
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
        let slot = self.free.pop().unwrap_or_else(|| self.slots.grow());
        self.by_hash.insert((reminder.hash(), slot));
        self.by_time.insert((wakes, slot));
        let generation = self.generation;
        let entry = Entry {
            kept: reminder.into(),
            etag: KeptEtag::new(etag),
            doing: Doing::Waiting,
            next: Next::Fire,
            given_up: 0,
            trying: 0,
            attempts: 0,
            changed: false,
            known_at,
            wakes,
            generation,
        };
        self.slots.put(slot, entry);
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

    pub(crate) fn remove(&mut self, entry: EntryId) -> Option<Entry> {
        self.get(entry)?;
        let slot = slot_of(entry);
        let removed = self.slots.take(slot)?;
        self.by_hash.remove(&(removed.hash(), slot));
        self.by_time.remove(&(removed.wakes, slot));
        self.free.push(slot);
        if self.by_hash.is_empty() {
            (self.slots, self.free) = (Slots::default(), Vec::new());
        }
        Some(removed)
    }

    /// The one that has waited longest, and until when.
    pub(crate) fn first(&self) -> Option<(Timestamp, EntryId)> {
        let (wakes, slot) = self.by_time.first()?;
        let generation = self.slots.get(*slot)?.generation;
        Some((*wakes, id(*slot, generation)))
    }

    /// Those that have something done for them now are not among them.
    pub(crate) fn due(&self, max: usize) -> Vec<(Reminder, u32)> {
        let waiting = self.by_time.iter().take(max);
        let entries = waiting.filter_map(|(_, slot)| self.slots.get(*slot));
        entries.map(|entry| (entry.reminder(), entry.attempts)).collect()
    }

    /// Reminders in the buckets `from..=to`.
    pub(crate) fn in_buckets(&self, from: u16, to: u16) -> Vec<EntryId> {
        let (first, last) = (u32::from(from) << 20, (u32::from(to) << 20) | 0xf_ffff);
        let of = |(_, slot): &(u32, u32)| Some(id(*slot, self.slots.get(*slot)?.generation));
        self.by_hash.range((first, 0)..=(last, u32::MAX)).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    #[test]
    fn a_reminder_comes_out_as_it_went_in() {
        let mut entries = Entries::default();
        let mut ids = Vec::new();
        for number in 0..1_000u64 {
            let some = |n: u64| (number % n == 0).then_some(number);
            let time = |n: u64| Timestamp::from_millis(n as i64);
            let reminder = Reminder {
                grain: GrainId::new(GrainTypeId::of("t"), number),
                grain_type: "t".into(),
                name: "n".into(),
                schedule: Schedule {
                    start: time(number),
                    period: some(2).map(|n| Duration::from_millis(n + 1)),
                    end: some(3).map(time),
                },
                missed: [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All]
                    [number as usize % 3],
                fired: number * 7,
                last_fired: some(5).map(time),
                missed_count: number * 11,
            };
            let etag: Etag = "7".repeat(number as usize % 40).into();
            let id = entries.insert(reminder.clone(), etag.clone(), 0, time(number));
            ids.push((id, reminder, etag));
        }
        for (id, reminder, etag) in &ids {
            let found = entries.get(*id).unwrap();
            assert_eq!((&found.reminder(), &found.etag()), (reminder, etag));
            assert_eq!(entries.find(&reminder.grain, "n"), Some(*id));
        }
        // A slot that is used again has another id.
        for (id, reminder, etag) in ids.iter().step_by(3) {
            assert!(entries.remove(*id).is_some() && entries.get(*id).is_none());
            let again = entries.insert(reminder.clone(), etag.clone(), 0, reminder.schedule.start);
            assert!(again != *id && entries.get(*id).is_none() && entries.get(again).is_some());
        }
        assert_eq!((entries.len(), entries.slots.0.len()), (1_000, 4));
    }
}
