//! The process's clocks: one exact, one coarse and nearly free. Both continue while the process is
//! stopped, and while the machine sleeps.
//!
//! On Linux the exact clock is `CLOCK_BOOTTIME`. The kernel has no coarse form of it. So the coarse
//! clock is `CLOCK_MONOTONIC_COARSE`, which stands still while the machine sleeps, plus the time
//! slept so far. The coarse wall clock shows a reader that the machine has slept: the gap between
//! the two clocks has changed, and the exact clocks are read. A wall clock that a person sets looks
//! the same, and costs one such read.
//!
//! Elsewhere both are `std::time::Instant`. On macOS that clock stands still while the machine
//! sleeps.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use emmer_core::CoarseInstant;
use emmer_core::{Instant, Now, Timestamp};

use crate::elsewhere;

/// Period of looks at deadlines, and so the accuracy of call timeouts (with the coarse clock's own
/// 1 to 10 ms).
pub const COARSE_TICK: Duration = Duration::from_millis(5);

/// Longest lag of the coarse clock behind the exact one: ten milliseconds with the slowest kernel
/// tick in use, the shortest sleep that is noticed, and a little more.
pub const COARSE_LAG: Duration = Duration::from_millis(30);

/// A wait for a moment is cut into pieces of this length: timers stand still while the machine
/// sleeps.
const SLEEP_PIECE: Duration = Duration::from_millis(200);

/// End of a call's time: a moment, or a span that begins at its first check. A call that ends
/// before it ever waits never reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due(u64);

/// Set when the rest is a span.
const SPAN: u64 = 1 << 63;

impl Due {
    /// A time that does not come: that of a streaming call.
    pub const NEVER: Self = Self(SPAN - 1);

    /// Returns true for [`NEVER`](Self::NEVER).
    #[inline]
    pub const fn is_never(self) -> bool {
        self.0 == Self::NEVER.0
    }

    /// At `at`.
    #[inline]
    pub const fn at(at: CoarseInstant) -> Self {
        Self(if at.as_millis() < SPAN { at.as_millis() } else { SPAN - 1 })
    }

    /// `span` after the first check.
    #[inline]
    pub fn after(span: Duration) -> Self {
        let millis =
            span.as_secs().saturating_mul(1_000).saturating_add(u64::from(span.subsec_millis()));
        let millis = millis.clamp(1, SPAN - 1);
        Self(millis | SPAN)
    }

    /// The moment, with a span counted from `now`.
    #[inline]
    pub const fn settle(self, now: CoarseInstant) -> CoarseInstant {
        if self.0 & SPAN == 0 {
            CoarseInstant::from_millis(self.0)
        } else {
            CoarseInstant::from_millis(now.as_millis().saturating_add(self.0 & !SPAN))
        }
    }
}

/// The clocks of one silo or client. A clone shows the same.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The exact clock when this one was made, in nanoseconds.
    start: u64,
    start_millis: u64,
    coarse: Coarse,
    /// The virtual host of these clocks; none in the kernel's world.
    host: Option<elsewhere::Host>,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        let start = source::exact_nanos();
        Self {
            start,
            start_millis: start / NANOS_PER_MILLI,
            coarse: Coarse::new(),
            host: elsewhere::host(),
        }
    }

    /// Returns the fault that a virtual world gives a call of this method, if any.
    #[inline]
    pub fn fate_of_call(
        &self,
        grain_type: &'static str,
        method: &'static str,
    ) -> Option<elsewhere::CallFate> {
        let fate = self.host.as_ref()?.calls().meets(grain_type, method);
        (fate != elsewhere::CallFate::default()).then_some(fate)
    }

    /// Returns true if these are the clocks of a virtual world.
    #[inline]
    pub const fn is_virtual(&self) -> bool {
        self.host.is_some()
    }

    /// The coarse time.
    #[inline]
    pub fn now(&self) -> CoarseInstant {
        if let Some(host) = &self.host {
            return CoarseInstant::from_millis(host.clock().mono_nanos() / NANOS_PER_MILLI);
        }
        CoarseInstant::from_millis(self.coarse.millis().saturating_sub(self.start_millis))
    }

    /// Both exact clocks, for the state machines.
    pub fn exact(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    /// The exact monotonic clock.
    pub fn mono(&self) -> Instant {
        if let Some(host) = &self.host {
            return Instant::from_nanos(host.clock().mono_nanos());
        }
        Instant::from_nanos(source::exact_nanos().saturating_sub(self.start))
    }

    /// The exact clock as a stamp for [`since_stamp`](Self::since_stamp).
    #[inline]
    pub fn stamp(&self) -> NonZeroU64 {
        NonZeroU64::new(self.mono().as_nanos()).unwrap_or(NonZeroU64::MIN)
    }

    /// Time since a stamp was taken.
    #[inline]
    pub fn since_stamp(&self, stamp: NonZeroU64) -> Duration {
        Duration::from_nanos(self.mono().as_nanos().saturating_sub(stamp.get()))
    }

    /// Waits until a machine's timeout; without one it never ends.
    pub async fn sleep_until(&self, due: Option<Instant>) {
        let Some(due) = due else { return std::future::pending().await };
        loop {
            let left = due.saturating_since(self.mono());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(self.piece_of(left)).await;
        }
    }

    /// Time to sleep before the next look at the clock.
    fn piece_of(&self, left: Duration) -> Duration {
        if self.host.as_ref().is_some_and(|host| host.clock().is_true()) {
            return left;
        }
        left.min(SLEEP_PIECE)
    }

    /// The tokio instant of a coarse one, as long as the machine does not sleep.
    pub fn tokio_at_coarse(&self, at: CoarseInstant) -> tokio::time::Instant {
        // Thirty years are as good as never, and an instant that is too far away would panic.
        let left = at.left(self.now()).min(Duration::from_secs(1_000_000_000));
        tokio::time::Instant::now() + left
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;

#[cfg(target_os = "linux")]
use self::boot_time as source;
#[cfg(target_os = "linux")]
use self::boot_time::Coarse;
#[cfg(not(target_os = "linux"))]
use self::portable as source;
#[cfg(not(target_os = "linux"))]
use self::portable::Coarse;

/// Linux.
#[cfg(target_os = "linux")]
mod boot_time {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;
    use rustix::time::{ClockId, clock_gettime};

    use super::NANOS_PER_MILLI;

    /// Change of the gap between the two coarse clocks above which the machine has slept, or a
    /// person has set the wall clock. The clocks are read one after the other, with at most a tick
    /// of the kernel in between.
    const GAP_TOLERANCE_MS: u64 = 15;

    /// Number of times that the exact clocks are read again when other threads ran in between.
    const EXACT_TRIES: usize = 8;

    /// Two readings of one clock that are closer than this enclose a reading of another well
    /// enough.
    const EXACT_ENOUGH_NANOS: u64 = NANOS_PER_MILLI;

    fn nanos(clock: ClockId) -> u64 {
        let time = clock_gettime(clock);
        // Neither is ever negative.
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    }

    fn millis(clock: ClockId) -> u64 {
        let time = clock_gettime(clock);
        time.tv_sec.cast_unsigned().wrapping_mul(1_000)
            + time.tv_nsec.cast_unsigned() / NANOS_PER_MILLI
    }

    /// The exact clock, in nanoseconds since the machine started.
    pub(super) fn exact_nanos() -> u64 {
        nanos(ClockId::Boottime)
    }

    /// The time for which the machine has slept since it started, in milliseconds.
    fn slept_millis() -> u64 {
        let mut slept = 0;
        for _ in 0..EXACT_TRIES {
            let before = nanos(ClockId::Monotonic);
            let boot = exact_nanos();
            let after = nanos(ClockId::Monotonic);
            slept = boot.saturating_sub(after) / NANOS_PER_MILLI;
            if after - before < EXACT_ENOUGH_NANOS {
                break;
            }
        }
        slept
    }

    /// Last reading of a thread. It holds for every clock of the process: all count from the
    /// machine's start.
    #[derive(Clone, Copy)]
    struct Last {
        seconds: i64,
        nanos: i64,
        millis: u64,
    }

    thread_local! {
        // No clock shows these nanoseconds.
        static LAST: Cell<Last> = const { Cell::new(Last { seconds: 0, nanos: -1, millis: 0 }) };
    }

    /// The coarse clock.
    #[derive(Debug)]
    pub(super) struct Coarse {
        /// The wall clock less the monotonic one, in milliseconds, when they were last looked at.
        gap: AtomicU64,
        /// For how many milliseconds the machine had slept by then. Never shrinks.
        slept: AtomicU64,
        looking: Mutex<()>,
    }

    impl Clone for Coarse {
        fn clone(&self) -> Self {
            // In the order in which a reader of the clock reads them.
            let gap = AtomicU64::new(self.gap.load(Ordering::Acquire));
            let slept = AtomicU64::new(self.slept.load(Ordering::Relaxed));
            Self { gap, slept, looking: Mutex::new(()) }
        }
    }

    impl Coarse {
        pub(super) fn new() -> Self {
            let new =
                Self { gap: AtomicU64::new(0), slept: AtomicU64::new(0), looking: Mutex::new(()) };
            new.look(|| millis(ClockId::RealtimeCoarse), slept_millis);
            new
        }

        /// Milliseconds since the machine started. The coarse clocks move together, a tick at a
        /// time. As long as the wall clock shows the same nanosecond as at this thread's last read,
        /// no time has passed, awake or asleep.
        #[inline]
        pub(super) fn millis(&self) -> u64 {
            let wall = clock_gettime(ClockId::RealtimeCoarse);
            let last = LAST.get();
            if last.nanos == wall.tv_nsec && last.seconds == wall.tv_sec {
                return last.millis;
            }
            let millis = self.millis_by(|| millis(ClockId::RealtimeCoarse), slept_millis);
            LAST.set(Last { seconds: wall.tv_sec, nanos: wall.tv_nsec, millis });
            millis
        }

        /// As [`millis`](Self::millis), by a wall clock and a time slept of the caller's.
        #[inline]
        pub(super) fn millis_by(&self, wall: impl Fn() -> u64, slept: impl Fn() -> u64) -> u64 {
            let mono = millis(ClockId::MonotonicCoarse);
            // Read before the time slept, as it is written after it.
            let known = self.gap.load(Ordering::Acquire);
            let off = wall().wrapping_sub(mono).wrapping_sub(known).wrapping_add(GAP_TOLERANCE_MS);
            if off > 2 * GAP_TOLERANCE_MS {
                return mono + self.look(wall, slept);
            }
            mono + self.slept.load(Ordering::Relaxed)
        }

        /// Asks the exact clocks how long the machine has slept.
        #[cold]
        fn look(&self, wall: impl Fn() -> u64, slept: impl Fn() -> u64) -> u64 {
            // One at a time: an earlier reader must not overwrite a later one.
            let _one = self.looking.lock();
            let gap = wall().wrapping_sub(millis(ClockId::MonotonicCoarse));
            let slept = slept().max(self.slept.load(Ordering::Relaxed));
            self.slept.store(slept, Ordering::Relaxed);
            self.gap.store(gap, Ordering::Release);
            slept
        }
    }

    #[cfg(test)]
    mod tests {
        use std::cell::Cell;

        use super::*;

        #[test]
        fn the_coarse_clock_counts_the_time_slept_at_the_first_look_after_it() {
            let clock = Coarse::new();
            let (gap, slept) = (Cell::new(0), Cell::new(slept_millis()));
            let wall = || millis(ClockId::RealtimeCoarse) + gap.get();
            let now = || clock.millis_by(wall, || slept.get());
            let before = now();
            // An hour of sleep: the wall clock and the time slept have it, the monotonic clock does
            // not.
            gap.set(3_600_000);
            slept.set(slept.get() + 3_600_000);
            let woken = now();
            assert!(woken - before >= 3_600_000, "{before} {woken}");
            // The wall clock is set back by two hours: no time has passed by that.
            gap.set(0);
            assert!((woken..woken + 60_000).contains(&now()));
        }

        #[test]
        fn the_coarse_clock_follows_the_exact_one() {
            let clock = Coarse::new();
            let exact = || exact_nanos() / NANOS_PER_MILLI;
            let (before, coarse, after) = (exact(), clock.millis(), exact());
            let lag = u64::try_from(crate::clock::COARSE_LAG.as_millis()).unwrap_or(0);
            assert!(coarse + lag >= before && coarse <= after + 1, "{before} {coarse} {after}");
        }
    }
}

/// The clock of the standard library since the first look at it, for kernels without such clocks.
#[cfg(not(target_os = "linux"))]
mod portable {
    use std::sync::OnceLock;
    use std::time::Instant;

    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub(super) fn exact_nanos() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The coarse clock: the exact one.
    #[derive(Clone, Debug)]
    pub(super) struct Coarse;

    impl Coarse {
        pub(super) fn new() -> Self {
            Self
        }

        pub(super) fn millis(&self) -> u64 {
            exact_nanos() / super::NANOS_PER_MILLI
        }
    }
}

/// The exact clock of the process, for the log alone: of no virtual host.
pub(crate) fn of_the_log() -> Instant {
    Instant::from_nanos(source::exact_nanos())
}

/// The wall clock.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn wall() -> Timestamp {
    if let Some(host) = elsewhere::host() {
        return Timestamp::from_millis(
            i64::try_from(host.clock().wall_micros() / 1_000).unwrap_or(i64::MAX),
        );
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The wall clock in microseconds since 1970: the epoch of a silo that starts now.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn epoch_now() -> u64 {
    if let Some(host) = elsewhere::host() {
        return host.clock().wall_micros();
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_from_when_it_is_looked_at_and_a_moment_does_not() {
        let at = CoarseInstant::from_millis;
        let (start, later) = (at(1_000), at(5_000));
        assert_eq!(Due::at(start).settle(later), start);
        assert_eq!(Due::after(Duration::from_millis(7)).settle(later), at(5_007));
        assert!(Due::after(Duration::MAX).settle(later) > later);
        assert_eq!(Due::at(CoarseInstant::LAST).settle(later), at(SPAN - 1));
    }
}
