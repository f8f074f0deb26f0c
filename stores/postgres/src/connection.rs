//! One connection: its session's settings, its prepared statements, the task that drives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use futures_util::TryStreamExt;
use tokio::task::JoinHandle;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, SimpleQueryMessage, Socket, Statement};

use crate::fault;
use crate::place::Place;
use crate::sql::Query;

/// The most statements one connection keeps prepared; all are forgotten when there would be more.
const STATEMENTS_MAX: usize = 256;
/// The oldest server whose settings and plans are as this store needs them.
const SERVER_VERSION_MIN: u32 = 120_000;

/// Parameters of a statement.
pub(crate) type Parameters<'a> = [&'a (dyn ToSql + Sync)];

/// Answer to a statement.
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    /// The rows it changed or answered.
    pub(crate) affected: u64,
}

/// A session on the server. Used by one operation at a time.
pub struct Connection {
    pub(crate) client: Client,
    statements: BTreeMap<Arc<str>, Statement>,
    driver: JoinHandle<()>,
    /// True if a request was sent whose end was not seen: then this connection must not be used
    /// again.
    pub(crate) in_flight: bool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.in_flight {
            // The server takes the closed socket for the end of the session and rolls back open
            // work.
            self.driver.abort();
        }
        // Otherwise the driver sees that the client is gone, says goodbye and ends.
    }
}

/// Connects, and has a task drive the connection.
async fn connect<T>(
    place: &Place,
    tls: T,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let (client, connection) = place.config.connect(tls).await?;
    let driver = tokio::spawn(async move {
        // Every request that waits for an answer gets the reason for which the connection ended.
        let _ = connection.await;
    });
    Ok((client, driver))
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place) -> Result<Self, Fault> {
        let connected = match &place.tls {
            None => connect(place, NoTls).await,
            Some(tls) => connect(place, tls.clone()).await,
        };
        let (client, driver) = connected.map_err(|error| fault::fault(&error))?;
        let mut opened = Self { client, statements: BTreeMap::new(), driver, in_flight: true };
        opened.set_up(place.limits.statement_timeout().as_millis()).await?;
        opened.in_flight = false;
        Ok(opened)
    }

    async fn set_up(&self, statement_timeout_ms: u128) -> Result<(), Fault> {
        // Every statement of this store looks rows up by their keys. So plans are made once, for
        // any number of rows, and neither old statistics nor a compiler may make the server read
        // whole tables.
        let settings = format!(
            "SET statement_timeout = {statement_timeout_ms};
             SET idle_in_transaction_session_timeout = 30000;
             SET default_transaction_isolation = 'read committed';
             SET default_transaction_read_only = off;
             SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off;
             SELECT set_config('synchronous_commit', 'on', false)
               WHERE current_setting('synchronous_commit') = 'off';
             SELECT current_setting('server_version_num'), current_setting('server_encoding'),
               pg_is_in_recovery()"
        );
        let answer = self.client.simple_query(&settings).await.map_err(|e| fault::fault(&e))?;
        let last = answer.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let cell = |at| last.and_then(|row| row.get(at)).unwrap_or_default();
        let refused = |detail: String| Err(Fault::new(StoreErrorKind::Refused, detail));
        if cell(0).parse().unwrap_or(0) < SERVER_VERSION_MIN {
            return refused(format!(
                "the server has version number {}, this store needs PostgreSQL 12",
                cell(0)
            ));
        }
        if cell(1) != "UTF8" {
            return refused(format!(
                "the database's encoding is {}, this store needs UTF8",
                cell(1)
            ));
        }
        if cell(2) == "t" {
            let hint = "name the primary, or all hosts with target_session_attrs=read-write";
            return refused(format!("the server is a standby and takes no writes: {hint}"));
        }
        Ok(())
    }

    /// The server's process that a statement of this connection is run by.
    pub(crate) async fn backend(&self) -> Result<String, Fault> {
        let ask = "SELECT pg_backend_pid()::text || ' ' || pg_postmaster_start_time()::text";
        let answer = self.client.simple_query(ask).await.map_err(|e| fault::fault(&e))?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(row.unwrap_or_default().to_owned())
    }

    /// Returns true if the connection can take a request, as far as this side knows.
    pub(crate) fn is_usable(&self) -> bool {
        !self.in_flight && !self.client.is_closed()
    }

    /// Forgets the prepared statements.
    pub(crate) fn forget_statements(&mut self) {
        self.statements.clear();
    }

    /// Runs a statement on its own, which is a transaction. `sent` becomes true when the server may
    /// have it.
    pub(crate) async fn run(
        &mut self,
        query: &Query,
        parameters: &Parameters<'_>,
        sent: &mut bool,
    ) -> Result<Answer, Failure> {
        self.in_flight = true;
        let ended = self.run_prepared(query, parameters, sent).await;
        // Any answer that is not the end of the connection leaves it ready for the next request.
        self.in_flight = matches!(ended, Err(Failure::Broken(_)));
        ended
    }

    async fn run_prepared(
        &mut self,
        query: &Query,
        parameters: &Parameters<'_>,
        sent: &mut bool,
    ) -> Result<Answer, Failure> {
        let statement = self.prepared(query).await?;
        *sent = true;
        let failed = |error: tokio_postgres::Error| fault::failure(&error);
        let answer =
            self.client.query_raw(&statement, parameters.iter().copied()).await.map_err(failed)?;
        let mut answer = std::pin::pin!(answer);
        let mut rows = Vec::new();
        // The stream ends when the server says that it is ready again: by then the transaction is
        // over.
        while let Some(row) = answer.try_next().await.map_err(failed)? {
            rows.push(row);
        }
        Ok(Answer { rows, affected: answer.rows_affected().unwrap_or(0) })
    }

    async fn prepared(&mut self, query: &Query) -> Result<Statement, Failure> {
        if let Some(statement) = self.statements.get(&query.text) {
            return Ok(statement.clone());
        }
        let statement =
            self.client.prepare(&query.text).await.map_err(|error| fault::failure(&error))?;
        if let Some(wanted) = &query.answers {
            let found: Vec<&Type> =
                statement.columns().iter().map(|column| column.type_()).collect();
            if found != wanted.iter().collect::<Vec<_>>() {
                let detail = format!("the table has other columns than declared: {found:?}");
                return Err(Failure::Nothing(Fault::new(StoreErrorKind::Corrupt, detail)));
            }
        }
        if self.statements.len() >= STATEMENTS_MAX {
            self.statements.clear();
        }
        self.statements.insert(query.text.clone(), statement.clone());
        Ok(statement)
    }
}
