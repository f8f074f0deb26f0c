//! System stores by URL, and the tables in them. Which schemes are known depends on the crate's
//! features.

pub use emmer_core::reminder::{Reminder, Schedule};
pub use emmer_store::history::{HistoryTable, Recorded, clusters};
pub use emmer_store::keys::{GrainRef, ParseGrainRefError, reference};
pub use emmer_store::memory::MemoryStore;
pub use emmer_store::metrics::{ClientMetrics, MetricsTable, Shared as SharedMetrics, SiloMetrics};
pub use emmer_store::operator::{Death, DutyChange, DutyError, Written};
pub use emmer_store::reminders::{
    ReminderRemoval, ReminderTable, ReminderWrite, Scanned, StoredReminder,
};
pub use emmer_store::silos::{SiloCommit, SiloTable};
pub use emmer_store::state::StateTable;
pub use emmer_store::statistics::{
    Kind as StatisticsKind, Reported, Source, Statistic, StatisticsTable,
};
pub use emmer_store::{
    BoxFuture, ClockDifference, Examination, Finding, FindingLevel, FindingSubject, StoreError,
    StoreErrorKind, StoreLimits, SystemStore, checkup,
};
pub use emmer_stores::{
    CredentialError, CredentialSource, SCHEMES, StoreCredentials, open, open_to_read,
    open_to_read_with, open_with, schema,
};
