//! The end of a run: no further calls are made, the directory comes to rest, and then every grain
//! is called once.

use std::ops::Range;
use std::time::Duration;

use super::super::World;
use super::super::event::Event;
use super::GrainEvent;
use crate::grains::QUEUE_MAX;
use crate::invariants::Violation;
use crate::invariants::i10_directory::{self, CALLS_WITHIN, REST_WITHIN};
use crate::time::VirtualTime;

/// Interval at which it is looked whether the directory is at rest.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Number of times a fault that was over may have an effect after that.
const ROUNDS_MAX: u32 = 4;

impl World {
    /// The cluster is whole: within a bound the directory is at rest, and every grain can be called
    /// (invariant I10).
    pub fn come_to_rest(&mut self) {
        if self.scenario.grains.is_none() || self.went_back || self.violation.is_some() {
            return;
        }
        self.truth.quiet = true;
        for _ in 0..ROUNDS_MAX {
            let Some(at) = self.rests() else { return };
            let fences = self.measures.fences;
            let Some(missing) = self.call_every_grain() else { return };
            let fenced =
                self.processes.iter().any(|p| p.is_running() && !p.would_run_turns(self.now));
            if self.truth.unsettled_at < at && self.measures.fences == fences && !fenced {
                self.fails_to_rest(&missing);
                return;
            }
            // A fault that was over just before had an effect after all, or a fence holds the calls
            // up.
        }
    }

    /// Runs until the directory is at rest; the time then.
    fn rests(&mut self) -> Option<VirtualTime> {
        let since = self.now;
        loop {
            let until = since.max(self.truth.unsettled_at) + REST_WITHIN;
            if self.violation.is_some() {
                return None;
            }
            let Some(why) = self.why_not_at_rest() else { return Some(self.now) };
            if self.now >= until {
                let within = REST_WITHIN.as_secs();
                self.fails_to_rest(&format!(
                    "not at rest {within} s after the cluster was whole: {why}"
                ));
                return None;
            }
            self.run_until(self.now + LOOK_EVERY);
        }
    }

    /// Reason why the directories are not at rest, in words; none when they are.
    pub fn why_not_at_rest(&self) -> Option<String> {
        i10_directory::why_not_at_rest(&self.facts(), &self.truth)
    }

    /// Has every grain called, and every silo call one. Returns a call without an answer, in words.
    fn call_every_grain(&mut self) -> Option<String> {
        let numbers = (0u32..).zip(&self.processes);
        let running: Vec<u32> =
            numbers.filter(|(_, p)| p.is_running()).map(|(number, _)| number).collect();
        let grains = self.truth.ids.len();
        let calls = if running.is_empty() { 0 } else { grains.max(running.len()) };
        // Where silos are many and grains few, one grain's queue does not hold the calls of all.
        let wave = grains.saturating_mul(QUEUE_MAX).max(1);
        (0..calls)
            .step_by(wave)
            .find_map(|from| self.call_grains(from..calls.min(from + wave), &running))
    }

    /// Makes these calls, all at once. Returns a call without an answer, in words.
    fn call_grains(&mut self, calls: Range<usize>, running: &[u32]) -> Option<String> {
        self.truth.must = (0, 0);
        for call in calls.clone() {
            let grain = u32::try_from(call % self.truth.ids.len()).unwrap_or(0);
            let event = GrainEvent::CallOf(grain);
            self.queue
                .push(self.now, Event::Grain { process: running[call % running.len()], event });
        }
        let calls = calls.len();
        self.run_while(self.now + CALLS_WITHIN, LOOK_EVERY, |world| {
            world.truth.must.0 >= calls as u64
        });
        let (done, failed) = self.truth.must;
        (failed > 0 || done < calls as u64).then(|| {
            let within = CALLS_WITHIN.as_secs();
            format!(
                "of {calls} calls at rest {done} were answered within {within} s and {failed} \
                failed"
            )
        })
    }

    fn fails_to_rest(&mut self, what: &str) {
        if self.violation.is_none() {
            self.violated(Violation { invariant: "I10", at: self.now, what: what.to_owned() });
        }
    }
}
