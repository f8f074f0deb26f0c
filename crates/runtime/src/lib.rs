//! The tokio shell: silo, activations, messaging, gateway, client.
//!
//! It executes the effects of the sans-IO state machines, and leaves to them what silos must agree
//! on. It decides what concerns one silo alone: connections, turns and their order, limits.
//! Applications use it through the `emmer` facade.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests run in no virtual world"))]

mod access;
pub mod admin;
mod answers;
mod calls;
mod client;
mod cluster;
mod filters;
mod gateways;
pub mod grain;
mod hosting;
pub mod metrics;
mod observers;
mod options;
mod reminders;
mod silo;
mod stores;
mod streams;
mod timers;
pub mod trace;
mod turn;
mod waits;
mod wheel;

pub use access::{Access, AdminVisit, ClientCall, Credentials, Identity, Right, TokenError};
pub use answers::{Answers, Sink, SinkError, Source, SourceError};
pub use client::{
    Client, ClientBuilder, ClientState, ClientWatch, ConnectError, PortSecurity, port_security,
};
pub use cluster::membership::MembershipStatistics;
pub use emmer_core::Duty;
pub use emmer_core::reminder::MissedPolicy;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use emmer_net::tls::WebTls;
#[cfg(feature = "certs")]
pub use emmer_net::tls::certs;
#[cfg(feature = "tls")]
pub use emmer_net::tls::{Tls, TlsError, TlsRollout};
pub use emmer_store::operator::{DutyError, Written};
pub use filters::{Filter, FilterCall, Next, Outcome};
pub use grain::Error;
pub use metrics::{GrainQueue, Latency, MethodStatistics, SiloStatistics};
pub use observers::{
    Gap, Handled, News, ObserverRef, Observers, ObserversError, Overflow, Watch, WatchError,
};
pub use options::{
    AdminOptions, ClientOptions, OptionError, RecordOptions, ReminderOptions, Setting,
    SheddingOptions, SiloOptions,
};
pub use reminders::{ReminderBuilder, ReminderError, ReminderInfo, Tick};
pub use silo::{
    Observer, Readiness, RunError, Silo, SiloBuilder, SiloWatch, StartError, Terminated,
};
pub use stores::StoreSource;
pub use timers::{Timer, TimerBuilder};

/// Items that the generated code names. Not for people; may change in any version.
#[doc(hidden)]
pub mod macro_support {
    pub use bytes::BytesMut;
    pub use emmer_core::hash::name32;
    pub use emmer_core::{GrainId, GrainKey};
    pub use emmer_net::world::random_bits;
    pub use emmer_placement::{DataError, Placement, SiloFilter, Strategy};
    pub use emmer_wire::CodecError;
    pub use emmer_wire::codec::{decode, decode_fields, encode_fields, encode_into, field};
    pub use serde;

    pub use crate::answers::{Answers, Sink, Source, answers};
    pub use crate::grain::{
        ActivationError, Call, CallError, CallFuture, Carried, CarriedFields, Ctx,
        DeactivationReason, Error, FieldDefault, Grain, Hooks, Hosted, Interface, Journal,
        JournalSpec, KeyKind, KeyType, LocalSlot, Method, NoError, NoHooks, NoResult, Persistent,
        RawRef, Returned, ServiceNeed, StateError, StateSpec, TurnContext, arrive, boxed,
        not_admitted, own_error, poll_now, run_now, service, shareable,
    };
    pub use crate::hosting::{
        Activation, ArriveMethod, BoxTurn, Closed, Elsewhere, Exclusive, Instant, MethodEntry, Ran,
        Shared, Slot, StartMethod, Turn, TurnEnd, TurnOutcome,
    };
    pub use crate::observers::{Gap, ObserverInterface};
    pub use crate::reminders::{
        NoReminders, ReminderError, ReminderTick, TickResult, is_among, no_handler,
    };
    pub use crate::timers::{Alone, Beside, TimerMethod};
    pub use crate::turn::Asker;
}

/// Encoding of grain state, as the store's `Format` column says it.
pub use grain::STATE_FORMAT;

/// The exit code of `emmer silo` when the cluster declared its silo dead (or superseded), for
/// programs that want the same.
pub const EXIT_CODE_TERMINATED: i32 = 86;

/// The exit code of `emmer silo` when its silo found that the membership table has lost a commit.
pub const EXIT_CODE_TABLE_WENT_BACK: i32 = 87;
