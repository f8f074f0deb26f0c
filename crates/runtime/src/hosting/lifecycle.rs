//! The begin and the end of an activation.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use emmer_core::SiloAddress;
use emmer_net::clock::{CoarseInstant, Due};
use emmer_net::warn_seldom;
use emmer_store::BoxFuture;
use tokio::task::JoinHandle;

use super::activation::{AnyRoom, Home, Life};
use super::admission::Watching;
use super::gate::{Alone, Asks, Purpose};
use super::turn::suspend;
use super::{Activation, Closed, TurnContext};
use crate::cluster::Shut;
use crate::cluster::directory::{Registered, Registrant};
use crate::trace;
use crate::turn::{DeactivationReason, StateError, contain, contained};

/// Number of activations of which one is timed.
const TIMED_EVERY: u64 = 8;

impl Activation {
    /// Registers, loads and activates the grain under the lock of its first turn.
    pub(super) async fn activate(
        self: &Arc<Self>,
        lock: &mut Alone<'_, Home>,
    ) -> Result<(), Closed> {
        let timed = self.number.is_multiple_of(TIMED_EVERY);
        let began = timed.then(|| self.host.clock.mono());
        let outcome = {
            let room = &mut lock.room;
            // In a box, so that the turns of grains that are there already carry no room for it.
            let mut awaking: BoxFuture<'_, Result<(), Closed>> = if trace::is_traced() {
                Box::pin(trace::within(trace::activation(&self.title()), self.awake(room)))
            } else {
                Box::pin(self.awake(room))
            };
            // Without state, and where this silo answers for the grain, it is over in one poll and
            // needs no timer.
            match std::future::poll_fn(|cx| Poll::Ready(awaking.as_mut().poll(cx))).await {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    let limit = self.host.activation_timeout;
                    let late = |_| {
                        Err(Closed::Failed(format!(
                            "{} was not activated within {limit:?}",
                            self.title()
                        )))
                    };
                    tokio::time::timeout(limit, awaking).await.unwrap_or_else(late)
                }
            }
        };
        match outcome {
            Ok(()) => {
                lock.life = Life::Active;
                let now = |began| self.host.clock.mono().saturating_since(began);
                self.class.lives.activated(began.map(now));
                // Its own hook may have found that the state in memory is not the stored one.
                if self.gate.line().is_broken() { Err(Closed::Gone) } else { Ok(()) }
            }
            Err(closed) => {
                if matches!(closed, Closed::Failed(_)) {
                    self.class.lives.failed();
                }
                Box::pin(self.fail(lock, closed)).await
            }
        }
    }

    #[cold]
    pub(super) fn panicked(&self, words: &str) -> Closed {
        Closed::Failed(format!("{} panicked while it was activated: {words}", self.title()))
    }

    /// Ends what could not be activated.
    pub(super) async fn fail(
        self: &Arc<Self>,
        lock: &mut Alone<'_, Home>,
        closed: Closed,
    ) -> Result<(), Closed> {
        if !matches!(closed, Closed::Elsewhere(_)) && !self.is_worker() {
            // A registration that did not complete in time is withdrawn by the directory itself.
            self.host.directory.unregister(self.registrant()).await;
        }
        self.go(lock, closed.clone());
        Err(closed)
    }

    async fn awake(self: &Arc<Self>, room: &mut AnyRoom) -> Result<(), Closed> {
        if !self.is_worker() {
            self.register().await?;
        }
        // The driver of a turn holds the silo.
        if self.host.is_alone() {
            return Err(Closed::Gone);
        }
        let mut held = Roused::of(self, room);
        let made = contain(|| self.class.make(self, &self.host.services, held.room));
        let made = made.map_err(|words| self.panicked(&words))?;
        made.map_err(|e| Closed::Failed(format!("{} was not made: {e}", self.title())))?;
        if self.class.info.has_state || self.class.info.has_hooks {
            self.rouse(held.room).await?;
        }
        held.is_awake = true;
        Ok(())
    }

    async fn register(&self) -> Result<(), Closed> {
        let directory = &self.host.directory;
        let registered = if trace::is_traced() {
            let registering = directory.register(self.registrant());
            Box::pin(trace::within(trace::directory("register"), registering)).await
        } else {
            directory.register(self.registrant()).await
        };
        match registered {
            Registered::Here => Ok(()),
            Registered::Elsewhere(silo) => Err(Closed::Elsewhere(silo.into())),
            Registered::Failed(why) => {
                // The cluster is changing: the call is tried again as long as it has time.
                tracing::debug!(grain = %self.title(), why, "the grain could not be registered");
                Err(Closed::Gone)
            }
        }
    }

    /// Reads the state and runs the hook, both contained apart from the grain: it must not be
    /// dropped while a panic of theirs unwinds.
    async fn rouse(self: &Arc<Self>, grain: &mut AnyRoom) -> Result<(), Closed> {
        if self.class.info.has_state {
            let loaded = contained(async { grain.load().await })
                .await
                .map_err(|words| self.panicked(&words))?;
            if let Err(error) = loaded {
                return Err(Box::pin(self.not_loaded(error)).await);
            }
        }
        if !self.class.info.has_hooks {
            return Ok(());
        }
        let _waking = self.waking();
        contained(async { grain.activate(self.clone()).await })
            .await
            .map_err(|words| self.panicked(&words))?
            .map_err(|e| Closed::Failed(format!("{} refused its activation: {e}", self.title())))
    }

    /// A state could not be read. One that a newer version of the class has stored is read by a
    /// silo that has this version.
    async fn not_loaded(&self, error: StateError) -> Closed {
        if matches!(error, StateError::NewerVersion { .. }) && !self.is_worker() {
            let (grain_type, version) = (self.id.grain_type(), self.class.data_version());
            if let Some(silo) = self.host.load.with_newer_data(grain_type, version) {
                self.host.directory.unregister(self.registrant()).await;
                return Closed::Elsewhere(silo.into());
            }
            if self.host.load.is_incomplete() {
                return Closed::Gone;
            }
        }
        Closed::Failed(format!("{}: {error}", self.title()))
    }

    /// As the directory sees it.
    pub(super) fn registrant(&self) -> Registrant<'_> {
        Registrant { grain: &self.id, number: self.registration(), registered: &self.registered }
    }

    /// The grain's type and key, for people.
    pub(crate) fn title(&self) -> String {
        self.class.title(&self.id)
    }

    /// Waits for the turns that go before, and closes.
    pub(super) async fn close_down(self: Arc<Self>) {
        if let (lock, Purpose::End(reason)) = self.gate.closing().await {
            self.close(lock, reason).await;
        }
    }

    /// Runs the hook, gives the registration back and goes. Whatever the grain's own code does, the
    /// way to its end is the same.
    pub(super) async fn close(
        self: &Arc<Self>,
        mut lock: Alone<'_, Home>,
        reason: DeactivationReason,
    ) {
        match std::mem::replace(&mut lock.life, Life::Closing) {
            gone @ Life::Gone(_) => {
                lock.life = gone;
                return;
            }
            Life::Active => {
                tracing::debug!(grain = %self.title(), %reason, "a grain is deactivated");
                self.say_goodbye(&mut lock.room, reason.clone()).await;
                self.let_go(&mut lock.room);
                self.class.lives.deactivated();
            }
            Life::New | Life::Closing => {}
        }
        if reason != DeactivationReason::Duplicate && !self.is_worker() {
            self.host.directory.unregister(self.registrant()).await;
        }
        self.go(
            &mut lock,
            match reason {
                DeactivationReason::OtherVersion(silo) => Closed::Elsewhere(silo.into()),
                _ => Closed::Gone,
            },
        );
    }

    /// Goes. A call that waits is resolved again, and follows a grain that is elsewhere now.
    pub(super) fn go(self: &Arc<Self>, lock: &mut Alone<'_, Home>, why: Closed) {
        if let Closed::Elsewhere(to) = &why {
            self.leave_door(&lock.life, to.silo);
        }
        lock.life = Life::Gone(Box::new(why));
        self.host.catalog.remove(&self.id, self.number);
        self.host.timers.end(self.number);
        self.host.kept.end(self.number);
    }

    /// Lets calls follow the grain for a moment. Those of a grain that goes to another version of
    /// its class have no order.
    fn leave_door(self: &Arc<Self>, life: &Life, to: SiloAddress) {
        let host = &self.host;
        let door = match life {
            Life::Active => Some(self.clone()),
            Life::New if host.load.serves_the_same(&to, self.id.grain_type()) => Some(self.clone()),
            Life::Closing => None,
            Life::New | Life::Gone(_) => return,
        };
        self.gate.line().set_departed();
        host.departures.note(&self.id, to, host.clock.now(), door);
    }

    /// Runs the deactivate hook, within its time. It is the grain's own code: the fence holds for
    /// it as for a turn.
    async fn say_goodbye(self: &Arc<Self>, grain: &mut AnyRoom, reason: DeactivationReason) {
        if !self.class.info.has_hooks {
            return;
        }
        // The fence of a silo that is gone is shut: the hook would not be polled.
        if self.host.is_alone() {
            return;
        }
        let limit = self.host.deactivation_timeout;
        // As a turn: a call of its own grain would wait for it.
        let context = TurnContext::hook(self.clone().into(), Due::after(limit));
        let hook =
            in_turn(context, contained(async { grain.deactivate(self.clone(), reason).await }));
        let hook = self.host.fence.guard(&self.host.clock, hook);
        match tokio::time::timeout(limit, hook).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(panic))) => {
                warn_seldom!(grain = %self.title(), panic, "the deactivate hook panicked");
            }
            Ok(Err(Shut)) => {
                tracing::debug!(grain = %self.title(), "the deactivate hook was dropped: the silo \
                    has ended");
            }
            Err(_) => {
                warn_seldom!(grain = %self.title(), ?limit, "the deactivate hook did not end in \
                    time");
            }
        }
    }

    /// Drops the grain.
    pub(super) fn let_go(&self, room: &mut AnyRoom) {
        if room.has_grain() {
            self.class.drop_grain(&self.id, &mut || room.clear());
        }
    }

    /// Ends the activation in a task of its own, unless that is done already.
    pub(super) fn begin_closing(
        self: &Arc<Self>,
        reason: DeactivationReason,
    ) -> Option<JoinHandle<()>> {
        let first = self.gate.line().take_closer_place(reason);
        first.then(|| self.host.spawner.spawn(self.clone().close_down()))
    }

    /// Waits until it is closed, deactivating it first.
    pub(crate) async fn close_and_wait(self: Arc<Self>, reason: DeactivationReason) {
        if let Some(task) = self.begin_closing(reason) {
            let _ = task.await;
        } else {
            // Another task closes it, and goes first.
            let asks = Asks::until(CoarseInstant::LAST);
            drop(self.gate.exclusive(asks, Watching(&self)).await);
        }
    }
}

/// Runs a hook that no turn runs, as a turn.
pub(super) async fn in_turn<T>(context: TurnContext, hook: impl Future<Output = T>) -> T {
    let (mut context, mut listing) = (Some(context), None);
    let mut hook = std::pin::pin!(hook);
    std::future::poll_fn(|cx| {
        let polled = TurnContext::scope(&mut context, || hook.as_mut().poll(cx));
        if polled.is_pending() {
            suspend(&mut context, None, &mut listing);
        }
        polled
    })
    .await
}

/// The time in which the hook of an activation runs.
pub(super) struct Waking<'a>(&'a AtomicBool);

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Activation {
    /// The hook of the activation begins.
    pub(super) fn waking(&self) -> Waking<'_> {
        self.waking.store(true, Ordering::Release);
        Waking(&self.waking)
    }

    /// Returns true while the hook of the activation runs.
    pub(crate) fn is_waking(&self) -> bool {
        self.waking.load(Ordering::Acquire)
    }
}

/// A grain on its way to be active: whatever comes between lets it go.
pub(super) struct Roused<'a> {
    activation: &'a Activation,
    pub(super) room: &'a mut AnyRoom,
    pub(super) is_awake: bool,
}

impl<'a> Roused<'a> {
    pub(super) fn of(activation: &'a Activation, room: &'a mut AnyRoom) -> Self {
        Self { activation, room, is_awake: false }
    }
}

impl Drop for Roused<'_> {
    fn drop(&mut self) {
        if !self.is_awake {
            self.activation.let_go(self.room);
        }
    }
}
