//! The driver's session, made again when it has lost all its connections. Requests are sent in
//! time, and again where that does no harm.

use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use emmer_store::{Result, TableDecl};
use emmer_store_keyvalue::{Fault, Patience};
use rustls::ClientConfig;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::{Instant, timeout_at};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use crate::address::Address;
use crate::cql::Cql;
use crate::failure::{self, Ended};
use crate::lanes::Lanes;
use crate::tls;

/// The connections to each node. Requests share them.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// Time between two questions to a silent connection, and the time that it has to answer.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Maximum wait for one request, or one attempt to connect. The server's own limits end earlier
/// (cassandra.yaml: 2 s for writes, 5 s for reads), so a later answer is lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The most statements that a session keeps prepared; all are forgotten when there would be more.
const STATEMENTS_MAX: usize = 1_000;
/// The rows of a page of a table with columns of bytes, and of one without.
const PAGE_ROWS: i32 = 5_000;
const PAGE_ROWS_OF_BYTES: i32 = 100;

/// Nodes that must agree to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// A read that sees every conditional write that ended, and ends those that did not.
    Serial,
    /// A majority of the copies: reads of what needs no order. Of a conditional write it is where
    /// it counts as done, too.
    Majority,
}

/// A session that had connections when it was made.
pub(crate) struct Connected {
    number: u64,
    pub(crate) session: Session,
    statements: Mutex<BTreeMap<(String, Level), PreparedStatement>>,
}

/// A client of a cluster.
pub(crate) struct Client {
    pub(crate) address: Address,
    pub(crate) lanes: Lanes,
    tls: Option<Arc<ClientConfig>>,
    current: Mutex<Option<Arc<Connected>>>,
    connecting: tokio::sync::Mutex<()>,
    numbers: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Its contents are whole after every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connected {
    /// A statement, prepared once for a session.
    pub(crate) async fn prepare(
        &self,
        text: String,
        level: Level,
        page_rows: i32,
    ) -> std::result::Result<PreparedStatement, Ended> {
        if let Some(known) = lock(&self.statements).get(&(text.clone(), level)) {
            return Ok(known.clone());
        }
        let mut prepared = self
            .session
            .prepare(text.as_str())
            .await
            .map_err(|error| failure::not_prepared(&error))?;
        prepared.set_consistency(match level {
            Level::Serial => Consistency::Serial,
            Level::Majority => Consistency::Quorum,
        });
        prepared.set_page_size(page_rows);
        let mut statements = lock(&self.statements);
        if statements.len() >= STATEMENTS_MAX {
            statements.clear();
        }
        statements.insert((text, level), prepared.clone());
        Ok(prepared)
    }
}

impl Client {
    /// Reads a URL; nothing is sent yet.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let config =
            if address.tls { Some(tls::config(address.place.text("ca_file"))) } else { None };
        let tls = config.transpose().map_err(|fault| fault.at(&address.place.name, "open"))?;
        Ok(Self {
            address,
            tls,
            lanes: Lanes::default(),
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            numbers: AtomicU64::new(0),
        })
    }

    /// Time at which an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    /// The statements for a table.
    pub(crate) fn cql(&self, decl: &'static TableDecl) -> Cql<'_> {
        Cql { keyspace: self.address.keyspace(), decl }
    }

    /// The rows of a page of a table.
    pub(crate) fn page_rows(&self, decl: &TableDecl) -> i32 {
        let has_bytes =
            decl.columns.iter().any(|c| c.column_type == emmer_store::ColumnType::Bytes);
        self.address.page_rows.unwrap_or(if has_bytes { PAGE_ROWS_OF_BYTES } else { PAGE_ROWS })
    }

    /// The session, made if there is none. Waiting callers share the attempt by trying after it.
    async fn connected(&self, deadline: Instant) -> std::result::Result<Arc<Connected>, Ended> {
        if let Some(connected) = lock(&self.current).clone() {
            return Ok(connected);
        }
        let late = |_| Ended::Away(Fault::unavailable("no connection in time"));
        let _one_at_a_time = timeout_at(deadline, self.connecting.lock()).await.map_err(late)?;
        if let Some(connected) = lock(&self.current).clone() {
            return Ok(connected);
        }
        let limit = deadline.min(Instant::now() + SILENCE_MAX);
        let session = timeout_at(limit, self.connect(limit)).await.map_err(late)??;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let connected = Arc::new(Connected { number, session, statements: Mutex::default() });
        *lock(&self.current) = Some(connected.clone());
        Ok(connected)
    }

    async fn connect(&self, deadline: Instant) -> std::result::Result<Session, Ended> {
        let place = &self.address.place;
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            // The time of a request, and repetitions, are set here, the same for every store.
            .request_timeout(None)
            .retry_policy(Arc::new(FallthroughRetryPolicy))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(place.hosts.iter().map(|(host, port)| format!("{host}:{port}")))
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(deadline.saturating_duration_since(Instant::now()))
            .pool_size(PoolSize::PerHost(CONNECTIONS))
            .keepalive_interval(KEEPALIVE)
            .keepalive_timeout(KEEPALIVE)
            .fetch_schema_metadata(false)
            .fetch_full_schema_metadata(false)
            .driver_config_reporting(false)
            .tls_context(self.tls.clone());
        if let Some(user) = &place.user {
            builder = builder.user(user, place.password.as_deref().unwrap_or_default());
        }
        // The driver's warnings of a node that is away would fill the log, many a second. What
        // matters comes as errors.
        let opened = builder.build().with_subscriber(NoSubscriber::default()).await;
        opened.map_err(|error| failure::not_opened(&error))
    }

    /// Forgets a session that has lost its connections; the next request makes another.
    fn forget(&self, number: u64) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|connected| connected.number == number) {
            *current = None;
        }
    }

    /// Sends a request once, for at most half of the time of an operation: the rest is for asking
    /// after its fate, or for sending it again.
    pub(crate) async fn once<T, F: Future<Output = std::result::Result<T, Ended>>>(
        &self,
        deadline: Instant,
        request: impl FnOnce(Arc<Connected>) -> F,
    ) -> std::result::Result<T, Ended> {
        let most = SILENCE_MAX.min(self.address.place.timeout / 2);
        self.once_within(deadline, most, request).await
    }

    /// `once` for another time: the node that is asked may stand still while others do not.
    pub(crate) async fn once_within<T, F: Future<Output = std::result::Result<T, Ended>>>(
        &self,
        deadline: Instant,
        most: Duration,
        request: impl FnOnce(Arc<Connected>) -> F,
    ) -> std::result::Result<T, Ended> {
        let connected = self.connected(deadline).await?;
        let number = connected.number;
        let limit = deadline.min(Instant::now() + most);
        let Ok(ended) = timeout_at(limit, request(connected)).await else {
            return Err(Ended::Uncertain(Fault::unavailable("the server does not answer in time")));
        };
        if let Err(Ended::Gone(_)) = &ended {
            self.forget(number);
        }
        ended
    }

    /// Sends a request that may be done twice, until it is answered.
    pub(crate) async fn send<T, F: Future<Output = std::result::Result<T, Ended>>>(
        &self,
        deadline: Instant,
        request: impl Fn(Arc<Connected>) -> F,
    ) -> std::result::Result<T, Fault> {
        let mut patience = Patience::default();
        loop {
            match self.once(deadline, &request).await {
                Ok(answer) => return Ok(answer),
                Err(ended @ (Ended::Busy(_) | Ended::Uncertain(_))) => {
                    if !patience.wait(None, deadline).await {
                        return Err(ended.fault());
                    }
                }
                Err(ended) => return Err(ended.fault()),
            }
        }
    }
}
