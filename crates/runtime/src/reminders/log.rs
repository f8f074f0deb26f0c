//! Ticks that fail may be many: the log has one line of them in ten seconds.

use std::time::Duration;

use emmer_core::Instant;
use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(10);

/// When the last line was written, and how many were left out since.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Seldom {
    /// Returns how many lines were left out before this one; none if this one is left out too.
    pub(crate) fn may_say(&self, now: Instant) -> Option<u64> {
        let (last, left_out) = &mut *self.0.lock();
        if last.is_some_and(|last| now.saturating_since(last) < EVERY) {
            *left_out += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_says_how_many_were_left_out() {
        let seldom = Seldom::default();
        let at = |millis| seldom.may_say(Instant::from_millis(millis));
        assert_eq!([at(0), at(1), at(9_999), at(10_000)], [Some(0), None, None, Some(2)]);
    }
}
