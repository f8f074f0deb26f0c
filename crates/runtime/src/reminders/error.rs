//! The errors of reminders.

use std::time::Duration;

use emmer_core::Timestamp;
use emmer_core::reminder::{REMINDER_NAME_BYTES_MAX, REMINDER_TIME_MAX};

/// Why nothing is known of a reminder, or nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReminderError {
    /// The name cannot be one.
    #[error("the name of a reminder has {bytes} bytes: expected 1 to {REMINDER_NAME_BYTES_MAX}")]
    Name {
        /// Its length.
        bytes: usize,
    },
    /// The class has no handler of this name.
    #[error("no method of {grain_type} is marked #[reminder({name:?})]; {}", list(known))]
    NoHandler {
        /// The name.
        name: String,
        /// The name of the grain's type.
        grain_type: String,
        /// The names that have a handler.
        known: Vec<&'static str>,
    },
    /// Nothing says when it is due first.
    #[error("the reminder {0:?} has no time: write .at, .after or .every")]
    NeverDue(String),
    /// It would have been due first before now.
    #[error("the reminder is due first at {at}, which has passed: it is {now}")]
    Past {
        /// Time of the occurrence.
        at: Timestamp,
        /// Time of the check.
        now: Timestamp,
    },
    /// It would be due, or end, after the year 9999.
    #[error("the reminder is due first, or ends, at {at}: the last time is {REMINDER_TIME_MAX}")]
    TooFar {
        /// Time of the occurrence.
        at: Timestamp,
    },
    /// The time between two occurrences is too short.
    #[error("a reminder every {period:?}: the shortest period is {least:?} (reminders.period_min)")]
    Period {
        /// The period that was asked for.
        period: Duration,
        /// The shortest that the silo allows.
        least: Duration,
    },
    /// It ends before it begins.
    #[error("the reminder ends at {end}, before it is due first at {first}")]
    End {
        /// The first occurrence.
        first: Timestamp,
        /// The end.
        end: Timestamp,
    },
    /// The grain has reached its limit of reminders.
    #[error("the grain has {0} reminders already (reminders.per_grain_max)")]
    TooMany(usize),
    /// The store did not execute the request.
    #[error("{detail}")]
    Store {
        /// The store's words.
        detail: String,
        /// If it may have been done all the same.
        maybe_written: bool,
    },
    /// Others changed the same reminder again and again.
    #[error("the reminder {0:?} was changed by others meanwhile, again and again")]
    Contended(String),
    /// The grain's silo has ended.
    #[error("the silo has ended")]
    SiloEnded,
}

/// The names that a class has, for people.
fn list(known: &[&'static str]) -> String {
    if known.is_empty() {
        return "it has none".to_owned();
    }
    let names: Vec<String> = known.iter().map(|name| format!("{name:?}")).collect();
    format!("it has {}", names.join(", "))
}
