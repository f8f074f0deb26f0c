//! The process's clocks as the runtime uses them: one exact, one coarse and nearly free.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use emmer_core::{Instant, Now, Timestamp};

/// How often deadlines are looked at, and so how exact call timeouts are (with the coarse clock's own 1 to 10 ms).
pub(crate) const COARSE_TICK: Duration = Duration::from_millis(5);

/// How far the coarse clock may lag behind the exact one: ten milliseconds with the slowest kernel tick in use, and
/// as much again.
pub(crate) const COARSE_LAG: Duration = Duration::from_millis(20);

/// Milliseconds since the clock was made, by the kernel's coarse clock: good enough for deadlines and idle times,
/// and a few nanoseconds to read. It goes on while the process is stopped, so that whoever wakes up late knows it
/// before the first turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CoarseInstant(u64);

impl CoarseInstant {
    /// Later than any other.
    pub(crate) const LAST: Self = Self(u64::MAX);

    pub(crate) const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub(crate) fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1)))
    }

    /// Time left until this instant; zero when it has passed.
    pub(crate) const fn left(self, now: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now.0))
    }

    /// Time left until this instant as requests carry it: milliseconds, at least 1, because 0 says that there is no
    /// deadline.
    pub(crate) fn left_on_wire(self, now: Self) -> u32 {
        u32::try_from(self.left(now).as_millis()).unwrap_or(u32::MAX).max(1)
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

/// Until when a call may take: a moment, or a span that begins when somebody first needs to know. A call that is over
/// before it ever waits does so without a look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due(u64);

/// Set when the rest is a span.
const SPAN: u64 = 1 << 63;

impl Due {
    /// At `at`.
    pub(crate) const fn at(at: CoarseInstant) -> Self {
        Self(if at.0 < SPAN { at.0 } else { SPAN - 1 })
    }

    /// `span` after now, whenever that is looked at first.
    pub(crate) fn after(span: Duration) -> Self {
        let millis = span.as_secs().saturating_mul(1_000).saturating_add(u64::from(span.subsec_millis()));
        let millis = millis.clamp(1, SPAN - 1);
        Self(millis | SPAN)
    }

    /// The moment, with a span counted from `now`.
    #[inline]
    pub(crate) const fn settle(self, now: CoarseInstant) -> CoarseInstant {
        if self.0 & SPAN == 0 {
            CoarseInstant(self.0)
        } else {
            CoarseInstant(now.0.saturating_add(self.0 & !SPAN))
        }
    }
}

/// The clocks of one silo or client.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: tokio::time::Instant,
    coarse_start: u64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self { start: tokio::time::Instant::now(), coarse_start: coarse_monotonic() }
    }

    /// The coarse time.
    #[inline]
    pub(crate) fn now(&self) -> CoarseInstant {
        CoarseInstant(coarse_monotonic().saturating_sub(self.coarse_start))
    }

    /// Both exact clocks, for the state machines.
    pub(crate) fn exact(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// The exact monotonic clock.
    pub(crate) fn mono(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The exact clock as a stamp for [`since_stamp`](Self::since_stamp).
    pub(crate) fn stamp(&self) -> NonZeroU64 {
        NonZeroU64::new(self.mono().as_nanos()).unwrap_or(NonZeroU64::MIN)
    }

    /// How long ago a stamp was taken.
    pub(crate) fn since_stamp(&self, stamp: NonZeroU64) -> Duration {
        Duration::from_nanos(self.mono().as_nanos().saturating_sub(stamp.get()))
    }

    /// The tokio instant of a machine's instant.
    pub(crate) fn tokio_at(&self, at: Instant) -> tokio::time::Instant {
        self.start + Duration::from_nanos(at.as_nanos())
    }

    /// Waits until a machine's timeout; for ever when it has none.
    pub(crate) async fn sleep_until(&self, due: Option<Instant>) {
        match due {
            Some(due) => tokio::time::sleep_until(self.tokio_at(due)).await,
            None => std::future::pending().await,
        }
    }

    /// The tokio instant of a coarse one.
    pub(crate) fn tokio_at_coarse(&self, at: CoarseInstant) -> tokio::time::Instant {
        // Thirty years are for ever, and an instant that is too far away would panic.
        self.start + Duration::from_millis(at.as_millis().min(1_000_000_000_000))
    }
}

/// The kernel's monotonic clock as of its last tick, in milliseconds.
#[cfg(target_os = "linux")]
#[inline]
fn coarse_monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    // Neither is ever negative.
    time.tv_sec.cast_unsigned() * 1_000 + time.tv_nsec.cast_unsigned() / 1_000_000
}

/// Where the kernel has no coarse clock, the exact one since the first call.
#[cfg(not(target_os = "linux"))]
fn coarse_monotonic() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let since = START.get_or_init(std::time::Instant::now).elapsed();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_from_when_it_is_looked_at_and_a_moment_does_not() {
        let (start, later) = (CoarseInstant(1_000), CoarseInstant(5_000));
        assert_eq!(Due::at(start).settle(later), start);
        assert_eq!(Due::after(Duration::from_millis(7)).settle(later), CoarseInstant(5_007));
        assert!(Due::after(Duration::MAX).settle(later) > later);
        assert_eq!(Due::at(CoarseInstant(u64::MAX)).settle(later), CoarseInstant(SPAN - 1));
    }
}
