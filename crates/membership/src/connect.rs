//! Connectivity: round trips with every member, both ways, between Joining and Active (membership
//! description, step 8).
//!
//! The first view with the joiner's row says whom it has to reach. It wishes to be Active when
//! nobody is in the way any more, and the writer judges that wish by the view that its commit is
//! based on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Now, SiloAddress, SiloStatus};

use crate::api::{DialOutcome, Event};
use crate::bits::Bits;
use crate::delta::Delta;
use crate::dials::Purpose;
use crate::inner::Read;
use crate::intent::{Intent, Key};
use crate::membership::Membership;
use crate::message::Message;
use crate::timers::Timer;
use crate::view::{View, is_on_rings};
use crate::writer::{Draft, Verdict};

/// With whom a joiner has made round trips, and with whom they are due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Check {
    /// The view whose members are checked; none before the own row is in one. The sets below are
    /// positions in it.
    checked: Option<Arc<View>>,
    /// The version from which on a view has to be checked instead; 0 when none has to.
    recheck: u64,
    /// The latest version of which it is known that nobody who is Active in it lacks a round trip
    /// with this silo.
    vouched: u64,
    /// What the last wish to be Active said about that.
    claimed: u64,
    /// Its members without a round trip so far.
    pending: Bits,
    /// Those of them that are Active.
    blocking: Bits,
    /// Members with one.
    verified: Bits,
    /// Members whose host refused the last dial that ended.
    refused: BTreeSet<SiloAddress>,
    /// Whether a member has got through to this silo at the address that it advertises.
    reached: bool,
    /// How many members were asked to try in this wave.
    reach_asked: usize,
    /// How many waves of probes have gone unanswered.
    waves: u32,
}

/// How many unreachable members one wave dials.
const DIALS_PER_WAVE_MAX: usize = 64;

/// How many members without a round trip an activation names at most; with more it is held back.
const MISSING_MAX: usize = 64;

impl Check {
    fn position(&self, silo: &SiloAddress) -> Option<usize> {
        self.checked.as_ref()?.position(silo)
    }

    /// The silos at `positions` of the view that is checked.
    fn silos<'a>(&'a self, positions: &'a Bits) -> impl Iterator<Item = &'a SiloAddress> + 'a {
        let members = self.checked.iter().map(|view| view.members());
        members.flat_map(|members| {
            positions.iter().filter_map(|at| members.get(at).map(|row| &row.address))
        })
    }

    fn is_verified(&self, silo: &SiloAddress) -> bool {
        self.position(silo).is_some_and(|at| self.verified.contains(at))
    }
}

impl Membership {
    /// A view is in force. The first that shows this silo's row says with whom round trips are due;
    /// whoever is inserted later makes them from the other side.
    pub(crate) fn join_view_changed(&mut self, now: Now, delta: Option<&Arc<Delta>>) {
        if !self.facts.standing().is_in_table() || self.join.is_done() || self.join.is_idle() {
            return;
        }
        if self.facts.standing().status() != SiloStatus::Joining {
            self.abandon_join();
            return;
        }
        let first = self.join.begin_checking();
        let version = self.facts.view().version();
        if first {
            // A silo that is alone reckons with joiners that watch its row from their own insertion
            // on.
            self.facts.forgive_rows();
            let wave = self.wave_time();
            self.out.timers().set(Timer::JoinStep, now.mono + wave);
        }
        if first {
            self.check_anew(now);
            return;
        }
        match delta {
            Some(delta) => {
                for row in &delta.rows {
                    self.join_row_changed(row.address, Some(row.status));
                }
            }
            None => {
                for silo in self.pending_silos() {
                    let status = self.facts.view().status_of_row(&silo);
                    self.join_row_changed(silo, status);
                }
            }
        }
        if self.check.recheck > 0 && version >= self.check.recheck {
            self.check_again(now);
            return;
        }
        self.vouch();
        self.try_activate(now);
    }

    /// Vouches for the view in force: with nobody pending, those who became Active since the last
    /// version vouched for were inserted after this silo, and made the round trip from their side,
    /// unless a step says that they skipped it.
    fn vouch(&mut self) -> bool {
        let me = self.facts.me();
        let vouches = self.check.pending.is_empty()
            && self.skipped_since(self.check.vouched, &me) == Some(false);
        if vouches {
            self.check.vouched = self.facts.view().version();
        }
        vouches
    }

    /// A writer's log does not reach back to what this silo has claimed. Perhaps its own does: then
    /// it claims more. If not, it makes the round trips that are missing in the view in force.
    fn check_again(&mut self, now: Now) {
        if self.vouch() {
            self.check.recheck = 0;
            self.try_activate(now);
        } else {
            self.check_anew(now);
        }
    }

    fn pending_silos(&self) -> Vec<SiloAddress> {
        self.check.silos(&self.check.pending).copied().collect()
    }

    fn join_row_changed(&mut self, silo: SiloAddress, status: Option<SiloStatus>) {
        let Some(at) = self.check.position(&silo) else { return };
        match status {
            Some(SiloStatus::Active) if self.check.pending.contains(at) => {
                self.check.blocking.insert(at);
            }
            Some(status) if is_on_rings(status) => {
                self.check.blocking.remove(at);
            }
            _ => {
                self.check.pending.remove(at);
                self.check.blocking.remove(at);
            }
        }
    }

    /// Takes the view in force as the one to check, and makes the round trips that are missing.
    fn check_anew(&mut self, now: Now) {
        let me = self.facts.me();
        let view = self.facts.view().clone();
        let mut verified = Bits::new(view.len());
        let mut pending = verified.clone();
        let mut blocking = verified.clone();
        for (at, row) in view.members().iter().enumerate() {
            let silo = row.address;
            if self.check.is_verified(&silo) {
                verified.insert(at);
            } else if is_on_rings(row.status) && !silo.same_endpoint(&me) {
                pending.insert(at);
                if row.status == SiloStatus::Active {
                    blocking.insert(at);
                }
                self.probe_for_join(silo);
            }
        }
        self.check.recheck = 0;
        self.check.vouched = view.version();
        (self.check.pending, self.check.blocking, self.check.verified) =
            (pending, blocking, verified);
        self.check.checked = Some(view);
        self.try_activate(now);
    }

    /// A writer could not tell whether this silo has checked enough.
    pub(crate) fn on_recheck(&mut self, now: Now, version: u64) {
        if !self.is_joining() || version <= self.check.claimed {
            return;
        }
        self.wishes.forget(&Key::Activate(self.facts.me()));
        self.check.recheck = version;
        if self.facts.view().version() >= version {
            self.check_again(now);
        }
    }

    /// Tells the owner of an activation that cannot be judged.
    pub(crate) fn ask_to_recheck(&mut self, now: Now, owner: SiloAddress) {
        let version = self.facts.view().version();
        if owner == self.facts.me() {
            self.on_recheck(now, version);
        } else {
            self.out.send(owner, Message::Recheck { version });
        }
    }

    fn wave_time(&self) -> Duration {
        self.facts.config().probe_timeout.max(Duration::from_millis(500))
    }

    fn probe_for_join(&mut self, silo: SiloAddress) {
        let (seq, version) = (self.out.new_seq(), self.facts.view().version());
        self.out.count().probes_sent += 1;
        self.out.send(silo, Message::Probe { seq, version, misses: 0, echo: 0 });
    }

    /// Somebody answered: a round trip.
    pub(crate) fn join_answered(&mut self, now: Now, from: &SiloAddress) {
        if !self.is_joining() {
            return;
        }
        let Some(at) = self.check.position(from).filter(|at| self.check.pending.contains(*at))
        else {
            return;
        };
        self.check.pending.remove(at);
        self.check.verified.insert(at);
        self.check.blocking.remove(at);
        self.ask_to_reach(*from);
        if self.check.pending.is_empty() || self.check.waves > 0 {
            self.try_activate(now);
        }
    }

    /// Whether the join found no life in `silo`: its host refused a dial, or it left probes of two
    /// waves unanswered.
    pub(crate) fn join_doubts(&self, silo: &SiloAddress) -> bool {
        let silent = || self.check.position(silo).is_some_and(|at| self.check.pending.contains(at));
        self.check.refused.contains(silo) || (self.check.waves >= 2 && silent())
    }

    /// Asks a member that has answered to dial this silo, unless that is known already or enough
    /// were asked.
    fn ask_to_reach(&mut self, member: SiloAddress) {
        let wanted = self.facts.config().connection_hints && !self.check.reached;
        if wanted && self.check.reach_asked < crate::reach::ASKED_MAX {
            self.check.reach_asked += 1;
            self.out.send(member, Message::Reach);
        }
    }

    /// Asks again, other members than before perhaps.
    fn ask_others_to_reach(&mut self) {
        self.check.reach_asked = 0;
        let verified: Vec<SiloAddress> = self.check.silos(&self.check.verified).copied().collect();
        if verified.is_empty() {
            return;
        }
        let start = self.out.dice().index(verified.len());
        for at in 0..verified.len().min(crate::reach::ASKED_MAX) {
            self.ask_to_reach(verified[(start + at) % verified.len()]);
        }
    }

    /// A member has got through to this silo.
    pub(crate) fn join_reached(&mut self, now: Now) {
        if self.is_joining() && !std::mem::replace(&mut self.check.reached, true) {
            self.try_activate(now);
        }
    }

    /// Whether it is settled that others reach this silo: one did, or there is nobody to try.
    fn is_reached(&self) -> bool {
        self.check.reached
            || !self.facts.config().connection_hints
            || self.check.verified.is_empty()
    }

    /// Whether the connectivity check ignores `silo`: its row is stale, or its host says that it is
    /// gone and its row has stood still for longer than a living silo's would (membership
    /// description, step 14: "new silos will ignore it during startup connectivity checks").
    fn is_exempt(&self, silo: &SiloAddress) -> bool {
        let active = self.facts.view().active_count();
        let refused_after = self.facts.config().overlooked_when_refused_after(active);
        self.facts.is_stale(silo)
            || (self.facts.config().moving_staleness
                && self
                    .facts
                    .rows()
                    .has_stood_still(silo, self.facts.config().overlooked_after(active)))
            || (self.check.refused.contains(silo)
                && self.facts.rows().has_stood_still(silo, refused_after))
    }

    fn blockers(&self) -> Vec<SiloAddress> {
        self.check
            .silos(&self.check.blocking)
            .filter(|silo| !self.is_exempt(silo))
            .copied()
            .collect()
    }

    /// The members without a round trip that nothing excuses; one more than may be missing at most.
    fn missing(&self) -> Vec<SiloAddress> {
        let missing = self.check.silos(&self.check.pending).filter(|silo| !self.is_exempt(silo));
        missing.take(MISSING_MAX + 1).copied().collect()
    }

    /// Wishes to be Active, once every Active member has answered (stale ones excepted) and every
    /// Joining one has, or has had the time of a wave to.
    fn try_activate(&mut self, now: Now) {
        let waited = self.check.waves > 0;
        let ready = self.is_joining()
            && self.check.recheck == 0
            && (self.check.pending.is_empty() || (waited && self.missing().len() <= MISSING_MAX))
            && self.is_reached()
            && self.blockers().is_empty();
        if !ready {
            // What an earlier wish rested on may be so no more: a member that looked gone has
            // answered, and nobody has reached this silo yet.
            self.unwish(&Key::Activate(self.facts.me()));
            return;
        }
        let missing = self.missing();
        if !self.wishes.has(&Key::Activate(self.facts.me())) {
            self.check.claimed = self.check.vouched;
        }
        let checked = self.check.claimed;
        self.fence.note_wish(&self.facts);
        self.wish(now, Intent::Activate { silo: self.facts.me(), checked, missing });
    }

    /// Some members have not answered within a wave's time: probes and dials them again, and reads
    /// the table, which may show that they are stale.
    pub(crate) fn next_wave(&mut self, now: Now) {
        let wave = self.wave_time();
        self.out.timers().set(Timer::JoinStep, now.mono + wave);
        let blockers = self.blockers();
        for silo in self.pending_silos() {
            self.probe_for_join(silo);
        }
        self.check.waves += 1;
        self.ask_others_to_reach();
        if !blockers.is_empty() {
            let (known, unknown): (Vec<SiloAddress>, Vec<SiloAddress>) =
                blockers.iter().copied().partition(|silo| self.check.refused.contains(silo));
            for silo in unknown.into_iter().chain(known).take(DIALS_PER_WAVE_MAX) {
                self.out.event(Event::JoinWaitsFor { peer: silo });
                self.dial_for_join(silo);
            }
        }
        if !blockers.is_empty() || !self.is_reached() {
            // Where hosts refuse, the rows need to stand still for a moment only.
            let every = if self.check.refused.is_empty() { 2_000 } else { 1_000 };
            let waves_per_read = (every / self.wave_time().as_millis().max(1)).max(1);
            if u128::from(self.check.waves) % waves_per_read == 1 % waves_per_read {
                // Those that are waited for may be gone, which their rows show. Those that were
                // asked to dial this silo may be gone too, and it may be dead itself: then there is
                // a later version.
                self.table.want(if blockers.is_empty() { Read::Version } else { Read::All });
            }
        }
        self.try_activate(now);
    }

    fn dial_for_join(&mut self, silo: SiloAddress) {
        if !self.out.dials().is_under_way(Purpose::Join, &silo) {
            self.out.dial(silo, Purpose::Join, self.facts.config().hint_dial_timeout);
        }
    }

    /// A dial of the join's ended.
    pub(crate) fn join_dialled(&mut self, now: Now, silo: SiloAddress, outcome: DialOutcome) {
        match outcome {
            DialOutcome::Refused | DialOutcome::OtherEpoch(_) => {
                self.out.count().dials_refused += 1;
                self.check.refused.insert(silo);
            }
            // Of a host that says nothing any more an earlier refusal may have been a firewall's.
            DialOutcome::Answered | DialOutcome::NoAnswer => {
                self.check.refused.remove(&silo);
            }
        }
        self.try_activate(now);
    }

    /// Evaluates an activation against the base of a commit (invariant I7: every pair of Active
    /// silos has made a round trip).
    ///
    /// Of two silos the one inserted later makes it. The joiner has made one with every member of
    /// the view `checked` but `missing` (Joining then). A silo that is Active now and was not a
    /// member then was inserted later, and has made one with the joiner, unless the commit that
    /// made it Active says that it skipped it.
    pub(crate) fn write_activate(
        &self,
        silo: &SiloAddress,
        checked: u64,
        missing: &[SiloAddress],
        draft: &mut Draft,
    ) -> Verdict {
        let Some(row) = self.facts.view().get(silo) else { return Verdict::Wait };
        if row.status != SiloStatus::Joining
            || self.drafted(draft, silo).is_none_or(|now| now != &**row)
        {
            return Verdict::Drop;
        }
        if checked > self.facts.view().version()
            || (*silo == self.facts.me() && !self.blockers().is_empty())
        {
            return Verdict::Wait;
        }
        let is_active = |other: &SiloAddress| {
            self.facts.view().status_of_row(other) == Some(SiloStatus::Active)
        };
        match self.skipped_since(checked, silo) {
            Some(false) if !missing.iter().any(is_active) => {}
            _ => return Verdict::Recheck,
        }
        if draft.skips(silo) || missing.iter().any(|other| draft.activates(other)) {
            return Verdict::Wait;
        }
        draft.activate((**row).clone(), missing);
        Verdict::Written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::world::{World, address};

    /// The first joiner that wishes to be Active, and has seen a view with rows that it did not
    /// check.
    fn waiting(world: &World) -> Option<usize> {
        let waits = |m: &Membership| {
            m.is_joining()
                && m.wishes.has(&Key::Activate(m.me()))
                && m.check.checked.as_ref().is_some_and(|checked| m.view().len() > checked.len())
        };
        world.silos.iter().position(|silo| waits(&silo.machine))
    }

    #[test]
    fn a_joiner_asked_to_check_again_vouches_by_its_log_and_without_a_log_makes_round_trips() {
        let mut world = World::new();
        for i in 0..250 {
            world.start(&Config::default(), address(1_000 + i * 7 % 250, 1), u64::from(i) + 1);
        }
        world.until(Duration::from_secs(5), |world| waiting(world).is_some());
        let i = waiting(&world).unwrap();
        let mut by_log = world.silos[i].machine.clone();
        let mut without = by_log.clone();
        let (now, version) = (by_log.facts.now(), by_log.view().version());
        let probes = by_log.counters().probes_sent;
        by_log.on_recheck(now, version);
        assert_eq!((by_log.counters().probes_sent, by_log.check.claimed), (probes, version));
        assert!(by_log.wishes.has(&Key::Activate(by_log.me())));
        let view = without.view().clone();
        without.facts.install(view, None);
        without.check.vouched = without.check.checked.as_ref().unwrap().version();
        without.on_recheck(now, version);
        assert!(without.counters().probes_sent > probes, "whom it has not heard is probed");
    }
}
