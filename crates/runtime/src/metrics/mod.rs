//! The counters of a silo, and their values as metrics.

mod blocking;
mod hot;
mod latency;
pub(crate) mod list;
mod lives;
mod methods;
pub(crate) mod resources;
pub(crate) mod sample;
mod states;
pub(crate) mod statistics;
pub(crate) mod store;
pub(crate) mod threads;
mod watcher;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::blocking::{BLOCKING_MIN, Outer, Watch};
pub(crate) use self::hot::{Counted, HotGrains};
pub use self::latency::Latency;
pub use self::list::{METRICS, Metric, MetricKind};
pub(crate) use self::lives::{LifeMetrics, LifeStatistics};
pub use self::methods::Ended;
pub(crate) use self::methods::MethodMetrics;
pub use self::methods::MethodStatistics;
pub use self::sample::{MetricValue, Sample};
use self::states::StateMetrics;
pub(crate) use self::states::StateOperation;
pub(crate) use self::store::Ended as StateEnded;
use self::threads::Counter;
pub(crate) use self::threads::name_of as name_of_thread;
pub(crate) use self::watcher::{Watched, watch};

/// The counters of one silo. All but the gauges only grow.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    calls_received: Counter,
    calls_forwarded: AtomicU64,
    refused: AtomicU64,
    one_ways_failed: AtomicU64,
    /// Turns waiting for their grain. Touched only by those that have to wait.
    waiting: AtomicU64,
    /// Turns that hold their thread.
    pub(crate) watch: Watch,
    /// Grains that are called most, while an operator looks.
    pub(crate) hot: HotGrains,
    /// Counts of requests of grains to their states.
    pub(crate) states: StateMetrics,
}

impl Metrics {
    pub(crate) fn call_received(&self) {
        self.calls_received.add(1);
    }

    pub(crate) fn call_forwarded(&self) {
        self.calls_forwarded.fetch_add(1, Ordering::Relaxed);
    }

    /// A one-way call has failed on this silo.
    pub(crate) fn one_way_failed(&self) {
        self.one_ways_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of one-way calls that have failed on this silo.
    pub(crate) fn one_ways_failed(&self) -> u64 {
        self.one_ways_failed.load(Ordering::Relaxed)
    }

    /// A call was refused because of a limit.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a turn that waits until the result is dropped.
    pub(crate) fn wait(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(&self.waiting)
    }

    pub(crate) fn snapshot(&self) -> SiloStatistics {
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        SiloStatistics {
            calls_received: self.calls_received.get(),
            calls_forwarded: get(&self.calls_forwarded),
            calls_refused: get(&self.refused),
            turns_waiting: get(&self.waiting),
            turns_blocking: self.watch.blocking(),
            ..SiloStatistics::default()
        }
    }
}

/// One waiting turn.
pub(crate) struct Waits<'a>(&'a AtomicU64);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A silo's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SiloStatistics {
    /// Activations in memory now.
    pub activations: u64,
    /// Number of activations that were called within the last ten minutes, as of the last load
    /// report.
    pub activations_busy: u64,
    /// A number that stands for the types that it hosts: the same on silos that host the same.
    pub hosted: u64,
    /// Use of the processors in percent, as of the last load report; none where that is not
    /// measured.
    pub cpu_percent: Option<u8>,
    /// Use of the memory in percent, as of the last load report; none where that is not measured.
    pub memory_percent: Option<u8>,
    /// Grains whose place this silo's part of the directory knows now.
    pub registrations: u64,
    /// Activations since the start.
    pub activated: u64,
    /// Deactivations since the start.
    pub deactivated: u64,
    /// Grains that came from other silos since the start.
    pub arrived: u64,
    /// Grains that left for other silos since the start.
    pub left: u64,
    /// Calls that came over connections since the start.
    pub calls_received: u64,
    /// Calls passed on to another silo since the start.
    pub calls_forwarded: u64,
    /// Turns started since the start: the sum of every method's calls.
    pub turns: u64,
    /// Calls refused since the start because a limit was reached.
    pub calls_refused: u64,
    /// Turns waiting for their grain now; each grain's part is in [`GrainQueue`].
    pub turns_waiting: u64,
    /// Turns since the start that held their thread for 100 ms without a suspension; the log names
    /// their methods.
    pub turns_blocking: u64,
    /// Calls this silo has sent over connections and waits for now.
    pub calls_in_flight: u64,
    /// Calls of others that are under way here now and were not answered at once.
    pub calls_serving: u64,
    /// Bytes that clients make this silo hold now: arguments of calls that are not over, and
    /// answers that are not read.
    pub client_bytes: u64,
    /// Timers that wait for their next tick now.
    pub timers: u64,
    /// Reminders in memory now: those that this silo fires and that are due soon.
    pub reminders: u64,
    /// Ticks of reminders that this silo delivered since the start.
    pub reminders_fired: u64,
    /// Ticks since the start that failed, each try.
    pub reminders_failed: u64,
    /// Occurrences that were missed, or given up, as ticks told since the start.
    pub reminders_missed: u64,
}

/// The calls that wait for one grain.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct GrainQueue {
    /// The name of the grain's type.
    pub grain_type: String,
    /// The grain's key.
    pub key: emmer_core::GrainKey,
    /// Number of calls that wait for their turn.
    pub waiting: u32,
}
