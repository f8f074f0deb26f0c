//! The way of calls to a grain that has moved. Calls that this silo sends one way go where the
//! calls before them went, until all of those are where the grain is.
//!
//! 1. An answer says that the grain is elsewhere. One-way calls wait in their grain's lane.
//! 2. A question goes to where they went, behind them. The silo that the grain left passes it on
//!    behind the calls that follow the grain.
//! 3. The silo that has the grain answers. The calls of the lane go there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_store::BoxFuture;
use tokio::sync::oneshot;

use super::Calls;
use super::lanes::{Handed, Kind};
use crate::turn::let_go;

/// The longest wait for the answer. Then later calls may overtake those that it waits for.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Time after which a call whose turn has come has lost its place before later calls.
const TURN_MAX: Duration = Duration::from_millis(50);

impl Calls {
    /// Takes up where an answer said that the grain is.
    pub(crate) fn learn(self: &Arc<Self>, grain: &GrainId, at: SiloAddress) {
        let locations = &self.cluster.locations;
        match locations.get(grain) {
            Some(known) if known == at => {}
            // Its calls find it here, or its old activation.
            _ if self.host.catalog.get(grain).is_some() => {}
            _ if self.host.departures.door(grain, None).is_some() => {}
            Some(_) if self.sends_one_way.load(Ordering::Relaxed) => self.change_way(grain, at),
            _ => locations.set(grain, at),
        }
    }

    /// The silo `from` has passed a one-way call on to `to`.
    pub(crate) fn told_moved(
        self: &Arc<Self>,
        from: SiloAddress,
        grain: &GrainId,
        to: SiloAddress,
    ) {
        if self.cluster.locations.get(grain) == Some(from) {
            self.learn(grain, to);
        }
    }

    /// Lets one-way calls wait until the earlier ones are where the grain is. It is done later if
    /// too much is under way.
    #[cold]
    fn change_way(self: &Arc<Self>, grain: &GrainId, at: SiloAddress) {
        let Ok(permit) = self.one_way_permit() else { return };
        let (silo, id) = (self.clone(), grain.clone());
        let job = move |handed: Handed| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                silo.flush(&id, at).await;
                silo.lanes.has_changed(&id);
                drop((handed, permit));
            })
        };
        let max = self.host.limits.activation_queue_max;
        if let Err(job) = self.lanes.push(grain, (Kind::Change, Box::new(job)), max, &self.spawner)
        {
            let_go(job);
        }
    }

    /// Waits for an awaited call's turn in the lane of its grain, if the grain moves. The calls
    /// behind it wait until the value is dropped, or for a moment.
    pub(super) async fn turn_in_lane(&self, grain: &GrainId) -> Option<Handed> {
        if !self.lanes.is_strict(grain) && !self.host.moves.followers.has(grain) {
            return None;
        }
        let (turn, mine) = oneshot::channel();
        let job = move |handed: Handed| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let (sent, over) = oneshot::channel();
                if turn.send(sent).is_ok() {
                    // Its caller may keep the call without polling it.
                    let _ = tokio::time::timeout(TURN_MAX, over).await;
                }
                drop(handed);
            })
        };
        let max = self.host.limits.activation_queue_max;
        if let Err(job) = self.lanes.push(grain, (Kind::Strict, Box::new(job)), max, &self.spawner)
        {
            let_go(job);
        }
        mine.await.ok()
    }

    /// Asks where the grain is, behind all calls on the way, and remembers it.
    async fn flush(&self, grain: &GrainId, at: SiloAddress) {
        let locations = &self.cluster.locations;
        // A call that saw no lane is sent before the question, or sees the change.
        locations.changes().note();
        let at = match locations.get(grain) {
            Some(via) if via != at && via != self.address => {
                let mut asked = self.host.moves.flush(self.address, via, grain.clone());
                let answer = tokio::time::timeout(FLUSH_MAX, asked.answer()).await;
                answer.ok().flatten().unwrap_or(at)
            }
            _ => at,
        };
        if at == self.address {
            locations.forget_grain(grain);
        } else {
            locations.set(grain, at);
        }
    }
}
