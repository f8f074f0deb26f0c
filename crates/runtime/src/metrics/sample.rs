//! The values of metrics at one moment.

use super::Latency;
use super::list::{Metric, MetricKind};

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(f64),
    /// Of a histogram.
    Durations(Latency),
}

/// A metric with the values of its labels.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The metric.
    pub metric: &'static Metric,
    /// The values of its labels, in the order of [`Metric::labels`].
    pub labels: Vec<String>,
    /// The value.
    pub value: MetricValue,
}

impl Sample {
    /// The name with its labels, as `emmer_membership_silos{status="Active"}`.
    pub fn title(&self) -> String {
        let Self { metric, labels, .. } = self;
        if labels.is_empty() {
            return metric.name.to_owned();
        }
        let pairs = metric.labels.iter().zip(labels).map(|(name, value)| {
            format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
        });
        format!("{}{{{}}}", metric.name, pairs.collect::<Vec<_>>().join(","))
    }
}

/// Takes values in, each with its metric.
#[derive(Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

impl Samples {
    /// A counter or a gauge without labels.
    pub(crate) fn put(&mut self, metric: &'static Metric, value: impl Number) {
        self.put_of(metric, &[], value);
    }

    /// A counter or a gauge with these values of its labels.
    pub(crate) fn put_of(&mut self, metric: &'static Metric, labels: &[&str], value: impl Number) {
        let value = match metric.kind {
            MetricKind::Counter => MetricValue::Count(value.count()),
            MetricKind::Gauge | MetricKind::Histogram => MetricValue::Level(value.level()),
        };
        self.add(metric, labels, value);
    }

    pub(crate) fn durations(&mut self, metric: &'static Metric, labels: &[&str], value: Latency) {
        self.add(metric, labels, MetricValue::Durations(value));
    }

    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: MetricValue) {
        debug_assert_eq!(metric.labels.len(), labels.len(), "{}", metric.name);
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        self.0.push(Sample { metric, labels, value });
    }
}

/// A number that a metric can show: as a count, or as a level.
pub(crate) trait Number: Copy {
    fn count(self) -> u64;

    fn level(self) -> f64 {
        // Levels beyond 2^53 lose their last digits.
        self.count() as f64
    }
}

impl Number for u64 {
    fn count(self) -> u64 {
        self
    }
}

impl Number for usize {
    fn count(self) -> u64 {
        self as u64
    }
}

impl Number for u32 {
    fn count(self) -> u64 {
        u64::from(self)
    }
}

impl Number for bool {
    fn count(self) -> u64 {
        u64::from(self)
    }
}

/// In seconds; whole ones as a count.
impl Number for std::time::Duration {
    fn count(self) -> u64 {
        self.as_secs()
    }

    fn level(self) -> f64 {
        self.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::list;

    #[test]
    fn a_title_shows_the_labels() {
        let mut samples = Samples::default();
        samples.put(&list::TURNS, 3u64);
        samples.put_of(&list::SILOS, &["a\"b"], 2u64);
        let titles: Vec<_> = samples.0.iter().map(Sample::title).collect();
        assert_eq!(titles, ["emmer_turns_total", r#"emmer_membership_silos{status="a\"b"}"#]);
        assert_eq!(samples.0[0].value, MetricValue::Count(3));
    }
}
