//! Bounded retry delays: exponential with full jitter, from a seed.

use std::time::Duration;

use crate::rng::SeededRng;

/// The delays between attempts: the n-th is drawn uniformly from `[min, min + min * 2^n]`, capped
/// at `max`.
///
/// Jitter keeps competing writers from meeting again at every attempt (dotnet/orleans issue 9374 is
/// what happens without).
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    attempt: u32,
}

impl Backoff {
    /// Delays from `min` to `max`. A `max` below `min` is taken as `min`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self { min, max: max.max(min), attempt: 0 }
    }

    /// The delay before the next attempt.
    pub fn next_delay(&mut self, rng: &mut SeededRng) -> Duration {
        let spread = self.min.saturating_mul(2u32.saturating_pow(self.attempt.min(30)));
        self.attempt = self.attempt.saturating_add(1);
        let top = self.min.saturating_add(spread).min(self.max);
        self.min + rng.duration_below(top.saturating_sub(self.min))
    }

    /// Begins again at the shortest delay, after a success.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    /// Number of delays that were handed out since the last reset.
    pub const fn attempts(&self) -> u32 {
        self.attempt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_stay_within_bounds() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(2));
        let mut backoff = Backoff::new(min, max);
        let mut rng = SeededRng::new(3);
        let delays: Vec<_> = (0..100).map(|_| backoff.next_delay(&mut rng)).collect();
        assert!(delays.iter().all(|d| (min..=max).contains(d)));
        assert!(delays[0] <= min * 2 && delays[6..].iter().any(|d| *d > max / 2));
    }
}
