//! The silence fence (improvement 9): no turn starts without a recent confirmation that this silo
//! is alive.
//!
//! A confirmation is a moment of this silo's own clock at which it provably was not dead, and from
//! which on its death by silence takes at least the patience of its monitors:
//!
//! * the table showed the view in force to be the latest, when it was asked at that moment; or
//! * so many of its monitors had its answer of that moment that those left are fewer than the votes
//!   a death needs. At least one of any sufficient set of voters has then heard this silo, and
//!   votes only after a whole series of misses, which is longer than `fence_timeout`
//!   ([`Config::validate`](crate::Config::validate) sees to that).
//!
//! The fence closes `fence_timeout` after the latest such moment by monitors, and
//! `fence_table_timeout` after the latest by the table: whichever is later. Monitors give back the
//! stamp of the answer they heard, so that old messages in the sockets of a frozen process confirm
//! nothing.
//!
//! Two deaths do not take the patience: a refused dial (the process does not listen any more, so it
//! is gone) and a successor on the same `ip:port` (the writer of its join tells the predecessor
//! before it commits).

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::api::Effect;
use crate::membership::Membership;
use crate::peer::Peer;
use crate::rings::monitors_to_be;
use crate::table::Read;
use crate::timers::Timer;

/// For how many times `fence_table_timeout` a confirmation by the table lets a silo confirm others.
const WORD_FACTOR: u32 = 3;

/// The state of the fence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fence {
    /// The monitors of this silo, and the latest moment at which each is known to have heard it.
    /// Silos that are Joining are among them, although they do not probe yet: they may be Active,
    /// and vote, before this silo hears of it.
    heard: BTreeMap<SiloAddress, Instant>,
    /// The latest moment by which enough monitors had heard this silo. Good for `fence_timeout`.
    by_monitors: Instant,
    /// The latest moment at which the table showed the view in force to be the latest. Good for
    /// `fence_table_timeout` only: votes may be under way.
    by_table: Instant,
    /// The last touch of the row after which the table showed the view in force to be the latest.
    touched: Option<Instant>,
    /// When this silo first wished to be Active.
    wished: Option<Instant>,
    /// When this silo, which knows of no other, was first probed by one.
    stranger: Option<Instant>,
    armed: bool,
    /// This silo ends: the fence never opens again.
    shut: bool,
    closed: bool,
}

impl Fence {
    /// This silo wishes to be Active.
    pub(crate) fn note_wish(&mut self, now: Now) {
        self.wished.get_or_insert(now.mono);
    }

    /// When it first did.
    pub(crate) const fn wished(&self) -> Option<Instant> {
        self.wished
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Membership {
    /// Whether the fence works at all: it is configured, this silo is a full member, and somebody
    /// could declare it dead.
    fn fence_applies(&self) -> bool {
        !self.facts.config().fence_timeout.is_zero()
            && self.facts.standing().is_in_table()
            && matches!(
                self.facts.standing().status(),
                SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping
            )
            && !self.facts.view().is_empty()
    }

    /// Whether this silo knows of no other and was probed by no other: then it can only be declared
    /// dead by a newcomer that cannot reach it, once its row has stood still for long. For one that
    /// leaves no newcomer waits: it is Active at once, and votes after its patience.
    fn is_alone(&self) -> bool {
        self.facts.view().ring(0).len() <= 1
            && self.fence.stranger.is_none()
            && !self.facts.standing().is_leaving()
    }

    /// Whether a read of the version has to follow a touch.
    pub(crate) fn rests_on_touches(&self) -> bool {
        self.fence.armed && self.is_alone()
    }

    /// How long a touch of the row lets a silo that is alone start turns: a little less than it
    /// takes a newcomer to overlook the row, where a firewall refuses it, and to lose patience
    /// then.
    pub(crate) fn alone_span(&self) -> Duration {
        (self.facts.config().overlooked_when_refused_after(1) + self.facts.config().fence_timeout)
            * 9
            / 10
    }

    /// The view in force is new; `same_monitors`: it differs from the one before in nothing that
    /// says who probes whom.
    pub(crate) fn fence_view_changed(&mut self, now: Now, same_monitors: bool) {
        if self.facts.config().fence_timeout.is_zero() {
            return;
        }
        let applies = self.fence_applies();
        if !applies || (self.fence.armed && same_monitors) {
            self.fence.armed = applies;
            self.check_fence(now);
            return;
        }
        let config = &self.facts.config();
        let monitors = monitors_to_be(
            &self.facts.view(),
            &self.facts.me(),
            config.num_probe_rings,
            config.num_probed_silos,
        );
        if !self.fence.armed {
            // The view that says Active may be old when it comes. Certain is that the row was
            // Joining when this silo wished for more.
            let wished = self.fence.wished.unwrap_or_default();
            self.fence.by_monitors = self.fence.by_monitors.max(wished);
            self.fence.touched.get_or_insert(wished);
        }
        // A new monitor has not had the time to probe: it starts as if it had heard this silo when
        // enough others last had. What the table said does not count here: votes may have been
        // under way, and one that this monitor has displaced may count again soon.
        let start = self.fence.by_monitors;
        let old = std::mem::take(&mut self.fence.heard);
        self.fence.heard =
            monitors.into_iter().map(|m| (m, old.get(&m).copied().unwrap_or(start))).collect();
        self.fence.armed = applies;
        self.check_fence(now);
    }

    /// A silo that is not in the view in force probes: a newcomer, which the next view shows. It
    /// may be Active as soon as it is answered, and lose patience with this silo then, but no
    /// earlier. So this silo is alive now, and has company from now on.
    pub(crate) fn fence_probed(&mut self, now: Now) {
        if !self.fence.armed || !self.is_alone() {
            return;
        }
        if self.fence_closes_at().is_some_and(|closes_at| now.mono < closes_at) {
            self.fence.by_monitors = self.fence.by_monitors.max(now.mono);
        }
        self.fence.stranger = Some(now.mono);
        self.check_fence(now);
    }

    /// A probe arrived. It confirms if it gives back a stamp of ours and its sender has missed
    /// nothing since.
    pub(crate) fn fence_heard(&mut self, now: Now, from: &SiloAddress, misses: u32, echo: u64) {
        let echo = Instant::from_nanos(echo);
        if misses > 0 || echo == Instant::ZERO || echo > now.mono {
            return;
        }
        let Some(heard) = self.fence.heard.get_mut(from) else { return };
        *heard = (*heard).max(echo);
        self.confirm_by_monitors(now);
    }

    /// Takes the latest moment by which enough monitors had heard this silo.
    fn confirm_by_monitors(&mut self, now: Now) {
        let rests = self.intent_lifetime() + self.facts.config().table_timeout;
        // A monitor whose process is gone votes no more, and what it had voted is over.
        let is_gone = |monitor: &SiloAddress| {
            let since = self.probing.peer(monitor).and_then(Peer::gone_since);
            since.is_some_and(|since| now.mono.saturating_since(since) > rests)
        };
        let heard = self.fence.heard.iter().filter(|(monitor, _)| !is_gone(monitor));
        let mut times: Vec<Instant> = heard.map(|(_, at)| *at).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        // While this silo cannot touch its row it may look stale to others, and one vote may be
        // enough (see `votes_required`).
        let touched = self.table.is_row_fresh(now, self.word_counts_for());
        // One that became Active in a later view is no monitor here, and may vote after its
        // patience. That is longer than `fence_timeout`, and whoever takes over waits for
        // `fence_table_timeout` more.
        if self.behind_for(now) > self.facts.config().fence_table_timeout
            || self.has_gone_without_store(now)
        {
            return;
        }
        // A silo that leaves is not counted any more, perhaps before it hears of it.
        let leaving = usize::from(self.facts.standing().is_leaving());
        let active = self.facts.view().active_count().saturating_sub(leaving);
        let votes = if touched { self.votes_among(active).min(times.len().max(1)) } else { 1 };
        let votes = votes.saturating_sub(self.standing_votes(now));
        let enough = (times.len() + 1).saturating_sub(votes).max(1);
        if let Some(confirmed) = times.get(enough - 1).filter(|at| **at > self.fence.by_monitors) {
            self.fence.by_monitors = *confirmed;
            self.check_fence(now);
        }
    }

    /// Whether this silo has been without the store for as long as it may: a little later a
    /// newcomer may overlook its row, become Active, and vote after its patience.
    fn has_gone_without_store(&self, now: Now) -> bool {
        !self.facts.config().serve_without_store
            && !self.table.is_row_fresh(now, self.word_counts_for())
    }

    /// How long after a confirmation by the table this silo may confirm others. It is longer than
    /// its own fence stays open by that alone: where the store is slow nobody's fence would open
    /// again after an outage if everybody waited for the others.
    pub(crate) fn word_lasts(&self) -> Duration {
        self.facts.config().fence_table_timeout * WORD_FACTOR
    }

    /// Whether this silo may confirm others. One that may have been dead for long speaks for
    /// nobody.
    pub(crate) fn may_speak(&self, now: Now) -> bool {
        let fresh = now.mono < self.fence.by_table + self.word_lasts();
        !self.fence.shut && (!self.fence.closed || (self.fence.armed && fresh))
    }

    /// Age of the last touch up to which the word of a part of the monitors counts.
    fn word_counts_for(&self) -> Duration {
        self.facts.config().word_counts_for(self.facts.view().active_count())
    }

    /// Age of the last touch up to which no silo has found this silo's row stale.
    pub(crate) fn touch_lasts(&self) -> Duration {
        self.word_counts_for() + self.facts.config().fence_timeout
    }

    /// Votes against this silo that stand in the table, of silos that do not probe it any more.
    fn standing_votes(&self, now: Now) -> usize {
        let Some(row) = self.facts.view().get(&self.facts.me()) else { return 0 };
        let votes = row.votes.iter().filter(|vote| {
            !self.fence.heard.contains_key(&vote.voter)
                && self.may_still_count(now, vote)
                && self
                    .facts
                    .view()
                    .get(&vote.voter)
                    .is_some_and(|voter| voter.status == SiloStatus::Active)
        });
        votes.count()
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(crate) fn confirm_by_table(&mut self, now: Now, sent: Instant) {
        if self.is_behind() {
            // A read that lags: it hides what this silo already knows to exist.
            return;
        }
        self.settle_doubts(sent);
        self.deny_claims(sent);
        self.fence.stranger.take_if(|at| *at < sent);
        self.fence.touched =
            self.fence.touched.max(self.table.touched().filter(|touched| *touched <= sent));
        if sent > self.fence.by_table {
            self.fence.by_table = sent;
            self.check_fence(now);
        }
    }

    /// When the fence closes without a further confirmation; none when it does not apply.
    pub(crate) fn fence_closes_at(&self) -> Option<Instant> {
        if self.fence.shut {
            return Some(Instant::ZERO);
        }
        if !self.fence.armed {
            return None;
        }
        let by_table = self.fence.by_table + self.facts.config().fence_table_timeout;
        Some(self.confirmed_until().max(by_table))
    }

    /// Until when turns may start by what needs no read of the table: the word of monitors or, for
    /// a silo that is alone, the touch of its row.
    fn confirmed_until(&self) -> Instant {
        let by_monitors = self.fence.by_monitors + self.facts.config().fence_timeout;
        let alone = self.is_alone() && !self.is_behind();
        let by_touch = self.fence.touched.filter(|_| alone).map(|at| at + self.alone_span());
        by_monitors.max(by_touch.unwrap_or_default())
    }

    /// Whether nothing but the table confirms this silo, or will soon. It confirms nobody who is
    /// behind.
    pub(crate) fn rests_on_table(&self, now: Now) -> bool {
        let soon = now.mono + self.facts.config().fence_timeout / 5;
        self.fence.armed && !self.fence.shut && soon >= self.confirmed_until()
    }

    /// Opens or closes the fence, and asks the table while nothing else confirms this silo.
    pub(crate) fn check_fence(&mut self, now: Now) {
        let Some(closes_at) = self.fence_closes_at() else {
            self.out.timers().clear(Timer::Fence);
            self.set_fence(false);
            return;
        };
        self.set_fence(now.mono >= closes_at);
        if self.fence.shut {
            self.out.timers().clear(Timer::Fence);
            return;
        }
        if !self.rests_on_table(now) {
            let ask_at = self.confirmed_until() - self.facts.config().fence_timeout / 5;
            self.out.timers().set(Timer::Fence, ask_at);
            return;
        }
        let table = self.facts.config().fence_table_timeout;
        let mut ask_at = self.fence.by_table + table / 3;
        if now.mono >= ask_at {
            self.table.want(Read::Version);
            ask_at = now.mono + table / 3;
        }
        let next = if now.mono < closes_at { ask_at.min(closes_at) } else { ask_at };
        self.out.timers().set(Timer::Fence, next);
    }

    /// Closes the fence for good: this silo is about to end.
    pub(crate) fn close_fence(&mut self) {
        if !self.facts.config().fence_timeout.is_zero() {
            self.fence.shut = true;
            self.set_fence(true);
        }
    }

    fn set_fence(&mut self, closed: bool) {
        if self.fence.closed != closed {
            self.fence.closed = closed;
            self.out.count().fences += u64::from(closed);
            self.out.effect(Effect::Fence(closed));
        }
    }
}
