//! A histogram of durations with buckets that grow by a quarter of a power of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets for each power of two.
const STEPS: u64 = 4;
/// Durations below 2^6 ns share the first bucket.
const FIRST_POWER: u32 = 6;
/// Durations of 2^38 ns (4.6 minutes) and more share the last.
const LAST_POWER: u32 = 38;
const BUCKETS: usize = ((LAST_POWER - FIRST_POWER) as usize) * STEPS as usize + 2;

/// The bucket of `nanos`.
fn bucket(nanos: u64) -> usize {
    let power = nanos.max(1).ilog2();
    if power < FIRST_POWER {
        return 0;
    }
    let step = (nanos >> (power - 2)) & (STEPS - 1);
    let at = u64::from(power - FIRST_POWER) * STEPS + step + 1;
    usize::try_from(at).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The first duration, in nanoseconds, that is too long for the bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket == 0 {
        return 1 << FIRST_POWER;
    }
    let at = bucket as u64 - 1;
    let power = FIRST_POWER + u32::try_from(at / STEPS).unwrap_or(LAST_POWER);
    (1 << power) + (at % STEPS + 1) * (1 << (power - 2))
}

/// Counts durations; shared by all threads, because only samples reach it.
#[derive(Debug)]
pub(super) struct Histogram(Box<[AtomicU64]>);

impl Default for Histogram {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Histogram {
    pub(super) fn record(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(cell) = self.0.get(bucket(nanos)) {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn snapshot(&self) -> Latency {
        let counts = self.0.iter().map(|cell| cell.load(Ordering::Relaxed));
        let buckets =
            counts.enumerate().filter(|(_, n)| *n > 0).map(|(at, n)| (end_of(at), n)).collect();
        Latency { buckets }
    }
}

/// Durations of sampled calls, as a histogram: exact to a quarter of the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// For each non-empty bucket, in rising order: its upper end in nanoseconds, and its number of
    /// samples.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// Number of sampled calls.
    pub fn samples(&self) -> u64 {
        self.buckets.iter().map(|(_, n)| n).sum()
    }

    /// The duration that the share `quantile` (0 to 1) of the samples does not exceed; none without
    /// samples.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let all = self.samples();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count"
        )]
        let wanted = ((quantile.clamp(0.0, 1.0) * all as f64).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets.iter().find_map(|(end, n)| {
            seen += n;
            (seen >= wanted).then(|| Duration::from_nanos(*end))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_below_its_buckets_end_by_at_most_a_quarter() {
        let mut last = 0;
        for nanos in (0..40).flat_map(|p| [1u64 << p, (1 << p) + (1 << p) / 3, (2 << p) - 1]) {
            let at = bucket(nanos);
            assert!(at >= last || nanos.count_ones() == 1, "{nanos}");
            last = at;
            if (1 << FIRST_POWER..1 << LAST_POWER).contains(&nanos) {
                let end = end_of(at);
                assert!(
                    nanos < end && end - nanos <= nanos / 4 + 1,
                    "{nanos} in a bucket up to {end}"
                );
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_read_off_the_buckets() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        (0..99).for_each(|_| histogram.record(Duration::from_micros(1)));
        histogram.record(Duration::from_millis(1));
        let latency = histogram.snapshot();
        let at = |q| latency.quantile(q).unwrap().as_nanos();
        assert_eq!(latency.samples(), 100);
        assert!((1_000..=1_250).contains(&at(0.5)) && at(0.99) == at(0.5), "{latency:?}");
        assert!((1_000_000..=1_250_000).contains(&at(1.0)), "{latency:?}");
    }
}
