//! The balance of grains between silos: the shell of the balancer.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_placement::{BalanceConfig, Balancer, Transfer, even};

use super::core::SiloCore;
use crate::hosting::catalog::Catalog;
use crate::hosting::{Activation, Stays};

/// Time between two decisions.
const DECIDE_EVERY: Duration = Duration::from_secs(10);

/// A grain that was called within this time counts, and may move.
const USED_WITHIN: Duration = Duration::from_secs(600);

/// Time for which a balance does not move a grain again.
const STAYS_FOR: Duration = Duration::from_secs(600);

/// Decisions of a silo that gives grains away at once.
const ROUNDS_MAX: u32 = 8;

/// Load reports between two of these.
const REPORTS: u32 = 3;

/// Grains that move at once.
const AT_ONCE: usize = 16;

impl SiloCore {
    /// Gives grains to silos that have fewer; never ends.
    pub(super) async fn balance(&self) {
        if !self.options.balance {
            return std::future::pending().await;
        }
        let share_percent = u32::from(self.options.balance_share);
        let config = BalanceConfig { share_percent, ..BalanceConfig::default() };
        let mut balancer = Balancer::new(self.address, config);
        loop {
            self.host.wheel.sleep(DECIDE_EVERY).await;
            let loads = self.cluster.placing.load.busy_of_kind();
            if !self.calls.accepts_activations() {
                continue;
            }
            let plan = balancer.handle_loads(self.host.clock.mono(), &loads);
            for (to, count) in plan {
                self.give(to, usize::try_from(count).unwrap_or(usize::MAX)).await;
            }
        }
    }

    /// Gives grains at once to silos that have fewer, as long as that `is_wanted` and there are
    /// such silos.
    pub(super) async fn even_out(&self, is_wanted: impl Fn() -> bool) {
        for _ in 0..ROUNDS_MAX {
            let transfers = even(&self.cluster.placing.load.busy_of_kind());
            let mine = transfers.into_iter().filter(|transfer| transfer.from == self.address);
            let mut given = 0;
            for Transfer { to, grains, .. } in mine {
                if !is_wanted() {
                    return;
                }
                given += self.give(to, usize::try_from(grains).unwrap_or(usize::MAX)).await;
            }
            if given == 0 {
                return;
            }
            // The next decision needs reports that know of these.
            self.host.wheel.sleep(self.options.load_period * REPORTS).await;
        }
    }

    /// Moves `count` grains to `to`, or fewer where their placement forbids it. Returns how many.
    async fn give(&self, to: SiloAddress, count: usize) -> usize {
        let began = self.host.clock.mono();
        let (mut given, mut busy) = (0, 0);
        for shard in 0..Catalog::shard_count() {
            let movable: Vec<_> = self
                .host
                .catalog
                .shard_activations(shard)
                .into_iter()
                .filter(|activation| self.may_give(activation, to))
                .take(count - given)
                .collect();
            let (moved, stayed) = self.move_all(to, &movable).await;
            (given, busy) = (given + moved, busy + stayed);
            if given >= count || busy > count {
                break;
            }
        }
        if given > 0 {
            let took = self.host.clock.mono().saturating_since(began);
            tracing::info!(me = %self.address, %to, given, ?took, "grains move to a silo that has \
                fewer");
        }
        given
    }

    /// Moves grains that are idle now to `to`, a few at a time. Returns how many moved, and how
    /// many did not.
    pub(super) async fn move_all(
        &self,
        to: SiloAddress,
        movable: &[Arc<Activation>],
    ) -> (usize, usize) {
        let mut given = 0;
        for wave in movable.chunks(AT_ONCE) {
            let moves = wave.iter().map(|activation| {
                let activation = Arc::clone(activation);
                async move {
                    activation.settle(Some(self.host.clock.now().after(STAYS_FOR)));
                    let moved = activation.move_within(to, Duration::ZERO).await;
                    // One that refuses is not asked every time, in the place of others.
                    if matches!(moved, Err(Stays::Busy | Stays::Refused)) {
                        activation.settle(None);
                    }
                    moved
                }
            });
            let moved = futures_util::future::join_all(moves).await;
            given += moved.iter().filter(|moved| moved.is_ok()).count();
        }
        (given, movable.len() - given)
    }

    fn may_give(&self, activation: &Activation, to: SiloAddress) -> bool {
        activation.is_busy(self.host.clock.now(), USED_WITHIN) && self.may_leave(activation, to)
    }

    /// Returns true if no balance has moved a grain lately, and its placement allows `to`.
    pub(super) fn may_leave(&self, activation: &Activation, to: SiloAddress) -> bool {
        !activation.never_moves()
            && activation.is_unsettled(self.host.clock.now())
            && self.cluster.placing.may_move(activation.id(), activation.any_method(), to)
    }
}
