//! The system store: one contract over every server that can keep Emmer's tables.
//! `docs/membership.md` names the *table description*.
//!
//! | module | subject |
//! |---|---|
//! | [`contract`] | the [`SystemStore`] trait and its rules |
//! | [`away`] | how long an operation waits for a server that is away |
//! | [`contention`] | races for one row: who lost comes back a little later |
//! | [`one_moment`] | reads of a partition in several pages as one moment |
//! | [`recent`] | what the last commits of a partition wrote, for such reads |
//! | [`unchecked`] | what every store on a server does alike: checks, and words for failures |
//! | [`fault`] | failures inside a store |
//! | [`examine`] | what a store can tell an operator about its server |
//! | [`table`] | tables, columns, rows and values as data |
//! | [`limits`] | how much a store takes at once, and how much a table needs |
//! | [`validate`] | the limits every request keeps, checked the same way by every store |
//! | [`document`] | rows as JSON, for servers that keep documents |
//! | [`url`] | connection strings: scheme, rest, credentials never printed |
//! | [`address`] | addresses of servers, read by the rules of a store |
//! | [`silos`] | the silo instances table (table description) with its version row |
//! | [`operator`] | an operator's word about a silo in that table |
//! | [`state`] | the grain state table |
//! | [`reminders`] | the reminders table (table description) |
//! | [`metrics`] | the silo metrics and client metrics tables (table description) |
//! | [`statistics`] | the silo statistics and client statistics tables (table description) |
//! | [`history`] | the history of the membership |
//! | [`keys`] | grain types and keys as partition and row keys |
//! | [`memory`] | the store inside the process, and its synchronous heart for simulations |
//! | [`checkup`] | a short check of a store in use, with latencies |

pub mod address;
pub mod away;
pub mod checkup;
pub mod contention;
pub mod contract;
pub mod document;
pub mod examine;
pub mod fault;
mod grain_rows;
pub mod history;
pub mod journal;
pub mod keys;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod one_moment;
mod one_pass;
pub mod operator;
pub mod recent;
pub mod reminders;
mod silo_rows;
pub mod silos;
pub mod state;
pub mod statistics;
mod stored;
pub mod table;
pub mod unchecked;
pub mod url;
pub mod validate;

pub use address::{Address, Parameter, Parameters, Rules, User};
pub use contention::Contention;
pub use contract::{
    BoxFuture, CommitOutcome, Etag, Mutation, Result, StoreError, StoreErrorKind, StoredRow,
    SystemStore,
};
pub use examine::{ClockDifference, Examination, Finding, FindingLevel, FindingSubject};
pub use fault::{Failure, Fault};
pub use limits::StoreLimits;
pub use memory::{MemoryStore, MemoryTables};
pub use silos::{SiloCommit, SiloTable, SiloTouch};
pub use state::{ClearOutcome, StateSlot, StateTable, StoredState, WriteOutcome};
pub use table::{Column, ColumnType, Row, TableDecl, Value};
pub use unchecked::{Answered, Unchecked};
pub use url::StoreUrl;

/// Every table of a cluster.
pub static TABLES: [&TableDecl; 8] = [
    &silos::SILO_INSTANCES,
    &state::GRAIN_STATE,
    &reminders::REMINDERS,
    &metrics::SILO_METRICS,
    &metrics::CLIENT_METRICS,
    &statistics::SILO_STATISTICS,
    &statistics::CLIENT_STATISTICS,
    &history::MEMBERSHIP_HISTORY,
];
