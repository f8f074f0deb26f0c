//! How well this silo is itself (membership description, step 10): a score from 0 to 8 out of six
//! signals.

use std::time::Duration;

use emmer_core::{Instant, Now, SiloStatus};

use crate::api::HealthSample;
use crate::membership::Membership;

/// The worst score.
pub(crate) const HEALTH_SCORE_MAX: u32 = 8;

/// The signals that come from outside, as they were last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Health {
    /// The points for late tasks and timers, and when they were given.
    local: Option<(u32, Instant)>,
    last_probed: Option<Instant>,
    last_answered: Option<Instant>,
    active_since: Option<Instant>,
}

impl Health {
    pub(crate) const fn probed(&mut self, now: Now) {
        self.last_probed = Some(now.mono);
    }

    pub(crate) const fn answered(&mut self, now: Now) {
        self.last_answered = Some(now.mono);
    }

    pub(crate) fn became_active(&mut self, now: Now) {
        self.active_since.get_or_insert(now.mono);
    }

    fn sample(&mut self, now: Now, points: u32, window: Duration) {
        let keep = match self.local {
            Some((old, at)) => old > points && now.mono.saturating_since(at) < window,
            None => false,
        };
        if !keep {
            self.local = Some((points, now.mono));
        }
    }
}

impl Membership {
    pub(crate) fn on_health(&mut self, now: Now, sample: HealthSample) {
        let unit = self.facts.config().health_scheduler_delay.as_millis().max(1);
        let late_tasks =
            u32::try_from(sample.scheduler_delay.as_millis() / unit).unwrap_or(HEALTH_SCORE_MAX);
        let late_timer = u32::from(sample.timer_delay > self.facts.config().health_timer_delay);
        let window = self.facts.config().local_health_degradation_monitoring_period;
        self.health.sample(now, (late_tasks + late_timer).min(HEALTH_SCORE_MAX), window);
        self.facts.now().mono = self.facts.now().mono.max(now.mono);
    }

    /// The score at the last input.
    pub(crate) fn score(&self) -> u32 {
        let now = self.facts.now().mono;
        let window = self.facts.config().local_health_degradation_monitoring_period;
        let recent = |at: Option<Instant>| at.is_some_and(|at| now.saturating_since(at) < window);
        let mut score = match self.health.local {
            Some((points, at)) if now.saturating_since(at) < window => points,
            _ => 0,
        };
        if self.facts.standing().is_in_table() {
            match self.facts.view().get(&self.facts.me()) {
                Some(row) if row.status == SiloStatus::Active => {
                    let window = self.facts.config().vote_window();
                    let votes =
                        row.votes.iter().filter(|v| window.counts(self.facts.now().wall, v.at));
                    score += u32::try_from(votes.count())
                        .unwrap_or(HEALTH_SCORE_MAX)
                        .min(HEALTH_SCORE_MAX);
                }
                _ => return HEALTH_SCORE_MAX,
            }
        }
        let settled = self.health.active_since.is_some_and(|at| now.saturating_since(at) > window);
        if settled && self.probing.len() > 1 && !recent(self.health.last_answered) {
            score += 1;
        }
        if settled && self.facts.view().active_count() > 2 && !recent(self.health.last_probed) {
            score += 1;
        }
        score.min(HEALTH_SCORE_MAX)
    }
}
