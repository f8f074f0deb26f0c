//! The options of reminders.

use std::time::Duration;

use emmer_membership::humantime;
use serde::{Deserialize, Serialize};

/// The settings of reminders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ReminderOptions {
    /// Reminders that are due within this time are in memory. Each part of the table is read once
    /// in half of it. Default 10 min.
    #[serde(with = "humantime")]
    pub window: Duration,
    /// An occurrence that comes later than this, or than its period, was missed. Default 1 min.
    #[serde(with = "humantime")]
    pub late_after: Duration,
    /// The shortest period of a reminder. Default 1 s.
    #[serde(with = "humantime")]
    pub period_min: Duration,
    /// The most reminders of one grain. Default 100.
    pub per_grain_max: usize,
    /// The most ticks of a silo under way at once. Default 10,000.
    pub ticks_max: usize,
}

impl Default for ReminderOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(600),
            late_after: Duration::from_secs(60),
            period_min: Duration::from_secs(1),
            per_grain_max: 100,
            ticks_max: 10_000,
        }
    }
}
