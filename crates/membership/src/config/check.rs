//! Checks that the options make sense together.

use std::time::Duration;

use super::{Config, ConfigError};
use crate::humantime;
use crate::view::RINGS_MAX;

impl Config {
    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// The first contradiction found, naming the option to change.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_probes()?;
        self.validate_votes()?;
        self.validate_table()
    }

    fn validate_probes(&self) -> Result<(), ConfigError> {
        positive("num_probed_silos", self.num_probed_silos)?;
        positive("num_missed_probes_limit", self.num_missed_probes_limit)?;
        positive("probe_period", self.probe_period)?;
        positive("probe_timeout", self.probe_timeout)?;
        positive("min_probe_timeout", self.min_probe_timeout)?;
        positive("health_scheduler_delay", self.health_scheduler_delay)?;
        ordered("min_probe_timeout", self.min_probe_timeout, "probe_timeout", self.probe_timeout)?;
        ordered("probe_timeout", self.probe_timeout, "max_probe_timeout", self.max_probe_timeout)?;
        let rings_max = u32::try_from(RINGS_MAX).unwrap_or(u32::MAX);
        within("num_probe_rings", self.num_probe_rings, 1, rings_max.min(self.num_probed_silos))?;
        within("probe_timeout_growth_percent", self.probe_timeout_growth_percent, 100, 400)?;
        within("num_missed_probes_limit", self.num_missed_probes_limit, 1, 100)?;
        within("num_answers_to_clear", self.num_answers_to_clear, 1, 10)?;
        if self.connection_hints {
            positive("hint_dial_timeout", self.hint_dial_timeout)?;
        }
        if self.enable_indirect_probes {
            within("num_indirect_probes", self.num_indirect_probes, 1, 16)?;
        }
        if self.fence_timeout > Duration::ZERO && self.fence_timeout >= self.patience() {
            return Err(wrong(
                "fence_timeout",
                format!(
                    "{} is not shorter than {}, the time of {} missed probes",
                    humantime::print(self.fence_timeout),
                    humantime::print(self.patience()),
                    self.num_missed_probes_limit
                ),
            ));
        }
        if self.fence_timeout > Duration::ZERO && self.fence_table_timeout.is_zero() {
            return Err(wrong(
                "fence_table_timeout",
                "must not be zero where there is a fence".to_owned(),
            ));
        }
        ordered(
            "fence_table_timeout",
            self.fence_table_timeout,
            "fence_timeout",
            self.fence_timeout,
        )
    }

    fn validate_votes(&self) -> Result<(), ConfigError> {
        positive("death_vote_expiration_timeout", self.death_vote_expiration_timeout)?;
        if self.liveness_enabled {
            let votes = self.num_votes_for_death_declaration;
            within("num_votes_for_death_declaration", votes, 1, self.num_probed_silos)?;
        }
        if self.death_vote_expiration_timeout <= self.patience() / 2 {
            return Err(wrong(
                "death_vote_expiration_timeout",
                "shorter than half the time of the missed probes: votes would never meet"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn validate_table(&self) -> Result<(), ConfigError> {
        for (option, value) in [
            ("table_refresh_timeout", self.table_refresh_timeout),
            ("i_am_alive_table_publish_timeout", self.i_am_alive_table_publish_timeout),
            ("max_join_attempt_time", self.max_join_attempt_time),
            ("table_timeout", self.table_timeout),
            ("table_retry_min", self.table_retry_min),
            ("writer_timeout", self.writer_timeout),
            ("shutdown_grace_period", self.shutdown_grace_period),
        ] {
            positive(option, value)?;
        }
        positive("num_missed_table_i_am_alive_limit", self.num_missed_table_i_am_alive_limit)?;
        ordered("table_retry_min", self.table_retry_min, "table_retry_max", self.table_retry_max)?;
        within("fan_out", self.fan_out, 2, 1_000)?;
        within("delta_log_max", self.delta_log_max, 1, 100_000)?;
        within("join_sample_rows", self.join_sample_rows, 0, 49)
    }
}

fn wrong(option: &'static str, reason: String) -> ConfigError {
    ConfigError { option, reason }
}

fn positive<T: Copy + Default + PartialEq>(
    option: &'static str,
    value: T,
) -> Result<(), ConfigError> {
    if value == T::default() { Err(wrong(option, "must not be zero".to_owned())) } else { Ok(()) }
}

fn within(option: &'static str, value: u32, min: u32, max: u32) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(wrong(option, format!("{value} is not between {min} and {max}")))
    }
}

fn ordered(
    low: &'static str,
    a: Duration,
    high: &'static str,
    b: Duration,
) -> Result<(), ConfigError> {
    if a <= b {
        Ok(())
    } else {
        Err(wrong(
            low,
            format!("{} is more than {high}, {}", humantime::print(a), humantime::print(b)),
        ))
    }
}
