//! One connection: its session's settings, and its batches.

use std::future::Future;
use std::time::Duration;

use emmer_store::StoreErrorKind;
use emmer_store_relational::{Failure, Fault, TlsMode};
use tiberius::error::Error;
use tiberius::{Client, Config, EncryptionLevel, Row, ToSql};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::fault;
use crate::place::Place;

/// Ends a transaction that was left open.
pub(crate) const END_ANY: &str = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION";

/// Settings of a new session. How many rows a statement changed is asked for, not sent along.
pub(crate) fn settings(lock_timeout: Duration) -> String {
    format!(
        "SET LOCK_TIMEOUT {}; SET XACT_ABORT ON; SET NOCOUNT ON; SET TRANSACTION ISOLATION LEVEL \
         READ COMMITTED",
        lock_timeout.as_millis()
    )
}

/// Runs the driver without its log: at each connection it warns of what the URL asks for (a
/// certificate that is not checked), and of answers that were given up, which the store reports.
async fn quietly<T>(work: impl Future<Output = T>) -> T {
    work.with_subscriber(NoSubscriber::default()).await
}

async fn connect(config: &Config) -> Result<Client<Compat<TcpStream>>, Error> {
    let stream = TcpStream::connect(config.get_addr()).await?;
    stream.set_nodelay(true)?;
    Box::pin(quietly(Client::connect(config.clone(), stream.compat_write()))).await
}

/// Connects; without TLS when the server has none and the URL does not insist.
async fn connect_as_asked(
    place: &Place,
    config: &Config,
) -> Result<Client<Compat<TcpStream>>, Error> {
    match connect(config).await {
        Err(error) if place.tls == TlsMode::Prefer && fault::is_without_tls(&error) => {
            let mut plain = config.clone();
            plain.encryption(EncryptionLevel::NotSupported);
            connect(&plain).await
        }
        ended => ended,
    }
}

/// A session on the server. Used by one operation at a time.
pub struct Connection {
    client: Client<Compat<TcpStream>>,
    /// True if a request was sent whose end was not seen: then this connection must not be used
    /// again.
    pub(crate) in_flight: bool,
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place) -> Result<Self, Fault> {
        let client = match connect_as_asked(place, &place.config).await {
            // A gateway of Azure sends its clients on, once, to the node that has the database.
            Err(Error::Routing { host, port }) => {
                let mut config = place.config.clone();
                config.host(host);
                config.port(port);
                connect_as_asked(place, &config).await
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

    /// Runs a batch that begins a transaction and ends it. A batch that fails ends its transaction
    /// by itself, except where the server did not understand it half-way (a missing table): such a
    /// connection is given up.
    pub(crate) async fn transaction(&mut self, text: &str) -> Result<Vec<Row>, Failure> {
        let ended = self.batch(text).await;
        if matches!(ended, Err(Failure::Nothing(_) | Failure::Again(_)))
            && self.batch(END_ANY).await.is_err()
        {
            self.in_flight = true;
        }
        ended
    }

    /// Runs a transaction with parameters that reads; as [`transaction`](Self::transaction) does.
    pub(crate) async fn read(
        &mut self,
        text: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<Vec<Row>, Failure> {
        let ended = self.query(text, parameters).await;
        if matches!(ended, Err(Failure::Nothing(_) | Failure::Again(_)))
            && self.batch(END_ANY).await.is_err()
        {
            self.in_flight = true;
        }
        ended
    }

    /// Runs one statement with parameters; the rows of its answer.
    pub(crate) async fn query(
        &mut self,
        text: &str,
        parameters: &[&dyn ToSql],
    ) -> Result<Vec<Row>, Failure> {
        self.in_flight = true;
        let ended = quietly(async {
            match self.client.query(text, parameters).await {
                Ok(stream) => stream.into_first_result().await,
                Err(error) => Err(error),
            }
        });
        let ended = ended.await;
        self.ended(ended)
    }

    /// Runs a batch; the rows of its first answer that has any.
    pub(crate) async fn batch(&mut self, text: &str) -> Result<Vec<Row>, Failure> {
        self.in_flight = true;
        let ended = quietly(async {
            match self.client.simple_query(text).await {
                Ok(stream) => stream.into_results().await,
                Err(error) => Err(error),
            }
        });
        let ended = ended.await;
        self.ended(
            ended.map(|results| {
                results.into_iter().find(|rows| !rows.is_empty()).unwrap_or_default()
            }),
        )
    }

    /// Any answer that is not the end of the connection leaves it ready for the next request.
    fn ended<T>(&mut self, ended: Result<T, Error>) -> Result<T, Failure> {
        let ended = ended.map_err(|error| fault::failure(&error));
        self.in_flight = matches!(ended, Err(Failure::Broken(_)));
        ended
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// The first packets of a client; the types of packets, and the encryption it asks for.
    const PRELOGIN: u8 = 0x12;
    const LOGIN: u8 = 0x10;
    const NOT_SUPPORTED: u8 = 2;

    /// A server without TLS that reads one client's greeting, says so, and reads on. Not SQL
    /// Server: it only knows how a connection begins.
    async fn hear(listener: &TcpListener) -> (u8, Option<u8>) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let greeting = packet(&mut stream).await.unwrap();
        assert_eq!(greeting.0, PRELOGIN);
        // Token 1 is the encryption: its offset and length stand behind its number.
        let token = greeting.1.chunks(5).find(|token| token[0] == 1).unwrap();
        let asked = greeting.1[usize::from(token[1]) << 8 | usize::from(token[2])];
        // Version (11.0), encryption; each with its place behind the list.
        let answer = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 11, 0, 0, 0, 0, 0, NOT_SUPPORTED];
        let length = u16::try_from(answer.len() + 8).unwrap().to_be_bytes();
        stream.write_all(&[4, 1, length[0], length[1], 0, 0, 1, 0]).await.unwrap();
        stream.write_all(&answer).await.unwrap();
        (asked, packet(&mut stream).await.map(|(kind, _)| kind))
    }

    async fn packet(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.ok()?;
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
        stream.read_exact(&mut body).await.ok()?;
        Some((header[0], body))
    }

    async fn place(listener: &TcpListener, sslmode: &str) -> Place {
        let port = listener.local_addr().unwrap().port();
        Place::parse(
            &format!("mssql://sa:only-for-tests@127.0.0.1:{port}/emmer?sslmode={sslmode}"),
            None,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn a_server_without_tls_is_refused_where_tls_is_required() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        for mode in ["require", "verify-full"] {
            let place = place(&listener, mode).await;
            let (opened, heard) = tokio::join!(Connection::open(&place), hear(&listener));
            let Err(fault) = opened else { panic!("{mode}: opened") };
            assert_eq!(fault.kind, StoreErrorKind::Refused, "{mode}: {fault:?}");
            assert!(fault.detail.contains("TLS") && fault.detail.contains("sslmode"), "{fault:?}");
            assert_eq!(heard.1, None, "{mode}: nothing is said after the greeting");
        }
    }

    #[tokio::test]
    async fn who_prefers_tls_does_without_where_the_server_has_none() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let place = place(&listener, "prefer").await;
        let both = async { (hear(&listener).await, hear(&listener).await) };
        let (opened, (first, second)) = tokio::join!(Connection::open(&place), both);
        assert!(opened.is_err(), "the server ends after the login is sent");
        assert!(first.0 != NOT_SUPPORTED && first.1.is_none(), "TLS is asked for: {first:?}");
        assert_eq!(second, (NOT_SUPPORTED, Some(LOGIN)), "then the login goes without");
    }

    #[derive(Clone, Default)]
    struct Heard(std::sync::Arc<std::sync::atomic::AtomicUsize>);

    impl tracing::Subscriber for Heard {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn what_the_driver_warns_of_does_not_reach_the_log() {
        let heard = Heard::default();
        let work = async {
            tracing::warn!("the program's own");
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let place = place(&listener, "disable").await;
            let (opened, _) = tokio::join!(Connection::open(&place), hear(&listener));
            assert!(opened.is_err());
            quietly(async { tracing::warn!("the driver's") }).await;
        };
        work.with_subscriber(heard.clone()).await;
        // The library of the connections may say something, at its own levels: count only what a
        // test can know.
        assert!(heard.0.load(std::sync::atomic::Ordering::Relaxed) >= 1);
        let before = heard.0.load(std::sync::atomic::Ordering::Relaxed);
        let both = async {
            quietly(async { tracing::warn!("the driver's") }).await;
            tracing::warn!("the program's own");
        };
        both.with_subscriber(heard.clone()).await;
        assert_eq!(heard.0.load(std::sync::atomic::Ordering::Relaxed), before + 1);
    }
}
