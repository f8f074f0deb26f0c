//! The order of one-way calls while their grain is located: one lane for each such grain. A call
//! leaves its lane when it is in the grain's queue or was sent. Until then the calls behind it
//! wait.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmer_core::GrainId;
use emmer_net::world;
use emmer_store::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Held by the call that is first in its lane: dropped when the next one may go.
pub(crate) type Handed = oneshot::Sender<()>;

/// A call that waits in a lane.
pub(crate) type Job = Box<dyn FnOnce(Handed) -> BoxFuture<'static, ()> + Send>;

/// The lanes of one silo. The permits of their calls bound their number.
#[derive(Default)]
pub(crate) struct Lanes {
    open: AtomicUsize,
    by_grain: Mutex<BTreeMap<GrainId, Lane>>,
}

struct Lane {
    jobs: VecDeque<Job>,
    /// True if awaited calls wait in it too, until it is closed.
    strict: bool,
    /// True while one of its jobs changes the way of calls to the grain.
    changes: bool,
}

/// Kind of what waits in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call whose grain is located. Awaited calls do not wait for it.
    Call,
    /// A call to a grain in memory that moves, or has moved.
    Strict,
    /// A job that changes the way of calls to the grain. A lane has one of them at a time.
    Change,
}

impl Lanes {
    /// Returns true if calls to this grain wait in a lane: later ones go behind them.
    #[inline]
    pub(crate) fn has(&self, grain: &GrainId) -> bool {
        self.open.load(Ordering::Acquire) > 0 && self.by_grain.lock().contains_key(grain)
    }

    /// Returns true if awaited calls to this grain wait in its lane too.
    pub(crate) fn is_strict(&self, grain: &GrainId) -> bool {
        self.open.load(Ordering::Acquire) > 0
            && self.by_grain.lock().get(grain).is_some_and(|lane| lane.strict)
    }

    /// Puts a call at the end of its grain's lane. Opens the lane if there is none.
    ///
    /// # Errors
    /// The call, if `max` calls wait in the lane.
    pub(crate) fn push(
        self: &Arc<Self>,
        grain: &GrainId,
        (kind, job): (Kind, Job),
        max: u32,
        spawner: &world::Spawner,
    ) -> Result<(), Job> {
        let (strict, changes) = (kind != Kind::Call, kind == Kind::Change);
        let mut by_grain = self.by_grain.lock();
        if let Some(lane) = by_grain.get_mut(grain) {
            let has_room = u32::try_from(lane.jobs.len()).is_ok_and(|waiting| waiting < max);
            if !has_room || (changes && lane.changes) {
                return Err(job);
            }
            lane.strict |= strict;
            lane.changes |= changes;
            lane.jobs.push_back(job);
            return Ok(());
        }
        let lane = Lane { jobs: VecDeque::from([job]), strict, changes };
        by_grain.insert(grain.clone(), lane);
        self.open.fetch_add(1, Ordering::Release);
        drop(by_grain);
        spawner.spawn(self.clone().drive(grain.clone(), spawner.clone()));
        Ok(())
    }

    /// The way of calls to the grain has changed.
    pub(crate) fn has_changed(&self, grain: &GrainId) {
        if let Some(lane) = self.by_grain.lock().get_mut(grain) {
            lane.changes = false;
        }
    }

    async fn drive(self: Arc<Self>, grain: GrainId, spawner: world::Spawner) {
        while let Some(job) = self.next(&grain) {
            let (handed, over) = oneshot::channel();
            spawner.spawn(job(handed));
            // No value is ever sent: the sender is dropped.
            let _ = over.await;
        }
    }

    /// The next call of a lane; the lane is closed when there is none.
    fn next(&self, grain: &GrainId) -> Option<Job> {
        let mut by_grain = self.by_grain.lock();
        let job = by_grain.get_mut(grain)?.jobs.pop_front();
        if job.is_none() {
            by_grain.remove(grain);
            self.open.fetch_sub(1, Ordering::Release);
        }
        job
    }
}
