//! One process: a silo's machine on a host, with its clock and its faults.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Now, SiloAddress, SiloStatus};
use emmer_membership::{Membership, TerminateReason};

use crate::grains::Shell;
use crate::net::HostSet;
use crate::time::{Clock, VirtualTime, nanos};

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It ended itself.
    Ended(TerminateReason),
    /// It was killed, or its host vanished.
    Killed,
}

/// A message that takes longer than this is late: a lost segment or a slow link holds it up.
pub const LATE: Duration = Duration::from_millis(500);

/// Order of the messages of one connection, from the sender's side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stream {
    /// When the last message sent over it arrives: the next must not overtake it.
    pub last_arrival: VirtualTime,
    /// Until when a lost segment holds everything behind it back.
    pub held_until: VirtualTime,
    /// When the last message arrives that takes longer than [`LATE`], or has since.
    pub late_until: VirtualTime,
    /// The number of the last packet sent over it, in worlds with grains.
    pub sent: u64,
    /// The number of the latest packet that came out of it: an earlier one that comes later is lost
    /// with its connection.
    pub delivered: u64,
}

/// One incarnation of a silo, running or gone.
#[derive(Debug)]
pub struct Process {
    /// Address of the silo.
    pub address: SiloAddress,
    /// Where it runs.
    pub host: u32,
    /// When it started.
    pub started: VirtualTime,
    /// Its clocks.
    pub clock: Clock,
    /// Returns true if it runs.
    pub life: Life,
    /// When it ended, if it did.
    pub ended_at: Option<VirtualTime>,
    /// True if it was told to leave or stop.
    pub leaving: bool,
    /// The protocol. None once the process has ended.
    pub machine: Option<Box<Membership>>,
    /// The directory and the grains, in worlds that have some. None once the process has ended.
    pub shell: Option<Box<Shell>>,
    /// When the membership machine was last told of bytes from each peer.
    pub heard_at: BTreeMap<u32, VirtualTime>,
    /// Time of its one valid timer event; later than everything without one.
    pub timer_at: VirtualTime,
    /// Number of times in a row that the timer fired at this same moment.
    pub timer_spins: u32,
    /// Whom it has a connection with, by process number.
    pub connections: HostSet,
    /// The processes that its machine watches, by number.
    pub watched: HostSet,
    /// The processes to which it has a lifeline.
    pub lifelines: HostSet,
    /// Processes that were Dead in a view that it installed while they ran.
    pub parted: HostSet,
    /// The order on its connections, by the receiver's number. In large clusters only connections
    /// that lost something have an entry.
    pub streams: BTreeMap<u32, Stream>,
    /// It stands still until then.
    pub paused_until: VirtualTime,
    /// Its IO blocks and runs in turns.
    pub slow: Option<Slow>,
    /// The version of the view in force.
    pub installed: u64,
    /// True if its row was in a view in force.
    pub seen_itself: bool,
    /// True if its fence is closed, as its machine last said.
    pub fence_closed: bool,
    /// True if it was ever Active by its own view: before that it hosts no grain.
    pub hosted: bool,
    /// Time of the last fault of this process or its links; None while it was always healthy.
    pub faulty_at: Option<VirtualTime>,
    /// Hosts that answered its dials.
    pub dialled: HostSet,
    /// When the table first said it is Active.
    pub active_at: Option<VirtualTime>,
    /// When the table first said it is Dead.
    pub dead_at: Option<VirtualTime>,
    /// The version of the table that first said so.
    pub death_version: Option<u64>,
    /// Since when one of its grains may be granted to another silo: from then on it may run no turn
    /// (invariant I8).
    pub granted_at: Option<VirtualTime>,
    /// The timer was found late by this much since the last health sample.
    pub stalled: Duration,
    /// Its fence has closed in the step that is going on.
    pub fence_closes: bool,
    /// Own status after the last step.
    pub status: SiloStatus,
    /// Number of commits that ended for it without an outcome.
    pub unknowns: u32,
    /// Number of requests that it has sent to the store.
    pub asked: u32,
    /// When it first missed each peer, of the misses in a row that it counted last.
    pub missed: BTreeMap<SiloAddress, VirtualTime>,
    /// Hosts that answered its probes.
    pub answered: HostSet,
    /// When the first of them did.
    pub answered_at: Option<VirtualTime>,
    /// True if a member dialled it at its address and was answered.
    pub reached: bool,
}

/// IO that blocks and runs in turns.
#[derive(Clone, Copy, Debug)]
pub struct Slow {
    /// When it began, with a block.
    pub since: VirtualTime,
    /// Time for which it blocks.
    pub block: Duration,
    /// Time for which it runs.
    pub run: Duration,
}

impl Process {
    /// A process that starts now.
    pub fn new(
        address: SiloAddress,
        host: u32,
        clock: Clock,
        started: VirtualTime,
        life: Life,
        machine: Option<Box<Membership>>,
    ) -> Self {
        Self {
            address,
            host,
            started,
            clock,
            life,
            ended_at: None,
            leaving: false,
            machine,
            shell: None,
            heard_at: BTreeMap::new(),
            timer_at: VirtualTime::MAX,
            timer_spins: 0,
            connections: HostSet::default(),
            watched: HostSet::default(),
            lifelines: HostSet::default(),
            parted: HostSet::default(),
            streams: BTreeMap::new(),
            paused_until: VirtualTime::ZERO,
            slow: None,
            installed: 0,
            seen_itself: false,
            fence_closed: false,
            hosted: false,
            faulty_at: None,
            dialled: HostSet::default(),
            active_at: None,
            dead_at: None,
            death_version: None,
            granted_at: None,
            stalled: Duration::ZERO,
            fence_closes: false,
            status: SiloStatus::Created,
            unknowns: 0,
            asked: 0,
            missed: BTreeMap::new(),
            answered: HostSet::default(),
            answered_at: None,
            reached: false,
        }
    }

    /// Returns true if it runs.
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    /// Returns true if it made a round trip with `peer`, which answered a probe or a dial of its.
    pub fn has_heard(&self, peer: u32) -> bool {
        self.answered.contains(peer) || self.dialled.contains(peer)
    }

    /// The connection to `peer` ended: the next one waits for no lost segment. Packets under way
    /// keep their order.
    pub fn renew_stream(&mut self, peer: u32) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.held_until = VirtualTime::ZERO;
        }
    }

    /// The connection to `peer` ended; packets on it never arrive.
    pub fn lose_stream(&mut self, peer: u32) {
        if let Some(stream) = self.streams.get_mut(&peer) {
            stream.delivered = stream.sent + 1;
        }
    }

    /// Times of its clocks at `at`.
    pub fn now(&self, at: VirtualTime) -> Now {
        self.clock.now(at)
    }

    /// Time at which its IO runs again; `at` itself when it does not block then.
    pub fn io_at(&self, at: VirtualTime) -> VirtualTime {
        let at = at.max(self.paused_until);
        let Some(slow) = self.slow else { return at };
        let cycle = nanos(slow.block + slow.run).max(1);
        let phase = nanos(at.since(slow.since)) % cycle;
        if phase < nanos(slow.block) { at + slow.block - Duration::from_nanos(phase) } else { at }
    }

    /// Returns true if it runs and does not stand still.
    pub fn may_run(&self, at: VirtualTime) -> bool {
        self.is_running() && self.paused_until <= at
    }

    /// Returns true if its code may start or resume a turn at `at`: it runs without a stall, hosts
    /// grains (it is Active, or leaving), and its fence is open.
    pub fn may_run_turns(&self, at: VirtualTime) -> bool {
        self.paused_until <= at && self.would_run_turns(at)
    }

    /// Like [`may_run_turns`](Self::may_run_turns) for a process that may be stalled: returns true
    /// if it would run turns at `at` before anything else reaches its machine.
    pub fn would_run_turns(&self, at: VirtualTime) -> bool {
        self.is_running()
            && self.machine.as_ref().is_some_and(|machine| {
                self.hosted
                    && !machine.is_fenced()
                    && machine.fence_deadline().is_none_or(|deadline| self.now(at).mono < deadline)
            })
    }

    /// End of the time in which it may run turns, in true time, without further confirmations;
    /// None: no end.
    pub fn turns_until(&self) -> Option<VirtualTime> {
        self.machine
            .as_ref()
            .and_then(|machine| machine.fence_deadline())
            .map(|deadline| self.clock.when(deadline))
    }
}
