//! Counts that grow, as rates and latencies of the last moment.

use std::collections::HashMap;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_runtime::MethodStatistics;

use crate::picture::MethodRow;

/// The growth of a count in a second. A count that has shrunk began again.
pub(crate) fn per_second(before: Option<u64>, now: u64, span: Duration) -> f64 {
    let Some(before) = before.filter(|_| !span.is_zero()) else { return 0.0 };
    let grown = if now >= before { now - before } else { now };
    share(grown) / span.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "for people, who read three digits")]
pub(crate) fn share(count: u64) -> f64 {
    count as f64
}

/// Durations by the upper end of their bucket, in rising order.
type Buckets = Vec<(u64, u64)>;

/// The buckets of `now` without those of `before`.
fn newer(before: Option<&Buckets>, now: &Buckets) -> Buckets {
    let Some(before) = before else { return Vec::new() };
    let old: HashMap<u64, u64> = before.iter().copied().collect();
    let left = now.iter().map(|(end, n)| (*end, n.saturating_sub(*old.get(end).unwrap_or(&0))));
    left.filter(|(_, n)| *n > 0).collect()
}

/// The end of the bucket in which the share `quantile` of all is reached.
pub(crate) fn quantile(buckets: &Buckets, quantile: f64) -> Option<u64> {
    let all: u64 = buckets.iter().map(|(_, n)| n).sum();
    let wanted = (share(all) * quantile).max(1.0);
    let mut seen = 0;
    buckets.iter().find_map(|(end, n)| {
        seen += n;
        (share(seen) >= wanted).then_some(*end)
    })
}

fn merge(all: &mut Buckets, more: &Buckets) {
    for (end, n) in more {
        match all.binary_search_by_key(end, |(end, _)| *end) {
            Ok(at) => all[at].1 += n,
            Err(at) => all.insert(at, (*end, *n)),
        }
    }
}

/// Counts of one method on one silo at the picture before.
struct Before {
    calls: u64,
    own_errors: u64,
    failures: u64,
    buckets: Buckets,
}

/// A method on one silo.
type Key = (SiloAddress, String, String);

/// The methods of all silos.
#[derive(Default)]
pub(crate) struct Methods {
    before: HashMap<Key, Before>,
}

#[derive(Default)]
struct Sum {
    row: MethodRow,
    new: Buckets,
    all: Buckets,
}

impl Methods {
    /// The rows of all methods, from what each silo counts now, `span` after the last time.
    pub(crate) fn rows(
        &mut self,
        told: Vec<(SiloAddress, Vec<MethodStatistics>)>,
        span: Duration,
    ) -> Vec<MethodRow> {
        let (mut sums, mut now) = (HashMap::<(String, String), Sum>::new(), HashMap::new());
        for (silo, methods) in told {
            for method in methods {
                let key = (silo, method.grain_type.clone(), method.method.clone());
                let before = self.before.get(&key);
                let sum = sums.entry((key.1.clone(), key.2.clone())).or_default();
                let rate = |of: fn(&Before) -> u64, now| per_second(before.map(of), now, span);
                sum.row.calls_per_second += rate(|before| before.calls, method.calls);
                sum.row.own_errors_per_second +=
                    rate(|before| before.own_errors, method.own_errors);
                sum.row.failures_per_second += rate(|before| before.failures, method.failures);
                sum.row.calls += method.calls;
                let buckets = method.latency.buckets;
                merge(&mut sum.new, &newer(before.map(|before| &before.buckets), &buckets));
                merge(&mut sum.all, &buckets);
                let (calls, own_errors, failures) =
                    (method.calls, method.own_errors, method.failures);
                now.insert(key, Before { calls, own_errors, failures, buckets });
            }
        }
        self.before = now;
        let time = |sum: &Sum| -> f64 {
            let buckets = if sum.new.is_empty() { &sum.all } else { &sum.new };
            let samples: u64 = buckets.iter().map(|(_, n)| n).sum();
            let nanos: f64 = buckets.iter().map(|(end, n)| share(*end) * share(*n)).sum();
            if samples == 0 { 0.0 } else { nanos / share(samples) * sum.row.calls_per_second }
        };
        let total: f64 = sums.values().map(&time).sum();
        let mut rows: Vec<MethodRow> = sums
            .into_iter()
            .map(|((grain_type, method), sum)| {
                let own = time(&sum);
                let buckets = if sum.new.is_empty() { sum.all } else { sum.new };
                MethodRow {
                    grain_type,
                    method,
                    p50_ns: quantile(&buckets, 0.5),
                    p99_ns: quantile(&buckets, 0.99),
                    buckets,
                    share: if total > 0.0 { own / total } else { 0.0 },
                    ..sum.row
                }
            })
            .collect();
        rows.sort_by(|a, b| (&a.grain_type, &a.method).cmp(&(&b.grain_type, &b.method)));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_growth_in_a_second_and_begins_again_with_a_silo() {
        let span = Duration::from_secs(2);
        let rates = [(None, 10), (Some(4), 10), (Some(10), 6)].map(|(b, n)| per_second(b, n, span));
        assert_eq!(rates, [0.0, 3.0, 3.0]);
        assert_eq!(per_second(Some(1), 2, Duration::ZERO).to_bits(), 0);
    }

    #[test]
    fn latencies_are_those_of_the_last_moment() {
        let before = vec![(64, 100), (128, 1)];
        let now = vec![(64, 100), (128, 2), (1_024, 99)];
        let new = newer(Some(&before), &now);
        assert_eq!(new, [(128, 1), (1_024, 99)]);
        assert_eq!((quantile(&new, 0.5), quantile(&new, 0.01)), (Some(1_024), Some(128)));
        assert_eq!(quantile(&newer(None, &now), 0.5), None);
        let mut sum = vec![(64, 1)];
        merge(&mut sum, &vec![(32, 2), (64, 3)]);
        assert_eq!(sum, [(32, 2), (64, 4)]);
    }
}
