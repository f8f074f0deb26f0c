//! Probes, dials and confirmations between silos that may be dead and silos that judge them.

use emmer_core::{Instant, SiloAddress};

use super::Membership;
use crate::api::{DialId, DialOutcome};
use crate::dials::Purpose;
use crate::fence::Word;
use crate::rules::intent_lifetime;
use crate::{detect, join};

impl Membership {
    /// Adjusts the probed set to the view in force.
    pub(super) fn choose_peers(&mut self) {
        self.votes.forget_doubts_about_the_dead(&self.facts);
        self.detect.choose(&self.facts, &mut self.out);
        self.drain();
    }

    /// Sends the probes that are due, and counts those that were missed.
    pub(super) fn run_probes(&mut self) {
        for silo in self.detect.due(&self.facts) {
            self.detect.run(&self.facts, &mut self.out, silo);
            self.drain();
        }
        self.detect.run_help(&self.facts, &mut self.out);
    }

    /// Probes `silo`, and confirms to it that it was heard if this silo may.
    pub(super) fn probe(&mut self, silo: SiloAddress) {
        self.votes.press_doubt(&self.facts, &mut self.out, &silo);
        self.drain();
        let confirms = self.may_confirm(&silo);
        self.detect.probe(&self.facts, &mut self.out, silo, confirms);
    }

    pub(super) fn on_probe(&mut self, from: SiloAddress, seq: u64, misses: u32, echo: u64) {
        self.detect.on_probed(&self.facts, &mut self.out);
        self.heard_by(&from, misses, echo);
        detect::acknowledge(&self.facts, &mut self.out, from, seq);
    }

    /// A silo in no view asks whether this one lives.
    pub(super) fn answer_stranger(&mut self, from: SiloAddress, seq: u64) {
        self.out.count().probes_received += 1;
        let is_behind = self.is_behind();
        self.fence.probed_by_stranger(&self.facts, &mut self.out, is_behind);
        detect::acknowledge(&self.facts, &mut self.out, from, seq);
    }

    pub(super) fn on_ack(&mut self, from: SiloAddress, seq: u64, stamp: u64) {
        self.join.answered(&self.facts, &mut self.out, &from);
        self.drain();
        if self.detect.help_answered(&self.facts, &mut self.out, &from, seq) {
            return;
        }
        let is_seen = detect::is_fence_short(&self.facts) && self.may_confirm(&from);
        self.detect.on_ack(&self.facts, &mut self.out, from, seq, stamp, is_seen);
        self.drain();
    }

    /// A dial ended. One that was forgotten says nothing.
    pub(super) fn on_dial(&mut self, dial: DialId, outcome: DialOutcome) {
        let Some((purpose, silo)) = self.out.dials().end(dial) else { return };
        let (facts, out) = (&self.facts, &mut self.out);
        match purpose {
            Purpose::Hint => self.detect.on_dialled(facts, out, silo, outcome),
            Purpose::Join => self.join.on_dialled(facts, out, silo, outcome),
            Purpose::Eviction => self.write.on_dialled(facts, out, silo, outcome),
            Purpose::Reach => join::reach_dialled(out, silo, outcome),
        }
    }

    /// Returns true if this silo may confirm that `silo` is alive.
    pub(crate) fn may_confirm(&self, silo: &SiloAddress) -> bool {
        self.votes.may_confirm(&self.facts, silo, self.fence.may_speak(&self.facts))
    }

    // ---- the fence
    // -------------------------------------------------------------------------------------------------

    /// Opens or closes the fence, as the time and the confirmations have it.
    pub(super) fn check_fence(&mut self) {
        let is_behind = self.is_behind();
        self.fence.check(&self.facts, &mut self.out, is_behind);
        self.drain();
    }

    /// A probe, or the answer to one, gives back a stamp of ours.
    pub(super) fn heard_by(&mut self, from: &SiloAddress, misses: u32, echo: u64) {
        if !self.fence.heard_by(&self.facts, from, misses, echo) {
            return;
        }
        let behind_for = self.views.look_behind(&self.facts);
        let (now, config) = (self.facts.now().mono, self.facts.config());
        let rests = intent_lifetime(config) + config.table_timeout;
        let fresh_for = config.word_counts_for(self.facts.view().active_count());
        let is_gone = |monitor: &SiloAddress| {
            let since = self.detect.gone_since(monitor);
            since.is_some_and(|since| now.saturating_since(since) > rests)
        };
        let is_row_fresh = self.table.is_row_fresh(&self.facts, fresh_for);
        let word = Word::new(&is_gone, is_row_fresh, behind_for, self.is_behind());
        self.fence.confirm_by_monitors(&self.facts, &mut self.out, &word);
        self.drain();
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(super) fn confirm_by_table(&mut self, sent: Instant) {
        if self.is_behind() {
            // A read that lags: it hides what this silo already knows to exist.
            return;
        }
        self.votes.settle_doubts(sent);
        self.views.deny_claims(sent);
        self.fence.confirm_by_table(&self.facts, &mut self.out, sent, self.table.touched());
        self.drain();
    }
}
