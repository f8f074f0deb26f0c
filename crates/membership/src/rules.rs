//! Rules that more than one part goes by: functions of the facts alone.

use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus, Vote};

use crate::config::Config;
use crate::facts::Facts;
use crate::intent::{Evidence, Intent};
use crate::lapse::lapse;
use crate::view::View;

/// Number of missed probes that are enough against a silo whose row says that it runs no turns.
const MISSES_OF_STALE: u32 = 2;

/// For how many times `fence_table_timeout` a confirmation by the table lets a silo confirm others.
const WORD_FACTOR: u32 = 3;

/// Time after a confirmation by the table for which a silo may confirm others. It is longer than
/// its own fence stays open by that alone: with a slow store no fence would open again after an
/// outage if each silo waited for the others.
pub(crate) fn word_lasts(config: &Config) -> Duration {
    config.fence_table_timeout * WORD_FACTOR
}

/// Time for which a touch of the row lets a silo that is alone start turns: a little less than a
/// newcomer needs to overlook the row, where a firewall refuses it, and to lose patience.
pub(crate) fn alone_span(config: &Config) -> Duration {
    (config.overlooked_when_refused_after(1) + config.fence_timeout) * 9 / 10
}

/// Age of the last touch up to which no silo has found a silo's row stale, where `active` silos are
/// Active.
pub(crate) fn touch_lasts(config: &Config, active: usize) -> Duration {
    config.word_counts_for(active) + config.fence_timeout
}

/// Time for which a writer keeps a wish that its owner does not repeat: a little longer than owners
/// need to repeat an acknowledged wish.
pub(crate) fn intent_lifetime(config: &Config) -> Duration {
    config.vote_hold + config.writer_timeout * 6
}

/// Returns true if a vote in the table may still count for some writer's clock.
pub(crate) fn may_still_count(config: &Config, now: Now, vote: &Vote) -> bool {
    config.vote_window().may_still_count(now.wall, vote.at)
}

/// Number of votes that make a silo Dead whose row is fresh, where `active` silos are Active: the
/// configured number, or in small clusters half of them, rounded up.
pub(crate) fn votes_among(config: &Config, active: usize) -> usize {
    (config.num_votes_for_death_declaration as usize).min(active.div_ceil(2).max(1))
}

/// Number of silos that are Active and not stale.
pub(crate) fn live_active_count(facts: &Facts) -> usize {
    let view = facts.view();
    let is_active = |silo: &SiloAddress| view.status_of_row(silo) == Some(SiloStatus::Active);
    let stale = facts.stale_members().filter(is_active).count();
    view.active_count().saturating_sub(stale)
}

/// The votes that count: fresh in a window that ends at the latest time any clock involved shows,
/// so that every silo counts alike whatever its own clock says; each voter once.
///
/// A voter must be Active in the view the commit is based on, and not be declared dead by the same
/// commit (invariant I6). `status` is the status after the commit.
///
/// With the fence, and unless the target is stale, only votes of its monitors count: the target
/// relies on their word, and does not know who probed it before another silo joined.
pub(crate) fn count_votes(
    facts: &Facts,
    status: &dyn Fn(&SiloAddress) -> Option<SiloStatus>,
    target: &SiloAddress,
    votes: &[Vote],
) -> usize {
    let window = facts.config().vote_window();
    let anybody = !facts.has_fence() || facts.is_stale(target);
    let is_asked = |voter: &SiloAddress| anybody || facts.is_monitored_by(target, voter);
    let end = votes.iter().map(|v| v.at).fold(facts.now().wall, std::cmp::max);
    let mut counted: Vec<SiloAddress> = Vec::new();
    for vote in votes {
        let voter = vote.voter;
        if window.counts(end, vote.at)
            && !counted.contains(&voter)
            && is_asked(&voter)
            && status(&voter) == Some(SiloStatus::Active)
        {
            counted.push(voter);
        }
    }
    counted.len()
}

/// Number of probes that `target` must have missed before a silo votes. Without
/// `serve_without_store` a silo whose row is stale runs no turns, so its death needs no patience,
/// only more than one lost message.
pub(crate) fn misses_to_vote(facts: &Facts, target: &SiloAddress) -> u32 {
    let limit = facts.config().num_missed_probes_limit;
    let rests = facts.config().serve_without_store || !facts.has_fence();
    if !rests && facts.is_stale(target) { limit.min(MISSES_OF_STALE) } else { limit }
}

/// Votes that a death by silence takes beyond those that the view in force says. A silo may have
/// been confirmed by monitors that are gone now, when its death took more votes. So a smaller
/// number of Active silos, or of monitors, counts only when such a confirmation is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Quorum {
    /// Number of silos that were Active lately.
    active: usize,
    /// Time until which that number counts.
    until: Instant,
    /// Time until which a silo may be confirmed by monitors that it no longer has in the view in
    /// force.
    monitors_moved_until: Instant,
}

impl Quorum {
    /// The view in force followed `before`; `same_monitors`: it differs in nothing that says who
    /// probes whom.
    pub(crate) fn view_changed(&mut self, facts: &Facts, before: &View, same_monitors: bool) {
        if !facts.has_fence() {
            return;
        }
        let (now, config, view) = (facts.now().mono, facts.config(), facts.view());
        // The last word of a monitor that is Dead was given within `word_lasts` after the table
        // last confirmed it, or on an open fence.
        let until = now + lapse(config.fence_timeout) + lapse(word_lasts(config));
        let next = before.version() + 1 == view.version();
        let was = if next { before.active_count() } else { usize::MAX };
        if was > view.active_count() {
            let still = if now < self.until { self.active } else { 0 };
            (self.active, self.until) = (was.max(still), until);
        }
        if !same_monitors {
            self.monitors_moved_until = until;
        }
    }

    /// Time until which a death may take more votes than the view in force says.
    pub(crate) fn lapses_at(&self) -> Instant {
        self.until.max(self.monitors_moved_until)
    }

    /// Number of votes that make `target` Dead. Stale Active silos are not counted among those of
    /// whom half must vote: always in the original, and with the fence only against a target that
    /// is stale itself. So a silo that touches its row can rely on the number of votes that its
    /// death takes (see the fence).
    ///
    /// Against a process that is gone the present Active silos are enough; against a silent one,
    /// those who were Active lately.
    pub(crate) fn votes_required(
        &self,
        facts: &Facts,
        target: &SiloAddress,
        is_gone: bool,
    ) -> usize {
        let (now, config) = (facts.now().mono, facts.config());
        if facts.has_fence() && !facts.is_stale(target) {
            let lately = if is_gone || now >= self.until { 0 } else { self.active };
            let votes = votes_among(config, facts.view().active_count().max(lately));
            if !is_gone && now < self.monitors_moved_until {
                return votes;
            }
            // Where silos probe few others, a silo may have fewer monitors than a death takes
            // votes: then all of them are enough. Joiners that took the places of Active monitors
            // count, because the target and those monitors may not know them yet.
            let monitors =
                if is_gone { facts.monitors_of(target) } else { facts.monitors_to_be_of(target) };
            return votes.min(monitors.len().max(1));
        }
        let half = live_active_count(facts).div_ceil(2);
        (config.num_votes_for_death_declaration as usize).min(half.max(1))
    }
}

/// Returns true if `view` shows already what `intent` wishes for, or makes it pointless.
pub(crate) fn is_shown(view: &View, intent: &Intent) -> bool {
    match intent {
        Intent::Join(row) => view.get(&row.address).is_some(),
        Intent::Activate { silo, .. } => {
            view.get(silo).is_some_and(|row| row.status != SiloStatus::Joining)
        }
        Intent::Vote { target, voter, at, evidence } => match view.get(target) {
            Some(row) => {
                let told = |v: &Vote| v.gone || *evidence != Evidence::Gone;
                row.status == SiloStatus::Dead
                    || row.votes.iter().any(|v| v.voter == *voter && v.at >= *at && told(v))
            }
            None => view.version() > 0,
        },
        Intent::Status { silo, status } => view.get(silo).is_some_and(|row| row.status >= *status),
        Intent::Withdraw { .. } => true,
        Intent::Retract { target, voter } => view.get(target).is_none_or(|row| {
            row.status == SiloStatus::Dead || row.votes.iter().all(|v| v.voter != *voter)
        }),
    }
}
