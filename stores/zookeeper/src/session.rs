//! The session: one for the whole store, replaced when it is lost.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{Client, Error, SessionState};

use crate::fault::Fault;
use crate::place::Place;
use crate::tls;

/// The session's timeout asked for. No node hangs on it: it only decides when the server forgets a
/// client that is gone.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// Time that a session that lost its connection is given to find another by itself before a new
/// session takes its place.
const RECONNECT_PATIENCE: Duration = Duration::from_millis(500);
/// The most operations of one store at the same time; the others wait, not longer than their time
/// allows. The driver itself queues without a maximum.
const IN_FLIGHT_MAX: usize = 1_024;
/// Number of times a request is sent that does no harm when it is done twice.
const ATTEMPTS_MAX: u32 = 8;

/// A session in use by one operation.
pub(crate) struct Lease<'a> {
    pub(crate) client: Client,
    _permit: SemaphorePermit<'a>,
}

/// Opens sessions.
pub(crate) struct Sessions {
    place: Place,
    current: Mutex<Option<Client>>,
    in_flight: Semaphore,
}

impl Sessions {
    pub(crate) fn new(place: Place) -> Self {
        Self { place, current: Mutex::new(None), in_flight: Semaphore::new(IN_FLIGHT_MAX) }
    }

    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// A session that is connected, as far as this side knows.
    pub(crate) async fn lease(&self, deadline: Instant) -> Result<Lease<'_>, Fault> {
        let permit = timeout_at(deadline, self.in_flight.acquire()).await;
        let permit = permit.map_err(|_| Fault::unavailable("too many operations at once"))?;
        // Never closed.
        let permit = permit.map_err(|_| Fault::unavailable("the store is closed"))?;
        let mut current =
            timeout_at(deadline, self.current.lock()).await.map_err(|_| Fault::too_late())?;
        if let Some(client) = current.as_ref()
            && is_connected(client, deadline).await
        {
            return Ok(Lease { client: client.clone(), _permit: permit });
        }
        // A dropped session says goodbye by itself, if the server listens.
        *current = None;
        let client = self.connect(deadline).await?;
        *current = Some(client.clone());
        Ok(Lease { client, _permit: permit })
    }

    /// One attempt; the caller tries again.
    async fn connect(&self, deadline: Instant) -> Result<Client, Fault> {
        match timeout_at(deadline, self.connect_once()).await {
            Ok(connected) => connected.map_err(|fault| Fault { lost: false, ..fault }),
            Err(_) => Err(Fault::too_late()),
        }
    }

    async fn connect_once(&self) -> Result<Client, Fault> {
        let mut connector =
            Client::connector().with_session_timeout(SESSION_TIMEOUT).with_fail_eagerly();
        if let Some(credentials) = &self.place.credentials {
            connector = connector.with_auth("digest", credentials.0.as_bytes());
        }
        let hosts = self.place.hosts_text();
        let connected = if self.place.tls {
            connector.with_tls(tls::options(&self.place)?).secure_connect(&hosts).await
        } else {
            connector.connect(&hosts).await
        };
        match connected {
            Ok(client) => Ok(client),
            Err(Error::NoHosts) => Err(self.why_no_host().await),
            Err(error) => Err(error.into()),
        }
    }

    /// The driver says only that no host would do; the first one's own refusal says more.
    async fn why_no_host(&self) -> Fault {
        let fault = Fault::from(Error::NoHosts);
        let (host, port) = self.place.address.endpoint();
        if self.place.tls {
            let place = self.place.clone();
            let looked = tokio::task::spawn_blocking(move || tls::distrust(&place)).await;
            if let Ok(Some(distrust)) = looked {
                return distrust;
            }
        }
        match tokio::net::TcpStream::connect((host, port)).await {
            Ok(_) if self.place.tls => {
                Fault { detail: format!("{}, over TLS", fault.detail), ..fault }
            }
            Ok(_) => fault,
            Err(error) => Fault { detail: format!("{host}:{port}: {error}"), ..fault },
        }
    }

    /// Asks something that does no harm when it is asked twice, over another connection when one is
    /// lost.
    pub(crate) async fn ask<T, F>(
        &self,
        deadline: Instant,
        request: impl Fn(Client) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let mut attempt = 1;
        loop {
            let lease = self.lease(deadline).await?;
            let answer = timeout_at(deadline, request(lease.client.clone())).await;
            match answer.unwrap_or_else(|_| Err(Fault::too_late())) {
                Err(fault) if fault.lost && attempt < ATTEMPTS_MAX && Instant::now() < deadline => {
                }
                answer => return answer,
            }
            attempt += 1;
        }
    }
}

/// Returns true if the session can take a request, or can soon.
async fn is_connected(client: &Client, deadline: Instant) -> bool {
    let mut watcher = client.state_watcher();
    let patience = async {
        loop {
            match watcher.peek_state() {
                SessionState::SyncConnected => return true,
                state if state.is_terminated() => return false,
                _ => watcher.changed().await,
            };
        }
    };
    let patience = timeout_at(deadline, timeout(RECONNECT_PATIENCE, patience)).await;
    matches!(patience, Ok(Ok(true)))
}
