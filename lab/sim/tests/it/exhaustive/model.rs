//! Three silos and one store as a model for stateright: the state holds the very machines that run
//! in production.
//!
//! Every possible event is an action: a message arrives or is lost, a request reaches the store
//! (and its answer may be lost, or the request itself), an answer arrives, a dial ends, time moves
//! on to the next deadline, a silo crashes. Messages may stay in flight while time passes. Budgets
//! bound the faults on one path.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_membership::{
    Config, DialId, DialOutcome, Effect, Membership, Message, OpId, TableOutcome, TableRequest,
    TableSnapshot, View,
};
use stateright::{Model, Property};

/// Number of faults on one path, by kind.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Silos that crash.
    pub(crate) crashes: u8,
    /// Commits with an unknown outcome, applied or not.
    pub(crate) unknown: u8,
    /// Messages lost.
    pub(crate) lost: u8,
    /// Times that time moves on.
    pub(crate) ticks: u8,
}

/// Something in flight.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Flight {
    /// A message.
    Message { from: u8, to: u8, message: Message },
    /// A request on its way to the store.
    Request { silo: u8, op: OpId, request: TableRequest },
    /// An answer on its way back.
    Answer { silo: u8, op: OpId, outcome: TableOutcome },
    /// A connection attempt.
    Dial { silo: u8, dial: DialId, to: SiloAddress },
}

/// The table with the content of every version it ever had.
#[derive(Clone, Debug, Default, Hash, PartialEq, Eq)]
pub(crate) struct Rows {
    rows: BTreeMap<SiloAddress, SiloEntry>,
    version: u64,
    /// It commits whatever the base is: no store does, and the model has to find out what would
    /// follow.
    careless: bool,
    digests: Vec<u64>,
    ever_dead: Vec<SiloAddress>,
}

/// One state of the world.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) struct World {
    now_ms: u64,
    silos: Vec<Option<Membership>>,
    installed: Vec<u64>,
    table: Rows,
    flights: Vec<Flight>,
    budget: Budget,
    /// The invariant that this state, or one before it, violates.
    violated: Option<&'static str>,
}

/// Next step. Numbers are positions in the list of messages in flight, or silos.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Action {
    /// It arrives; at the store it takes effect.
    Arrive(u8),
    /// A message is lost.
    Lose(u8),
    /// A commit is applied and its answer is lost.
    AppliedUnknown(u8),
    /// A commit is lost, and its outcome is unknown.
    LostUnknown(u8),
    /// Time moves on to the next deadline of any silo.
    Tick,
    /// A silo crashes.
    Crash(u8),
}

/// The model: where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Silos {
    /// The initial state.
    pub(crate) start: World,
}

const START_MS: u64 = 1_795_265_085_000;

fn etag(version: u64) -> TableVersion {
    let etag = if version == 0 { String::new() } else { format!("{version}") };
    TableVersion { number: version, etag: etag.into(), ..TableVersion::default() }
}

/// A hash of a list of rows, IAmAliveTime aside.
fn content(rows: &BTreeMap<SiloAddress, SiloEntry>) -> u64 {
    View::from_snapshot(&TableSnapshot { version: etag(1), rows: rows.values().cloned().collect() })
        .digest()
}

impl Rows {
    fn snapshot(&self) -> TableSnapshot {
        TableSnapshot { version: etag(self.version), rows: self.rows.values().cloned().collect() }
    }

    /// Applies a request, and checks the invariants of commits.
    fn serve(&mut self, request: &TableRequest) -> (TableOutcome, Option<&'static str>) {
        match request {
            TableRequest::ReadAll => (TableOutcome::Snapshot(self.snapshot()), None),
            TableRequest::ReadVersion => (TableOutcome::Version(etag(self.version)), None),
            TableRequest::ReadSome { near, rows } => {
                let around = self.rows.range(near..).chain(self.rows.range(..near));
                let sample = around.take(*rows as usize).map(|(_, row)| row.clone()).collect();
                (TableOutcome::Sample(sample), None)
            }
            TableRequest::Touch { silo, at } => match self.rows.get_mut(silo) {
                Some(row) => {
                    row.i_am_alive_time = *at;
                    (TableOutcome::Touched, None)
                }
                None => (TableOutcome::RowMissing, None),
            },
            TableRequest::Commit { base, rows, deletes } => self.commit(base, rows, deletes),
        }
    }

    fn commit(
        &mut self,
        base: &TableVersion,
        rows: &[SiloEntry],
        deletes: &[SiloAddress],
    ) -> (TableOutcome, Option<&'static str>) {
        if base.etag != etag(self.version).etag && !self.careless {
            return (TableOutcome::Conflict, None);
        }
        let mut violated = None;
        let before = self.rows.clone();
        for silo in deletes {
            self.rows.remove(silo);
        }
        for row in rows {
            let was = before.get(&row.address);
            let back = was.is_some_and(|was| was.status > row.status);
            if back || (self.ever_dead.contains(&row.address) && row.status != SiloStatus::Dead) {
                violated = Some("I3");
            }
            let died = row.status == SiloStatus::Dead
                && was.is_some_and(|was| was.status != SiloStatus::Dead);
            if died && !deserved(&before, rows, row) {
                violated = Some("I6");
            }
            if row.status == SiloStatus::Dead && !self.ever_dead.contains(&row.address) {
                self.ever_dead.push(row.address);
            }
            let alive_time = was.map_or(row.i_am_alive_time, |was| was.i_am_alive_time);
            self.rows.insert(row.address, SiloEntry { i_am_alive_time: alive_time, ..row.clone() });
        }
        let living = |row: &&SiloEntry| row.status != SiloStatus::Dead;
        for row in self.rows.values().filter(living) {
            let same = |other: &&SiloEntry| other.address.same_endpoint(&row.address);
            if self.rows.values().filter(living).filter(same).count() > 1 {
                violated = Some("I4");
            }
        }
        self.version += 1;
        self.digests.push(content(&self.rows));
        (TableOutcome::Committed(etag(self.version)), violated)
    }
}

/// I6: enough votes of silos Active before, or a successor.
fn deserved(
    before: &BTreeMap<SiloAddress, SiloEntry>,
    rows: &[SiloEntry],
    dead: &SiloEntry,
) -> bool {
    let active = before.values().filter(|row| row.status == SiloStatus::Active).count();
    let needed = active.div_ceil(2).clamp(1, 3);
    let voters = dead
        .votes
        .iter()
        .filter(|vote| before.get(&vote.voter).is_some_and(|row| row.status == SiloStatus::Active));
    let succeeded = |row: &SiloEntry| dead.address.is_succeeded_by(&row.address);
    voters.count() >= needed || rows.iter().any(succeeded) || before.values().any(succeeded)
}

impl World {
    /// Silos at `endpoints` (a silo for each; equal numbers are incarnations of one endpoint), all
    /// joining.
    pub(crate) fn joining(endpoints: &[u16], config: &Config, budget: Budget) -> Self {
        let mut world = Self {
            now_ms: 0,
            silos: Vec::new(),
            installed: vec![0; endpoints.len()],
            table: Rows::default(),
            flights: Vec::new(),
            budget,
            violated: None,
        };
        let now = world.now();
        for (number, port) in (0u64..).zip(endpoints) {
            let address = SiloAddress::new(([10, 0, 0, 1], *port).into(), START_MS + number);
            let row = SiloEntry::new(address, SiloStatus::Created, now.wall);
            let silo = Membership::new(config.clone(), row, number, now);
            assert!(silo.is_ok(), "valid options");
            world.silos.push(silo.ok());
        }
        for number in 0..endpoints.len() {
            world.drive(number, |silo, now| silo.join(now));
        }
        world
    }

    fn now(&self) -> Now {
        let wall =
            Timestamp::from_millis(i64::try_from(START_MS + self.now_ms).unwrap_or(i64::MAX));
        Now { mono: Instant::from_millis(self.now_ms), wall }
    }

    fn number_of(&self, silo: &SiloAddress) -> Option<u8> {
        let is_it = |other: &Option<Membership>| other.as_ref().is_some_and(|m| m.me() == *silo);
        self.silos.iter().position(is_it).and_then(|number| u8::try_from(number).ok())
    }

    fn drive(&mut self, number: usize, input: impl FnOnce(&mut Membership, Now)) {
        let now = self.now();
        let Some(silo) = self.silos[number].as_mut() else { return };
        input(silo, now);
        let mut own_death = false;
        while let Some(effect) = self.silos[number].as_mut().and_then(Membership::poll_effect) {
            let silo = u8::try_from(number).unwrap_or(u8::MAX);
            match effect {
                Effect::Send { to, message } => {
                    if let Some(to) = self.number_of(&to) {
                        self.flights.push(Flight::Message { from: silo, to, message });
                    }
                }
                Effect::Table { op, request } => {
                    self.flights.push(Flight::Request { silo, op, request });
                }
                Effect::Dial { dial, to, .. } => self.flights.push(Flight::Dial { silo, dial, to }),
                Effect::Install(view) => own_death |= self.install(number, &view),
                Effect::Terminate(_) => {
                    self.silos[number] = None;
                    own_death = false;
                }
                Effect::Watch(_) | Effect::Renew(_) | Effect::Fence(_) | Effect::Event(_) => {}
            }
        }
        if own_death && self.silos[number].is_some() {
            self.violated = Some("I7");
        }
        self.canonicalise();
    }

    /// Puts a view in force; whether it shows the silo's own death.
    fn install(&mut self, number: usize, view: &View) -> bool {
        let version = view.version();
        let history =
            usize::try_from(version).ok().and_then(|v| self.table.digests.get(v.checked_sub(1)?));
        if version <= self.installed[number] || history != Some(&view.digest()) {
            self.violated = Some("I2");
        }
        self.installed[number] = version;
        let me = self.silos[number].as_ref().map(Membership::me);
        me.and_then(|me| view.get(&me).map(|row| row.status)) == Some(SiloStatus::Dead)
    }

    /// The order of messages in flight means nothing: states that differ only in it are one.
    fn canonicalise(&mut self) {
        let gone = |silo: u8| self.silos[usize::from(silo)].is_none();
        let mut flights = std::mem::take(&mut self.flights);
        flights.retain(|flight| match flight {
            Flight::Message { to, .. } => !gone(*to),
            // A request in flight takes effect whatever became of its sender.
            Flight::Request { .. } => true,
            Flight::Answer { silo, .. } | Flight::Dial { silo, .. } => !gone(*silo),
        });
        flights.sort_by_cached_key(|flight| {
            let mut hasher = DefaultHasher::new();
            flight.hash(&mut hasher);
            hasher.finish()
        });
        self.flights = flights;
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.silos.iter().flatten().filter_map(Membership::poll_timeout).min()
    }

    fn tick(&mut self) {
        let Some(at) = self.next_deadline() else { return };
        self.now_ms = self.now_ms.max(at.as_nanos().div_ceil(1_000_000));
        let now = self.now().mono;
        for number in 0..self.silos.len() {
            let due = self.silos[number]
                .as_ref()
                .and_then(Membership::poll_timeout)
                .is_some_and(|at| at <= now);
            if due {
                self.drive(number, |silo, now| silo.handle_timeout(now));
            }
        }
    }

    fn arrive(&mut self, flight: Flight) {
        match flight {
            Flight::Message { from, to, message } => {
                let from = self.silos[usize::from(from)].as_ref().map(Membership::me);
                if let Some(from) = from {
                    self.drive(usize::from(to), |silo, now| {
                        silo.handle_message(now, from, message);
                    });
                }
            }
            Flight::Request { silo, op, request } => {
                let outcome = self.serve(&request);
                self.flights.push(Flight::Answer { silo, op, outcome });
                self.canonicalise();
            }
            Flight::Answer { silo, op, outcome } => {
                self.drive(usize::from(silo), |silo, now| silo.handle_table(now, op, outcome));
            }
            Flight::Dial { silo, dial, to } => {
                let living = self
                    .silos
                    .iter()
                    .flatten()
                    .map(Membership::me)
                    .filter(|me| me.same_endpoint(&to))
                    .max();
                let outcome = match living {
                    Some(me) if me == to => DialOutcome::Answered,
                    Some(me) => DialOutcome::OtherEpoch(me),
                    None => DialOutcome::Refused,
                };
                self.drive(usize::from(silo), |silo, now| silo.handle_dial(now, dial, outcome));
            }
        }
    }

    fn serve(&mut self, request: &TableRequest) -> TableOutcome {
        let (outcome, violated) = self.table.serve(request);
        self.violated = self.violated.or(violated);
        outcome
    }

    fn take(&mut self, at: u8) -> Flight {
        self.flights.remove(usize::from(at))
    }

    fn crash(&mut self, number: u8) {
        self.silos[usize::from(number)] = None;
        self.canonicalise();
    }

    /// Lets everything happen in order, without faults, until `done` or for at most `steps`;
    /// whether it was done.
    pub(crate) fn run_until(&mut self, steps: u32, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..steps {
            if done(self) {
                return true;
            }
            if self.flights.is_empty() {
                self.tick();
            } else {
                let flight = self.take(0);
                self.arrive(flight);
            }
        }
        done(self)
    }

    /// Returns true if every silo is Active and knows it.
    pub(crate) fn all_active(&self) -> bool {
        let active =
            self.table.rows.values().filter(|row| row.status == SiloStatus::Active).count();
        active == self.silos.len()
            && self.installed.iter().all(|version| *version == self.table.version)
    }

    /// Returns true if a commit that declares a silo dead is on its way.
    pub(crate) fn death_is_under_way(&self) -> bool {
        self.flights.iter().any(|flight| match flight {
            Flight::Request { request: TableRequest::Commit { rows, .. }, .. } => {
                rows.iter().any(|row| row.status == SiloStatus::Dead)
            }
            _ => false,
        })
    }

    /// Loses every message to and from `silo` that is in flight now.
    pub(crate) fn cut_off(&mut self, silo: u8) {
        self.flights.retain(|flight| match flight {
            Flight::Message { from, to, .. } => *from != silo && *to != silo,
            Flight::Dial { .. } => false,
            _ => true,
        });
    }

    /// The silo with this number crashes.
    pub(crate) fn kill(&mut self, silo: u8) {
        self.crash(silo);
    }

    /// Lets the table commit whatever the base is.
    pub(crate) const fn make_table_careless(&mut self) {
        self.table.careless = true;
    }

    /// Sets what may go wrong from now on.
    pub(crate) const fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }
}

impl Model for Silos {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start.clone()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.violated.is_some() {
            return;
        }
        for (at, flight) in (0u8..).zip(&world.flights) {
            actions.push(Action::Arrive(at));
            if world.budget.lost > 0 && matches!(flight, Flight::Message { .. }) {
                actions.push(Action::Lose(at));
            }
            let commit =
                matches!(flight, Flight::Request { request: TableRequest::Commit { .. }, .. });
            if world.budget.unknown > 0 && commit {
                actions.extend([Action::AppliedUnknown(at), Action::LostUnknown(at)]);
            }
        }
        if world.budget.ticks > 0 && world.next_deadline().is_some() {
            actions.push(Action::Tick);
        }
        if world.budget.crashes > 0 {
            let living = (0u8..).zip(&world.silos).filter(|(_, silo)| silo.is_some());
            actions.extend(living.map(|(number, _)| Action::Crash(number)));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut world = world.clone();
        match action {
            Action::Arrive(at) => {
                let flight = world.take(at);
                world.arrive(flight);
            }
            Action::Lose(at) => {
                world.budget.lost -= 1;
                world.take(at);
            }
            Action::AppliedUnknown(at) | Action::LostUnknown(at) => {
                world.budget.unknown -= 1;
                if let Flight::Request { silo, op, request } = world.take(at) {
                    if matches!(action, Action::AppliedUnknown(_)) {
                        world.serve(&request);
                    }
                    world.flights.push(Flight::Answer { silo, op, outcome: TableOutcome::Unknown });
                    world.canonicalise();
                }
            }
            Action::Tick => {
                world.budget.ticks -= 1;
                world.tick();
            }
            Action::Crash(number) => {
                world.budget.crashes -= 1;
                world.crash(number);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("I2: views equal the table's history", |_, w: &World| {
                w.violated != Some("I2")
            }),
            Property::always("I3: Dead is final", |_, w: &World| w.violated != Some("I3")),
            Property::always("I4: one living incarnation", |_, w: &World| w.violated != Some("I4")),
            Property::always("I6: enough votes", |_, w: &World| w.violated != Some("I6")),
            Property::always("I7: its own death ends a silo", |_, w: &World| {
                w.violated != Some("I7")
            }),
        ]
    }
}
