//! The health of this silo itself (membership description, step 10): a score from 0 to 8 out of six
//! signals.

use emmer_core::{Instant, SiloStatus};

use crate::api::HealthSample;
use crate::facts::Facts;

/// The worst score.
const HEALTH_SCORE_MAX: u32 = 8;

/// The signals that come from outside, as they were last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Health {
    /// The points for late tasks and timers, and when they were given.
    local: Option<(u32, Instant)>,
    last_probed: Option<Instant>,
    last_answered: Option<Instant>,
    active_since: Option<Instant>,
}

impl Health {
    pub(super) const fn probed(&mut self, facts: &Facts) {
        self.last_probed = Some(facts.now().mono);
    }

    pub(super) const fn answered(&mut self, facts: &Facts) {
        self.last_answered = Some(facts.now().mono);
    }

    pub(super) fn became_active(&mut self, facts: &Facts) {
        self.active_since.get_or_insert_with(|| facts.now().mono);
    }

    pub(super) fn sample(&mut self, facts: &Facts, sample: HealthSample) {
        let (now, config) = (facts.now().mono, facts.config());
        let unit = config.health_scheduler_delay.as_millis().max(1);
        let late_tasks =
            u32::try_from(sample.scheduler_delay.as_millis() / unit).unwrap_or(HEALTH_SCORE_MAX);
        let late_timer = u32::from(sample.timer_delay > config.health_timer_delay);
        let points = (late_tasks + late_timer).min(HEALTH_SCORE_MAX);
        let window = config.local_health_degradation_monitoring_period;
        let keep = match self.local {
            Some((old, at)) => old > points && now.saturating_since(at) < window,
            None => false,
        };
        if !keep {
            self.local = Some((points, now));
        }
    }

    /// The score at the last input of a silo that probes `peers` others.
    pub(super) fn score(&self, facts: &Facts, peers: usize) -> u32 {
        let (now, view) = (facts.now(), facts.view());
        let period = facts.config().local_health_degradation_monitoring_period;
        let is_recent = |at: Instant| now.mono.saturating_since(at) < period;
        let mut score = match self.local {
            Some((points, at)) if is_recent(at) => points,
            _ => 0,
        };
        if facts.standing().is_in_table() {
            match view.get(&facts.me()) {
                Some(row) if row.status == SiloStatus::Active => {
                    let window = facts.config().vote_window();
                    let votes = row.votes.iter().filter(|v| window.counts(now.wall, v.at));
                    score += u32::try_from(votes.count())
                        .unwrap_or(HEALTH_SCORE_MAX)
                        .min(HEALTH_SCORE_MAX);
                }
                _ => return HEALTH_SCORE_MAX,
            }
        }
        let settled = self.active_since.is_some_and(|at| now.mono.saturating_since(at) > period);
        if settled && peers > 1 && !self.last_answered.is_some_and(is_recent) {
            score += 1;
        }
        if settled && view.active_count() > 2 && !self.last_probed.is_some_and(is_recent) {
            score += 1;
        }
        score.min(HEALTH_SCORE_MAX)
    }
}
