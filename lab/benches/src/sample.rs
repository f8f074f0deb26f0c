//! Measurements of one contender's run.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::Quantiles;

/// The name of the number of bytes for each grain.
pub const BYTES_EACH: &str = "bytes each";

/// The name of the number of calls that were refused for too much work, and made again.
pub const REFUSED: &str = "refused and made again";

/// The name of the longest time for which the fence of one silo was shut, in milliseconds.
pub const FENCE_SHUT: &str = "fence shut ms";

/// The name of the time by which the latest probe or answer to one was late, in milliseconds.
pub const LATEST_PROBE: &str = "latest probe ms";

/// One measurement of one contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the measurement, such as `64 callers, 1 grain`.
    pub what: String,
    /// Name of the contender, such as `emmer`.
    pub contender: String,
    /// Number of threads that each runtime had.
    pub threads: usize,
    /// Number of operations.
    pub operations: u64,
    /// Time that they took, in nanoseconds.
    pub wall_ns: u64,
    /// The processor time they took in all processes, in nanoseconds.
    pub cpu_ns: u64,
    /// Of that, in the serving process.
    pub server_cpu_ns: u64,
    /// Time that single operations took, where that was measured.
    pub latency: Option<Quantiles>,
    /// Numbers that only some scenarios have.
    #[serde(default)]
    pub more: BTreeMap<String, f64>,
}

impl Sample {
    /// A sample of `operations` that took this wall and processor time.
    pub fn new(what: &str, contender: &str, threads: usize, operations: u64) -> Self {
        Self {
            what: what.to_owned(),
            contender: contender.to_owned(),
            threads,
            operations,
            ..Self::default()
        }
    }

    /// With these times.
    #[must_use]
    pub fn taking(mut self, (wall, cpu): (Duration, Duration)) -> Self {
        self.wall_ns = nanos(wall);
        self.cpu_ns = nanos(cpu);
        self
    }

    /// With one more number.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Processor time for each operation, in nanoseconds.
    pub fn cpu_each(&self) -> f64 {
        ratio(self.cpu_ns, self.operations)
    }

    /// Wall time for each operation, in nanoseconds.
    pub fn wall_each(&self) -> f64 {
        ratio(self.wall_ns, self.operations)
    }

    /// The median latency in nanoseconds; 0 where none was measured.
    pub fn p50(&self) -> f64 {
        self.latency.map_or(0.0, |latency| ratio(latency.p50, 1))
    }

    /// Operations in a second of wall time.
    pub fn per_second(&self) -> f64 {
        ratio(self.operations, self.wall_ns) * 1e9
    }
}

/// Nanoseconds as a whole number.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// `above / below`, and nothing when that is nothing.
#[expect(clippy::cast_precision_loss, reason = "measured numbers are not that exact")]
pub(crate) fn ratio(above: u64, below: u64) -> f64 {
    if below == 0 { 0.0 } else { above as f64 / below as f64 }
}

/// The middle, the least and the most of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of the two.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The median of `numbers`; None when there are none.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[half]
        } else {
            f64::midpoint(sorted[half - 1], sorted[half])
        };
        Some(Self { median, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_and_rates() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((spread.median, spread.least, spread.most), (2.5, 1.0, 10.0));
        assert_eq!(Spread::of([]), None);
        let sample = Sample::new("x", "emmer", 1, 500)
            .taking((Duration::from_micros(100), Duration::from_micros(50)));
        assert!(
            (sample.cpu_each() - 100.0).abs() < 1e-9 && (sample.per_second() - 5e6).abs() < 1e-3
        );
    }
}
