//! The time for which a vote counts, with a name for each question that is asked of it.

use std::time::Duration;

use emmer_core::Timestamp;

use crate::config::Config;

/// The time for which a vote counts (DeathVoteExpirationTimeout), and its consequences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VoteWindow(Duration);

impl Config {
    pub(crate) const fn vote_window(&self) -> VoteWindow {
        VoteWindow(self.death_vote_expiration_timeout)
    }
}

/// Distance of two times.
fn apart(a: Timestamp, b: Timestamp) -> Duration {
    a.saturating_since(b).max(b.saturating_since(a))
}

impl VoteWindow {
    /// Returns true if a vote cast at `at` counts in a count that ends at `end`.
    pub(crate) fn counts(self, end: Timestamp, at: Timestamp) -> bool {
        end.saturating_since(at) < self.0
    }

    /// Returns true if `at` is so far ahead of `wall` that the vote would expire all others: it
    /// bears the time of a wrong clock.
    pub(crate) fn is_ahead(self, wall: Timestamp, at: Timestamp) -> bool {
        at.saturating_since(wall) >= self.0
    }

    /// Returns true if a vote in the table may still count for the clock of some writer: half a
    /// window is what clocks may be off.
    pub(crate) fn may_still_count(self, wall: Timestamp, at: Timestamp) -> bool {
        wall.saturating_since(at) < self.longest()
    }

    /// Time after which no earlier vote counts for any silo.
    pub(crate) fn longest(self) -> Duration {
        self.0 + self.0 / 2
    }

    /// Returns true if a vote in the table is young: its voter need not repeat it.
    pub(crate) fn is_young(self, wall: Timestamp, at: Timestamp) -> bool {
        apart(wall, at) < self.0 / 3
    }

    /// Returns true if a vote cast at `new` only renews one of `old`, and is not worth a version of
    /// the table.
    pub(crate) fn only_renews(self, old: Timestamp, new: Timestamp) -> bool {
        new.saturating_since(old) < self.0 / 2
    }

    /// The time of a vote that came in just now, kept close to this silo's clock: a voter with a
    /// wrong clock would otherwise expire the votes of all others, or its own.
    pub(crate) fn sane_time(self, wall: Timestamp, at: Timestamp) -> Timestamp {
        if apart(wall, at) > self.0 / 4 { wall } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_millis(secs * 1_000)
    }

    #[test]
    fn each_question_has_its_own_bound() {
        let window = VoteWindow(Duration::from_secs(120));
        assert!(window.counts(at(119), at(0)) && !window.counts(at(120), at(0)));
        assert!(
            window.counts(at(0), at(500)),
            "a count ends at the latest time that any clock shows"
        );
        assert!(!window.is_ahead(at(0), at(119)) && window.is_ahead(at(0), at(120)));
        assert!(window.may_still_count(at(179), at(0)) && !window.may_still_count(at(180), at(0)));
        assert!(window.is_young(at(0), at(39)) && !window.is_young(at(40), at(0)));
        assert!(window.only_renews(at(0), at(59)) && !window.only_renews(at(0), at(60)));
        assert_eq!(
            (window.sane_time(at(0), at(30)), window.sane_time(at(0), at(31))),
            (at(30), at(0))
        );
        assert_eq!(window.sane_time(at(31), at(0)), at(31));
    }
}
