//! The console: pages about a cluster for a browser, and orders to it.
//!
//! | module | subject |
//! |---|---|
//! | `listen` | connections, their number and their times |
//! | `door` | the visitors that are let in: tokens, sessions, names of the host, forged requests |
//! | `live` | pictures of the cluster, made once for all pages that are open |
//! | `frames` | pictures as the pages read them |
//! | `ask` | answers to questions of a page |
//! | `lists` | answers about all silos: settings, metrics, log, traces |
//! | `act` | orders |
//! | `shared` | answers that all pages share |
//! | `page` | the files of the page |

mod act;
mod ask;
mod door;
mod frames;
mod listen;
mod lists;
mod live;
mod page;
mod shared;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::routing::{get, post};
use axum::{Router, middleware};
#[cfg(feature = "tls")]
use emmer_core::ClusterId;
use emmer_runtime::admin::Admin;
use emmer_runtime::{Observer, SiloWatch};
#[cfg(feature = "tls")]
use emmer_runtime::{Tls, TlsError, WebTls};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::ask::Kinds;
use self::door::{Door, TOKEN_BYTES_MIN};
use self::live::Live;
use self::shared::Answers;

/// The reason that there is no console.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for the console: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Strangers would see the cluster.
    #[error(
        "the console on {0} can be reached from other hosts, or under another name: give it a \
         token, or TLS for certificates of clients"
    )]
    Open(SocketAddr),
    /// The token would travel in clear text.
    #[error(
        "the console on {0} can be reached from other hosts: give it TLS, or allow plain HTTP \
         where something else encrypts"
    )]
    Plain(SocketAddr),
    /// A token is easily guessed.
    #[error("a token of the console is too short: expected at least {TOKEN_BYTES_MIN} bytes")]
    Token,
    /// The certificate cannot be used.
    #[cfg(feature = "tls")]
    #[error("the certificate of the console: {0}")]
    Tls(#[from] TlsError),
}

/// The settings of a console.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsoleOptions {
    /// Address to listen on; port 0 takes a free one. Default `127.0.0.1:0`.
    pub address: SocketAddr,
    /// A token of visitors that may look, of 16 bytes at least. Default none: every process on this
    /// host may look, and no others.
    pub token: Option<String>,
    /// A token of visitors that may look and act, of 16 bytes at least. Default none.
    pub act_token: Option<String>,
    /// True if visitors without a token may act, where they may look. Default false.
    pub acts: bool,
    /// Names besides `localhost` by which browsers may reach it, as behind a proxy. Default none.
    pub names: Vec<String>,
    /// True if other hosts may reach it without TLS. Default false.
    pub plain: bool,
    /// Number of connections at once, each of which takes a descriptor of the process: further ones
    /// wait. Half as many pages may be open. Default 256.
    pub connections_max: usize,
    /// The certificate to encrypt with, and the cluster whose clients are let in by certificates of
    /// the same authority: they may look, and with `acts` also act. Default none.
    #[cfg(feature = "tls")]
    pub tls: Option<(Tls, ClusterId)>,
}

impl Default for ConsoleOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            token: None,
            act_token: None,
            acts: false,
            names: Vec::new(),
            plain: false,
            connections_max: 256,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// A console that listens and waits for its cluster.
///
/// Without a token programs on this host may look, and no others. A console that other hosts can
/// reach has a token.
///
/// ```no_run
/// use emmer::console::{Console, ConsoleOptions};
/// use emmer::prelude::*;
///
/// # async fn f() -> emmer::Result<()> {
/// let console = Console::bind(ConsoleOptions::default()).await?;
/// println!("http://{}", console.address());
/// let silo = Silo::builder().store("sqlite://cluster.db").observer(console).start().await?;
/// # Ok(())
/// # }
/// ```
pub struct Console {
    listener: TcpListener,
    address: SocketAddr,
    connections_max: usize,
    door: Door,
    #[cfg(feature = "tls")]
    tls: Option<WebTls>,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A console that serves until this is dropped.
#[derive(Debug)]
pub struct Serving(#[expect(dead_code, reason = "its drop ends the console")] DropGuard);

/// The console as its routes see it.
#[derive(Clone)]
struct Shared {
    live: Arc<Live>,
    door: Arc<Door>,
    kinds: Arc<Kinds>,
    answers: Arc<Answers>,
}

impl Shared {
    fn admin(&self) -> &Admin {
        self.live.admin()
    }
}

impl Console {
    /// Listens. Connections wait until the console is served.
    ///
    /// # Errors
    /// The address cannot be listened on, or strangers would see the cluster.
    pub async fn bind(options: ConsoleOptions) -> Result<Self, ConsoleError> {
        let ConsoleOptions { address, token, act_token, acts, names, plain, .. } = options;
        let connections_max = options.connections_max.max(2);
        #[cfg(feature = "tls")]
        let tls = options.tls.map(|(tls, cluster)| WebTls::asking(tls, &cluster)).transpose()?;
        #[cfg(feature = "tls")]
        let is_secure = tls.is_some();
        #[cfg(not(feature = "tls"))]
        let is_secure = false;
        let is_local = address.ip().is_loopback();
        let has_login = token.is_some() || act_token.is_some() || is_secure;
        if (!is_local || !names.is_empty()) && !has_login {
            return Err(ConsoleError::Open(address));
        }
        if !is_local && !is_secure && !plain {
            return Err(ConsoleError::Plain(address));
        }
        let failed = |source| ConsoleError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let door = Door::new(address, is_secure, (token, act_token), acts, names);
        let door = door.ok_or(ConsoleError::Token)?;
        Ok(Self {
            listener,
            address,
            connections_max,
            door,
            #[cfg(feature = "tls")]
            tls,
        })
    }

    /// The address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves pages about the cluster that `admin` asks, on this runtime. Orders are given in the
    /// name of `admin`.
    pub fn serve(self, admin: Admin) -> Serving {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let live = Arc::new(Live::new(admin, self.connections_max / 2));
        tokio::spawn({
            let (live, stop) = (live.clone(), stop.clone());
            async move { stop.run_until_cancelled(live.run()).await }
        });
        let shared = Shared {
            live,
            door: Arc::new(self.door),
            kinds: Arc::default(),
            answers: Arc::default(),
        };
        let listener = listen::Listener {
            listener: self.listener,
            connections_max: self.connections_max,
            #[cfg(feature = "tls")]
            tls: self.tls.map(Arc::new),
        };
        tokio::spawn(listen::serve(listener, routes(shared), stop));
        Serving(guard)
    }
}

impl Observer for Console {
    fn begin(self: Box<Self>, silo: SiloWatch) {
        let serving = self.serve(silo.admin());
        tokio::spawn(async move {
            silo.ended().await;
            drop(serving);
        });
    }
}

fn routes(shared: Shared) -> Router {
    let api = Router::new()
        .route("/me", get(door::me))
        .route("/grain", get(ask::grain))
        .route("/grains", get(ask::grains))
        .route("/history", get(ask::history))
        .route("/failures", get(ask::failures))
        .route("/connections", get(ask::connections))
        .route("/settings", get(lists::settings))
        .route("/metrics", get(lists::metrics))
        .route("/log", get(lists::log))
        .route("/trace", get(lists::trace))
        .route("/act", post(act::act));
    Router::new()
        .nest("/api", api)
        .route("/events", get(live::events))
        .route("/login", post(door::log_in))
        .merge(page::routes())
        .layer(middleware::from_fn_with_state(shared.clone(), door::guard))
        .with_state(shared)
}
