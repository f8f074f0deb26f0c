//! Latencies in buckets: a bounded size however many calls are recorded.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets for each doubling of the value: a bucket is at most 1/32 of its value wide.
const STEPS: u64 = 32;
const STEPS_LOG: u32 = STEPS.trailing_zeros();
/// Enough for any number of nanoseconds below 2^42 (more than an hour); longer ones are counted as
/// that.
const BUCKETS: usize = (STEPS as usize) * 38;

/// See the module.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    most_ns: u64,
}

/// What is told of many latencies, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of them are at most this.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1,000.
    pub p999: u64,
    /// The longest.
    pub most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Box::new([0; BUCKETS]), count: 0, most_ns: 0 }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.most_ns = self.most_ns.max(ns);
    }

    /// Adds everything that `other` counted.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.most_ns = self.most_ns.max(other.most_ns);
    }

    /// How many were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The least value that `per_mille` of 1,000 latencies do not exceed, to 1/32 of it; 0 when
    /// there are none.
    pub fn per_mille(&self, per_mille: u64) -> u64 {
        let wanted = (self.count * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return highest(at).min(self.most_ns);
            }
        }
        self.most_ns
    }

    /// What is usually told; none when nothing was counted.
    pub fn quantiles(&self) -> Option<Quantiles> {
        (self.count > 0).then(|| Quantiles {
            p50: self.per_mille(500),
            p99: self.per_mille(990),
            p999: self.per_mille(999),
            most: self.most_ns,
        })
    }
}

/// Values below `STEPS` have a bucket each; above, every doubling has `STEPS` of them.
fn bucket(ns: u64) -> usize {
    let doubling = (u64::BITS - ns.leading_zeros()).saturating_sub(STEPS_LOG + 1);
    let at = u64::from(doubling) * STEPS + (ns >> doubling);
    usize::try_from(at).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The largest value that bucket `at` counts.
fn highest(at: usize) -> u64 {
    let at = at as u64;
    let doubling = (at / STEPS).saturating_sub(1);
    ((at - doubling * STEPS + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_a_bucket_no_wider_than_a_thirtysecond_of_it() {
        for ns in (0..5_000).chain([65_535, 65_536, 1_000_000_007, (1 << 41) + 12_345]) {
            let at = bucket(ns);
            let low = if at == 0 { 0 } else { highest(at - 1) + 1 };
            assert!(
                low <= ns && ns <= highest(at),
                "{ns}: bucket {at} is {low} to {}",
                highest(at)
            );
            assert!(highest(at) - low <= ns / STEPS, "{ns}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        let mut one = Histogram::default();
        let mut other = Histogram::default();
        for us in 1..=1_000u64 {
            (if us % 2 == 0 { &mut one } else { &mut other }).record(Duration::from_micros(us));
        }
        one.add(&other);
        let told = one.quantiles().unwrap();
        for (got, wanted) in [(told.p50, 500_000), (told.p99, 990_000), (told.p999, 999_000)] {
            assert!(got >= wanted && got <= wanted + wanted / STEPS, "{got} for {wanted}");
        }
        assert_eq!((told.most, one.count()), (1_000_000, 1_000));
        assert_eq!(Histogram::default().quantiles(), None);
    }
}
