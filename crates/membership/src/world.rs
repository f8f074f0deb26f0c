//! A tiny world for unit tests: a handful of silos in virtual time, a network that delivers in half
//! a millisecond, a table that answers in five. The large one, with everything that can go wrong,
//! is `emmer-sim`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{
    Duty, Instant, Now, SiloAddress, SiloEntry, SiloStatus, TableId, TableVersion, Timestamp,
};

use crate::*;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Cuts silo `i` off from every other one; the table stays in reach of all.
pub(crate) fn isolate(world: &mut World, i: usize) {
    let me = world.silos[i].machine.me();
    let others: Vec<_> =
        world.silos.iter().map(|p| p.machine.me()).filter(|silo| *silo != me).collect();
    for other in others {
        world.cut.extend([(me, other), (other, me)]);
    }
}

/// Something that will happen.
#[derive(Debug)]
enum Happening {
    Message(SiloAddress, SiloAddress, Message),
    Ask(usize, OpId, TableRequest),
    Answer(usize, OpId, TableOutcome),
    Dialled(usize, DialId, DialOutcome),
    Broken(usize, SiloAddress),
}

/// One process.
pub(crate) struct Process {
    pub(crate) machine: Membership,
    /// Killed, or ended itself.
    pub(crate) up: bool,
    /// Neither sends nor receives, and no dial reaches it.
    pub(crate) silent: bool,
    pub(crate) ended: Option<TerminateReason>,
    pub(crate) installs: Vec<u64>,
    pub(crate) fences: Vec<bool>,
    /// Added to the world's wall clock.
    pub(crate) skew_ms: i64,
    /// Time at which its machine wants to be called.
    timer: Option<Instant>,
}

/// State of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Up,
    Down,
    /// Commits happen, and are reported as unknown.
    AppliesAsUnknown,
    /// Commits do not happen, and are reported as unknown.
    LosesAsUnknown,
    /// It answers, and has no table.
    Empty,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    queue: BTreeMap<(Instant, u64), Happening>,
    timers: BTreeSet<(Instant, usize)>,
    by_address: BTreeMap<SiloAddress, Vec<usize>>,
    next: u64,
    /// Number of messages that were delivered.
    pub(crate) messages: u64,
    pub(crate) silos: Vec<Process>,
    pub(crate) rows: BTreeMap<SiloAddress, SiloEntry>,
    pub(crate) version: TableVersion,
    pub(crate) store: Store,
    pub(crate) commits: u64,
    /// Every version's rows, as status by address.
    pub(crate) history: Vec<BTreeMap<SiloAddress, SiloStatus>>,
    /// Times at which each silo's death came into the table.
    pub(crate) died_at: BTreeMap<SiloAddress, Instant>,
    /// Prints what happens, to look into a failing seed.
    pub(crate) trace: bool,
    /// Pairs (from, to) between which nothing passes.
    pub(crate) cut: BTreeSet<(SiloAddress, SiloAddress)>,
    /// Name of the one host that all silos run on. Empty: each runs on a host of its own.
    pub(crate) host: &'static str,
    /// Silos to which dials are refused, whatever runs there.
    pub(crate) refusing: BTreeSet<SiloAddress>,
    /// Silos that the store does not answer.
    pub(crate) offline: BTreeSet<SiloAddress>,
    /// Silos of which the store takes touches only.
    pub(crate) touches_only: BTreeSet<SiloAddress>,
    /// Silos that read all rows from a replica, which shows the table before the last commit, and
    /// get nothing else.
    pub(crate) on_a_replica: BTreeSet<SiloAddress>,
    /// The table before the last commit.
    before: Option<(TableVersion, BTreeMap<SiloAddress, SiloEntry>)>,
    /// Told to the silos as part of each etag: a table that went back writes other ones.
    history_name: &'static str,
    memo: Arc<Memo>,
}

const START_MS: i64 = 1_795_265_085_000;

pub(crate) fn address(port: u16, epoch: u64) -> SiloAddress {
    SiloAddress::new(([10, 0, 0, 1], port).into(), epoch)
}

impl World {
    /// Returns true if silo number `i` would confirm `silo` at this moment.
    pub(crate) fn confirms(&self, i: usize, silo: &SiloAddress) -> bool {
        let now = Now { mono: self.now, wall: Timestamp::default() };
        self.silos[i].machine.would_confirm(now, silo)
    }

    pub(crate) fn new() -> Self {
        Self {
            now: Instant::from_millis(1_000),
            queue: BTreeMap::new(),
            timers: BTreeSet::new(),
            by_address: BTreeMap::new(),
            next: 0,
            messages: 0,
            silos: Vec::new(),
            rows: BTreeMap::new(),
            version: TableVersion::default(),
            store: Store::Up,
            commits: 0,
            history: vec![BTreeMap::new()],
            died_at: BTreeMap::new(),
            trace: false,
            cut: BTreeSet::new(),
            host: "",
            refusing: BTreeSet::new(),
            offline: BTreeSet::new(),
            touches_only: BTreeSet::new(),
            on_a_replica: BTreeSet::new(),
            before: None,
            history_name: "e",
            memo: Arc::default(),
        }
    }

    /// `n` silos that join at once and have become Active.
    pub(crate) fn cluster(config: &Config, n: u16) -> Self {
        Self::cluster_on("", config, n)
    }

    /// As [`cluster`](Self::cluster), all of them on one host of this name.
    pub(crate) fn cluster_on(host: &'static str, config: &Config, n: u16) -> Self {
        let mut world = Self::new();
        world.host = host;
        for i in 0..n {
            world.start(config, address(1_000 + i, 1), u64::from(i) + 1);
        }
        world.run(Duration::from_secs(30));
        assert_eq!(world.active(), n as usize, "{:?}", world.rows);
        world
    }

    pub(crate) fn start(&mut self, config: &Config, address: SiloAddress, seed: u64) -> usize {
        let mut row = SiloEntry::new(address, SiloStatus::Created, self.wall(0));
        row.host_name = self.host.into();
        let now = Now { mono: self.now, wall: self.wall(0) };
        let mut machine = Membership::new(config.clone(), row, seed, now).unwrap();
        machine.share(self.memo.clone());
        self.silos.push(Process {
            machine,
            up: true,
            silent: false,
            ended: None,
            installs: Vec::new(),
            fences: Vec::new(),
            skew_ms: 0,
            timer: None,
        });
        let i = self.silos.len() - 1;
        self.by_address.entry(address).or_default().push(i);
        self.call(i, |machine, now| machine.join(now));
        i
    }

    fn wall(&self, skew_ms: i64) -> Timestamp {
        let millis = i64::try_from(self.now.as_nanos() / 1_000_000).unwrap();
        Timestamp::from_millis(START_MS + millis + skew_ms)
    }

    /// Calls into silo `i` and executes its effects.
    pub(crate) fn call(&mut self, i: usize, input: impl FnOnce(&mut Membership, Now)) {
        if !self.silos[i].up {
            return;
        }
        let now = Now { mono: self.now, wall: self.wall(self.silos[i].skew_ms) };
        input(&mut self.silos[i].machine, now);
        while let Some(effect) = self.silos[i].machine.poll_effect() {
            self.execute(i, effect);
        }
        let process = &mut self.silos[i];
        if let Some(at) = process.timer.take() {
            self.timers.remove(&(at, i));
        }
        process.timer =
            process.machine.poll_timeout().filter(|_| process.up).map(|at| at.max(self.now));
        if let Some(at) = process.timer {
            self.timers.insert((at, i));
        }
    }

    fn later(&mut self, micros: u64, what: Happening) {
        self.next += 1;
        self.queue.insert((self.now + Duration::from_micros(micros), self.next), what);
    }

    fn execute(&mut self, i: usize, effect: Effect) {
        let me = self.silos[i].machine.me();
        if self.trace && !matches!(effect, Effect::Send { .. }) {
            println!("{:?} {me} => {effect:?}", self.now);
        }
        match effect {
            Effect::Table { op, request } => self.later(2_500, Happening::Ask(i, op, request)),
            Effect::Send { to, message } => {
                if !self.silos[i].silent && !self.cut.contains(&(me, to)) {
                    self.later(500, Happening::Message(me, to, message));
                }
            }
            Effect::Dial { dial, to, timeout } => {
                let outcome = self.dial(i, to);
                let wait = if outcome == DialOutcome::NoAnswer {
                    timeout
                } else {
                    Duration::from_millis(2)
                };
                let micros = u64::try_from(wait.as_micros()).unwrap();
                self.later(micros, Happening::Dialled(i, dial, outcome));
            }
            Effect::Install(view) => {
                let last = self.silos[i].installs.last().copied().unwrap_or(0);
                assert!(view.version() > last, "I2: {} after {last}", view.version());
                let truth = &self.history[usize::try_from(view.version()).unwrap()];
                if view.len() < 200 {
                    let seen: BTreeMap<_, _> =
                        view.members().iter().map(|m| (m.address, m.status)).collect();
                    assert_eq!(&seen, truth, "I2: version {} at {me}", view.version());
                }
                self.silos[i].installs.push(view.version());
            }
            Effect::Fence(closed) => self.silos[i].fences.push(closed),
            Effect::Watch(_) | Effect::Renew(_) | Effect::Event(_) => {}
            Effect::Terminate(reason) => {
                self.silos[i].ended = Some(reason);
                self.kill(i);
            }
        }
    }

    fn dial(&self, i: usize, to: SiloAddress) -> DialOutcome {
        let me = self.silos[i].machine.me();
        // A firewall may stand where the network is cut.
        if self.refusing.contains(&to) && !self.silos[i].silent {
            return if self.host.is_empty() { DialOutcome::Refused } else { DialOutcome::Vacant };
        }
        if self.silos[i].silent || self.cut.contains(&(me, to)) || self.cut.contains(&(to, me)) {
            return DialOutcome::NoAnswer;
        }
        let mut there = self.silos.iter().filter(|p| p.machine.me().same_endpoint(&to));
        // A silent process, or a host that was lost while it was.
        if there.clone().any(|p| p.silent) && !there.clone().any(|p| p.up && !p.silent) {
            return DialOutcome::NoAnswer;
        }
        match there.find(|p| p.up) {
            None if !self.host.is_empty() => DialOutcome::Vacant,
            None => DialOutcome::Refused,
            Some(p) if p.machine.me() == to => DialOutcome::Answered,
            Some(p) => DialOutcome::OtherEpoch(p.machine.me()),
        }
    }

    /// Ends a process; its connections break at once.
    pub(crate) fn kill(&mut self, i: usize) {
        self.silos[i].up = false;
        if let Some(at) = self.silos[i].timer.take() {
            self.timers.remove(&(at, i));
        }
        let me = self.silos[i].machine.me();
        let monitors: Vec<usize> = (0..self.silos.len())
            .filter(|other| self.silos.len() < 200 || self.silos[*other].machine.probes(&me))
            .collect();
        for other in monitors {
            if self.silos[other].up && !self.silos[other].silent && !self.silos[i].silent {
                self.later(500, Happening::Broken(other, me));
            }
        }
    }

    /// The table loses its last commit, and writes other etags from now on.
    pub(crate) fn lose_last_commit(&mut self) {
        let (version, rows) = self.before.take().unwrap();
        (self.version, self.rows) = (version, rows);
        self.history.pop();
        self.history_name = "f";
    }

    /// Puts another table in the place of this one: an empty one, in which `number` versions were
    /// written.
    pub(crate) fn replace_table(&mut self, number: u64, table: TableId) {
        self.rows.clear();
        let etag = if number == 0 { String::new() } else { format!("g{number}") };
        self.version = TableVersion { number, etag: etag.into(), table };
        self.history = vec![BTreeMap::new(); usize::try_from(number).unwrap() + 1];
        self.history_name = "g";
        self.before = None;
    }

    /// Every connection of silo `i` is reset.
    pub(crate) fn reset_connections(&mut self, i: usize) {
        let me = self.silos[i].machine.me();
        for other in (0..self.silos.len()).filter(|other| *other != i) {
            let peer = self.silos[other].machine.me();
            self.call(other, |m, now| m.handle_connection(now, me, ConnectionEvent::Broken));
            self.call(i, |m, now| m.handle_connection(now, peer, ConnectionEvent::Broken));
        }
    }

    /// Lets `span` pass.
    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.now + span;
        self.run_until(end, |_| false);
    }

    /// Runs until `condition` holds; panics after `limit`.
    pub(crate) fn until(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        assert!(
            self.run_until(start + limit, &condition),
            "still not so after {limit:?}: {:?}",
            self.rows
        );
        self.now.saturating_since(start)
    }

    fn run_until(&mut self, end: Instant, condition: impl Fn(&Self) -> bool) -> bool {
        loop {
            if condition(self) {
                return true;
            }
            let event = self.queue.keys().next().map(|(at, _)| *at);
            let timer = self.timers.first().copied();
            let next = [event, timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return condition(self);
            };
            self.now = next;
            if event.is_some_and(|at| at <= next) {
                let (_, what) = self.queue.pop_first().unwrap();
                self.happen(what);
            } else if let Some((_, i)) = timer {
                self.call(i, |machine, now| machine.handle_timeout(now));
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        if self.trace {
            println!("{:?} {what:?}", self.now);
        }
        match what {
            Happening::Message(from, to, message) => {
                self.messages += 1;
                let ids = self.by_address.get(&to).map_or(&[][..], |ids| ids);
                let found =
                    ids.iter().copied().find(|i| self.silos[*i].up && !self.silos[*i].silent);
                if let Some(i) = found {
                    self.call(i, |machine, now| machine.handle_message(now, from, message));
                }
            }
            Happening::Ask(i, op, request) => {
                let me = self.silos[i].machine.me();
                let touch = matches!(request, TableRequest::Touch { .. });
                let refused =
                    self.offline.contains(&me) || (!touch && self.touches_only.contains(&me));
                let replica = self.before.clone().filter(|_| self.on_a_replica.contains(&me));
                let outcome = match (&request, replica) {
                    _ if refused => TableOutcome::Unavailable,
                    (TableRequest::ReadAll, Some((version, rows))) => {
                        TableOutcome::Snapshot(TableSnapshot {
                            version,
                            rows: rows.into_values().collect(),
                        })
                    }
                    (TableRequest::Commit { .. }, Some(_)) => TableOutcome::Unknown,
                    (TableRequest::ReadVersion, Some(_)) => TableOutcome::Unavailable,
                    _ => self.table(request),
                };
                self.later(2_500, Happening::Answer(i, op, outcome));
            }
            Happening::Answer(i, op, outcome) => {
                self.call(i, |m, now| m.handle_table(now, op, outcome));
            }
            Happening::Dialled(i, dial, outcome) => {
                self.call(i, |m, now| m.handle_dial(now, dial, outcome));
            }
            Happening::Broken(i, peer) => {
                self.call(i, |m, now| m.handle_connection(now, peer, ConnectionEvent::Closed));
            }
        }
    }

    fn table(&mut self, request: TableRequest) -> TableOutcome {
        match self.store {
            Store::Down => return TableOutcome::Unavailable,
            Store::Empty => return TableOutcome::TableMissing,
            _ => {}
        }
        match request {
            TableRequest::ReadAll => TableOutcome::Snapshot(TableSnapshot {
                version: self.version.clone(),
                rows: self.rows.values().cloned().collect(),
            }),
            TableRequest::ReadVersion => TableOutcome::Version(self.version.clone()),
            TableRequest::ReadSome { near, rows } => {
                let around = self.rows.range(near..).chain(self.rows.range(..near));
                TableOutcome::Sample(
                    around.take(rows as usize).map(|(_, row)| row.clone()).collect(),
                )
            }
            TableRequest::Touch { silo, at } => match self.rows.get_mut(&silo) {
                Some(row) => {
                    row.i_am_alive_time = at;
                    TableOutcome::Touched
                }
                None => TableOutcome::RowMissing,
            },
            TableRequest::Commit { base, rows, deletes } => {
                if self.store == Store::LosesAsUnknown {
                    return TableOutcome::Unknown;
                }
                let outcome = self.commit(&base, rows, deletes);
                if self.store == Store::AppliesAsUnknown { TableOutcome::Unknown } else { outcome }
            }
        }
    }

    /// A commit that changes nothing but the version.
    pub(crate) fn write_a_row_again(&mut self) {
        let (base, row) = (self.version.clone(), self.rows.values().next().cloned());
        self.commit(&base, row.into_iter().collect(), Vec::new());
    }

    /// An operator declares a silo dead.
    pub(crate) fn declare_dead(&mut self, silo: &SiloAddress) {
        let (base, mut row) = (self.version.clone(), self.rows[silo].clone());
        row.status = SiloStatus::Dead;
        row.votes.clear();
        self.commit(&base, vec![row], Vec::new());
    }

    /// An operator gives a silo a duty.
    pub(crate) fn set_duty(&mut self, silo: &SiloAddress, duty: Duty) {
        let (base, mut row) = (self.version.clone(), self.rows[silo].clone());
        row.duty = duty;
        self.commit(&base, vec![row], Vec::new());
    }

    fn commit(
        &mut self,
        base: &TableVersion,
        rows: Vec<SiloEntry>,
        deletes: Vec<SiloAddress>,
    ) -> TableOutcome {
        assert!((1..=99).contains(&(rows.len() + deletes.len())), "rows per commit");
        if (base.number, &base.etag) != (self.version.number, &self.version.etag) {
            return TableOutcome::Conflict;
        }
        self.before = Some((self.version.clone(), self.rows.clone()));
        for mut row in rows {
            if let Some(old) = self.rows.get(&row.address) {
                assert!(old.status <= row.status, "I3: {old:?} becomes {row:?}");
                row.i_am_alive_time = old.i_am_alive_time;
            }
            if row.status == SiloStatus::Dead {
                self.died_at.entry(row.address).or_insert(self.now);
            }
            self.rows.insert(row.address, row);
        }
        for silo in deletes {
            self.rows.remove(&silo);
        }
        self.check_incarnations();
        self.commits += 1;
        let number = base.number + 1;
        let etag = format!("{}{number}", self.history_name).into();
        self.version = TableVersion { number, etag, table: base.table };
        self.history.push(self.rows.values().map(|r| (r.address, r.status)).collect());
        TableOutcome::Committed(self.version.clone())
    }

    fn check_incarnations(&self) {
        let live: Vec<_> = self.rows.values().filter(|r| r.status != SiloStatus::Dead).collect();
        for pair in live.windows(2) {
            assert!(!pair[0].address.same_endpoint(&pair[1].address), "I4: {pair:?}");
        }
    }

    pub(crate) fn status(&self, silo: &SiloAddress) -> Option<SiloStatus> {
        self.rows.get(silo).map(|row| row.status)
    }

    pub(crate) fn active(&self) -> usize {
        self.rows.values().filter(|row| row.status == SiloStatus::Active).count()
    }

    /// Returns true if every live process has installed the latest version.
    pub(crate) fn converged(&self) -> bool {
        self.silos
            .iter()
            .filter(|p| p.up)
            .all(|p| p.machine.view().version() == self.version.number)
    }
}
