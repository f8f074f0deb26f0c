//! The metrics of a silo, told to a recorder of the `metrics` facade.

use std::collections::HashMap;
use std::time::Duration;

use emmer_runtime::metrics::{Latency, METRICS, Metric, MetricKind, MetricValue, Sample};
use emmer_runtime::{Observer, SiloWatch};
use metrics::{Key, Label, Level, Metadata, Recorder, Unit};

static METADATA: Metadata<'static> = Metadata::new("emmer", Level::INFO, Some("emmer"));

/// The upper ends of the histograms' buckets, in seconds: from a microsecond on, each four times
/// the one before.
pub(crate) const BUCKETS: [f64; 14] = [
    0.000_001, 0.000_004, 0.000_016, 0.000_064, 0.000_256, 0.001, 0.004, 0.016, 0.064, 0.256, 1.0,
    4.0, 16.0, 64.0,
];

/// Tells the metrics of a silo to the recorder that the application has installed for the `metrics`
/// facade, again and again.
///
/// ```no_run
/// # fn f(builder: emmer_runtime::SiloBuilder) {
/// use std::time::Duration;
///
/// let builder = builder.observer(emmer_telemetry::Facade::every(Duration::from_secs(10)));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Facade {
    period: Duration,
}

impl Facade {
    /// Tells them once in `period`, at most once in 100 ms.
    pub fn every(period: Duration) -> Self {
        Self { period: period.max(Duration::from_millis(100)) }
    }
}

impl Observer for Facade {
    fn begin(self: Box<Self>, silo: SiloWatch) {
        tokio::spawn(async move {
            let (mut publisher, mut time) =
                (Publisher::default(), tokio::time::interval(self.period));
            loop {
                tokio::select! {
                    biased;
                    _ = silo.ended() => return,
                    _ = time.tick() => {}
                }
                let samples = silo.metrics();
                metrics::with_recorder(|recorder| publisher.publish(&samples, recorder));
            }
        });
    }
}

/// Remembers how much of each histogram a recorder was told.
#[derive(Default)]
pub(crate) struct Publisher {
    is_described: bool,
    told: HashMap<(&'static str, Vec<String>), HashMap<u64, u64>>,
}

impl Publisher {
    /// Tells `recorder` the changes since the last call; it has to be the same recorder.
    pub(crate) fn publish(&mut self, samples: &[Sample], recorder: &dyn Recorder) {
        if !std::mem::replace(&mut self.is_described, true) {
            METRICS.iter().for_each(|metric| describe(metric, recorder));
        }
        for sample in samples {
            let Metric { name, labels, .. } = sample.metric;
            let labels = labels.iter().zip(&sample.labels);
            let labels: Vec<_> =
                labels.map(|(name, value)| Label::new(*name, value.clone())).collect();
            let key = Key::from_parts(*name, labels);
            match &sample.value {
                MetricValue::Count(count) => {
                    recorder.register_counter(&key, &METADATA).absolute(*count);
                }
                MetricValue::Level(level) => recorder.register_gauge(&key, &METADATA).set(*level),
                MetricValue::Durations(latency) => {
                    let histogram = recorder.register_histogram(&key, &METADATA);
                    let told = self.told.entry((name, sample.labels.clone())).or_default();
                    for (end, more) in news(told, latency) {
                        histogram
                            .record_many(middle(end), usize::try_from(more).unwrap_or(usize::MAX));
                    }
                }
                _ => {}
            }
        }
    }
}

/// The unit that a metric's name says.
pub(crate) fn unit(metric: &Metric) -> Option<Unit> {
    if metric.name.contains("_seconds") {
        Some(Unit::Seconds)
    } else if metric.name.contains("_bytes") {
        Some(Unit::Bytes)
    } else {
        None
    }
}

fn describe(metric: &Metric, recorder: &dyn Recorder) {
    let unit = unit(metric);
    let (name, meaning) = (metric.name.into(), metric.meaning.into());
    match metric.kind {
        MetricKind::Counter => recorder.describe_counter(name, unit, meaning),
        MetricKind::Gauge => recorder.describe_gauge(name, unit, meaning),
        MetricKind::Histogram => recorder.describe_histogram(name, unit, meaning),
    }
}

/// The buckets that have grown, and by how much.
fn news(told: &mut HashMap<u64, u64>, latency: &Latency) -> Vec<(u64, u64)> {
    let mut news = Vec::new();
    for (end, count) in &latency.buckets {
        let before = told.insert(*end, *count).unwrap_or(0);
        let more = count.saturating_sub(before);
        if more > 0 {
            news.push((*end, more));
        }
    }
    news
}

/// The middle of the bucket with this end in nanoseconds, in seconds: a bucket is a fifth to a
/// quarter of its end wide.
fn middle(end: u64) -> f64 {
    Duration::from_nanos(end - end / 10).as_secs_f64()
}

/// The durations in [`BUCKETS`] and beyond the last, and about their sum in seconds.
#[cfg(feature = "otlp")]
pub(crate) fn in_buckets(latency: &Latency) -> (Vec<u64>, f64) {
    let (mut counts, mut sum) = (vec![0; BUCKETS.len() + 1], 0.0);
    for (end, count) in &latency.buckets {
        let middle = middle(*end);
        let at = BUCKETS.iter().position(|bound| middle <= *bound).unwrap_or(BUCKETS.len());
        counts[at] += count;
        #[allow(clippy::cast_precision_loss, reason = "about")]
        let count = *count as f64;
        sum += middle * count;
    }
    (counts, sum)
}
