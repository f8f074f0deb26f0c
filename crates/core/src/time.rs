//! Time as a value: nothing in a sans-IO crate reads a clock, the shell passes the time in.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on one process's monotonic clock, in nanoseconds since an arbitrary start.
///
/// Comparable only with instants of the same process. Used for every timeout: wall clocks may jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the start of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the start of the clock (saturating).
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when it lies in the future.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time instead of wrapping.
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the start of the clock.
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Length of an idle tick. Idle times are kept as 31 bits of such ticks, which is more than four
/// years.
const IDLE_TICK_MS: u64 = 64;

/// A point on one process's coarse clock: milliseconds since the clock was made. Good enough for
/// deadlines and idle times, and a few nanoseconds to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CoarseInstant(u64);

impl CoarseInstant {
    /// Later than any other.
    pub const LAST: Self = Self(u64::MAX);

    /// The instant `millis` milliseconds after the clock was made.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// The instant that comes `d` later, by a millisecond at least.
    #[inline]
    pub fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_millis()).unwrap_or(u64::MAX).max(1)))
    }

    /// Time left until this instant; zero when it has passed.
    #[inline]
    pub const fn left(self, now: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(now.0))
    }

    /// Time left until this instant as requests carry it: milliseconds, at least 1, because 0 says
    /// that there is no deadline.
    #[inline]
    pub fn left_on_wire(self, now: Self) -> u32 {
        u32::try_from(self.left(now).as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// The idle ticks until this instant, for [`idle_since`](Self::idle_since).
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    #[inline]
    pub const fn as_idle_ticks(self) -> u32 {
        (self.0 / IDLE_TICK_MS) as u32
    }

    /// Shortest time that can have passed since the idle tick `since`.
    #[inline]
    pub const fn idle_since(self, since: u32) -> Duration {
        let ticks = self.as_idle_ticks().wrapping_sub(since);
        // Another thread may have read a later clock than this one.
        let ticks = if ticks > u32::MAX / 2 { 0 } else { ticks.saturating_sub(1) };
        Duration::from_millis(ticks as u64 * IDLE_TICK_MS)
    }

    /// Milliseconds since the clock was made.
    #[inline]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

/// A wall-clock time in milliseconds since 1970-01-01 UTC, as the runtime tables store it.
///
/// Never used to decide a timeout of one's own; different machines' timestamps may disagree.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The timestamp `millis` milliseconds after 1970-01-01 UTC.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when it is not earlier.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates instead of wrapping.
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates instead of wrapping.
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds, e.g. `2026-11-21T12:44:45.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            // Beyond the calendar's last year: still printable, for a person who looks for the
            // broken row.
            Err(_) => write!(f, "{} ms since 1970", self.0),
        }
    }
}

/// The text is no timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time: expected RFC 3339 in UTC, as in 2026-11-21T12:44:45.000Z")]
pub struct ParseTimestampError(String);

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    /// Reads what [`Display`](fmt::Display) prints, and any other RFC 3339 time (cut to
    /// milliseconds).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(millis) = text.strip_suffix(" ms since 1970")
            && let Ok(millis) = millis.parse()
        {
            return Ok(Self(millis));
        }
        text.parse::<jiff::Timestamp>()
            .map(|time| Self(time.as_millisecond()))
            .map_err(|_| ParseTimestampError(text.chars().take(80).collect()))
    }
}

/// The two clocks of one process at one moment, handed to every `handle_*` of a state machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The monotonic clock: decides timeouts.
    pub mono: Instant,
    /// The wall clock: goes into tables and is compared only inside skew-proof windows.
    pub wall: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_times_are_told_for_years_and_never_too_early() {
        let day = 86_400_000;
        let idle =
            |from: u64, to: u64| CoarseInstant(to).idle_since(CoarseInstant(from).as_idle_ticks());
        for (from, to) in [(0, 1), (63, 64), (5, 2_000), (9, 60 * day), (3 * day, 1_500 * day)] {
            let (told, true_one) = (idle(from, to), Duration::from_millis(to - from));
            assert!(
                told <= true_one && true_one - told <= Duration::from_millis(2 * IDLE_TICK_MS),
                "{told:?}"
            );
        }
        assert_eq!(idle(1_000, 900), Duration::ZERO, "a clock that was read before");
    }

    #[test]
    fn timestamps_print_as_rfc_3339() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_265_085_123, "2026-11-21T12:44:45.123Z"),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
        }
    }

    #[test]
    fn timestamps_parse_as_printed() {
        for millis in [0, -1, 1_795_265_085_123, i64::MAX, i64::MIN] {
            let time = Timestamp::from_millis(millis);
            assert_eq!(time.to_string().parse(), Ok(time));
        }
        assert!("yesterday".parse::<Timestamp>().is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::from_nanos(5) - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(
            Instant::from_nanos(u64::MAX) + Duration::from_secs(1),
            Instant::from_nanos(u64::MAX)
        );
        assert_eq!(Instant::ZERO.saturating_since(Instant::from_nanos(9)), Duration::ZERO);
    }
}
