//! An activation: one grain in the memory of a silo, its room, its locks, and the holds on it.

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::Due;
use emmer_store::BoxFuture;
use emmer_wire::CallChain;
use parking_lot::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard,
};

use super::catalog::Catalog;
use super::class::Class;
use super::ends::{Closed, StartError, TurnEnd};
use super::gate::{Alone, Gate, HalfWay, Leave, Together};
use super::host::Host;
use super::slot::{Ends, Input};
use super::turn::BoxTurn;
use crate::cluster::moves::Fields;
use crate::turn::{ActivationError, DeactivationReason, StateError};

/// One grain in memory. Only its room knows its class by type.
pub struct Activation<R: AnyGrain + ?Sized = dyn AnyGrain> {
    pub(super) id: GrainId,
    /// Unique among the activations of this silo; with the silo's address, unique for all time.
    pub(super) number: u64,
    pub(super) class: Arc<Class>,
    pub(super) host: Arc<Host>,
    /// Time of the last admission, in idle ticks since the silo's start.
    pub(super) last_used: AtomicU32,
    /// True if the directory holds a registration for it. Written only under the directory's lock.
    pub(super) registered: AtomicBool,
    /// Number of times that it took the grain back after a move that failed.
    pub(super) round: AtomicU8,
    /// True while the hook of its activation runs.
    pub(super) waking: AtomicBool,
    /// True while a task tries to move the grain because it asked for it.
    pub(super) asked_to_move: AtomicBool,
    pub(super) gate: Gate<Home<R>>,
}

impl<R: AnyGrain + ?Sized> Drop for Activation<R> {
    fn drop(&mut self) {
        // The silo ended, or let the activation go before its closer came: a grain's `Drop` may
        // panic.
        let room = &mut self.gate.get_mut().room;
        if room.has_grain() {
            self.class.drop_grain(&self.id, &mut || room.clear());
        }
    }
}

/// The things that a new activation begins with.
pub(crate) struct Parts {
    pub(super) id: GrainId,
    pub(super) number: u64,
    pub(super) class: Arc<Class>,
    pub(super) host: Arc<Host>,
    /// The moment it is made, in idle ticks since the silo's start.
    pub(super) last_used: u32,
}

impl<R: AnyGrain> Activation<R> {
    /// A new activation, around an empty room.
    pub(crate) fn around(parts: Parts, room: R) -> Arc<Self> {
        let Parts { id, number, class, host, last_used } = parts;
        Arc::new(Self {
            id,
            number,
            class,
            host,
            last_used: AtomicU32::new(last_used),
            registered: AtomicBool::new(false),
            round: AtomicU8::new(0),
            waking: AtomicBool::new(false),
            asked_to_move: AtomicBool::new(false),
            gate: Gate::new(Home { life: Life::New, room }),
        })
    }
}

/// A grain whose class is not known by type, or the room for it. All but [`create`](Self::create),
/// [`has_grain`](Self::has_grain) and [`clear`](Self::clear) need the grain.
pub trait AnyGrain: Any + Send + Sync {
    /// Makes the grain.
    ///
    /// # Errors
    /// The class's own.
    fn create(&mut self, at: &Arc<Activation>) -> Result<(), ActivationError>;

    /// Reads its states.
    fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>>;

    /// Runs the hook of its activation.
    fn activate(&mut self, at: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>>;

    /// Runs the hook of its deactivation.
    fn deactivate(&mut self, at: Arc<Activation>, reason: DeactivationReason) -> BoxFuture<'_, ()>;

    /// Runs the hook of its arrival.
    fn arrive(&mut self, at: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>>;

    /// Asks the grain whether it may move.
    fn may_move(&self) -> bool;

    /// Its memory, field by field.
    ///
    /// # Errors
    /// A field does not encode, in these words.
    fn pack(&mut self) -> Result<Fields, String>;

    /// Takes the memory of the grain on another silo.
    ///
    /// # Errors
    /// A field does not decode, or the class has no such field, in these words.
    fn unpack(&mut self, at: &Arc<Activation>, fields: &Fields) -> Result<(), String>;

    /// Returns true if the grain is there.
    fn has_grain(&self) -> bool;

    /// Drops the grain, which may panic.
    fn clear(&mut self);
}

/// The room of a grain whose class is not known by type.
pub(crate) type AnyRoom = dyn AnyGrain + 'static;

/// The life of an activation. It moves on, never back, under the lock of a turn alone.
pub(super) enum Life {
    /// No turn was admitted yet.
    New,
    /// Registered, loaded, serving. Once the line is `broken`, only the closer comes in here.
    Active,
    /// Its last hook runs.
    Closing,
    /// The grain is gone, or was never here, and why. In a box: it is as large as many grains.
    Gone(Box<Closed>),
}

impl Life {
    fn why(&self) -> Closed {
        match self {
            Self::Gone(why) => (**why).clone(),
            Self::New | Self::Active | Self::Closing => Closed::Gone,
        }
    }
}

/// Value behind the lock of an activation: its life, and the room of the grain.
pub(super) struct Home<R: ?Sized = dyn AnyGrain> {
    pub(super) life: Life,
    /// The room of the grain. It exists while the activation is `Active`, and while a hook runs.
    pub(super) room: R,
}

impl Home {
    const fn grain_mut(&mut self) -> Option<&mut (dyn AnyGrain + 'static)> {
        match self.life {
            Life::Active => Some(&mut self.room),
            Life::New | Life::Closing | Life::Gone(_) => None,
        }
    }

    const fn grain(&self) -> Option<&(dyn AnyGrain + 'static)> {
        match self.life {
            Life::Active => Some(&self.room),
            Life::New | Life::Closing | Life::Gone(_) => None,
        }
    }
}

impl<'a> Alone<'a, Home> {
    /// The lock of the grain itself, or the reason why there is none.
    #[inline]
    pub(super) fn grain(self) -> Result<Exclusive<'a>, Closed> {
        match RwLockWriteGuard::try_map(self.guard, Home::grain_mut) {
            Ok(guard) => {
                Ok(Exclusive { half_way: self.leave.half_way(), guard, _leave: self.leave })
            }
            Err(guard) => Err(guard.life.why()),
        }
    }
}

impl<'a> Together<'a, Home> {
    /// The lock of the grain itself, or the reason why there is none.
    #[inline]
    pub(super) fn grain(self) -> Result<Shared<'a>, Closed> {
        match RwLockReadGuard::try_map(self.guard, Home::grain) {
            Ok(guard) => Ok(Shared { half_way: self.leave.half_way(), guard, _leave: self.leave }),
            Err(guard) => Err(guard.life.why()),
        }
    }
}

/// The lock of an exclusive turn. A turn that drops it without [`done`](Self::done) has left the
/// grain half way.
pub struct Exclusive<'a> {
    // Dropped before the lock is given back.
    half_way: HalfWay<'a>,
    guard: MappedRwLockWriteGuard<'a, dyn AnyGrain>,
    _leave: Leave<'a>,
}

impl Exclusive<'_> {
    /// The room of the grain, which is there.
    #[inline]
    pub(crate) fn room_mut(&mut self) -> &mut AnyRoom {
        &mut *self.guard
    }

    /// The turn is over.
    #[inline]
    pub fn done(self) {
        std::mem::forget(self.half_way);
    }
}

/// The lock of a shared turn. A turn that drops it without [`done`](Self::done) has left the grain
/// half way.
pub struct Shared<'a> {
    // Dropped before the lock is given back.
    half_way: HalfWay<'a>,
    guard: MappedRwLockReadGuard<'a, dyn AnyGrain>,
    _leave: Leave<'a>,
}

impl Shared<'_> {
    /// The room of the grain, which is there.
    #[inline]
    pub(crate) fn room(&self) -> &AnyRoom {
        &*self.guard
    }

    /// The turn is over.
    #[inline]
    pub fn done(self) {
        std::mem::forget(self.half_way);
    }
}

/// A call's hold on an activation.
#[derive(Clone)]
pub(crate) struct Held {
    activation: Arc<Activation>,
    /// The seat at a worker, which the call has for itself.
    seat: Option<Arc<Seat>>,
}

impl Held {
    /// The activation, without the seat.
    pub(crate) const fn activation(&self) -> &Arc<Activation> {
        &self.activation
    }

    /// Runs a turn in place to its end, if its method cannot suspend and the grain is free.
    /// Otherwise None, and nothing happened: [`start`](Self::start) it.
    #[inline]
    pub(crate) fn run_instant(
        &self,
        method: u32,
        ends: &mut Ends<'_>,
        due: Due,
        chain: &CallChain,
    ) -> Option<Result<TurnEnd, StartError>> {
        self.activation.instant(self, method, ends, due, chain)
    }

    /// Starts a turn; it must then be polled.
    pub(crate) fn start(
        self,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.activation.clone().start_for(self, method, input, due, chain)
    }

    /// Starts a turn for a call whose method the class lacks, so that the grain can move to `to`:
    /// this activation ends, and the turn tells the caller where the grain is.
    pub(crate) fn step_aside(
        self,
        to: SiloAddress,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        match self.seat {
            None => self.activation.aside(to, due, chain),
            // Another silo's worker takes the call.
            Some(_) => Err(StartError::NoSuchMethod),
        }
    }
}

impl From<Arc<Activation>> for Held {
    fn from(activation: Arc<Activation>) -> Self {
        Self { activation, seat: None }
    }
}

impl From<Arc<Seat>> for Held {
    fn from(seat: Arc<Seat>) -> Self {
        Self { activation: seat.worker.clone(), seat: Some(seat) }
    }
}

impl Deref for Held {
    type Target = Activation;

    #[inline]
    fn deref(&self) -> &Activation {
        &self.activation
    }
}

/// A stateless worker for the length of one call. The turn holds the seat; dropping the seat hands
/// the worker to the next call.
pub(crate) struct Seat {
    worker: Arc<Activation>,
    catalog: Arc<Catalog>,
    /// True once the drop of the seat hands nothing over.
    is_over: AtomicBool,
}

impl Seat {
    pub(super) fn new(worker: Arc<Activation>, catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { worker, catalog: catalog.clone(), is_over: AtomicBool::new(false) })
    }

    /// Ends the seat without a successor: its drop hands nothing over.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.catalog.hand_over(&self.worker);
        }
    }
}
