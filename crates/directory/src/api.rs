//! The inputs and outputs of the directory state machine, as plain data.
//!
//! The shell (tokio in `emmer-runtime`, a virtual world in tests) executes [`Effect`]s; it decides
//! nothing.

use std::time::Duration;

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, SiloAddress};
use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::registration::Registration;

/// Given by the shell with a command, given back with its outcome. Must not be in use already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Ties an [`Effect::ReportLocal`] to the call of `handle_local_report` that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportId(pub u64);

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answer to `lookup`: where the grain is registered, if it is.
    Found(Option<Registration>),
    /// Answer to `register` and `replace`: this activation is the grain's one activation from now
    /// on.
    Registered,
    /// Answer to `register` and `replace`: another activation holds the grain. If the shell of this
    /// very silo does not have that activation, it calls `unregister` for it and tries again.
    Taken(Registration),
    /// Answer to `replace`: the registration to be replaced is gone, and no other one is there.
    Absent,
    /// Answer to `unregister`: the registration is not there.
    Unregistered,
    /// Nothing is known. A failed `register` or `replace` leaves nothing behind: the machine
    /// withdraws it, and the activation's number must not be registered again.
    Failed(FailReason),
}

/// Why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FailReason {
    /// No silo of the view is Active, so no silo owns any range.
    #[error("no silo is Active, so no silo owns the directory")]
    NoActiveSilo,
    /// This silo is Dead, or has left the view.
    #[error("this silo is no longer a member of the cluster")]
    Closed,
    /// [`Config::pending_max`] commands wait already.
    #[error("too many directory operations are waiting")]
    TooManyPending,
    /// The owner holds [`Config::entries_max`] registrations already.
    #[error("the directory partition is full")]
    Full,
    /// No owner answered within [`Config::op_timeout`].
    #[error("the directory did not answer in time")]
    TimedOut,
}

/// Effect that the machine wants, polled in order with `poll_effect`.
///
/// Order matters: a [`Complete`](Self::Complete) must have taken effect in the shell's table of
/// confirmed activations before a later [`ReportLocal`](Self::ReportLocal) reads that table.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send over the silos' own connection to `to`, in order. Best effort: a loss is made good by a
    /// retry.
    Send {
        /// The receiver: this incarnation only.
        to: SiloAddress,
        /// Message.
        message: Message,
    },
    /// The command of `token` is done.
    Complete {
        /// As given with the command.
        token: Token,
        /// Outcome.
        outcome: Outcome,
    },
    /// Collect every *confirmed* local activation whose grain's stable hash lies in one of
    /// `ranges`, and call `handle_local_report`. Confirmed: its `register` or `replace` came
    /// back `Registered`, its `unregister` was not called, it was not evicted, and its grain's
    /// memory was not sent to another silo.
    ReportLocal {
        /// To be given back with the report.
        report: ReportId,
        /// Ranges to look in.
        ranges: Vec<RingRange>,
    },
    /// Deactivate this local activation: a recovery found a second activation of the grain, and
    /// that one stays. Nothing is to be unregistered.
    Evict {
        /// The grain.
        grain: GrainId,
        /// The local activation that goes.
        activation: u64,
    },
}

/// The directory's parameters. `points_per_silo` must be the same on every silo of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Points of each silo on the ring: more points, more even ranges. Default 256: of a hundred
    /// silos the one with the largest part owns a sixth more than the mean on average, and at most
    /// a quarter more (32 points: half as much again).
    pub points_per_silo: u32,
    /// First delay before an operation that was answered `Busy` is sent again; doubles up to
    /// [`retry_max`](Self::retry_max). Default 5 ms.
    pub retry_min: Duration,
    /// The longest delay between two attempts after `Busy`. Default 100 ms.
    pub retry_max: Duration,
    /// Time that an operation or a recovery question waits for an answer before it is sent again
    /// (the message was lost with its connection). Default 1 s.
    pub resend_interval: Duration,
    /// Time that the collector of a dead owner's knowledge waits for hosts that should tell by
    /// themselves, before it asks the others. Default 200 ms.
    pub collect_patience: Duration,
    /// After this a lookup or a registration is `Failed(TimedOut)`. Default 15 s.
    pub op_timeout: Duration,
    /// After this the machine stops trying to remove a registration. A registration left behind is
    /// removed when the silo named in it is asked for the activation (see `docs/directory.md`).
    /// Default 60 s.
    pub unregister_timeout: Duration,
    /// The most commands that wait for an answer; one more is `Failed(TooManyPending)`. Default
    /// 100,000.
    pub pending_max: usize,
    /// Maximum registrations that this silo accepts as owner. One more is `Failed(Full)` at its
    /// requester. Registrations of a recovery are always taken. Default 20,000,000.
    pub entries_max: usize,
    /// The most recovery questions of other silos kept until the view they name arrives, and the
    /// most being answered. One more is dropped; the asker asks again. Default 1,024.
    pub questions_max: usize,
    /// The most registrations in one report message; at the longest keys 4,096 are about 4 MiB. A
    /// message with requests has as many at most, and never more than 256. Default 4,096.
    pub report_batch_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            points_per_silo: 256,
            retry_min: Duration::from_millis(5),
            retry_max: Duration::from_millis(100),
            resend_interval: Duration::from_secs(1),
            collect_patience: Duration::from_millis(200),
            op_timeout: Duration::from_secs(15),
            unregister_timeout: Duration::from_secs(60),
            pending_max: 100_000,
            entries_max: 20_000_000,
            questions_max: 1024,
            report_batch_max: 4096,
        }
    }
}
