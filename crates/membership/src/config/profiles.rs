//! The four named sets of options.

use std::time::Duration;

use super::Config;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            num_probed_silos: 10,
            num_probe_rings: 10,
            probe_period: secs(1),
            probe_timeout: ms(200),
            min_probe_timeout: ms(200),
            max_probe_timeout: secs(5),
            adaptive_probe_timeouts: true,
            burst_reprobes: true,
            probe_timeout_growth_percent: 150,
            num_missed_probes_limit: 6,
            num_answers_to_clear: 3,
            num_votes_for_death_declaration: 3,
            death_vote_expiration_timeout: secs(180),
            liveness_enabled: true,
            vote_needs_witness: true,
            enable_indirect_probes: true,
            num_indirect_probes: 2,
            num_indirect_attempts: 2,
            indirect_probe_counts_as_vote: false,
            enable_connection_liveness_check: true,
            connection_liveness_window: Duration::ZERO,
            connection_hints: true,
            hint_dial_timeout: secs(1),
            extend_probe_timeout_during_degradation: true,
            local_health_degradation_monitoring_period: secs(10),
            health_scheduler_delay: secs(1),
            health_timer_delay: secs(3),
            table_refresh_timeout: secs(60),
            version_only_refresh: true,
            i_am_alive_table_publish_timeout: secs(30),
            num_missed_table_i_am_alive_limit: 3,
            min_i_am_alive_publish_timeout: secs(5),
            moving_staleness: true,
            table_timeout: secs(10),
            table_retry_min: ms(100),
            table_retry_max: secs(1),
            reevaluate_lost_commits_at_once: true,
            retract_votes: true,
            batch_writes: true,
            batch_window: ms(5),
            vote_hold: secs(5),
            death_gather: ms(300),
            writer_timeout: ms(250),
            use_liveness_gossip: true,
            delta_views: true,
            fan_out: 8,
            delta_log_max: 64,
            max_join_attempt_time: secs(300),
            expected_cluster_size: 20,
            evict_when_max_join_attempt_time_exceeded: true,
            join_sample_rows: 5,
            shutdown_grace_period: secs(5),
            defunct_silo_expiration: secs(7 * 86_400),
            defunct_silo_cleanup_period: secs(3_600),
            max_defunct_silo_entries: 100,
            fence_timeout: ms(3_500),
            fence_table_timeout: ms(350),
            serve_without_store: true,
        }
    }
}

impl Config {
    /// The numbers and rules of the membership description: 10 s probes, 3 probed silos, 3 misses,
    /// 2 votes within 3 minutes, 60 s refresh of the whole table, IAmAlive every 5 minutes, one
    /// indirect probe whose negative answer counts as both votes, a snapshot to all silos after
    /// each write, every silo its own writer.
    pub fn classic() -> Self {
        Self {
            num_probed_silos: 3,
            num_probe_rings: 1,
            probe_period: secs(10),
            probe_timeout: secs(10),
            min_probe_timeout: secs(10),
            max_probe_timeout: secs(10),
            adaptive_probe_timeouts: false,
            probe_timeout_growth_percent: 100,
            num_missed_probes_limit: 3,
            num_answers_to_clear: 1,
            num_votes_for_death_declaration: 2,
            vote_needs_witness: false,
            num_indirect_probes: 1,
            indirect_probe_counts_as_vote: true,
            enable_connection_liveness_check: false,
            connection_hints: false,
            version_only_refresh: false,
            i_am_alive_table_publish_timeout: secs(300),
            num_missed_table_i_am_alive_limit: 2,
            min_i_am_alive_publish_timeout: Duration::ZERO,
            moving_staleness: false,
            table_retry_min: secs(1),
            table_retry_max: secs(60),
            reevaluate_lost_commits_at_once: false,
            retract_votes: false,
            batch_writes: false,
            batch_window: Duration::ZERO,
            vote_hold: Duration::ZERO,
            death_gather: Duration::ZERO,
            delta_views: false,
            join_sample_rows: 0,
            max_defunct_silo_entries: 0,
            fence_timeout: Duration::ZERO,
            fence_table_timeout: Duration::ZERO,
            ..Self::default()
        }
    }

    /// For networks and machines where pauses above one second do not happen: the default with half
    /// the misses.
    pub fn fast() -> Self {
        Self {
            num_missed_probes_limit: 3,
            fence_timeout: ms(800),
            fence_table_timeout: ms(250),
            probe_period: ms(400),
            death_gather: ms(100),
            vote_hold: ms(1500),
            num_answers_to_clear: 1,
            ..Self::default()
        }
    }

    /// The original's current parameters (main branch, August 2026), as far as one machine serves
    /// them: 10 rings, adaptive timeouts between 2.5 s and 20 s, 3 misses, 2 votes, votes held back
    /// while the connection was heard from within 60 s.
    pub fn orleans_2026() -> Self {
        Self {
            num_probed_silos: 10,
            num_probe_rings: 10,
            probe_period: ms(2_500),
            probe_timeout: secs(5),
            min_probe_timeout: ms(2_500),
            max_probe_timeout: secs(20),
            adaptive_probe_timeouts: true,
            death_vote_expiration_timeout: secs(120),
            i_am_alive_table_publish_timeout: secs(30),
            num_missed_table_i_am_alive_limit: 3,
            num_indirect_attempts: 1,
            enable_connection_liveness_check: true,
            connection_liveness_window: secs(60),
            max_defunct_silo_entries: 25,
            ..Self::classic()
        }
    }
}
