//! Connectivity: round trips with every member, both ways, between Joining and Active (membership
//! description, step 8).
//!
//! The first view with the joiner's row names the members that it must reach. It wishes to be
//! Active when none blocks it, and the writer judges that wish by the view of its commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};

use crate::api::{DialOutcome, Event};
use crate::bits::Bits;
use crate::config::Config;
use crate::delta::Delta;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::intent::{Intent, Key};
use crate::message::Message;
use crate::out::Out;
use crate::timers::Timer;
use crate::view::{View, is_on_rings};

/// With whom a joiner has made round trips, and with whom they are due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Check {
    /// The view whose members are checked; none before the own row is in a view. The sets below are
    /// positions in it.
    checked: Option<Arc<View>>,
    /// The version from which on a view has to be checked instead; 0 when none has to.
    recheck: u64,
    /// The latest version in which every Active silo has made a round trip with this one.
    vouched: u64,
    /// Version that the last wish to be Active claimed.
    claimed: u64,
    /// True if this silo wishes to be Active.
    wished: bool,
    /// Its members without a round trip so far.
    pending: Bits,
    /// Pending members that are Active.
    blocking: Bits,
    /// Members with one.
    verified: Bits,
    /// Members whose host refused the last dial that ended.
    refused: BTreeSet<SiloAddress>,
    /// Members on the host of this silo whose ports no process listens at.
    vacant: BTreeSet<SiloAddress>,
    /// True if a member has got through to this silo at the address that it advertises.
    reached: bool,
    /// Number of members that were asked to try in this wave.
    reach_asked: usize,
    /// Number of waves of probes without an answer.
    waves: u32,
}

/// Number of unreachable members that one wave dials.
const DIALS_PER_WAVE_MAX: usize = 64;

/// Most members without a round trip that an activation names; with more it is held back.
const MISSING_MAX: usize = 64;

/// Number of members that a joiner asks at a time to dial it.
const REACH_ASKED_MAX: usize = 3;

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

    /// Members that left the host of this silo without a goodbye.
    pub(super) fn vacant(&self) -> Vec<SiloAddress> {
        self.vacant.iter().copied().collect()
    }

    /// The first view that shows this silo's row says with whom round trips are due; a silo that is
    /// inserted later makes them from the other side.
    pub(super) fn begin(&mut self, facts: &Facts, out: &mut Out) {
        out.timers().set(Timer::JoinStep, facts.now().mono + wave_time(facts.config()));
        self.check_anew(facts, out);
    }

    /// A later view is in force.
    pub(super) fn view_changed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        delta: Option<&Arc<Delta>>,
    ) {
        match delta {
            Some(delta) => {
                for row in delta.rows() {
                    self.row_changed(row.address, Some(row.status));
                }
            }
            None => {
                for silo in self.pending_silos() {
                    let status = facts.view().status_of_row(&silo);
                    self.row_changed(silo, status);
                }
            }
        }
        if self.recheck > 0 && facts.view().version() >= self.recheck {
            self.check_again(facts, out);
            return;
        }
        self.vouch(facts);
        self.try_activate(facts, out);
    }

    /// Vouches for the view in force. No member is pending, and silos that became Active later were
    /// inserted after this one and made the round trip from their side, unless a step says that
    /// they skipped it.
    fn vouch(&mut self, facts: &Facts) -> bool {
        let version = facts.view().version();
        let vouches = self.pending.is_empty()
            && facts.steps().skipped(version, self.vouched, &facts.me()) == Some(false);
        if vouches {
            self.vouched = version;
        }
        vouches
    }

    /// The writer's log of deltas does not reach back to the vouched version. If this silo's own
    /// log does, it vouches for a later one. Otherwise it makes the round trips that it lacks in
    /// the view in force.
    fn check_again(&mut self, facts: &Facts, out: &mut Out) {
        if self.vouch(facts) {
            self.recheck = 0;
            self.try_activate(facts, out);
        } else {
            self.check_anew(facts, out);
        }
    }

    fn pending_silos(&self) -> Vec<SiloAddress> {
        self.silos(&self.pending).copied().collect()
    }

    fn row_changed(&mut self, silo: SiloAddress, status: Option<SiloStatus>) {
        let Some(at) = self.position(&silo) else { return };
        match status {
            Some(SiloStatus::Active) if self.pending.contains(at) => {
                self.blocking.insert(at);
            }
            Some(status) if is_on_rings(status) => {
                self.blocking.remove(at);
            }
            _ => {
                self.pending.remove(at);
                self.blocking.remove(at);
            }
        }
    }

    /// Takes the view in force as the one to check, and makes missing round trips.
    fn check_anew(&mut self, facts: &Facts, out: &mut Out) {
        let (me, view) = (facts.me(), facts.view().clone());
        let mut verified = Bits::new(view.len());
        let mut pending = verified.clone();
        let mut blocking = verified.clone();
        for (at, row) in view.members().iter().enumerate() {
            let silo = row.address;
            if self.is_verified(&silo) {
                verified.insert(at);
            } else if is_on_rings(row.status)
                && !silo.same_endpoint(&me)
                && !self.vacant.contains(&silo)
            {
                pending.insert(at);
                if row.status == SiloStatus::Active {
                    blocking.insert(at);
                }
                probe(facts, out, silo);
            }
        }
        self.recheck = 0;
        self.vouched = view.version();
        (self.pending, self.blocking, self.verified) = (pending, blocking, verified);
        self.checked = Some(view);
        // The kernel of this host knows at once which of them are gone.
        let own = self.silos(&self.pending).filter(|silo| facts.is_on_own_host(silo));
        for silo in own.take(DIALS_PER_WAVE_MAX).copied().collect::<Vec<_>>() {
            dial(facts, out, silo);
        }
        self.try_activate(facts, out);
    }

    /// A writer could not tell whether this silo has checked enough.
    pub(super) fn on_recheck(&mut self, facts: &Facts, out: &mut Out, version: u64) {
        if version <= self.claimed {
            return;
        }
        self.wished = false;
        out.tell(Inner::Forget(Key::Activate(facts.me())));
        self.recheck = version;
        if facts.view().version() >= version {
            self.check_again(facts, out);
        }
    }

    /// A member answered: a round trip.
    pub(super) fn answered(&mut self, facts: &Facts, out: &mut Out, from: &SiloAddress) {
        let Some(at) = self.position(from).filter(|at| self.pending.contains(*at)) else {
            return;
        };
        self.pending.remove(at);
        self.verified.insert(at);
        self.blocking.remove(at);
        self.ask_to_reach(facts, out, *from);
        if self.pending.is_empty() || self.waves > 0 {
            self.try_activate(facts, out);
        }
    }

    /// Returns true if the join found no life in `silo`: its host refused a dial, or it left probes
    /// of two waves unanswered.
    pub(super) fn doubts(&self, silo: &SiloAddress) -> bool {
        let silent = || self.position(silo).is_some_and(|at| self.pending.contains(at));
        self.refused.contains(silo) || (self.waves >= 2 && silent())
    }

    /// Asks a member that has answered to dial this silo, unless that is known already or enough
    /// were asked.
    fn ask_to_reach(&mut self, facts: &Facts, out: &mut Out, member: SiloAddress) {
        let wanted = facts.config().connection_hints && !self.reached;
        if wanted && self.reach_asked < REACH_ASKED_MAX {
            self.reach_asked += 1;
            out.send(member, Message::Reach);
        }
    }

    /// Asks again, other members than before perhaps.
    fn ask_others_to_reach(&mut self, facts: &Facts, out: &mut Out) {
        self.reach_asked = 0;
        let verified: Vec<SiloAddress> = self.silos(&self.verified).copied().collect();
        if verified.is_empty() {
            return;
        }
        let start = out.dice().index(verified.len());
        for at in 0..verified.len().min(REACH_ASKED_MAX) {
            self.ask_to_reach(facts, out, verified[(start + at) % verified.len()]);
        }
    }

    /// A member has got through to this silo.
    pub(super) fn on_reached(&mut self, facts: &Facts, out: &mut Out) {
        if !std::mem::replace(&mut self.reached, true) {
            self.try_activate(facts, out);
        }
    }

    /// Returns true if others certainly reach this silo: one did, or there is none to try.
    fn is_reached(&self, facts: &Facts) -> bool {
        self.reached || !facts.config().connection_hints || self.verified.is_empty()
    }

    /// Returns true if the connectivity check ignores `silo`: its row is stale, or its host says
    /// that it is gone and its row has stood still for longer than a living silo's would
    /// (membership description, step 14: "new silos will ignore it during startup connectivity
    /// checks").
    fn is_exempt(&self, facts: &Facts, silo: &SiloAddress) -> bool {
        let (config, active) = (facts.config(), facts.view().active_count());
        let stood_still = |span| facts.rows().has_stood_still(silo, span);
        facts.is_stale(silo)
            || (config.moving_staleness && stood_still(config.overlooked_after(active)))
            || (self.refused.contains(silo)
                && stood_still(config.overlooked_when_refused_after(active)))
    }

    fn blockers(&self, facts: &Facts) -> Vec<SiloAddress> {
        let blocking = self.silos(&self.blocking).filter(|silo| !self.is_exempt(facts, silo));
        blocking.copied().collect()
    }

    /// Returns true if an Active member has not answered, and nothing excuses it.
    pub(super) fn is_blocked(&self, facts: &Facts) -> bool {
        !self.blockers(facts).is_empty()
    }

    /// The members without a round trip that nothing excuses; one more than may be missing at most.
    fn missing(&self, facts: &Facts) -> Vec<SiloAddress> {
        let missing = self.silos(&self.pending).filter(|silo| !self.is_exempt(facts, silo));
        missing.take(MISSING_MAX + 1).copied().collect()
    }

    /// Wishes to be Active, once every Active member has answered (stale ones excepted) and every
    /// Joining one has, or has had the time of a wave to.
    fn try_activate(&mut self, facts: &Facts, out: &mut Out) {
        let waited = self.waves > 0;
        let ready = self.recheck == 0
            && (self.pending.is_empty() || (waited && self.missing(facts).len() <= MISSING_MAX))
            && self.is_reached(facts)
            && !self.is_blocked(facts);
        let silo = facts.me();
        if !ready {
            // The basis of an earlier wish may be gone: a member that looked gone has answered, and
            // none has reached this silo yet.
            if std::mem::take(&mut self.wished) {
                out.tell(Inner::Unwish(Key::Activate(silo)));
            }
            return;
        }
        let missing = self.missing(facts);
        if !std::mem::replace(&mut self.wished, true) {
            self.claimed = self.vouched;
        }
        out.tell(Inner::Wish(Intent::Activate { silo, checked: self.claimed, missing }));
    }

    /// Some members have not answered within a wave's time: probes and dials them again, and reads
    /// the table, which may show that they are stale.
    pub(super) fn next_wave(&mut self, facts: &Facts, out: &mut Out) {
        let wave = wave_time(facts.config());
        out.timers().set(Timer::JoinStep, facts.now().mono + wave);
        let blockers = self.blockers(facts);
        for silo in self.pending_silos() {
            probe(facts, out, silo);
        }
        self.waves += 1;
        self.ask_others_to_reach(facts, out);
        let (known, unknown): (Vec<SiloAddress>, Vec<SiloAddress>) =
            blockers.iter().copied().partition(|silo| self.refused.contains(silo));
        for silo in unknown.into_iter().chain(known).take(DIALS_PER_WAVE_MAX) {
            out.event(Event::JoinWaitsFor { peer: silo });
            dial(facts, out, silo);
        }
        if !blockers.is_empty() || !self.is_reached(facts) {
            // If hosts refuse, the rows need to stand still for a moment only.
            let every = if self.refused.is_empty() { 2_000 } else { 1_000 };
            let waves_per_read = (every / wave.as_millis().max(1)).max(1);
            if u128::from(self.waves) % waves_per_read == 1 % waves_per_read {
                // Members that are waited for may be gone, which their rows show. Members that were
                // asked to dial this silo may be gone too, and it may be dead itself: then there is
                // a later version.
                let read = if blockers.is_empty() { Read::Version } else { Read::All };
                out.tell(Inner::Want(read));
            }
        }
        self.try_activate(facts, out);
    }

    /// A dial of the join's ended.
    pub(super) fn on_dialled(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        outcome: DialOutcome,
    ) {
        match outcome {
            DialOutcome::Vacant if facts.is_on_own_host(&silo) => {
                out.count().dials_refused += 1;
                self.refused.insert(silo);
                self.vacant.insert(silo);
                if let Some(at) = self.position(&silo) {
                    self.pending.remove(at);
                    self.blocking.remove(at);
                }
            }
            DialOutcome::Refused | DialOutcome::Vacant | DialOutcome::OtherEpoch(_) => {
                out.count().dials_refused += 1;
                self.refused.insert(silo);
            }
            // An earlier refusal of a host that has fallen silent may have been a firewall's.
            DialOutcome::Answered | DialOutcome::NoAnswer => {
                self.refused.remove(&silo);
            }
        }
        self.try_activate(facts, out);
    }
}

fn wave_time(config: &Config) -> Duration {
    config.probe_timeout.max(Duration::from_millis(500))
}

fn probe(facts: &Facts, out: &mut Out, silo: SiloAddress) {
    let (seq, version) = (out.new_seq(), facts.view().version());
    out.count().probes_sent += 1;
    out.send(silo, Message::Probe { seq, version, misses: 0, echo: 0 });
}

fn dial(facts: &Facts, out: &mut Out, silo: SiloAddress) {
    if !out.dials().is_under_way(Purpose::Join, &silo) {
        out.dial(silo, Purpose::Join, facts.config().hint_dial_timeout);
    }
}

/// Views of a check for tests.
#[cfg(test)]
impl Check {
    /// Returns true if the view in force has rows that are not checked.
    pub(super) fn lags(&self, facts: &Facts) -> bool {
        self.checked.as_ref().is_some_and(|checked| facts.view().len() > checked.len())
    }

    pub(super) const fn claimed(&self) -> u64 {
        self.claimed
    }

    /// Vouches for the view that is checked and no later one.
    pub(super) fn forget_later_views(&mut self) {
        self.vouched = self.checked.as_ref().map_or(0, |checked| checked.version());
    }
}
