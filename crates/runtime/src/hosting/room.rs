//! The room of a grain within its activation, and what the runtime has to know of its class: the
//! only code of a silo that knows a class by type.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use emmer_core::GrainId;
use emmer_placement::{DataError, Placement};
use emmer_store::BoxFuture;

use super::gate::{Gate, Home, Life};
use super::{Activation, Class, Host, MethodEntry};
use crate::grain::{Ctx, Grain, ServiceNeed, Services};
use crate::turn::{ActivationError, DeactivationReason, StateError};

/// A grain whose class is not known by type, or the room for it. All but [`create`](Self::create),
/// [`has_grain`](Self::has_grain) and [`clear`](Self::clear) need the grain.
pub trait AnyGrain: Any + Send + Sync {
    /// Makes the grain.
    ///
    /// # Errors
    /// The class's own.
    fn create(&mut self, ctx: &Ctx) -> Result<(), ActivationError>;

    /// Reads its states.
    fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>>;

    /// Runs the hook of its activation.
    fn activate<'a>(&'a mut self, ctx: &'a Ctx) -> BoxFuture<'a, Result<(), ActivationError>>;

    /// Runs the hook of its deactivation.
    fn deactivate<'a>(&'a mut self, ctx: &'a Ctx, reason: DeactivationReason) -> BoxFuture<'a, ()>;

    /// Returns true if the grain is there.
    fn has_grain(&self) -> bool;

    /// Drops the grain, which may panic.
    fn clear(&mut self);
}

/// The room of a grain of class `G`.
struct Room<G>(Option<G>);

impl<G: Grain> Room<G> {
    fn grain(&mut self) -> &mut G {
        self.0.as_mut().unwrap_or_else(|| other_class())
    }
}

impl<G: Grain> AnyGrain for Room<G> {
    fn create(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        self.0 = Some(G::create(ctx)?);
        Ok(())
    }

    fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>> {
        Box::pin(self.grain().load())
    }

    fn activate<'a>(&'a mut self, ctx: &'a Ctx) -> BoxFuture<'a, Result<(), ActivationError>> {
        Box::pin(self.grain().activate(ctx))
    }

    fn deactivate<'a>(&'a mut self, ctx: &'a Ctx, reason: DeactivationReason) -> BoxFuture<'a, ()> {
        Box::pin(self.grain().deactivate(ctx, reason))
    }

    fn has_grain(&self) -> bool {
        self.0.is_some()
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

/// The grain in this room, which is of class `G`.
#[inline]
pub(super) fn grain_of<G: Grain>(room: &mut AnyRoom) -> &mut G {
    room_of::<G>(room).grain()
}

#[inline]
fn room_of<G: Grain>(room: &mut AnyRoom) -> &mut Room<G> {
    (room as &mut dyn Any).downcast_mut().unwrap_or_else(|| other_class())
}

/// Shared access to the grain in this room, which is of class `G`.
#[inline]
pub(super) fn shared_grain_of<G: Grain>(room: &AnyRoom) -> &G {
    let room = (room as &dyn Any).downcast_ref::<Room<G>>();
    room.and_then(|room| room.0.as_ref()).unwrap_or_else(|| other_class())
}

/// Stands where the generated code of a class has got a grain of another one: a fault of this
/// crate.
#[cold]
fn other_class() -> ! {
    unreachable!("a turn has a grain of its class")
}

/// The room of a grain whose class is not known by type.
pub(crate) type AnyRoom = dyn AnyGrain + 'static;

/// A constructor of the application: it makes the grain into its room.
pub(crate) type Constructor =
    Arc<dyn Fn(&Ctx, &Services, &mut AnyRoom) -> Result<(), ActivationError> + Send + Sync>;

/// The constructor that `make` is ([`host_with`](crate::SiloBuilder::host_with)).
pub(crate) fn constructor<G: Grain>(
    make: impl Fn(&Ctx, &Services) -> Result<G, ActivationError> + Send + Sync + 'static,
) -> Constructor {
    Arc::new(move |ctx, services, room| {
        let mut made = make(ctx, services)?;
        made.bind(ctx);
        room_of::<G>(room).0 = Some(made);
        Ok(())
    })
}

/// The things that a new activation begins with.
pub(super) struct Parts {
    pub(super) id: GrainId,
    pub(super) number: u64,
    pub(super) class: Arc<Class>,
    pub(super) host: Arc<Host>,
    /// The moment it is made, in idle ticks since the silo's start.
    pub(super) last_used: u32,
}

/// A class, as code knows it that is compiled once for all of them. Its constants are those of
/// [`Grain`].
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
    pub(super) activation: fn(Parts) -> Arc<Activation>,
}

impl ClassInfo {
    /// The table of class `G`.
    pub(crate) const fn of<G: Grain>() -> &'static Self {
        const {
            &Self {
                type_id: TypeId::of::<G>,
                type_name: type_name::<G>,
                name: G::CLASS,
                workers_max: G::WORKERS_MAX,
                idle: G::IDLE,
                has_state: G::HAS_STATE,
                has_hooks: G::HAS_HOOKS,
                reentrant: G::REENTRANT,
                call_chain_reentrancy: G::CALL_CHAIN_REENTRANCY,
                reminders: G::REMINDERS,
                has_constructor: G::CONSTRUCTOR,
                state_stores: G::STATE_STORES,
                services: G::services,
                placement: G::placement,
                ticks: G::ticks,
                activation: |Parts { id, number, class, host, last_used }| {
                    let home = Home { life: Life::New, room: Room::<G>(None) };
                    Arc::new(Activation {
                        id,
                        number,
                        class,
                        host,
                        last_used: AtomicU32::new(last_used),
                        registered: AtomicBool::new(false),
                        gate: Gate::new(home),
                    })
                },
            }
        }
    }
}

/// The room of a grain that nothing is asked of.
#[cfg(test)]
pub(super) fn for_tests() -> impl AnyGrain {
    struct Still;

    impl crate::grain::Lifecycle for Still {}

    impl Grain for Still {
        const IDLE: Option<Duration> = None;
        const HAS_STATE: bool = false;

        fn create(_: &Ctx) -> Result<Self, ActivationError> {
            Ok(Self)
        }

        async fn load(&mut self) -> Result<(), StateError> {
            Ok(())
        }
    }

    Room(Some(Still))
}
