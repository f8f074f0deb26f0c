//! Turns that wait: their deadlines, and which grains most wait for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use emmer_core::GrainId;
use emmer_net::clock::CoarseInstant;
use emmer_net::{warn_seldom, world};

use super::catalog::Catalog;
use super::{Activation, Host};
use crate::metrics::{BLOCKING_MIN, GrainQueue, Watched, watch};

/// Time after which a held thread no longer keeps timers and sockets from another.
const HELD_MIN: Duration = Duration::from_millis(20);

impl Host {
    /// Looks at the queue of an activation at every tick, until no turn waits there.
    pub(super) fn watch_queue(&self, activation: Arc<Activation>) {
        self.queues.lock().push(activation);
        self.ticking.begin();
        if self.stopped.is_cancelled() {
            // The last tick may have been before this one was in the list.
            self.wake_queues();
        }
    }

    /// Returns true if no turn waits for a tick.
    pub(crate) fn is_calm(&self) -> bool {
        self.queues.lock().is_empty()
    }

    /// Wakes all waiting turns after the last tick of a silo that has ended; they see it. Nothing
    /// is kept: activations hold the silo.
    pub(crate) fn wake_queues(&self) {
        let waiting = std::mem::take(&mut *self.queues.lock());
        for activation in waiting {
            activation.tick(CoarseInstant::LAST);
        }
    }

    /// A tick of the clock for the turns that wait: those whose deadline has passed are woken.
    pub(crate) fn tick_queues(&self, now: CoarseInstant) {
        let mut watched = std::mem::take(&mut *self.queues.lock());
        watched.retain(|activation| activation.tick(now));
        if !watched.is_empty() {
            self.queues.lock().append(&mut watched);
        }
    }

    /// Reports turns that hold their threads, until the silo ends.
    pub(crate) async fn watch_threads(self: &Arc<Self>) {
        let silo: Weak<Self> = Arc::downgrade(self);
        if !self.clock.is_virtual() {
            match watch(silo) {
                Ok(()) => return std::future::pending().await,
                Err(error) => warn_seldom!(%error, "no thread looks for turns that hold theirs"),
            }
        }
        loop {
            self.wheel.sleep(world::seldom(BLOCKING_MIN)).await;
            self.look_at_threads();
        }
    }

    /// Returns the longest time for which a thread is held.
    fn look_at_threads(&self) -> Duration {
        let now = self.clock.now();
        self.metrics.watch.look(now, |method, held| self.tell_blocking(method, held))
    }

    fn tell_blocking(&self, method: u32, held: Duration) {
        let method =
            self.classes.values().find_map(|class| class.method_name(method)).unwrap_or("?");
        warn_seldom!(
            method,
            ?held,
            "a turn holds its thread without an await: other tasks of the thread wait for it"
        );
    }

    /// The `n` grains of this silo for which most calls wait, most first. Looks at every
    /// activation.
    pub(crate) fn longest_queues(&self, n: usize) -> Vec<GrainQueue> {
        let mut found = Vec::new();
        for shard in 0..Catalog::shard_count() {
            found.extend(self.catalog.shard_waiting(shard));
            found.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            found.truncate(n);
        }
        let named = |(waiting, id): (u32, GrainId)| {
            let class = self.classes.get(&id.grain_type());
            let grain_type = class.map_or_else(String::new, |class| class.name().to_owned());
            GrainQueue { grain_type, key: id.key().clone(), waiting }
        };
        found.into_iter().map(named).collect()
    }
}

impl Watched for Host {
    fn look(&self) -> bool {
        if self.stopped.is_cancelled() {
            return false;
        }
        if self.look_at_threads() >= HELD_MIN {
            // A task from outside wakes a free thread of the runtime, which then looks at timers
            // and sockets instead of the held thread.
            self.spawner.spawn(async {});
        }
        true
    }
}
