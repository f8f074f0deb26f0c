//! Why a silo did not start.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_membership::TerminateReason;
use emmer_placement::DataError;
use emmer_store::StoreError;

use crate::options::OptionError;
use crate::stores::STORE_VARIABLE;

/// Why a silo did not start. Nothing is left behind but, at most, a Joining row that others will
/// clear.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No store was given.
    #[error("no store is configured: call .store(...) or set {STORE_VARIABLE}")]
    NoStore,
    /// The store may continue with a request for longer than membership waits for it.
    #[error(
        "{store} gives a request up after {request:?} (timeout_ms), later than membership does \
         after {table_timeout:?} (table_timeout): shorten the first or lengthen the second"
    )]
    StorePatience {
        /// The store.
        store: String,
        /// Time for which the store may continue with a request.
        request: Duration,
        /// The membership option `table_timeout`.
        table_timeout: Duration,
    },
    /// The thread of the membership was not started.
    #[error("the operating system starts no thread for the membership: {0}")]
    Thread(std::io::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `silos` or `clients`.
        purpose: &'static str,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Others would reach a port, and nothing is encrypted.
    #[error(
        "{address}, for {purpose}, can be reached from other hosts, and without TLS every \
         process that reaches it is believed: set up TLS (`tls`), or set `insecure` in a network \
         that only the cluster reaches"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
        /// `silos` or `clients`.
        purpose: &'static str,
    },
    /// The silos of the cluster encrypt their connections and this one does not, or the other way
    /// round, or this one has a client's key.
    #[error(
        "silo {silo} cannot join, its cluster has other security (`tls`): {why}. Plain silos are \
         replaced one by one with `tls.rollout`"
    )]
    Disagreement {
        /// The silo that was to start.
        silo: SiloAddress,
        /// The words of a silo of the cluster, or of the dial.
        why: String,
    },
    /// Other silos could not connect to a wildcard address.
    #[error("{0} is a wildcard: say with `advertise` which address other silos shall connect to")]
    Wildcard(SocketAddr),
    /// Another host advertises the same address: each silo that starts on one of them has that on
    /// the other declared dead.
    #[error(
        "{address} is the address of a silo on the host {host} too, and each has the other declared \
         dead, again and again: give each host an address of its own (`listen`, `advertise`)"
    )]
    AddressShared {
        /// The address.
        address: SocketAddr,
        /// Name of the other host in its row.
        host: Arc<str>,
    },
    /// An option cannot be worked with.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// TLS cannot be used as it was asked for.
    #[cfg(feature = "tls")]
    #[error("TLS: {0}")]
    Tls(#[from] emmer_net::tls::TlsError),
    /// A membership option is out of its range.
    #[error("membership: {0}")]
    Membership(#[from] emmer_membership::ConfigError),
    /// Two grain types cannot be told apart.
    #[error("the grain types {0:?} and {1:?} have the same number: rename one")]
    TypeCollision(&'static str, &'static str),
    /// Two methods of a class cannot be told apart.
    #[error("the methods {0} and {1} have the same number: rename one")]
    MethodCollision(&'static str, &'static str),
    /// One grain type is hosted by two classes.
    #[error(
        "the grain type {grain_type:?} is hosted twice, by {first} and by {second}: give one of \
         their interfaces another type, as in `#[grain_interface(key = String, grain = \"other\")]`"
    )]
    HostedTwice {
        /// The grain type.
        grain_type: &'static str,
        /// Class that was named first.
        first: &'static str,
        /// The other class.
        second: &'static str,
    },
    /// A class has a field with `#[service]`, and the silo has no service of its type.
    #[error(
        "the class {class} needs a service of type {service} for its field `{field}`: add it with \
         .service(...)"
    )]
    NoService {
        /// The class.
        class: &'static str,
        /// The field.
        field: &'static str,
        /// The type of the service.
        service: &'static str,
    },
    /// A class has a state with `store = ".."`, and the silo has no store of that name.
    #[error(
        "the class {class} has a state in the store {store:?}: add it with \
         .state_store({store:?}, ...)"
    )]
    NoStateStore {
        /// The class.
        class: &'static str,
        /// The name of the store.
        store: &'static str,
    },
    /// A class says `#[grain(constructor)]` and is hosted without one.
    #[error("the class {0} has a constructor: host it with .host_with(...)")]
    NoConstructor(&'static str),
    /// A class is placed by a strategy that this silo has no director for.
    #[error(
        "the grain type {grain_type:?} is placed by {strategy:?}, a strategy that this silo \
         lacks: add its director with .director({strategy:?}, ...) or .async_director(...)"
    )]
    NoDirector {
        /// The grain type.
        grain_type: &'static str,
        /// The name of the strategy.
        strategy: String,
    },
    /// The data of a class for its placement director cannot be written.
    #[error("the class {class}: {why}")]
    PlacementData {
        /// The class.
        class: &'static str,
        /// Reason.
        why: DataError,
    },
    /// A task of the application that runs once the silo is Active has failed. The silo has left.
    #[error("a startup task failed")]
    Startup(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The cluster did not take the silo in.
    #[error("the silo {silo} did not become Active: {reason}")]
    Join {
        /// The silo that tried.
        silo: SiloAddress,
        /// Why not.
        reason: TerminateReason,
    },
}

/// The sentence, which a `main` or an `unwrap` shows.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self {
            Self::Startup(cause) => write!(f, ": {cause}"),
            _ => Ok(()),
        }
    }
}

impl StartError {
    /// Returns the exit code of a process that is only a silo (`docs/commands.md`): 3 for the
    /// store, 4 for an address, 5 for a join that did not succeed, 2 for the program's own
    /// mistakes.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Store(_) => 3,
            Self::Listen { .. } | Self::AddressShared { .. } => 4,
            Self::Join { .. } | Self::Disagreement { .. } => 5,
            _ => 2,
        }
    }
}
