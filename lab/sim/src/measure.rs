//! Counts and times of a run, for reports. No behaviour depends on it.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus};
use emmer_membership::{Event, Message, TerminateReason};

use crate::process::Process;
use crate::time::VirtualTime;

/// A death as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Silo that died.
    pub silo: SiloAddress,
    /// Its process's number, if the world knows it.
    pub process: Option<u32>,
    /// When the commit succeeded.
    pub at: VirtualTime,
    /// True if the process ran at that moment: a wrong death, unless it was leaving.
    pub was_running: bool,
    /// True if it had been told to leave.
    pub was_leaving: bool,
}

/// Counts and times of a run.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// Every death, in order.
    pub deaths: Vec<Death>,
    /// When each silo became Active in the table, in order.
    pub activations: Vec<(VirtualTime, SiloAddress)>,
    /// When each version was committed; version `n` at `n - 1`.
    pub committed_at: Vec<VirtualTime>,
    /// Time after its commit at which each view was installed, in microseconds, one for each silo
    /// and view.
    pub view_lags_us: Vec<u32>,
    /// True if to keep `view_lags_us`.
    pub keep_view_lags: bool,
    /// Messages handed to the network.
    pub messages_sent: u64,
    /// Of those, probes and requests for indirect ones.
    pub probes_sent: u64,
    /// Messages that were lost for good.
    pub messages_lost: u64,
    /// Messages that arrived.
    pub messages_delivered: u64,
    /// Their estimated bytes, when the scenario asks for them.
    pub bytes_delivered: u64,
    /// Bytes of views and requests for them, without probes.
    pub bytes_of_views: u64,
    /// Connections dialled.
    pub dials: u64,
    /// Times a fence closed.
    pub fences: u64,
    /// Processes that ended because they were declared dead, or found themselves gone.
    pub ended_as_dead: u64,
    /// Processes that gave their join up.
    pub joins_given_up: u64,
    /// Missed probes.
    pub probes_missed: u64,
    /// Votes that reached the table.
    pub votes: u64,
    /// Commits evaluated again.
    pub commits_lost: u64,
    /// Calls of grains whose turn ended.
    pub calls_done: u64,
    /// Calls of grains that failed.
    pub calls_failed: u64,
    /// For each process whose grains could be granted to others while it ran: the time after that
    /// in which it could run turns.
    pub overruns: BTreeMap<u32, Overrun>,
}

/// Time for which a silo could run turns after its grains could be granted to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overrun {
    /// Since when its grains could be granted.
    pub granted_at: VirtualTime,
    /// Time until which it can run turns, at the last check; later than everything: no end is in
    /// sight.
    open_until: Option<VirtualTime>,
    /// The longest finished one.
    longest: Duration,
}

impl Overrun {
    pub(crate) const fn new(granted_at: VirtualTime) -> Self {
        Self { granted_at, open_until: None, longest: Duration::ZERO }
    }

    /// The silo can run turns until `open_until`, or cannot, by a check at `now`.
    pub(crate) fn look(&mut self, now: VirtualTime, open_until: Option<VirtualTime>) {
        self.longest = self.until(now);
        self.open_until = open_until;
    }

    /// Its length so far, at `now`.
    pub fn until(&self, now: VirtualTime) -> Duration {
        self.open_until
            .map_or(self.longest, |open| self.longest.max(open.min(now).since(self.granted_at)))
    }
}

impl Measures {
    pub(crate) const fn note(&mut self, event: &Event) {
        match event {
            Event::ProbeMissed { .. } => self.probes_missed += 1,
            Event::VoteCast { .. } => self.votes += 1,
            Event::CommitLost => self.commits_lost += 1,
            _ => {}
        }
    }

    pub(crate) const fn sent(&mut self, _from: u32, message: &Message) {
        self.messages_sent += 1;
        if is_probe(message) {
            self.probes_sent += 1;
        }
    }

    pub(crate) fn delivered(&mut self, _to: u32, message: &Message, measure: bool) {
        self.messages_delivered += 1;
        if measure {
            let bytes = crate::bytes::estimate(message);
            self.bytes_delivered += bytes;
            if !is_probing(message) {
                self.bytes_of_views += bytes;
            }
        }
    }

    pub(crate) fn installed(&mut self, at: VirtualTime, version: u64) {
        if self.keep_view_lags {
            let index = usize::try_from(version).ok().and_then(|v| v.checked_sub(1));
            if let Some(committed) = index.and_then(|i| self.committed_at.get(i)) {
                let lag = at.since(*committed).as_micros();
                self.view_lags_us.push(u32::try_from(lag).unwrap_or(u32::MAX));
            }
        }
    }

    /// A commit changed a row to `after`, whose process is `process`.
    pub(crate) fn changed(
        &mut self,
        at: VirtualTime,
        before: Option<SiloStatus>,
        after: &SiloEntry,
        process: Option<(u32, &Process)>,
    ) {
        if before == Some(after.status) {
            return;
        }
        if after.status == SiloStatus::Active {
            self.activations.push((at, after.address));
        }
        if after.status == SiloStatus::Dead {
            self.deaths.push(Death {
                silo: after.address,
                process: process.map(|(number, _)| number),
                at,
                was_running: process.is_some_and(|(_, p)| p.is_running()),
                was_leaving: process.is_some_and(|(_, p)| p.leaving),
            });
        }
    }

    pub(crate) const fn terminated(&mut self, reason: TerminateReason) {
        match reason {
            TerminateReason::DeclaredDead
            | TerminateReason::RowMissing
            | TerminateReason::TableWentBack
            | TerminateReason::TableReplaced
            | TerminateReason::TableGone
            | TerminateReason::Superseded(_) => {
                self.ended_as_dead += 1;
            }
            TerminateReason::JoinTimedOut => self.joins_given_up += 1,
            TerminateReason::Left => {}
        }
    }

    /// Number of silos that were declared dead while they ran and were not leaving.
    pub fn wrong_deaths(&self) -> usize {
        self.deaths.iter().filter(|death| death.was_running && !death.was_leaving).count()
    }

    /// When `silo` was declared dead.
    pub fn death_of(&self, silo: &SiloAddress) -> Option<VirtualTime> {
        self.deaths.iter().find(|death| death.silo == *silo).map(|death| death.at)
    }
}

/// Probes and their answers.
const fn is_probing(message: &Message) -> bool {
    matches!(
        message,
        Message::Probe { .. }
            | Message::Ack { .. }
            | Message::ProbeFor { .. }
            | Message::ProbedFor { .. }
    )
}

const fn is_probe(message: &Message) -> bool {
    matches!(message, Message::Probe { .. } | Message::ProbeFor { .. })
}

/// A duration in seconds with milliseconds, for tables.
pub fn seconds(d: Duration) -> String {
    format!("{:.3}", d.as_secs_f64())
}
