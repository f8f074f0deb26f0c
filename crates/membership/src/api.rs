//! The inputs and outputs of the membership state machine, as plain data.
//!
//! The shell (tokio in `emmer-runtime`, the virtual world in `emmer-sim`) executes [`Effect`]s and
//! reports their results; it decides nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, TableVersion, Timestamp};

use crate::message::Message;
use crate::snapshot::TableSnapshot;
use crate::view::View;

/// Ties a table request to its outcome. Outcomes of forgotten requests are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Ties a dial to its outcome. Outcomes of forgotten dials are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

/// Request of the machine to the membership table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableRequest {
    /// Every row and the version row, as one snapshot.
    ReadAll,
    /// The version row alone.
    ReadVersion,
    /// At most `rows` silo rows of any status, without a snapshot. If the store keeps an order,
    /// they are the next ones from the place of `near` on. All rows when there are no more.
    ReadSome {
        /// From where on.
        near: SiloAddress,
        /// The most silo rows wanted.
        rows: u32,
    },
    /// In one atomic commit: set the version row's number to `base.number + 1` if it still has
    /// `base.etag` (if it does not exist, for an empty etag); write `rows` whole except the
    /// IAmAliveTime of existing rows; delete `deletes`. At most
    /// [`MEMBERSHIP_ROWS_PER_COMMIT_MAX`](emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX) rows
    /// together.
    Commit {
        /// The version this commit replaces.
        base: TableVersion,
        /// Rows to insert or replace.
        rows: Vec<SiloEntry>,
        /// Rows to delete.
        deletes: Vec<SiloAddress>,
    },
    /// Set IAmAliveTime of one row, touching no etag and no version.
    Touch {
        /// Whose row.
        silo: SiloAddress,
        /// The time to write.
        at: Timestamp,
    },
}

/// Outcome of a [`TableRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableOutcome {
    /// Answer to `ReadAll`.
    Snapshot(TableSnapshot),
    /// Answer to `ReadVersion`.
    Version(TableVersion),
    /// Answer to `ReadSome`.
    Sample(Vec<SiloEntry>),
    /// The commit happened; the version row is now this.
    Committed(TableVersion),
    /// The commit did not happen: the version row is no longer `base`.
    Conflict,
    /// The commit may or may not have happened.
    Unknown,
    /// The touch happened.
    Touched,
    /// The touch found no row.
    RowMissing,
    /// The store did not answer; nothing happened.
    Unavailable,
    /// The store answered, and has no such table; nothing happened.
    TableMissing,
}

impl TableOutcome {
    /// Returns true if the table has answered.
    pub(crate) const fn is_answer(&self) -> bool {
        !matches!(self, Self::Unknown | Self::Unavailable | Self::TableMissing)
    }
}

/// Outcome of a dial: a fresh connection with a handshake, closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DialOutcome {
    /// That very incarnation answered the handshake.
    Answered,
    /// Another incarnation on the same `ip:port` answered.
    OtherEpoch(SiloAddress),
    /// The host refused the connection: no process listens there.
    Refused,
    /// As [`Refused`](Self::Refused), and the IP address is one of this machine: its own kernel
    /// says so, and no firewall.
    Vacant,
    /// Nothing came back in time, or the connection broke half way.
    NoAnswer,
}

/// Something the shell noticed about the connection to a peer. A hint, never a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionEvent {
    /// Application bytes arrived from the peer.
    Heard,
    /// The peer's kernel ended an established connection in good order (FIN), and the peer's
    /// process had said no goodbye: the process closed it or died. Only that host can end a
    /// connection in this way.
    Closed,
    /// An established connection broke (RST, or no acknowledgement for too long). Firewalls and
    /// foreign hosts can do that too.
    Broken,
    /// The peer said goodbye: it is stopping in good order.
    Goodbye,
}

/// Measurements of this process since the last sample: inputs of the self-health score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthSample {
    /// Time that a task waited for a worker thread.
    pub scheduler_delay: Duration,
    /// Time by which a timer fired late.
    pub timer_delay: Duration,
}

/// Why a silo must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TerminateReason {
    /// The table, or a view from a peer, says this silo is Dead.
    DeclaredDead,
    /// This silo's row vanished from a newer view: it was declared dead and cleaned up.
    RowMissing,
    /// A later incarnation runs on the same `ip:port`.
    Superseded(SiloAddress),
    /// The membership table went back: it has lost a commit that this silo had seen committed.
    TableWentBack,
    /// Another membership table has replaced the table that this silo joined.
    TableReplaced,
    /// The store answers, and the membership table is gone.
    TableGone,
    /// The join did not succeed within `max_join_attempt_time`.
    JoinTimedOut,
    /// The leave is complete: Dead was written by the silo itself, or could not be written in time.
    Left,
}

impl std::fmt::Display for TerminateReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::DeclaredDead => f.write_str("this silo was declared dead"),
            Self::RowMissing => f.write_str("this silo's row vanished from the membership table"),
            Self::Superseded(by) => write!(f, "a later incarnation runs on the same address: {by}"),
            Self::TableWentBack => {
                f.write_str("the membership table has lost a commit that it had acknowledged")
            }
            Self::TableReplaced => f.write_str(
                "another membership table is in the place of the one that this silo had joined",
            ),
            Self::TableGone => f.write_str("the membership table is gone from the store"),
            Self::JoinTimedOut => {
                f.write_str("the join did not succeed within max_join_attempt_time")
            }
            Self::Left => f.write_str("the silo has left the cluster"),
        }
    }
}

/// Effect that the machine wants, polled in order with `poll_effect`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the table; report with `handle_table`.
    Table {
        /// To be given back with the outcome.
        op: OpId,
        /// Request.
        request: TableRequest,
    },
    /// Send over the silos' own connection to `to` (connecting if need be). Best effort; never
    /// report.
    Send {
        /// The receiver: this incarnation only.
        to: SiloAddress,
        /// Message.
        message: Message,
    },
    /// Open a fresh connection to `to`, shake hands, close it; report with `handle_dial` within
    /// `timeout`.
    Dial {
        /// To be given back with the outcome.
        dial: DialId,
        /// Whom.
        to: SiloAddress,
        /// After this, `NoAnswer`.
        timeout: Duration,
    },
    /// Replace the connection to this silo by a new one, on both sides: its process answers dials,
    /// and the old connection is silent. Never report.
    Renew(SiloAddress),
    /// Keep one more connection to each of these silos, and to no others: a lifeline, on which
    /// neither side sends anything after the handshake. Make it again when it ends, at growing
    /// intervals. Report its end with `handle_connection`. A kernel resets a connection with unread
    /// bytes when it ends a process. A lifeline has none, so its end comes in good order
    /// ([`ConnectionEvent::Closed`]).
    Watch(BTreeSet<SiloAddress>),
    /// A new view is in force from now on. Versions strictly grow.
    Install(Arc<View>),
    /// Start no new turns (true), or start them again (false): the silence fence (improvement 9).
    Fence(bool),
    /// Something for logs and metrics.
    Event(Event),
    /// End this silo; nothing else follows. `Left` ends it in good order, the others at once.
    Terminate(TerminateReason),
}

/// Event for logs and metrics. No behaviour depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A probe of `peer` was missed; `in_a_row` counts them.
    ProbeMissed {
        /// Silo that did not answer.
        peer: SiloAddress,
        /// Number of misses in a row.
        in_a_row: u32,
    },
    /// This silo's vote against `peer` is in the table.
    VoteCast {
        /// The suspect.
        peer: SiloAddress,
    },
    /// This silo wrote that `peer` is Dead.
    DeclaredDead {
        /// The victim.
        peer: SiloAddress,
    },
    /// A commit lost the compare-and-set and will be evaluated again.
    CommitLost,
    /// The store did not answer.
    StoreUnavailable,
    /// The store answers, and the membership table is not there.
    TableMissing,
    /// The row of this silo was deleted by hand. It is written again.
    OwnRowDeleted,
    /// The store answers again.
    StoreBack,
    /// `from` has dialled this silo, which joins, at the address that it advertises, and did not
    /// get through.
    NotReached {
        /// Silo that dialled.
        from: SiloAddress,
    },
    /// The join waits for `peer`, to which there is no connectivity.
    JoinWaitsFor {
        /// The unreachable member.
        peer: SiloAddress,
    },
}
