//! The values of every metric of a silo.

use std::sync::atomic::{AtomicU64, Ordering};

use emmer_core::SiloStatus;

use super::core::SiloCore;
use crate::metrics::list as m;
use crate::metrics::sample::{Sample, Samples};

/// Every status, for metrics that name one.
const STATUSES: [SiloStatus; 6] = [
    SiloStatus::Created,
    SiloStatus::Joining,
    SiloStatus::Active,
    SiloStatus::ShuttingDown,
    SiloStatus::Stopping,
    SiloStatus::Dead,
];

impl SiloCore {
    /// Every metric as it is now, in the order of the list.
    pub(super) fn metrics(&self) -> Vec<Sample> {
        let mut samples = Samples::default();
        self.tell_membership(&mut samples);
        self.tell_store(&mut samples);
        self.tell_grains(&mut samples);
        self.tell_calls(&mut samples);
        self.tell_streams(&mut samples);
        self.tell_connections(&mut samples);
        self.tell_rest(&mut samples);
        samples.0
    }

    fn tell_membership(&self, samples: &mut Samples) {
        let (options, view) = (&self.options, self.cluster.view());
        let silo = self.address.to_string();
        let labels =
            [silo.as_str(), &self.name, options.cluster_id.as_str(), env!("CARGO_PKG_VERSION")];
        samples.put_of(&m::SILO_INFO, &labels, 1u64);
        let own = *self.cluster.status.borrow();
        for status in STATUSES {
            let name = status.to_string();
            samples.put_of(&m::SILO_STATUS, &[&name], status == own);
            let silos = view.members().iter().filter(|silo| silo.status == status).count();
            samples.put_of(&m::SILOS, &[&name], silos);
        }
        let told = self.cluster.membership_statistics.lock().clone();
        let counters = &told.counters;
        samples.put(&m::VIEW_VERSION, view.version());
        samples.put(&m::VIEWS, counters.views_installed);
        for (event, count) in [
            ("sent", counters.probes_sent),
            ("answered", counters.probes_answered),
            ("missed", counters.probes_missed),
            ("received", counters.probes_received),
        ] {
            samples.put_of(&m::PROBES, &[event], count);
        }
        samples.put(&m::INDIRECT_PROBES, counters.indirect_probes_sent);
        for (event, count) in [
            ("cast", counters.votes_cast),
            ("received", counters.votes_received),
            ("withdrawn", counters.suspicions_withdrawn),
        ] {
            samples.put_of(&m::VOTES, &[event], count);
        }
        samples.put(&m::DEATHS, counters.deaths_declared);
        for (outcome, count) in [
            ("tried", counters.commits),
            ("lost", counters.commits_lost),
            ("unknown", counters.commits_unknown),
        ] {
            samples.put_of(&m::COMMITS, &[outcome], count);
        }
        samples.put(&m::TABLE_AWAY, counters.table_unavailable);
        if let Some(answered) = told.store_answered {
            let age = self.host.clock.mono().saturating_since(answered);
            samples.put(&m::TABLE_ANSWER_AGE, age);
        }
        samples.put(&m::HEALTH, told.health_score);
        let shut = self.fence_shut.lock().told(self.host.clock.mono());
        samples.put(&m::FENCE, shut.is_shut);
        samples.put(&m::FENCES, shut.times);
        samples.put(&m::FENCE_SECONDS, shut.time.as_secs());
    }

    fn tell_store(&self, samples: &mut Samples) {
        for (operation, outcomes, took) in self.store_metrics.snapshot() {
            for (outcome, count) in outcomes {
                samples.put_of(&m::STORE_REQUESTS, &[operation, outcome], count);
            }
            samples.durations(&m::STORE_SECONDS, &[operation], took);
        }
    }

    fn tell_grains(&self, samples: &mut Samples) {
        samples.put(&m::REGISTRATIONS, self.cluster.directory.registrations());
        for (operation, count) in self.cluster.directory.requests() {
            samples.put_of(&m::DIRECTORY_REQUESTS, &[operation], count);
        }
        for (outcome, count) in self.cluster.placing.outcomes() {
            samples.put_of(&m::PLACED, &[outcome], count);
        }
        let mut classes: Vec<_> = self.host.classes.values().collect();
        classes.sort_unstable_by_key(|class| class.name());
        for class in classes {
            let (name, lives) = (class.name(), class.lives());
            samples.put_of(&m::ACTIVATIONS, &[name], lives.live());
            samples.put_of(&m::ACTIVATED, &[name], lives.activated);
            samples.put_of(&m::DEACTIVATED, &[name], lives.deactivated);
            samples.put_of(&m::ACTIVATIONS_FAILED, &[name], lives.failed);
            samples.durations(&m::ACTIVATION_SECONDS, &[name], lives.took);
            for (outcome, count) in [
                ("arrived", lives.arrived),
                ("left", lives.left),
                ("returned", lives.returned),
                ("lost", lives.lost),
            ] {
                samples.put_of(&m::MOVES, &[name, outcome], count);
            }
            samples.durations(&m::MOVE_SECONDS, &[name], lives.moving);
        }
        for (labels, count) in self.host.metrics.states.snapshot() {
            samples.put_of(&m::STATES, &labels, count);
        }
        samples.put(&m::BUSY, self.cluster.placing.load.reported().busy);
    }

    fn tell_calls(&self, samples: &mut Samples) {
        let told = self.statistics();
        samples.put(&m::TURNS, told.turns);
        samples.put(&m::TURNS_WAITING, told.turns_waiting);
        samples.put(&m::TURNS_BLOCKING, told.turns_blocking);
        for method in self.host.method_statistics() {
            let of = [method.grain_type.as_str(), method.method.as_str()];
            samples.put_of(&m::CALLS, &of, method.calls);
            for (kind, count) in [("own", method.own_errors), ("failed", method.failures)] {
                samples.put_of(&m::CALL_ERRORS, &[of[0], of[1], kind], count);
            }
            samples.durations(&m::CALL_SECONDS, &of, method.latency);
        }
        samples.put(&m::CALLS_RECEIVED, told.calls_received);
        samples.put(&m::CALLS_FORWARDED, told.calls_forwarded);
        samples.put(&m::CALLS_REFUSED, told.calls_refused);
        samples.put_of(&m::ONE_WAYS_LOST, &["failed"], self.host.metrics.one_ways_failed());
        samples.put(&m::CALLS_SHED, self.calls.shedding.refused());
        samples.put(&m::SHEDDING, self.calls.shedding.sheds());
        samples.put(&m::CALLS_IN_FLIGHT, told.calls_in_flight);
        samples.put(&m::CALLS_SERVING, told.calls_serving);
        samples.put(&m::CLIENT_BYTES, told.client_bytes);
    }

    fn tell_streams(&self, samples: &mut Samples) {
        let (reading, writing) = self.calls.streams.open();
        let counts = self.calls.streams.counts();
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        samples.put_of(&m::STREAMS, &["written"], writing);
        samples.put_of(&m::STREAMS, &["read"], reading);
        samples.put_of(&m::STREAM_VALUES, &["written"], get(&counts.values_written));
        samples.put_of(&m::STREAM_VALUES, &["read"], get(&counts.values_read));
        samples.put(&m::STREAMS_BROKEN, get(&counts.broken));
    }

    fn tell_connections(&self, samples: &mut Samples) {
        let traffic = self.pool.traffic();
        samples.put_of(&m::ONE_WAYS_LOST, &["unknown"], traffic.one_ways_lost);
        samples.put_of(&m::CONNECTIONS, &["silo"], traffic.silos);
        samples.put_of(&m::CONNECTIONS, &["client"], traffic.clients);
        samples.put_of(&m::MESSAGES, &["sent"], traffic.messages_sent);
        samples.put_of(&m::MESSAGES, &["received"], traffic.messages_received);
        samples.put_of(&m::BYTES, &["sent"], traffic.bytes_sent);
        samples.put_of(&m::BYTES, &["received"], traffic.bytes_received);
        samples.put(&m::SEND_QUEUE, traffic.bytes_waiting);
    }

    fn tell_rest(&self, samples: &mut Samples) {
        let reminders = self.reminders.statistics();
        samples.put(&m::TIMERS, self.host.timers.len());
        samples.put(&m::REMINDERS, reminders.in_memory);
        for (outcome, count) in [
            ("delivered", reminders.delivered),
            ("failed", reminders.failed),
            ("missed", reminders.missed),
        ] {
            samples.put_of(&m::REMINDERS_FIRED, &[outcome], count);
        }
        let load = self.cluster.placing.load.reported();
        if let Some(cpu) = load.cpu {
            samples.put(&m::CPU, u32::from(cpu));
        }
        if let Some(memory) = load.memory {
            samples.put(&m::MEMORY, u32::from(memory));
        }
        if let Some(bytes) = self.memory_bytes() {
            samples.put(&m::MEMORY_BYTES, bytes);
        }
    }
}
