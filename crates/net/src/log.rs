//! Lines for an operator. A warning of one kind is written at most once in ten seconds, and then
//! says how many like it were left out.

use std::fmt::{self, Write as _};
use std::time::Duration;

use emmer_core::Instant;
use parking_lot::Mutex;

use crate::clock;

const EVERY: Duration = Duration::from_secs(10);

/// Limit on the lines of one kind: the time of the last line, and the number left out since.
#[derive(Debug)]
pub struct Seldom(Mutex<(Option<Instant>, u64)>);

impl Default for Seldom {
    fn default() -> Self {
        Self::new()
    }
}

impl Seldom {
    /// No line was written yet.
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Returns how many lines were left out before this one, if any; none if this one is left out
    /// too. By the clock of this process's log.
    pub fn may_say_now(&self) -> Option<Option<u64>> {
        self.may_say(clock::of_the_log()).map(|left_out| Some(left_out).filter(|n| *n > 0))
    }

    /// Returns the number of lines that were left out before this one; None if this one is left out
    /// too.
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

/// Writes a warning, as `tracing::warn!` does, unless one from the same place was written in the
/// last ten seconds.
#[macro_export]
macro_rules! warn_seldom {
    ($($told:tt)*) => {{
        static SELDOM: $crate::log::Seldom = $crate::log::Seldom::new();
        if let Some(left_out) = SELDOM.may_say_now() {
            tracing::warn!(left_out, $($told)*);
        }
    }};
}

/// Words of another process or of a grain, for a terminal or a log. It shows control characters as
/// text.
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| {
            if char.is_control() {
                write!(f, "{}", char.escape_default())
            } else {
                f.write_char(char)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_say_nothing_to_a_terminal() {
        let shown = Plain("no\u{1b}[2J\nnever\u{9b}").to_string();
        assert_eq!(shown, "no\\u{1b}[2J\\nnever\\u{9b}");
    }

    #[test]
    fn one_line_in_ten_seconds_says_how_many_were_left_out() {
        let seldom = Seldom::new();
        let at = |millis| seldom.may_say(Instant::from_millis(millis));
        assert_eq!([at(0), at(1), at(9_999), at(10_000)], [Some(0), None, None, Some(2)]);
    }
}
