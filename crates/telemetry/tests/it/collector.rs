//! A collector that speaks OTLP, and its received requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A span, with the service that sent it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) trace: Vec<u8>,
    pub(crate) id: Vec<u8>,
    pub(crate) parent: Vec<u8>,
    pub(crate) silo: String,
}

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    /// By the service's instance.
    metrics: Vec<(String, Vec<Metric>)>,
    /// The header `x-token` of each request.
    tokens: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Received>>,
    more: Arc<Notify>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = Self { address, received: Arc::default(), more: Arc::default() };
        let own = collector.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                let service = service_fn(move |request| {
                    let own = own.clone();
                    async move { Ok::<_, Infallible>(own.take(request).await) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        collector
    }

    async fn take(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path().to_owned();
        let token = request.headers().get("x-token").map(|t| t.to_str().unwrap().to_owned());
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut received = self.received.lock().unwrap();
        received.tokens.push(token.unwrap_or_default());
        match path.as_str() {
            "/v1/traces" => received.spans.extend(spans(&body)),
            "/v1/metrics" => {
                let told = ExportMetricsServiceRequest::decode(body).unwrap();
                for one in told.resource_metrics {
                    let instance = text(&one.resource.unwrap().attributes, "service.instance.id");
                    let metrics = one.scope_metrics.into_iter().flat_map(|scope| scope.metrics);
                    received.metrics.push((instance, metrics.collect()));
                }
            }
            _ => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        }
        self.more.notify_waiters();
        Response::new(Full::default())
    }

    /// Waits until the spans received so far are as wanted.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        loop {
            let more = self.more.notified();
            let spans = self.received.lock().unwrap().spans.clone();
            if wanted(&spans) {
                return spans;
            }
            let waited = tokio::time::timeout(std::time::Duration::from_secs(20), more).await;
            assert!(waited.is_ok(), "{spans:#?}");
        }
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    pub(crate) fn metrics(&self) -> Vec<(String, Vec<Metric>)> {
        self.received.lock().unwrap().metrics.clone()
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.received.lock().unwrap().tokens.clone()
    }
}

fn spans(body: &[u8]) -> Vec<Span> {
    let told = ExportTraceServiceRequest::decode(body).unwrap();
    let of = told.resource_spans.into_iter().flat_map(|one| {
        let service = text(&one.resource.unwrap().attributes, "service.name");
        let spans = one.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| Span {
            service: service.clone(),
            silo: text(&span.attributes, "emmer.silo"),
            name: span.name,
            trace: span.trace_id,
            id: span.span_id,
            parent: span.parent_span_id,
        })
    });
    of.collect()
}

pub(crate) fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|one| one.key == key);
    match found.and_then(|one| one.value.clone()) {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text,
        _ => String::new(),
    }
}
