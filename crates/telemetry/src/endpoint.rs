//! An HTTP server in the silo's process: metrics for Prometheus, and whether the silo works and is
//! ready.
//!
//! A supervisor that gets no answer about health restarts the silo. So nothing may delay that
//! answer: an idle connection makes room for a new one, and scrapes have few places of their own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use emmer_runtime::WebTls;
use emmer_runtime::{Observer, SiloWatch};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore};

use crate::orders::{Order, TOKEN_BYTES_MIN, Token};
use crate::places::{Place, Places};
use crate::publish::{BUCKETS, Publisher};

/// Most scrapes that are answered or wait for their turn; one more is refused.
const SCRAPES_MAX: usize = 32;
/// The time for a request's header, and for a connection without a request.
const HEADER_TIME_MAX: Duration = Duration::from_millis(500);
/// The time for a handshake of TLS.
#[cfg(feature = "tls")]
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// A connection is closed after this time, whatever comes over it.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// The length of the queue of connections that are not accepted yet; the system may allow fewer.
const BACKLOG: u32 = 4_096;
/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The reason that there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for telemetry: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The token for orders is easily guessed.
    #[error("the token for orders is too short: expected at least {TOKEN_BYTES_MIN} bytes")]
    Token,
    /// The recorder of metrics refuses its settings.
    #[error("no recorder of metrics: {0}")]
    Recorder(String),
}

/// An HTTP server on an address of its own, from the silo's first moment to its end:
///
/// * `/metrics`: every metric, for Prometheus;
/// * `/healthz`: 200 as long as the silo works or can still recover; 503 when it has run no turns
///   for `liveness_timeout` although calls wait and the store answers;
/// * `/readyz`: 200 while the silo is Active, runs turns and does not leave; else 503, and why.
///
/// Without a login: every process that reaches the address can read these. They may be encrypted.
///
/// With a [token](Self::token) it also takes orders, each as the header `authorization: Bearer
/// TOKEN` shows the token: `POST /cordon`, `/uncordon`, `/drain` and `/stop`; `GET /duty` shows the
/// duty that the silo has.
pub struct Endpoint {
    #[cfg(feature = "tls")]
    tls: Option<Arc<WebTls>>,
    token: Option<Token>,
    listener: TcpListener,
    address: SocketAddr,
    recorder: PrometheusRecorder,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Listens on `address`; port 0 takes a free one. Connections wait until the silo begins.
    ///
    /// # Errors
    /// The address cannot be listened on.
    #[allow(clippy::unused_async, reason = "a listener needs a tokio runtime")]
    pub async fn bind(address: SocketAddr) -> Result<Self, EndpointError> {
        let failed = |source| EndpointError::Listen { address, source };
        let listener = listen(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS);
        let builder = builder.map_err(|error| EndpointError::Recorder(error.to_string()))?;
        Ok(Self {
            #[cfg(feature = "tls")]
            tls: None,
            token: None,
            listener,
            address,
            recorder: builder.build_recorder(),
        })
    }

    /// Encrypts the answers with the certificate of the silo: HTTPS. A scraper that checks the
    /// server's name expects `silo.CLUSTER.emmer`. Replaced certificates count for the next
    /// connection.
    ///
    /// # Errors
    /// The files cannot be used, or are a secret's.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: emmer_runtime::Tls) -> Result<Self, emmer_runtime::TlsError> {
        self.tls = Some(Arc::new(WebTls::new(tls)?));
        Ok(self)
    }

    /// Takes orders from processes that show this token, of 16 bytes at least.
    ///
    /// # Errors
    /// It is too short.
    pub fn token(mut self, token: impl Into<String>) -> Result<Self, EndpointError> {
        self.token = Some(Token::new(token.into()).ok_or(EndpointError::Token)?);
        Ok(self)
    }

    /// The address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Observer for Endpoint {
    fn begin(self: Box<Self>, silo: SiloWatch) {
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        let Self { listener, recorder, token, .. } = *self;
        let handle = recorder.handle();
        let metrics = Mutex::new((Publisher::default(), recorder));
        let scrapes = Semaphore::new(SCRAPES_MAX);
        let shown = Arc::new(Shown {
            silo: silo.clone(),
            metrics,
            scrapes,
            handle,
            token,
            #[cfg(feature = "tls")]
            tls,
        });
        tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = silo.ended() => {}
                () = accept(listener, shown) => {}
            }
        });
    }
}

/// The source of all answers.
struct Shown {
    silo: SiloWatch,
    metrics: Mutex<(Publisher, PrometheusRecorder)>,
    /// Places of scrapes.
    scrapes: Semaphore,
    handle: PrometheusHandle,
    /// The token for orders; without one there are none.
    token: Option<Token>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<WebTls>>,
}

impl Shown {
    /// The metrics as text. None if too many scrapes wait.
    async fn metrics(&self) -> Option<String> {
        let _place = self.scrapes.try_acquire().ok()?;
        // One scrape at a time: two at once would each see a part of the counts.
        let mut metrics = self.metrics.lock().await;
        let samples = self.silo.metrics();
        let (publisher, recorder) = &mut *metrics;
        publisher.publish(&samples, recorder);
        let text = self.handle.render();
        drop(metrics);
        // The next scrape does not follow at once on this thread: others have waited as well.
        tokio::task::yield_now().await;
        Some(text)
    }

    async fn answer(
        &self,
        request: &Request<Incoming>,
        from: Option<SocketAddr>,
    ) -> Response<Full<Bytes>> {
        const METRICS_TYPE: HeaderValue =
            HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
        let (mut allowed, order) = ("GET, HEAD", Order::of(request.uri().path()));
        let (status, kind, text) = match request.uri().path() {
            _ if let Some(order) = order => {
                let method = order.method();
                if *request.method() == method {
                    let (silo, token) = (&self.silo, self.token.as_ref());
                    let (status, text) = order.obey(silo, token, request.headers(), from).await;
                    (status, TEXT, text)
                } else {
                    allowed = if method == Method::POST { "POST" } else { "GET" };
                    (StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("only {method}\n"))
                }
            }
            "/metrics" | "/healthz" | "/readyz"
                if !matches!(*request.method(), Method::GET | Method::HEAD) =>
            {
                (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned())
            }
            "/metrics" => match self.metrics().await {
                Some(text) => (StatusCode::OK, METRICS_TYPE, text),
                None => {
                    let text = format!("{SCRAPES_MAX} scrapes wait already\n");
                    (StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
                }
            },
            "/healthz" => match self.silo.readiness() {
                readiness if !readiness.is_live() => {
                    (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{readiness}\n"))
                }
                _ => (StatusCode::OK, TEXT, "ok\n".to_owned()),
            },
            "/readyz" => {
                let readiness = self.silo.readiness();
                let ready = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK];
                (ready[usize::from(readiness.is_ready())], TEXT, format!("{readiness}\n"))
            }
            _ => {
                let text = "here are /metrics, /healthz and /readyz, and with a token /duty, \
                            /cordon, /uncordon, /drain and /stop\n"
                    .to_owned();
                (StatusCode::NOT_FOUND, TEXT, text)
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, kind);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Listens with a long queue. A connection that finds no place there tries again after a second,
/// and a supervisor would call the silo slow.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A silo that starts again need not wait until the system has forgotten the old connections.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: TcpListener, shown: Arc<Shown>) {
    let places = Places::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection for telemetry was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = places.take() else { continue };
        let shown = shown.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                () = place.gives_way() => {}
                () = serve(stream, shown, &place) => {}
            }
        });
        drop(task);
    }
}

/// Serves a connection, encrypted if the endpoint is.
async fn serve(stream: TcpStream, shown: Arc<Shown>, place: &Place) {
    let from = stream.peer_addr().ok();
    #[cfg(feature = "tls")]
    if let Some(tls) = shown.tls.clone() {
        let handshake = tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.accept(stream));
        match handshake.await {
            Ok(Ok(stream)) => serve_http(stream, shown, place, from).await,
            Ok(Err(error)) => tracing::debug!(%error, "a connection for telemetry failed"),
            Err(_) => tracing::debug!("a connection for telemetry was silent"),
        }
        return;
    }
    serve_http(stream, shown, place, from).await;
}

async fn serve_http<S>(stream: S, shown: Arc<Shown>, place: &Place, from: Option<SocketAddr>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let silo = shown.silo.clone();
    let service = service_fn(move |request| {
        let shown = shown.clone();
        async move {
            let _busy = place.work();
            Ok::<_, Infallible>(shown.answer(&request, from).await)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // A mistake of a scraper ends its connection, and nothing else.
    tokio::select! {
        biased;
        _ = silo.ended() => {}
        _ = tokio::time::timeout(CONNECTION_TIME_MAX, connection) => {}
    }
}
