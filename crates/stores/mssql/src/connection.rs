//! One connection: its session's settings, and how batches run on it.

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault};
use tiberius::error::Error;
use tiberius::{Client, Row, ToSql};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

use crate::fault;
use crate::place::Place;

/// A session on the server. Used by one operation at a time.
pub(crate) struct Connection {
    client: Client<Compat<TcpStream>>,
    /// Whether a request was sent whose end nobody has seen: then this connection must not be used again.
    pub(crate) in_flight: bool,
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place) -> Result<Self, Fault> {
        let io = |error: std::io::Error| Fault::unavailable(error.to_string());
        let stream = TcpStream::connect(place.config.get_addr()).await.map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        let connected = Box::pin(Client::connect(place.config.clone(), stream.compat_write())).await;
        let client = connected.map_err(|error| match error {
            Error::Routing { .. } => Fault::new(
                StoreErrorKind::Refused,
                "the server sends clients to another address: name that one",
            ),
            error => fault::fault(&error),
        })?;
        let mut opened = Self { client, in_flight: false };
        let wait = place.limits.statement_timeout().as_millis();
        let settings = format!(
            "SET LOCK_TIMEOUT {wait}; SET XACT_ABORT ON; SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
        );
        opened.batch(&settings).await.map_err(Failure::fault)?;
        Ok(opened)
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

    /// Runs one statement with parameters; how many rows it changed.
    pub(crate) async fn execute(&mut self, text: &str, parameters: &[&dyn ToSql]) -> Result<u64, Failure> {
        self.in_flight = true;
        let ended = self.client.execute(text, parameters).await;
        self.ended(ended.map(|result| result.total()))
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
