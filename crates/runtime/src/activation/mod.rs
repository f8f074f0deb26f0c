//! An activation: one grain in the memory of one silo.
//!
//! No task and no channel belongs to it. A lock around the grain is its queue: turns are admitted in the order
//! they came, `&mut self` alone, `&self` together. The first turn admitted activates the grain (registers it in
//! the directory, reads its state, runs its hook); whoever finds it closed resolves the call again.

mod class;
mod lifecycle;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_wire::CallChain;
use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use self::class::{AnyClass, Class, MethodCollision, NumberMap};
pub use self::turn::{BoxTurn, Input, LocalSlot, Progress, Sink, Turn, TurnEnd, TurnOutcome, boxed};
pub(crate) use self::turn::{run_to_end, until_begun};
use crate::clock::CoarseInstant;
use crate::grain::{CallError, ClusterClient, DeactivationReason, Failure, Grain, TurnContext};
use crate::silo::SiloCore;

/// Starts one method of a class: the arguments out of `Input`, the turn around the method.
pub type StartMethod<G> = fn(Arc<Activation<G>>, Input<'_>, TurnContext) -> Result<BoxTurn, String>;

/// One method of a class, as the generated code lists it.
pub struct MethodEntry<G: Grain> {
    /// The method's number.
    pub id: u32,
    /// `Interface.method`, for people.
    pub name: &'static str,
    /// Whether it takes `&mut self`.
    pub exclusive: bool,
    /// Starts it.
    pub start: StartMethod<G>,
}

impl<G: Grain> MethodEntry<G> {
    /// The same entry again.
    const fn same(&self) -> Self {
        Self { id: self.id, name: self.name, exclusive: self.exclusive, start: self.start }
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
    /// Too many calls wait already.
    Overloaded,
}

impl StartError {
    /// The failure its caller sees; `method` names the method for people.
    pub(crate) fn into_failure(self, method: impl std::fmt::Display) -> Failure {
        match self {
            Self::NoSuchMethod => CallError::Rejected(format!("the grain's class has no method {method}")),
            Self::BadArguments(detail) => CallError::Codec { maybe_executed: false, detail },
            Self::Overloaded => CallError::Overloaded("too many calls wait for this grain".to_owned()),
        }
    }
}

/// Where an activation stands in its life. Only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Nobody was admitted yet.
    New = 0,
    /// Registered, loaded, serving.
    Active = 1,
    /// Deactivated, refused or failed.
    Closed = 2,
}

/// One grain of class `G` in memory.
pub struct Activation<G: Grain> {
    id: GrainId,
    /// Unique among the activations of this silo; with the silo's address, unique for ever.
    number: u64,
    class: Arc<Class<G>>,
    silo: Arc<SiloCore>,
    grain: RwLock<Option<G>>,
    phase: AtomicU8,
    /// Turns waiting for admission.
    waiting: AtomicU32,
    /// When the last turn was admitted, in coarse milliseconds since the silo's start, wrapping.
    last_used: AtomicU32,
    /// Whether a deactivation is already on its way.
    closing: AtomicBool,
    /// Whether the directory holds a registration for it. Written only under the directory's lock.
    registered: AtomicBool,
    /// Why it is closed, once it is.
    closed: Mutex<Option<Box<Closed>>>,
}

/// The lock of an exclusive turn.
pub type Exclusive<'a, G> = RwLockMappedWriteGuard<'a, G>;
/// The lock of a shared turn.
pub type Shared<'a, G> = RwLockReadGuard<'a, G>;

impl<G: Grain> Activation<G> {
    fn new(silo: Arc<SiloCore>, class: Arc<Class<G>>, id: GrainId, number: u64) -> Self {
        let last_used = AtomicU32::new(silo.clock.now().as_wrapping_millis());
        Self {
            id,
            number,
            class,
            silo,
            grain: RwLock::new(None),
            phase: AtomicU8::new(Phase::New as u8),
            waiting: AtomicU32::new(0),
            last_used,
            closing: AtomicBool::new(false),
            registered: AtomicBool::new(false),
            closed: Mutex::new(None),
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::New,
            1 => Phase::Active,
            _ => Phase::Closed,
        }
    }

    fn close(&self, why: Closed) {
        *self.closed.lock() = Some(Box::new(why));
        self.phase.store(Phase::Closed as u8, Ordering::Release);
    }

    fn why_closed(&self) -> Closed {
        self.closed.lock().as_deref().cloned().unwrap_or(Closed::Gone)
    }

    fn note_use(&self) {
        self.last_used.store(self.silo.clock.now().as_wrapping_millis(), Ordering::Relaxed);
    }

    /// Waits until the turn may run alone, activating the grain first if nobody has. The fence is asked last, after
    /// whatever the turn had to wait for: this is the only door to a grain.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_exclusive(self: &Arc<Self>) -> Result<Exclusive<'_, G>, Closed> {
        let mut lock = match self.grain.try_write() {
            Ok(lock) => lock,
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                self.grain.write().await
            }
        };
        self.silo.wait_unfenced().await;
        TurnContext::begin();
        if self.phase() == Phase::New {
            self.activate(&mut lock).await?;
        }
        let admitted = RwLockWriteGuard::try_map(lock, Option::as_mut).map_err(|_| self.why_closed())?;
        self.note_use();
        Ok(admitted)
    }

    /// Waits until the turn may run beside other shared ones, activating the grain first if nobody has.
    ///
    /// # Errors
    /// [`Closed`] when the grain is not here any more.
    pub async fn admit_shared(self: &Arc<Self>) -> Result<Shared<'_, G>, Closed> {
        let lock = match self.grain.try_read() {
            Ok(lock) => lock,
            Err(_) => {
                let _waiting = Waiting::new(&self.waiting);
                self.grain.read().await
            }
        };
        self.silo.wait_unfenced().await;
        TurnContext::begin();
        let lock = if self.phase() == Phase::New {
            drop(lock);
            let mut lock = self.grain.write().await;
            if self.phase() == Phase::New {
                self.activate(&mut lock).await?;
            }
            lock.downgrade()
        } else {
            lock
        };
        let admitted = RwLockReadGuard::try_map(lock, Option::as_ref).map_err(|_| self.why_closed())?;
        self.note_use();
        Ok(admitted)
    }
}

/// Counts one waiting turn, also when it is dropped while it waits.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the runtime does with an activation whose class it does not know by type.
pub trait AnyActivation: Send + Sync {
    /// Whose activation.
    fn id(&self) -> &GrainId;

    /// Its number on this silo.
    fn number(&self) -> u64;

    /// The way to call other grains from it.
    fn client(&self) -> ClusterClient;

    /// The place of its state `name`; none when the class is not known (never, for a hosted one).
    fn state_slot(&self, name: &str) -> Option<emmer_store::state::StateSlot>;

    /// Begins its deactivation, once; turns that were admitted or are waiting run first.
    fn deactivate(self: Arc<Self>, reason: DeactivationReason);
}

/// The part of [`AnyActivation`] that only this crate calls.
pub(crate) trait RunActivation: AnyActivation {
    /// Starts a turn; it must then be polled.
    fn start(
        self: Arc<Self>,
        method: u32,
        input: Input<'_>,
        deadline: Option<CoarseInstant>,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError>;

    /// The same activation as the public face.
    fn as_any(self: Arc<Self>) -> Arc<dyn AnyActivation>;

    /// Whether the directory holds a registration for it.
    fn is_registered(&self) -> bool;

    /// Notes whether the directory holds a registration for it; called under the directory's lock only.
    fn set_registered(&self, registered: bool);

    /// Begins its deactivation if it has been idle for its idle time.
    fn collect_if_idle(self: Arc<Self>, now: CoarseInstant);

    /// Waits until it is closed, deactivating it first.
    fn close_and_wait(self: Arc<Self>, reason: DeactivationReason) -> emmer_store::BoxFuture<'static, ()>;
}
