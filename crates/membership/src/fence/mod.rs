//! The silence fence (improvement 9): no turn starts without a recent confirmation that this silo
//! is alive.
//!
//! A confirmation is a moment of this silo's own clock at which it provably was not dead. Its death
//! by silence takes at least the patience of its monitors from then on:
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
//! Two deaths do not take the patience: a refused dial (the process no longer listens, so it is
//! gone), and a successor on the same `ip:port` (the writer of its join tells the predecessor
//! before it commits).

mod fading;
mod risen;

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

pub(crate) use self::fading::Fading;
use crate::api::Effect;
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::out::Out;
use crate::rules::{alone_span, may_still_count, votes_among, word_lasts};
use crate::timers::Timer;

/// Words of the other parts, when this silo judges by the word of its monitors.
pub(crate) struct Word<'a> {
    is_gone: &'a dyn Fn(&SiloAddress) -> bool,
    is_row_fresh: bool,
    behind_for: Duration,
    is_behind: bool,
}

impl<'a> Word<'a> {
    /// `is_gone` is true for a monitor whose process is gone, and whose votes are over;
    /// `is_row_fresh` if no silo can have found the own row stale; `is_behind` if this silo
    /// certainly lacks a later view, for `behind_for`.
    pub(crate) const fn new(
        is_gone: &'a dyn Fn(&SiloAddress) -> bool,
        is_row_fresh: bool,
        behind_for: Duration,
        is_behind: bool,
    ) -> Self {
        Self { is_gone, is_row_fresh, behind_for, is_behind }
    }
}

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
    /// Time at which this silo first wished to be Active.
    wished: Option<Instant>,
    /// Time of the first probe that this silo, which knows of no other, got.
    stranger: Option<Instant>,
    armed: bool,
    /// This silo ends: the fence never opens again.
    shut: bool,
    closed: bool,
}

impl Fence {
    /// This silo wishes to be Active.
    pub(crate) fn note_wish(&mut self, facts: &Facts) {
        self.wished.get_or_insert_with(|| facts.now().mono);
    }

    /// Time at which it first did.
    pub(crate) const fn wished(&self) -> Option<Instant> {
        self.wished
    }

    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true if the fence works at all: it is configured, this silo is a full member, and
    /// some silo could declare it dead.
    fn applies(facts: &Facts) -> bool {
        facts.has_fence()
            && facts.standing().is_in_table()
            && matches!(
                facts.status(),
                SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping
            )
            && !facts.view().is_empty()
    }

    /// Returns true if this silo knows of no other and no other probed it. Then only a newcomer
    /// that cannot reach it can declare it dead, once its row has stood still for long. A silo that
    /// leaves has no such newcomer.
    fn is_alone(&self, facts: &Facts) -> bool {
        facts.view().ring(0).len() <= 1 && self.stranger.is_none() && !facts.standing().is_leaving()
    }

    /// Returns true if a read of the version has to follow a touch.
    pub(crate) fn rests_on_touches(&self, facts: &Facts) -> bool {
        self.armed && self.is_alone(facts)
    }

    /// The view in force is new. `same_monitors`: no silo has other monitors than before.
    pub(crate) fn view_changed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        same_monitors: bool,
        is_behind: bool,
    ) {
        if !facts.has_fence() {
            return;
        }
        let applies = Self::applies(facts);
        if !applies || (self.armed && same_monitors) {
            self.armed = applies;
            self.check(facts, out, is_behind);
            return;
        }
        let monitors = facts.monitors_to_be_of(&facts.me());
        if !self.armed {
            // The view that says Active may be old when it comes. Certain is that the row was
            // Joining when this silo wished for more.
            let wished = self.wished.unwrap_or_default();
            self.by_monitors = self.by_monitors.max(wished);
            self.touched.get_or_insert(wished);
        }
        // A new monitor has had no time to probe: it starts as if it had heard this silo when
        // enough others last had. Confirmations by the table do not count here: votes may have been
        // under way.
        let start = self.by_monitors;
        let old = std::mem::take(&mut self.heard);
        self.heard =
            monitors.into_iter().map(|m| (m, old.get(&m).copied().unwrap_or(start))).collect();
        self.armed = applies;
        self.check(facts, out, is_behind);
    }

    /// A silo outside the view in force probes: a newcomer, which the next view shows. It may be
    /// Active once it is answered, and lose patience with this silo only later. So this silo is
    /// alive now, and no longer alone.
    pub(crate) fn probed_by_stranger(&mut self, facts: &Facts, out: &mut Out, is_behind: bool) {
        if !self.armed || !self.is_alone(facts) {
            return;
        }
        let now = facts.now().mono;
        if self.closes_at(facts, is_behind).is_some_and(|closes_at| now < closes_at) {
            self.by_monitors = self.by_monitors.max(now);
        }
        self.stranger = Some(now);
        self.check(facts, out, is_behind);
    }

    /// A probe arrived. Returns true if it may confirm this silo: it returns our stamp, and its
    /// sender, a monitor, has missed nothing since.
    pub(crate) fn heard_by(
        &mut self,
        facts: &Facts,
        from: &SiloAddress,
        misses: u32,
        echo: u64,
    ) -> bool {
        let echo = Instant::from_nanos(echo);
        if misses > 0 || echo == Instant::ZERO || echo > facts.now().mono {
            return false;
        }
        let Some(heard) = self.heard.get_mut(from) else { return false };
        *heard = (*heard).max(echo);
        true
    }

    /// Takes the latest moment by which enough monitors had heard this silo.
    pub(crate) fn confirm_by_monitors(&mut self, facts: &Facts, out: &mut Out, word: &Word<'_>) {
        // A monitor whose process is gone does not vote, and its votes are over.
        let heard = self.heard.iter().filter(|(monitor, _)| !(word.is_gone)(monitor));
        let mut times: Vec<Instant> = heard.map(|(_, at)| *at).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        // A silo that became Active in a later view is not a monitor here, and may vote after its
        // patience. That is longer than `fence_timeout`, and a silo that takes over waits for
        // `fence_table_timeout` more. A silo without the store may continue for a limited time
        // only: a newcomer may overlook its row a little later, become Active, and vote after its
        // patience.
        let config = facts.config();
        if word.behind_for > config.fence_table_timeout
            || (!config.serve_without_store && !word.is_row_fresh)
        {
            return;
        }
        // A silo that leaves is no longer counted, perhaps before it hears of it.
        let leaving = usize::from(facts.standing().is_leaving());
        let active = facts.view().active_count().saturating_sub(leaving);
        // While this silo cannot touch its row it may look stale, and then one vote may be enough
        // (see `votes_required`).
        let votes =
            if word.is_row_fresh { votes_among(config, active).min(times.len().max(1)) } else { 1 };
        let votes = votes.saturating_sub(self.standing_votes(facts));
        let enough = (times.len() + 1).saturating_sub(votes).max(1);
        if let Some(confirmed) = times.get(enough - 1).filter(|at| **at > self.by_monitors) {
            self.by_monitors = *confirmed;
            self.check(facts, out, word.is_behind);
        }
    }

    /// Returns true if this silo may confirm others. A silo that may have been dead for long
    /// confirms none.
    pub(crate) fn may_speak(&self, facts: &Facts) -> bool {
        let fresh = facts.now().mono < self.by_table + word_lasts(facts.config());
        !self.shut && (!self.closed || (self.armed && fresh))
    }

    /// The number of votes in the table against this silo, of silos that do not probe it.
    fn standing_votes(&self, facts: &Facts) -> usize {
        let Some(row) = facts.view().get(&facts.me()) else { return 0 };
        let is_active = |voter: &SiloAddress| {
            facts.view().get(voter).is_some_and(|row| row.status == SiloStatus::Active)
        };
        let votes = row.votes.iter().filter(|vote| {
            !self.heard.contains_key(&vote.voter)
                && may_still_count(facts.config(), facts.now(), vote)
                && is_active(&vote.voter)
        });
        votes.count()
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`; the row was
    /// last `touched` then.
    pub(crate) fn confirm_by_table(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        sent: Instant,
        touched: Option<Instant>,
    ) {
        self.stranger.take_if(|at| *at < sent);
        self.touched = self.touched.max(touched.filter(|touched| *touched <= sent));
        if sent > self.by_table {
            self.by_table = sent;
            self.check(facts, out, false);
        }
    }

    /// Time at which the fence closes without a further confirmation; none when it does not apply.
    /// `is_behind`: this silo lacks a later view.
    pub(crate) fn closes_at(&self, facts: &Facts, is_behind: bool) -> Option<Instant> {
        if self.shut {
            return Some(Instant::ZERO);
        }
        if !self.armed {
            return None;
        }
        let by_table = self.by_table + facts.config().fence_table_timeout;
        Some(self.confirmed_until(facts, is_behind).max(by_table))
    }

    /// Time until which turns may start without a read of the table: by the word of monitors or,
    /// for a silo that is alone, by the touch of its row.
    fn confirmed_until(&self, facts: &Facts, is_behind: bool) -> Instant {
        let config = facts.config();
        let by_monitors = self.by_monitors + config.fence_timeout;
        let alone = self.is_alone(facts) && !is_behind;
        let by_touch = self.touched.filter(|_| alone).map(|at| at + alone_span(config));
        by_monitors.max(by_touch.unwrap_or_default())
    }

    /// Returns true if nothing but the table confirms this silo, or will soon. It confirms no silo
    /// that is behind.
    pub(crate) fn rests_on_table(&self, facts: &Facts, is_behind: bool) -> bool {
        let soon = facts.now().mono + facts.config().fence_timeout / 5;
        self.armed && !self.shut && soon >= self.confirmed_until(facts, is_behind)
    }

    /// Opens or closes the fence, and asks the table while nothing else confirms this silo.
    pub(crate) fn check(&mut self, facts: &Facts, out: &mut Out, is_behind: bool) {
        let Some(closes_at) = self.closes_at(facts, is_behind) else {
            out.timers().clear(Timer::Fence);
            self.set(out, false);
            return;
        };
        let now = facts.now().mono;
        self.set(out, now >= closes_at);
        if self.shut {
            out.timers().clear(Timer::Fence);
            return;
        }
        if !self.rests_on_table(facts, is_behind) {
            let soon = facts.config().fence_timeout / 5;
            out.timers().set(Timer::Fence, self.confirmed_until(facts, is_behind) - soon);
            return;
        }
        let table = facts.config().fence_table_timeout;
        let mut ask_at = self.by_table + table / 3;
        if now >= ask_at {
            out.tell(Inner::Want(Read::Version));
            ask_at = now + table / 3;
        }
        let next = if now < closes_at { ask_at.min(closes_at) } else { ask_at };
        out.timers().set(Timer::Fence, next);
    }

    /// Closes the fence for good: this silo is about to end.
    pub(crate) fn shut(&mut self, facts: &Facts, out: &mut Out) {
        if facts.has_fence() {
            self.shut = true;
            self.set(out, true);
        }
    }

    fn set(&mut self, out: &mut Out, closed: bool) {
        if self.closed != closed {
            self.closed = closed;
            out.count().fences += u64::from(closed);
            out.effect(Effect::Fence(closed));
        }
    }
}
