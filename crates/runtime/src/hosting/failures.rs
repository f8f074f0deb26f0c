//! The last failures of turns on a silo, for operators.

use std::collections::VecDeque;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_net::clock::CoarseInstant;
use parking_lot::Mutex;

/// Number of failures that are kept.
const KEPT_MAX: usize = 512;

/// Characters of the words of each.
const CHARS_MAX: usize = 300;

/// A turn that failed.
#[derive(Clone)]
pub(crate) struct FailedTurn {
    pub(crate) grain: GrainId,
    /// `Interface.method`.
    pub(crate) method: &'static str,
    pub(crate) words: String,
    pub(crate) at: CoarseInstant,
}

/// The last failures of a silo.
#[derive(Default)]
pub(crate) struct Failures(Mutex<VecDeque<FailedTurn>>);

impl Failures {
    pub(super) fn note(
        &self,
        grain: &GrainId,
        method: &'static str,
        words: &str,
        at: CoarseInstant,
    ) {
        let words = words.chars().take(CHARS_MAX).collect();
        let failed = FailedTurn { grain: grain.clone(), method, words, at };
        let mut kept = self.0.lock();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(failed);
    }

    /// The latest with the time since, at most `max`.
    pub(crate) fn latest(&self, max: usize, now: CoarseInstant) -> Vec<(FailedTurn, Duration)> {
        let kept = self.0.lock();
        kept.iter().rev().take(max).map(|failed| (failed.clone(), now.left(failed.at))).collect()
    }

    /// Those of a grain with the time since, latest first, at most `max`.
    pub(crate) fn of_grain(
        &self,
        grain: &GrainId,
        max: usize,
        now: CoarseInstant,
    ) -> Vec<(FailedTurn, Duration)> {
        let kept = self.0.lock();
        let own = kept.iter().rev().filter(|failed| failed.grain == *grain).take(max);
        own.map(|failed| (failed.clone(), now.left(failed.at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    #[test]
    fn the_last_failures_are_kept_with_short_words() {
        let failures = Failures::default();
        let grain = |n: u64| GrainId::new(GrainTypeId::of("t"), n);
        let at = CoarseInstant::from_millis;
        for n in 0..1_000 {
            failures.note(&grain(n % 10), "I.m", &"ö".repeat(1_000), at(n));
        }
        let found = failures.of_grain(&grain(9), 3, at(1_000));
        let ago: Vec<_> = found.iter().map(|(_, ago)| ago.as_millis()).collect();
        assert_eq!(ago, [1, 11, 21]);
        assert_eq!(found[0].0.words.chars().count(), CHARS_MAX);
        assert!(failures.of_grain(&grain(9), 1_000, at(1_000)).len() <= KEPT_MAX / 10 + 1);
    }
}
