//! The search for idle activations, one shard at a time: a million of them are never checked in one
//! go.

use std::time::Duration;

use emmer_net::clock::CoarseInstant;
use emmer_net::world;

use super::Host;
use super::catalog::{BUSY_FOR, Catalog};
use crate::admin;

/// Shortest pause between two looks for idle activations.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Progress of the search for idle activations.
pub(crate) struct Collection {
    per_shard: Duration,
    next_shard: usize,
    next_look: CoarseInstant,
    /// Number of activations of each shard that have rested for long.
    rested: Vec<usize>,
}

impl Collection {
    /// Deactivates idle activations; never ends: looks at each of them once in `quantum`.
    pub(crate) async fn run(host: &Host, quantum: Duration) {
        let mut collection = Self::new(quantum, host.clock.now());
        let pause = world::seldom(collection.per_shard.max(PAUSE_MIN));
        loop {
            host.wheel.sleep(pause).await;
            collection.go_on(host, host.clock.now());
            let now = host.clock.mono();
            host.ages.note(host.catalog.next_number(), now);
            host.metrics.hot.rest(now);
            host.rest_traces(now);
            if let Some(log) = admin::log() {
                log.rest();
            }
        }
    }

    fn new(quantum: Duration, now: CoarseInstant) -> Self {
        let per_shard = quantum / u32::try_from(Catalog::shard_count()).unwrap_or(1);
        Self {
            per_shard,
            next_shard: 0,
            next_look: now.after(per_shard),
            rested: vec![0; Catalog::shard_count()],
        }
    }

    /// Begins the deactivation of idle activations in the shards whose turn has come.
    fn go_on(&mut self, host: &Host, now: CoarseInstant) {
        while self.next_look <= now {
            let mut rested = 0;
            for activation in host.catalog.shard_activations(self.next_shard) {
                rested += usize::from(activation.idle_for(now) >= BUSY_FOR);
                activation.collect_if_idle(now);
            }
            if let Some(known) = self.rested.get_mut(self.next_shard) {
                *known = rested;
            }
            host.catalog.note_rested(self.rested.iter().sum());
            self.next_shard = (self.next_shard + 1) % Catalog::shard_count();
            self.next_look = self.next_look.after(self.per_shard.max(Duration::from_millis(1)));
        }
    }
}
