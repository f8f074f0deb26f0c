//! The envelope of questions and answers, on the channel `ADMIN`.

use bytes::Bytes;
use emmer_core::SiloAddress;
use serde::{Deserialize, Serialize};

use super::error::AdminError;

/// A message between a client and a gateway, or between two silos.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AdminMessage {
    /// A question. Its number is the asker's.
    #[serde(rename = "q")]
    Ask {
        #[serde(rename = "i")]
        id: u64,
        /// The silo that shall answer; none for the gateway itself.
        #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
        to: Option<SiloAddress>,
        /// The person or program that asks, as its gateway knows it. Believed of silos only.
        #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
        who: Option<String>,
        #[serde(rename = "b")]
        question: Bytes,
    },
    /// The answer to a question.
    #[serde(rename = "a")]
    Answer {
        #[serde(rename = "i")]
        id: u64,
        #[serde(rename = "r")]
        reply: Reply,
    },
}

/// An answer, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reply {
    #[serde(rename = "o")]
    Answer(Bytes),
    #[serde(rename = "e")]
    Error(AdminError),
}

impl From<Result<Bytes, AdminError>> for Reply {
    fn from(answer: Result<Bytes, AdminError>) -> Self {
        match answer {
            Ok(answer) => Self::Answer(answer),
            Err(error) => Self::Error(error),
        }
    }
}

impl From<Reply> for Result<Bytes, AdminError> {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Answer(answer) => Ok(answer),
            Reply::Error(error) => Err(error),
        }
    }
}
