//! A running silo, as its application holds it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use emmer_core::{Duty, SiloAddress, SiloStatus};
use emmer_membership::{TerminateReason, View};
use emmer_net::warn_seldom;
use emmer_store::BoxFuture;
use emmer_store::operator::DutyError;

use super::admin::Inside;
use super::core::SiloCore;
use super::lifecycle;
use super::start_error::StartError;
use super::watch::{Readiness, SiloWatch};
use crate::admin::Admin;
use crate::cluster::membership::MembershipStatistics;
use crate::grain::{GrainFactory, Interface, IntoKey};
use crate::metrics::{GrainQueue, MethodStatistics, Sample, SiloStatistics};

/// The application itself, in the history of the membership.
const APPLICATION: &str = "the application";

/// A running silo. Dropping the handle does not stop it, and the log says so; [`stop`](Self::stop)
/// stops it in good order.
///
/// ```
/// use emmer::prelude::*;
///
/// # #[grain_interface(key = String)]
/// # pub trait Cart {
/// #     async fn put(&mut self, item: String) -> usize;
/// # }
/// # #[derive(Grain)]
/// # struct CartGrain {
/// #     items: Vec<String>,
/// # }
/// # #[grain]
/// # impl Cart for CartGrain {
/// #     async fn put(&mut self, item: String) -> usize {
/// #         self.items.push(item);
/// #         self.items.len()
/// #     }
/// # }
/// # #[tokio::main]
/// # async fn main() -> emmer::Result<()> {
/// let silo = Silo::builder()
///     .store("memory://")
///     .host::<dyn Cart, CartGrain>()
///     .start()
///     .await?;
/// let cart = silo.grains().grain::<dyn Cart>("ann");
/// assert_eq!(cart.put("tea".to_owned()).await?, 1);
/// silo.stop().await?;
/// # Ok(())
/// # }
/// ```
///
/// A process that is nothing but a silo waits with
/// [`run_until_stopped`](Self::run_until_stopped), or is `emmer::run` in the first place.
pub struct Silo {
    core: Arc<SiloCore>,
    gateway: Option<SocketAddr>,
}

impl Silo {
    pub(super) const fn of(core: Arc<SiloCore>, gateway: Option<SocketAddr>) -> Self {
        Self { core, gateway }
    }

    /// The silo's identity.
    pub fn address(&self) -> SiloAddress {
        self.core.address
    }

    /// Address where clients connect to, if this silo is a gateway.
    pub const fn gateway(&self) -> Option<SocketAddr> {
        self.gateway
    }

    /// A reference to the grain `key` behind interface `I`, as in
    /// `silo.grain::<dyn Counter>("home")`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        self.grains().grain::<I>(key)
    }

    /// The way to call grains from this process.
    pub fn grains(&self) -> GrainFactory {
        GrainFactory::of_silo(self.core.calls.clone())
    }

    /// The membership view in force.
    pub fn view(&self) -> Arc<View> {
        self.core.cluster.view()
    }

    /// Waits for the next view after `version`, or returns the one in force when it is newer
    /// already.
    pub async fn view_after(&self, version: u64) -> Arc<View> {
        self.core.cluster.views.until(|view| (view.version() > version).then(|| view.clone())).await
    }

    /// The silo's counters.
    pub fn statistics(&self) -> SiloStatistics {
        self.core.statistics()
    }

    /// Counts of each method of each grain type that this silo hosts, by type and method: calls,
    /// errors, and the durations of a sample of them.
    pub fn method_statistics(&self) -> Vec<MethodStatistics> {
        self.core.host.method_statistics()
    }

    /// The grains for which most calls wait on this silo, most first, at most `n`. Looks at every
    /// activation: not for every second.
    pub fn longest_queues(&self, n: usize) -> Vec<GrainQueue> {
        self.core.host.longest_queues(n)
    }

    /// Counts of the membership protocol on this silo; at most half a second old.
    pub fn membership_statistics(&self) -> MembershipStatistics {
        let mut told = self.core.cluster.membership_statistics.lock().clone();
        told.fence_shut = self.core.fence_shut.lock().told(self.core.host.clock.mono()).time;
        told
    }

    /// Every metric of [`METRICS`](crate::metrics::METRICS) as it is now. This adds up the counts
    /// of all threads: call it every few seconds, not more often.
    pub fn metrics(&self) -> Vec<Sample> {
        self.core.metrics()
    }

    /// Questions about the cluster, and orders to it, from the silo's own process.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::new(Inside(Arc::downgrade(&self.core))))
    }

    /// Tells if the silo is ready for work.
    pub fn readiness(&self) -> Readiness {
        self.core.readiness()
    }

    /// Watches the silo without holding it.
    pub fn watch(&self) -> SiloWatch {
        SiloWatch::new(&self.core)
    }

    /// Returns true if the silo has ended, by [`stop`](Self::stop) or because the cluster declared
    /// it dead.
    pub fn has_ended(&self) -> bool {
        self.core.ended.borrow().is_some()
    }

    /// Waits until the silo has ended, by [`stop`](Self::stop) or because the cluster declared it
    /// dead.
    ///
    /// **A process that hosts a silo has to await this**, or
    /// [`run_until_stopped`](Self::run_until_stopped), or set a
    /// [`hook`](crate::SiloBuilder::on_terminate). A silo that the cluster has declared dead ends,
    /// because its grains run elsewhere by then. Its process stays, and every call that it makes
    /// fails with `ShuttingDown`.
    pub async fn terminated(&self) -> TerminateReason {
        self.core.terminated_for_program().await
    }

    /// The amount of work that an operator wants the silo to have, as the view in force shows it.
    pub fn duty(&self) -> Duty {
        self.core.duty()
    }

    /// Has the silo take no new grains: placement prefers other silos, and grains do not move here.
    /// It serves those that it has, and stays a member. The duty stands in the membership table,
    /// so every silo sees it; a call that comes here meanwhile is passed on to another silo.
    ///
    /// # Errors
    /// The table could not be written: the silo keeps its duty. It leaves, or has ended.
    pub async fn cordon(&self) -> Result<(), DutyError> {
        self.have_duty(Duty::Cordoned).await
    }

    /// Ends what [`cordon`](Self::cordon) or [`drain`](Self::drain) began.
    ///
    /// # Errors
    /// As [`cordon`](Self::cordon).
    pub async fn uncordon(&self) -> Result<(), DutyError> {
        self.have_duty(Duty::Full).await
    }

    async fn have_duty(&self, duty: Duty) -> Result<(), DutyError> {
        let core = self.core.clone();
        self.on_its_runtime(async move {
            core.change_duty(duty, None, APPLICATION).await.map(|_changed| ())
        })
        .await
    }

    /// Empties the silo: [cordons](Self::cordon) it, has its busy grains move to other silos and
    /// ends the others. Calls are served meanwhile, and the silo stays a member. Returns the number
    /// of grains that moved, when none is left, or after [`uncordon`](Self::uncordon).
    ///
    /// # Errors
    /// As [`cordon`](Self::cordon).
    pub async fn drain(&self) -> Result<u64, DutyError> {
        let core = self.core.clone();
        self.on_its_runtime(async move { core.drain(APPLICATION).await }).await
    }

    /// Runs `act` on the runtime of the silo, in a box that is made here.
    fn on_its_runtime<T: Send + 'static>(
        &self,
        act: impl Future<Output = Result<T, DutyError>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, DutyError>> {
        Box::pin(async move {
            let done = self.core.calls.spawner.run(act).await;
            // Without its runtime the silo has ended.
            done.unwrap_or(Err(DutyError::NotActive(self.core.address, SiloStatus::Dead)))
        })
    }

    /// Leaves the cluster in good order: no new activations, running turns end, busy grains move to
    /// other silos and the others end, the row says Dead. `shutdown_timeout` bounds it; unfinished
    /// work is then dropped. It runs on the silo's runtime, and to its end even if its future is
    /// dropped.
    ///
    /// # Errors
    /// Never in this version; a `Result` so that a caller can end `main` with it.
    pub async fn stop(&self) -> Result<(), StartError> {
        self.boxed_stop(false).await;
        Ok(())
    }

    /// Leaves the cluster in haste: the table says Stopping, then Dead; running turns and hooks are
    /// not waited for.
    pub async fn stop_now(&self) {
        self.boxed_stop(true).await;
    }

    /// In a box that is made here: compiled in this crate, and not once for each program.
    fn boxed_stop(&self, in_haste: bool) -> BoxFuture<'_, ()> {
        let core = self.core.clone();
        Box::pin(self.apart(async move {
            if in_haste { lifecycle::stop_now(&core).await } else { lifecycle::stop(&core).await }
        }))
    }

    /// Ends the silo in a task of its own: half an end would leave it neither serving nor gone.
    /// Without its runtime it has ended already.
    async fn apart(&self, end: impl Future<Output = ()> + Send + 'static) {
        if self.core.calls.spawner.spawn(end).await.is_err() {
            self.core.end(TerminateReason::Left);
        }
    }

    /// Ends the silo at once, as a crash would: it writes nothing and tells no peer. For tests of
    /// failure.
    pub fn abort(&self) {
        self.core.crash();
    }
}

impl Drop for Silo {
    fn drop(&mut self) {
        if !self.core.stopped.is_cancelled() {
            warn_seldom!(me = %self.core.address, "dropped without `stop`: the silo runs on as \
                long as its runtime");
        }
    }
}

impl std::fmt::Debug for Silo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Silo").field("address", &self.core.address).finish_non_exhaustive()
    }
}
