//! How an activation begins and ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_wire::CallChain;
use tokio::sync::RwLockWriteGuard;

use super::{Activation, AnyActivation, BoxTurn, Closed, Input, Phase, RunActivation, StartError};
use crate::clock::CoarseInstant;
use crate::directory::Registered;
use crate::grain::{ClusterClient, Ctx, DeactivationReason, Grain, TurnContext};

impl<G: Grain> Activation<G> {
    /// Registers, loads and activates the grain under the lock of its first turn.
    pub(super) async fn activate(
        self: &Arc<Self>,
        lock: &mut RwLockWriteGuard<'_, Option<G>>,
    ) -> Result<(), Closed> {
        let outcome = tokio::time::timeout(self.silo.options.activation_timeout, self.try_activate()).await;
        let failed = match outcome {
            Ok(Ok(grain)) => {
                **lock = Some(grain);
                self.phase.store(Phase::Active as u8, Ordering::Release);
                self.silo.metrics.activated();
                return Ok(());
            }
            Ok(Err(closed)) => closed,
            Err(_) => Closed::Failed(format!(
                "{} was not activated within {:?}",
                self.name(),
                self.silo.options.activation_timeout
            )),
        };
        if !matches!(failed, Closed::Elsewhere(_)) {
            // A registration that did not complete in time is withdrawn by the directory itself.
            self.silo.directory.unregister(&self.silo, &self.as_run()).await;
        }
        self.close(failed.clone());
        self.silo.catalog.remove(&self.id, self.number);
        Err(failed)
    }

    async fn try_activate(self: &Arc<Self>) -> Result<G, Closed> {
        match self.silo.directory.register(&self.silo, &self.as_run()).await {
            Registered::Here => {}
            Registered::Elsewhere(silo) => return Err(Closed::Elsewhere(silo)),
            Registered::Failed(why) => return Err(Closed::Failed(why)),
        }
        let ctx = self.ctx();
        let mut grain = G::create(&ctx);
        if G::HAS_STATE {
            grain.load().await.map_err(|e| Closed::Failed(format!("{}: {e}", self.name())))?;
        }
        grain
            .activate(&ctx)
            .await
            .map_err(|e| Closed::Failed(format!("{} refused its activation: {e}", self.name())))?;
        Ok(grain)
    }

    fn as_run(self: &Arc<Self>) -> Arc<dyn RunActivation> {
        self.clone()
    }

    fn ctx(self: &Arc<Self>) -> Ctx {
        let activation: Arc<dyn AnyActivation> = self.clone();
        Ctx::new(&activation, self.client())
    }

    fn name(&self) -> String {
        format!("{}/{}", self.class.name, self.id.key())
    }

    /// Waits for the turns that came before, then runs the hook, gives the registration back and goes.
    async fn run_deactivation(self: Arc<Self>, reason: DeactivationReason) {
        let mut lock = self.grain.write().await;
        if self.phase() == Phase::Closed {
            return;
        }
        if let Some(mut grain) = lock.take() {
            let duplicate = reason == DeactivationReason::Duplicate;
            let hook = async {
                grain.deactivate(&self.ctx(), reason).await;
            };
            let limit = self.silo.options.deactivation_timeout;
            if tokio::time::timeout(limit, hook).await.is_err() {
                tracing::warn!(grain = %self.name(), ?limit, "the deactivate hook did not end in time");
            }
            if !duplicate {
                self.silo.directory.unregister(&self.silo, &self.as_run()).await;
            }
            self.silo.metrics.deactivated();
        }
        self.close(Closed::Gone);
        self.silo.catalog.remove(&self.id, self.number);
    }

    fn begin_closing(&self) -> bool {
        !self.closing.swap(true, Ordering::AcqRel)
    }

    fn idle_for(&self, now: CoarseInstant) -> Duration {
        let since = now.as_wrapping_millis().wrapping_sub(self.last_used.load(Ordering::Relaxed));
        Duration::from_millis(u64::from(since))
    }
}

impl<G: Grain> AnyActivation for Activation<G> {
    fn id(&self) -> &GrainId {
        &self.id
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn client(&self) -> ClusterClient {
        ClusterClient::of_silo(self.silo.clone())
    }

    fn state_slot(&self, name: &str) -> Option<emmer_store::state::StateSlot> {
        Some(self.silo.states.slot(self.class.name, self.id.key(), name))
    }

    fn deactivate(self: Arc<Self>, reason: DeactivationReason) {
        if self.begin_closing() {
            let runtime = self.silo.handle.clone();
            runtime.spawn(self.run_deactivation(reason));
        }
    }
}

impl<G: Grain> RunActivation for Activation<G> {
    fn start(
        self: Arc<Self>,
        method: u32,
        input: Input<'_>,
        deadline: Option<CoarseInstant>,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        let class = self.class.clone();
        let entry = class.methods.get(&method).ok_or(StartError::NoSuchMethod)?;
        if self.waiting.load(Ordering::Relaxed) >= self.silo.options.limits.activation_queue_max {
            return Err(StartError::Overloaded);
        }
        let context = TurnContext::new(self.clone(), entry.exclusive, deadline, chain);
        (entry.start)(self, input, context).map_err(StartError::BadArguments)
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn AnyActivation> {
        self
    }

    fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    fn collect_if_idle(self: Arc<Self>, now: CoarseInstant) {
        // A turn that runs right now holds the lock: whoever is idle by the clock but busy is not idle.
        let idle = self.phase() == Phase::Active
            && self.idle_for(now) >= self.class.idle
            && self.grain.try_write().is_ok();
        if idle {
            self.deactivate(DeactivationReason::Idle);
        }
    }

    fn close_and_wait(self: Arc<Self>, reason: DeactivationReason) -> emmer_store::BoxFuture<'static, ()> {
        Box::pin(async move {
            if self.begin_closing() {
                self.run_deactivation(reason).await;
            } else {
                // Somebody else is at it: its end is when the lock is free and the phase closed.
                drop(self.grain.write().await);
            }
        })
    }
}
