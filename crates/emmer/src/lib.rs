//! Virtual actors for Rust: grains addressed by key, hosted by silos, in clusters that manage
//! themselves over nothing but a shared table.
//!
//! ```no_run
#![doc = include_str!("../examples/counter.rs")]
//! ```
//!
//! | to | begin with |
//! |---|---|
//! | write a grain | [`macro@grain_interface`], [`derive@Grain`], [`macro@grain`], [`Persistent`], [`Journal`], [`Ctx`] |
//! | run a silo | [`Silo::builder`], or `run` with the feature `config`; [`exit`](exit()) |
//! | call grains from elsewhere | [`Client::connect`], [`Call`](calls::Call), [`CallError`] |
//! | call later | [`Ctx::remind`], [`Ctx::timer`] |
//! | say where grains go | [`placement`] |
//! | look at a cluster | [`Silo::statistics`], [`metrics`], [`store`] |
//! | test all of it | the feature `test` |
//!
//! # Features
//!
//! | feature | what it brings |
//! |---|---|
//! | `sqlite` (default), `postgres`, `mysql`, `redis`, `etcd`, `consul`, `zookeeper`, `cassandra`, `mongodb`, `azure`, `cosmos`, `dynamodb`, `mssql`, `oracle` | a system store each; `all-stores` all of them |
//! | `test` | tests in virtual time on real silos: `emmer::test` |
//! | `config`, `clap`, `log` | settings from a file, the environment and flags, and the log as they say: `emmer::config`, `emmer::run` |
//! | `tls`, `certs` | encrypted connections, and proofs of who is at the other end: `Tls`; certificates for development: `emmer::certs` |
//! | `telemetry`, `otlp` | metrics and health over HTTP; metrics and traces for a collector |
//! | `console`, `console-web` | pictures of a cluster, gathered from all its silos; pages of them for a browser |
//!
//! The book (`docs/` in the repository) explains the rest.

// The macros name everything by this crate's name, also here.
extern crate self as emmer;

mod exit;
#[cfg(feature = "config")]
mod run;
pub mod store;
#[cfg(feature = "config")]
mod systemd;
pub mod topics;

/// Items that the macros' code names.
#[doc(hidden)]
pub use emmer_runtime::macro_support as __rt;

pub use self::exit::exit;
#[doc(hidden)]
pub use self::exit::run_main as __run_main;
#[cfg(feature = "config")]
pub use self::run::run;
#[cfg(feature = "config")]
pub use self::systemd::notify_systemd;
pub use emmer_core::GrainKey;
pub use emmer_macros::{GrainKey, grain, grain_interface, main, observer, reminder};
pub use emmer_runtime::grain::{
    ActivationError, CallError, Ctx, DeactivationReason, GrainFactory, Interleaved, Journal,
    Lifecycle, Persistent, StateError,
};
pub use emmer_runtime::{Client, Silo, SiloBuilder};
pub use uuid::Uuid;

/// Rights: identities of clients, rules about their calls, credentials of stores.
pub mod access {
    pub use emmer_runtime::{
        Access, AdminVisit, ClientCall, Credentials, Identity, PortSecurity, Right, TokenError,
        port_security,
    };
}

/// The admin interface: questions about a running cluster, and orders to it ([`Client::admin`]).
pub mod admin {
    pub use emmer_runtime::admin::{
        ActivationLook, Admin, AdminError, ArgumentLook, ChangeLook, ConnectionLook, Deactivated,
        DueLook, FailedLook, FailureLook, GrainLook, GrainName, GrainPage, GrainRow, HeldThread,
        HotGrain, HotLook, LogBook, LogLine, LogPage, MethodLook, MetricLook, Moved, Question,
        ReminderLook, SettingLook, SiloLook, StateLook, TracePage, TracedLook, TurnLook, TypeLook,
        WaitLook, show_log,
    };
}

/// Calls before they are awaited, the contexts that travel with them, and their rejections.
pub mod calls {
    pub use emmer_runtime::grain::{
        Call, CallTarget, ContextKey, InterleaveError, Rejection, SetContextError,
    };
}

/// Errors of silos and clients that do not start or have ended, and their exit codes.
pub mod errors {
    pub use emmer_membership::TerminateReason;
    pub use emmer_runtime::{
        ConnectError, EXIT_CODE_TABLE_WENT_BACK, EXIT_CODE_TERMINATED, RunError, StartError,
        Terminated,
    };
}

/// Certificates for development and tests.
#[cfg(feature = "certs")]
pub mod certs {
    pub use emmer_runtime::certs::*;
}

/// Pictures of a running cluster, gathered from all its silos.
#[cfg(feature = "console")]
pub mod console {
    pub use emmer_console::{
        Asked, Event, Gather, GrainDocument, HotRow, MethodRow, Picture, QueueRow, ReminderRow,
        SiloOwn, SiloRow, StateDocument, TurnRow, TypeRow, Wants, ask_silos, key_of, merge_pages,
        payload,
    };
    #[cfg(feature = "console-web")]
    pub use emmer_console::{Console, ConsoleError, ConsoleOptions, Serving};
}

/// Code around calls ([`SiloBuilder::filter_incoming`]).
pub mod filters {
    pub use emmer_runtime::{Filter, FilterCall, Next, Outcome};
}

/// Traits that the macros implement, for code that is generic over interfaces and keys.
pub mod interface {
    pub use emmer_runtime::grain::{Hosted, Interface, KeyType, Services};
}

/// The limits that have no setting. [`options::Limits`] has the others.
pub mod limits {
    pub use emmer_core::limits::{CALL_CHAIN_MAX, GRAIN_KEY_BYTES_MAX, NAME_BYTES_MAX};
}

/// Observers: what grains tell to clients, and to services of silos.
pub mod observers {
    pub use emmer_runtime::{
        Gap, Handled, News, ObserverRef, Observers, ObserversError, Overflow, Watch, WatchError,
    };
}

/// Views of a silo or a client while it runs.
pub mod observe {
    pub use emmer_runtime::{ClientState, ClientWatch, Observer, Readiness, SiloWatch};
}

/// The options of silos and clients.
pub mod options {
    pub use emmer_core::limits::Limits;
    pub use emmer_runtime::{
        AdminOptions, ClientBuilder, ClientOptions, OptionError, RecordOptions, ReminderOptions,
        Setting, SheddingOptions, SiloOptions, StoreSource,
    };
}

/// Reminders and timers ([`Ctx::remind`], [`Ctx::timer`]).
pub mod reminders {
    pub use emmer_runtime::{
        MissedPolicy, ReminderBuilder, ReminderError, ReminderInfo, Tick, Timer, TimerBuilder,
    };
}

/// States of several versions, and events that add up to a state.
pub mod state {
    pub use emmer_runtime::grain::{Apply, Migrate, StoredState};
}

/// Counts of a silo ([`Silo::statistics`]).
pub mod statistics {
    pub use emmer_runtime::{
        GrainQueue, Latency, MembershipStatistics, MethodStatistics, SiloStatistics,
    };
}

/// Streamed answers and arguments: the sink of a method, the values as its caller takes them, and
/// the source that a caller sends.
pub mod streams {
    pub use emmer_runtime::{Answers, Sink, SinkError, Source, SourceError};
}

/// Identities of clusters, silos and grains, and the rows of the membership table.
pub mod tables {
    pub use emmer_core::{
        ClusterId, Duty, GrainId, GrainTypeId, SiloAddress, SiloEntry, SiloStatus, TableVersion,
        Timestamp, Vote,
    };
}

/// Encrypted connections, and proofs of who is at the other end.
#[cfg(feature = "tls")]
pub mod tls {
    pub use emmer_runtime::{Tls, TlsError, TlsRollout};
}

/// Settings from a file, the environment and flags, each with the place it comes from
/// ([`run`](run())).
#[cfg(feature = "config")]
pub mod config {
    #[cfg(feature = "clap")]
    pub use emmer_config::SiloFlags;
    pub use emmer_config::{ConfigArgs, ConfigError, Effective, Entry, Place, Settings};

    pub use crate::run::secured;
}

/// The options of the cluster's membership
/// ([`SiloOptions::membership`](options::SiloOptions::membership)), and the form of durations.
pub mod membership {
    pub use emmer_membership::{Config, View, humantime};
}

/// Every metric of a silo, and its values ([`Silo::metrics`]).
pub mod metrics {
    pub use emmer_runtime::metrics::{METRICS, Metric, MetricKind, MetricValue, Sample};
}

/// Traces of calls: the switch, and what a bridge to a recorder has to know.
pub mod trace {
    pub use emmer_runtime::trace::{AlreadyTraced, TARGET, TraceContext, Tracer, trace_calls};
}

/// The ways of metrics and health out of the process.
#[cfg(feature = "telemetry")]
pub mod telemetry {
    pub use emmer_telemetry::{Endpoint, EndpointError, Facade};
    #[cfg(feature = "otlp")]
    pub use emmer_telemetry::{OpenTelemetry, Otlp, OtlpError, OtlpMetrics, OtlpSender};
}

/// Placement of activations: the strategies, and the types for a director of one's own
/// ([`SiloBuilder::director`]).
pub mod placement {
    pub use emmer_placement::hosted::VersionSelector;
    pub use emmer_placement::load::{Known, LoadReport, Loads};
    pub use emmer_placement::{
        AsyncDirector, Candidate, Choosing, CustomStrategy, DataError, Director, DirectorError,
        Metadata, Placement, PlacementContext, PlacementRequest, PlacementTarget, SiloFilter,
        Strategy, Transfer, even,
    };
}

/// A grain class (trait), and the derive that makes a struct one.
pub use {emmer_macros::Grain, emmer_macros::GrainError, emmer_runtime::grain::Grain};

/// Tests in virtual time; see [`macro@test`].
#[cfg(feature = "test")]
pub mod test {
    pub use emmer_testkit::{
        Alone, CallFault, Calls, Cluster, Ended, Failure, HostClock, NetModel, Node, SEED_VARIABLE,
        TestStore, World, at_rest, hours, run, run_seed,
    };
}
#[cfg(feature = "test")]
pub use emmer_macros::test;

pub use emmer_runtime::Error;

/// The result of a `main` that only reports errors, and of a grain's method that has no error type
/// of its own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// `n` seconds, for timeouts that read well: `counter.add(1).timeout(secs(2))`.
pub const fn secs(n: u64) -> std::time::Duration {
    std::time::Duration::from_secs(n)
}

/// `n` milliseconds.
pub const fn millis(n: u64) -> std::time::Duration {
    std::time::Duration::from_millis(n)
}

/// Names that most programs need.
pub mod prelude {
    pub use crate::observers::{ObserverRef, Observers};
    pub use crate::reminders::{MissedPolicy, Tick, Timer};
    pub use crate::streams::{Sink, Source};
    pub use crate::tables::ClusterId;
    pub use crate::topics::{HostTopics, UseTopics};
    pub use crate::{
        ActivationError, CallError, Client, Ctx, DeactivationReason, Grain, GrainError,
        GrainFactory, GrainKey, Interleaved, Journal, Lifecycle, Persistent, Silo, StateError,
        grain, grain_interface, millis, observer, reminder, secs,
    };
}
