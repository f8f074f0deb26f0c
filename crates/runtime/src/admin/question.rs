//! The questions and orders of operators.

use std::time::Duration;

use emmer_core::{Duty, GrainKey, SiloAddress};
use serde::{Deserialize, Serialize};

use super::WITHIN_MS_MAX;
use crate::access::Right;

/// A question to one silo, or an order to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Question {
    /// The silo as a whole: [`SiloLook`](super::SiloLook).
    Silo,
    /// The members of the cluster in the silo's view: their rows.
    Members,
    /// The grain types that it hosts, with their methods: [`TypeLook`](super::TypeLook)s.
    Types,
    /// Counts of each method that it hosts: `MethodStatistics`.
    Methods,
    /// A page of the grains in its memory: [`GrainPage`](super::GrainPage).
    Grains {
        /// Grains of this type; none for all.
        grain_type: Option<String>,
        /// Grains whose key as text has this in it.
        key_has: Option<String>,
        /// True for those alone that run a turn, or for which calls wait.
        busy: bool,
        /// The end of the page before.
        after: Option<u64>,
        /// Number of rows, at most.
        max: u32,
    },
    /// One grain, wherever it is: [`GrainLook`](super::GrainLook).
    Look(GrainName),
    /// The turns that have run for longest: [`TurnLook`](super::TurnLook)s, and threads that turns
    /// hold.
    Turns {
        /// Number of turns, at most.
        max: u32,
    },
    /// The grains for which most calls wait: `GrainQueue`s. Looks at every activation.
    Queues {
        /// Number of grains, at most.
        max: u32,
    },
    /// The keys that are called most, and those whose turns take most time:
    /// [`HotLook`](super::HotLook). The first question starts the samples, and a minute without
    /// one ends them.
    Hot {
        /// Number of grains in each list, at most.
        max: u32,
    },
    /// Every metric of the silo: [`MetricLook`](super::MetricLook)s.
    Metrics,
    /// Its connections, those with most bytes that wait first:
    /// [`ConnectionLook`](super::ConnectionLook)s.
    Connections {
        /// Number of connections, at most.
        max: u32,
    },
    /// The reminders that it fires next, late ones first: [`DueLook`](super::DueLook)s.
    Reminders {
        /// Number of reminders, at most.
        max: u32,
    },
    /// The last failures of turns, latest first: [`FailedLook`](super::FailedLook)s.
    Failures {
        /// Number of failures, at most.
        max: u32,
    },
    /// The history of the cluster in the store, latest first: [`ChangeLook`](super::ChangeLook)s.
    History {
        /// Number of changes, at most.
        max: u32,
    },
    /// The settings of the silo: [`SettingLook`](super::SettingLook)s.
    Settings,
    /// Lines of the log of its process: [`LogPage`](super::LogPage). The first question has lines
    /// kept, and a minute without one ends that.
    Log {
        /// Lines of this level and above: `error`, `warn`, `info`, `debug` or `trace`.
        level: String,
        /// Number of the last line of the page before; 0 for all that are kept.
        after: u64,
        /// Number of lines, at most.
        max: u32,
    },
    /// The turns of a grain on the silo while it is traced: [`TracePage`](super::TracePage).
    Traced {
        /// The grain.
        grain: GrainName,
    },
    /// Traces a grain on the silo, for a time: the time in milliseconds. Every call of the grain's
    /// type is timed meanwhile.
    Trace {
        /// The grain.
        grain: GrainName,
        /// Time in milliseconds: an hour at most.
        for_ms: u64,
        /// Words for the log and the history.
        because: Option<String>,
    },
    /// Has the log of the silo's process written by another filter for a time: the filter before.
    SetLog {
        /// The filter, as the setting `log` has it. None: as it was at the start.
        filter: Option<String>,
        /// Time in milliseconds: a day at most.
        for_ms: u64,
        /// Words for the log and the history.
        because: Option<String>,
    },
    /// Ends an activation: [`Deactivated`](super::Deactivated).
    Deactivate {
        /// The grain.
        grain: GrainName,
        /// True to drop turns that do not end within the time.
        drop_turns: bool,
        /// Time to wait for the turns, in milliseconds.
        within_ms: u64,
        /// Words for the log and the history.
        because: Option<String>,
    },
    /// Moves a grain to another silo: [`Moved`](super::Moved).
    Move {
        /// The grain.
        grain: GrainName,
        /// Target silo. None: placement chooses it.
        to: Option<SiloAddress>,
        /// Words for the log.
        because: Option<String>,
    },
    /// Removes a reminder of a grain: true if there was one.
    RemoveReminder {
        /// The grain.
        grain: GrainName,
        /// Name of the reminder.
        name: String,
        /// Words for the log and the history.
        because: Option<String>,
    },
    /// Delivers the next tick of a reminder now, besides that of its time: true if there is one.
    FireReminder {
        /// The grain.
        grain: GrainName,
        /// Name of the reminder.
        name: String,
        /// Words for the log and the history.
        because: Option<String>,
    },
    /// Writes a duty of the silo into the membership table: the table's version.
    GiveDuty {
        /// The duty.
        duty: Duty,
        /// Words for the history.
        because: Option<String>,
    },
}

/// A grain by the name of its type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrainName {
    /// The name of its type.
    pub grain_type: String,
    /// Its key.
    pub key: GrainKey,
}

impl Question {
    /// The right that it needs.
    pub const fn right(&self) -> Right {
        match self {
            Self::Silo
            | Self::Members
            | Self::Types
            | Self::Methods
            | Self::Grains { .. }
            | Self::Look(_)
            | Self::Turns { .. }
            | Self::Queues { .. }
            | Self::Hot { .. }
            | Self::Metrics
            | Self::Connections { .. }
            | Self::Reminders { .. }
            | Self::Failures { .. }
            | Self::History { .. }
            | Self::Settings
            | Self::Log { .. }
            | Self::Traced { .. } => Right::Look,
            Self::Deactivate { .. }
            | Self::Move { .. }
            | Self::RemoveReminder { .. }
            | Self::FireReminder { .. }
            | Self::GiveDuty { .. }
            | Self::Trace { .. }
            | Self::SetLog { .. } => Right::Act,
        }
    }

    /// Time that the answer may take by itself.
    pub(crate) fn takes(&self) -> Duration {
        match self {
            Self::Deactivate { within_ms, .. } => {
                Duration::from_millis((*within_ms).min(WITHIN_MS_MAX))
            }
            _ => Duration::ZERO,
        }
    }

    /// The name of the grain type that the question is about.
    pub(crate) const fn type_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Look(grain)
            | Self::Deactivate { grain, .. }
            | Self::Move { grain, .. }
            | Self::Trace { grain, .. }
            | Self::Traced { grain }
            | Self::RemoveReminder { grain, .. }
            | Self::FireReminder { grain, .. } => Some(&mut grain.grain_type),
            Self::Grains { grain_type, .. } => grain_type.as_mut(),
            _ => None,
        }
    }

    /// Returns the grain that the question is about: its silo answers.
    pub(crate) const fn grain(&self) -> Option<&GrainName> {
        match self {
            Self::Look(grain)
            | Self::Deactivate { grain, .. }
            | Self::Move { grain, .. }
            | Self::Trace { grain, .. }
            | Self::Traced { grain }
            | Self::RemoveReminder { grain, .. }
            | Self::FireReminder { grain, .. } => Some(grain),
            _ => None,
        }
    }
}
