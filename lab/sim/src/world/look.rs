//! Timed checks of the world: things that should be over by then, and things that no input shows.

use std::time::Duration;

use emmer_core::SiloStatus;
use emmer_membership::OpId;

use super::World;
use super::event::Event;
use crate::calm::{Alone, QUIET};
use crate::invariants::i13_store_load;
use crate::process::Process;
use crate::scenario::Fault;
use crate::time::VirtualTime;

/// Time after which a cluster that was not whole is checked again.
const AGAIN_AFTER: Duration = Duration::from_millis(150);

/// When a commit of unknown outcome is settled at the latest: its writer hears after three seconds
/// that the outcome is unknown, reads, and writes.
const SETTLED_AFTER: Duration = Duration::from_millis(5_300);

/// Check at a given time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// Is the cluster whole after a single event?
    Whole { what: Alone, since: VirtualTime, again: bool },
    /// Has every silo the version?
    Spread { version: u64, since: VirtualTime },
    /// Has the process, which is Dead, ended?
    Ended { process: u32 },
    /// Has the process given its join up?
    Joined { process: u32 },
    /// Requests to the store.
    Load,
}

impl World {
    /// The time for this look has come.
    pub(super) fn look(&mut self, look: Look) {
        match look {
            Look::Whole { again: false, what, since } if !self.is_whole() => {
                // Perhaps a view was on its way just then.
                let again = self.now + self.expects.spread_after(&self.scenario) + AGAIN_AFTER;
                self.queue.push(again, Event::Look(Look::Whole { what, since, again: true }));
            }
            Look::Whole { what, since, .. } => {
                self.check(|checks, facts| checks.on_whole_due(facts, what, since));
            }
            Look::Spread { version, since } => {
                self.check(|checks, facts| checks.on_spread_due(facts, version, since));
            }
            Look::Ended { process } => {
                let mut again = None;
                self.check(|checks, facts| checks.on_end_due(facts, process).map(|at| again = at));
                if let Some(at) = again {
                    self.queue.push(at, Event::Look(look));
                }
            }
            Look::Joined { process } => {
                self.check(|checks, facts| checks.on_join_due(facts, process));
            }
            Look::Load => {
                self.check(|checks, facts| checks.on_load_due(facts));
                self.queue.push(self.now + i13_store_load::SPAN, Event::Look(look));
            }
        }
    }

    /// Returns true if nothing happened for a while, and the cluster is whole.
    pub(super) fn is_calm(&self) -> bool {
        // Without a running process nothing is broken, and much is left behind.
        let anybody = self.processes.iter().any(Process::is_running);
        self.expects.tight && anybody && self.calm.was_quiet(self.now, QUIET) && self.is_whole()
    }

    /// The fault as a single event whose end can be timed.
    pub(super) fn single(&self, fault: &Fault) -> Option<Alone> {
        let (host, what) = match fault {
            Fault::Kill(host) | Fault::KillUnread(host) => (host, Alone::Kill),
            Fault::LoseHost(host) => (host, Alone::Loss),
            Fault::Leave(host) => (host, Alone::Leave),
            Fault::Stop(host) => (host, Alone::Stop),
            _ => return None,
        };
        // Of two silos that are left, neither can tell which of them is cut off.
        let enough =
            self.store.table.rows().filter(|row| row.status == SiloStatus::Active).count() > 3;
        (enough && self.running_on(*host).is_some() && self.is_calm()).then_some(what)
    }

    /// Looks in time whether the cluster is whole after `single`.
    pub(super) fn expect(&mut self, single: Option<Alone>) {
        if let Some(what) = single {
            let due = self.now + self.expects.whole_after(&self.scenario, what);
            self.queue.push(due, Event::Look(Look::Whole { what, since: self.now, again: false }));
        }
    }

    /// Checks in time whether all silos have `version`, which was committed now.
    pub(super) fn expect_spread(&mut self, version: u64) {
        if self.expects.tight {
            let look = Look::Spread { version, since: self.now };
            self.queue
                .push(self.now + self.expects.spread_after(&self.scenario), Event::Look(look));
        }
    }

    /// Looks whether `process`, which is Dead and runs, ends.
    pub(super) fn expect_end(&mut self, process: u32) {
        if self.expects.tight {
            self.queue.push(self.now, Event::Look(Look::Ended { process }));
        }
    }

    /// Checks that a silo's own status never lies back.
    pub(super) fn look_at_status(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        let Some(is) = process.machine.as_ref().map(|machine| machine.status()) else { return };
        let was = std::mem::replace(&mut process.status, is);
        if was != is {
            self.check(|checks, facts| checks.on_status(facts, number, was, is));
        }
    }

    /// A commit whose writer was told that its outcome is unknown took effect. The writer has read
    /// since then, and written something else.
    pub(super) fn look_at_late(&mut self, number: u32, op: OpId) {
        let Some((sent, unknowns)) = self.late.remove(&(number, op)) else { return };
        let writer = &self.processes[number as usize];
        let another = self.late.keys().any(|(other, _)| *other == number);
        let well = !another
            && writer.may_run(self.now)
            && writer.seen_itself
            && writer.slow.is_none()
            && writer.unknowns == unknowns + 1
            && self.scenario.store.is_true_but_late()
            && self.calm.store_open == 0
            && self.now.since(self.calm.store_at) > QUIET
            && !self.facts().was_troubled(writer.host, QUIET);
        let age = self.now.since(sent);
        if well && age > SETTLED_AFTER {
            self.check(|checks, facts| checks.on_late_commit(facts, number, age));
        }
    }
}
