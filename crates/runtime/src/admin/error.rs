//! The reasons why a question of an operator has no answer.

use emmer_core::SiloAddress;
use emmer_net::log::Plain;
use serde::{Deserialize, Serialize};

/// Reason why a question or an order of an operator has no answer. An order was not obeyed, except
/// where the variant says something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The gateway does not let the client ask or act, in these words.
    #[error("the gateway refuses: {}", Plain(.0))]
    Refused(String),
    /// The silo is of another version, and does not know the question.
    #[error("silo {0} does not know the question: it runs another version of Emmer")]
    Unknown(SiloAddress),
    /// No such silo is Active.
    #[error("silo {0} is no active member of the cluster")]
    NoSilo(SiloAddress),
    /// No silo hosts grains of the type.
    #[error("no silo that was asked hosts grains of the type {}", Plain(.0))]
    NoType(String),
    /// The silo answers as many questions as it answers at once.
    #[error("silo {0} answers many other questions: ask again in a moment")]
    Busy(SiloAddress),
    /// The answer is larger than a message may be.
    #[error("the answer is larger than a message may be (limits.frame_bytes_max): ask for less")]
    TooLarge,
    /// No answer came in time. An order may have been obeyed.
    #[error("no answer in time")]
    TimedOut,
    /// No gateway is connected, or the connection broke. An order may have been obeyed.
    #[error("no gateway is connected, or the connection broke")]
    NoGateway,
    /// The silo could not answer, in these words.
    #[error("{}", Plain(.0))]
    Failed(String),
    /// The answer cannot be read.
    #[error("the answer cannot be read: {}", Plain(.0))]
    Unreadable(String),
}
