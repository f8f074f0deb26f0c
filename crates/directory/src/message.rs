//! The messages between directories, in their form on the wire (serde, compact names).

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, SiloAddress};
use serde::{Deserialize, Serialize};

use crate::registration::Registration;

/// A message from one silo's directory to another's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A requester asks the owner of grains' ranges, for each by itself.
    #[serde(rename = "q")]
    Requests {
        /// The version of the requester's view.
        #[serde(rename = "v")]
        view: u64,
        /// The requests, to be served in order.
        #[serde(rename = "a")]
        asks: Vec<Ask>,
    },
    /// The answers to the requests of one message.
    #[serde(rename = "r")]
    Responses {
        /// The version of the answerer's view.
        #[serde(rename = "v")]
        view: u64,
        /// Each request's number, and its answer.
        #[serde(rename = "a")]
        answers: Vec<(u64, Answer)>,
    },
    /// A new owner asks a silo for its confirmed activations in the ranges it took over.
    #[serde(rename = "c")]
    Recover {
        /// The asker's number for this recovery.
        #[serde(rename = "i")]
        recovery: u64,
        /// The view that gave the asker the ranges: answered by who has installed it or a later
        /// one.
        #[serde(rename = "v")]
        view: u64,
        /// The ranges.
        #[serde(rename = "r")]
        ranges: Vec<RingRange>,
    },
    /// One batch of the answer to `Recover`, or of a host's report to the collector of a view.
    #[serde(rename = "p")]
    Report {
        /// The asker's number for the recovery; [`UNASKED`](Self::UNASKED) to the collector of the
        /// view `view`.
        #[serde(rename = "i")]
        recovery: u64,
        /// The version of the answerer's view when it stopped accepting older grants for the
        /// ranges.
        #[serde(rename = "v")]
        view: u64,
        /// The answerer's number for this report: batches of different reports do not mix.
        #[serde(rename = "s")]
        series: u64,
        /// The batch's place in the report, from 0.
        #[serde(rename = "b")]
        batch: u32,
        /// True if this is the report's last batch.
        #[serde(rename = "l")]
        last: bool,
        /// The answerer's confirmed activations.
        #[serde(rename = "e")]
        entries: Vec<(GrainId, u64)>,
    },
    /// The receiver of a list in batches has taken the first of them: more may follow.
    #[serde(rename = "k")]
    Credit {
        /// The sender's number for the list.
        #[serde(rename = "s")]
        series: u64,
        /// Number of batches.
        #[serde(rename = "b")]
        batches: u32,
    },
    /// One batch of collected entries for the receiver, a new owner.
    #[serde(rename = "d")]
    Collected {
        /// The view that gave the receiver the ranges.
        #[serde(rename = "v")]
        view: u64,
        /// The newest view at which a host told, or was found dead without having told.
        #[serde(rename = "n")]
        at: u64,
        /// The collector's number for this list: batches of different lists do not mix.
        #[serde(rename = "s")]
        series: u64,
        /// The batch's place in the list, from 0.
        #[serde(rename = "b")]
        batch: u32,
        /// True if this is the list's last batch.
        #[serde(rename = "l")]
        last: bool,
        /// With the last batch: the hosts of the view that died before they had told everything.
        #[serde(rename = "m")]
        missing: Vec<SiloAddress>,
        /// Confirmed activations of the view's hosts.
        #[serde(rename = "e")]
        entries: Vec<(GrainId, Registration)>,
    },
    /// A new owner waits for what the receiver should have collected.
    #[serde(rename = "w")]
    Await {
        /// The view that gave the sender the ranges.
        #[serde(rename = "v")]
        view: u64,
    },
    /// The answer to `Await`, when there is nothing to pass on.
    #[serde(rename = "z")]
    Awaited {
        /// The view of the question.
        #[serde(rename = "v")]
        view: u64,
        /// True if it will come. Else the new owner has to ask the hosts by itself.
        #[serde(rename = "k")]
        known: bool,
    },
    /// A new owner asks the living owner before it for its entries.
    #[serde(rename = "h")]
    Take {
        /// The view that gave the sender the ranges.
        #[serde(rename = "v")]
        view: u64,
    },
    /// One batch of the answer to `Take`: every registration as the range was sealed.
    #[serde(rename = "o")]
    Handed {
        /// The view that gave the receiver the ranges.
        #[serde(rename = "v")]
        view: u64,
        /// The sender's number for this list: batches of different lists do not mix.
        #[serde(rename = "s")]
        series: u64,
        /// The batch's place in the list, from 0.
        #[serde(rename = "b")]
        batch: u32,
        /// True if this is the list's last batch.
        #[serde(rename = "l")]
        last: bool,
        /// Silos in the list that are Dead and may run turns, and for how many milliseconds from
        /// now.
        #[serde(rename = "f")]
        fading: Vec<(SiloAddress, u64)>,
        /// The registrations.
        #[serde(rename = "e")]
        entries: Vec<(GrainId, Registration)>,
    },
    /// The answer to `Take` of one that cannot say: the new owner has to ask the hosts.
    #[serde(rename = "n")]
    Unheld {
        /// The view of the question.
        #[serde(rename = "v")]
        view: u64,
    },
    /// The receiver's activation lost its grain to another one.
    #[serde(rename = "x")]
    Evict {
        /// The grain.
        #[serde(rename = "g")]
        grain: GrainId,
        /// The receiver's activation.
        #[serde(rename = "a")]
        activation: u64,
    },
}

impl Message {
    /// The number of a recovery without a request.
    pub const UNASKED: u64 = 0;
}

/// One request to an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The requester's number for this attempt; comes back with the answer.
    #[serde(rename = "i")]
    pub id: u64,
    /// Operation.
    #[serde(rename = "o")]
    pub operation: Operation,
    /// Grain.
    #[serde(rename = "g")]
    pub grain: GrainId,
}

/// Operation of a request. All are idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Asks for the place of the grain.
    #[serde(rename = "l")]
    Lookup,
    /// Register the requester's activation with this number, if the grain is free.
    #[serde(rename = "r")]
    Register(u64),
    /// Remove the registration if it is exactly the requester's activation with this number.
    #[serde(rename = "u")]
    Unregister(u64),
    /// Register the requester's activation in the place of exactly the registration `instead`.
    #[serde(rename = "m")]
    Replace {
        /// The requester's activation.
        #[serde(rename = "a")]
        activation: u64,
        /// The registration that goes.
        #[serde(rename = "i")]
        instead: Registration,
        /// The view of the silo of `instead` when it sent the grain's memory: answered by an owner
        /// that has installed it or a later one. Until then that silo may have reported `instead`
        /// as confirmed.
        #[serde(rename = "v")]
        view: u64,
    },
}

impl Operation {
    /// The requester's activation that the operation registers, if it does.
    pub(crate) const fn registers(self) -> Option<u64> {
        match self {
            Self::Register(activation) | Self::Replace { activation, .. } => Some(activation),
            Self::Lookup | Self::Unregister(_) => None,
        }
    }

    /// The view that an owner must have to serve it, besides the requester's.
    pub(crate) const fn view(self) -> u64 {
        match self {
            Self::Replace { view, .. } => view,
            Self::Lookup | Self::Register(_) | Self::Unregister(_) => 0,
        }
    }

    /// The requester's activation that the operation removes, if it does.
    pub(crate) const fn removes(self) -> Option<u64> {
        match self {
            Self::Unregister(activation) => Some(activation),
            Self::Lookup | Self::Register(_) | Self::Replace { .. } => None,
        }
    }
}

/// Answer of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Lookup`.
    #[serde(rename = "f")]
    Found(Option<Registration>),
    /// To `Register` and `Replace`: granted, now or before.
    #[serde(rename = "r")]
    Registered,
    /// To `Register` and `Replace`: another activation holds the grain.
    #[serde(rename = "t")]
    Taken(Registration),
    /// To `Unregister`.
    #[serde(rename = "u")]
    Unregistered,
    /// The range is being recovered, or the requester's view is newer than the answerer's: try
    /// again soon.
    #[serde(rename = "b")]
    Busy,
    /// By the answerer's view, not older than the requester's, it does not own the grain, or the
    /// requester is no member that may host grains: try again with a newer view.
    #[serde(rename = "w")]
    WrongView,
    /// The owner has reached its limit of registrations.
    #[serde(rename = "m")]
    Full,
    /// To `Replace`: no activation holds the grain.
    #[serde(rename = "n")]
    Absent,
}
