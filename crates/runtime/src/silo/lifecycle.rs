//! A silo's join, and its stop in good order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::{Instant, SiloStatus};
use emmer_membership::TerminateReason;
use emmer_net::warn_seldom;

use super::core::SiloCore;
use super::emptying;
use super::start_error::StartError;
use super::tasks;
use crate::cluster::membership::Input;
use crate::turn::DeactivationReason;

/// Time that turns get which run while the fence is shut: each ends at its next wait.
const LAST_POLLS_MAX: Duration = emmer_membership::POLL_GRACE;

/// Interval of the log lines about the silo's waits while it leaves.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Time between two looks at them.
const LAST_POLLS_CHECK: Duration = Duration::from_millis(1);

/// Leaves the cluster: ShuttingDown, drain, Dead.
pub(super) async fn stop(silo: &Arc<SiloCore>) {
    // Before anything is refused: a load balancer may look.
    silo.leaving.store(true, Ordering::Release);
    if !silo.stopped.is_cancelled() {
        tracing::info!(me = %silo.address, "stopping in good order");
        // The row is to say Dead in the end, however long turns take: the rest of the time is for
        // that.
        let limit = silo.options.shutdown_timeout;
        let grace = silo.options.membership.shutdown_grace_period;
        let drain = limit.saturating_sub(grace).max(limit / 2);
        let drained = async {
            tokio::select! {
                biased;
                () = leave_all(silo, drain) => {}
                () = tell_progress(silo) => {}
            }
        };
        if tokio::time::timeout(drain, drained).await.is_err() {
            warn_seldom!(me = %silo.address, ?limit, "the silo did not stop in time: unfinished \
                                                      work is dropped");
        }
        let _ = tokio::time::timeout(limit - drain, finish(silo)).await;
    }
    silo.end(TerminateReason::Left);
    // The last bytes, the goodbyes among them, are written by the connections' own tasks.
    tokio::task::yield_now().await;
}

/// Leaves the cluster without waiting for grains and clients.
pub(super) async fn stop_now(silo: &Arc<SiloCore>) {
    silo.leaving.store(true, Ordering::Release);
    silo.host.catalog.close();
    let hasty = async {
        silo.cluster.membership.send_surely(Input::Stop).await;
        finish(silo).await;
    };
    if !silo.stopped.is_cancelled() {
        let _ = tokio::time::timeout(silo.options.membership.shutdown_grace_period, hasty).await;
    }
    silo.end(TerminateReason::Left);
}

/// Logs the silo's waits; never ends.
async fn tell_progress(silo: &SiloCore) {
    loop {
        silo.host.wheel.sleep(PROGRESS_EVERY).await;
        let told = silo.statistics();
        tracing::info!(
            me = %silo.address,
            activations = told.activations,
            turns_waiting = told.turns_waiting,
            calls_of_others = told.calls_serving,
            "leaving: waits for turns and calls to end"
        );
    }
}

/// The application's own tasks, then the drain, for `limit` in all.
async fn leave_all(silo: &Arc<SiloCore>, limit: Duration) {
    let ends = silo.host.clock.mono() + limit;
    tasks::leaving(silo).await;
    let left = ends.saturating_since(silo.host.clock.mono());
    // The rest of the time is for hooks.
    drain_all(silo, silo.host.clock.mono() + left / 2).await;
}

async fn drain_all(silo: &Arc<SiloCore>, moves_until: Instant) {
    silo.cluster.membership.send_surely(Input::Leave).await;
    // Others must know before grains are sent away, or they would come back.
    let grace = silo.options.membership.shutdown_grace_period.max(Duration::from_secs(1));
    let leaves = silo.cluster.status.until(|s| (*s >= SiloStatus::ShuttingDown).then_some(()));
    let _ = tokio::time::timeout(grace, leaves).await;
    // In every view, now or later, grains that are sent away do not come back.
    silo.host.catalog.close();
    silo.announce_stop();
    silo.calls.streams.leave();
    let gone = emptying::empty(silo, moves_until, DeactivationReason::ShuttingDown, || true).await;
    let (moved, ended) = (gone.moved, gone.ended);
    if moved + ended > 0 {
        tracing::info!(me = %silo.address, moved, ended, "the silo's grains are gone");
    }
    silo.drain_calls().await;
}

/// Ends every turn, then asks for the silo's own death. In this order: a silo that reads of a death
/// by its own wish takes over the grains without waiting (invariant I8).
async fn finish(silo: &Arc<SiloCore>) {
    silo.host.fence.shut();
    let last_polls = async {
        loop {
            tokio::time::sleep(LAST_POLLS_CHECK).await;
            if !silo.host.metrics.watch.is_polling() {
                return;
            }
        }
    };
    if tokio::time::timeout(LAST_POLLS_MAX, last_polls).await.is_err() {
        warn_seldom!(me = %silo.address, "a turn holds its thread beyond the end of its silo");
    }
    silo.cluster.membership.send_surely(Input::FinishLeave).await;
    silo.terminated().await;
    silo.record_the_end().await;
}

/// Joins, and waits until the silo is Active in a view.
pub(super) async fn join(core: &Arc<SiloCore>) -> Result<(), StartError> {
    core.cluster.membership.send_surely(Input::Join).await;
    let outcome = tokio::select! {
        biased;
        () = core.cluster.status.until(|s| (*s == SiloStatus::Active).then_some(())) => None,
        reason = core.terminated() => Some(reason),
    };
    match outcome {
        None => Ok(()),
        Some(reason) => Err(StartError::Join { silo: core.address, reason }),
    }
}
