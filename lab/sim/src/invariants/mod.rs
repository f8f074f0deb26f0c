//! Invariants, one file for each property. Steps and improvements are those of
//! `docs/membership.md`.
//!
//! | invariant | what it says | source | file |
//! |---|---|---|---|
//! | I1 | the version grows by one per committed write, and no write is empty | membership description, step 8 | `i1_versions.rs` |
//! | I2 | a silo's views have growing versions and equal the table's history | membership description, step 8 | `i2_views.rs` |
//! | I3 | Dead is final for `ip:port:epoch`, also after clean-up; a status never moves back | membership description, step 5 | `i3_dead_is_final.rs` |
//! | I4 | at most one living incarnation of an `ip:port` in any view | membership description, step 1 | `i4_one_incarnation.rs` |
//! | I5 | the store's absence kills nobody, and neither does old evidence | membership description, step 13 | `i5_accuracy.rs` |
//! | I6 | whoever is Dead was voted dead by enough silos, left, was succeeded, or went stale | membership description, step 5 | `i6_votes.rs` |
//! | I7 | a silo that installs its own death ends within that step | membership description, step 12 | `i7_own_death.rs` |
//! | I8 | a silo runs no turn once anybody else may be granted one of its grains | improvement 9 | `i8_fence.rs`, `i8_turns.rs` |
//! | I9 | an acknowledged registration is found until it is removed or its silo Dead; ranges partition the ring | ours | `i9_directory.rs`, `i9_serving.rs` |
//! | I11 | the fence of a silo that is connected is open | improvement 9 | `i11_fence_open.rs` |
//! | I12 | what happens alone is over soon: starts, ends, deaths, views on their way | ours | `i12_soon.rs` |
//! | I13 | a cluster that nothing happens to leaves the store in peace | ours | `i13_store_load.rs` |
//! | I14 | a silo that is itself cut off accuses nobody | improvement 4 | `i14_witness.rs` |
//! | I15 | a grain that moves remembers every turn that has run, and no other | ours | `i15_memory.rs` |
//! | J | a silo becomes Active only after it heard every silo that was Active when it started | membership description, step 8 | `join_connectivity.rs` |
//! | I10 | once faults stop, the cluster is whole within a bound, and the directory at rest | ours | `i10_convergence.rs`, `i10_directory.rs` |
//!
//! Each looks only at what the last step changed: a commit, a view put in force, a silo that ended.

pub mod i10_convergence;
pub(crate) mod i10_directory;
mod i11_fence_open;
mod i12_soon;
pub(crate) mod i13_store_load;
mod i14_witness;
pub(crate) mod i15_memory;
mod i1_versions;
mod i2_views;
mod i3_dead_is_final;
mod i4_one_incarnation;
mod i5_accuracy;
mod i6_votes;
mod i7_own_death;
mod i8_fence;
pub(crate) mod i8_turns;
pub(crate) mod i9_directory;
pub(crate) mod i9_serving;
mod join_connectivity;

use std::fmt;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus, Timestamp};
use emmer_membership::{TerminateReason, View};

use crate::calm::{Alone, Calm, Expects};
use crate::host::Hosts;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::table::{Record, Table};
use crate::time::VirtualTime;

/// Age of the read behind a commit when it arrives: a silo reads again before it counts votes on a
/// read older than 2.5 s, and the commit is on its way for a while.
const READ_AGE: Duration = Duration::from_secs(5);

/// Facts that the invariants may see.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The true time.
    pub now: VirtualTime,
    /// The table, with its history.
    pub table: &'a Table,
    /// Every process that ever ran.
    pub processes: &'a [Process],
    /// Where they ran.
    pub hosts: &'a Hosts,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// When anything but the store last gave a living silo a reason to look dead; now, if it still
    /// does.
    pub trouble_at: Option<VirtualTime>,
    /// Troubles of each host.
    pub host_troubles: &'a [HostTroubles],
    /// True if the network itself loses or delays messages now and then, anywhere.
    pub noisy: bool,
    /// Last events that are not the protocol's own work.
    pub calm: &'a Calm,
    /// Bounds that follow from the scenario.
    pub expects: Expects,
}

/// When anything but the store was wrong with a host or its links.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTroubles {
    /// Open windows of trouble.
    pub open: u32,
    /// When there was some last.
    pub at: Option<VirtualTime>,
    /// Since when it alone is cut off, both ways.
    pub exiled_at: Option<VirtualTime>,
}

impl<'a> Facts<'a> {
    /// The process with this identity.
    pub fn process(&self, silo: &SiloAddress) -> Option<&'a Process> {
        self.hosts.process_of(self.processes, silo).map(|number| &self.processes[number as usize])
    }

    /// Returns true if the row of `silo` may look stale to an observer whose clock shows `wall`:
    /// untouched for more than `share` of the stale time, or (where clocks are compared) touched by
    /// a clock that is as far behind. The observer's last read may be older than the last touch.
    pub fn may_look_stale(&self, silo: &SiloAddress, wall: Timestamp, share: f64) -> bool {
        let config = &self.scenario.config;
        let bound = config.stale_after(1).mul_f64(share);
        let (Some(alive_at), Some(row)) = (self.table.alive_at(silo), self.table.row(silo)) else {
            return true;
        };
        let looks_stale = |at: VirtualTime, value: Timestamp| {
            self.now.since(at) >= bound
                || (!config.moving_staleness && wall.saturating_since(value) >= bound)
        };
        let before = self.table.alive_before(silo).filter(|_| self.now.since(alive_at) < READ_AGE);
        // Several touches may have come since that read.
        let stood_still = self.table.stood_still(silo, self.now, READ_AGE) >= bound;
        looks_stale(alive_at, row.i_am_alive_time)
            || before.is_some_and(|(at, value)| looks_stale(at, value))
            || stood_still
    }

    /// Returns true if anything but the store was wrong with `host` or its links within `window`.
    pub fn was_troubled(&self, host: u32, window: Duration) -> bool {
        self.host_troubles.get(host as usize).is_some_and(|troubles| {
            troubles.open > 0 || troubles.at.is_some_and(|at| self.now.since(at) <= window)
        })
    }

    /// Returns true if a later process ever ran on the endpoint of `silo`.
    pub fn has_successor(&self, silo: &SiloAddress) -> bool {
        self.hosts.host_of(silo).is_some_and(|host| {
            let later =
                |number: &u32| silo.is_succeeded_by(&self.processes[*number as usize].address);
            self.hosts.incarnations(host).iter().any(later)
        })
    }

    /// A violation of `invariant`, now.
    pub fn violated(&self, invariant: &'static str, what: String) -> Violation {
        Violation { invariant, at: self.now, what }
    }

    /// The newest commit and the version it made.
    pub fn newest(&self) -> Option<(&Record, u64)> {
        self.table.history().last().map(|record| (record, self.table.version().number))
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: &'static str,
    /// Time of the violation.
    pub at: VirtualTime,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} s: {}", self.invariant, self.at, self.what)
    }
}

/// Every invariant, with its memory.
#[derive(Debug)]
pub struct Checks {
    views: i2_views::Views,
    dead: i3_dead_is_final::EverDead,
    own_death: i7_own_death::OwnDeath,
    partition: i9_directory::Partition,
    load: i13_store_load::Load,
    accused: i14_witness::Accused,
}

impl Checks {
    /// Every invariant, for a run of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            views: i2_views::Views::new(scenario.thorough),
            dead: i3_dead_is_final::EverDead::default(),
            own_death: i7_own_death::OwnDeath::default(),
            partition: i9_directory::Partition::default(),
            load: i13_store_load::Load::default(),
            accused: i14_witness::Accused::default(),
        }
    }

    /// A commit was applied.
    ///
    /// # Errors
    /// The first violation.
    pub fn on_commit(&mut self, facts: &Facts<'_>) -> Result<(), Violation> {
        let Some((record, version)) = facts.newest() else { return Ok(()) };
        i1_versions::check(facts, record, version)?;
        self.dead.check(facts, record)?;
        i4_one_incarnation::check(facts, record)?;
        i5_accuracy::check(facts, record)?;
        i6_votes::check(facts, record)?;
        self.accused.check(facts, record)?;
        join_connectivity::check(facts, record)
    }

    /// The process `number` puts `view` in force; before, it had `previous`.
    ///
    /// # Errors
    /// The first violation.
    pub fn on_install(
        &mut self,
        facts: &Facts<'_>,
        number: u32,
        view: &View,
        previous: u64,
    ) -> Result<(), Violation> {
        self.views.check(facts, number, view, previous)?;
        self.own_death.look(facts, number, view);
        Ok(())
    }

    /// The process `number` has done everything its last input led to.
    ///
    /// # Errors
    /// The first violation.
    pub fn after_step(&mut self, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
        self.own_death.check(facts, number)
    }

    /// The directory of `number` has installed the view `version`, in which `active` silos are
    /// Active.
    ///
    /// # Errors
    /// A violation, when two silos own the same range, or no silo does.
    pub fn on_ranges(
        &mut self,
        facts: &Facts<'_>,
        number: u32,
        version: u64,
        active: usize,
    ) -> Result<(), Violation> {
        self.partition.check(facts, number, version, active)
    }

    /// A grain of process `number`, which is Dead and runs, may be granted to another silo, or the
    /// process made a step since.
    ///
    /// # Errors
    /// A violation, when it may still run turns.
    pub fn on_granted(&self, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
        i8_fence::check(facts, number)
    }

    /// The fence of process `number` has closed.
    ///
    /// # Errors
    /// A violation, when it is connected.
    pub fn on_fence_closed(&self, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
        i11_fence_open::check(facts, number)
    }

    /// Process `number` ends itself for `reason`.
    ///
    /// # Errors
    /// A violation, when that is not true.
    pub fn on_end(
        &self,
        facts: &Facts<'_>,
        number: u32,
        reason: TerminateReason,
    ) -> Result<(), Violation> {
        i7_own_death::check_reason(facts, number, reason)
    }

    /// Time after `what` alone by which the cluster has to be whole again.
    ///
    /// # Errors
    /// A violation, when it is not.
    pub fn on_whole_due(
        &self,
        facts: &Facts<'_>,
        what: Alone,
        since: VirtualTime,
    ) -> Result<(), Violation> {
        i12_soon::whole(facts, what, since)
    }

    /// Time after the commit of `version` by which every silo has to have it.
    ///
    /// # Errors
    /// A violation, when a silo does not.
    pub fn on_spread_due(
        &self,
        facts: &Facts<'_>,
        version: u64,
        since: VirtualTime,
    ) -> Result<(), Violation> {
        i12_soon::spread(facts, version, since)
    }

    /// Looks whether process `number`, which is Dead, should have ended; when to look again, if it
    /// is too early to say.
    ///
    /// # Errors
    /// A violation, when it should have.
    pub fn on_end_due(
        &self,
        facts: &Facts<'_>,
        number: u32,
    ) -> Result<Option<VirtualTime>, Violation> {
        i12_soon::ended(facts, number)
    }

    /// The time of another look at the store's load has come.
    ///
    /// # Errors
    /// A violation, when it was too much.
    pub fn on_load_due(&mut self, facts: &Facts<'_>) -> Result<(), Violation> {
        i12_soon::votes_gone(facts)?;
        self.load.check(facts)
    }

    /// Process `number` answers a probe of `to`.
    ///
    /// # Errors
    /// A violation, when `to` is Dead in its view.
    pub fn on_answer(
        &self,
        facts: &Facts<'_>,
        number: u32,
        to: &SiloAddress,
    ) -> Result<(), Violation> {
        i7_own_death::check_answer(facts, number, to)
    }

    /// The join of process `number` has taken its maximum time, and a little longer.
    ///
    /// # Errors
    /// A violation, when it still joins.
    pub fn on_join_due(&self, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
        i7_own_death::check_joined(facts, number)
    }

    /// Process `number` took itself for `before`, and takes itself for `now`.
    ///
    /// # Errors
    /// A violation, when that lies back.
    pub fn on_status(
        &self,
        facts: &Facts<'_>,
        number: u32,
        was: SiloStatus,
        is: SiloStatus,
    ) -> Result<(), Violation> {
        if is >= was {
            return Ok(());
        }
        let who = facts.processes[number as usize].address;
        Err(facts.violated("I3", format!("{who} took itself for {was} and takes itself for {is}")))
    }

    /// A commit of process `number` that was sent this long ago took effect, although its end was
    /// looked up since.
    ///
    /// # Errors
    /// Always.
    pub fn on_late_commit(
        &self,
        facts: &Facts<'_>,
        number: u32,
        age: Duration,
    ) -> Result<(), Violation> {
        let who = facts.processes[number as usize].address;
        let what =
            format!("a commit of {who} took effect {} ms after it was sent", age.as_millis());
        Err(facts.violated("I5", what))
    }
}
