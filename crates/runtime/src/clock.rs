//! The process's clocks as the runtime uses them: one exact, one coarse and nearly free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use emmer_core::{Instant, Now, Timestamp};

/// How often the coarse clock moves, and so how exact call deadlines are.
pub(crate) const COARSE_TICK: Duration = Duration::from_millis(5);

/// Milliseconds since the clock was made, as of the last tick: good enough for deadlines and idle times, and
/// one load instead of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CoarseInstant(u64);

impl CoarseInstant {
    pub(crate) fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1)))
    }

    /// Time left until this instant; zero when it has passed.
    pub(crate) const fn left(self, now: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now.0))
    }

    /// The low 32 bits of the milliseconds, for wrapping differences (49 days).
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    pub(crate) const fn as_wrapping_millis(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn as_millis(self) -> u64 {
        self.0
    }
}

/// The clocks of one silo or client.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
    coarse: Arc<AtomicU64>,
}

impl Clock {
    /// A clock that starts now; [`tick`](Self::tick) must be driven.
    pub(crate) fn new() -> Self {
        Self { start: tokio::time::Instant::now(), coarse: Arc::new(AtomicU64::new(0)) }
    }

    /// The coarse time.
    pub(crate) fn now(&self) -> CoarseInstant {
        CoarseInstant(self.coarse.load(Ordering::Relaxed))
    }

    /// Both exact clocks, for the state machines.
    pub(crate) fn exact(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// The exact monotonic clock.
    pub(crate) fn mono(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The tokio instant of a machine's instant.
    pub(crate) fn tokio_at(&self, at: Instant) -> tokio::time::Instant {
        self.start + Duration::from_nanos(at.as_nanos())
    }

    /// The tokio instant of a coarse one.
    pub(crate) fn tokio_at_coarse(&self, at: CoarseInstant) -> tokio::time::Instant {
        self.start + Duration::from_millis(at.as_millis())
    }

    /// Moves the coarse clock; called by one task every [`COARSE_TICK`].
    pub(crate) fn tick(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.coarse.store(millis, Ordering::Relaxed);
    }
}

/// The wall clock.
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The wall clock in microseconds since 1970: the epoch of a silo that starts now.
pub(crate) fn epoch_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
