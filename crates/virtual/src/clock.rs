//! The clocks of a host.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::WALL_START_MS;

/// Parts of a million.
const MILLION: i128 = 1_000_000;

/// The two clocks of a host. Both follow the time of the world until a test tells them otherwise.
#[derive(Debug)]
pub struct HostClock {
    start: Instant,
    rate: Mutex<Rate>,
}

/// Rate of the clocks: its start, the times that the clocks showed then, and their speed.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Nanoseconds of the world when this rate began.
    since: u64,
    /// Time that the monotonic clock showed then, in nanoseconds.
    shown: u64,
    /// By how many parts of a million the clocks are faster than the world.
    drift_ppm: i32,
    /// By how much the wall clock is ahead.
    wall_ahead_ms: i64,
}

impl HostClock {
    pub(crate) fn new(start: Instant) -> Self {
        let rate = Rate { since: 0, shown: 0, drift_ppm: 0, wall_ahead_ms: 0 };
        Self { start, rate: Mutex::new(rate) }
    }

    /// Nanoseconds since the world began, as the world counts them.
    pub fn world_nanos(&self) -> u64 {
        nanos(Instant::now() - self.start)
    }

    /// Returns true if both clocks go as fast as the world.
    pub fn is_true(&self) -> bool {
        self.rate.lock().drift_ppm == 0
    }

    /// The monotonic clock, in nanoseconds.
    pub fn mono_nanos(&self) -> u64 {
        self.at(*self.rate.lock())
    }

    fn at(&self, rate: Rate) -> u64 {
        let passed = i128::from(self.world_nanos().saturating_sub(rate.since));
        let shown = passed * (MILLION + i128::from(rate.drift_ppm)) / MILLION;
        rate.shown.saturating_add(u64::try_from(shown).unwrap_or(0))
    }

    /// The wall clock, in microseconds since 1970.
    pub fn wall_micros(&self) -> u64 {
        let rate = *self.rate.lock();
        let base = (WALL_START_MS + rate.wall_ahead_ms).saturating_mul(1_000);
        u64::try_from(base).unwrap_or(0).saturating_add(self.at(rate) / 1_000)
    }

    /// Lets both clocks go faster (or slower) than the world by `ppm` parts of a million from now
    /// on; at -1,000,000 they stand still.
    pub fn drift(&self, ppm: i32) {
        let mut rate = self.rate.lock();
        *rate = Rate {
            since: self.world_nanos(),
            shown: self.at(*rate),
            drift_ppm: ppm.max(-1_000_000),
            ..*rate
        };
    }

    /// Sets the wall clock forward by `ms` milliseconds, or back.
    pub fn set_wall_by(&self, ms: i64) {
        let mut rate = self.rate.lock();
        rate.wall_ahead_ms = rate.wall_ahead_ms.saturating_add(ms);
    }
}

pub(crate) fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
