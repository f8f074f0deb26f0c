//! Stand-in for the runtime around a silo's directory, in virtual time: views are handed to it, its
//! messages go over the silos' own connections, grains are called, placed, registered, run and
//! deactivated.
//!
//! | file | subject | what it follows in `emmer-runtime` |
//! |---|---|---|
//! | `mod.rs` | driving the directory, and its outcomes | `cluster/directory.rs` |
//! | `calls.rs` | calls: where to, and what becomes of them there | `calls/finding.rs`, `calls/arriving/` |
//! | `activation.rs` | activations and their turns, poll by poll | `hosting/` |
//! | `moves.rs` | grains that move | `hosting/mover.rs`, `hosting/arrival.rs` |
//! | `rest.rs` | nobody calls any more; then every grain is called once | |

mod activation;
mod calls;
mod moves;
mod rest;

use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};
use emmer_directory::{Directory, Effect, FailReason, Outcome, Registration, Token};
use emmer_membership::View;

use super::World;
use super::event::Event;
use crate::grains::{Asked, Call, GrainTruth, Packet, Phase, STALE_SELF_RETRIES, Shell, Waiting};
use crate::invariants::{Facts, Violation, i9_directory, i9_serving, i10_directory};
use crate::trace::mix;

/// Time for which a registration waits before it looks for room among the directory's commands
/// again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Event of the grains of one process.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) enum GrainEvent {
    /// A caller on the silo calls a grain.
    Call,
    /// As `Call`, once.
    CallOnce,
    /// A caller calls this grain.
    CallOf(u32),
    /// The directory's deadline.
    Timer,
    /// An activation is woken.
    Poll { grain: u32, number: u64 },
    /// An activation's code came to its next wait, or to its end.
    Ran { grain: u32, number: u64 },
    /// An activation has lain idle since long ago, perhaps.
    Idle { grain: u32, number: u64 },
    /// An activation's registration found no room, and looks again.
    Register { grain: u32, number: u64 },
    /// The target of a grain that moves was silent for long, perhaps.
    Patience { grain: u32 },
}

impl World {
    /// The shell of a process that starts, if this world has grains.
    pub(super) fn new_shell(&self, me: SiloAddress, seed: u64, now: Instant) -> Option<Box<Shell>> {
        let load = self.scenario.grains.as_ref()?;
        Some(Box::new(Shell::new(Directory::new(me, load.directory.clone(), now), mix(seed, 7))))
    }

    /// Callers on `number` begin to call.
    pub(super) fn start_callers(&mut self, number: u32) {
        if self.truth.quiet {
            return;
        }
        let Some(every) = self.scenario.grains.as_ref().map(|load| load.call_every) else { return };
        let at = self.now + self.grain_rng.duration_below(every * 2);
        self.queue.push(at, Event::Grain { process: number, event: GrainEvent::Call });
    }

    /// Something happens to the grains of `number`.
    pub(super) fn grain_event(&mut self, number: u32, event: GrainEvent) {
        let process = &mut self.processes[number as usize];
        if !process.is_running() {
            return;
        }
        if process.paused_until > self.now {
            let at = process.paused_until;
            if let (GrainEvent::Timer, Some(shell)) = (event, process.shell.as_deref_mut()) {
                if shell.timer_at != self.now {
                    return;
                }
                shell.timer_at = at;
            }
            self.queue.push(at, Event::Grain { process: number, event });
            return;
        }
        match event {
            GrainEvent::Call | GrainEvent::CallOnce if self.truth.quiet => {}
            GrainEvent::Call => {
                self.start_callers(number);
                self.random_call(number);
            }
            GrainEvent::CallOnce => self.random_call(number),
            GrainEvent::CallOf(grain) => {
                self.locate(number, Call { grain, origin: number, hops: 0, must: true });
            }
            GrainEvent::Timer => self.directory_timer(number),
            GrainEvent::Poll { grain, number: activation } => self.poll(number, grain, activation),
            GrainEvent::Ran { grain, number: activation } => self.ran(number, grain, activation),
            GrainEvent::Idle { grain, number: activation } => self.idle(number, grain, activation),
            GrainEvent::Register { grain, number: activation } => {
                self.register(number, grain, activation);
            }
            GrainEvent::Patience { grain } => self.lose_patience(number, grain),
        }
    }

    fn directory_timer(&mut self, number: u32) {
        let now = self.now;
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(now).mono;
        let Some(shell) = process.shell.as_deref_mut().filter(|shell| shell.timer_at == now) else {
            return;
        };
        shell.timer_at = crate::time::VirtualTime::MAX;
        if shell.directory.poll_timeout().is_some_and(|due| due <= local) {
            self.trace.event(now, 20, u64::from(number), 0);
            shell.directory.handle_timeout(local);
        }
        self.drain_directory(number);
        self.judge(|facts, truth| i9_serving::check(facts, truth, number));
    }

    /// Lets the directory of `number` do something, and executes its effects. None when it has no
    /// directory.
    fn with_directory<T>(
        &mut self,
        number: u32,
        input: impl FnOnce(&mut Directory, Instant) -> T,
    ) -> Option<T> {
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(self.now).mono;
        let shell = process.shell.as_deref_mut()?;
        Some(input(&mut shell.directory, local))
    }

    /// Carries out the directory's effects, in order, and arms its timer.
    fn drain_directory(&mut self, number: u32) {
        while let Some(Some(effect)) =
            self.with_directory(number, |directory, _| directory.poll_effect())
        {
            match effect {
                Effect::Send { to, message } => {
                    self.send_packet(number, &to, Packet::Directory(Box::new(message)));
                }
                Effect::Complete { token, outcome } => self.completed(number, token, outcome),
                Effect::ReportLocal { report, ranges } => {
                    let ids = &self.truth.ids;
                    let process = &mut self.processes[number as usize];
                    let local = process.clock.now(self.now).mono;
                    let Some(shell) = process.shell.as_deref_mut() else { return };
                    let lies_in = |grain: u32| {
                        let place = ids[grain as usize].stable_hash();
                        ranges.iter().any(|range| range.contains(place))
                    };
                    let held =
                        shell.catalog.iter().filter(|(grain, a)| a.registered && lies_in(**grain));
                    let entries =
                        held.map(|(grain, a)| (ids[*grain as usize].clone(), a.number)).collect();
                    shell.directory.handle_local_report(local, report, entries);
                    self.sometimes.reach("a silo reports its grains to a new owner");
                }
                Effect::Evict { grain, activation } => {
                    let me = self.processes[number as usize].address;
                    let what = format!(
                        "{me} is to evict {grain}#{activation}: a recovery found two activations"
                    );
                    self.violated(Violation { invariant: "I9", at: self.now, what });
                }
            }
        }
        let process = &mut self.processes[number as usize];
        let Some(shell) = process.shell.as_deref_mut() else { return };
        if let Some(due) = shell.directory.poll_timeout() {
            let at = process.clock.when(due).max(self.now);
            if at < shell.timer_at {
                shell.timer_at = at;
                self.queue.push(at, Event::Grain { process: number, event: GrainEvent::Timer });
            }
        }
    }

    /// The connection of `number` to `peer` has ended.
    pub(super) fn way_broke(&mut self, number: u32, peer: u32) {
        let silo = self.processes[peer as usize].address;
        self.with_directory(number, |directory, now| directory.handle_broken_way(now, silo));
        self.drain_directory(number);
    }

    /// A directory message arrived.
    pub(super) fn directory_message(
        &mut self,
        number: u32,
        from: SiloAddress,
        message: emmer_directory::Message,
    ) {
        use emmer_directory::{Message, Operation};
        self.truth.note_list(&message, self.now);
        let changes = match &message {
            Message::Requests { asks, .. } => asks.iter().any(|ask| {
                matches!(ask.operation, Operation::Unregister(_) | Operation::Replace { .. })
            }),
            Message::Responses { .. } | Message::Credit { .. } => false,
            _ => true,
        };
        if let Message::Requests { asks, .. } = &message
            && asks.len() > 1
        {
            self.sometimes.reach("requests to an owner share a message");
        }
        self.with_directory(number, |directory, now| directory.handle_message(now, from, message));
        self.drain_directory(number);
        if changes {
            self.judge(|facts, truth| i9_serving::check(facts, truth, number));
        }
    }

    /// The silo has put `view` in force.
    pub(super) fn shell_installs(&mut self, number: u32, view: &View) {
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(self.now).mono;
        let (Some(shell), Some(machine)) =
            (process.shell.as_deref_mut(), process.machine.as_deref())
        else {
            return;
        };
        let fading = if self.scenario.fading_forgotten { Vec::new() } else { machine.fading() };
        let (status, known) = (machine.status(), shell.candidates.len());
        let members: Vec<_> = view.members().iter().map(|m| (m.address, m.status)).collect();
        shell.candidates = view.active().map(|m| m.address).collect();
        let recovering = shell.directory.is_recovering();
        let missed = view.version() > shell.directory.view_version() + 1;
        shell.directory.handle_view(local, view.version(), &members, &fading);
        if recovering && shell.directory.is_recovering() {
            self.sometimes.reach(if missed {
                "a recovery starts again because views were missed"
            } else {
                "a recovery goes on through another view"
            });
        }
        if !fading.is_empty() {
            self.sometimes.reach("a view with silos that fade");
        }
        let (active, lost) = (shell.candidates.len(), shell.candidates.len() < known);
        let gone = |silo: &SiloAddress| {
            view.status_of(silo).is_none_or(|status| status == SiloStatus::Dead)
        };
        let processes = &self.processes;
        let forgotten: Vec<u32> = processes[number as usize]
            .shell
            .iter()
            .flat_map(|shell| &shell.locations)
            .filter(|(_, at)| gone(&processes[**at as usize].address))
            .map(|(grain, _)| *grain)
            .collect();
        if let Some(shell) = self.processes[number as usize].shell.as_deref_mut() {
            for grain in forgotten {
                shell.locations.remove(&grain);
            }
        }
        let fades = fading
            .iter()
            .map(|(_, until)| self.processes[number as usize].clock.when(*until))
            .max();
        self.truth.unsettled_at =
            self.truth.unsettled_at.max(self.now).max(fades.unwrap_or_default());
        self.drain_directory(number);
        self.judge(|facts, truth| i9_serving::check(facts, truth, number));
        if self.scenario.thorough {
            let version = view.version();
            self.check(|checks, facts| checks.on_ranges(facts, number, version, active));
        }
        let burst = self.scenario.grains.as_ref().map_or(0, |load| load.burst);
        for _ in 0..if lost { burst * 2 } else { burst } {
            let at = self.now + self.grain_rng.duration_below(Duration::from_millis(800));
            self.queue.push(at, Event::Grain { process: number, event: GrainEvent::CallOnce });
        }
        if status >= SiloStatus::ShuttingDown {
            self.deactivate_all(number);
        }
    }

    /// A command's outcome is there.
    fn completed(&mut self, number: u32, token: Token, outcome: Outcome) {
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else { return };
        let Some(waiting) = shell.waiting.remove(&token) else { return };
        self.concluded(number, waiting, outcome);
    }

    fn concluded(&mut self, number: u32, waiting: Waiting, outcome: Outcome) {
        self.trace.event(self.now, 21, u64::from(number), outcome_kind(&outcome));
        if self.trace.keeps_lines() {
            self.trace
                .line(self.now, format_args!("{number:>4} directory: {waiting:?} {outcome:?}"));
        }
        if outcome == Outcome::Failed(FailReason::TimedOut) {
            self.sometimes.reach("a directory command times out");
        }
        if let Waiting::Lookup(_, asked) | Waiting::Register(_, _, asked) = &waiting {
            self.judge(|facts, truth| i10_directory::check_prompt(facts, truth, number, asked));
        }
        match waiting {
            Waiting::Lookup(call, asked) => match outcome {
                Outcome::Found(found) => {
                    self.judge_found(number, call.grain, &asked, found);
                    self.looked_up(number, call, found.map(|found| found.silo));
                }
                _ => self.call_failed(call),
            },
            Waiting::Register(grain, activation, asked) => {
                self.registration_concluded(number, grain, activation, &asked, outcome);
            }
            Waiting::Unregister(grain, activation) => {
                let mine =
                    Registration { silo: self.processes[number as usize].address, activation };
                if outcome == Outcome::Unregistered {
                    self.truth.end(grain, mine);
                } else {
                    self.truth.left_behind.insert((grain, mine), self.now);
                }
                self.closed(number, grain, activation, None);
            }
            Waiting::UnregisterStale(grain, activation) => self.register(number, grain, activation),
            Waiting::Arrive(grain, activation, instead) => {
                self.arrival_concluded(number, (grain, activation), instead, outcome);
            }
            Waiting::Reclaim(grain, activation) => {
                self.reclaim_concluded(number, grain, activation, outcome);
            }
        }
    }

    /// Has an invariant look at the grains.
    fn judge(&mut self, look: impl FnOnce(&Facts<'_>, &GrainTruth) -> Result<(), Violation>) {
        if self.violation.is_none()
            && let Err(violation) = look(&self.facts(), &self.truth)
        {
            self.violated(violation);
        }
    }

    fn judge_found(&mut self, number: u32, grain: u32, asked: &Asked, found: Option<Registration>) {
        self.judge(|facts, truth| {
            i9_directory::check_found(facts, truth, number, grain, asked, found)
        });
    }

    /// Facts now about `grain`, which the directory of `number` is asked about.
    fn asked(&self, number: u32, grain: u32) -> Asked {
        let shell = self.processes[number as usize].shell.as_deref();
        let view = shell.map_or(0, |shell| shell.directory.view_version());
        self.truth.asked(grain, self.now, view)
    }

    /// Asks the directory to make `activation` the only one of `grain`.
    pub(super) fn register(&mut self, number: u32, grain: u32, activation: u64) {
        let asked = self.asked(number, grain);
        let id = self.truth.ids[grain as usize].clone();
        let process = &mut self.processes[number as usize];
        let mine = Registration { silo: process.address, activation };
        let local = process.clock.now(self.now).mono;
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let registers = |a: &&crate::grains::Activation| {
            a.number == activation && a.phase == Phase::Registering
        };
        if shell.catalog.get(&grain).filter(registers).is_none() {
            return;
        }
        let token = shell.token();
        self.truth.requested.insert((grain, mine));
        let done = shell.directory.register(local, token, &id, activation);
        let waiting = Waiting::Register(grain, activation, asked);
        match done {
            Some(outcome) => self.concluded(number, waiting, outcome),
            None => {
                shell.waiting.insert(token, waiting);
            }
        }
        self.drain_directory(number);
    }

    fn registration_concluded(
        &mut self,
        number: u32,
        grain: u32,
        activation: u64,
        asked: &Asked,
        outcome: Outcome,
    ) {
        match outcome {
            Outcome::Registered => self.registered(number, grain, activation),
            Outcome::Taken(other) => {
                self.judge_found(number, grain, asked, Some(other));
                let me = self.processes[number as usize].address;
                if other.silo != me {
                    let at = self.process_of(&other.silo);
                    self.sometimes.reach("two silos place a grain at once");
                    self.closed(number, grain, activation, at);
                    return;
                }
                // Left behind by an activation that is gone.
                self.sometimes.reach("a registration of an activation that is gone is removed");
                let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else {
                    return;
                };
                let Some(held) = shell.catalog.get_mut(&grain).filter(|a| a.number == activation)
                else {
                    return;
                };
                held.retries += 1;
                if held.retries >= STALE_SELF_RETRIES {
                    self.closed(number, grain, activation, None);
                    return;
                }
                self.unregister(
                    number,
                    grain,
                    other.activation,
                    Waiting::UnregisterStale(grain, activation),
                );
            }
            Outcome::Failed(FailReason::TooManyPending) => {
                let event = GrainEvent::Register { grain, number: activation };
                self.queue.push(self.now + FULL_PAUSE, Event::Grain { process: number, event });
            }
            _ => {
                let load = self.scenario.grains.as_ref();
                let patience =
                    load.map_or(Duration::ZERO, |load| load.directory.unregister_timeout);
                let mine =
                    Registration { silo: self.processes[number as usize].address, activation };
                // The directory withdraws it by itself, for this time by a clock that may run fast.
                self.truth.left_behind.insert((grain, mine), self.now + patience * 9 / 10);
                self.closed(number, grain, activation, None);
            }
        }
    }

    /// Gives the registration of `activation` back.
    pub(super) fn unregister(
        &mut self,
        number: u32,
        grain: u32,
        activation: u64,
        waiting: Waiting,
    ) {
        let id = self.truth.ids[grain as usize].clone();
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(self.now).mono;
        let mine = Registration { silo: process.address, activation };
        if self.truth.held.get(&grain).is_some_and(|(held, _)| *held == mine) {
            self.truth.held.remove(&grain);
        }
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let token = shell.token();
        match shell.directory.unregister(local, Some(token), &id, activation) {
            Some(outcome) => self.concluded(number, waiting, outcome),
            None => {
                shell.waiting.insert(token, waiting);
            }
        }
        self.drain_directory(number);
    }
}

/// A number for the trace's hash.
const fn outcome_kind(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Found(None) => 0,
        Outcome::Found(Some(found)) => 1 + found.activation,
        Outcome::Registered => 1 << 40,
        Outcome::Taken(_) => 2 << 40,
        Outcome::Unregistered => 3 << 40,
        Outcome::Absent => 5 << 40,
        Outcome::Failed(_) => 4 << 40,
    }
}
