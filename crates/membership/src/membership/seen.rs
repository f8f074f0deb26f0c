//! The views of a machine for tests, apart from its outputs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress};

use super::Membership;
use crate::delta::Delta;
use crate::inner::Inner;
use crate::intent::{Intent, Key};

impl Membership {
    pub(crate) fn pass(&mut self, span: Duration) {
        let Now { mono, wall } = self.facts.now();
        self.facts.pass(Now { mono: mono + span, wall });
    }

    pub(crate) fn would_write(&self, key: &Key) -> bool {
        self.write.would_write(key)
    }

    /// Takes `intents` to be written, and hands on those for another writer. Returns the number of
    /// the rest.
    pub(crate) fn enqueue_and_hand_on(&mut self, intents: Vec<Intent>) -> [usize; 2] {
        self.act(Inner::Write(intents));
        let before = self.write.len();
        self.hand_on_joins();
        [before, self.write.len()]
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.facts.is_over()
    }

    /// Time at which it first wished to be Active.
    pub(crate) const fn wished_at(&self) -> Option<Instant> {
        self.fence.wished()
    }

    pub(crate) fn wishes_for(&self, key: &Key) -> bool {
        self.wishes.has(key)
    }

    pub(crate) fn wishes_to_be_active(&self) -> bool {
        self.wishes.has(&Key::Activate(self.me()))
    }

    pub(crate) fn waits_with_a_later_view(&self) -> bool {
        self.join.is_checking() && self.wishes_to_be_active() && self.join.lags(&self.facts)
    }

    pub(crate) const fn claimed(&self) -> u64 {
        self.join.claimed()
    }

    pub(crate) fn forget_steps(&mut self) {
        let view = self.view().clone();
        self.facts.install(view, None);
        self.join.forget_later_views();
    }

    pub(crate) fn probes(&self, silo: &SiloAddress) -> bool {
        self.detect.silos().any(|probed| probed == silo)
    }

    pub(crate) const fn heard_table_at(&self) -> Option<Instant> {
        self.facts.table_answered()
    }

    pub(crate) fn votes_required(&self, target: &SiloAddress) -> usize {
        self.votes.quorum().votes_required(&self.facts, target, false)
    }

    pub(crate) fn last_step(&self) -> Arc<Delta> {
        self.facts.steps().last(1).unwrap().next().unwrap().clone()
    }

    pub(crate) fn on_recheck(&mut self, version: u64) {
        self.join.on_recheck(&self.facts, &mut self.out, version);
        self.drain();
    }

    /// Returns true if it would confirm `silo` at this moment.
    pub(crate) fn would_confirm(&self, now: Now, silo: &SiloAddress) -> bool {
        let mut later = self.clone();
        later.facts.pass(now);
        later.may_confirm(silo)
    }

    pub(crate) fn monitors_of(&self, silo: &SiloAddress) -> BTreeSet<SiloAddress> {
        self.facts.monitors_of(silo)
    }
}
