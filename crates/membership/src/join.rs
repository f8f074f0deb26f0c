//! Joining: into the table as Joining, round trips with every Active silo, Active (membership description, step 8).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{DialOutcome, Effect, Event, TerminateReason};
use crate::bits::Bits;
use crate::delta::Delta;
use crate::dials::Purpose;
use crate::intent::{Intent, Key};
use crate::membership::Membership;
use crate::message::Message;
use crate::table::Read;
use crate::timers::Timer;
use crate::view::{View, is_on_rings};
use crate::writer::{Draft, Verdict};

/// How far the join has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// Not begun.
    #[default]
    Idle,
    /// Looking for somebody who is already in.
    Finding,
    /// A member was asked to have the row inserted.
    Asking,
    /// The table was read; the row is being inserted.
    Inserting,
    /// In the table as Joining: making round trips.
    Checking,
    /// Active, or given up.
    Done,
}

/// What a joining silo keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Join {
    phase: Phase,
    /// The view whose members are checked; none before the own row is in one. The sets below are positions in it.
    checked: Option<Arc<View>>,
    /// The version from which on a view has to be checked instead; 0 when none has to.
    recheck: u64,
    /// Its members without a round trip so far.
    pending: Bits,
    /// Those of them that are Active.
    blocking: Bits,
    /// Members with one.
    verified: Bits,
    /// Members whose host refused a dial.
    refused: BTreeSet<SiloAddress>,
    /// A silo that won the compare-and-set which this one lost: it is alive, and can write for this one.
    winner: Option<SiloAddress>,
    /// Whether a member has got through to this silo at the address that it advertises.
    reached: bool,
    /// How many members were asked to try in this wave.
    reach_asked: usize,
    /// How many members were asked in vain.
    asked: u32,
    /// How many samples showed members, and none of them Active.
    unripe: u32,
    /// How many waves of probes have gone unanswered.
    waves: u32,
}

/// How many members a joiner asks before it reads the table.
const ASKED_MAX: u32 = 3;

/// The same where the sample shows all there are: perhaps all of them crashed, but perhaps many start at this moment.
const ASKED_OF_FEW_MAX: u32 = 1;

/// How many samples may show nobody who is Active before somebody who is Joining is asked: who is
/// Active knows who writes for all.
const UNRIPE_MAX: u32 = 3;

/// How long after such a sample the next one is taken.
const RIPENS: Duration = Duration::from_millis(30);

/// How many unreachable members one wave dials.
const DIALS_PER_WAVE_MAX: usize = 64;

/// How many members without a round trip an activation names at most; with more it is held back.
const MISSING_MAX: usize = 64;

impl Join {
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The version of the view whose members are checked.
    fn checked_version(&self) -> u64 {
        self.checked.as_ref().map_or(0, |view| view.version())
    }

    fn position(&self, silo: &SiloAddress) -> Option<usize> {
        self.checked.as_ref()?.position(silo)
    }

    /// The silos at `positions` of the view that is checked.
    fn silos<'a>(&'a self, positions: &'a Bits) -> impl Iterator<Item = &'a SiloAddress> + 'a {
        let members = self.checked.iter().map(|view| view.members());
        members.flat_map(|members| positions.iter().filter_map(|at| members.get(at).map(|row| &row.address)))
    }

    fn is_verified(&self, silo: &SiloAddress) -> bool {
        self.position(silo).is_some_and(|at| self.verified.contains(at))
    }
}

impl Membership {
    pub(crate) fn start_join(&mut self, now: Now) {
        if self.join.phase != Phase::Idle || self.is_done() || self.standing.status() != SiloStatus::Created {
            return;
        }
        self.join.phase = Phase::Finding;
        self.timers.set(Timer::JoinDeadline, now.mono + self.config.max_join_attempt_time);
        self.timers.set(Timer::Refresh, now.mono + self.config.table_refresh_timeout);
        if self.config.join_sample_rows > 0 {
            self.table.want(Read::Sample);
        } else {
            self.table.want(Read::All);
        }
    }

    /// A few members were read: asks one of them to have the row inserted. With none the table is read whole.
    pub(crate) fn on_join_sample(&mut self, now: Now, sample: &[SiloEntry]) {
        if self.join.phase > Phase::Asking {
            return;
        }
        let me = self.me.address;
        let of = |wanted: fn(SiloStatus) -> bool| -> Vec<SiloAddress> {
            let others = sample.iter().filter(|row| wanted(row.status) && !row.address.same_endpoint(&me));
            others.map(|row| row.address).collect()
        };
        let mut members = of(|status| status == SiloStatus::Active);
        if members.is_empty() {
            members = of(is_on_rings);
            if !members.is_empty() && self.join.unripe < UNRIPE_MAX {
                self.join.unripe += 1;
                self.join.phase = Phase::Asking;
                self.timers.set(Timer::JoinStep, now.mono + RIPENS);
                return;
            }
        }
        let few = sample.len() < self.config.join_sample_rows as usize;
        let asked_max = if few { ASKED_OF_FEW_MAX } else { ASKED_MAX };
        if members.is_empty() || self.join.asked >= asked_max {
            self.table.want(Read::All);
            return;
        }
        self.join.phase = Phase::Asking;
        self.join.asked += 1;
        let to = members[self.dice.index(members.len())];
        let intents = vec![Intent::Join(self.me.clone())];
        self.send(to, Message::Write { version: 0, intents, hops: 0 });
        self.timers.set(Timer::JoinStep, now.mono + self.config.writer_timeout);
    }

    /// The table was read whole.
    pub(crate) fn on_join_read(&mut self, now: Now) {
        if self.is_done()
            || self.standing.is_in_table()
            || !matches!(self.join.phase, Phase::Finding | Phase::Asking | Phase::Inserting)
        {
            return;
        }
        let first_time = self.join.phase != Phase::Inserting;
        self.join.phase = Phase::Inserting;
        let me = self.me.address;
        let joining = self.view.members().iter().filter(|row| row.status == SiloStatus::Joining);
        let others = joining.map(|row| row.address).filter(|silo| !silo.same_endpoint(&me));
        // The youngest is the likeliest to be alive: everybody else may be what is left of a cluster that was lost.
        self.join.winner = others.max_by_key(SiloAddress::epoch).filter(|_| !first_time);
        let alone = !self.view.members().iter().any(|row| is_on_rings(row.status));
        if first_time && alone {
            // Others may be starting at this very moment: spread the first writes.
            let spread = Duration::from_millis(u64::from(self.config.expected_cluster_size));
            let delay = self.dice.duration_below(spread);
            self.timers.set(Timer::JoinStep, now.mono + delay);
        } else {
            self.wish_to_join(now);
        }
    }

    fn wish_to_join(&mut self, now: Now) {
        self.reroute(now, Key::Join(self.me.address));
        self.wish(now, Intent::Join(self.me.clone()));
    }

    /// The insertion lost the compare-and-set: somebody else is in now, who may write for this silo. When many start at once the
    /// table grows by a hundred rows at a time, so a few of them are read rather than all.
    pub(crate) fn on_join_conflict(&mut self, now: Now) {
        if self.join.phase != Phase::Inserting {
            return;
        }
        let key = Key::Join(self.me.address);
        if self.config.join_sample_rows > 0 && self.join.asked < ASKED_MAX {
            self.join.phase = Phase::Finding;
            self.wishes.forget(&key);
            self.writer.forget(&key);
            self.table.want_only_a_sample();
        } else {
            self.table.want(Read::All);
            self.reroute(now, key);
        }
    }

    pub(crate) fn on_join_step(&mut self, now: Now) {
        match self.join.phase {
            Phase::Asking => self.table.want(Read::Sample),
            Phase::Inserting if !self.wishes.has(&Key::Join(self.me.address)) => self.wish_to_join(now),
            Phase::Checking => self.next_wave(now),
            _ => {}
        }
    }

    pub(crate) fn on_join_deadline(&mut self) {
        if self.join.phase != Phase::Done {
            self.terminate(TerminateReason::JoinTimedOut);
        }
    }

    pub(crate) fn abandon_join(&mut self) {
        self.join = Join { phase: Phase::Done, ..Join::default() };
        self.timers.clear(Timer::JoinDeadline);
        self.timers.clear(Timer::JoinStep);
        self.dials.forget_all(Purpose::Join);
    }

    /// A view is in force. The first that shows this silo's row says with whom round trips are due; whoever is inserted
    /// later makes them from the other side.
    pub(crate) fn join_view_changed(&mut self, now: Now, delta: Option<&Arc<Delta>>) {
        if !self.standing.is_in_table() || self.join.phase == Phase::Done || self.join.phase == Phase::Idle {
            return;
        }
        if self.standing.status() != SiloStatus::Joining {
            self.abandon_join();
            return;
        }
        let first = self.join.phase != Phase::Checking;
        let version = self.view.version();
        if first {
            // A silo that is alone reckons with joiners that watch its row from their own insertion on.
            self.forgive_staleness(now);
            self.join.phase = Phase::Checking;
            self.timers.set(Timer::JoinStep, now.mono + self.wave_time());
        }
        if first || (self.join.recheck > 0 && version >= self.join.recheck) {
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
                    let status = self.view.get(&silo).map(|row| row.status);
                    self.join_row_changed(silo, status);
                }
            }
        }
        self.try_activate(now);
    }

    fn pending_silos(&self) -> Vec<SiloAddress> {
        self.join.silos(&self.join.pending).copied().collect()
    }

    fn join_row_changed(&mut self, silo: SiloAddress, status: Option<SiloStatus>) {
        let Some(at) = self.join.position(&silo) else { return };
        match status {
            Some(SiloStatus::Active) if self.join.pending.contains(at) => {
                self.join.blocking.insert(at);
            }
            Some(status) if is_on_rings(status) => {
                self.join.blocking.remove(at);
            }
            _ => {
                self.join.pending.remove(at);
                self.join.blocking.remove(at);
            }
        }
    }

    /// Takes the view in force as the one to check, and makes the round trips that are missing.
    fn check_anew(&mut self, now: Now) {
        let me = self.me.address;
        let view = self.view.clone();
        let mut verified = Bits::new(view.len());
        let mut pending = verified.clone();
        let mut blocking = verified.clone();
        for (at, row) in view.members().iter().enumerate() {
            let silo = row.address;
            if self.join.is_verified(&silo) {
                verified.insert(at);
            } else if is_on_rings(row.status) && !silo.same_endpoint(&me) {
                pending.insert(at);
                if row.status == SiloStatus::Active {
                    blocking.insert(at);
                }
                self.probe_for_join(silo);
            }
        }
        self.join.recheck = 0;
        (self.join.pending, self.join.blocking, self.join.verified) = (pending, blocking, verified);
        self.join.checked = Some(view);
        self.try_activate(now);
    }

    /// A writer could not tell whether this silo has checked enough.
    pub(crate) fn on_recheck(&mut self, now: Now, version: u64) {
        if self.join.phase != Phase::Checking || version <= self.join.checked_version() {
            return;
        }
        self.wishes.forget(&Key::Activate(self.me.address));
        self.join.recheck = version;
        if self.view.version() >= version {
            self.check_anew(now);
        }
    }

    /// A writer has the wish to join.
    pub(crate) fn join_noted(&mut self, now: Now) {
        if self.join.phase == Phase::Asking {
            self.timers.set(Timer::JoinStep, now.mono + self.config.writer_timeout * 8);
        }
    }

    /// Tells the owner of an activation that cannot be judged.
    pub(crate) fn ask_to_recheck(&mut self, now: Now, owner: SiloAddress) {
        let version = self.view.version();
        if owner == self.me.address {
            self.on_recheck(now, version);
        } else {
            self.send(owner, Message::Recheck { version });
        }
    }

    fn wave_time(&self) -> Duration {
        self.config.probe_timeout.max(Duration::from_millis(500))
    }

    fn probe_for_join(&mut self, silo: SiloAddress) {
        let (seq, version) = (self.probing.new_seq(), self.view.version());
        self.counters.probes_sent += 1;
        self.send(silo, Message::Probe { seq, version, misses: 0, echo: 0 });
    }

    /// Somebody answered: a round trip.
    pub(crate) fn join_answered(&mut self, now: Now, from: &SiloAddress) {
        if self.join.phase != Phase::Checking {
            return;
        }
        let Some(at) = self.join.position(from).filter(|at| self.join.pending.contains(*at)) else { return };
        self.join.pending.remove(at);
        self.join.verified.insert(at);
        self.join.blocking.remove(at);
        self.ask_to_reach(*from);
        if self.join.pending.is_empty() || self.join.waves > 0 {
            self.try_activate(now);
        }
    }

    /// Whom a silo that is not in the table yet asks to write for it, if it has lost a race to somebody.
    pub(crate) fn join_winner(&self) -> Option<SiloAddress> {
        self.join.winner.filter(|_| !self.standing.is_in_table())
    }

    /// Whether the join found no life in `silo`: its host refused a dial, or it left probes of two waves unanswered.
    pub(crate) fn join_doubts(&self, silo: &SiloAddress) -> bool {
        let silent = || self.join.position(silo).is_some_and(|at| self.join.pending.contains(at));
        self.join.refused.contains(silo) || (self.join.waves >= 2 && silent())
    }

    /// Whether the round trips of the join are being made.
    pub(crate) fn is_joining(&self) -> bool {
        self.join.phase == Phase::Checking
    }

    /// Asks a member that has answered to dial this silo, unless that is known already or enough were asked.
    fn ask_to_reach(&mut self, member: SiloAddress) {
        let wanted = self.config.connection_hints && !self.join.reached;
        if wanted && self.join.reach_asked < crate::reach::ASKED_MAX {
            self.join.reach_asked += 1;
            self.send(member, Message::Reach);
        }
    }

    /// Asks again, other members than before perhaps.
    fn ask_others_to_reach(&mut self) {
        self.join.reach_asked = 0;
        let verified: Vec<SiloAddress> = self.join.silos(&self.join.verified).copied().collect();
        if verified.is_empty() {
            return;
        }
        let start = self.dice.index(verified.len());
        for at in 0..verified.len().min(crate::reach::ASKED_MAX) {
            self.ask_to_reach(verified[(start + at) % verified.len()]);
        }
    }

    /// A member has got through to this silo.
    pub(crate) fn join_reached(&mut self, now: Now) {
        if self.is_joining() && !std::mem::replace(&mut self.join.reached, true) {
            self.try_activate(now);
        }
    }

    /// Whether it is settled that others reach this silo: one did, or there is nobody to try.
    fn is_reached(&self) -> bool {
        self.join.reached || !self.config.connection_hints || self.join.verified.is_empty()
    }

    /// Whether the connectivity check ignores `silo`: its row is stale, or its host says that it is gone and its row has stood
    /// still for longer than a living silo's would (membership description, step 14: "new silos will ignore it during startup
    /// connectivity checks").
    fn is_exempt(&self, silo: &SiloAddress) -> bool {
        let active = self.view.active_count();
        let period = self.config.publish_period(active);
        self.is_stale(silo)
            || (self.config.moving_staleness
                && self.has_stood_still(silo, self.config.overlooked_after(active)))
            || (self.join.refused.contains(silo) && self.has_stood_still(silo, period + period / 5))
    }

    fn blockers(&self) -> Vec<SiloAddress> {
        self.join.silos(&self.join.blocking).filter(|silo| !self.is_exempt(silo)).copied().collect()
    }

    /// The members without a round trip that nothing excuses.
    fn missing(&self) -> Vec<SiloAddress> {
        self.join.silos(&self.join.pending).filter(|silo| !self.is_exempt(silo)).copied().collect()
    }

    /// Wishes to be Active, once every Active member has answered (stale ones excepted) and every Joining one has, or has
    /// had the time of a wave to.
    fn try_activate(&mut self, now: Now) {
        let waited = self.join.waves > 0;
        let ready = self.join.phase == Phase::Checking
            && self.join.recheck == 0
            && (self.join.pending.is_empty() || (waited && self.missing().len() <= MISSING_MAX))
            && self.is_reached()
            && self.blockers().is_empty();
        if !ready {
            // What an earlier wish rested on may be so no more: a member that looked gone has answered, and nobody has reached this
            // silo yet.
            self.unwish(&Key::Activate(self.me.address));
            return;
        }
        let missing = self.missing();
        let checked = self.join.checked_version();
        self.fence.note_wish(now);
        self.wish(now, Intent::Activate { silo: self.me.address, checked, missing });
    }

    /// Some members have not answered within a wave's time: probes and dials them again, and reads the table, which may
    /// show that they are stale.
    fn next_wave(&mut self, now: Now) {
        self.timers.set(Timer::JoinStep, now.mono + self.wave_time());
        let blockers = self.blockers();
        for silo in self.pending_silos() {
            self.probe_for_join(silo);
        }
        self.join.waves += 1;
        self.ask_others_to_reach();
        if !blockers.is_empty() {
            let (known, unknown): (Vec<SiloAddress>, Vec<SiloAddress>) =
                blockers.iter().copied().partition(|silo| self.join.refused.contains(silo));
            for silo in unknown.into_iter().chain(known).take(DIALS_PER_WAVE_MAX) {
                self.effects.push_back(Effect::Event(Event::JoinWaitsFor { peer: silo }));
                self.dial_for_join(silo);
            }
            // Where hosts refuse, the rows need to stand still for a moment only.
            let every = if self.join.refused.is_empty() { 2_000 } else { 1_000 };
            let waves_per_read = (every / self.wave_time().as_millis().max(1)).max(1);
            if u128::from(self.join.waves) % waves_per_read == 1 % waves_per_read {
                self.table.want(Read::All);
            }
        }
        self.try_activate(now);
    }

    fn dial_for_join(&mut self, silo: SiloAddress) {
        if !self.dials.is_under_way(Purpose::Join, &silo) {
            self.dial(silo, Purpose::Join, self.config.hint_dial_timeout);
        }
    }

    /// A dial of the join's ended.
    pub(crate) fn join_dialled(&mut self, now: Now, silo: SiloAddress, outcome: DialOutcome) {
        match outcome {
            DialOutcome::Refused | DialOutcome::OtherEpoch(_) => {
                self.counters.dials_refused += 1;
                self.join.refused.insert(silo);
            }
            DialOutcome::Answered => {
                self.join.refused.remove(&silo);
            }
            DialOutcome::NoAnswer => {}
        }
        self.try_activate(now);
    }

    /// Evaluates an activation against the base of a commit (invariant I7: every pair of Active silos has made a round trip).
    ///
    /// Of two silos the one inserted later makes it. The joiner has made one with every member of the view `checked` but
    /// `missing` (Joining then). A silo that is Active now and was not a member then was inserted later, and has made
    /// one with the joiner, unless the commit that made it Active says that it skipped it.
    pub(crate) fn write_activate(
        &self,
        silo: &SiloAddress,
        checked: u64,
        missing: &[SiloAddress],
        draft: &mut Draft,
    ) -> Verdict {
        let Some(row) = self.view.get(silo) else { return Verdict::Wait };
        if row.status != SiloStatus::Joining || self.drafted(draft, silo).is_none_or(|now| now != &**row) {
            return Verdict::Drop;
        }
        if checked > self.view.version() || (*silo == self.me.address && !self.blockers().is_empty()) {
            return Verdict::Wait;
        }
        let is_active =
            |other: &SiloAddress| self.view.get(other).is_some_and(|row| row.status == SiloStatus::Active);
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
