//! What silos say to one another about membership. Opaque to the shell, which only encodes and delivers it.

use serde::{Deserialize, Serialize};

use emmer_core::SiloAddress;

/// One membership message. Delivered best effort, at most once, to one incarnation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// "Are you alive?"
    #[serde(rename = "p")]
    Probe {
        /// To be given back.
        #[serde(rename = "n")]
        seq: u64,
        /// The sender's view.
        #[serde(rename = "v")]
        version: u64,
    },
    /// "Indirectly, please": probe `target` for me.
    #[serde(rename = "i")]
    ProbeFor {
        /// To be given back.
        #[serde(rename = "n")]
        seq: u64,
        /// Whom to probe.
        #[serde(rename = "t")]
        target: SiloAddress,
    },
}
