//! Connections of browsers, bounded in number and in the time of a request.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use axum::Extension;
use axum::Router;
#[cfg(feature = "tls")]
use emmer_runtime::WebTls;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
#[cfg(feature = "tls")]
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "tls")]
use super::door::Certified;

/// Time for a request's header, and for a connection without a request.
const HEADER_TIME_MAX: Duration = Duration::from_secs(15);

/// A connection is closed after this time, and the browser makes another one.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Time for a handshake of TLS.
#[cfg(feature = "tls")]
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Listener {
    pub(super) listener: TcpListener,
    pub(super) connections_max: usize,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<WebTls>>,
}

/// Serves until `stop`.
pub(super) async fn serve(listener: Listener, routes: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(listener.connections_max));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (routes, stop) = (routes.clone(), stop.clone());
        #[cfg(feature = "tls")]
        let tls = listener.tls.clone();
        tokio::spawn(async move {
            let _place = place;
            #[cfg(feature = "tls")]
            let served = connection(stream, tls, routes);
            #[cfg(not(feature = "tls"))]
            let served = http(stream, routes);
            let served = tokio::time::timeout(CONNECTION_TIME_MAX, served);
            stop.run_until_cancelled(served).await;
        });
    }
}

#[cfg(feature = "tls")]
async fn connection(stream: TcpStream, tls: Option<Arc<WebTls>>, routes: Router) {
    let Some(tls) = tls else { return http(stream, routes).await };
    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await {
        let is_client = tls.is_client(&stream);
        http(stream, if is_client { routes.layer(Extension(Certified)) } else { routes }).await;
    }
}

async fn http(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, routes: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection to the console ended early");
    }
}
