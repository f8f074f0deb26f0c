//! Latencies: a bounded size however many calls are recorded.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Number of digits by which values differ.
const DIGITS: u8 = 2;
/// The longest latency that is distinguished from longer ones, in nanoseconds: an hour.
const MOST_NS: u64 = 3_600_000_000_000;

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// The usual shares of many latencies, in nanoseconds.
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
    #[expect(clippy::expect_used, reason = "it fails for other constants only")]
    fn default() -> Self {
        let made = hdrhistogram::Histogram::new_with_bounds(1, MOST_NS, DIGITS);
        Self(made.expect("an hour in two digits"))
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds everything that `other` counted.
    pub fn add(&mut self, other: &Self) {
        // The other one has the same bounds, so it fits.
        let _ = self.0.add(&other.0);
    }

    /// The number of latencies that were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The usual quantiles; none when nothing was counted.
    pub fn quantiles(&self) -> Option<Quantiles> {
        (!self.0.is_empty()).then(|| Quantiles {
            p50: self.0.value_at_quantile(0.5),
            p99: self.0.value_at_quantile(0.99),
            p999: self.0.value_at_quantile(0.999),
            most: self.0.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        let mut one = Histogram::default();
        let mut other = Histogram::default();
        for us in 1..=1_000u64 {
            (if us % 2 == 0 { &mut one } else { &mut other }).record(Duration::from_micros(us));
        }
        one.add(&other);
        let told = one.quantiles().unwrap();
        let wanted = [500_000, 990_000, 999_000, 1_000_000];
        for (got, wanted) in [told.p50, told.p99, told.p999, told.most].into_iter().zip(wanted) {
            assert!(got >= wanted && got <= wanted + wanted / 100, "{got} for {wanted}");
        }
        assert_eq!(one.count(), 1_000);
        assert_eq!(Histogram::default().quantiles(), None);
        one.record(Duration::MAX);
        assert_eq!(one.count(), 1_001);
    }
}
