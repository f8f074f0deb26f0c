//! A world of a table, some silos and some grains. Everything takes time and may fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Seen;
use crate::{
    Config, Effect, Found, Looked, Message, ReadId, Reminders, Row, Settled, Tick, Ticked,
};
use emmer_core::reminder::{MissedPolicy, Schedule};
use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, GrainTypeId, Instant, Now, Reminder, SiloAddress, Timestamp};

/// When everything begins, by the wall clock.
pub(super) const BEGIN: i64 = 1_800_000_000_000;
/// The time of faults, and the time that is judged after them, in milliseconds.
pub(super) const FAULTS: u64 = 240_000;
pub(super) const CALM: u64 = 90_000;
/// After faults the silos have this long to settle down.
pub(super) const SETTLE: u64 = 70_000;

/// Time within which due reminders are in a silo's memory.
pub(super) const WINDOW: Duration = Duration::from_secs(20);

type Key = (GrainId, Arc<str>);

/// News for a silo, some time later.
#[derive(Debug)]
enum Told {
    /// A view, with its number; none at the end of a freeze.
    View(u64, Vec<SiloAddress>),
    Message(SiloAddress, Message),
    Read(ReadId, Option<Found>),
    Ticked(crate::EntryId, Ticked),
    Settled(crate::EntryId, Settled),
    Looked(Key, Looked),
}

/// An event of the world.
#[derive(Debug)]
enum Event {
    Tell(usize, Told),
    /// The request of a silo reaches the table, or the grain.
    Arrive(usize, Effect),
    Kill,
    Join,
    Freeze,
    Outage,
    /// A grain registers, changes or removes a reminder.
    Register,
    /// Fires twice in calm times, one soon after the other.
    Twice,
    TableBack,
    Heal,
}

pub(super) struct Silo {
    address: SiloAddress,
    pub(super) machine: Reminders,
    pub(super) is_alive: bool,
    frozen_until: u64,
    view: u64,
    asleep: Vec<Told>,
}

/// One life of a reminder, from its registration to its change or removal.
#[derive(Debug)]
pub(super) struct Life {
    grain: GrainId,
    pub(super) schedule: Schedule,
    pub(super) missed: MissedPolicy,
    pub(super) ended: Option<u64>,
    /// The number of the last occurrence that the table knows.
    stored: u64,
    /// Number, missed, when.
    pub(super) delivered: Vec<(u64, u64, u64)>,
    pub(super) failed: BTreeMap<u64, u32>,
}

pub(super) struct World {
    rng: SeededRng,
    now: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Event>,
    pub(super) silos: Vec<Silo>,
    pub(super) table: BTreeMap<Key, (Reminder, u64, usize)>,
    writes: u64,
    views: u64,
    table_away: bool,
    faulty: bool,
    pub(super) lives: Vec<Life>,
    names: u64,
    seen: Seen,
    pub(super) seed: u64,
}

fn etag(write: u64, life: usize) -> Arc<str> {
    format!("{write}/{life}").into()
}

const GRAINS: GrainTypeId = GrainTypeId::of("world");

/// Runs one world and checks what happened in it.
pub(super) fn run(seed: u64) -> Seen {
    let mut world = World {
        rng: SeededRng::new(seed),
        now: 0,
        order: 0,
        queue: BTreeMap::new(),
        silos: Vec::new(),
        table: BTreeMap::new(),
        writes: 0,
        views: 0,
        table_away: false,
        faulty: true,
        lives: Vec::new(),
        names: 0,
        seen: Seen::default(),
        seed,
    };
    for _ in 0..3 {
        world.join();
    }
    for _ in 0..20 {
        world.register();
    }
    world.at(FAULTS, Event::Heal);
    for _ in 0..20 {
        let at = FAULTS + SETTLE + world.rng.below(CALM / 2);
        world.at(at, Event::Twice);
    }
    for (event, gap) in [(0, 40_000), (1, 50_000), (2, 30_000), (3, 40_000), (4, 8_000)] {
        let mut at = 0;
        loop {
            at += 1 + world.rng.below(2 * gap);
            if at >= FAULTS {
                break;
            }
            let event = match event {
                0 => Event::Kill,
                1 => Event::Join,
                2 => Event::Freeze,
                3 => Event::Outage,
                _ => Event::Register,
            };
            world.at(at, event);
        }
    }
    world.go_on(FAULTS + SETTLE + CALM);
    world.judge();
    world.seen
}

impl World {
    /// The number of messages on their way.
    pub(super) fn under_way(&self) -> u64 {
        self.queue.len() as u64
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.queue.insert((at, self.order), event);
    }

    fn after(&mut self, longest: u64, event: Event) {
        let at = self.now + 1 + self.rng.below(longest);
        self.at(at, event);
    }

    pub(super) fn wall(&self) -> Timestamp {
        Timestamp::from_millis(BEGIN + i64::try_from(self.now).unwrap())
    }

    fn clocks(&self) -> Now {
        Now { mono: Instant::from_millis(self.now), wall: self.wall() }
    }

    fn join(&mut self) {
        let number = self.silos.len();
        let address = format!("10.0.0.1:{}:{}", 1_000 + number, 1 + self.now).parse().unwrap();
        let read_limit = [1, 16, 500][usize::try_from(self.seed % 3).unwrap()];
        let config = Config { window: WINDOW, read_limit, ..Config::default() };
        let seed = self.rng.bits();
        self.silos.push(Silo {
            address,
            machine: Reminders::new(address, config, seed),
            is_alive: true,
            frozen_until: 0,
            view: 0,
            asleep: Vec::new(),
        });
        self.new_view();
    }

    /// Everybody alive learns who is, some sooner than others.
    fn new_view(&mut self) {
        self.views += 1;
        let alive: Vec<_> =
            self.silos.iter().filter(|s| s.is_alive).map(|silo| silo.address).collect();
        for silo in 0..self.silos.len() {
            if self.silos[silo].is_alive {
                self.after(2_000, Event::Tell(silo, Told::View(self.views, alive.clone())));
            }
        }
    }

    fn register(&mut self) {
        let known: Vec<Key> = self.table.keys().cloned().collect();
        let wish = self.rng.below(10);
        let key = if known.is_empty() || wish < 4 {
            self.names += 1;
            (GrainId::new(GRAINS, self.names), "r".into())
        } else {
            known[self.rng.index(known.len())].clone()
        };
        if let Some((_, _, life)) = self.table.get(&key) {
            self.lives[*life].ended = Some(self.now);
        }
        self.writes += 1;
        if wish == 9 && self.table.remove(&key).is_some() {
            self.seen.removed += 1;
        } else {
            self.seen.changed += u64::from(self.table.contains_key(&key));
            // In calm times early enough that its owner knows.
            let least = if self.faulty { 0 } else { 300 };
            let start = self.wall() + Duration::from_millis(least + self.rng.below(30_000));
            let period = (self.rng.below(5) > 0)
                .then(|| Duration::from_millis(1_000 + self.rng.below(25_000)));
            let end = (self.rng.below(4) == 0)
                .then(|| start + Duration::from_millis(self.rng.below(200_000)));
            let schedule = Schedule { start, period, end };
            let missed =
                [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All][self.rng.index(3)];
            let reminder = Reminder {
                grain: key.0.clone(),
                grain_type: "world".into(),
                name: key.1.clone(),
                schedule,
                missed,
                fired: 0,
                last_fired: None,
                missed_count: 0,
            };
            let life = self.lives.len();
            let (delivered, failed) = (Vec::new(), BTreeMap::new());
            self.lives.push(Life {
                grain: key.0.clone(),
                schedule,
                missed,
                ended: None,
                stored: 0,
                delivered,
                failed,
            });
            self.table.insert(key.clone(), (reminder, self.writes, life));
        }
        // The silo that changed it says so; it may die before.
        let alive: Vec<usize> = self.awake();
        let dies = if self.faulty { self.rng.below(10) == 0 } else { wish == 9 };
        if alive.is_empty() || dies {
            return;
        }
        let silo = alive[self.rng.index(alive.len())];
        let now = self.clocks();
        self.silos[silo].machine.handle_written(now, key.0, "world".into(), key.1);
        self.follow(silo);
    }

    fn awake(&self) -> Vec<usize> {
        let is = |silo: &Silo| silo.is_alive && silo.frozen_until <= self.now;
        (0..self.silos.len()).filter(|silo| is(&self.silos[*silo])).collect()
    }

    fn go_on(&mut self, until: u64) {
        loop {
            let mut next = self.queue.keys().next().map(|(at, _)| *at);
            let mut timeout = None;
            for number in self.awake() {
                let due = self.silos[number].machine.poll_timeout(self.clocks());
                let due = due.map(|due| due.as_nanos().div_ceil(1_000_000).max(self.now));
                if let Some(due) = due.filter(|due| timeout.is_none_or(|(at, _)| *due < at)) {
                    timeout = Some((due, number));
                }
            }
            if let Some((at, number)) = timeout.filter(|(at, _)| next.is_none_or(|n| *at < n)) {
                if at > until {
                    return;
                }
                self.now = self.now.max(at);
                let now = self.clocks();
                self.silos[number].machine.handle_timeout(now);
                self.follow(number);
                continue;
            }
            let Some(at) = next.take().filter(|at| *at <= until) else { return };
            self.now = self.now.max(at);
            let (_, event) = self.queue.pop_first().unwrap();
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Register => self.register(),
            Event::Twice => {
                self.register();
                self.after(60, Event::Register);
            }
            Event::Join => {
                if self.awake().len() < 5 {
                    self.seen.joins += 1;
                    self.join();
                }
            }
            Event::Kill => {
                let alive = self.awake();
                if alive.len() > 1 {
                    self.seen.kills += 1;
                    let silo = alive[self.rng.index(alive.len())];
                    self.silos[silo].is_alive = false;
                    self.new_view();
                }
            }
            Event::Freeze => {
                let alive = self.awake();
                if let Some(silo) = alive.get(self.rng.index(alive.len())).copied() {
                    self.seen.freezes += 1;
                    self.silos[silo].frozen_until = self.now + self.rng.below(15_000);
                    self.at(
                        self.silos[silo].frozen_until,
                        Event::Tell(silo, Told::View(0, Vec::new())),
                    );
                }
            }
            Event::Outage => {
                self.seen.outages += 1;
                self.table_away = true;
                self.after(15_000, Event::TableBack);
            }
            Event::TableBack => self.table_away = false,
            Event::Heal => {
                (self.faulty, self.table_away) = (false, false);
                self.new_view();
            }
            Event::Tell(silo, told) => self.tell(silo, told),
            Event::Arrive(silo, effect) => self.arrive(silo, effect),
        }
    }

    fn tell(&mut self, number: usize, told: Told) {
        let now = self.clocks();
        let silo = &mut self.silos[number];
        if !silo.is_alive {
            return;
        }
        if silo.frozen_until > self.now {
            silo.asleep.push(told);
            return;
        }
        let mut all = std::mem::take(&mut silo.asleep);
        all.push(told);
        for told in all {
            let machine = &mut silo.machine;
            match told {
                // The end of a freeze: only waiting messages arrive. A view that is older than the
                // one in force is ignored.
                Told::View(number, _) if number <= silo.view => {}
                Told::View(number, active) => {
                    silo.view = number;
                    machine.handle_view(now, active);
                }
                Told::Message(from, message) => machine.handle_message(now, from, message),
                Told::Read(read, found) => machine.handle_read(now, read, found),
                Told::Ticked(entry, ticked) => machine.handle_ticked(now, entry, ticked),
                Told::Settled(entry, settled) => machine.handle_settled(now, entry, settled),
                Told::Looked((grain, name), looked) => {
                    machine.handle_looked(now, &grain, &name, looked);
                }
            }
        }
        self.follow(number);
    }

    /// Sends what a machine wants done on its way.
    fn follow(&mut self, silo: usize) {
        while let Some(effect) = self.silos[silo].machine.poll_effect() {
            match effect {
                Effect::Send { to, message } => {
                    let lost = self.faulty && self.rng.chance(0.3);
                    self.seen.lost_messages += u64::from(lost);
                    let to = self.silos.iter().position(|silo| silo.address == to).unwrap();
                    if !lost {
                        let from = self.silos[silo].address;
                        self.after(40, Event::Tell(to, Told::Message(from, message)));
                    }
                }
                effect => {
                    let slow = if self.faulty && self.rng.chance(0.02) { 5_000 } else { 20 };
                    self.after(slow, Event::Arrive(silo, effect));
                }
            }
        }
    }

    fn answer(&mut self, silo: usize, told: Told) {
        let slow = if self.faulty && self.rng.chance(0.02) { 5_000 } else { 20 };
        self.after(slow, Event::Tell(silo, told));
    }

    /// A request arrives, whether its silo still lives or not.
    fn arrive(&mut self, silo: usize, effect: Effect) {
        let away = self.table_away;
        // The answer of the table is lost although the request was executed.
        let unknown = self.faulty && self.rng.chance(0.02);
        let row = |(reminder, write, life): &(Reminder, u64, usize)| Row {
            reminder: reminder.clone(),
            etag: etag(*write, *life),
        };
        let told = match effect {
            Effect::Send { .. } => return,
            Effect::Read { read, .. } if away || unknown => Told::Read(read, None),
            Effect::Read { read, from, to, by, limit } => {
                let is_in = |one: &Reminder| {
                    let due = one.next().map(|(_, at)| at);
                    (from..=to).contains(&one.bucket())
                        && by.is_none_or(|by| due.is_some_and(|due| due <= by))
                };
                let mut rows: Vec<Row> =
                    self.table.values().filter(|(one, ..)| is_in(one)).map(row).collect();
                let is_full = rows.len() >= limit;
                rows.truncate(limit);
                Told::Read(read, Some(Found { rows, is_full }))
            }
            Effect::Look { grain, name, .. } => {
                let found = self.table.get(&(grain.clone(), name.clone())).map(row);
                let looked = match found {
                    _ if away || unknown => Looked::Unknown,
                    Some(row) => Looked::Row(row),
                    None => Looked::Gone,
                };
                Told::Looked((grain, name), looked)
            }
            Effect::Fire { entry, reminder, tick } => {
                let ticked = self.fire(&reminder, &tick, silo);
                Told::Ticked(entry, ticked)
            }
            Effect::Settle { entry, reminder, etag } => {
                Told::Settled(entry, self.write(&reminder.clone(), Some(reminder), &etag, unknown))
            }
            Effect::Remove { entry, reminder, etag } => {
                Told::Settled(entry, self.write(&reminder, None, &etag, unknown))
            }
        };
        self.answer(silo, told);
    }

    fn write(
        &mut self,
        of: &Reminder,
        content: Option<Reminder>,
        expected: &str,
        unknown: bool,
    ) -> Settled {
        if self.table_away {
            return Settled::Unknown;
        }
        let key = (of.grain.clone(), of.name.clone());
        let Some((now, write, life)) = self.table.get_mut(&key) else { return Settled::Changed };
        if *etag(*write, *life) != *expected {
            self.seen.conflicts += 1;
            return Settled::Changed;
        }
        self.writes += 1;
        let settled = match content {
            None => {
                self.table.remove(&key);
                Settled::Removed
            }
            Some(content) => {
                assert!(content.fired > now.fired, "seed {}: a number went back", self.seed);
                self.lives[*life].stored = content.fired;
                (*now, *write) = (content, self.writes);
                Settled::Written(etag(self.writes, *life))
            }
        };
        if unknown { Settled::Unknown } else { settled }
    }

    /// The tick reaches its grain. The schedule says whose life it belongs to.
    fn fire(&mut self, reminder: &Reminder, tick: &Tick, silo: usize) -> Ticked {
        let due = reminder.schedule.time_of(tick.number);
        assert_eq!(due, Some(tick.due), "seed {}: the time of an occurrence", self.seed);
        assert!(tick.due <= self.wall(), "seed {}: a tick too early", self.seed);
        let life = self.life(reminder);
        let stored = life.map_or(u64::MAX, |life| self.lives[life].stored);
        assert!(reminder.fired <= stored, "seed {}: it counts before it is stored", self.seed);
        let is_first = life.is_some_and(|l| !self.lives[l].failed.contains_key(&tick.number));
        if self.rng.chance(0.1) && (self.faulty || is_first) {
            self.seen.failed += 1;
            if let Some(life) = life {
                *self.lives[life].failed.entry(tick.number).or_default() += 1;
            }
            return Ticked::Failed;
        }
        self.seen.delivered += 1;
        self.seen.missed += tick.missed;
        if let Some(life) = life {
            let now = self.now;
            let life = &mut self.lives[life];
            let again = life.delivered.iter().any(|(number, ..)| *number == tick.number);
            life.delivered.push((tick.number, tick.missed, now));
            self.seen.repeated += u64::from(again);
            let ended = life.ended;
            // The memory is read again within 10 s: no event said in calm times that it ended.
            let longest = if self.faulty || now < FAULTS + SETTLE { SETTLE } else { 10_200 };
            assert!(
                ended.is_none_or(|ended| now <= ended + longest) || !self.silos[silo].is_alive,
                "seed {}: a reminder that ended at {ended:?} ticks at {now}",
                self.seed,
            );
        }
        // The answer may be lost.
        if self.faulty && self.rng.chance(0.03) { Ticked::Failed } else { Ticked::Delivered }
    }

    fn life(&self, reminder: &Reminder) -> Option<usize> {
        // Schedules begin at drawn milliseconds: lives of one grain differ.
        let of = |(at, life): (usize, &Life)| {
            let same = life.grain == reminder.grain && life.schedule == reminder.schedule;
            (same && life.missed == reminder.missed).then_some(at)
        };
        self.lives.iter().enumerate().filter_map(of).next_back()
    }
}
