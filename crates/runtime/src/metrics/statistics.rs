//! Metrics as the statistics table has them: report by report.

use std::collections::HashMap;

use emmer_store::statistics::Statistic;

use super::list;
use super::sample::{MetricValue, Sample};

/// The values of a report that are not 0: levels as they are, counters and histograms as the
/// difference to `before`, the counts of the last report. Returns the counts of this report, too.
pub(crate) fn statistics_of(
    samples: &[Sample],
    before: &HashMap<String, u64>,
) -> (Vec<Statistic>, HashMap<String, u64>) {
    let (mut statistics, mut counts) = (Vec::new(), HashMap::new());
    let mut put = |name: String, value: String, is_delta| {
        statistics.push(Statistic { name: name.into(), value: value.into(), is_delta });
    };
    let mut more = |name: &str, count: u64| {
        counts.insert(name.to_owned(), count);
        count.saturating_sub(before.get(name).copied().unwrap_or(0))
    };
    // The rows say themselves who reports.
    for sample in samples.iter().filter(|sample| sample.metric.name != list::SILO_INFO.name) {
        let name = sample.title();
        match &sample.value {
            MetricValue::Count(count) => match more(&name, *count) {
                0 => {}
                new => put(name, new.to_string(), true),
            },
            MetricValue::Level(level) if *level == 0.0 => {}
            MetricValue::Level(level) => put(name, level.to_string(), false),
            MetricValue::Durations(latency) => {
                let count = format!("{name}:count");
                match more(&count, latency.samples()) {
                    0 => {}
                    new => {
                        put(count, new.to_string(), true);
                        for (quantile, word) in [(0.5, "p50"), (0.99, "p99")] {
                            let Some(time) = latency.quantile(quantile) else { continue };
                            put(format!("{name}:{word}"), time.as_secs_f64().to_string(), false);
                        }
                    }
                }
            }
        }
    }
    (statistics, counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::list as m;
    use crate::metrics::sample::Samples;

    #[test]
    fn a_report_has_what_is_new_and_leaves_zeros_out() {
        let told = |turns: u64, waiting: u64, before: &HashMap<String, u64>| {
            let mut samples = Samples::default();
            samples.put(&m::TURNS, turns);
            samples.put(&m::TURNS_WAITING, waiting);
            samples.put_of(&m::VOTES, &["cast"], 0u64);
            statistics_of(&samples.0, before)
        };
        let words = |all: Vec<Statistic>| -> Vec<String> {
            all.iter().map(|one| format!("{} {} {}", one.name, one.value, one.is_delta)).collect()
        };
        let (first, counts) = told(7, 2, &HashMap::new());
        assert_eq!(words(first), ["emmer_turns_total 7 true", "emmer_turns_waiting 2 false"]);
        let (second, counts) = told(10, 0, &counts);
        assert_eq!(words(second), ["emmer_turns_total 3 true"]);
        assert_eq!(words(told(10, 0, &counts).0), [""; 0]);
    }
}
