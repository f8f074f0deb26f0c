//! The machine: its inputs and their consequences.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::reminder::{MissedPolicy, bucket_of, hash_of};
use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, Instant, Now, Reminder, SiloAddress, Timestamp};

use crate::api::{
    Config, Effect, EntryId, Found, Looked, Message, ReadId, Row, Settled, Statistics, Tick, Ticked,
};
use crate::entries::{Doing, Entries, Next};
use crate::leaves::Leaves;
use crate::owners::Owners;
use crate::tells::Tells;

/// Maximum occurrences that are made up for, of those missed under [`MissedPolicy::All`].
const ALL_MAX: u64 = 1_000;
/// Minimum tries of an occurrence before it is given up for the next one.
const TRIES_MIN: u32 = 3;
/// The first pause after a failure, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// Reads after a change of owners begin within this time, so that silos do not begin together.
const SPREAD: Duration = Duration::from_millis(500);
/// Interval of the checks of the wall clock while something waits for it: a person may set it.
const CLOCK_LOOK: Duration = Duration::from_secs(5);

/// A read under way.
#[derive(Debug)]
struct Read {
    begun_at: u64,
    by: Timestamp,
}

/// One silo's reminders.
#[derive(Debug)]
pub struct Reminders {
    me: SiloAddress,
    config: Config,
    rng: SeededRng,
    owners: Owners,
    leaves: Leaves,
    entries: Entries,
    tells: Tells,
    effects: VecDeque<Effect>,
    reads: BTreeMap<ReadId, Read>,
    /// Reminders that left the memory while reads were under way, by hash and name: when.
    gone: BTreeMap<(u32, Arc<str>), u64>,
    /// Looks under way for reminders that were not in memory: when they began, and if the reminder
    /// has changed again since.
    looking: BTreeMap<(GrainId, Arc<str>), (u64, bool)>,
    in_flight: usize,
    /// Counts what the machine was told.
    events: u64,
    statistics: Statistics,
}

/// The choice of what to do for a reminder now.
enum Choice {
    Fire(Tick),
    Wait(Timestamp),
    /// No occurrence is left.
    Over,
}

impl Reminders {
    /// The machine of the silo `me`. Random choices grow from `seed`.
    pub fn new(me: SiloAddress, config: Config, seed: u64) -> Self {
        let refresh = config.window / 2;
        Self {
            me,
            rng: SeededRng::new(seed),
            owners: Owners::new(me),
            leaves: Leaves::new(config.read_limit, refresh),
            entries: Entries::default(),
            tells: Tells::new(config.tells_max, refresh),
            effects: VecDeque::new(),
            reads: BTreeMap::new(),
            gone: BTreeMap::new(),
            looking: BTreeMap::new(),
            in_flight: 0,
            events: 0,
            statistics: Statistics::default(),
            config,
        }
    }

    /// A view is in force, with these Active silos. A silo that is not among them owns nothing.
    pub fn handle_view(&mut self, now: Now, active: Vec<SiloAddress>) {
        self.events += 1;
        if !self.owners.set(active) {
            return;
        }
        self.leaves.cover(now.mono, self.owners.runs(), SPREAD, &mut self.rng);
        self.handle_timeout(now);
    }

    /// Time has come to what [`poll_timeout`](Self::poll_timeout) said.
    pub fn handle_timeout(&mut self, now: Now) {
        self.events += 1;
        self.read(now);
        self.tell(now);
        self.attend(now);
    }

    /// The reminder of this name was written or removed by this silo, for the owner.
    pub fn handle_written(
        &mut self,
        now: Now,
        grain: GrainId,
        grain_type: Arc<str>,
        name: Arc<str>,
    ) {
        self.events += 1;
        if self.owners.is_mine(bucket_of(hash_of(&grain))) {
            self.look(grain, grain_type, name);
        } else {
            self.tells.add(now.mono, grain, grain_type, name);
            self.tell(now);
        }
    }

    /// A message from another silo.
    pub fn handle_message(&mut self, _now: Now, from: SiloAddress, message: Message) {
        self.events += 1;
        match message {
            Message::Heard { id } => self.tells.heard(id),
            Message::Changed { grain, grain_type, name, id } => {
                // A silo that does not own it (yet), or has too many rows to read, says nothing: it
                // hears of it again.
                let is_mine = self.owners.is_mine(bucket_of(hash_of(&grain)));
                if is_mine && self.looking.len() < self.config.tells_max {
                    self.effects
                        .push_back(Effect::Send { to: from, message: Message::Heard { id } });
                    self.look(grain, grain_type, name);
                }
            }
        }
    }

    /// Takes the result of a read; none when it failed.
    pub fn handle_read(&mut self, now: Now, read: ReadId, found: Option<Found>) {
        self.events += 1;
        let Some(begun) = self.reads.remove(&read) else { return };
        match found {
            None => self.leaves.failed(now.mono, read, &mut self.rng),
            Some(found) => {
                self.statistics.rows_read += found.rows.len() as u64;
                let rows = (found.rows.len(), found.is_full);
                let whole = self.leaves.done(now.mono, read, rows, &mut self.rng);
                let mut seen = Vec::new();
                for row in found.rows {
                    seen.extend(self.take_row(now, row, begun.begun_at));
                }
                if let Some((from, to, soon)) = whole {
                    self.drop_unseen((from, to), soon.then_some(begun.by), &seen, begun.begun_at);
                }
            }
        }
        if self.reads.is_empty() && self.looking.is_empty() {
            self.gone.clear();
        }
        self.handle_timeout(now);
    }

    /// Takes the result of a look at one row.
    pub fn handle_looked(&mut self, now: Now, grain: &GrainId, name: &Arc<str>, looked: Looked) {
        self.events += 1;
        if let Some((begun_at, again)) = self.looking.remove(&(grain.clone(), name.clone())) {
            // It was not in memory when the look began.
            if let Looked::Row(row) = looked {
                let Reminder { grain, grain_type, name, .. } = row.reminder.clone();
                self.take_row(now, row, begun_at);
                if again {
                    self.look(grain, grain_type, name);
                }
            }
            return self.attend(now);
        }
        let Some(entry) = self.entries.find(grain, name) else { return };
        let Some(found) = self.entries.get(entry).filter(|e| e.doing == Doing::Looking) else {
            return;
        };
        self.in_flight -= 1;
        found.known_at = self.events;
        let again = std::mem::take(&mut found.changed);
        match looked {
            Looked::Unknown => {
                found.attempts += 1;
                self.pause(now, entry, Next::Look, None);
            }
            _ if again => self.entries.wait(entry, now.wall, Next::Look),
            Looked::Gone => self.forget(entry),
            Looked::Row(row) => {
                found.set(row.reminder);
                found.set_etag(row.etag);
                (found.given_up, found.trying, found.attempts) = (0, 0, 0);
                self.schedule(now, entry);
            }
        }
        self.attend(now);
    }

    /// Takes the end of a tick.
    pub fn handle_ticked(&mut self, now: Now, entry: EntryId, ticked: Ticked) {
        self.events += 1;
        let Some(found) = self.entries.get(entry) else { return };
        let Doing::Firing(number) = found.doing else { return };
        self.in_flight -= 1;
        match ticked {
            Ticked::Delivered => {
                let mut settled = found.reminder();
                let missed = number.saturating_sub(settled.fired + 1);
                settled.fired = number;
                settled.last_fired = Some(now.wall);
                settled.missed_count += missed;
                (found.attempts, found.given_up) = (0, 0);
                self.statistics.delivered += 1;
                self.statistics.missed += missed;
                self.settle(entry, settled);
            }
            Ticked::Failed => {
                self.statistics.failed += 1;
                found.attempts += 1;
                let following = found.reminder().schedule.time_of(number + 1);
                let is_over = following.is_some_and(|at| at <= now.wall);
                if is_over && found.attempts >= TRIES_MIN {
                    (found.given_up, found.attempts) = (number, 0);
                    self.schedule(now, entry);
                } else {
                    // The next occurrence does not wait for another try of this one.
                    self.pause(now, entry, Next::Fire, following.filter(|_| !is_over));
                }
            }
        }
        self.attend(now);
    }

    /// Takes the end of a write or a removal.
    pub fn handle_settled(&mut self, now: Now, entry: EntryId, settled: Settled) {
        self.events += 1;
        let Some(found) = self.entries.get(entry).filter(|e| e.doing == Doing::Settling) else {
            return;
        };
        self.in_flight -= 1;
        found.known_at = self.events;
        match settled {
            Settled::Removed => self.forget(entry),
            Settled::Changed => {
                self.statistics.conflicts += 1;
                (found.changed, found.attempts) = (false, 0);
                self.entries.wait(entry, now.wall, Next::Look);
            }
            Settled::Unknown => {
                found.attempts += 1;
                let next = found.next.clone();
                self.pause(now, entry, next, None);
            }
            Settled::Written(etag) => {
                found.set_etag(etag);
                found.attempts = 0;
                if let Next::Settle(written) = std::mem::replace(&mut found.next, Next::Fire) {
                    found.set(*written);
                }
                if std::mem::take(&mut found.changed) {
                    self.entries.wait(entry, now.wall, Next::Look);
                } else {
                    self.schedule(now, entry);
                }
            }
        }
        self.attend(now);
    }

    /// Returns the next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self, now: Now) -> Option<Instant> {
        let room = self.in_flight < self.config.in_flight_max;
        let due = self
            .entries
            .first()
            .filter(|_| room)
            .map(|(at, _)| now.mono + at.saturating_since(now.wall).min(CLOCK_LOOK));
        let read = self.leaves.next_read().filter(|_| self.reads.len() < self.config.reads_max);
        [due, read, self.tells.next()].into_iter().flatten().min()
    }

    /// The reminders that are due first, with the number of tries that failed; at most `max`.
    pub fn due(&self, max: usize) -> Vec<(Reminder, u32)> {
        self.entries.due(max)
    }

    /// Returns the counters.
    pub fn statistics(&self) -> Statistics {
        Statistics { in_memory: self.entries.len() as u64, ..self.statistics }
    }

    /// Begins the reads whose time has come.
    fn read(&mut self, now: Now) {
        while self.reads.len() < self.config.reads_max {
            let read = ReadId(self.statistics.reads);
            let Some((from, to, soon, limit)) = self.leaves.begin(now.mono, read) else { return };
            let by = now.wall + self.config.window;
            self.statistics.reads += 1;
            self.reads.insert(read, Read { begun_at: self.events, by });
            let by = soon.then_some(by);
            self.effects.push_back(Effect::Read { read, from, to, by, limit });
        }
    }

    /// Tells owners what changed.
    fn tell(&mut self, now: Now) {
        let mut mine = Vec::new();
        while let Some((id, tell)) = self.tells.due(now.mono) {
            let (grain, grain_type, name) =
                (tell.grain.clone(), tell.grain_type.clone(), tell.name.clone());
            match self.owners.owner(bucket_of(hash_of(&grain))) {
                Some(owner) if owner == self.me => mine.push((id, grain, grain_type, name)),
                Some(to) => {
                    let message = Message::Changed { grain, grain_type, name, id };
                    self.effects.push_back(Effect::Send { to, message });
                }
                None => {}
            }
        }
        for (id, grain, grain_type, name) in mine {
            self.tells.heard(id);
            self.look(grain, grain_type, name);
        }
    }

    /// Reads the row of one reminder, which has changed.
    fn look(&mut self, grain: GrainId, grain_type: Arc<str>, name: Arc<str>) {
        if let Some(entry) = self.entries.find(&grain, &name) {
            let Some(found) = self.entries.get(entry) else { return };
            if found.doing != Doing::Waiting {
                found.changed = true;
                return;
            }
            if let Next::Settle(_) = found.next {
                // The write finds out.
                return;
            }
            self.in_flight += 1;
            self.entries.busy(entry, Doing::Looking);
        } else if let Some((_, again)) = self.looking.get_mut(&(grain.clone(), name.clone())) {
            *again = true;
            return;
        } else {
            self.looking.insert((grain.clone(), name.clone()), (self.events, false));
        }
        self.effects.push_back(Effect::Look { grain, grain_type, name });
    }

    /// Takes a row that was read when the machine had counted `begun_at` events. Returns its
    /// reminder, if that is in memory.
    fn take_row(&mut self, now: Now, row: Row, begun_at: u64) -> Option<EntryId> {
        let Row { reminder, etag } = row;
        if !self.owners.is_mine(reminder.bucket()) {
            return None;
        }
        if let Some(entry) = self.entries.find(&reminder.grain, &reminder.name) {
            let found = self.entries.get(entry)?;
            let is_news = found.known_at < begun_at && found.etag() != etag;
            if is_news && found.is_idle() {
                found.set(reminder);
                found.set_etag(etag);
                found.known_at = begun_at;
                (found.given_up, found.trying, found.attempts) = (0, 0, 0);
                self.schedule(now, entry);
            }
            return Some(entry);
        }
        let key = (reminder.hash(), reminder.name.clone());
        if self.gone.get(&key).is_some_and(|gone| *gone >= begun_at) {
            return None;
        }
        let due = reminder.next().map_or(now.wall, |(_, at)| at);
        if due > now.wall + self.config.window {
            return None;
        }
        Some(self.entries.insert(reminder, etag, begun_at, due))
    }

    /// Lets go of what a read that began at `begun_at` should have found and did not.
    fn drop_unseen(
        &mut self,
        (from, to): (u16, u16),
        by: Option<Timestamp>,
        seen: &[EntryId],
        begun_at: u64,
    ) {
        let mut seen = seen.to_vec();
        seen.sort_unstable();
        for entry in self.entries.in_buckets(from, to) {
            let Some(found) = self.entries.get(entry) else { continue };
            let due = found.reminder().next().map(|(_, at)| at);
            let was_asked_for = by.is_none_or(|by| due.is_some_and(|due| due <= by));
            let is_gone = found.is_idle() && was_asked_for && found.known_at < begun_at;
            if is_gone && seen.binary_search(&entry).is_err() {
                self.forget(entry);
            }
        }
    }

    /// Does due work.
    fn attend(&mut self, now: Now) {
        while self.in_flight < self.config.in_flight_max {
            let Some((_, entry)) = self.entries.first().filter(|(at, _)| *at <= now.wall) else {
                return;
            };
            let Some(found) = self.entries.get(entry) else { return };
            let is_mine = self.owners.is_mine(found.bucket());
            match found.next.clone() {
                Next::Settle(settled) => self.settle(entry, *settled),
                _ if !is_mine => self.forget(entry),
                Next::Remove => self.remove(entry),
                Next::Look => {
                    let Reminder { grain, grain_type, name, .. } = found.reminder();
                    found.next = Next::Fire;
                    self.look(grain, grain_type, name);
                }
                Next::Fire => {
                    match choose(&self.config, &found.reminder(), found.given_up, now.wall) {
                        Choice::Wait(_) => self.schedule(now, entry),
                        Choice::Over => self.remove(entry),
                        Choice::Fire(tick) => {
                            let reminder = found.reminder();
                            if std::mem::replace(&mut found.trying, tick.number) != tick.number {
                                found.attempts = 0;
                            }
                            self.in_flight += 1;
                            self.entries.busy(entry, Doing::Firing(tick.number));
                            self.effects.push_back(Effect::Fire { entry, reminder, tick });
                        }
                    }
                }
            }
        }
    }

    /// Writes that an occurrence was delivered; removes the row if it was the last.
    fn settle(&mut self, entry: EntryId, settled: Reminder) {
        if settled.next().is_none() {
            return self.remove(entry);
        }
        self.in_flight += 1;
        self.entries.busy(entry, Doing::Settling);
        let Some(found) = self.entries.get(entry) else { return };
        found.next = Next::Settle(Box::new(settled.clone()));
        let etag = found.etag();
        self.effects.push_back(Effect::Settle { entry, reminder: settled, etag });
    }

    fn remove(&mut self, entry: EntryId) {
        self.in_flight += 1;
        self.entries.busy(entry, Doing::Settling);
        let Some(found) = self.entries.get(entry) else { return };
        found.next = Next::Remove;
        let (reminder, etag) = (found.reminder(), found.etag());
        self.effects.push_back(Effect::Remove { entry, reminder, etag });
    }

    /// Lets it wait for its next occurrence, in memory if that is due soon.
    fn schedule(&mut self, now: Now, entry: EntryId) {
        let Some(found) = self.entries.get(entry) else { return };
        match choose(&self.config, &found.reminder(), found.given_up, now.wall) {
            Choice::Wait(at) if at > now.wall + self.config.window => self.forget(entry),
            Choice::Wait(at) => self.entries.wait(entry, at, Next::Fire),
            Choice::Fire(_) => self.entries.wait(entry, now.wall, Next::Fire),
            Choice::Over => self.entries.wait(entry, now.wall, Next::Remove),
        }
    }

    /// Lets it wait after a failure, until `at_most` if that is sooner.
    fn pause(&mut self, now: Now, entry: EntryId, next: Next, at_most: Option<Timestamp>) {
        let Some(found) = self.entries.get(entry) else { return };
        if found.changed {
            found.changed = false;
            return self.entries.wait(entry, now.wall, Next::Look);
        }
        let steps = found.attempts.clamp(1, 20) - 1;
        let top = (PAUSES.0 * 2u32.pow(steps)).min(PAUSES.1);
        let pause = top / 2 + self.rng.duration_below(top / 2);
        let wakes = now.wall + pause;
        self.entries.wait(entry, at_most.map_or(wakes, |at| at.min(wakes)), next);
    }

    /// Takes it out of the memory.
    fn forget(&mut self, entry: EntryId) {
        let Some(gone) = self.entries.remove(entry) else { return };
        if !self.reads.is_empty() || !self.looking.is_empty() {
            let gone = gone.reminder();
            self.gone.insert((gone.hash(), gone.name), self.events);
        }
    }
}

/// Chooses what to do for a reminder at `now`; the occurrences up to `given_up` are given up.
fn choose(config: &Config, reminder: &Reminder, given_up: u64, now: Timestamp) -> Choice {
    let schedule = &reminder.schedule;
    let wait = |number| schedule.time_of(number).map_or(Choice::Over, Choice::Wait);
    let (first, last) = (reminder.fired.max(given_up) + 1, schedule.last_due(now));
    if last < first {
        return wait(first);
    }
    let number = match reminder.missed {
        MissedPolicy::Once => last,
        MissedPolicy::All => first.max((last + 1).saturating_sub(ALL_MAX)),
        MissedPolicy::Skip => {
            let late_after = config.late_after.min(schedule.period.unwrap_or(Duration::MAX));
            let is_late = |due| now.saturating_since(due) > late_after;
            if schedule.time_of(last).is_none_or(is_late) {
                return wait(last + 1);
            }
            last
        }
    };
    let Some(due) = schedule.time_of(number) else { return Choice::Over };
    Choice::Fire(Tick { number, due, missed: number - reminder.fired - 1 })
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;
    use emmer_core::reminder::Schedule;

    use super::*;

    fn secondly(missed: MissedPolicy) -> Reminder {
        Reminder {
            grain: GrainId::new(GrainTypeId::of("t"), 1u64),
            grain_type: "t".into(),
            name: "n".into(),
            schedule: Schedule {
                start: Timestamp::from_millis(1_000),
                period: Some(Duration::from_secs(1)),
                end: None,
            },
            missed,
            fired: 0,
            last_fired: None,
            missed_count: 0,
        }
    }

    #[test]
    fn of_more_than_a_thousand_missed_the_last_thousand_are_made_up_for() {
        let chosen = |due: i64| {
            let now = Timestamp::from_millis(due * 1_000);
            match choose(&Config::default(), &secondly(MissedPolicy::All), 0, now) {
                Choice::Fire(tick) => (tick.number, tick.missed),
                Choice::Wait(_) | Choice::Over => panic!("nothing to fire"),
            }
        };
        assert_eq!([1, 1_000, 1_001, 5_000].map(chosen), [(1, 0), (1, 0), (2, 1), (4_001, 4_000)]);
    }

    /// A machine that owns everything, and has one reminder in memory.
    fn with_one() -> Reminders {
        let me: SiloAddress = "10.0.0.1:1000:1".parse().unwrap();
        let mut machine = Reminders::new(me, Config::default(), 1);
        let now = |millis| Now { mono: Instant::from_millis(millis), wall: Timestamp::default() };
        machine.handle_view(now(0), vec![me]);
        machine.handle_timeout(now(600));
        let Some(Effect::Read { read, .. }) = machine.poll_effect() else { panic!("no read") };
        let mut reminder = secondly(MissedPolicy::Once);
        reminder.schedule.start = Timestamp::from_millis(300_000);
        let rows = vec![Row { reminder, etag: "1".into() }];
        machine.handle_read(now(610), read, Some(Found { rows, is_full: false }));
        machine
    }

    #[test]
    fn a_wall_clock_that_steps_is_seen_within_five_seconds() {
        let mut machine = with_one();
        while machine.poll_effect().is_some() {}
        let before = Now { mono: Instant::from_millis(620), wall: Timestamp::default() };
        machine.handle_timeout(before);
        let look = machine.poll_timeout(before).unwrap();
        assert!(look <= before.mono + CLOCK_LOOK, "{look:?}");
        // An operator has set it to five minutes later.
        let after = Now { mono: look, wall: Timestamp::from_millis(300_005) };
        machine.handle_timeout(after);
        let fired = std::iter::from_fn(|| machine.poll_effect())
            .filter(|effect| matches!(effect, Effect::Fire { .. }))
            .count();
        assert_eq!(fired, 1);
    }
}
