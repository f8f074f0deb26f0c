//! The driver's client, and how requests are sent: in time, and again where that does no harm.

use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer_store::away::{AWAY_PAUSE, AWAY_WAIT};
use emmer_store::{Result, StoreErrorKind, TableDecl};
use emmer_store_keyvalue::tls::read_certificates;
use emmer_store_keyvalue::{Fault, Patience};
use mongodb::bson::{Document, doc};
use mongodb::error::Error;
use mongodb::options::{
    Acknowledgment, ClientOptions, Credential, ReadConcern, ServerAddress, Tls, TlsOptions,
    WriteConcern,
};
use mongodb::{Collection, Database};
use tokio::time::{Instant, timeout_at};

use crate::address::Address;
use crate::failure::{Ended, understood};

/// The most connections to one server.
const CONNECTIONS: u32 = 8;
/// Number of them that are made at a time.
const CONNECTING: u32 = 4;

/// A client of one database.
pub(crate) struct Client {
    pub(crate) address: Address,
    driver: mongodb::Client,
    /// A server has answered.
    has_answered: AtomicBool,
}

/// A host as the driver wants it: an address of version 6 without its brackets.
fn host((host, port): &(String, u16)) -> ServerAddress {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerAddress::Tcp { host, port: Some(*port) }
}

fn options(address: &Address) -> std::result::Result<ClientOptions, Fault> {
    let place = &address.place;
    let mut written = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    written.w_timeout = Some(place.timeout);
    let mut options = ClientOptions::builder()
        .hosts(place.hosts.iter().map(host).collect::<Vec<_>>())
        .app_name("emmer".to_owned())
        .connect_timeout(place.timeout)
        // As long as every store waits for an absent server, less one pause: the driver must report
        // that it found no server before the end of the shortest operation.
        .server_selection_timeout(AWAY_WAIT - AWAY_PAUSE)
        .max_pool_size(CONNECTIONS)
        .max_connecting(CONNECTING)
        .retry_writes(true)
        .retry_reads(true)
        .write_concern(written)
        .read_concern(ReadConcern::linearizable())
        .build();
    options.repl_set_name = place.text("replicaSet").map(str::to_owned);
    options.direct_connection = address.direct.then_some(true);
    if let Some(user) = &place.user {
        let source = place.text("authSource").unwrap_or("admin").to_owned();
        let credential = Credential::builder().username(user.clone()).source(source);
        options.credential = Some(credential.password(place.password.clone()).build());
    }
    if address.tls {
        let file = place.text("ca_file");
        // The driver reads it later; a mistake in it is reported now.
        file.map(read_certificates).transpose()?;
        let mut trusted = TlsOptions::default();
        trusted.ca_file_path = file.map(PathBuf::from);
        options.tls = Some(Tls::Enabled(trusted));
    }
    Ok(options)
}

impl Client {
    /// Reads a URL; nothing is sent yet, but the driver begins to look at its servers.
    pub(crate) fn new(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let made = options(&address).and_then(|options| {
            mongodb::Client::with_options(options).map_err(|error| understood(&error).fault())
        });
        let driver = made.map_err(|fault| fault.at(&address.place.name, "open"))?;
        Ok(Self { address, driver, has_answered: AtomicBool::new(false) })
    }

    /// When an operation that begins now must end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.address.place.timeout
    }

    pub(crate) fn database(&self) -> Database {
        self.driver.database(self.address.database())
    }

    pub(crate) fn collection(&self, decl: &TableDecl) -> Collection<Document> {
        self.database().collection(decl.name)
    }

    /// Time that the server may take for a request, so that it gives up when this side does.
    pub(crate) fn left(deadline: Instant) -> Duration {
        deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Sends a request once. Where its connection breaks, the driver sends it a second time: a
    /// write under the same number, so that it happens once.
    pub(crate) async fn once<T, F>(
        &self,
        deadline: Instant,
        request: F,
    ) -> std::result::Result<T, Ended>
    where
        F: IntoFuture<Output = std::result::Result<T, Error>>,
    {
        match timeout_at(deadline, request.into_future()).await {
            Ok(answered) => answered.map_err(|error| understood(&error)),
            Err(_) => {
                Err(Ended::Uncertain(Fault::unavailable("the server does not answer in time")))
            }
        }
    }

    /// Returns true if no server has answered yet, and one answers without TLS: a server that
    /// speaks none may be silent at a greeting that it does not understand. No password is sent.
    async fn is_plain(&self, deadline: Instant) -> bool {
        const PLAIN_TIME: Duration = Duration::from_secs(1);
        if !self.address.tls || self.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(mut options) = options(&self.address) else { return false };
        (options.tls, options.credential) = (Some(Tls::Disabled), None);
        options.server_selection_timeout = Some(PLAIN_TIME);
        let Ok(plain) = mongodb::Client::with_options(options) else { return false };
        let admin = plain.database("admin");
        let hello = admin.run_command(doc! { "hello": 1 });
        let answered = timeout_at(deadline, hello.into_future()).await;
        plain.shutdown().await;
        matches!(answered, Ok(Ok(_)))
    }

    /// Sends a request that may be done twice, until it is answered.
    pub(crate) async fn send<T, F: Future<Output = std::result::Result<T, Error>>>(
        &self,
        deadline: Instant,
        request: impl Fn() -> F,
    ) -> std::result::Result<T, Fault> {
        let mut patience = Patience::default();
        loop {
            match self.once(deadline, request()).await {
                Ok(answer) => {
                    self.has_answered.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Ended::Away(_)) if self.is_plain(deadline).await => {
                    let detail = "tls=true, and the server answers without TLS".to_owned();
                    return Err(Fault::new(StoreErrorKind::Refused, detail));
                }
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
