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

mod activation;
mod arriving;
mod aside;
pub(crate) mod catalog;
mod class;
mod collection;
mod context;
mod departures;
mod filtered;
mod gate;
mod host;
mod instant;
mod lifecycle;
mod pieces;
mod queues;
mod room;
mod seat;
mod services;
mod slot;
mod states;
mod timers;
mod turn;
mod workers;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_wire::CodecError;

use self::gate::{Alone, Gate, Home, Life, Together};
pub(crate) use self::gate::{Asks, Who};
pub use self::gate::{Exclusive, Shared};
use self::lifecycle::drop_grain;

pub use self::pieces::Left;

pub use self::instant::{Instant, Ran};

pub(crate) use self::collection::{Collection, Kept};
pub use self::context::TurnContext;
pub(crate) use self::departures::Departures;
pub(crate) use self::host::{Classes, Host};
pub(crate) use self::states::States;
pub(crate) use self::workers::Given;

pub(crate) use self::arriving::arriving_at;
pub(crate) use self::class::{Class, Lack, MethodCollision};
pub(crate) use self::room::{AnyGrain, AnyRoom, ClassInfo, Constructor};
pub(crate) use self::seat::Held;
pub use self::services::{ServiceField, ServiceNeed, Services};
pub use self::slot::Slot;
pub(crate) use self::slot::{Ends, Has, Input, Sink, empty, other_version};
pub(crate) use self::timers::{Entry as TimerEntry, Timed};
pub(crate) use self::turn::Progress;
pub(crate) use self::turn::{Begun, poll_begun, run_to_end, standing, until_begun};
pub use self::turn::{BoxTurn, Turn, TurnEnd, TurnOutcome};
pub(crate) use self::turn::{Work, turn};
use crate::cluster::Shut;
use crate::turn::MethodInfo;
use crate::turn::{Failure, Rejection};
use emmer_net::clock::CoarseInstant;

/// Starts one method of a class: the arguments out of the slot, the turn around the method.
pub type StartMethod = fn(Arc<Activation>, &mut dyn Slot, TurnContext) -> Result<BoxTurn, String>;

/// Decodes the arguments in a request's body, and passes them on in a slot.
pub type ArriveMethod = fn(&[u8], &mut dyn FnMut(&mut dyn Slot)) -> Result<(), CodecError>;

/// One method of a class, as the generated code lists it.
#[derive(Clone, Copy)]
pub struct MethodEntry {
    /// The method.
    pub info: &'static MethodInfo,
    /// The numbers of the same method for callers of other versions of its interface.
    pub also: &'static [u32],
    /// `Interface.method`, for people.
    pub name: &'static str,
    /// Clients may not call it.
    pub internal: bool,
    /// Reads its arguments.
    pub arrive: ArriveMethod,
    /// Runs it in place, if it cannot suspend.
    pub instant: Instant,
    /// Starts it.
    pub start: StartMethod,
}

impl MethodEntry {
    /// All its numbers.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        [self.info.id].into_iter().chain(self.also.iter().copied())
    }

    /// Whether this is one of its numbers.
    fn has(&self, number: u32) -> bool {
        self.numbers().any(|own| own == number)
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

/// One grain in memory. Only its room knows its class by type.
pub struct Activation<R: AnyGrain + ?Sized = dyn AnyGrain> {
    id: GrainId,
    /// Unique among the activations of this silo; with the silo's address, unique for ever.
    number: u64,
    class: Arc<Class>,
    host: Arc<Host>,
    /// When the last turn was admitted, in idle ticks since the silo's start.
    last_used: AtomicU32,
    /// Whether the directory holds a registration for it. Written only under the directory's lock.
    registered: AtomicBool,
    gate: Gate<Home<R>>,
}

impl Activation {
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
    async fn lock_exclusive(self: &Arc<Self>) -> Alone<'_> {
        match self.gate.try_exclusive() {
            Some(lock) => lock,
            None => self.queue_exclusive().await,
        }
    }

    async fn queue_exclusive(self: &Arc<Self>) -> Alone<'_> {
        if let Some(lock) = self.gate.spin(Gate::try_exclusive) {
            return lock;
        }
        let _waits = self.host.metrics.wait();
        let asks = TurnContext::asks(self.host.clock.now(), &self.id);
        self.gate.exclusive(asks, || self.host.watch_queue(self.clone())).await
    }

    /// `past`: whoever waits.
    async fn lock_shared(self: &Arc<Self>, past: bool) -> Together<'_> {
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

    /// Waits until the turn may run beside other shared ones, activating the grain first if nobody
    /// has.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_shared(self: &Arc<Self>) -> Result<Shared<'_>, Closed> {
        self.admit_beside(false, true).await
    }

    /// As [`admit_shared`](Self::admit_shared), past whoever waits for its turn.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
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
        let admitted = lock.grain()?;
        if uses {
            self.note_use(now);
        }
        Ok(admitted)
    }
}

impl<R: AnyGrain + ?Sized> Drop for Activation<R> {
    fn drop(&mut self) {
        // The silo ended, or let the activation go before its closer came: a grain's `Drop` may
        // panic.
        let room = &mut self.gate.get_mut().room;
        if room.has_grain() {
            drop_grain(&self.class, &self.id, &mut || room.clear());
        }
    }
}
