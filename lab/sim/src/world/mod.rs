//! The world: hosts, processes, network, store and clocks, moved from event to event in virtual
//! time.
//!
//! | file | subject |
//! |---|---|
//! | `mod.rs` | the parts, and the loop that takes the next event |
//! | `event.rs` | what can happen next, and what each does to its process |
//! | `effect.rs` | carrying out what the machines ask for |
//! | `fault.rs` | starting, killing and disturbing |
//! | `look.rs` | what is looked at when its time has come |
//! | `shown.rs` | what traces show |
//! | `stall.rs` | IO that stands still, and what waits for it |
//! | `shell/` | the directory and the grains of each silo |

mod effect;
mod event;
mod fault;
mod lifeline;
mod look;
mod shell;
mod shown;
mod stall;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_core::rng::SeededRng;
use emmer_membership::{Event as Noted, Membership, Memo, OpId};

use crate::calm::{Calm, Expects};
use crate::grains::GrainTruth;
use crate::host::Hosts;
use crate::invariants::{Checks, Facts, HostTroubles, Violation, i10_convergence, i13_store_load};
use crate::measure::Measures;
use crate::net::Network;
use crate::process::Process;
use crate::queue::Queue;
use crate::scenario::{Scenario, Step};
use crate::sometimes::Sometimes;
use crate::store::{Store, StoreStats};
use crate::time::VirtualTime;
use crate::trace::{Trace, mix};

use event::Event;
use look::Look;

/// Step on each machine before it joins: tests plant bugs with it.
#[derive(Clone)]
pub struct Prepare(Arc<dyn Fn(&mut Membership) + Send + Sync>);

impl Prepare {
    /// Calls `prepare` with each machine.
    pub fn new(prepare: impl Fn(&mut Membership) + Send + Sync + 'static) -> Self {
        Self(Arc::new(prepare))
    }
}

impl fmt::Debug for Prepare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepare")
    }
}

/// Facts that the invariants may see. A macro, because the checks themselves are borrowed at the
/// same time.
macro_rules! facts {
    ($world:ident) => {
        Facts {
            now: $world.now,
            table: &$world.store.table,
            processes: &$world.processes,
            hosts: &$world.hosts,
            scenario: &$world.scenario,
            host_troubles: &$world.host_troubles,
            noisy: $world.scenario.network.loss > 0.0 || $world.scenario.network.latency.tail > 0.0,
            calm: &$world.calm,
            expects: $world.expects,
            trouble_at: if $world.open_troubles > 0 { Some($world.now) } else { $world.trouble_at },
        }
    };
}

/// Everything there is.
#[derive(Debug)]
pub struct World {
    prepare: Option<Prepare>,
    now: VirtualTime,
    queue: Queue<Event>,
    /// Events that wait for the IO of a process to run again, in order.
    waiting: BTreeMap<u32, Vec<Event>>,
    scenario: Scenario,
    hosts: Hosts,
    processes: Vec<Process>,
    network: Network,
    store: Store,
    checks: Checks,
    trace: Trace,
    measures: Measures,
    rng: SeededRng,
    /// For callers, turns and activations: worlds without grains draw nothing from it.
    grain_rng: SeededRng,
    /// Facts about grains.
    truth: GrainTruth,
    /// Equal steps are computed once. None where messages pass through their bytes: there every
    /// silo computes its own.
    memo: Option<Arc<Memo>>,
    /// Rare situations that came up.
    sometimes: Sometimes,
    violation: Option<Violation>,
    /// The store lost commits that it had acknowledged: the only promises left are to end, and to
    /// be whole again.
    went_back: bool,
    /// Processes that are Dead in the table and still run.
    doomed: Vec<u32>,
    /// Open windows of trouble that is not the store's.
    open_troubles: u32,
    /// Troubles of each host.
    host_troubles: Vec<HostTroubles>,
    /// When such trouble was last seen.
    trouble_at: Option<VirtualTime>,
    /// Offset of each host's wall clock now, in milliseconds.
    clock_steps: Vec<i64>,
    /// Last events that are not the protocol's own work.
    calm: Calm,
    expects: Expects,
    /// Commits that are on their way although `Unknown` was told: when each was sent, and how many
    /// of its writer's had ended so before.
    late: BTreeMap<(u32, OpId), (VirtualTime, u32)>,
}

impl World {
    /// The world of `scenario`, before anything happened. Keeps a line for each event when
    /// `keep_lines`.
    pub fn new(scenario: Scenario, keep_lines: bool) -> Self {
        Self::prepared(scenario, keep_lines, None)
    }

    /// Like [`new`](Self::new); each machine is handed to `prepare` before it joins.
    pub fn prepared(scenario: Scenario, keep_lines: bool, prepare: Option<Prepare>) -> Self {
        let seed = |part: u64| mix(mix(0x51ed_270b, scenario.seed), part);
        let always = scenario.network.loss > 0.0 || scenario.network.latency.tail > 0.0;
        let mut world = Self {
            prepare,
            now: VirtualTime::ZERO,
            queue: Queue::default(),
            waiting: BTreeMap::new(),
            hosts: Hosts::new(scenario.hosts),
            processes: Vec::new(),
            network: Network::new(scenario.network, scenario.hosts, seed(1)),
            store: Store::new(scenario.store, seed(2)),
            checks: Checks::new(&scenario),
            trace: Trace::new(keep_lines),
            measures: Measures::default(),
            rng: SeededRng::new(seed(3)),
            grain_rng: SeededRng::new(seed(4)),
            truth: GrainTruth::new(scenario.grains.as_ref().map_or(0, |load| load.grains)),
            memo: (!scenario.through_bytes).then(Arc::default),
            sometimes: Sometimes::default(),
            violation: None,
            went_back: false,
            doomed: Vec::new(),
            open_troubles: u32::from(always),
            host_troubles: vec![HostTroubles::default(); scenario.hosts as usize],
            trouble_at: None,
            clock_steps: vec![0; scenario.hosts as usize],
            late: BTreeMap::new(),
            calm: Calm::default(),
            expects: Expects::of(&scenario),
            scenario,
        };
        world.schedule();
        world
    }

    /// Puts the first starts and the scenario's steps into the queue.
    fn schedule(&mut self) {
        for host in 0..self.scenario.start_hosts.min(self.scenario.hosts) {
            let at = VirtualTime::ZERO + self.rng.duration_below(self.scenario.start_within);
            self.queue.push(at, Event::Start { host });
        }
        for number in 0..self.scenario.steps.len() {
            let step = &self.scenario.steps[number];
            let (at, until, lasts) = (step.at, step.until, step.fault.lasts());
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.queue.push(at, Event::StepBegins(number));
            if lasts {
                self.queue.push(until, Event::StepEnds(number));
            }
        }
        let calm_at = self.scenario.calm_at;
        self.queue.push(calm_at, Event::Calm);
        if self.expects.tight {
            self.queue.push(VirtualTime::ZERO + i13_store_load::SPAN, Event::Look(Look::Load));
        }
    }

    /// Adds a step to the scenario while it runs. A step in the past begins now.
    pub fn inject(&mut self, step: Step) {
        let number = u32::try_from(self.scenario.steps.len()).unwrap_or(u32::MAX);
        let (at, until) = (step.at.max(self.now), step.until.max(self.now));
        let lasts = step.fault.lasts();
        self.scenario.steps.push(step);
        self.queue.push(at, Event::StepBegins(number));
        if lasts {
            self.queue.push(until, Event::StepEnds(number));
        }
    }

    /// Forgets all counts so far, and measures from now on.
    pub fn reset_measures(&mut self) {
        let (keep, committed_at) =
            (self.measures.keep_view_lags, std::mem::take(&mut self.measures.committed_at));
        self.measures = Measures { keep_view_lags: keep, committed_at, ..Measures::default() };
        self.store.stats = StoreStats::default();
    }

    /// Estimates the bytes of each message from now on, or no longer.
    pub const fn measure_bytes(&mut self, on: bool) {
        self.scenario.measure_bytes = on;
    }

    /// Keeps how long each view takes to reach each silo, from now on.
    pub const fn keep_view_lags(&mut self) {
        self.measures.keep_view_lags = true;
    }

    /// Takes the next event, if it is due by `until`. False when there is none, or an invariant was
    /// violated.
    pub fn step(&mut self, until: VirtualTime) -> bool {
        if self.violation.is_some() || self.queue.next_at().is_none_or(|at| at > until) {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = at;
        self.dispatch(event);
        true
    }

    /// Runs until `until`, or until an invariant is violated.
    pub fn run_until(&mut self, until: VirtualTime) {
        while self.step(until) {}
        if self.violation.is_none() {
            self.now = self.now.max(until);
        }
    }

    /// Runs in slices of `slice` until `done` says so; the time then, or none when `until` came
    /// first or an invariant was violated.
    pub fn run_while(
        &mut self,
        until: VirtualTime,
        slice: Duration,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Option<VirtualTime> {
        loop {
            if self.violation.is_some() {
                return None;
            }
            if done(self) {
                return Some(self.now);
            }
            if self.now >= until {
                return None;
            }
            let next = (self.now + slice).min(until);
            self.run_until(next);
        }
    }

    /// The time.
    pub const fn now(&self) -> VirtualTime {
        self.now
    }

    /// The scenario.
    pub const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The store with the table.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Every process that ever ran, by number.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Counts and times so far.
    pub const fn measures(&self) -> &Measures {
        &self.measures
    }

    /// The trace so far.
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The first invariant that was violated, if any.
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Facts about grains.
    pub const fn truth(&self) -> &GrainTruth {
        &self.truth
    }

    /// Rare situations that came up so far.
    pub const fn sometimes(&self) -> &Sometimes {
        &self.sometimes
    }

    /// Takes the results of a run that is over.
    pub fn into_parts(self) -> (Trace, Measures, Sometimes, Option<Violation>) {
        (self.trace, self.measures, self.sometimes, self.violation)
    }

    /// The process that runs on `host`: the youngest one, if it runs.
    pub fn running_on(&self, host: u32) -> Option<u32> {
        let youngest = *self.hosts.incarnations(host).last()?;
        self.processes[youngest as usize].is_running().then_some(youngest)
    }

    /// The number of the process with this identity.
    pub fn process_of(&self, silo: &SiloAddress) -> Option<u32> {
        self.hosts.process_of(&self.processes, silo)
    }

    /// Returns true if the cluster is whole (invariant I10): every running process is Active in the
    /// newest version and has it installed, and all others are Dead.
    pub fn is_whole(&self) -> bool {
        self.why_not_whole().is_none()
    }

    /// Reason why the cluster is not whole, in words; none when it is.
    pub fn why_not_whole(&self) -> Option<String> {
        i10_convergence::why_not_whole(&self.facts())
    }

    fn facts(&self) -> Facts<'_> {
        facts!(self)
    }

    /// Has every invariant look at what just happened.
    fn check(&mut self, look: impl FnOnce(&mut Checks, &Facts<'_>) -> Result<(), Violation>) {
        if self.violation.is_some() || self.went_back {
            return;
        }
        let facts = facts!(self);
        if let Err(violation) = look(&mut self.checks, &facts) {
            self.violated(violation);
        }
    }

    /// An invariant does not hold: the run is over. The first one counts.
    fn violated(&mut self, violation: Violation) {
        if self.went_back {
            return;
        }
        self.trace.line(self.now, format_args!("VIOLATION {violation}"));
        self.violation.get_or_insert(violation);
    }

    /// Gives the process `number` an input and executes the effects.
    fn drive(&mut self, number: u32, input: impl FnOnce(&mut Membership, emmer_core::Now)) {
        let at = self.now;
        let process = &mut self.processes[number as usize];
        let now = process.now(at);
        let Some(machine) = process.machine.as_mut() else { return };
        input(machine, now);
        let mut notable = false;
        while let Some(effect) = self.processes[number as usize]
            .machine
            .as_mut()
            .and_then(|machine| machine.poll_effect())
        {
            notable |= self.carry_out(number, effect);
        }
        if notable {
            self.check(|checks, facts| checks.after_step(facts, number));
        }
        self.look_at_status(number);
        if std::mem::take(&mut self.processes[number as usize].fence_closes) {
            self.check(|checks, facts| checks.on_fence_closed(facts, number));
        }
        if self.processes[number as usize].granted_at.is_some() {
            self.look_at_fence(number);
        }
        self.unblock(number);
        self.arm(number);
    }

    /// Makes sure that the process's next deadline has an event: one in the queue for each process,
    /// moved up when the deadline does, checked again when it fires too early.
    fn arm(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        let Some(deadline) = process.machine.as_ref().and_then(|machine| machine.poll_timeout())
        else {
            return;
        };
        let at = process.clock.when(deadline).max(self.now);
        if at < process.timer_at {
            process.timer_at = at;
            self.queue.push(at, Event::Timer { process: number });
        }
    }

    fn note(&mut self, number: u32, noted: &Noted) {
        self.measures.note(noted);
        self.sometimes.noted(noted);
        if let Noted::ProbeMissed { peer, in_a_row: 1 } = noted {
            self.processes[number as usize].missed.insert(*peer, self.now);
        }
        if self.trace.keeps_lines() {
            self.trace.line(self.now, format_args!("{number:>4} {noted:?}"));
        }
    }
}
