//! Activations and their turns. Each stretch of a grain's own code, from a wait to the next, asks
//! the fence first.

use std::time::Duration;

use emmer_directory::Registration;

use super::super::World;
use super::super::event::Event;
use super::GrainEvent;
use crate::grains::{Activation, Call, Packet, Phase, Segment, Waiting};
use crate::invariants::{i8_turns, i9_directory, i9_serving};
use crate::time::VirtualTime;

/// Time for which the code of a grain runs without a wait, at most: below `POLL_GRACE` of the
/// membership machine.
const POLL_MAX: Duration = Duration::from_millis(45);

/// The most waits in a hook or turn.
const POLLS_MAX: u64 = 4;

impl World {
    /// Wakes an activation after `after`.
    pub(super) fn wake(&mut self, number: u32, grain: u32, activation: u64, after: Duration) {
        let event = GrainEvent::Poll { grain, number: activation };
        self.queue.push(self.now + after, Event::Grain { process: number, event });
    }

    pub(super) fn activation(
        &mut self,
        number: u32,
        grain: u32,
        activation: u64,
    ) -> Option<&mut Activation> {
        let shell = self.processes[number as usize].shell.as_deref_mut()?;
        shell.catalog.get_mut(&grain).filter(|found| found.number == activation)
    }

    fn draw_polls(&mut self) -> u8 {
        let drawn = self.grain_rng.below(POLLS_MAX + 1).min(self.grain_rng.below(POLLS_MAX + 1));
        u8::try_from(drawn).unwrap_or(0)
    }

    /// Time for which a wait lasts: mostly moments, sometimes seconds.
    fn draw_wait(&mut self) -> Duration {
        let longest = self.scenario.grains.as_ref().map_or(Duration::ZERO, |load| load.suspend_max);
        let longest = if self.truth.quiet { Duration::ZERO } else { longest };
        let bound = if self.grain_rng.chance(0.3) { longest } else { longest / 50 };
        self.grain_rng.duration_below(bound)
    }

    /// An activation is woken: it continues if the fence is open, else it waits until it is.
    pub(super) fn poll(&mut self, number: u32, grain: u32, activation: u64) {
        let Some(phase) = self.activation(number, grain, activation).map(|found| found.phase)
        else {
            return;
        };
        if matches!(phase, Phase::Idle | Phase::Leaving | Phase::Departing | Phase::Arriving) {
            return;
        }
        let process = &mut self.processes[number as usize];
        let shut = process.shell.as_deref().is_none_or(|shell| shell.shut);
        if (shut || !process.would_run_turns(self.now)) && !self.scenario.fence_not_asked {
            self.sometimes.reach("a turn waits for the fence");
            if let Some(shell) = process.shell.as_deref_mut() {
                shell.blocked.push((grain, activation));
            }
            return;
        }
        if phase == Phase::Registering {
            self.register(number, grain, activation);
            return;
        }
        let lasts = self.run(number, grain, activation);
        let event = GrainEvent::Ran { grain, number: activation };
        self.queue.push(self.now + lasts, Event::Grain { process: number, event });
    }

    /// Code of the grain ran up to its next wait, or to its end.
    pub(super) fn ran(&mut self, number: u32, grain: u32, activation: u64) {
        let Some(found) = self.activation(number, grain, activation) else { return };
        let left = match &mut found.phase {
            Phase::Waking(left) | Phase::Running(_, left) | Phase::Falling(left) => left,
            Phase::Registering
            | Phase::Idle
            | Phase::Leaving
            | Phase::Departing
            | Phase::Arriving => return,
        };
        if *left > 0 {
            *left -= 1;
            let wait = self.draw_wait();
            self.wake(number, grain, activation, wait);
            return;
        }
        match found.phase {
            Phase::Running(call, _) => {
                self.answer(number, call);
                self.settle(number, grain, activation);
            }
            Phase::Falling(_) => self.fallen(number, grain, activation),
            _ => self.settle(number, grain, activation),
        }
    }

    /// Code of the grain runs for a moment; says how long.
    fn run(&mut self, number: u32, grain: u32, activation: u64) -> Duration {
        let longest =
            if self.grain_rng.chance(0.05) { POLL_MAX } else { Duration::from_micros(300) };
        let lasts = self.grain_rng.duration_below(longest);
        let segment = Segment { process: number, start: self.now, end: self.now + lasts };
        self.trace.event(self.now, 23, u64::from(number), mix_of(grain, activation));
        if self.trace.keeps_lines() {
            let text =
                format_args!("{number:>4} runs grain {grain}#{activation} until {} s", segment.end);
            self.trace.line(self.now, text);
        }
        self.judge_turns(number, grain, true);
        let found = self.activation(number, grain, activation);
        if found.is_some_and(|found| std::mem::take(&mut found.begins)) {
            self.remember(number, grain, activation);
        }
        self.truth.segments.insert(grain, segment);
        self.truth.ran += 1;
        lasts
    }

    /// No other silo may run `grain` now (invariant I8).
    fn judge_turns(&mut self, number: u32, grain: u32, runs: bool) {
        let last = self.truth.segments.get(&grain);
        if self.violation.is_none()
            && let Err(violation) = i8_turns::check(&self.facts(), number, grain, runs, last)
        {
            self.violated(violation);
        }
    }

    /// The activation is the grain's one.
    pub(super) fn registered(&mut self, number: u32, grain: u32, activation: u64) {
        if self.violation.is_none()
            && let Err(violation) = i9_directory::check_registered(
                &self.facts(),
                &self.truth,
                number,
                grain,
                activation,
            )
        {
            self.violated(violation);
        }
        self.judge_turns(number, grain, false);
        let process = &self.processes[number as usize];
        let id = &self.truth.ids[grain as usize];
        if process.shell.as_deref().is_some_and(|s| !s.directory.may_move(id, activation)) {
            // Another attempt to register it may arrive long after it is gone.
            let mine = Registration { silo: process.address, activation };
            self.truth.left_behind.insert((grain, mine), self.now);
        }
        if process.dead_at.is_none() {
            let mine = Registration { silo: process.address, activation };
            self.truth.acknowledge(grain, mine);
        }
        let polls = self.draw_polls();
        let Some(found) = self.activation(number, grain, activation) else { return };
        found.registered = true;
        found.phase = Phase::Waking(polls);
        self.wake(number, grain, activation, Duration::ZERO);
        self.judge(|facts, truth| i9_serving::check_everywhere(facts, truth, grain));
    }

    /// A turn or the activation itself is over: decides the next step.
    fn settle(&mut self, number: u32, grain: u32, activation: u64) {
        let now = self.now;
        let Some(found) = self.activation(number, grain, activation) else { return };
        found.phase = Phase::Idle;
        found.idle_since = now;
        if !self.may_depart(number, grain, activation) {
            self.next_turn(number, grain, activation);
        }
    }

    /// Begins the next turn of an idle activation, or its end.
    pub(super) fn next_turn(&mut self, number: u32, grain: u32, activation: u64) {
        let polls = self.draw_polls();
        let Some(found) = self.activation(number, grain, activation) else { return };
        if let Some(call) = found.queue.pop_front() {
            found.phase = Phase::Running(call, polls);
            found.begins = true;
            self.wake(number, grain, activation, Duration::ZERO);
        } else if found.closing {
            found.phase = Phase::Falling(polls / 2);
            self.wake(number, grain, activation, Duration::ZERO);
        } else {
            let longest =
                self.scenario.grains.as_ref().map_or(Duration::ZERO, |load| load.idle_max);
            let after = self.grain_rng.duration_below(longest);
            let event = GrainEvent::Idle { grain, number: activation };
            self.queue.push(self.now + after, Event::Grain { process: number, event });
        }
    }

    /// The caller learns where its grain is.
    fn answer(&mut self, number: u32, call: Call) {
        self.measures.calls_done += 1;
        self.truth.must.0 += u64::from(call.must);
        if call.origin != number {
            let to = self.processes[call.origin as usize].address;
            if !self.knows_dead(number, &to) {
                self.send_packet(number, &to, Packet::Found { grain: call.grain, at: number });
            }
        }
    }

    /// An activation that was idle is deactivated, if it still is; sometimes it is left alone.
    pub(super) fn idle(&mut self, number: u32, grain: u32, activation: u64) {
        let chosen = self.grain_rng.chance(0.6) && !self.truth.quiet;
        let Some(found) = self.activation(number, grain, activation) else { return };
        if found.phase == Phase::Idle && !found.closing && chosen {
            found.closing = true;
            self.next_turn(number, grain, activation);
        }
    }

    /// The silo leaves: every activation goes as soon as its turns are over.
    pub(super) fn deactivate_all(&mut self, number: u32) {
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else { return };
        if std::mem::replace(&mut shell.leaving, true) {
            return;
        }
        let mut idle = Vec::new();
        for (grain, activation) in &mut shell.catalog {
            if !std::mem::replace(&mut activation.closing, true) && activation.phase == Phase::Idle
            {
                idle.push((*grain, activation.number));
            }
        }
        for (grain, activation) in idle {
            self.next_turn(number, grain, activation);
        }
    }

    /// The deactivation hook is over: the registration goes.
    fn fallen(&mut self, number: u32, grain: u32, activation: u64) {
        let Some(found) = self.activation(number, grain, activation) else { return };
        found.phase = Phase::Leaving;
        // Before the directory is asked: no report in between claims it.
        found.registered = false;
        self.unregister(number, grain, activation, Waiting::Unregister(grain, activation));
    }

    /// The activation is gone; a call that waits for it looks elsewhere: at `moved`, if the
    /// directory said so.
    pub(super) fn closed(&mut self, number: u32, grain: u32, activation: u64, moved: Option<u32>) {
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else { return };
        if shell.catalog.get(&grain).is_none_or(|found| found.number != activation) {
            return;
        }
        let Some(gone) = shell.catalog.remove(&grain) else { return };
        if let Some(at) = moved.filter(|at| *at != number) {
            shell.locations.insert(grain, at);
            let to = self.processes[at as usize].address;
            gone.queue.into_iter().for_each(|call| self.pass_on(number, &to, call));
            return;
        }
        for mut call in gone.queue {
            call.hops += 1;
            if call.hops > crate::grains::FORWARDS_MAX {
                self.call_failed(call);
            } else {
                self.locate(number, call);
            }
        }
    }

    /// No further code of a grain begins to run on `number`; until when some still runs.
    pub(in crate::world) fn shut_turns(&mut self, number: u32) -> Option<VirtualTime> {
        self.processes[number as usize].shell.as_deref_mut()?.shut = true;
        let here = self.truth.segments.values().filter(|segment| segment.process == number);
        here.map(|segment| segment.end).max().filter(|end| *end > self.now)
    }

    /// The fence may have opened: what waited for it continues.
    pub(in crate::world) fn unblock(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        let Some(shell) = process.shell.as_deref() else { return };
        let waits = !shell.blocked.is_empty() || !shell.held.is_empty();
        if !waits || shell.shut || !process.may_run_turns(self.now) {
            return;
        }
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let (blocked, held) = (std::mem::take(&mut shell.blocked), std::mem::take(&mut shell.held));
        self.sometimes.reach("a fence opened for turns that waited");
        for (grain, activation) in blocked {
            self.wake(number, grain, activation, Duration::ZERO);
        }
        for call in held {
            self.locate(number, call);
        }
    }
}

/// A number for the trace's hash.
fn mix_of(grain: u32, activation: u64) -> u64 {
    (u64::from(grain) << 20) ^ activation
}
