//! The repartition, which brings grains together that call each other: its shell.

use emmer_core::{GrainId, SiloAddress};
use emmer_placement::repartition::{Effect, Ground};
use emmer_wire::channel;

use super::core::SiloCore;
use crate::cluster::moves::MoveMessage;

impl SiloCore {
    /// Moves grains to the silos with which they talk; never ends.
    pub(super) async fn repartition(&self) {
        let Some(talks) = &self.calls.talks else {
            return std::future::pending().await;
        };
        loop {
            talks.until_due().await;
            for effect in talks.step(self) {
                match effect {
                    Effect::Send { to, message } => {
                        let message = MoveMessage::Exchange(message);
                        self.cluster.peers.post(to, channel::MOVES, &message);
                    }
                    Effect::Move { to, grains } => self.bring(to, &grains).await,
                }
            }
        }
    }

    /// Moves these grains to `to`, as far as their placement and their turns allow.
    async fn bring(&self, to: SiloAddress, grains: &[GrainId]) {
        let began = self.host.clock.mono();
        let here = grains.iter().filter_map(|grain| self.host.catalog.get(grain));
        let movable: Vec<_> = here
            .map(|held| held.activation().clone())
            .filter(|activation| self.may_leave(activation, to))
            .collect();
        let (given, _) = self.move_all(to, &movable).await;
        if given > 0 {
            let took = self.host.clock.mono().saturating_since(began);
            tracing::info!(me = %self.address, %to, given, ?took, "grains move to the silo that \
                they talk with");
        }
    }
}

impl Ground for SiloCore {
    fn loads(&self) -> Vec<(SiloAddress, u32)> {
        if !self.calls.accepts_activations() || !self.duty().takes_grains() {
            return Vec::new();
        }
        self.cluster.placing.load.busy_of_kind()
    }

    fn may_go(&self, grain: &GrainId, to: SiloAddress) -> bool {
        let here = self.host.catalog.get(grain);
        here.is_some_and(|held| self.may_leave(held.activation(), to))
    }
}
