//! The room of a grain within its activation, and what the runtime has to know of its class. The
//! code that knows a class by type stands above, in `grain/`.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use emmer_core::GrainId;
use emmer_placement::{DataError, Placement};
use emmer_store::BoxFuture;

use super::gate::{Gate, Home, Life};
use super::services::{ServiceNeed, Services};
use super::{Activation, Class, Host, MethodEntry};
use crate::turn::{ActivationError, DeactivationReason, StateError};

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

    /// Returns true if the grain is there.
    fn has_grain(&self) -> bool;

    /// Drops the grain, which may panic.
    fn clear(&mut self);
}

/// The room of a grain whose class is not known by type.
pub(crate) type AnyRoom = dyn AnyGrain + 'static;

/// A constructor of the application: it makes the grain into its room.
pub(crate) type Constructor = Arc<
    dyn Fn(&Arc<Activation>, &Services, &mut AnyRoom) -> Result<(), ActivationError> + Send + Sync,
>;

/// The things that a new activation begins with.
pub(crate) struct Parts {
    pub(super) id: GrainId,
    pub(super) number: u64,
    pub(super) class: Arc<Class>,
    pub(super) host: Arc<Host>,
    /// The moment it is made, in idle ticks since the silo's start.
    pub(super) last_used: u32,
}

/// A class, as code knows it that is compiled once for all of them. Its constants are those of
/// `Grain`.
pub(crate) struct ClassInfo {
    pub(crate) type_id: fn() -> TypeId,
    pub(crate) type_name: fn() -> &'static str,
    pub(crate) name: Option<&'static str>,
    pub(crate) workers_max: Option<usize>,
    pub(crate) idle: Option<Duration>,
    pub(crate) has_state: bool,
    pub(crate) has_hooks: bool,
    pub(crate) reentrant: bool,
    pub(crate) call_chain_reentrancy: bool,
    pub(crate) reminders: &'static [&'static str],
    pub(crate) has_constructor: bool,
    pub(crate) state_stores: &'static [&'static str],
    pub(crate) services: fn() -> Vec<ServiceNeed>,
    pub(crate) placement: fn() -> Result<Placement, DataError>,
    pub(crate) ticks: fn() -> Option<MethodEntry>,
    /// Puts an activation around an empty room.
    pub(crate) activation: fn(Parts) -> Arc<Activation>,
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
            gate: Gate::new(Home { life: Life::New, room }),
        })
    }
}

/// The room of a grain that nothing is asked of.
#[cfg(test)]
pub(super) fn for_tests() -> impl AnyGrain {
    struct Still;

    impl AnyGrain for Still {
        fn create(&mut self, _: &Arc<Activation>) -> Result<(), ActivationError> {
            Ok(())
        }

        fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>> {
            Box::pin(async { Ok(()) })
        }

        fn activate(&mut self, _: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>> {
            Box::pin(async { Ok(()) })
        }

        fn deactivate(&mut self, _: Arc<Activation>, _: DeactivationReason) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }

        fn has_grain(&self) -> bool {
            true
        }

        fn clear(&mut self) {}
    }

    Still
}
