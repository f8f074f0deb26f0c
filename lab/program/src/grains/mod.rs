//! The grains that silos host for measurements. None keeps state in the store.
//!
//! | module | subject |
//! |---|---|
//! | this one | a grain whose turns say where and when they ran, to the caller and in the silo's log |
//! | [`quick`] | a grain whose turns are over at once |
//! | [`slow`] | a grain that activates slowly and whose turns sleep |
//! | [`turn_log`] | what ran when, piece by piece |

pub(crate) mod quick;
pub(crate) mod slow;
pub(crate) mod turn_log;

use emmer::{Ctx, Grain, grain, grain_interface};
use emmer_cli::process::now_us;
use serde::{Deserialize, Serialize};

/// Target of the log lines of each turn, at level debug: `--log emmer_probe=debug`.
const LOG_TARGET: &str = "emmer_probe";

/// One turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// The silo it ran on, `ip:port:epoch`.
    pub(crate) silo: String,
    /// When it began, in microseconds since 1970 by that host's clock.
    pub(crate) at_us: u64,
    /// Number of turns this activation has run.
    pub(crate) turns: u64,
}

/// Something to call.
#[grain_interface(key = u64, grain = "emmer-probe")]
pub(crate) trait Probe {
    /// Counts a turn.
    async fn turn(&mut self) -> Turn;
}

/// See the module.
#[derive(Grain)]
pub(crate) struct ProbeGrain {
    #[context]
    ctx: Ctx,
    turns: u64,
}

#[grain]
impl Probe for ProbeGrain {
    async fn turn(&mut self) -> Turn {
        self.turns += 1;
        let at_us = now_us();
        tracing::debug!(target: LOG_TARGET, at_us, key = %self.ctx.key(), "turn");
        let silo = self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default();
        Turn { silo, at_us, turns: self.turns }
    }
}
