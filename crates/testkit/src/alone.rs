//! One grain tested alone.

use bytes::BytesMut;
use emmer_core::{ClusterId, Timestamp};
use emmer_runtime::grain::{Interface, IntoKey};
use emmer_runtime::{Client, STATE_FORMAT, SiloOptions};
use emmer_store::SystemStore;
use emmer_store::state::StateTable;
use serde::Serialize;

use crate::cluster::{Cluster, Describe};
use crate::world::World;

/// A grain that is to be tested alone.
pub struct Alone<'a> {
    world: &'a World,
    describe: Describe,
    states: StateTable,
}

impl<'a> Alone<'a> {
    pub(crate) fn new(world: &'a World, describe: Describe) -> Self {
        let service: ClusterId = SiloOptions::default().service().clone();
        let store: std::sync::Arc<dyn SystemStore> = std::sync::Arc::new(world.store.clone());
        Self { world, describe, states: StateTable::new(store, service) }
    }

    /// Stores a state before the first activation reads it: `#[state("name")]` of the grain `key`
    /// of interface `I`.
    ///
    /// # Panics
    /// The value cannot be encoded, or the state is there already.
    #[expect(clippy::panic, reason = "that is how a test fails")]
    pub async fn given<I: Interface + ?Sized>(
        self,
        key: impl IntoKey<I::Key>,
        name: &str,
        value: &impl Serialize,
    ) -> Self {
        let key = key.into_key();
        let mut payload = BytesMut::new();
        if let Err(e) = emmer_wire::codec::encode_into(&mut payload, value) {
            panic!("the state {name:?} cannot be encoded: {e}");
        }
        if let Err(e) = self.states.ensure().await {
            panic!("the state {name:?} cannot be stored: {e}");
        }
        let slot = self.states.slot(I::GRAIN_TYPE, &key, name);
        let written = slot.write(
            None,
            STATE_FORMAT,
            payload.to_vec().into(),
            Timestamp::from_millis(emmer_virtual::WALL_START_MS),
        );
        match written.await {
            Ok(emmer_store::state::WriteOutcome::Written(_)) => self,
            other => panic!("the state {name:?} cannot be stored: {other:?}"),
        }
    }

    /// Starts the silo, and returns a client of it. The silo lives as long as the cluster that
    /// comes with it.
    pub async fn start(self) -> (Cluster, Client) {
        let mut cluster = Cluster::new(self.world, self.describe);
        cluster.add().await;
        let client = cluster.client().await;
        (cluster, client)
    }
}

impl std::fmt::Debug for Alone<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}
