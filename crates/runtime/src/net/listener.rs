//! The two ports of a silo: one for silos, one (the gateway) for clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_wire::{GoodbyeCode, Hello, PeerKind, RefuseCode};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::driver::{Handler, drive};
use super::handshake::{Greeting, Verdict, accept};
use super::{Connection, Pool};

/// Which of the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    Silo,
    Gateway,
}

/// How long to rest after the operating system refused to accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Handshakes under way at once on one port; more wait in the operating system's queue.
const HANDSHAKES_MAX: usize = 1024;

/// What accepts connections on one port.
pub(crate) struct Listener<H> {
    pub(crate) port: Port,
    pub(crate) me: SiloAddress,
    pub(crate) greeting: Greeting,
    pub(crate) handler: Arc<H>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) stop: CancellationToken,
}

impl<H: Handler> Listener<H> {
    /// Accepts until told to stop.
    pub(crate) async fn run(self, socket: TcpListener) {
        let this = Arc::new(self);
        let open = Arc::new(AtomicUsize::new(0));
        let handshakes = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES_MAX));
        loop {
            let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
            let accepted = tokio::select! {
                biased;
                () = this.stop.cancelled() => return,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let (this, open) = (this.clone(), open.clone());
                    tokio::spawn(async move { this.serve(stream, from, &open, permit).await });
                }
                Err(e) => {
                    tracing::warn!(port = ?this.port, error = %e, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        open: &AtomicUsize,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) {
        let _counted = Counted::new(open);
        let full = open.load(Ordering::Relaxed) > self.greeting.limits.gateway_connections_max;
        let accepted = accept(stream, self.me, &self.greeting, |hello| self.judge(hello, full)).await;
        drop(permit);
        match accepted {
            Ok((connection, input)) => self.drive(Arc::new(connection), input).await,
            Err(reason) => tracing::debug!(port = ?self.port, %from, reason, "refused a connection"),
        }
    }

    async fn drive(&self, connection: Arc<Connection>, input: bytes::BytesMut) {
        if let PeerKind::Probe(_) = connection.peer {
            return;
        }
        self.pool.adopt(&connection);
        if self.stop.is_cancelled() {
            // It came while the silo ended, behind the goodbyes to all others.
            connection.goodbye(GoodbyeCode::Stopping, "this silo is stopping");
        }
        drive(connection.clone(), self.handler.clone(), input).await;
        self.pool.forget(&connection);
    }

    fn judge(&self, hello: &Hello, full: bool) -> Verdict {
        if hello.cluster != self.greeting.cluster {
            let reason = format!(
                "this is cluster {:?}, not {:?}",
                self.greeting.cluster.as_str(),
                hello.cluster.as_str()
            );
            return Verdict::Refuse(RefuseCode::ClusterMismatch, reason);
        }
        if let Some(wanted) = hello.expects
            && wanted != self.me
        {
            return Verdict::Refuse(RefuseCode::WrongSilo, format!("this is {}, not {wanted}", self.me));
        }
        if self.stop.is_cancelled() {
            return Verdict::Refuse(RefuseCode::Stopping, "this silo is stopping".to_owned());
        }
        match (self.port, hello.peer) {
            (Port::Silo, PeerKind::Client(_)) => Verdict::Refuse(
                RefuseCode::NotAGateway,
                "this is a silo's port; clients connect to its gateway".to_owned(),
            ),
            (Port::Gateway, PeerKind::Silo(_)) => {
                Verdict::Refuse(RefuseCode::NotAGateway, "this is a gateway's port, not a silo's".to_owned())
            }
            (Port::Gateway, _) if full => {
                Verdict::Refuse(RefuseCode::Overloaded, "this gateway has too many connections".to_owned())
            }
            // One connection is taken for a while: over it the dead silo is told of its death.
            (Port::Silo, PeerKind::Silo(silo)) if self.pool.has_farewell(silo) => {
                Verdict::Refuse(RefuseCode::WrongSilo, format!("{silo} was declared dead"))
            }
            _ => Verdict::Accept,
        }
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
