//! The options of a silo's records in the store.

use std::time::Duration;

use emmer_membership::humantime;
use serde::{Deserialize, Serialize};

/// The settings of a silo's records in the store: its metrics, its statistics, and the history of
/// the membership. A time of 0 turns one of them off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RecordOptions {
    /// The silo's row of metrics is written once in this time. Default 30 s.
    #[serde(with = "humantime")]
    pub metrics_period: Duration,
    /// True if a gateway records the metrics of its clients, each once in this time. It asks them.
    /// A client alone has no use for it. Default no.
    pub clients: bool,
    /// The silo's statistics are added once in this time. Default 5 min.
    #[serde(with = "humantime")]
    pub statistics_period: Duration,
    /// Statistics are added to a store that holds everything in memory, too (Redis, ZooKeeper,
    /// Consul): some 12 MiB a silo there, by the other defaults. Default no.
    pub statistics_in_memory: bool,
    /// Statistics that are older are deleted. Default 3 d.
    #[serde(with = "humantime")]
    pub statistics_retention: Duration,
    /// Changes of the membership that are older are deleted. Default 30 d.
    #[serde(with = "humantime")]
    pub history_retention: Duration,
}

impl RecordOptions {
    /// Nothing is recorded.
    pub const OFF: Self = Self {
        metrics_period: Duration::ZERO,
        clients: false,
        statistics_period: Duration::ZERO,
        statistics_in_memory: false,
        statistics_retention: Duration::from_secs(3 * 86_400),
        history_retention: Duration::ZERO,
    };
}

impl RecordOptions {
    /// Turns off records that a store in memory should not get.
    pub(crate) const fn fit(&mut self, store_keeps_in_memory: bool) {
        if store_keeps_in_memory && !self.statistics_in_memory {
            self.statistics_period = Duration::ZERO;
        }
    }
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            metrics_period: Duration::from_secs(30),
            clients: false,
            statistics_period: Duration::from_secs(300),
            statistics_in_memory: false,
            statistics_retention: Duration::from_secs(3 * 86_400),
            history_retention: Duration::from_secs(30 * 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_in_memory_gets_statistics_only_if_it_is_said() {
        for (in_memory, said, recorded) in
            [(false, false, true), (true, false, false), (true, true, true)]
        {
            let mut options =
                RecordOptions { statistics_in_memory: said, ..RecordOptions::default() };
            options.fit(in_memory);
            assert_eq!(!options.statistics_period.is_zero(), recorded, "{in_memory} {said}");
            assert!(!options.metrics_period.is_zero() && !options.history_retention.is_zero());
        }
    }
}
