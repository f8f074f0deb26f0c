//! The world of one test.

use std::sync::Arc;
use std::time::Duration;

use emmer_runtime::SiloBuilder;
use emmer_virtual::Net;

use crate::alone::Alone;
use crate::calls::Calls;
use crate::cluster::Cluster;
use crate::store::TestStore;

/// World of a test: a network, a store, and time that passes as fast as the processor allows.
pub struct World {
    pub(crate) inner: emmer_virtual::World,
    pub(crate) store: TestStore,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let inner = emmer_virtual::World::new(seed);
        Self { inner, store: TestStore::new() }
    }

    /// The seed that everything in this world grows from.
    pub const fn seed(&self) -> u64 {
        self.inner.seed()
    }

    /// The network: how bytes travel, and who reaches whom.
    pub const fn net(&self) -> &Arc<Net> {
        self.inner.net()
    }

    /// The store that all silos and clients share.
    pub const fn store(&self) -> &TestStore {
        &self.store
    }

    /// The calls of one method, from all callers: `world.calls("account.deposit")`. The grain type
    /// is the one of `#[grain_interface]`; alone it stands for all its methods.
    pub fn calls(&self, name: &str) -> Calls {
        Calls { all: self.inner.calls().clone(), name: name.to_owned() }
    }

    /// Lets time pass. Whatever is due meanwhile happens.
    pub async fn advance(&self, by: Duration) {
        tokio::time::sleep(by).await;
    }

    /// Time since the world began.
    pub fn elapsed(&self) -> Duration {
        self.inner.elapsed()
    }

    /// Any 64 bits, by the world's own chance: for a test that does something at random.
    pub fn bits(&self) -> u64 {
        self.inner.bits()
    }

    /// A number over everything that happened so far, in order. The same seed always gives the same
    /// one.
    pub fn trace(&self) -> u64 {
        self.inner.trace()
    }

    /// Number of events that this number stands for.
    pub fn events(&self) -> u64 {
        self.inner.events()
    }

    /// Starts a cluster of `silos` silos, one after the other. `describe` says what each of them
    /// hosts and how it is configured, as in production; store, addresses and gateway are the
    /// world's.
    ///
    /// # Panics
    /// A silo does not start.
    pub async fn cluster(
        &self,
        silos: usize,
        describe: impl Fn(SiloBuilder) -> SiloBuilder + 'static,
    ) -> Cluster {
        let mut cluster = Cluster::new(self, Box::new(describe));
        for _ in 0..silos {
            cluster.add().await;
        }
        cluster
    }

    /// Begins the description of one grain that is tested alone: a silo of its own, a given state,
    /// and fakes for the grains that it calls.
    pub fn alone(&self, describe: impl Fn(SiloBuilder) -> SiloBuilder + 'static) -> Alone<'_> {
        Alone::new(self, Box::new(describe))
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed()).finish_non_exhaustive()
    }
}
