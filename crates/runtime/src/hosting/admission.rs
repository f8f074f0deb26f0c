//! Admission: how a turn comes into its grain.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use emmer_net::clock::CoarseInstant;

use super::activation::{Activation, Exclusive, Home, Life, Shared};
use super::context::TurnContext;
use super::ends::{Closed, Elsewhere, FollowPlace};
use super::gate::{Alone, Asks, Gate, Together, Watch};
use crate::cluster::Shut;
use crate::turn::Asker;

/// Queue callbacks of an activation.
pub(super) struct Watching<'a>(pub(super) &'a Arc<Activation>);

impl Watch for Watching<'_> {
    fn watch(&mut self) {
        self.0.host.watch_queue(self.0.clone());
    }

    fn asker() -> Option<Arc<Asker>> {
        TurnContext::asker()
    }

    fn doom(cycle: String) {
        TurnContext::doom(cycle);
    }
}

impl Activation {
    pub(super) fn note_use(&self, now: CoarseInstant) {
        self.last_used.store(now.as_idle_ticks(), Ordering::Relaxed);
    }

    /// Asks the fence, after all other waits of the turn, and notes that the turn has begun. None
    /// when the fence is closed and the turn must not wait for it here: it holds the grain, and
    /// user code may never poll it again.
    #[inline]
    async fn pass_fence(&self) -> Result<Option<CoarseInstant>, Closed> {
        let mut now = self.host.clock.now();
        while self.host.fence.is_closed_at(now) {
            if !TurnContext::is_driven() {
                return Ok(None);
            }
            now = self.until_unfenced(now).await?;
        }
        TurnContext::begin(now);
        Ok(Some(now))
    }

    /// Waits until the fence may be open.
    #[cold]
    async fn until_unfenced(&self, now: CoarseInstant) -> Result<CoarseInstant, Closed> {
        let opened = self.host.unfenced_until(TurnContext::deadline(now)).await;
        opened.map_err(|Shut| Closed::Gone)?;
        Ok(self.host.clock.now())
    }

    /// Asks the fence once more, after an activation: the process may have been stopped meanwhile,
    /// within one poll. The turn has begun, so that no deadline ends it here.
    async fn pass_fence_again(&self) -> Result<CoarseInstant, Closed> {
        loop {
            let now = self.host.clock.now();
            if !self.host.fence.is_closed_at(now) {
                return Ok(now);
            }
            Box::pin(self.host.fence.opened(&self.host.clock))
                .await
                .map_err(|Shut| Closed::Gone)?;
        }
    }

    #[inline]
    pub(super) async fn lock_exclusive(self: &Arc<Self>) -> Alone<'_, Home> {
        match self.gate.try_exclusive() {
            Some(lock) => lock,
            None => self.queue_exclusive().await,
        }
    }

    async fn queue_exclusive(self: &Arc<Self>) -> Alone<'_, Home> {
        if let Some(lock) = self.gate.spin(Gate::try_exclusive) {
            return lock;
        }
        let _waits = self.host.metrics.wait();
        let asks = TurnContext::asks(self.host.clock.now(), &self.id);
        self.gate.exclusive(asks, Watching(self)).await
    }

    /// The answer to a call that finds the grain gone. A call that follows it to another silo is on
    /// its way before the next one.
    #[cold]
    fn gone(self: &Arc<Self>, why: &Closed) -> Closed {
        let Closed::Elsewhere(to) = why else { return why.clone() };
        let number = self.gate.line().take_follow_place(TurnContext::is_driven());
        let place = number.map(|number| {
            let activation = self.clone();
            FollowPlace::new(move || activation.gate.line().give_follow_place_back(number))
        });
        Closed::Elsewhere(Elsewhere::behind(to.silo, place))
    }

    /// `past`: before all that wait.
    pub(super) async fn lock_shared(self: &Arc<Self>, past: bool) -> Together<'_, Home> {
        if let Some(lock) = self.gate.try_shared().or_else(|| self.gate.spin(Gate::try_shared)) {
            return lock;
        }
        let past = past
            || self.class.info.reentrant
            || (self.class.info.call_chain_reentrancy && TurnContext::comes_back(&self.id));
        if past && let Some(lock) = self.gate.try_past() {
            return lock;
        }
        let _waits = self.host.metrics.wait();
        let asks = Asks { past, ..TurnContext::asks(self.host.clock.now(), &self.id) };
        self.gate.shared(asks, Watching(self)).await
    }

    /// Waits until the turn may run alone, and activates the grain first if it is not active. The
    /// fence is asked last, after whatever the turn had to wait for, and once more after an
    /// activation: this is the only door to a grain.
    ///
    /// # Errors
    /// [`Closed`] when the grain is no longer here.
    pub fn admit_exclusive(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Exclusive<'_>, Closed>> {
        self.admit_alone(true)
    }

    /// `uses`: the turn counts as use of the grain.
    async fn admit_alone(self: &Arc<Self>, uses: bool) -> Result<Exclusive<'_>, Closed> {
        let (mut lock, mut now) = loop {
            let lock = self.lock_exclusive().await;
            if let Some(now) = self.pass_fence().await? {
                break (lock, now);
            }
            drop(lock);
            self.until_unfenced(self.host.clock.now()).await?;
        };
        if let Life::New = lock.life {
            self.activate(&mut lock).await?;
            now = self.pass_fence_again().await?;
        }
        if let Life::Gone(why) = &lock.life {
            return Err(self.gone(why));
        }
        let admitted = lock.grain()?;
        if uses {
            self.note_use(now);
        }
        Ok(admitted)
    }

    /// As [`admit_exclusive`](Self::admit_exclusive), for a tick of a timer: it counts as use of
    /// the grain if the timer is to `keep` it.
    pub(crate) fn admit_timer_exclusive(
        self: &Arc<Self>,
        keep: bool,
    ) -> impl Future<Output = Result<Exclusive<'_>, Closed>> {
        self.admit_alone(keep)
    }

    /// As [`admit_shared`](Self::admit_shared), for a tick of a timer.
    pub(crate) fn admit_timer_shared(
        self: &Arc<Self>,
        keep: bool,
    ) -> impl Future<Output = Result<Shared<'_>, Closed>> {
        self.admit_beside(false, keep)
    }

    /// Waits until the turn may run while other shared ones run, and activates the grain first if
    /// it is not active.
    ///
    /// # Errors
    /// [`Closed`] when the grain is no longer here.
    pub async fn admit_shared(self: &Arc<Self>) -> Result<Shared<'_>, Closed> {
        self.admit_beside(false, true).await
    }

    /// As [`admit_shared`](Self::admit_shared), past all that wait for their turns.
    ///
    /// # Errors
    /// [`Closed`] when the grain is no longer here.
    pub async fn admit_past(self: &Arc<Self>) -> Result<Shared<'_>, Closed> {
        self.admit_beside(true, true).await
    }

    async fn admit_beside(self: &Arc<Self>, past: bool, uses: bool) -> Result<Shared<'_>, Closed> {
        let (mut lock, mut now) = loop {
            let lock = self.lock_shared(past).await;
            if let Some(now) = self.pass_fence().await? {
                break (lock, now);
            }
            drop(lock);
            self.until_unfenced(self.host.clock.now()).await?;
        };
        if let Life::New = lock.life {
            drop(lock);
            let mut alone = self.lock_exclusive().await;
            now = self.pass_fence_again().await?;
            if let Life::New = alone.life {
                self.activate(&mut alone).await?;
                now = self.pass_fence_again().await?;
            }
            lock = alone.downgrade();
        }
        if let Life::Gone(why) = &lock.life {
            return Err(self.gone(why));
        }
        let admitted = lock.grain()?;
        if uses {
            self.note_use(now);
        }
        Ok(admitted)
    }
}
