//! Questions between the parts, handed to the part that they concern.

use emmer_core::SiloAddress;

use super::Membership;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::{Evidence, Intent, Key};
use crate::message::Message;
use crate::out::{Act, Out};
use crate::wishes::{Others, Wishes};

impl Membership {
    /// Executes the requests of the parts, depth first: the consequences of an event come before
    /// the next event, and before later effects.
    pub(super) fn drain(&mut self) {
        for act in self.out.take_pending().into_iter().flatten() {
            match act {
                Act::Effect(effect) => self.out.effect(effect),
                Act::Inner(inner) => {
                    self.act(inner);
                    self.drain();
                }
            }
        }
    }

    pub(super) fn act(&mut self, inner: Inner) {
        let (facts, out) = (&self.facts, &mut self.out);
        match inner {
            Inner::Probe(silo) => self.probe(silo),
            Inner::Suspect { target, evidence } => self.suspect(target, evidence),
            Inner::Answered { silo, directly } => self.answered(silo, directly),
            Inner::Doubt { silo, until } => self.votes.doubt(silo, until),
            Inner::Want(read) => self.table.want(read),
            Inner::WantOnlyASample => self.table.want_only_a_sample(),
            Inner::ReadRows => self.table.want_rows(facts, out),
            Inner::ForgiveRows => self.facts.forgive_rows(),
            Inner::Confirmed(sent) => self.confirm_by_table(sent),
            Inner::CatchUp(version) => self.catch_up(version),
            Inner::Wish(intent) => self.wish(intent),
            Inner::Unwish(key) => self.wishes.unwish(facts, out, key),
            Inner::Reroute(key) => self.wishes.reroute(facts, out, &key),
            Inner::Forget(key) => self.wishes.forget(&key),
            Inner::Write(intents) => self.write.add(facts, out, intents),
            Inner::Rewrite(intent) => self.write.replace(intent),
            Inner::Unwrite(key) => self.write.forget(&key),
            Inner::Recheck(owner) => self.ask_to_recheck(owner),
            Inner::End(reason) => self.terminate(reason),
        }
    }

    /// This silo has evidence that `target` is dead: votes.
    fn suspect(&mut self, target: SiloAddress, evidence: Evidence) {
        let retracts = self.wishes.retracts(&Key::Vote(target, self.facts.me()));
        self.votes.vote(&self.facts, &mut self.out, target, evidence, retracts);
    }

    /// The suspect lives: takes the own vote back, and `directly`: out of the table too.
    fn answered(&mut self, silo: SiloAddress, directly: bool) {
        let key = Key::Vote(silo, self.facts.me());
        if !self.wishes.retracts(&key) {
            self.wishes.unwish(&self.facts, &mut self.out, key);
            self.drain();
        }
        if directly {
            let is_wished = self.wishes.has(&key);
            self.votes.retract(&self.facts, &mut self.out, silo, is_wished);
        }
    }

    fn wish(&mut self, intent: Intent) {
        if matches!(intent, Intent::Activate { .. }) {
            self.fence.note_wish(&self.facts);
        }
        self.with_others(|wishes, facts, out, others| wishes.wish(facts, out, intent, others));
    }

    /// Has the wishes do something that depends on which silos could write.
    pub(super) fn with_others<R>(
        &mut self,
        act: impl FnOnce(&mut Wishes, &Facts, &mut Out, &Others<'_>) -> R,
    ) -> R {
        let (detect, join, write) = (&self.detect, &self.join, &self.write);
        let is_usable = |silo: &SiloAddress| {
            !detect.is_doubted(silo) && !join.doubts(silo) && !write.knows_gone(silo)
        };
        let others = Others::new(join.winner(&self.facts), &is_usable);
        act(&mut self.wishes, &self.facts, &mut self.out, &others)
    }

    /// Tells the owner of an activation that cannot be judged.
    fn ask_to_recheck(&mut self, owner: SiloAddress) {
        let version = self.facts.view().version();
        if owner == self.facts.me() {
            self.join.on_recheck(&self.facts, &mut self.out, version);
        } else {
            self.out.send(owner, Message::Recheck { version });
        }
    }
}
