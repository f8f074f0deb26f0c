//! From missed probes to votes: hints, witnesses, and who may vote (membership description, steps 3
//! to 5; improvements 3 and 4).

use std::collections::BTreeMap;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus, Vote};

use crate::api::{ConnectionEvent, DialOutcome, Effect};
use crate::dials::Purpose;
use crate::intent::{Evidence, Intent, Key};
use crate::lapse::lapse;
use crate::membership::Membership;
use crate::peer::Peer;
use crate::table::Read;
use crate::view::View;
use crate::writer::Draft;

/// Up to how many Active silos the table may stand in for a third silo as the witness.
const TABLE_WITNESS_SILOS_MAX: usize = 3;

/// Number of missed probes that are enough against a silo whose row says that it runs no turns.
const MISSES_OF_STALE: u32 = 2;

/// How many silos were Active lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Quorum {
    active: usize,
    /// Until when that number counts.
    until: Instant,
}

/// What this silo has to remember about votes, its own and those that a death takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Voting {
    /// Silos against whom a vote of this one may be in a commit whose end it does not know, and
    /// when that commit is over at the latest.
    doubts: BTreeMap<SiloAddress, Instant>,
    quorum: Quorum,
    /// Until when a silo may be confirmed by monitors that it has no more in the view in force.
    monitors_moved_until: Instant,
}

impl Voting {
    /// A commit that is over at `until` may declare `silo` dead with the word of this silo.
    pub(crate) fn doubt(&mut self, silo: SiloAddress, until: Instant) {
        let doubt = self.doubts.entry(silo).or_insert(until);
        *doubt = (*doubt).max(until);
    }

    /// Until when a death may take more votes than the view in force says.
    pub(crate) fn quorum_lapses_at(&self) -> Instant {
        self.quorum.until.max(self.monitors_moved_until)
    }
}

impl Membership {
    /// Votes, if there is evidence enough: the process is gone, or the suspect has been silent for
    /// the whole patience and nothing speaks for it, or its host refuses connections after one
    /// broke.
    pub(crate) fn consider_vote(&mut self, now: Now, target: SiloAddress) {
        if self.facts.standing().status() != SiloStatus::Active
            || self.facts.view().get(&target).is_none()
        {
            return;
        }
        let Some(peer) = self.probing.peer(&target) else { return };
        let silent = peer.misses() >= self.misses_to_vote(&target)
            && !self.is_heard_of(now, &target)
            && self.witness_ok(&target);
        let evidence = if peer.is_gone() {
            Evidence::Gone
        } else if silent {
            Evidence::Silence
        } else if peer.is_refused_after_loss() {
            Evidence::Refusal
        } else {
            return;
        };
        self.vote(now, target, evidence);
    }

    /// Number of probes that `target` must have missed before this silo votes. Without
    /// `serve_without_store` a silo whose row is stale runs no turns on any silo's word. So its
    /// death needs no patience, only more than one lost message.
    pub(crate) fn misses_to_vote(&self, target: &SiloAddress) -> u32 {
        let limit = self.facts.config().num_missed_probes_limit;
        let rests =
            self.facts.config().serve_without_store || self.facts.config().fence_timeout.is_zero();
        if !rests && self.facts.is_stale(target) { limit.min(MISSES_OF_STALE) } else { limit }
    }

    /// Wishes for a vote, unless the row already shows a young one.
    pub(crate) fn vote(&mut self, now: Now, target: SiloAddress, evidence: Evidence) {
        let voter = self.facts.me();
        let window = self.facts.config().vote_window();
        let voted = self.facts.view().get(&target).is_some_and(|row| {
            let told = |v: &Vote| v.gone || evidence != Evidence::Gone;
            row.votes.iter().any(|v| v.voter == voter && window.is_young(now.wall, v.at) && told(v))
        });
        // For so long a writer may keep it, and then wait for what became of its commit.
        let doubt = self.intent_lifetime() + self.facts.config().table_timeout;
        self.voting.doubt(target, now.mono + doubt);
        if let Some(peer) = self.probing.peer_mut(&target)
            && peer.suspect()
        {
            self.out.count().votes_cast += 1;
        }
        if !voted || self.wishes.retracts(&Key::Vote(target, voter)) || self.suffices(now, &target)
        {
            self.wish(now, Intent::Vote { target, voter, at: now.wall, evidence });
        }
    }

    /// Whether the votes that stand in the table are enough by now. They were not when they were
    /// written, or `target` would be Dead; a death takes fewer votes once those silos have lapsed
    /// that were Active lately. Nobody looks at it again unless somebody votes.
    fn suffices(&self, now: Now, target: &SiloAddress) -> bool {
        let Some(row) = self.facts.view().get(target) else { return false };
        let draft = Draft::new(self.facts.view().version());
        let counted = self.valid_votes(now, &draft, target, &row.votes).len();
        let is_gone = row.votes.iter().any(|vote| vote.gone && self.may_vote(&draft, &vote.voter));
        counted >= self.votes_required(now, target, is_gone)
    }

    /// The suspect answered.
    pub(crate) fn withdraw(&mut self, target: &SiloAddress) {
        let Some(peer) = self.probing.peer_mut(target).filter(|peer| !peer.is_stuck()) else {
            return;
        };
        if peer.clear() {
            self.out.count().suspicions_withdrawn += 1;
        }
        let key = Key::Vote(*target, self.facts.me());
        if !self.wishes.retracts(&key) {
            self.unwish(&key);
        }
    }

    /// The suspect lives: takes the own vote out of the table, once no commit can write it again.
    pub(crate) fn retract(&mut self, now: Now, target: SiloAddress) {
        let voter = self.facts.me();
        let wanted = self.facts.config().retract_votes
            && self.facts.standing().status() == SiloStatus::Active
            && !self.voting.doubts.contains_key(&target)
            && self.probing.peer(&target).is_some_and(|peer| !peer.is_stuck());
        let intent = Intent::Retract { target, voter };
        if wanted && !self.is_shown(&intent) && !self.wishes.has(&intent.key()) {
            self.wish(now, intent);
        }
    }

    /// Whether this silo may give back the stamps of `silo`, and so confirm that it is alive: not
    /// while a vote of its own may be on its way into the table, or stands there.
    pub(crate) fn may_confirm(&self, now: Now, silo: &SiloAddress) -> bool {
        let me = self.facts.me();
        let in_doubt = self.voting.doubts.contains_key(silo);
        let stands = |vote: &Vote| vote.voter == me && self.may_still_count(now, vote);
        !in_doubt
            && self.may_speak(now)
            && !self.facts.view().get(silo).is_some_and(|row| row.votes.iter().any(stands))
    }

    /// The view in force is new: who is Dead in it, or gone from it, is in no doubt.
    pub(crate) fn forget_doubts_about_the_dead(&mut self) {
        let view = &self.facts.view();
        let lives =
            |silo: &SiloAddress| view.get(silo).is_some_and(|row| row.status != SiloStatus::Dead);
        self.voting.doubts.retain(|silo, _| lives(silo));
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`: whatever a
    /// vote that was over by then has led to, the view shows it.
    pub(crate) fn settle_doubts(&mut self, sent: Instant) {
        self.voting.doubts.retain(|_, until| *until > sent);
    }

    /// A doubt whose commit is over needs the table to end it; time alone says nothing about what
    /// the commit did. At the end of the window no vote counts any more.
    pub(crate) fn press_doubt(&mut self, now: Now, silo: &SiloAddress) {
        let Some(until) = self.voting.doubts.get(silo).copied().filter(|until| now.mono >= *until)
        else {
            return;
        };
        if now.mono >= until + self.facts.config().vote_window().longest() {
            self.voting.doubts.remove(silo);
        } else {
            self.table.want(Read::Version);
        }
    }

    /// Whether a vote in the table may still count for some writer's clock.
    pub(crate) fn may_still_count(&self, now: Now, vote: &Vote) -> bool {
        self.facts.config().vote_window().may_still_count(now.wall, vote.at)
    }

    /// Whether application bytes from the suspect speak against a vote.
    pub(crate) fn is_heard_of(&self, now: Now, target: &SiloAddress) -> bool {
        if !self.facts.config().enable_connection_liveness_check {
            return false;
        }
        let window = self.facts.config().connection_liveness_window;
        self.probing.peer(target).is_some_and(|peer| peer.is_heard(now.mono, window))
    }

    fn witness_ok(&self, target: &SiloAddress) -> bool {
        !self.facts.config().vote_needs_witness
            || self.probing.peer(target).is_some_and(Peer::is_witnessed)
    }

    /// Whether this silo has completed a round trip with somebody else since the first miss of
    /// `target`: if it is this silo that is cut off, nobody answers it.
    pub(crate) fn has_witness(&self, target: &SiloAddress) -> bool {
        let Some(since) = self.probing.peer(target).and_then(Peer::missed_since) else {
            return false;
        };
        let third = self
            .probing
            .iter()
            .any(|(silo, peer)| silo != target && peer.has_answered_since(since));
        third || (self.is_small() && self.table.has_answered_since(since))
    }

    fn is_small(&self) -> bool {
        self.live_active_count() <= TABLE_WITNESS_SILOS_MAX
    }

    /// In a cluster without enough third silos, the table is asked to be the witness.
    pub(crate) fn want_table_witness(&mut self, target: &SiloAddress) {
        if self.facts.config().vote_needs_witness && self.is_small() && !self.has_witness(target) {
            self.table.want(Read::Version);
        }
    }

    /// Whether this silo has reason to think that `silo` will not answer.
    pub(crate) fn is_doubted(&self, silo: &SiloAddress) -> bool {
        self.probing.peer(silo).is_some_and(|peer| peer.misses() > 0 || peer.is_refused())
            || self.join_doubts(silo)
    }

    // ---- hints
    // ------------------------------------------------------------------------------------------

    /// Asks on a fresh connection whether the process is still there.
    pub(crate) fn dial_peer(&mut self, silo: SiloAddress) {
        if !self.facts.config().connection_hints {
            return;
        }
        if self.probing.peer(&silo).is_some()
            && !self.out.dials().is_under_way(Purpose::Hint, &silo)
        {
            self.out.dial(silo, Purpose::Hint, self.facts.config().hint_dial_timeout);
        }
    }

    pub(crate) fn on_connection(&mut self, now: Now, silo: SiloAddress, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Heard => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.hear(now.mono);
                }
            }
            ConnectionEvent::Closed | ConnectionEvent::Broken => {
                if let Some(peer) = self.probing.peer_mut(&silo) {
                    peer.lose_connection(now.mono, event == ConnectionEvent::Closed);
                    if peer.is_refused() {
                        self.consider_vote(now, silo);
                    }
                }
                self.dial_peer(silo);
            }
            // It will write its own Dead; if it does not, its row is probed like any other.
            ConnectionEvent::Goodbye => {}
        }
    }

    /// A dial that was to give a hint ended.
    pub(crate) fn hint_dialled(&mut self, now: Now, silo: SiloAddress, outcome: DialOutcome) {
        let Some(peer) = self.probing.peer_mut(&silo) else { return };
        match outcome {
            DialOutcome::Answered => {
                let renews = peer.renews();
                if renews {
                    self.out.effect(Effect::Renew(silo));
                }
                if renews || peer.repeats_probe() {
                    self.send_probe(now, silo);
                }
            }
            DialOutcome::OtherEpoch(other) if !silo.is_succeeded_by(&other) => {}
            // Something answers for the host, and says that no such process is there (any more).
            // Together with a connection that the host's kernel ended it is proof; alone it may be
            // a firewall.
            DialOutcome::Refused | DialOutcome::OtherEpoch(_) => {
                self.out.count().dials_refused += 1;
                peer.refuse(now.mono);
                self.consider_vote(now, silo);
                self.probe_now(now, silo);
            }
            DialOutcome::NoAnswer => self.probe_now(now, silo),
        }
    }

    /// Probes `silo` before its turn, unless a probe is on its way or was missed.
    fn probe_now(&mut self, now: Now, silo: SiloAddress) {
        if self.probing.peer(&silo).is_some_and(|peer| peer.misses() == 0 && !peer.is_in_flight()) {
            self.send_probe(now, silo);
        }
    }

    // ---- counting
    // -----------------------------------------------------------------------------------------

    /// Whether a vote of `voter` counts in a commit: it must be Active in the view the commit is
    /// based on, and not be declared dead by the same commit (invariant I6).
    pub(crate) fn may_vote(&self, draft: &Draft, voter: &SiloAddress) -> bool {
        self.drafted(draft, voter).is_some_and(|row| row.status == SiloStatus::Active)
    }

    /// The votes that count: fresh in a window that ends at the latest time any clock involved
    /// shows, so that every silo counts alike whatever its own clock says; each voter once.
    ///
    /// With the fence, and unless the target is stale, only those of its monitors: it rests on the
    /// word of these, and does not know what silos think that probed it before somebody joined.
    pub(crate) fn valid_votes(
        &self,
        now: Now,
        draft: &Draft,
        target: &SiloAddress,
        votes: &[Vote],
    ) -> Vec<Vote> {
        let window = self.facts.config().vote_window();
        let anybody = self.facts.config().fence_timeout.is_zero() || self.facts.is_stale(target);
        let is_asked = |voter: &SiloAddress| anybody || self.is_monitored_by(target, voter);
        let end = votes.iter().map(|v| v.at).fold(now.wall, std::cmp::max);
        let mut counted: Vec<Vote> = Vec::new();
        for vote in votes {
            let fresh = window.counts(end, vote.at);
            let once = counted.iter().all(|v| v.voter != vote.voter);
            if fresh && once && is_asked(&vote.voter) && self.may_vote(draft, &vote.voter) {
                counted.push(*vote);
            }
        }
        counted
    }

    /// How many votes make a silo Dead whose row is fresh, where `active` silos are Active: the
    /// configured number, or in small clusters half of them, rounded up.
    pub(crate) fn votes_among(&self, active: usize) -> usize {
        (self.facts.config().num_votes_for_death_declaration as usize)
            .min(active.div_ceil(2).max(1))
    }

    /// The view in force followed `before`; `next`: no view lies between the two; `same_monitors`:
    /// and it differs in nothing that says who probes whom.
    ///
    /// A silo may have been confirmed by monitors that are gone now, when its death took more
    /// votes. So a smaller number of Active silos, or of monitors, counts only when such a
    /// confirmation is over.
    pub(crate) fn quorum_view_changed(
        &mut self,
        now: Now,
        before: &View,
        next: bool,
        same_monitors: bool,
    ) {
        if self.facts.config().fence_timeout.is_zero() {
            return;
        }
        // The last word of a monitor that is Dead was given within `word_lasts` after the table
        // last confirmed it, or on an open fence.
        let until = now.mono + lapse(self.facts.config().fence_timeout) + lapse(self.word_lasts());
        let was = if next { before.active_count() } else { usize::MAX };
        if was > self.facts.view().active_count() {
            let still =
                if now.mono < self.voting.quorum.until { self.voting.quorum.active } else { 0 };
            self.voting.quorum = Quorum { active: was.max(still), until };
        }
        if !same_monitors {
            self.voting.monitors_moved_until = until;
        }
    }

    /// How many votes make `target` Dead. Active silos that are stale are not counted among those
    /// of whom half must vote: always in the original, and with the fence only against a target
    /// that is stale itself. A silo that touches its row can then rely on how many votes its death
    /// takes (see the fence).
    ///
    /// Against a process that is known to be gone those who are Active now are enough; against one
    /// that is silent, those who were lately (see
    /// [`quorum_view_changed`](Self::quorum_view_changed)).
    pub(crate) fn votes_required(&self, now: Now, target: &SiloAddress, is_gone: bool) -> usize {
        if !self.facts.config().fence_timeout.is_zero() && !self.facts.is_stale(target) {
            let lately = if is_gone || now.mono >= self.voting.quorum.until {
                0
            } else {
                self.voting.quorum.active
            };
            let votes = self.votes_among(self.facts.view().active_count().max(lately));
            if !is_gone && now.mono < self.voting.monitors_moved_until {
                return votes;
            }
            // Where silos probe few others, one may have fewer monitors than a death takes votes:
            // then all of them are enough. Joiners that took the places of Active monitors count:
            // the target, and those monitors, may know nothing of them yet, and go on as before.
            let monitors =
                if is_gone { self.monitors_of(target) } else { self.monitors_to_be_of(target) };
            return votes.min(monitors.len().max(1));
        }
        let half = self.live_active_count().div_ceil(2);
        (self.facts.config().num_votes_for_death_declaration as usize).min(half.max(1))
    }

    /// How many silos are Active and not stale.
    pub(crate) fn live_active_count(&self) -> usize {
        let stale = self
            .facts
            .stale_members()
            .filter(|silo| {
                self.facts.view().get(silo).is_some_and(|row| row.status == SiloStatus::Active)
            })
            .count();
        self.facts.view().active_count().saturating_sub(stale)
    }
}
