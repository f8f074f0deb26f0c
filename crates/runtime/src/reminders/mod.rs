//! Reminders: the grain's API, the delivery, and the shell of the machine that decides which silo
//! fires which.

mod api;
mod error;
mod service;
mod tick;

pub use self::api::{ReminderBuilder, ReminderInfo};
pub use self::error::ReminderError;
pub(crate) use self::service::{ReminderService, Surroundings};
pub use self::tick::{NoReminders, ReminderTick, Tick, TickResult, is_among, no_handler};
