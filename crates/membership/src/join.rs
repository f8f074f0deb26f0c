//! Joining: into the table as Joining, by way of a member or on its own (membership description,
//! step 8). What follows, up to Active, is in `connect.rs`.

use std::time::Duration;

use emmer_core::{Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::TerminateReason;
use crate::connect::Check;
use crate::dials::Purpose;
use crate::inner::Read;
use crate::intent::{Intent, Key};
use crate::membership::Membership;
use crate::message::Message;
use crate::timers::Timer;
use crate::view::is_on_rings;

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

/// What a silo keeps on its way into the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Join {
    phase: Phase,
    /// A silo that won the compare-and-set which this one lost: it is alive, and can write for this
    /// one.
    winner: Option<SiloAddress>,
    /// How many members were asked in vain.
    asked: u32,
    /// How many samples showed members, and none of them Active.
    unripe: u32,
}

/// How many members a joiner asks before it reads the table.
const ASKED_MAX: u32 = 3;

/// The same where the sample shows all there are: perhaps all of them crashed, but perhaps many
/// start at this moment.
const ASKED_OF_FEW_MAX: u32 = 1;

/// How many samples may show nobody who is Active before somebody who is Joining is asked: who is
/// Active knows who writes for all.
const UNRIPE_MAX: u32 = 3;

/// How long after such a sample the next one is taken.
const RIPENS: Duration = Duration::from_millis(30);

impl Join {
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether it is over, with or without success.
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// The row is in the table. Whether it was not before.
    pub(crate) fn begin_checking(&mut self) -> bool {
        std::mem::replace(&mut self.phase, Phase::Checking) != Phase::Checking
    }
}

impl Membership {
    pub(crate) fn start_join(&mut self, now: Now) {
        if self.join.phase != Phase::Idle
            || self.is_done()
            || self.facts.standing().status() != SiloStatus::Created
        {
            return;
        }
        self.join.phase = Phase::Finding;
        self.out
            .timers()
            .set(Timer::JoinDeadline, now.mono + self.facts.config().max_join_attempt_time);
        self.out.timers().set(Timer::Refresh, now.mono + self.facts.config().table_refresh_timeout);
        if self.facts.config().join_sample_rows > 0 {
            self.table.want(Read::Sample);
        } else {
            self.table.want(Read::All);
        }
    }

    /// A few members were read: asks one of them to have the row inserted. With none the table is
    /// read whole.
    pub(crate) fn on_join_sample(&mut self, now: Now, sample: &[SiloEntry]) {
        if self.join.phase > Phase::Asking {
            return;
        }
        let me = self.facts.me();
        let of = |wanted: fn(SiloStatus) -> bool| -> Vec<SiloAddress> {
            let others =
                sample.iter().filter(|row| wanted(row.status) && !row.address.same_endpoint(&me));
            others.map(|row| row.address).collect()
        };
        let mut members = of(|status| status == SiloStatus::Active);
        if members.is_empty() {
            members = of(is_on_rings);
            if !members.is_empty() && self.join.unripe < UNRIPE_MAX {
                self.join.unripe += 1;
                self.join.phase = Phase::Asking;
                self.out.timers().set(Timer::JoinStep, now.mono + RIPENS);
                return;
            }
        }
        let few = sample.len() < self.facts.config().join_sample_rows as usize;
        let asked_max = if few { ASKED_OF_FEW_MAX } else { ASKED_MAX };
        if members.is_empty() || self.join.asked >= asked_max {
            self.table.want(Read::All);
            return;
        }
        self.join.phase = Phase::Asking;
        self.join.asked += 1;
        let to = members[self.out.dice().index(members.len())];
        let intents = vec![Intent::Join(self.facts.my_row().clone())];
        self.out.send(to, Message::Write { version: 0, intents, hops: 0 });
        self.out.timers().set(Timer::JoinStep, now.mono + self.facts.config().writer_timeout);
    }

    /// The table was read whole.
    pub(crate) fn on_join_read(&mut self, now: Now) {
        if self.is_done()
            || self.facts.standing().is_in_table()
            || !matches!(self.join.phase, Phase::Finding | Phase::Asking | Phase::Inserting)
        {
            return;
        }
        let first_time = self.join.phase != Phase::Inserting;
        self.join.phase = Phase::Inserting;
        let me = self.facts.me();
        let joining =
            self.facts.view().members().iter().filter(|row| row.status == SiloStatus::Joining);
        let others = joining.map(|row| row.address).filter(|silo| !silo.same_endpoint(&me));
        // The youngest is the likeliest to be alive: everybody else may be what is left of a
        // cluster that was lost.
        self.join.winner = others.max_by_key(SiloAddress::epoch).filter(|_| !first_time);
        let alone = !self.facts.view().members().iter().any(|row| is_on_rings(row.status));
        if first_time && alone {
            // Others may be starting at this very moment: spread the first writes.
            let spread =
                Duration::from_millis(u64::from(self.facts.config().expected_cluster_size));
            let delay = self.out.dice().duration_below(spread);
            self.out.timers().set(Timer::JoinStep, now.mono + delay);
        } else {
            self.wish_to_join(now);
        }
    }

    fn wish_to_join(&mut self, now: Now) {
        self.reroute(now, Key::Join(self.facts.me()));
        self.wish(now, Intent::Join(self.facts.my_row().clone()));
    }

    /// The insertion lost the compare-and-set: somebody else is in now, who may write for this
    /// silo. When many start at once the table grows by a hundred rows at a time, so a few of them
    /// are read rather than all.
    pub(crate) fn on_join_conflict(&mut self, now: Now) {
        if self.join.phase != Phase::Inserting {
            return;
        }
        let key = Key::Join(self.facts.me());
        if self.facts.config().join_sample_rows > 0 && self.join.asked < ASKED_MAX {
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
            Phase::Inserting if !self.wishes.has(&Key::Join(self.facts.me())) => {
                self.wish_to_join(now);
            }
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
        self.check = Check::default();
        self.out.timers().clear(Timer::JoinDeadline);
        self.out.timers().clear(Timer::JoinStep);
        self.out.dials().forget_all(Purpose::Join);
    }

    /// A writer has the wish to join.
    pub(crate) fn join_noted(&mut self, now: Now) {
        if self.join.phase == Phase::Asking {
            self.out
                .timers()
                .set(Timer::JoinStep, now.mono + self.facts.config().writer_timeout * 8);
        }
    }

    /// Whom a silo that is not in the table yet asks to write for it, if it has lost a race to
    /// somebody.
    pub(crate) fn join_winner(&self) -> Option<SiloAddress> {
        self.join.winner.filter(|_| !self.facts.standing().is_in_table())
    }

    /// Whether the round trips of the join are being made.
    pub(crate) fn is_joining(&self) -> bool {
        self.join.phase == Phase::Checking
    }
}
