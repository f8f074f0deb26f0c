//! One connection: its session's settings, and how batches run on it.

use std::time::Duration;

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use tiberius::error::Error;
use tiberius::{Client, Config, Row, ToSql};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

use crate::fault;
use crate::place::Place;

/// Ends a transaction that was left open.
pub(crate) const END_ANY: &str = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION";

/// What a session is told first. How many rows a statement changed is asked for, not sent along.
pub(crate) fn settings(lock_timeout: Duration) -> String {
    format!(
        "SET LOCK_TIMEOUT {}; SET XACT_ABORT ON; SET NOCOUNT ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        lock_timeout.as_millis()
    )
}

async fn connect(config: &Config) -> Result<Client<Compat<TcpStream>>, Error> {
    let stream = TcpStream::connect(config.get_addr()).await?;
    stream.set_nodelay(true)?;
    Box::pin(Client::connect(config.clone(), stream.compat_write())).await
}

/// A session on the server. Used by one operation at a time.
pub(crate) struct Connection {
    client: Client<Compat<TcpStream>>,
    /// Whether a request was sent whose end nobody has seen: then this connection must not be used again.
    pub(crate) in_flight: bool,
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place) -> Result<Self, Fault> {
        let client = match connect(&place.config).await {
            // A gateway of Azure sends its clients on, once, to the node that has the database.
            Err(Error::Routing { host, port }) => {
                let mut config = place.config.clone();
                config.host(host);
                config.port(port);
                connect(&config).await
            }
            ended => ended,
        };
        let client = client.map_err(|error| match error {
            Error::Routing { .. } => {
                Fault::new(StoreErrorKind::Refused, "the server sends clients on again and again")
            }
            error => fault::fault(&error),
        })?;
        let mut opened = Self { client, in_flight: false };
        opened.batch(&settings(place.limits.statement_timeout())).await.map_err(Failure::fault)?;
        Ok(opened)
    }

    /// Runs a batch that begins a transaction and ends it. One that failed leaves none open: it ends it by itself, though
    /// not where it was not understood half-way (a table that is gone), and what would follow would never be committed.
    pub(crate) async fn transaction(&mut self, text: &str) -> Result<Vec<Row>, Failure> {
        let ended = self.batch(text).await;
        if matches!(ended, Err(Failure::Nothing(_) | Failure::Again(_))) && self.batch(END_ANY).await.is_err()
        {
            self.in_flight = true;
        }
        ended
    }

    /// Runs one statement with parameters; the rows of its answer.
    pub(crate) async fn query(&mut self, text: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Row>, Failure> {
        self.in_flight = true;
        let ended = match self.client.query(text, parameters).await {
            Ok(stream) => stream.into_first_result().await,
            Err(error) => Err(error),
        };
        self.ended(ended)
    }

    /// Runs a batch; the rows of its first answer that has any.
    pub(crate) async fn batch(&mut self, text: &str) -> Result<Vec<Row>, Failure> {
        self.in_flight = true;
        let ended = match self.client.simple_query(text).await {
            Ok(stream) => stream.into_results().await,
            Err(error) => Err(error),
        };
        self.ended(ended.map(|results| results.into_iter().find(|rows| !rows.is_empty()).unwrap_or_default()))
    }

    /// Any answer that is not the end of the connection leaves it ready for the next request.
    fn ended<T>(&mut self, ended: Result<T, Error>) -> Result<T, Failure> {
        let ended = ended.map_err(|error| fault::failure(&error));
        self.in_flight = matches!(ended, Err(Failure::Broken(_)));
        ended
    }
}
