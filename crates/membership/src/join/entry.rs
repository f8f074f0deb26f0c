//! Into the table as Joining, by way of a member or on its own (membership description, step 8).

use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};

use crate::facts::Facts;
use crate::inner::{Inner, Read};
use crate::intent::{Intent, Key};
use crate::message::Message;
use crate::out::Out;
use crate::timers::Timer;
use crate::view::is_on_rings;

/// Stage of the join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Phase {
    /// Not begun.
    #[default]
    Idle,
    /// Looking for a silo that is already in.
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

/// The state of a silo on its way into the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    phase: Phase,
    /// The silo that won the compare-and-set which this one lost. It is alive, and can write for
    /// this one.
    winner: Option<SiloAddress>,
    /// Number of members that were asked in vain.
    asked: u32,
    /// Number of samples that showed members, and none of them Active.
    unripe: u32,
    /// True if this silo wishes for its row.
    wished: bool,
}

/// Number of members that a joiner asks before it reads the table.
const ASKED_MAX: u32 = 3;

/// Number of members that a joiner asks if the sample shows all there are: perhaps all of them
/// crashed, but perhaps many start at this moment.
const ASKED_OF_FEW_MAX: u32 = 1;

/// Number of samples without an Active silo before one that is Joining is asked: a silo that is
/// Active knows who writes for all.
const UNRIPE_MAX: u32 = 3;

/// Time after such a sample until the next one is taken.
const RIPENS: Duration = Duration::from_millis(30);

/// Next step of the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing more.
    Nothing,
    /// Another wave of round trips.
    Wave,
}

impl Entry {
    /// A join that is over, with or without success.
    pub(super) fn over() -> Self {
        Self { phase: Phase::Done, ..Self::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Returns true if the round trips of the join are being made.
    pub(super) fn is_checking(&self) -> bool {
        self.phase == Phase::Checking
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// The row is in the table. Returns true if it was not before.
    pub(super) fn begin_checking(&mut self) -> bool {
        std::mem::replace(&mut self.phase, Phase::Checking) != Phase::Checking
    }

    /// The silo that a joiner asks to write for it after a lost race.
    pub(super) const fn winner(&self) -> Option<SiloAddress> {
        self.winner
    }

    pub(super) fn start(&mut self, facts: &Facts, out: &mut Out) {
        if self.phase != Phase::Idle || facts.is_over() || facts.status() != SiloStatus::Created {
            return;
        }
        self.phase = Phase::Finding;
        let (now, config) = (facts.now().mono, facts.config());
        out.timers().set(Timer::JoinDeadline, now + config.max_join_attempt_time);
        out.timers().set(Timer::Refresh, now + config.table_refresh_timeout);
        let read = if config.join_sample_rows > 0 { Read::Sample } else { Read::All };
        out.tell(Inner::Want(read));
    }

    /// A few members were read: asks one of them to have the row inserted. With none the table is
    /// read whole.
    pub(super) fn on_sample(&mut self, facts: &Facts, out: &mut Out, sample: &[SiloEntry]) {
        if self.phase > Phase::Asking {
            return;
        }
        let (me, now, config) = (facts.me(), facts.now().mono, facts.config());
        let of = |wanted: fn(SiloStatus) -> bool| -> Vec<SiloAddress> {
            let others =
                sample.iter().filter(|row| wanted(row.status) && !row.address.same_endpoint(&me));
            others.map(|row| row.address).collect()
        };
        let mut members = of(|status| status == SiloStatus::Active);
        if members.is_empty() {
            members = of(is_on_rings);
            if !members.is_empty() && self.unripe < UNRIPE_MAX {
                self.unripe += 1;
                self.phase = Phase::Asking;
                out.timers().set(Timer::JoinStep, now + RIPENS);
                return;
            }
        }
        let few = sample.len() < config.join_sample_rows as usize;
        let asked_max = if few { ASKED_OF_FEW_MAX } else { ASKED_MAX };
        if members.is_empty() || self.asked >= asked_max {
            out.tell(Inner::Want(Read::All));
            return;
        }
        self.phase = Phase::Asking;
        self.asked += 1;
        let to = members[out.dice().index(members.len())];
        let intents = vec![Intent::Join(facts.my_row().clone())];
        out.send(to, Message::Write { version: 0, intents, hops: 0 });
        out.timers().set(Timer::JoinStep, now + config.writer_timeout);
    }

    /// The table was read whole.
    pub(super) fn on_read(&mut self, facts: &Facts, out: &mut Out) {
        if facts.is_over()
            || facts.standing().is_in_table()
            || !matches!(self.phase, Phase::Finding | Phase::Asking | Phase::Inserting)
        {
            return;
        }
        let first_time = self.phase != Phase::Inserting;
        self.phase = Phase::Inserting;
        let (me, members) = (facts.me(), facts.view().members());
        let joining = members.iter().filter(|row| row.status == SiloStatus::Joining);
        let others = joining.map(|row| row.address).filter(|silo| !silo.same_endpoint(&me));
        // The youngest is the likeliest to be alive: all others may be remains of a cluster that
        // was lost.
        self.winner = others.max_by_key(SiloAddress::epoch).filter(|_| !first_time);
        let alone = !members.iter().any(|row| is_on_rings(row.status));
        if first_time && alone {
            // Others may be starting at this very moment: spread the first writes.
            let spread = Duration::from_millis(u64::from(facts.config().expected_cluster_size));
            let delay = out.dice().duration_below(spread);
            out.timers().set(Timer::JoinStep, facts.now().mono + delay);
        } else {
            self.wish(facts, out);
        }
    }

    fn wish(&mut self, facts: &Facts, out: &mut Out) {
        self.wished = true;
        out.tell(Inner::Reroute(Key::Join(facts.me())));
        out.tell(Inner::Wish(Intent::Join(facts.my_row().clone())));
    }

    /// The insertion lost the compare-and-set: another silo is in now, which may write for this
    /// one. When many start at once the table grows by a hundred rows at a time, so a few of them
    /// are read rather than all.
    pub(super) fn on_conflict(&mut self, facts: &Facts, out: &mut Out) {
        if self.phase != Phase::Inserting {
            return;
        }
        let key = Key::Join(facts.me());
        if facts.config().join_sample_rows > 0 && self.asked < ASKED_MAX {
            self.phase = Phase::Finding;
            self.wished = false;
            out.tell(Inner::Forget(key));
            out.tell(Inner::Unwrite(key));
            out.tell(Inner::WantOnlyASample);
        } else {
            out.tell(Inner::Want(Read::All));
            out.tell(Inner::Reroute(key));
        }
    }

    pub(super) fn on_step(&mut self, facts: &Facts, out: &mut Out) -> Due {
        match self.phase {
            Phase::Asking => out.tell(Inner::Want(Read::Sample)),
            Phase::Inserting if !self.wished => self.wish(facts, out),
            Phase::Checking => return Due::Wave,
            _ => {}
        }
        Due::Nothing
    }

    /// A writer has the wish to join.
    pub(super) fn on_noted(&self, facts: &Facts, out: &mut Out) {
        if self.phase == Phase::Asking {
            let patience = facts.config().writer_timeout * 8;
            out.timers().set(Timer::JoinStep, facts.now().mono + patience);
        }
    }
}
