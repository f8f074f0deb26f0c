//! What a silo hosts. An activation is one grain in the memory of one silo.
//!
//! No task and no channel belongs to it. A lock around the grain is its queue: turns are admitted
//! in the order they came, `&mut self` alone, `&self` together. The first turn admitted activates
//! the grain (registers it in the directory, reads its state, runs its hook); whoever finds it
//! closed resolves the call again.
//!
//! Its life is one value under that lock, [`Life`]. A turn that panics, or finds that the state in
//! memory is not the one in the store, breaks it: from then on nobody but the closer goes in, and
//! whoever waits comes to a fresh activation.

mod aside;
pub(crate) mod catalog;
mod class;
mod collection;
mod contain;
mod departures;
mod filtered;
mod gate;
mod host;
mod instant;
mod interleaved;
mod lifecycle;
mod queues;
mod seat;
mod slot;
mod states;
mod turn;
mod workers;

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_wire::CallChain;

use self::gate::{Alone, Gate, Life, Together};
pub(crate) use self::gate::{Asks, Who};
pub use self::gate::{Exclusive, Shared};

pub use self::interleaved::{Interleaved, Left};

pub use self::instant::{Instant, InstantEnd, InstantTurn, poll_now};

pub(crate) use self::collection::{Collection, Kept};
pub(crate) use self::contain::{contain, contained, let_go};
pub(crate) use self::departures::Departures;
pub(crate) use self::host::{Classes, Host};
pub(crate) use self::states::States;
pub(crate) use self::workers::Given;

pub(crate) use self::class::{AnyClass, Class, Constructor, Lack, MethodCollision};
pub(crate) use self::slot::{Ends, empty};
pub use self::slot::{Input, LocalSlot, Sink, Slot};
pub(crate) use self::turn::{Begun, poll_begun, run_to_end, standing, until_begun};
pub use self::turn::{BoxTurn, Progress, Turn, TurnEnd, TurnOutcome, boxed};
use crate::calls::waits::{Asker, Listing, Wait};
use crate::clock::{CoarseInstant, Due};
use crate::cluster::Shut;
use crate::filters::Filters;
use crate::grain::{
    ClusterClient, DeactivationReason, Failure, Grain, Rejection, Services, TurnContext,
};
use crate::metrics::{Ended, Outer, StateEnded, StateOperation};
use crate::reminders::Reminding;

/// Starts one method of a class: the arguments out of `Input`, the turn around the method.
pub type StartMethod<G> = fn(Arc<Activation<G>>, Input<'_>, TurnContext) -> Result<BoxTurn, String>;

/// One method of a class, as the generated code lists it.
pub struct MethodEntry<G: Grain> {
    /// The method's number.
    pub id: u32,
    /// The numbers of the same method for callers of other versions of its interface.
    pub also: &'static [u32],
    /// `Interface.method`, for people.
    pub name: &'static str,
    /// Whether it takes `&mut self`.
    pub exclusive: bool,
    /// Clients may not call it.
    pub internal: bool,
    /// Runs it in place, if it cannot suspend.
    pub instant: Instant<G>,
    /// Starts it.
    pub start: StartMethod<G>,
}

impl<G: Grain> MethodEntry<G> {
    /// All its numbers.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        [self.id].into_iter().chain(self.also.iter().copied())
    }

    /// Whether this is one of its numbers.
    fn has(&self, number: u32) -> bool {
        self.numbers().any(|own| own == number)
    }

    /// The same entry again.
    const fn same(&self) -> Self {
        Self {
            id: self.id,
            also: self.also,
            name: self.name,
            exclusive: self.exclusive,
            internal: self.internal,
            instant: self.instant,
            start: self.start,
        }
    }
}

/// The grain is not here any more; the call must be resolved again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// It was deactivated.
    Gone,
    /// The directory names another silo.
    Elsewhere(SiloAddress),
    /// Its activation failed with these words; the call is rejected with them.
    Failed(String),
}

/// Why a turn could not even be started. Nothing was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// The class has no such method.
    NoSuchMethod,
    /// The arguments do not decode.
    BadArguments(String),
    /// Too many calls wait already: this many, `activation_queue_max`.
    Overloaded(u32),
}

impl StartError {
    /// The failure its caller sees.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::NoSuchMethod => {
                let why = "the grain's class has no such method".to_owned();
                Failure::rejected(Rejection::NoSuchMethod(why))
            }
            Self::BadArguments(detail) => Failure::codec(false, detail),
            Self::Overloaded(max) => Failure::overloaded(format!(
                "{max} calls wait for this grain (activation_queue_max)"
            )),
        }
    }
}

/// One grain of class `G` in memory.
pub struct Activation<G: Grain> {
    id: GrainId,
    /// Unique among the activations of this silo; with the silo's address, unique for ever.
    number: u64,
    class: Arc<Class<G>>,
    host: Arc<Host>,
    gate: Gate<Life<G>>,
    /// When the last turn was admitted, in idle ticks since the silo's start.
    last_used: AtomicU32,
    /// Whether the directory holds a registration for it. Written only under the directory's lock.
    registered: AtomicBool,
}

impl<G: Grain> Activation<G> {
    fn new(host: Arc<Host>, class: Arc<Class<G>>, id: GrainId, number: u64) -> Self {
        let last_used = AtomicU32::new(host.clock.now().as_idle_ticks());
        Self {
            id,
            number,
            class,
            host,
            gate: Gate::new(Life::New),
            last_used,
            registered: AtomicBool::new(false),
        }
    }

    /// The part of the silo that it lives in.
    pub(crate) const fn host(&self) -> &Arc<Host> {
        &self.host
    }

    fn note_use(&self, now: CoarseInstant) {
        self.last_used.store(now.as_idle_ticks(), Ordering::Relaxed);
    }

    /// Asks the fence, after whatever the turn had to wait for, and notes that the turn has begun.
    /// None when the fence is closed and the turn must not wait for it here: it has the grain, and
    /// the user's code that polls it may never do so again.
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
    async fn lock_exclusive(self: &Arc<Self>) -> Alone<'_, Life<G>> {
        match self.gate.try_exclusive() {
            Some(lock) => lock,
            None => self.queue_exclusive().await,
        }
    }

    async fn queue_exclusive(self: &Arc<Self>) -> Alone<'_, Life<G>> {
        if let Some(lock) = self.gate.spin(Gate::try_exclusive) {
            return lock;
        }
        let _waits = self.host.metrics.wait();
        let asks = TurnContext::asks(self.host.clock.now(), &self.id);
        self.gate.exclusive(asks, || self.host.watch_queue(self.clone())).await
    }

    /// `past`: whoever waits.
    async fn lock_shared(self: &Arc<Self>, past: bool) -> Together<'_, Life<G>> {
        if let Some(lock) = self.gate.try_shared().or_else(|| self.gate.spin(Gate::try_shared)) {
            return lock;
        }
        let past =
            past || G::REENTRANT || (G::CALL_CHAIN_REENTRANCY && TurnContext::comes_back(&self.id));
        if past && let Some(lock) = self.gate.try_past() {
            return lock;
        }
        let _waits = self.host.metrics.wait();
        let asks = Asks { past, ..TurnContext::asks(self.host.clock.now(), &self.id) };
        self.gate.shared(asks, || self.host.watch_queue(self.clone())).await
    }

    /// Waits until the turn may run alone, activating the grain first if nobody has. The fence is
    /// asked last, after whatever the turn had to wait for, and once more after an activation: this
    /// is the only door to a grain.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub fn admit_exclusive(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Exclusive<'_, G>, Closed>> {
        self.admit_alone(true)
    }

    /// `uses`: the turn counts as use of the grain.
    async fn admit_alone(self: &Arc<Self>, uses: bool) -> Result<Exclusive<'_, G>, Closed> {
        let (mut lock, mut now) = loop {
            let lock = self.lock_exclusive().await;
            if let Some(now) = self.pass_fence().await? {
                break (lock, now);
            }
            drop(lock);
            self.until_unfenced(self.host.clock.now()).await?;
        };
        if let Life::New = *lock {
            self.activate(&mut lock).await?;
            now = self.pass_fence_again().await?;
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
    ) -> impl Future<Output = Result<Exclusive<'_, G>, Closed>> {
        self.admit_alone(keep)
    }

    /// As [`admit_shared`](Self::admit_shared), for a tick of a timer.
    pub(crate) fn admit_timer_shared(
        self: &Arc<Self>,
        keep: bool,
    ) -> impl Future<Output = Result<Shared<'_, G>, Closed>> {
        self.admit_beside(false, keep)
    }

    /// Waits until the turn may run beside other shared ones, activating the grain first if nobody
    /// has.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_shared(self: &Arc<Self>) -> Result<Shared<'_, G>, Closed> {
        self.admit_beside(false, true).await
    }

    /// As [`admit_shared`](Self::admit_shared), past whoever waits for its turn.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_past(self: &Arc<Self>) -> Result<Shared<'_, G>, Closed> {
        self.admit_beside(true, true).await
    }

    /// As [`admit_past`](Self::admit_past), for a turn that holds nothing of the grain while it
    /// waits.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_interleaved(self: &Arc<Self>) -> Result<Interleaved<G>, Closed> {
        self.admit_beside(true, true).await?.done();
        Ok(Interleaved::new(self.clone()))
    }

    async fn admit_beside(
        self: &Arc<Self>,
        past: bool,
        uses: bool,
    ) -> Result<Shared<'_, G>, Closed> {
        let (mut lock, mut now) = loop {
            let lock = self.lock_shared(past).await;
            if let Some(now) = self.pass_fence().await? {
                break (lock, now);
            }
            drop(lock);
            self.until_unfenced(self.host.clock.now()).await?;
        };
        if let Life::New = *lock {
            drop(lock);
            let mut alone = self.lock_exclusive().await;
            now = self.pass_fence_again().await?;
            if let Life::New = *alone {
                self.activate(&mut alone).await?;
                now = self.pass_fence_again().await?;
            }
            lock = alone.downgrade();
        }
        let admitted = lock.grain()?;
        if uses {
            self.note_use(now);
        }
        Ok(admitted)
    }
}

impl<G: Grain> Drop for Activation<G> {
    fn drop(&mut self) {
        // The silo ended, or let the activation go before its closer came: a grain's `Drop` may
        // panic.
        if let Life::Active(grain) = std::mem::replace(self.gate.get_mut(), Life::Closing) {
            self.let_go(grain);
        }
    }
}

/// What the runtime does with an activation whose class it does not know by type.
pub trait AnyActivation: Send + Sync {
    /// Whose activation.
    fn id(&self) -> &GrainId;

    /// Its number on this silo.
    fn number(&self) -> u64;

    /// The name of its grain type.
    fn type_name(&self) -> &'static str;

    /// The way to call other grains from it; none when its silo is gone.
    fn client(&self) -> Option<ClusterClient>;

    /// The services of its silo.
    fn services(&self) -> Arc<Services>;

    /// The place of its state `name`; none when there is no such store (never, for a silo that has
    /// started).
    fn state_slot(&self, store: Option<&str>, name: &str) -> Option<emmer_store::state::StateSlot>;

    /// The same for a journal.
    fn journal_slot(
        &self,
        store: Option<&str>,
        name: &str,
    ) -> Option<emmer_store::journal::JournalSlot>;

    /// Counts what it did with one of its states.
    fn count_state(&self, operation: StateOperation, ended: StateEnded);

    /// The activation as itself.
    fn into_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync>;

    /// Returns what its reminders need.
    fn reminding(&self) -> Reminding;

    /// Keeps it for so long from now on, although it is idle.
    fn keep_for(&self, duration: Duration);

    /// Begins its deactivation, once. Turns that were admitted run first, and those that wait,
    /// unless the grain is broken or a duplicate: those are then resolved again.
    fn deactivate(self: Arc<Self>, reason: DeactivationReason);
}

/// The part of [`AnyActivation`] that only this crate calls.
pub(crate) trait RunActivation: AnyActivation {
    /// The filters around its methods.
    fn filters(&self) -> &Filters;

    /// Runs a turn in place, from its start to its end, if its method cannot suspend and nothing
    /// stands in its way. Else none, and nothing happened: [`start`](Self::start) it. `me` is this
    /// activation.
    fn run_instant(
        &self,
        me: &Arc<dyn RunActivation>,
        method: u32,
        ends: &mut Ends<'_>,
        due: Due,
        chain: &CallChain,
    ) -> Option<Result<TurnEnd, StartError>>;

    /// Starts a turn; it must then be polled.
    fn start(
        self: Arc<Self>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError>;

    /// The same for a turn that keeps `held`: this activation, or somebody's hold on it.
    fn start_for(
        self: Arc<Self>,
        held: Arc<dyn RunActivation>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError>;

    /// Starts a turn for a call whose method the class does not have, so that the grain can be on
    /// `to`: this activation ends, and then the turn, which says where the call goes on.
    fn step_aside(
        self: Arc<Self>,
        to: SiloAddress,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError>;

    /// A poll of a turn of the method at `method` begins; what it returns goes to
    /// [`poll_ends`](Self::poll_ends). None when the turn `goes_on` after it had begun and
    /// suspended, and the fence is closed: it must not be polled.
    fn poll_begins(&self, method: u16, goes_on: bool) -> Option<Outer>;

    /// Waits until the fence may be open; for ever when it has been shut for good.
    fn reopened(&self) -> emmer_store::BoxFuture<'static, ()>;

    /// The poll is over.
    fn poll_ends(&self, outer: Outer);

    /// The turn inside suspends, or goes on.
    fn note_suspended(&self, suspended: bool);

    /// A turn of the method at `method` ended; `timed` says when it was started, if it is to be
    /// timed.
    fn note_end(&self, method: u16, ended: Ended, timed: Option<NonZeroU64>);

    /// How many turns wait for it.
    fn waiting(&self) -> u32;

    /// A tick of the clock for the turns that wait; false when none does.
    fn tick(&self, now: CoarseInstant) -> bool;

    /// The turns that wait for calls which wait here; see [`gate::Line::waits`].
    fn waits(&self, out: &mut Vec<Wait>);

    /// Ends the wait at this place: it is part of a circle. False when it is over already.
    fn doom(&self, ticket: u64, circle: String) -> bool;

    /// Lists a turn of this activation that has made a call and waits.
    fn list_turn(
        self: Arc<Self>,
        turn: u64,
        caller: u64,
        asker: Option<Arc<Asker>>,
        holds: bool,
    ) -> Listing;

    /// The grain's type and key, for people.
    fn name(&self) -> String;

    /// The same activation as the public face.
    fn as_any(self: Arc<Self>) -> Arc<dyn AnyActivation>;

    /// Whether the directory holds a registration for it.
    fn is_registered(&self) -> bool;

    /// Whether it is a stateless worker, which the directory never knows.
    fn is_worker(&self) -> bool;

    /// Returns an error, `Overloaded`, if as many calls wait for it as may.
    fn check_queue(&self) -> Result<(), StartError>;

    /// Whether a turn could begin now: nobody is inside, nobody waits, and it is not broken.
    fn is_free(&self) -> bool;

    /// Notes whether the directory holds a registration for it; called under the directory's lock
    /// only.
    fn set_registered(&self, registered: bool);

    /// Begins its deactivation if it has been idle for its idle time.
    fn collect_if_idle(self: Arc<Self>, now: CoarseInstant);

    /// How long ago it was last called.
    fn idle_for(&self, now: CoarseInstant) -> Duration;

    /// Waits until it is closed, deactivating it first.
    fn close_and_wait(
        self: Arc<Self>,
        reason: DeactivationReason,
    ) -> emmer_store::BoxFuture<'static, ()>;
}
