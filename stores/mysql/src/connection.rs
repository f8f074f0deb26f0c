//! One connection: its session's settings, and its statements.

use std::time::Duration;

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault, TlsMode};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Error, Params, Row, Value};
use tokio::time::Instant;

use crate::dialect::Flavour;
use crate::fault;
use crate::place::Place;

/// Idle time after which a connection is checked before it is trusted with a commit: a server or a
/// firewall may have closed it.
const IDLE_MAX: Duration = Duration::from_millis(500);
/// The oldest servers with a collation that compares by bytes and cares for trailing spaces.
const MARIADB_MIN: (u16, u16, u16) = (10, 3, 0);
const MYSQL_MIN: (u16, u16, u16) = (8, 0, 17);
/// Question for the facts that a store must know about the server.
const ABOUT: &str = "SELECT VERSION(), @@max_allowed_packet, @@global.read_only";

/// A session on the server. Used by one operation at a time.
pub struct Connection {
    conn: Conn,
    pub(crate) flavour: Flavour,
    /// The most bytes the server takes at once.
    pub(crate) packet_max: usize,
    last_used: Instant,
    /// True if a request was sent whose end was not seen: then this connection must not be used
    /// again.
    pub(crate) in_flight: bool,
}

/// Answer to a text.
pub(crate) struct Said {
    /// The first cell of its first row.
    pub(crate) cell: Option<Value>,
    /// The rows each of its statements found to change.
    pub(crate) affected: Vec<u64>,
}

/// A text that failed: the error, and the answers before it.
pub(crate) struct Cut {
    pub(crate) error: Error,
    pub(crate) said: Said,
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place) -> Result<Self, Fault> {
        let mut conn = connect(place).await.map_err(|error| fault::fault(&error))?;
        let refused = |error| fault::fault(&error);
        let about: Option<(String, u64, i64)> = conn.query_first(ABOUT).await.map_err(refused)?;
        let (version, packet_max, read_only) =
            about.ok_or_else(|| Fault::corrupt("the server has no version"))?;
        let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
        let flavour = if is_mariadb { Flavour::MariaDb } else { Flavour::MySql };
        let least = if is_mariadb { MARIADB_MIN } else { MYSQL_MIN };
        if conn.server_version() < least {
            let detail =
                format!("the server is {version}; this store needs MariaDB 10.3 or MySQL 8.0.17");
            return Err(Fault::new(StoreErrorKind::Refused, detail));
        }
        if read_only != 0 {
            let detail = "the server is read-only: a replica takes no writes";
            return Err(Fault::new(StoreErrorKind::Refused, detail));
        }
        conn.query_drop(settings(flavour, place.limits.statement_timeout()))
            .await
            .map_err(refused)?;
        let packet_max = usize::try_from(packet_max).unwrap_or(usize::MAX);
        Ok(Self { conn, flavour, packet_max, last_used: Instant::now(), in_flight: false })
    }

    /// Returns true if the connection can take a request, as far as this side knows.
    pub(crate) fn is_usable(&self) -> bool {
        !self.in_flight && !self.conn.is_disconnected()
    }

    /// Asks a connection that was idle whether it is there.
    pub(crate) async fn wake(&mut self) -> Result<(), Failure> {
        if self.last_used.elapsed() < IDLE_MAX {
            return Ok(());
        }
        self.in_flight = true;
        self.conn.ping().await.map_err(|error| Failure::Again(fault::fault(&error)))?;
        self.in_flight = false;
        Ok(())
    }

    /// Runs a prepared statement: rows, and how many were changed.
    pub(crate) async fn run(
        &mut self,
        text: &str,
        parameters: Vec<Value>,
    ) -> Result<(Vec<Row>, u64), Failure> {
        self.in_flight = true;
        let ended = self.run_prepared(text, parameters).await;
        let ended = ended.map_err(|error| fault::failure(&error));
        self.ended(ended.as_ref().err());
        ended
    }

    async fn run_prepared(
        &mut self,
        text: &str,
        parameters: Vec<Value>,
    ) -> Result<(Vec<Row>, u64), Error> {
        let mut result = self.conn.exec_iter(text, Params::Positional(parameters)).await?;
        let rows = result.collect().await?;
        let affected = result.affected_rows();
        result.drop_result().await?;
        Ok((rows, affected))
    }

    /// Sends a text of one or more statements. Afterwards [`settle`](Self::settle) must be told how
    /// it ended.
    pub(crate) async fn say(&mut self, text: &[u8]) -> Result<Said, Cut> {
        self.in_flight = true;
        let mut said = Said { cell: None, affected: Vec::new() };
        match self.say_all(text, &mut said).await {
            Ok(()) => {
                self.in_flight = false;
                self.last_used = Instant::now();
                Ok(said)
            }
            Err(error) => Err(Cut { error, said }),
        }
    }

    async fn say_all(&mut self, text: &[u8], said: &mut Said) -> Result<(), Error> {
        let mut result = self.conn.query_iter(text).await?;
        // One round for each statement's answer; the end of one fetches the next.
        while result.columns().is_some() {
            said.affected.push(result.affected_rows());
            while let Some(row) = result.next().await? {
                said.cell = said.cell.take().or_else(|| row.as_ref(0).cloned());
            }
        }
        // The driver keeps the error of a later statement until it is asked for more.
        result.drop_result().await
    }

    /// After a text that failed: the connection is good again if the server refused it and takes a
    /// `ROLLBACK`.
    pub(crate) async fn settle(&mut self, failure: &Failure) {
        if !matches!(failure, Failure::Broken(_)) && self.conn.query_drop("ROLLBACK").await.is_ok()
        {
            self.ended(Some(failure));
        }
    }

    /// Any answer that is not the end of the connection leaves it ready for the next request.
    fn ended(&mut self, failure: Option<&Failure>) {
        self.in_flight = matches!(failure, Some(Failure::Broken(_)));
        self.last_used = Instant::now();
    }

    /// The driver's connection, for making tables.
    pub(crate) const fn raw(&mut self) -> &mut Conn {
        &mut self.conn
    }
}

async fn connect(place: &Place) -> Result<Conn, Error> {
    if place.tls != TlsMode::Disable {
        // Another choice is as good.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        match Conn::new(place.options(true)).await {
            Err(Error::Driver(DriverError::NoClientSslFlagFromServer))
                if place.tls == TlsMode::Prefer => {}
            ended => return ended,
        }
    }
    Conn::new(place.options(false)).await
}

/// Settings of every session, whatever the server's defaults.
fn settings(flavour: Flavour, statement_timeout: Duration) -> String {
    let (seconds, ms) = (statement_timeout.as_secs().max(1), statement_timeout.as_millis());
    let limit = match flavour {
        Flavour::MariaDb => format!("max_statement_time = {}", statement_timeout.as_secs_f64()),
        // Only selects: a wait for a lock has its own limit.
        Flavour::MySql => format!("max_execution_time = {ms}"),
    };
    format!(
        "SET NAMES utf8mb4; SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', \
         SESSION time_zone = '+00:00', SESSION autocommit = 1, SESSION innodb_lock_wait_timeout = \
         {seconds}, SESSION lock_wait_timeout = {seconds}, SESSION {limit}; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET SESSION TRANSACTION READ WRITE"
    )
}
