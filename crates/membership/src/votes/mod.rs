//! The votes of this silo, and the words that it holds back meanwhile (membership description,
//! steps 3 to 5; improvements 3 and 4).

use std::collections::BTreeMap;

use emmer_core::{Instant, SiloAddress, SiloStatus, Vote};

use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::intent::{Evidence, Intent};
use crate::out::Out;
use crate::rules::{Quorum, count_votes, intent_lifetime, is_shown, may_still_count};
use crate::view::View;

/// Memory of this silo about votes, its own and those that a death takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Votes {
    /// Silos against whom a vote of this one may be in a commit of unknown outcome, with the time
    /// at which that commit is certainly over.
    doubts: BTreeMap<SiloAddress, Instant>,
    quorum: Quorum,
}

impl Votes {
    /// A commit that is over at `until` may declare `silo` dead with the word of this silo.
    pub(crate) fn doubt(&mut self, silo: SiloAddress, until: Instant) {
        let doubt = self.doubts.entry(silo).or_insert(until);
        *doubt = (*doubt).max(until);
    }

    /// Number of votes that a death takes, as far as it rests on the near past.
    pub(crate) const fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Wishes for a vote, unless the row already shows a young one. `retracts`: the vote in the row
    /// is to be taken back.
    pub(crate) fn vote(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        target: SiloAddress,
        evidence: Evidence,
        retracts: bool,
    ) {
        let (voter, config, wall) = (facts.me(), facts.config(), facts.now().wall);
        let window = config.vote_window();
        let voted = facts.view().get(&target).is_some_and(|row| {
            let told = |v: &Vote| v.gone || evidence != Evidence::Gone;
            row.votes.iter().any(|v| v.voter == voter && window.is_young(wall, v.at) && told(v))
        });
        // A writer may keep it for this time, and then wait for the outcome of its commit.
        let kept = intent_lifetime(config) + config.table_timeout;
        self.doubt(target, facts.now().mono + kept);
        if !voted || retracts || self.suffices(facts, &target) {
            out.tell(Inner::Wish(Intent::Vote { target, voter, at: wall, evidence }));
        }
    }

    /// Returns true if the votes in the table are enough by now. They were not when they were
    /// written, or `target` would be Dead. A death takes fewer votes once silos that were Active
    /// lately have lapsed, and no silo counts again unless one votes.
    fn suffices(&self, facts: &Facts, target: &SiloAddress) -> bool {
        let view = facts.view();
        let Some(row) = view.get(target) else { return false };
        let status = |silo: &SiloAddress| view.status_of_row(silo);
        let counted = count_votes(facts, &status, target, &row.votes);
        let knows = |vote: &Vote| vote.gone && status(&vote.voter) == Some(SiloStatus::Active);
        let is_gone = row.votes.iter().any(knows);
        counted >= self.quorum.votes_required(facts, target, is_gone)
    }

    /// The suspect lives: takes the own vote out of the table, once no commit can write it again.
    /// `is_wished`: some wish about this vote waits already.
    pub(crate) fn retract(
        &self,
        facts: &Facts,
        out: &mut Out,
        target: SiloAddress,
        is_wished: bool,
    ) {
        let wanted = facts.config().retract_votes
            && facts.status() == SiloStatus::Active
            && !self.doubts.contains_key(&target);
        let intent = Intent::Retract { target, voter: facts.me() };
        if wanted && !is_wished && !is_shown(facts.view(), &intent) {
            out.tell(Inner::Wish(intent));
        }
    }

    /// Returns true if this silo may return the stamps of `silo`, and so confirm that it is alive:
    /// not while a vote of its own is in the table or may be on its way. `may_speak`: its fence
    /// lets it confirm others.
    pub(crate) fn may_confirm(&self, facts: &Facts, silo: &SiloAddress, may_speak: bool) -> bool {
        let me = facts.me();
        let counts = |vote: &Vote| may_still_count(facts.config(), facts.now(), vote);
        let stands = |vote: &Vote| vote.voter == me && counts(vote);
        may_speak
            && !self.doubts.contains_key(silo)
            && !facts.view().get(silo).is_some_and(|row| row.votes.iter().any(stands))
    }

    /// The view in force is new: who is Dead in it, or gone from it, is in no doubt.
    pub(crate) fn forget_doubts_about_the_dead(&mut self, facts: &Facts) {
        let lives = |silo: &SiloAddress| {
            facts.view().get(silo).is_some_and(|row| row.status != SiloStatus::Dead)
        };
        self.doubts.retain(|silo, _| lives(silo));
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`: whatever a
    /// vote that was over by then has led to, the view shows it.
    pub(crate) fn settle_doubts(&mut self, sent: Instant) {
        self.doubts.retain(|_, until| *until > sent);
    }

    /// A doubt whose commit is over needs the table to end it, because time says nothing about the
    /// commit's outcome. At the end of the window no vote counts.
    pub(crate) fn press_doubt(&mut self, facts: &Facts, out: &mut Out, silo: &SiloAddress) {
        let now = facts.now().mono;
        let Some(until) = self.doubts.get(silo).copied().filter(|until| now >= *until) else {
            return;
        };
        if now >= until + facts.config().vote_window().longest() {
            self.doubts.remove(silo);
        } else {
            out.tell(Inner::Want(Read::Version));
        }
    }

    /// The view in force followed `before`; `same_monitors`: it differs in nothing that says who
    /// probes whom.
    pub(crate) fn view_changed(&mut self, facts: &Facts, before: &View, same_monitors: bool) {
        self.quorum.view_changed(facts, before, same_monitors);
    }
}
