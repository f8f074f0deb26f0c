//! The metrics of a silo as OTLP has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use emmer_runtime::metrics::{METRICS, Metric, MetricKind, MetricValue, Sample};
use emmer_runtime::{Observer, SiloWatch};
use http::header::CONTENT_TYPE;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    self as proto, AggregationTemporality, Gauge, Histogram, HistogramDataPoint, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::time::MissedTickBehavior;
use tokio_util::task::TaskTracker;

use super::post::Post;
use crate::publish::{BUCKETS, in_buckets, unit};

/// Sends the metrics of a silo to the collector, again and again, and once more when it ends.
#[derive(Debug)]
pub struct OtlpMetrics {
    post: Post,
    to: String,
    service: String,
    period: Duration,
    silos: TaskTracker,
}

impl OtlpMetrics {
    pub(super) fn new(
        post: Post,
        to: String,
        service: String,
        period: Duration,
        silos: TaskTracker,
    ) -> Self {
        Self { post, to, service, period: period.max(Duration::from_secs(1)), silos }
    }

    async fn send(&self, silo: &SiloWatch, from: u64) {
        let samples = silo.metrics();
        if samples.is_empty() {
            return;
        }
        let resource = [
            text("service.name", &self.service),
            text("service.instance.id", &silo.address().to_string()),
        ];
        let body = request(&samples, resource.into(), from, now()).encode_to_vec();
        let request = http::Request::post(&self.to)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Bytes::from(body));
        if let Ok(request) = request {
            // A failure is in the log; the next report has everything again.
            let _ = self.post.send(request).await;
        }
    }
}

impl Observer for OtlpMetrics {
    fn begin(self: Box<Self>, silo: SiloWatch) {
        let silos = self.silos.clone();
        silos.spawn(async move {
            let (from, mut time) = (now(), tokio::time::interval(self.period));
            time.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // At once there is nothing to tell yet.
            time.tick().await;
            loop {
                let ended = tokio::select! {
                    biased;
                    _ = silo.ended() => true,
                    _ = time.tick() => false,
                };
                self.send(&silo, from).await;
                if ended {
                    return;
                }
            }
        });
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// The report of everything that was counted from the moment `from` to the moment `at`.
fn request(
    samples: &[Sample],
    attributes: Vec<KeyValue>,
    from: u64,
    at: u64,
) -> ExportMetricsServiceRequest {
    let metrics = METRICS.iter().filter_map(|metric| {
        let of: Vec<_> = samples.iter().filter(|one| one.metric.name == metric.name).collect();
        (!of.is_empty()).then(|| told(metric, &of, from, at))
    });
    let scope = InstrumentationScope { name: "emmer".to_owned(), ..Default::default() };
    let scope =
        ScopeMetrics { scope: Some(scope), metrics: metrics.collect(), ..Default::default() };
    let resource = Resource { attributes, ..Default::default() };
    let silo = ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![scope],
        ..Default::default()
    };
    ExportMetricsServiceRequest { resource_metrics: vec![silo] }
}

fn told(metric: &Metric, samples: &[&Sample], from: u64, at: u64) -> proto::Metric {
    let cumulative = AggregationTemporality::Cumulative as i32;
    let numbers = || samples.iter().filter_map(|one| number(one, from, at)).collect();
    let data = match metric.kind {
        MetricKind::Counter => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        MetricKind::Gauge => Data::Gauge(Gauge { data_points: numbers() }),
        MetricKind::Histogram => Data::Histogram(Histogram {
            data_points: samples.iter().filter_map(|one| durations(one, from, at)).collect(),
            aggregation_temporality: cumulative,
        }),
    };
    proto::Metric {
        name: metric.name.to_owned(),
        description: metric.meaning.to_owned(),
        unit: unit(metric).map_or("1", |unit| unit.as_canonical_label()).to_owned(),
        data: Some(data),
        ..Default::default()
    }
}

fn labels(sample: &Sample) -> Vec<KeyValue> {
    let labels = sample.metric.labels.iter().zip(&sample.labels);
    labels.map(|(name, value)| text(name, value)).collect()
}

fn number(sample: &Sample, from: u64, at: u64) -> Option<NumberDataPoint> {
    let value = match &sample.value {
        MetricValue::Count(count) => Number::AsInt(i64::try_from(*count).unwrap_or(i64::MAX)),
        MetricValue::Level(level) => Number::AsDouble(*level),
        _ => return None,
    };
    Some(NumberDataPoint {
        attributes: labels(sample),
        start_time_unix_nano: from,
        time_unix_nano: at,
        value: Some(value),
        ..Default::default()
    })
}

fn durations(sample: &Sample, from: u64, at: u64) -> Option<HistogramDataPoint> {
    let MetricValue::Durations(latency) = &sample.value else { return None };
    let (bucket_counts, sum) = in_buckets(latency);
    Some(HistogramDataPoint {
        attributes: labels(sample),
        start_time_unix_nano: from,
        time_unix_nano: at,
        count: bucket_counts.iter().sum(),
        sum: Some(sum),
        bucket_counts,
        explicit_bounds: BUCKETS.to_vec(),
        ..Default::default()
    })
}
