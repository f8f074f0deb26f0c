//! The messages between silos about membership. Opaque to the shell, which only encodes and
//! delivers them.
//!
//! Names are one letter on the wire: probes are the most frequent messages of a cluster.

use std::sync::Arc;

use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

use crate::delta::Delta;
use crate::intent::Intent;
use crate::view::View;

/// One membership message. Delivered best effort, at most once, to one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// "Are you alive?" Answered with [`Ack`](Self::Ack) by the scheduler.
    #[serde(rename = "p")]
    Probe {
        /// To be given back.
        #[serde(rename = "n")]
        seq: u64,
        /// The sender's view; the receiver pulls when it is newer than its own.
        #[serde(rename = "v")]
        version: u64,
        /// Number of probes of the receiver that the sender missed in a row: above zero the sender
        /// did not get the receiver's last answers.
        #[serde(rename = "m", default)]
        misses: u32,
        /// The stamp of the receiver's last answer, given back: proof to the receiver that it was
        /// heard then.
        #[serde(rename = "e", default)]
        echo: u64,
    },
    /// "I am."
    #[serde(rename = "a")]
    Ack {
        /// The probe's number.
        #[serde(rename = "n")]
        seq: u64,
        /// The sender's view.
        #[serde(rename = "v")]
        version: u64,
        /// The sender's own clock, meaningful only to the sender.
        #[serde(rename = "s", default)]
        stamp: u64,
    },
    /// "I have heard you": gives a stamp back.
    #[serde(rename = "e")]
    Seen {
        /// The stamp of an answer.
        #[serde(rename = "s")]
        stamp: u64,
    },
    /// "A later incarnation of your `ip:port` is being written into the table."
    #[serde(rename = "l")]
    Superseded {
        /// The successor.
        #[serde(rename = "b")]
        by: SiloAddress,
    },
    /// "I have ended": the answer to [`Superseded`](Self::Superseded). The sender's fence is
    /// closed.
    #[serde(rename = "y")]
    Yielded,
    /// "Confirm `target` no longer": a later incarnation of its `ip:port` is about to be written.
    /// Answered with [`Hushed`](Self::Hushed).
    #[serde(rename = "u")]
    Hush {
        /// Whom.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// Its successor.
        #[serde(rename = "b")]
        by: SiloAddress,
        /// The sender's own clock, to be given back.
        #[serde(rename = "s")]
        stamp: u64,
    },
    /// "I confirm `target` no longer", until a read of the table says that it lives after all.
    #[serde(rename = "z")]
    Hushed {
        /// Whom.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// The stamp of the request.
        #[serde(rename = "s")]
        stamp: u64,
    },
    /// "Probe `target` for me" (indirect probe).
    #[serde(rename = "i")]
    ProbeFor {
        /// To be given back.
        #[serde(rename = "n")]
        seq: u64,
        /// Whom to probe.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// Time to wait for its answer, in milliseconds.
        #[serde(rename = "w")]
        wait_ms: u64,
    },
    /// Outcome of an indirect probe.
    #[serde(rename = "j")]
    ProbedFor {
        /// The request's number.
        #[serde(rename = "n")]
        seq: u64,
        /// Silo that was probed.
        #[serde(rename = "t")]
        target: SiloAddress,
        /// True if it answered.
        #[serde(rename = "o")]
        answered: bool,
        /// The intermediary's own health score.
        #[serde(rename = "h", default)]
        score: u32,
    },
    /// "Please write this."
    #[serde(rename = "w")]
    Write {
        /// The sender's view.
        #[serde(rename = "v")]
        version: u64,
        /// Intents to write.
        #[serde(rename = "i")]
        intents: Vec<Intent>,
        /// Number of times that this was passed on.
        #[serde(rename = "h", default)]
        hops: u8,
    },
    /// "I have it, and will write it."
    #[serde(rename = "k")]
    Noted {
        /// The sender's view.
        #[serde(rename = "v")]
        version: u64,
    },
    /// "I cannot tell from what you have checked whether you may be Active": check again, in this
    /// view or a later one.
    #[serde(rename = "c")]
    Recheck {
        /// The sender's view.
        #[serde(rename = "v")]
        version: u64,
    },
    /// "Dial me at the address in my row": a joiner wants to know whether it can be reached there.
    /// Answered with [`Reached`](Self::Reached).
    #[serde(rename = "f")]
    Reach,
    /// "I have dialled you."
    #[serde(rename = "g")]
    Reached {
        /// True if this very silo answered.
        #[serde(rename = "t")]
        through: bool,
    },
    /// The next view, on its way down the tree that grows from the silo that committed it.
    #[serde(rename = "t")]
    Tree {
        /// Root of the tree.
        #[serde(rename = "r")]
        root: SiloAddress,
        /// Changes.
        #[serde(rename = "d")]
        delta: Arc<Delta>,
    },
    /// "Send me what I lack."
    #[serde(rename = "q")]
    Pull {
        /// The version that the sender has; 0 when it has none or mistrusts it.
        #[serde(rename = "v")]
        have: u64,
    },
    /// "A view of this version exists": pull it, if need be.
    #[serde(rename = "h")]
    Hint {
        /// The sender's version.
        #[serde(rename = "v")]
        version: u64,
    },
    /// Deltas that a puller lacks, in order.
    #[serde(rename = "d")]
    Deltas(Vec<Arc<Delta>>),
    /// A whole view.
    #[serde(rename = "s")]
    Snapshot {
        /// The sender's view.
        #[serde(rename = "v")]
        view: Arc<View>,
        /// Silos that are Dead in it and may still run turns, with the milliseconds left by the
        /// sender's clock. All other Dead can run none. The receiver did not see them die. None
        /// where the sender has no fence.
        #[serde(rename = "f", default)]
        fading: Option<Vec<(SiloAddress, u64)>>,
    },
    /// "You are dead": the answer to a silo that speaks after its death is in the table.
    #[serde(rename = "x")]
    Obituary {
        /// The sender's view, in which the receiver is Dead or no longer listed.
        #[serde(rename = "v")]
        version: u64,
    },
}
