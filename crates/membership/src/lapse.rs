//! Spans of time on two clocks that run at different rates.

use std::time::Duration;

/// By how many percent one silo's clock may run faster than another's.
pub const CLOCK_RATE_PERCENT: u32 = 2;

/// Time for which the code of a turn may run between its look at the fence and its next wait.
pub const POLL_GRACE: Duration = Duration::from_millis(50);

/// The longest time by this silo's clock that `span` can take by another silo's clock.
pub(crate) fn lapse(span: Duration) -> Duration {
    if span.is_zero() {
        span
    } else {
        span.saturating_mul(100 + CLOCK_RATE_PERCENT) / 100 + POLL_GRACE
    }
}
