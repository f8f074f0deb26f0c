//! Seeded randomness: a state machine's random choices replay exactly from its seed.

use std::time::Duration;

use rand::{RngExt, SeedableRng};

/// The generator every sans-IO state machine uses. Small, fast, and the same on every platform.
#[derive(Clone, Debug)]
pub struct SeededRng(rand_pcg::Pcg64Mcg);

impl SeededRng {
    /// The generator that grows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(rand_pcg::Pcg64Mcg::seed_from_u64(seed))
    }

    /// A whole number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// An index into a list of `len` elements; 0 when it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.random()
    }

    /// Returns true if an event of `probability` (0 to 1) happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A duration in `[0, bound)`; zero when `bound` is zero.
    pub fn duration_below(&mut self, bound: Duration) -> Duration {
        Duration::from_nanos(self.below(u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Puts `items` into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_choices() {
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            [rng.below(1000), rng.below(1000), rng.bits()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn empty_bounds_do_not_panic() {
        let mut rng = SeededRng::new(1);
        assert_eq!(
            (rng.below(0), rng.index(0), rng.duration_below(Duration::ZERO)),
            (0, 0, Duration::ZERO)
        );
    }
}
