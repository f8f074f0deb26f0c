//! Grains that move: the memory goes from shell to shell, the registration follows.

use std::time::Duration;

use emmer_core::SiloStatus;
use emmer_directory::{Departure, DepartureEffect, DepartureEnd, Outcome, Registration, Word};

use super::super::World;
use super::super::event::Event;
use super::GrainEvent;
use crate::grains::{Activation, From, Memory, MoveBug, Packet, Phase, Waiting};
use crate::invariants::i15_memory;

/// The longest silence of a target.
const PATIENCE: Duration = Duration::from_secs(1);

impl World {
    fn plants(&self, bug: MoveBug) -> bool {
        self.scenario.move_bug == Some(bug)
    }

    /// Perhaps an activation that is between two turns moves to another silo. Returns true if it
    /// does.
    pub(super) fn may_depart(&mut self, number: u32, grain: u32, activation: u64) -> bool {
        let percent = self.scenario.grains.as_ref().map_or(0, |load| load.move_percent);
        if percent == 0 || self.truth.quiet || self.grain_rng.below(100) >= percent.into() {
            return false;
        }
        let (process, pick) = (&self.processes[number as usize], self.grain_rng.bits());
        let Some(shell) = process.shell.as_deref() else { return false };
        let others: Vec<_> =
            shell.candidates.iter().filter(|silo| **silo != process.address).copied().collect();
        let Some(to) = others.get((pick % others.len().max(1) as u64) as usize).copied() else {
            return false;
        };
        if !self.processes[number as usize].would_run_turns(self.now) {
            return false;
        }
        self.depart(number, grain, activation, to);
        true
    }

    /// The source sends the memory.
    fn depart(&mut self, number: u32, grain: u32, activation: u64, to: emmer_core::SiloAddress) {
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(self.now).mono;
        let mine = Registration { silo: process.address, activation };
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let view = shell.directory.view_version();
        if !shell.directory.may_move(&self.truth.ids[grain as usize], activation) {
            self.sometimes.reach("a grain stays because its registration may come again");
            return self.next_turn(number, grain, activation);
        }
        let fresh = shell.activation_number();
        let bug = self.scenario.move_bug;
        let (old_number, reported) =
            (bug == Some(MoveBug::OldNumber), bug == Some(MoveBug::Reported));
        let from: From = (mine, view);
        let fresh = if old_number { activation } else { fresh };
        let Some(found) = shell.catalog.get_mut(&grain) else { return };
        let departure = Departure::new(local, to, from, fresh, PATIENCE);
        found.phase = Phase::Departing;
        found.registered = reported;
        found.departure = Some(departure);
        let memory = found.memory;
        if self.truth.held.get(&grain).is_some_and(|(held, _)| *held == mine) {
            self.truth.held.remove(&grain);
        }
        if let Some(due) = departure.poll_timeout() {
            let at = self.processes[number as usize].clock.when(due).max(self.now);
            let event = GrainEvent::Patience { grain };
            self.queue.push(at, Event::Grain { process: number, event });
        }
        self.sometimes.reach("a grain sets off for another silo");
        let stale = self.plants(MoveBug::StaleMemory) && memory.turns > 0;
        let memory = Memory { turns: memory.turns - u64::from(stale), ..memory };
        self.send_packet(number, &to, Packet::Arrive { grain, memory, instead: from });
        if self.plants(MoveBug::RunsOn) {
            let Some(found) = self.activation(number, grain, activation) else { return };
            found.phase = Phase::Idle;
            found.registered = true;
            self.next_turn(number, grain, activation);
        }
    }

    /// A grain arrives with its memory.
    pub(in crate::world) fn grain_arrives(
        &mut self,
        number: u32,
        grain: u32,
        memory: Memory,
        instead: From,
    ) {
        let process = &mut self.processes[number as usize];
        let accepts = process.machine.as_deref().is_some_and(|m| m.status() == SiloStatus::Active)
            && process.would_run_turns(self.now);
        let (me, local) = (process.address, process.clock.now(self.now).mono);
        let Some(shell) = process.shell.as_deref_mut() else { return };
        if !accepts || shell.catalog.contains_key(&grain) {
            self.sometimes.reach("a grain is not taken where it was to go");
            return self.answer_move(number, grain, instead, Word::Refused);
        }
        let activation = shell.activation_number();
        let held = Activation { memory, ..Activation::arriving(activation, self.now) };
        shell.catalog.insert(grain, held);
        let token = shell.token();
        self.truth.requested.insert((grain, Registration { silo: me, activation }));
        let id = self.truth.ids[grain as usize].clone();
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else { return };
        let waiting = Waiting::Arrive(grain, activation, instead);
        match shell.directory.replace(local, token, &id, activation, instead) {
            Some(outcome) => self.concluded(number, waiting, outcome),
            None => {
                shell.waiting.insert(token, waiting);
            }
        }
        self.drain_directory(number);
    }

    fn answer_move(&mut self, number: u32, grain: u32, instead: From, word: Word) {
        self.send_packet(number, &instead.0.silo, Packet::MoveWord { grain, instead, word });
    }

    /// The owner has decided about a grain that arrives.
    pub(super) fn arrival_concluded(
        &mut self,
        number: u32,
        (grain, activation): (u32, u64),
        instead: From,
        outcome: Outcome,
    ) {
        if outcome == Outcome::Registered {
            self.sometimes.reach("a grain arrives");
            self.answer_move(number, grain, instead, Word::Arrived);
            self.registered(number, grain, activation);
            return;
        }
        self.note_left_behind(number, grain, activation, outcome);
        self.answer_move(number, grain, instead, Word::Failed);
        self.closed(number, grain, activation, None);
    }

    /// A registration may have been granted by a request that is still on its way: the directory
    /// withdraws it.
    fn note_left_behind(&mut self, number: u32, grain: u32, activation: u64, outcome: Outcome) {
        let load = self.scenario.grains.as_ref();
        let patience = load.map_or(Duration::ZERO, |load| load.directory.unregister_timeout);
        let silo = self.processes[number as usize].address;
        if matches!(outcome, Outcome::Failed(_)) {
            let from = self.now + patience * 9 / 10;
            self.truth.left_behind.insert((grain, Registration { silo, activation }), from);
        }
    }

    /// Gives a registration back that no activation has.
    fn withdraw(&mut self, number: u32, grain: u32, registration: Registration) {
        let load = self.scenario.grains.as_ref();
        let patience = load.map_or(Duration::ZERO, |load| load.directory.unregister_timeout);
        self.truth.left_behind.insert((grain, registration), self.now + patience * 9 / 10);
        let id = self.truth.ids[grain as usize].clone();
        self.with_directory(number, |directory, now| {
            directory.unregister(now, None, &id, registration.activation);
        });
        self.drain_directory(number);
    }

    /// The word of a grain's new silo arrives.
    pub(in crate::world) fn move_word(
        &mut self,
        number: u32,
        grain: u32,
        instead: From,
        word: Word,
    ) {
        self.with_departure(number, grain, |departure| {
            if departure.from() == instead {
                departure.handle_word(word);
            }
        });
    }

    /// The target of a move was silent for long.
    pub(super) fn lose_patience(&mut self, number: u32, grain: u32) {
        let local = self.processes[number as usize].clock.now(self.now).mono;
        let unasked = self.plants(MoveBug::UnaskedReturn);
        self.with_departure(number, grain, |departure| {
            departure.handle_timeout(local);
            if unasked && departure.poll_effect().is_some() {
                departure.handle_outcome(Outcome::Registered);
            }
        });
    }

    /// The source's `replace` has an outcome.
    pub(super) fn reclaim_concluded(
        &mut self,
        number: u32,
        grain: u32,
        activation: u64,
        outcome: Outcome,
    ) {
        self.note_left_behind(number, grain, activation, outcome);
        self.with_departure(number, grain, |departure| departure.handle_outcome(outcome));
    }

    /// Feeds a departure and executes its effects.
    fn with_departure(&mut self, number: u32, grain: u32, feed: impl FnOnce(&mut Departure)) {
        let process = &mut self.processes[number as usize];
        let (me, local) = (process.address, process.clock.now(self.now).mono);
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let Some(found) = shell.catalog.get_mut(&grain) else { return };
        let Some(departure) = found.departure.as_mut() else { return };
        feed(departure);
        let (instead, activation) = (departure.from(), found.number);
        match departure.poll_effect() {
            None => {}
            Some(DepartureEffect::Reclaim { activation: number_then }) => {
                self.sometimes.reach("a grain is taken back");
                let token = shell.token();
                let mine = Registration { silo: me, activation: number_then };
                self.truth.requested.insert((grain, mine));
                let id = self.truth.ids[grain as usize].clone();
                let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else {
                    return;
                };
                let waiting = Waiting::Reclaim(grain, number_then);
                match shell.directory.replace(local, token, &id, number_then, instead) {
                    Some(outcome) => self.concluded(number, waiting, outcome),
                    None => {
                        shell.waiting.insert(token, waiting);
                    }
                }
                self.drain_directory(number);
            }
            Some(DepartureEffect::End(DepartureEnd::Here(number_now))) => {
                self.sometimes.reach("a grain stays after all");
                (found.number, found.departure) = (number_now, None);
                self.registered(number, grain, number_now);
                let Some(found) = self.activation(number, grain, number_now) else { return };
                // No hook runs: the grain was never away.
                found.phase = Phase::Waking(0);
            }
            Some(DepartureEffect::End(end)) => {
                found.departure = None;
                let there = match end {
                    DepartureEnd::There(silo) => self.process_of(&silo),
                    DepartureEnd::Here(_) | DepartureEnd::Nowhere => {
                        self.sometimes.reach("a grain is lost on its way");
                        self.withdraw(number, grain, instead.0);
                        None
                    }
                };
                self.closed(number, grain, activation, there);
            }
        }
    }

    /// A turn of a grain begins: its memory must be the last one, or that of a new life.
    pub(super) fn remember(&mut self, number: u32, grain: u32, activation: u64) {
        let is_dead = self.processes[number as usize].dead_at.is_some();
        if is_dead && self.scenario.config.fence_timeout.is_zero() {
            return;
        }
        let Some(found) = self.activation(number, grain, activation) else { return };
        let before = found.memory;
        if before.life == 0 {
            self.truth.lives += 1;
            let memory = Memory { life: self.truth.lives, turns: 1 };
            let Some(found) = self.activation(number, grain, activation) else { return };
            found.memory = memory;
            self.truth.memories.insert(grain, memory);
            return;
        }
        found.memory.turns += 1;
        let after = found.memory;
        self.judge(|facts, truth| i15_memory::check(facts, truth, number, grain, before));
        self.truth.memories.insert(grain, after);
    }
}
