//! Worlds in which little goes wrong: there a silo's fence is open, and each single event is over
//! soon.

use std::time::Duration;

use crate::net::Transport;
use crate::scenario::{Fault, Scenario};
use crate::time::VirtualTime;

/// Time without any other event before an event whose end is timed.
pub const QUIET: Duration = Duration::from_secs(10);

/// Time that a network may take to count as quick.
const LATENCY_MAX: Duration = Duration::from_millis(50);

/// Time that a store may take.
const STORE_MAX: Duration = Duration::from_millis(200);

/// A single event in a world that was calm before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// A process was killed, its host answers.
    Kill,
    /// A host vanished.
    Loss,
    /// A silo was told to leave; it may take two seconds before it finishes.
    Leave,
    /// A silo was told to stop; it may take a tenth of a second before it finishes.
    Stop,
    /// A silo starts where none runs.
    Start,
}

/// When something happened last that is not part of the protocol's own work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// When a process started, was killed or told to go, or trouble of its host or the network
    /// began or ended.
    pub disturbed_at: VirtualTime,
    /// When trouble of the store began or ended.
    pub store_at: VirtualTime,
    /// When the store's trouble began last.
    pub store_since: VirtualTime,
    /// True if more than one thing happened at `disturbed_at`.
    pub at_once: bool,
    /// Open windows of the store's trouble.
    pub store_open: u32,
    /// Number of them so far.
    pub store_times: u32,
    /// Open windows of other trouble.
    pub open: u32,
}

/// Bounds that follow from a scenario.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expects {
    /// The network is quick and loses nothing by itself, and the store answers at once and truly,
    /// where no step says otherwise.
    pub tight: bool,
    /// Time that a message takes at most.
    pub message: Duration,
    /// Time that a request to the store takes at most, there and back.
    pub store: Duration,
}

impl Expects {
    /// Bounds that follow from `scenario`.
    pub fn of(scenario: &Scenario) -> Self {
        let (network, store) = (&scenario.network, &scenario.store);
        let message = network.latency.min + network.latency.spread;
        let round_trip = (store.latency.min + store.latency.spread) * 2;
        let chances = [
            store.unknown_applied,
            store.unknown_lost,
            store.unknown_late,
            store.unavailable,
            store.never_answered,
            store.minute_late,
            store.stale_reads,
            store.torn_reads,
            store.latency.tail,
            network.loss,
            network.latency.tail,
        ];
        let kind = !scenario.config.fence_timeout.is_zero() && scenario.config.batch_writes;
        let tight = kind
            && chances.iter().all(|chance| *chance == 0.0)
            && network.transport == Transport::Stream
            && message <= LATENCY_MAX
            && round_trip <= STORE_MAX
            && scenario.steps.iter().all(|step| !matches!(step.fault, Fault::StepClock { .. }));
        Self { tight, message, store: round_trip }
    }

    /// Time after `what` by which the cluster is whole again.
    pub fn whole_after(&self, scenario: &Scenario, what: Alone) -> Duration {
        let config = &scenario.config;
        let messages = self.message * 10 + self.store * 6;
        messages
            + match what {
                Alone::Kill => Duration::from_millis(600),
                Alone::Loss => config.patience() + config.probe_period + Duration::from_millis(400),
                Alone::Leave => Duration::from_millis(2_700),
                Alone::Stop => Duration::from_millis(700),
                Alone::Start => Duration::from_millis(2_000),
            }
    }

    /// Time after its commit by which a view has reached every silo that was Active before, if all
    /// of them run.
    pub fn spread_after(&self, scenario: &Scenario) -> Duration {
        let fan_out = scenario.config.fan_out.max(1);
        let (mut reached, mut level, mut steps) = (1, 1, 0);
        while reached < scenario.hosts {
            level *= fan_out;
            reached += level;
            steps += 1;
        }
        self.store + self.message * steps + Duration::from_millis(3)
    }
}

impl Calm {
    /// Returns true if nothing but the protocol's own work went on for `span`.
    pub fn was_quiet(&self, now: VirtualTime, span: Duration) -> bool {
        let store = self.store_open == 0 && now.since(self.store_at) >= span;
        self.was_undisturbed(now, span) && store
    }

    /// Returns true if nothing but the store disturbed the `span` before `now`.
    pub fn was_undisturbed(&self, now: VirtualTime, span: Duration) -> bool {
        self.open == 0 && now.since(self.disturbed_at) >= span
    }

    /// Something happens now that is not the protocol's own work.
    pub fn disturb(&mut self, now: VirtualTime) {
        self.at_once = self.disturbed_at == now;
        self.disturbed_at = now;
    }

    /// Notes a step of the scenario as it begins or ends. A start is noted when the process starts.
    pub fn step(&mut self, now: VirtualTime, fault: &Fault, begins: bool) {
        let open = match fault {
            Fault::Start(_) => return,
            Fault::StoreOutage
            | Fault::StoreCut(_)
            | Fault::StoreForgets(_)
            | Fault::StoreEmptied => {
                self.store_at = now;
                self.store_times += u32::from(begins);
                self.store_since = if begins { now } else { self.store_since };
                &mut self.store_open
            }
            _ => {
                self.disturb(now);
                &mut self.open
            }
        };
        if fault.lasts() && !matches!(fault, Fault::LoseHost(_)) {
            *open = if begins { *open + 1 } else { open.saturating_sub(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_one_instant_does_not_happen_alone() {
        let mut calm = Calm::default();
        for (millis, at_once) in [(1, false), (5, false), (5, true), (5, true), (6, false)] {
            calm.step(VirtualTime::from_millis(millis), &Fault::Kill(0), true);
            assert_eq!(calm.at_once, at_once);
        }
    }
}
