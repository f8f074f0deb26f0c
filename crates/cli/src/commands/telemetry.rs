//! The ways of a silo's metrics, health and traces out of the process, where the program was built
//! with them.

use std::net::SocketAddr;

use emmer::SiloBuilder;

use crate::exit::{Failure, Result};
use emmer::config::Settings;

/// The operator's settings for telemetry.
pub(super) struct Telemetry {
    /// The address for scrapes and health.
    endpoint: Option<SocketAddr>,
    /// Its encryption.
    #[cfg(feature = "telemetry")]
    #[cfg(feature = "tls")]
    tls: Option<emmer::tls::Tls>,
    /// The token for orders.
    #[cfg(feature = "telemetry")]
    token: Option<String>,
    #[cfg(feature = "otlp")]
    otlp: Option<emmer::telemetry::OtlpSender>,
}

impl Telemetry {
    /// Reads the keys. Sending to a collector begins here, so that the log can take part.
    ///
    /// # Errors
    /// A value is wrong, or this program was built without the feature.
    pub(super) fn begin(settings: &Settings) -> Result<Self> {
        let endpoint = settings.address("telemetry")?;
        if cfg!(not(feature = "telemetry"))
            && let Some(key) =
                ["telemetry", "telemetry_token"].into_iter().find(|key| settings.get(key).is_some())
        {
            return Err(Failure::usage(format!(
                "{key}: this program was built without it: build it with --features telemetry"
            )));
        }
        if cfg!(not(feature = "otlp"))
            && let Some(key) =
                ["otlp", "traces"].into_iter().find(|key| settings.get(key).is_some())
        {
            return Err(Failure::usage(format!(
                "{key}: this program was built without it: build it with --features otlp"
            )));
        }
        #[cfg(feature = "otlp")]
        let otlp = otlp(settings)?;
        Ok(Self {
            endpoint,
            #[cfg(feature = "telemetry")]
            #[cfg(feature = "tls")]
            tls: settings.telemetry_tls()?,
            #[cfg(feature = "telemetry")]
            token: settings.telemetry_token()?,
            #[cfg(feature = "otlp")]
            otlp,
        })
    }

    /// The layer that records spans.
    #[cfg(feature = "otlp")]
    pub(super) fn layer<S>(&self) -> Option<impl tracing_subscriber::Layer<S> + use<S>>
    where
        S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a> + Send + Sync,
    {
        use tracing_subscriber::Layer as _;
        use tracing_subscriber::filter::{LevelFilter, Targets};

        let spans = Targets::new().with_target(emmer::trace::TARGET, LevelFilter::INFO);
        self.otlp.as_ref().map(|otlp| otlp.layer().with_filter(spans))
    }

    /// The layer that records spans: none.
    #[cfg(not(feature = "otlp"))]
    pub(super) const fn layer(&self) -> Option<tracing_subscriber::layer::Identity> {
        None
    }

    /// The silo with its ways out, and where its endpoint listens.
    pub(super) async fn observe(
        &self,
        builder: SiloBuilder,
    ) -> Result<(SiloBuilder, Option<SocketAddr>)> {
        #[cfg(feature = "otlp")]
        let builder = match &self.otlp {
            Some(otlp) => builder.observer(otlp.metrics(METRICS_PERIOD)),
            None => builder,
        };
        self.scraped(builder).await
    }

    #[cfg(feature = "telemetry")]
    async fn scraped(&self, builder: SiloBuilder) -> Result<(SiloBuilder, Option<SocketAddr>)> {
        use crate::exit::Code;

        let Some(address) = self.endpoint else { return Ok((builder, None)) };
        let endpoint = emmer::telemetry::Endpoint::bind(address);
        let endpoint = endpoint.await.map_err(|error| Failure::new(Code::Listen, error))?;
        #[cfg(feature = "tls")]
        let endpoint = match self.tls.clone() {
            Some(tls) => endpoint.tls(tls).map_err(|why| Failure::usage(format!("TLS: {why}")))?,
            None => endpoint,
        };
        let endpoint = match self.token.clone() {
            Some(token) => endpoint.token(token).map_err(Failure::usage)?,
            None => endpoint,
        };
        let address = endpoint.address();
        Ok((builder.observer(endpoint), Some(address)))
    }

    #[cfg(not(feature = "telemetry"))]
    async fn scraped(&self, builder: SiloBuilder) -> Result<(SiloBuilder, Option<SocketAddr>)> {
        let _ = self.endpoint;
        std::future::ready(Ok((builder, None))).await
    }

    /// Sends the rest.
    pub(super) async fn end(self) {
        #[cfg(feature = "otlp")]
        if let Some(otlp) = self.otlp {
            otlp.stop().await;
        }
        std::future::ready(()).await;
    }
}

/// The time between two reports of metrics to a collector.
#[cfg(feature = "otlp")]
const METRICS_PERIOD: std::time::Duration = std::time::Duration::from_secs(60);

/// The part of the calls that begin a trace by default.
#[cfg(feature = "otlp")]
const TRACES: f64 = 0.01;

#[cfg(feature = "otlp")]
fn otlp(settings: &Settings) -> Result<Option<emmer::telemetry::OtlpSender>> {
    use emmer::telemetry::Otlp;

    let share = settings.parsed("traces")?;
    let Some(endpoint) = settings.get("otlp") else {
        return match settings.get("traces") {
            Some(traces) => {
                Err(traces.wrong("traces", "traces go to a collector: set otlp, too").into())
            }
            None => Ok(None),
        };
    };
    let service = settings.get("role").map_or("emmer", |role| role.text.as_str());
    let otlp = Otlp::to(&*endpoint.text).service(service).traces(share.unwrap_or(TRACES));
    otlp.start().map(Some).map_err(Failure::usage)
}
