//! Random choices that are part of the comparable state.

use std::time::Duration;

use emmer_core::rng::SeededRng;

/// A seed and how often it was drawn from: two machines with equal dice choose alike, and equality
/// and hashing work, which an explicit-state model checker needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    fn draw(&mut self) -> SeededRng {
        self.drawn += 1;
        SeededRng::new(self.seed ^ self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.draw().index(len)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw().below(bound)
    }

    pub(crate) fn duration_below(&mut self, bound: Duration) -> Duration {
        self.draw().duration_below(bound)
    }

    /// Uniform in `[min, min + min * 2^attempt]`, capped at `max`: exponential backoff with jitter
    /// (membership description, "retried with exponential backoff").
    pub(crate) fn backoff(&mut self, min: Duration, max: Duration, attempt: u32) -> Duration {
        let top =
            min.saturating_add(min.saturating_mul(2u32.saturating_pow(attempt.min(20)))).min(max);
        min + self.duration_below(top.saturating_sub(min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_stays_within_its_bounds() {
        let mut dice = Dice::new(1);
        let (min, max) = (Duration::from_secs(1), Duration::from_secs(60));
        for attempt in 0..40 {
            let delay = dice.backoff(min, max, attempt);
            assert!((min..=max).contains(&delay));
        }
    }
}
