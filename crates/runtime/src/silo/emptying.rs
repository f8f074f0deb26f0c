//! The way of all grains away from a silo that leaves: busy ones move, idle ones end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer_core::{Duty, Instant, SiloAddress};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::core::SiloCore;
use crate::hosting::Activation;
use crate::hosting::catalog::Catalog;
use crate::turn::DeactivationReason;

/// Grains that move or end at once. They go in a wave: one more begins when one is done.
const WAVE: usize = 256;

/// A grain that was called within this time is busy.
const BUSY_FOR: Duration = Duration::from_secs(60);

/// Time for which grains of a silo that is drained are tried to move, in one round.
const ROUND: Duration = Duration::from_secs(30);

/// Pause between two rounds.
const AGAIN: Duration = Duration::from_millis(50);

/// Numbers of grains that went from a silo.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gone {
    /// Moved to other silos.
    pub(super) moved: u64,
    /// Ended here.
    pub(super) ended: u64,
}

/// Has every grain of the silo move or end, as long as that `is_wanted`. Busy grains move until the
/// moment `until`; then all that are left end, for `reason`.
pub(super) async fn empty(
    silo: &Arc<SiloCore>,
    until: Instant,
    reason: DeactivationReason,
    is_wanted: impl Fn() -> bool,
) -> Gone {
    let (mut wave, mut gone) = (FuturesUnordered::new(), Gone::default());
    let mut count = |moved: bool| if moved { gone.moved += 1 } else { gone.ended += 1 };
    'shards: for shard in 0..Catalog::shard_count() {
        for activation in silo.host.catalog.shard_activations(shard) {
            if !is_wanted() {
                break 'shards;
            }
            if wave.len() >= WAVE
                && let Some(moved) = wave.next().await
            {
                count(moved);
            }
            wave.push(send_off(silo, activation, until, reason.clone()));
        }
    }
    while let Some(moved) = wave.next().await {
        count(moved);
    }
    gone
}

/// Empties the silo, until no grain is left, it is no longer to be drained, or it ends. Adds the
/// number of grains that moved to `total`.
pub(super) async fn drain(silo: &Arc<SiloCore>, total: &AtomicU64) {
    let began = silo.host.clock.mono();
    let is_wanted = || silo.duty() == Duty::Draining && !silo.stopped.is_cancelled();
    let mut moved = 0;
    while silo.host.catalog.len() > 0 && is_wanted() {
        let until = silo.host.clock.mono() + ROUND;
        let gone = empty(silo, until, DeactivationReason::Drained, is_wanted).await;
        moved += gone.moved;
        total.fetch_add(gone.moved, Ordering::Relaxed);
        let left = silo.host.catalog.len();
        tracing::info!(
            me = %silo.address, moved = gone.moved, ended = gone.ended, left, "a silo is drained"
        );
        // Calls that were on their way may have made some.
        tokio::time::sleep(AGAIN).await;
    }
    let took = silo.host.clock.mono().saturating_since(began);
    let left = silo.host.catalog.len();
    tracing::info!(me = %silo.address, moved, left, ?took, "the drain of a silo has ended");
}

/// The silo for a grain that leaves this one: where its placement leaves the choice, the silo with
/// the fewest grains, so that silos are even after all were restarted in turn.
async fn refuge(silo: &SiloCore, activation: &Activation) -> Option<SiloAddress> {
    match silo.cluster.placing.refuge(activation.id(), activation.any_method()) {
        Some(to) => Some(to),
        None => silo.calls.place_again(activation).await.ok(),
    }
}

/// Has one grain move or end. Returns true if it moved.
async fn send_off(
    silo: &SiloCore,
    activation: Arc<Activation>,
    until: Instant,
    reason: DeactivationReason,
) -> bool {
    if !activation.is_worker()
        && activation.is_busy(silo.host.clock.now(), BUSY_FOR)
        && let Some(to) = refuge(silo, &activation).await
    {
        let patience = until.saturating_since(silo.host.clock.mono());
        match activation.move_away(to, patience).await {
            Ok(()) => return true,
            Err(why) => {
                tracing::debug!(grain = %activation.title(), %to, %why, "a grain did not move");
            }
        }
    }
    activation.close_and_wait(reason).await;
    false
}
