//! Virtual time, and the imperfect clocks that processes read it with.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use emmer_core::{Instant, Now, Timestamp};

/// A point in the world's own true time: nanoseconds since the world began.
///
/// A type of its own, so that the compiler keeps it apart from [`Instant`], which is what one
/// process's clock shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualTime(u64);

impl VirtualTime {
    /// The beginning of the world.
    pub const ZERO: Self = Self(0);
    /// Later than everything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// `nanos` nanoseconds after the beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// `millis` milliseconds after the beginning (saturating).
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// `secs` seconds after the beginning (saturating).
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the beginning, for reports.
    pub fn as_secs_f64(self) -> f64 {
        Duration::from_nanos(self.0).as_secs_f64()
    }

    /// Time since `earlier`; zero when that is in the future.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for VirtualTime {
    type Output = Self;

    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }
}

impl Sub<Duration> for VirtualTime {
    type Output = Self;

    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(d)))
    }
}

impl fmt::Display for VirtualTime {
    /// Seconds with microseconds, e.g. `12.034567`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format_args!("{}.{:06}", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
            .to_string();
        f.pad(&text)
    }
}

/// A duration in whole nanoseconds, saturating.
pub fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock's reading at [`VirtualTime::ZERO`] on a clock without offset.
pub const WALL_START_MS: i64 = 1_795_265_085_000;

/// One process's pair of clocks: a monotonic one that drifts, a wall clock that is off and may be
/// stepped.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// When the process started.
    started: VirtualTime,
    /// Value of its monotonic clock then: arbitrary, so that comparing two processes' instants
    /// shows up.
    mono_start: u64,
    /// Drift of both clocks, in parts per million; below zero they are slow.
    drift_ppm: i64,
    /// Offset of the wall clock, in milliseconds.
    wall_offset_ms: i64,
    /// Time for which the monotonic clock has stood still, in nanoseconds of true time, the present
    /// sleep included.
    slept: u64,
    /// Value of the monotonic clock when it last began to stand still, in nanoseconds since the
    /// process started.
    asleep_at: u64,
}

impl Clock {
    /// The clocks of a process that starts at `started`.
    pub const fn new(
        started: VirtualTime,
        mono_start: u64,
        drift_ppm: i64,
        wall_offset_ms: i64,
    ) -> Self {
        Self { started, mono_start, drift_ppm, wall_offset_ms, slept: 0, asleep_at: 0 }
    }

    /// Times of both clocks at `at`.
    pub fn now(&self, at: VirtualTime) -> Now {
        let span = at.0.saturating_sub(self.started.0);
        let awake = self.stretch(span.saturating_sub(self.slept)).max(self.asleep_at);
        let local = self.stretch(span);
        // The wall clock drifts only since the process began: before that it was set right up to
        // the offset.
        let wall_ms =
            i64::try_from((self.started.0.saturating_add(local)) / 1_000_000).unwrap_or(i64::MAX);
        Now {
            mono: Instant::from_nanos(self.mono_start.saturating_add(awake)),
            wall: Timestamp::from_millis(
                WALL_START_MS.saturating_add(wall_ms).saturating_add(self.wall_offset_ms),
            ),
        }
    }

    /// The first moment at which the monotonic clock shows `instant` or later.
    pub fn when(&self, instant: Instant) -> VirtualTime {
        let local = instant.as_nanos().saturating_sub(self.mono_start);
        let slept = if local > self.asleep_at { self.slept } else { 0 };
        if self.drift_ppm == 0 {
            return VirtualTime(self.started.0.saturating_add(local).saturating_add(slept));
        }
        let rate = i128::from(1_000_000 + self.drift_ppm).max(1);
        let span = (i128::from(local) * 1_000_000 + rate - 1) / rate;
        let mut span = u64::try_from(span).unwrap_or(u64::MAX);
        while self.stretch(span) < local && span < u64::MAX {
            span += 1;
        }
        VirtualTime(self.started.0.saturating_add(span).saturating_add(slept))
    }

    /// The monotonic clock stands still from `from` on until `until`, as it does on systems whose
    /// clock does not count the time that the machine is suspended. The wall clock continues.
    pub fn sleep(&mut self, from: VirtualTime, until: VirtualTime) {
        self.asleep_at = self.now(from).mono.as_nanos().saturating_sub(self.mono_start);
        self.slept = self.slept.saturating_add(nanos(until.since(from)));
    }

    /// Steps the wall clock by `ms` milliseconds.
    pub const fn step_wall(&mut self, ms: i64) {
        self.wall_offset_ms = self.wall_offset_ms.saturating_add(ms);
    }

    /// The epoch a process that starts now calls its own: microseconds on its wall clock.
    pub fn epoch(&self) -> u64 {
        u64::try_from(self.now(self.started).wall.as_millis()).unwrap_or(0) * 1_000
    }

    fn stretch(&self, span: u64) -> u64 {
        if self.drift_ppm == 0 {
            return span;
        }
        let drifted = i128::from(span) + i128::from(span) * i128::from(self.drift_ppm) / 1_000_000;
        u64::try_from(drifted).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_is_the_first_moment_that_shows_the_instant() {
        for ppm in [-100_000, -37, 0, 1, 250, 99_999] {
            let clock = Clock::new(VirtualTime::from_secs(3), 77, ppm, -500);
            for local in [0, 1, 999, 1_000_000_007, 86_400_000_000_000] {
                let instant = Instant::from_nanos(77 + local);
                let at = clock.when(instant);
                assert!(clock.now(at).mono >= instant, "{ppm} {local}");
                if local > 0 {
                    let just_before = VirtualTime::from_nanos(at.as_nanos() - 2);
                    assert!(clock.now(just_before).mono < instant, "{ppm} {local}");
                }
            }
        }
    }

    #[test]
    fn a_clock_that_sleeps_stands_still_and_goes_on_where_it_was() {
        for ppm in [0, 500, -500] {
            let mut clock = Clock::new(VirtualTime::from_secs(1), 77, ppm, 0);
            let before = clock.now(VirtualTime::from_secs(5));
            clock.sleep(VirtualTime::from_secs(5), VirtualTime::from_secs(65));
            let asleep = [5, 6, 64, 65].map(|at| clock.now(VirtualTime::from_secs(at)).mono);
            assert_eq!(asleep, [before.mono; 4]);
            let woken = clock.now(VirtualTime::from_secs(66));
            let lasted = woken.mono.saturating_since(before.mono);
            assert!((Duration::from_millis(999)..=Duration::from_millis(1_001)).contains(&lasted));
            assert!(woken.wall.saturating_since(before.wall) >= Duration::from_secs(60));
            let due = before.mono + Duration::from_millis(500);
            let at = clock.when(due);
            assert!(at > VirtualTime::from_secs(65) && clock.now(at).mono >= due, "{at}");
        }
    }

    #[test]
    fn wall_clocks_are_off_and_can_be_stepped() {
        let mut clock = Clock::new(VirtualTime::from_secs(1), 0, 0, 250);
        assert_eq!(
            clock.now(VirtualTime::from_secs(2)).wall,
            Timestamp::from_millis(WALL_START_MS + 2_250)
        );
        clock.step_wall(-1_000);
        assert_eq!(
            clock.now(VirtualTime::from_secs(2)).wall,
            Timestamp::from_millis(WALL_START_MS + 1_250)
        );
    }
}
