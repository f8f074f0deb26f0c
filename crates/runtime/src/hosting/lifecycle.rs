//! How an activation begins and ends.

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_store::BoxFuture;
use emmer_wire::CallChain;

use tokio::task::JoinHandle;

use super::contain::{contain, contained};
use super::gate::{Alone, Asks, Life};
use super::turn::suspend;
use super::{
    Activation, AnyActivation, BoxTurn, Closed, Ends, Input, RunActivation, StartError, TurnEnd,
};
use crate::calls::waits::{Asker, Listing, Wait};
use crate::clock::{CoarseInstant, Due};
use crate::cluster::Shut;
use crate::cluster::directory::{Registered, Registrant};
use crate::filters::Filters;
use crate::grain::{
    ClusterClient, Ctx, DeactivationReason, Grain, Services, TurnContext, arriving,
};
use crate::log::warn_seldom;
use crate::metrics::{Ended, Outer, StateEnded, StateOperation};
use crate::reminders::Reminding;
use crate::trace;

/// One activation in so many is timed.
const TIMED_EVERY: u64 = 8;

impl<G: Grain> Activation<G> {
    /// Registers, loads and activates the grain under the lock of its first turn.
    pub(super) async fn activate(
        self: &Arc<Self>,
        lock: &mut Alone<'_, Life<G>>,
    ) -> Result<(), Closed> {
        let timed = self.number.is_multiple_of(TIMED_EVERY);
        let began = timed.then(|| self.host.clock.mono());
        // In a box, so that the turns of grains that are there already carry no room for it.
        let mut awaking: BoxFuture<'_, Result<G, Closed>> = if trace::is_traced() {
            Box::pin(trace::within(trace::activation(&self.title()), self.awake()))
        } else {
            Box::pin(self.awake())
        };
        // Without state, and where this silo answers for the grain, it is over in one poll and
        // needs no timer.
        let outcome = match std::future::poll_fn(|cx| Poll::Ready(awaking.as_mut().poll(cx))).await
        {
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
        };
        match outcome {
            Ok(grain) => {
                **lock = Life::Active(grain);
                let now = |began| self.host.clock.mono().saturating_since(began);
                self.class.lives.activated(began.map(now));
                // Its own hook may have found that the state is not the one in the store.
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
    fn panicked(&self, words: &str) -> Closed {
        Closed::Failed(format!("{} panicked while it was activated: {words}", self.title()))
    }

    /// Ends what could not be activated.
    async fn fail(
        self: &Arc<Self>,
        lock: &mut Alone<'_, Life<G>>,
        closed: Closed,
    ) -> Result<(), Closed> {
        if !matches!(closed, Closed::Elsewhere(_)) && !self.is_worker() {
            // A registration that did not complete in time is withdrawn by the directory itself.
            self.host.directory.unregister(self.registrant()).await;
        }
        **lock = Life::Gone(Box::new(closed.clone()));
        self.host.catalog.remove(&self.id, self.number);
        self.host.timers.end(self.number);
        self.host.kept.end(self.number);
        Err(closed)
    }

    async fn awake(self: &Arc<Self>) -> Result<G, Closed> {
        if !self.is_worker() {
            self.register().await?;
        }
        // Whoever drives a turn holds the silo.
        let ctx = self.ctx().ok_or(Closed::Gone)?;
        let made = contain(|| self.class.make(&ctx, &self.host.services));
        let made = made.map_err(|words| self.panicked(&words))?;
        let grain =
            made.map_err(|e| Closed::Failed(format!("{} was not made: {e}", self.title())))?;
        let mut held = Held { activation: self, grain: Some(grain) };
        if let Some(grain) = &mut held.grain {
            self.rouse(grain, &ctx).await?;
        }
        held.grain.take().ok_or(Closed::Gone)
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
            Registered::Elsewhere(silo) => Err(Closed::Elsewhere(silo)),
            Registered::Failed(why) => {
                // The cluster is changing: the call is tried again as long as it has time.
                tracing::debug!(grain = %self.title(), why, "the grain could not be registered");
                Err(Closed::Gone)
            }
        }
    }

    /// Reads the state and runs the hook, both contained apart from the grain: it must not be
    /// dropped while a panic of theirs unwinds.
    async fn rouse(&self, grain: &mut G, ctx: &Ctx) -> Result<(), Closed> {
        if G::HAS_STATE {
            let loaded = contained(grain.load()).await.map_err(|words| self.panicked(&words))?;
            loaded.map_err(|e| Closed::Failed(format!("{}: {e}", self.title())))?;
        }
        contained(grain.activate(ctx))
            .await
            .map_err(|words| self.panicked(&words))?
            .map_err(|e| Closed::Failed(format!("{} refused its activation: {e}", self.title())))
    }

    /// As the directory sees it.
    fn registrant(&self) -> Registrant<'_> {
        Registrant { grain: &self.id, number: self.number, registered: &self.registered }
    }

    /// Its context; none when its silo is gone.
    fn ctx(self: &Arc<Self>) -> Option<Ctx> {
        let activation: Arc<dyn AnyActivation> = self.clone();
        Some(Ctx::new(&activation, self.client()?))
    }

    /// The grain's type and key, for people.
    pub(crate) fn title(&self) -> String {
        format!("{}/{}", self.class.name, self.id.key())
    }

    /// Waits for the turns that go before, then runs the hook, gives the registration back and
    /// goes. Whatever the grain's own code does, the way to its end is the same.
    async fn close_down(self: Arc<Self>) {
        let (mut lock, reason) = self.gate.closing().await;
        match std::mem::replace(&mut *lock, Life::Closing) {
            gone @ Life::Gone(_) => {
                *lock = gone;
                return;
            }
            Life::Active(mut grain) => {
                tracing::debug!(grain = %self.title(), %reason, "a grain is deactivated");
                self.say_goodbye(&mut grain, reason.clone()).await;
                self.let_go(grain);
                self.class.lives.deactivated();
            }
            Life::New | Life::Closing => {}
        }
        if reason != DeactivationReason::Duplicate && !self.is_worker() {
            self.host.directory.unregister(self.registrant()).await;
        }
        let closed = match reason {
            DeactivationReason::OtherVersion(silo) => {
                self.host.departures.note(&self.id, silo, self.host.clock.now());
                Closed::Elsewhere(silo)
            }
            _ => Closed::Gone,
        };
        *lock = Life::Gone(Box::new(closed));
        self.host.catalog.remove(&self.id, self.number);
        self.host.timers.end(self.number);
        self.host.kept.end(self.number);
    }

    /// Runs the deactivate hook, within its time. It is the grain's own code: the fence holds for
    /// it as for a turn.
    async fn say_goodbye(self: &Arc<Self>, grain: &mut G, reason: DeactivationReason) {
        // The fence of a silo that is gone is shut: the hook would not be polled.
        let Some(ctx) = self.ctx() else { return };
        let limit = self.host.deactivation_timeout;
        // As a turn: a call of its own grain would wait for it.
        let context = TurnContext::hook(self.clone(), Due::after(limit));
        let hook = in_turn(context, contained(grain.deactivate(&ctx, reason)));
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
    pub(super) fn let_go(&self, grain: G) {
        if let Err(panic) = contain(|| drop(grain)) {
            warn_seldom!(grain = %self.title(), panic, "the grain panicked while it was dropped");
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
}

/// Runs a hook that no turn runs, as a turn.
async fn in_turn<T>(context: TurnContext, hook: impl Future<Output = T>) -> T {
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

/// A grain on its way to be active: whatever comes between lets it go.
struct Held<'a, G: Grain> {
    activation: &'a Activation<G>,
    grain: Option<G>,
}

impl<G: Grain> Drop for Held<'_, G> {
    fn drop(&mut self) {
        if let Some(grain) = self.grain.take() {
            self.activation.let_go(grain);
        }
    }
}

impl<G: Grain> AnyActivation for Activation<G> {
    fn id(&self) -> &GrainId {
        &self.id
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn type_name(&self) -> &'static str {
        self.class.name
    }

    fn keep_for(&self, duration: Duration) {
        self.host.kept.keep(self.number, self.host.clock.now().after(duration));
    }

    fn services(&self) -> Arc<Services> {
        self.host.services.clone()
    }

    fn client(&self) -> Option<ClusterClient> {
        self.host.client.get()
    }

    fn state_slot(&self, store: Option<&str>, name: &str) -> Option<emmer_store::state::StateSlot> {
        Some(self.host.states.of(store)?.slot(self.class.name, self.id.key(), name))
    }

    fn journal_slot(
        &self,
        store: Option<&str>,
        name: &str,
    ) -> Option<emmer_store::journal::JournalSlot> {
        Some(self.host.states.of(store)?.journal(self.class.name, self.id.key(), name))
    }

    fn count_state(&self, operation: StateOperation, ended: StateEnded) {
        self.host.metrics.states.note(operation, ended);
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }

    fn reminding(&self) -> Reminding {
        Reminding {
            service: self.host.reminders.clone(),
            grain_type: self.class.name,
            names: G::REMINDERS,
        }
    }

    fn deactivate(self: Arc<Self>, reason: DeactivationReason) {
        self.begin_closing(reason);
    }
}

impl<G: Grain> RunActivation for Activation<G> {
    fn filters(&self) -> &Filters {
        &self.class.filters
    }

    #[inline]
    fn run_instant(
        &self,
        me: &Arc<dyn RunActivation>,
        method: u32,
        ends: &mut Ends<'_>,
        due: Due,
        chain: &CallChain,
    ) -> Option<Result<TurnEnd, StartError>> {
        self.instant(me, method, ends, due, chain)
    }

    fn start(
        self: Arc<Self>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.clone().start_for(self, method, input, due, chain)
    }

    fn start_for(
        self: Arc<Self>,
        held: Arc<dyn RunActivation>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        let Some((place, entry)) = self.class.method(method) else {
            return Err(StartError::NoSuchMethod);
        };
        self.check_queue()?;
        let timed = self.class.metrics.begin(usize::from(place)).then(|| self.host.clock.stamp());
        let mut context = TurnContext::new(held, place, entry.exclusive, due, chain, timed);
        let start = entry.start;
        let started = match input {
            Input::Local(_) => start(self, input, context),
            Input::Wire(_) => {
                context.set_remote();
                let grain: Arc<dyn RunActivation> = self.clone();
                arriving(&grain, || start(self, input, context))
            }
        };
        started.map_err(StartError::BadArguments)
    }

    fn step_aside(
        self: Arc<Self>,
        to: SiloAddress,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.aside(to, due, chain)
    }

    fn poll_begins(&self, method: u16, goes_on: bool) -> Option<Outer> {
        let now = self.host.clock.now();
        if goes_on && self.host.fence.is_closed_at(now) {
            return None;
        }
        Some(self.host.metrics.watch.begin(self.class.number_of(method), now))
    }

    fn reopened(&self) -> BoxFuture<'static, ()> {
        let host = self.host.clone();
        Box::pin(async move {
            if host.fence.opened(&host.clock).await.is_err() {
                // Whoever drives the turn drops it.
                std::future::pending::<()>().await;
            }
        })
    }

    fn poll_ends(&self, outer: Outer) {
        self.host.metrics.watch.end(outer);
    }

    fn note_suspended(&self, suspended: bool) {
        self.gate.line().set_suspended(suspended);
    }

    fn note_end(&self, method: u16, ended: Ended, timed: Option<NonZeroU64>) {
        let took = timed.map(|since| self.host.clock.since_stamp(since));
        self.class.metrics.end(usize::from(method), ended, took);
    }

    fn waiting(&self) -> u32 {
        self.gate.line().waiting()
    }

    fn tick(&self, now: CoarseInstant) -> bool {
        self.gate.line().tick(now)
    }

    fn waits(&self, out: &mut Vec<Wait>) {
        self.gate.waits(out);
    }

    fn doom(&self, ticket: u64, circle: String) -> bool {
        self.gate.line().doom(ticket, circle)
    }

    fn list_turn(
        self: Arc<Self>,
        turn: u64,
        caller: u64,
        asker: Option<Arc<Asker>>,
        holds: bool,
    ) -> Listing {
        self.host.waits.clone().list(self, turn, caller, asker, holds)
    }

    fn name(&self) -> String {
        self.title()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn AnyActivation> {
        self
    }

    fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    fn is_worker(&self) -> bool {
        G::WORKERS_MAX.is_some()
    }

    fn check_queue(&self) -> Result<(), StartError> {
        let max = self.host.limits.activation_queue_max;
        if self.gate.line().waiting() < max {
            return Ok(());
        }
        self.host.metrics.refused();
        Err(StartError::Overloaded(max))
    }

    fn is_free(&self) -> bool {
        self.gate.is_free()
    }

    fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    fn idle_for(&self, now: CoarseInstant) -> Duration {
        now.idle_since(self.last_used.load(Ordering::Relaxed))
    }

    fn collect_if_idle(self: Arc<Self>, now: CoarseInstant) {
        // A turn that runs right now holds the lock: whoever is idle by the clock but busy is not
        // idle.
        let idle = self.idle_for(now) >= self.class.idle && self.gate.try_exclusive().is_some();
        if idle && !self.host.timers.keep(self.number) && !self.host.kept.keeps(self.number, now) {
            self.deactivate(DeactivationReason::Idle);
        }
    }

    fn close_and_wait(self: Arc<Self>, reason: DeactivationReason) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(task) = self.begin_closing(reason) {
                let _ = task.await;
            } else {
                // Somebody else is at it, and goes first.
                let asks = Asks::until(CoarseInstant::LAST);
                drop(self.gate.exclusive(asks, || self.host.watch_queue(self.clone())).await);
            }
        })
    }
}
