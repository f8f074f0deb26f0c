//! Every option of the membership protocol, under the name the original gives it (in snake case).
//!
//! Durations are written with a unit (`"10s"`, `"200ms"`, `"3m"`), in files and in the environment
//! alike; see [`humantime`].

mod check;
mod profiles;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::humantime;
use crate::lapse::lapse;

/// The options of the membership protocol. All silos of a cluster should use the same.
///
/// Four named sets exist: [`classic`](Self::classic) (the membership description to the letter),
/// [`default`](Self::default) (ours), [`fast`](Self::fast) (for networks where nothing pauses for a
/// second) and [`orleans_2026`](Self::orleans_2026) (the original's current numbers, for
/// comparison).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    // ---- who probes whom, and how often
    // -------------------------------------------------------------------
    /// NumProbedSilos: how many silos each silo probes. Classic 3, default 10.
    pub num_probed_silos: u32,
    /// On how many seeded rings the probed silos are looked up: the first successors on each ring
    /// in turn. One ring gives the original's chain of successors, as many rings as probed silos an
    /// expander graph. Classic 1, default 10.
    pub num_probe_rings: u32,
    /// Time from the start of one probe to the start of the next one of the same silo. Classic 10
    /// s, default 1 s.
    #[serde(with = "humantime")]
    pub probe_period: Duration,
    /// ProbeTimeout: how long a probe waits for its answer before it counts as missed, until round
    /// trips have been measured. Classic 10 s, default 200 ms.
    #[serde(with = "humantime")]
    pub probe_timeout: Duration,
    /// MinProbeTimeout: the shortest timeout that measured round trips may lead to. Default 200 ms:
    /// below that a single TCP retransmission looks like a miss.
    #[serde(with = "humantime")]
    pub min_probe_timeout: Duration,
    /// MaxProbeTimeout: the longest timeout that measured round trips may lead to. Default 5 s.
    #[serde(with = "humantime")]
    pub max_probe_timeout: Duration,
    /// True if the timeout follows the round trips measured with each peer (improvement 2). Classic
    /// no, default yes.
    pub adaptive_probe_timeouts: bool,
    /// True if a missed probe is followed by the next one at once instead of after the period
    /// (improvement 2). Classic yes in effect (timeout = period), default yes.
    pub burst_reprobes: bool,
    /// By how many percent the timeout grows from one missed probe to the next. With 150 and six
    /// probes of 200 ms the patience is 4.2 s. Classic 100 (constant), default 150.
    pub probe_timeout_growth_percent: u32,
    /// NumMissedProbesLimit: probes missed in a row that make a suspicion. Classic 3, default 6.
    pub num_missed_probes_limit: u32,
    /// Number of answers since the first of several missed probes after which they are forgotten
    /// and a suspicion is taken back. A silo that loses most of its messages gets one through now
    /// and then. Classic 1, default 3, `fast` 1.
    pub num_answers_to_clear: u32,
    // ---- votes
    // --------------------------------------------------------------------------------------------
    /// NumVotesForDeathDeclaration: how many votes make a silo Dead (fewer in clusters too small
    /// for that). Classic 2, default 3.
    pub num_votes_for_death_declaration: u32,
    /// DeathVoteExpirationTimeout: how long a vote counts. 3 minutes.
    #[serde(with = "humantime")]
    pub death_vote_expiration_timeout: Duration,
    /// LivenessEnabled: whether silos may be declared dead at all. Votes are written regardless.
    /// Default yes.
    pub liveness_enabled: bool,
    /// True if a vote needs a witness: a round trip with a third silo, started after the first miss
    /// and ended before the last missed probe started (improvement 4). Classic no, default yes.
    pub vote_needs_witness: bool,
    /// EnableIndirectProbes: whether the last probes before a vote go through other silos. Default
    /// yes.
    pub enable_indirect_probes: bool,
    /// Number of intermediaries that are asked. Classic 1, default 2.
    pub num_indirect_probes: u32,
    /// Number of the last attempts before a vote that go through intermediaries. 2; the original's
    /// code: 1.
    pub num_indirect_attempts: u32,
    /// True if a negative answer from a healthy intermediary counts as its vote too ("counts as
    /// both votes"). Classic yes, default no (improvement 4).
    pub indirect_probe_counts_as_vote: bool,
    /// EnableConnectionLivenessCheck: whether application bytes heard from the suspect hold a vote
    /// back. In the default set only bytes heard since the first miss do; with `orleans_2026` any
    /// within the detection window.
    pub enable_connection_liveness_check: bool,
    /// Age up to which bytes heard hold a vote back. Zero: only since the first miss. Default 0.
    #[serde(with = "humantime")]
    pub connection_liveness_window: Duration,
    /// True if a broken connection leads to a dial at once, and a refused dial to a vote
    /// (improvement 3). Default yes.
    pub connection_hints: bool,
    /// Longest time for such a dial. Default 1 s.
    #[serde(with = "humantime")]
    pub hint_dial_timeout: Duration,
    // ---- self-health
    // --------------------------------------------------------------------------------------
    /// ExtendProbeTimeoutDuringDegradation: whether the self-health score stretches probe timeouts.
    /// Default yes.
    pub extend_probe_timeout_during_degradation: bool,
    /// LocalHealthDegradationMonitoringPeriod: how far back the score looks. Default 10 s.
    #[serde(with = "humantime")]
    pub local_health_degradation_monitoring_period: Duration,
    /// Time that a task may wait for a worker before it costs a point of health, one more for each
    /// further such span. 1 s.
    #[serde(with = "humantime")]
    pub health_scheduler_delay: Duration,
    /// Time by which a timer may fire late before it costs a point of health. 3 s.
    #[serde(with = "humantime")]
    pub health_timer_delay: Duration,
    // ---- the table
    // ----------------------------------------------------------------------------------------
    /// TableRefreshTimeout: how often the table (or its version alone) is read. 60 s.
    #[serde(with = "humantime")]
    pub table_refresh_timeout: Duration,
    /// True if the refresh reads the version row alone and the table only when it moved
    /// (improvement 6). Default yes.
    pub version_only_refresh: bool,
    /// IAmAliveTablePublishTimeout: how often a silo touches its row. Classic 5 min, default 30 s.
    #[serde(with = "humantime")]
    pub i_am_alive_table_publish_timeout: Duration,
    /// NumMissedTableIAmAliveLimit: after how many missed touches a row is stale in the original.
    /// With the fence two thirds of that time count ([`Config::word_counts_for`]). Classic 2,
    /// default 3.
    pub num_missed_table_i_am_alive_limit: u32,
    /// Shortest period of the touches of a row. In a small cluster the period is 25 ms for each
    /// Active silo, at least this and at most `i_am_alive_table_publish_timeout`, so that up to
    /// 1,200 silos together touch at most forty rows a second. Zero: always the longer period.
    /// Classic 0, default 5 s.
    #[serde(with = "humantime")]
    pub min_i_am_alive_publish_timeout: Duration,
    /// True if staleness is judged by the local time since the value last moved, instead of by
    /// comparing clocks (improvement 8). Classic no, default yes.
    pub moving_staleness: bool,
    /// Time after which the outcome of a request to the table counts as unknown. 10 s.
    #[serde(with = "humantime")]
    pub table_timeout: Duration,
    /// The shortest pause before the table is tried again after it did not answer or a commit was
    /// lost twice.
    #[serde(with = "humantime")]
    pub table_retry_min: Duration,
    /// The longest such pause. Classic 60 s, default 2 s.
    #[serde(with = "humantime")]
    pub table_retry_max: Duration,
    /// True if a commit that lost the compare-and-set is evaluated again at once (improvement 7).
    /// Classic no, default yes.
    pub reevaluate_lost_commits_at_once: bool,
    /// True if a silo takes its own vote out of the table when the suspect answers again. In the
    /// original the vote stays until it expires, and helps later accusations of the same silo.
    pub retract_votes: bool,
    /// True if intents go to one writer that commits many together (improvement 5). Classic no,
    /// default yes.
    pub batch_writes: bool,
    /// Time for which the writer collects intents before it commits. Default 5 ms.
    #[serde(with = "humantime")]
    pub batch_window: Duration,
    /// Time for which the writer keeps insufficient votes in memory before it writes them. Their
    /// owners repeat them meanwhile. Default 5 s.
    #[serde(with = "humantime")]
    pub vote_hold: Duration,
    /// Longest wait of a death by silence for each other suspicion with insufficient votes (up to
    /// ten), so that silos that fail together cost few versions. Zero: never. Classic 0, default
    /// 300 ms.
    #[serde(with = "humantime")]
    pub death_gather: Duration,
    /// Time that a silo waits for the writer before it asks the next silo in ring order, and at
    /// last itself. Default 250 ms.
    #[serde(with = "humantime")]
    pub writer_timeout: Duration,
    // ---- views
    // --------------------------------------------------------------------------------------------
    /// UseLivenessGossip: whether a new view is sent to the other silos. Default yes.
    pub use_liveness_gossip: bool,
    /// True if views travel as deltas down a tree (improvement 6), instead of as snapshots to all
    /// silos. Default yes.
    pub delta_views: bool,
    /// Number of silos that one silo passes a view on to. Default 8.
    pub fan_out: u32,
    /// Number of past deltas that a silo keeps for those that missed them. Default 64.
    pub delta_log_max: u32,
    // ---- joining, leaving, cleaning
    // ------------------------------------------------------------------------
    /// MaxJoinAttemptTime: how long a silo tries to join before it gives up. 5 min.
    #[serde(with = "humantime")]
    pub max_join_attempt_time: Duration,
    /// ExpectedClusterSize: spreads the first writes of silos that start together over as many
    /// milliseconds. Default 20.
    pub expected_cluster_size: u32,
    /// EvictWhenMaxJoinAttemptTimeExceeded: whether silos that stay Joining for longer are voted
    /// dead. Default yes.
    pub evict_when_max_join_attempt_time_exceeded: bool,
    /// Number of rows that a joiner reads to find a peer that hands it the rest. 0: it reads the
    /// whole table. Default 5.
    pub join_sample_rows: u32,
    /// ClusteringShutdownGracePeriod: how long the last writes of a leaving silo may take. Default
    /// 5 s.
    #[serde(with = "humantime")]
    pub shutdown_grace_period: Duration,
    /// DefunctSiloExpiration: how long a Dead row is kept. 7 d.
    #[serde(with = "humantime")]
    pub defunct_silo_expiration: Duration,
    /// DefunctSiloCleanupPeriod: how often Dead rows are looked for. 1 h. Zero: never.
    #[serde(with = "humantime")]
    pub defunct_silo_cleanup_period: Duration,
    /// MaxDefunctSiloEntries: how many Dead rows are kept at most, whatever their age (those of the
    /// last `death_vote_expiration_timeout` are always kept). 0: no limit. Default 100.
    pub max_defunct_silo_entries: u32,
    // ---- the silence fence
    // ---------------------------------------------------------------------------------
    /// Time after the last confirmation that it is alive at which a silo stops starting turns
    /// (improvement 9). Must be shorter than the fastest possible death by silence. Zero: never.
    /// Classic 0, default 3500 ms.
    #[serde(with = "humantime")]
    pub fence_timeout: Duration,
    /// Time for which a confirmation by the table lets turns start. It proves life at one moment;
    /// votes may be under way. New owners of a silo's grains wait as long after its death. At most
    /// `fence_timeout`. Classic 0, default 350 ms.
    #[serde(with = "humantime")]
    pub fence_table_timeout: Duration,
    /// True if silos without the store continue on each other's word for as long as it is away.
    /// False: only until a newcomer may overlook their rows, 5.9 s by default. Then a group that is
    /// cut off from the store runs no grain that a newcomer may have, and an outage of the store
    /// stops every turn. Default true.
    pub serve_without_store: bool,
}

/// The options contradict one another. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {reason}")]
pub struct ConfigError {
    /// The option to change.
    pub option: &'static str,
    /// Fault of the option, with its value.
    pub reason: String,
}

/// All silos together touch at most one row in this time.
const TOUCH_EVERY: Duration = Duration::from_millis(25);

impl Config {
    /// Age of its row's last touch up to which a silo accepts the word of a part of its monitors,
    /// where `active` silos are Active. Later it needs the word of all of them. Without
    /// `serve_without_store` it accepts none.
    pub fn word_counts_for(&self, active: usize) -> Duration {
        if self.serve_without_store {
            self.stood_still_for() * 2 / 3
        } else {
            self.overlooked_when_refused_after(active) * 49 / 50
        }
    }

    /// Age of a row's last touch from which on the row is stale, where `active` silos are Active. A
    /// death takes fewer votes then.
    ///
    /// The original compares clocks, and takes the product of the two IAmAlive options. With the
    /// fence it is the time after which a silo certainly runs no turn, unless all of its monitors
    /// hear it. By then the word of only some of them does not count, and the last word has lapsed,
    /// by the slower of two clocks.
    pub fn stale_after(&self, active: usize) -> Duration {
        if self.moving_staleness && !self.fence_timeout.is_zero() {
            lapse(self.word_counts_for(active) + self.fence_timeout)
        } else {
            self.stood_still_for()
        }
    }

    /// The product of the two IAmAlive options.
    fn stood_still_for(&self) -> Duration {
        self.i_am_alive_table_publish_timeout.saturating_mul(self.num_missed_table_i_am_alive_limit)
    }

    /// Time between two touches of its row by each of `active` silos.
    pub fn publish_period(&self, active: usize) -> Duration {
        let longest = self.i_am_alive_table_publish_timeout;
        if self.min_i_am_alive_publish_timeout.is_zero() {
            return longest;
        }
        let shared = TOUCH_EVERY.saturating_mul(u32::try_from(active).unwrap_or(u32::MAX));
        shared.max(self.min_i_am_alive_publish_timeout).min(longest)
    }

    /// Time for which a row must have stood still, in a cluster of `active` silos, before a joiner
    /// overlooks a silo that it cannot reach.
    pub fn overlooked_after(&self, active: usize) -> Duration {
        self.publish_period(active).saturating_mul(self.num_missed_table_i_am_alive_limit)
    }

    /// As [`overlooked_after`](Self::overlooked_after), where the host says that the silo is gone:
    /// a little longer than a living silo needs to touch its row again. The refusal may be a
    /// firewall's, and the silo may live.
    pub fn overlooked_when_refused_after(&self, active: usize) -> Duration {
        self.publish_period(active) * 6 / 5
    }

    /// The shortest time from the first missed probe to a vote by silence.
    pub fn patience(&self) -> Duration {
        let mut timeout = self.min_probe_timeout;
        let mut sum = Duration::ZERO;
        for _ in 0..self.num_missed_probes_limit.min(1_000) {
            sum = sum.saturating_add(timeout);
            timeout = grown(timeout, self.probe_timeout_growth_percent);
        }
        sum
    }
}

/// `timeout` after one more miss.
pub(crate) fn grown(timeout: Duration, percent: u32) -> Duration {
    timeout.saturating_mul(percent) / 100
}
