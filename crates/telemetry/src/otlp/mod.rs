//! Metrics and traces for a collector that speaks OTLP (HTTP with protobuf).

mod metrics;
mod post;
mod traces;

use std::time::Duration;

use emmer_runtime::trace::{AlreadyTraced, trace_calls};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio_util::task::TaskTracker;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;

pub use self::metrics::OtlpMetrics;
use self::post::Post;
pub use self::traces::OpenTelemetry;
use self::traces::Share;

/// The time for one request to the collector.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);

/// The reason that nothing goes to a collector.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The collector's address is not valid.
    #[error(
        "{0:?} is not the address of a collector: expected http:// or https://, a host and a \
             port"
    )]
    Endpoint(String),
    /// The share of calls that begin a trace is not valid.
    #[error("{0} is not a share of the calls: expected a number from 0 to 1")]
    Share(f64),
    /// A header for the collector is not valid.
    #[error("the header {0:?} for the collector has a name or a value that HTTP does not allow")]
    Header(String),
    /// The variable with headers is not `name=value,name=value`.
    #[error("{HEADERS_VARIABLE}: entry {0} is not name=value")]
    Variable(usize),
    /// The HTTP client or the recorder of spans cannot be made.
    #[error("no way to the collector: {0}")]
    Client(String),
    /// This process records traces already.
    #[error(transparent)]
    Traced(#[from] AlreadyTraced),
}

/// The standard variable with headers for the collector.
const HEADERS_VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Describes how metrics and traces go to a collector.
///
/// ```no_run
/// # async fn f(builder: emmer_runtime::SiloBuilder) -> Result<(), emmer_telemetry::OtlpError> {
/// use std::time::Duration;
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let otlp = emmer_telemetry::Otlp::to("http://127.0.0.1:4318").service("shop").traces(0.01).start()?;
/// let subscriber = tracing_subscriber::registry().with(otlp.layer());
/// tracing::subscriber::set_global_default(subscriber).expect("the first one");
/// let builder = builder.observer(otlp.metrics(Duration::from_secs(60)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Otlp {
    endpoint: String,
    service: String,
    share: f64,
    headers: Vec<(String, String)>,
}

impl Otlp {
    /// To the collector at `endpoint`, as in `http://127.0.0.1:4318`; `/v1/metrics` and
    /// `/v1/traces` are added. Headers that `OTEL_EXPORTER_OTLP_HEADERS` names are sent along.
    pub fn to(endpoint: impl Into<String>) -> Self {
        let service = "emmer".to_owned();
        Self { endpoint: endpoint.into(), service, share: 0.0, headers: Vec::new() }
    }

    /// The application's name, `service.name` of everything it sends. Without it: `emmer`.
    #[must_use]
    pub fn service(mut self, name: impl Into<String>) -> Self {
        self.service = name.into();
        self
    }

    /// Share of the calls outside any span that begin a trace, from 0 to 1. Without it none does.
    /// Calls within a recorded span, and calls of other processes with a trace, are always traced.
    /// Spans of the application's own that begin a trace are recorded in the same share.
    #[must_use]
    pub const fn traces(mut self, share: f64) -> Self {
        self.share = share;
        self
    }

    /// Sends a header along, for a collector that wants to know who asks. Its value appears in no
    /// log.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Begins, for this process, on the current tokio runtime. The collector may be absent: spans
    /// and metrics that it does not take are dropped after a while, and calls never wait for it.
    ///
    /// # Errors
    /// A setting is wrong, or the process records traces already.
    pub fn start(self) -> Result<OtlpSender, OtlpError> {
        let base = endpoint(&self.endpoint).ok_or(OtlpError::Endpoint(self.endpoint))?;
        if !(0.0..=1.0).contains(&self.share) {
            return Err(OtlpError::Share(self.share));
        }
        let mut headers = variable(std::env::var(HEADERS_VARIABLE).ok().as_deref())?;
        headers.extend(self.headers);
        let post = Post::new(headers, REQUEST_TIME_MAX)?;
        let resource = Resource::builder().with_service_name(self.service.clone()).build();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(post.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{base}/v1/traces"))
            .with_timeout(REQUEST_TIME_MAX)
            .build();
        let exporter = exporter.map_err(|error| OtlpError::Client(error.to_string()))?;
        let traces = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(Share::of(self.share))
            .with_resource(resource)
            .build();
        trace_calls(OpenTelemetry, self.share)?;
        let silos = TaskTracker::new();
        Ok(OtlpSender { traces, post, base, service: self.service, silos })
    }
}

/// The way to a collector, while the process runs.
#[derive(Clone, Debug)]
pub struct OtlpSender {
    traces: SdkTracerProvider,
    post: Post,
    base: String,
    service: String,
    /// Tasks that send the metrics of silos.
    silos: TaskTracker,
}

impl OtlpSender {
    /// Records spans and events of the level `info` and above, as a layer of a subscriber of
    /// `tracing`. A filter in front of it has to let the target pass that
    /// [`emmer_runtime::trace::TARGET`] names.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        layer(&self.traces)
    }

    /// Sends a silo's metrics once in `period`, at most once in a second.
    pub fn metrics(&self, period: Duration) -> OtlpMetrics {
        let to = format!("{}/v1/metrics", self.base);
        let silos = self.silos.clone();
        OtlpMetrics::new(self.post.clone(), to, self.service.clone(), period, silos)
    }

    /// Sends the rest, once the silos have ended, and waits for that: twenty seconds at most.
    pub async fn stop(self) {
        self.silos.close();
        let silos = tokio::time::timeout(REQUEST_TIME_MAX, self.silos.wait()).await;
        if silos.is_err() {
            tracing::debug!("the last metrics were not sent");
        }
        let traces = self.traces;
        // It waits in its place.
        let stop = move || traces.shutdown_with_timeout(REQUEST_TIME_MAX);
        if let Ok(Err(error)) = tokio::task::spawn_blocking(stop).await {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

fn layer<S>(traces: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("emmer"));
    // The runtime's spans are made in one place. The sampler knows them by their target.
    let layer = layer.with_location(false).with_threads(false).with_target(true);
    layer.with_filter(LevelFilter::INFO)
}

/// The address without a slash at its end; None if it is not an address of a collector.
fn endpoint(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    let plain = plain && url.query().is_none() && url.fragment().is_none();
    let fits = plain && matches!(url.scheme(), "http" | "https") && url.has_host();
    fits.then(|| url.as_str().trim_end_matches('/').to_owned())
}

/// The headers in the standard variable: `name=value` with commas between them, percent-encoded.
fn variable(text: Option<&str>) -> Result<Vec<(String, String)>, OtlpError> {
    let entries = text.unwrap_or_default().split(',').map(str::trim).enumerate();
    let entries = entries.filter(|(_, entry)| !entry.is_empty());
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8_lossy().into_owned();
    let pair = |(at, entry): (usize, &str)| {
        let (name, value) = entry.split_once('=').ok_or(OtlpError::Variable(at + 1))?;
        Ok((decoded(name), decoded(value)))
    };
    entries.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::SpanData;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn an_endpoint_is_an_http_address_without_secrets() {
        for (text, base) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("https://localhost/otlp/", "https://localhost/otlp"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Some(base));
        }
        for text in ["", "127.0.0.1:4318", "grpc://localhost", "http://"] {
            assert_eq!(endpoint(text), None, "{text}");
        }
    }

    #[test]
    fn an_endpoint_has_no_password() {
        let with_user = format!("http://{}@localhost:4318", "name:word");
        assert_eq!(endpoint(&with_user), None);
    }

    #[test]
    fn headers_of_the_variable_are_decoded_and_a_wrong_entry_is_named_by_its_place() {
        let read = variable(Some("authorization=Bearer%20x=y, a = b,")).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("authorization", "Bearer x=y"), pair("a", "b")]);
        assert!(variable(None).unwrap().is_empty());
        let error = variable(Some("a=b,secret")).unwrap_err().to_string();
        assert_eq!(error, "OTEL_EXPORTER_OTLP_HEADERS: entry 2 is not name=value");
    }

    /// Keeps the names of spans that are recorded.
    #[derive(Clone, Debug, Default)]
    struct Names(Arc<Mutex<Vec<String>>>);

    impl opentelemetry_sdk::trace::SpanExporter for Names {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().unwrap().extend(batch.into_iter().map(|span| span.name.into_owned()));
            Ok(())
        }
    }

    #[test]
    fn traces_that_the_runtime_begins_are_recorded_whatever_the_share() {
        let names = Names::default();
        let provider = SdkTracerProvider::builder().with_sampler(Share::of(0.0));
        let provider = provider.with_simple_exporter(names.clone()).build();
        let subscriber = tracing_subscriber::registry().with(layer(&provider));
        tracing::subscriber::with_default(subscriber, || {
            let begun = tracing::info_span!(target: emmer_runtime::trace::TARGET, "call");
            begun.in_scope(|| tracing::info_span!("within").in_scope(|| ()));
            // The application's own spans have their share, which is none here, and everything in
            // them.
            let own = tracing::info_span!("own");
            let call = || tracing::info_span!(target: emmer_runtime::trace::TARGET, "not recorded");
            own.in_scope(|| call().in_scope(|| ()));
        });
        let mut names = names.0.lock().unwrap().clone();
        names.sort();
        assert_eq!(names, ["call", "within"]);
    }

    #[test]
    fn a_share_is_from_0_to_1() {
        for share in [-0.1, 1.1, f64::NAN] {
            let started = Otlp::to("http://127.0.0.1:4318").traces(share).start();
            assert!(matches!(started, Err(OtlpError::Share(_))));
        }
    }
}
