//! The room of a grain within its activation: the only code of a silo that knows a class by type.

use std::any::{Any, TypeId, type_name};
use std::sync::Arc;

use emmer_store::BoxFuture;

use super::{Ctx, Grain, carried};
use crate::cluster::moves::Fields;
use crate::hosting::{
    Activation, AnyGrain, AnyRoom, ClassInfo, Constructor, Exclusive, Services, Shared,
};
use crate::turn::{ActivationError, DeactivationReason, StateError};

/// The context of the grain of an activation.
///
/// # Errors
/// Its silo has ended.
fn ctx_of(at: &Arc<Activation>) -> Result<Ctx, ActivationError> {
    Ctx::of(at).ok_or_else(|| ActivationError::new("the silo has ended"))
}

/// The room of a grain of class `G`.
struct Room<G>(Option<G>);

impl<G: Grain> Room<G> {
    fn grain(&mut self) -> &mut G {
        self.0.as_mut().unwrap_or_else(|| other_class())
    }
}

impl<G: Grain> AnyGrain for Room<G> {
    fn create(&mut self, at: &Arc<Activation>) -> Result<(), ActivationError> {
        self.0 = Some(G::create(&ctx_of(at)?)?);
        Ok(())
    }

    fn load(&mut self) -> BoxFuture<'_, Result<(), StateError>> {
        Box::pin(self.grain().load())
    }

    fn activate(&mut self, at: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>> {
        Box::pin(async move { self.grain().run_activate(&ctx_of(&at)?).await })
    }

    fn deactivate(&mut self, at: Arc<Activation>, reason: DeactivationReason) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(ctx) = ctx_of(&at) {
                self.grain().run_deactivate(&ctx, reason).await;
            }
        })
    }

    fn arrive(&mut self, at: Arc<Activation>) -> BoxFuture<'_, Result<(), ActivationError>> {
        Box::pin(async move { self.grain().run_arrive(&ctx_of(&at)?).await })
    }

    fn may_move(&self) -> bool {
        self.0.as_ref().is_some_and(G::may_move)
    }

    fn pack(&mut self) -> Result<Fields, String> {
        carried::pack(self.grain().carried())
    }

    fn unpack(&mut self, at: &Arc<Activation>, fields: &Fields) -> Result<(), String> {
        let ctx = ctx_of(at).map_err(|error| error.to_string())?;
        carried::unpack(&ctx, self.grain().carried(), fields)
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
fn grain_of<G: Grain>(room: &mut AnyRoom) -> &mut G {
    room_of::<G>(room).grain()
}

#[inline]
fn room_of<G: Grain>(room: &mut AnyRoom) -> &mut Room<G> {
    (room as &mut dyn Any).downcast_mut().unwrap_or_else(|| other_class())
}

/// Shared access to the grain in this room, which is of class `G`.
#[inline]
fn shared_grain_of<G: Grain>(room: &AnyRoom) -> &G {
    let room = (room as &dyn Any).downcast_ref::<Room<G>>();
    room.and_then(|room| room.0.as_ref()).unwrap_or_else(|| other_class())
}

/// Stands where the generated code of a class has got a grain of another one: a fault of this
/// crate.
#[cold]
fn other_class() -> ! {
    unreachable!("a turn has a grain of its class")
}

impl Exclusive<'_> {
    /// The grain, which is of class `G`.
    #[inline]
    pub fn grain<G: Grain>(&mut self) -> &mut G {
        grain_of(self.room_mut())
    }
}

impl Shared<'_> {
    /// The grain, which is of class `G`.
    #[inline]
    pub fn grain<G: Grain>(&self) -> &G {
        shared_grain_of(self.room())
    }
}

/// The constructor that `make` is ([`host_with`](crate::SiloBuilder::host_with)).
pub(crate) fn constructor<G: Grain>(
    make: impl Fn(&Ctx, &Services) -> Result<G, ActivationError> + Send + Sync + 'static,
) -> Constructor {
    Arc::new(move |at, services, room| {
        let ctx = ctx_of(at)?;
        let mut made = make(&ctx, services)?;
        made.bind(&ctx);
        room_of::<G>(room).0 = Some(made);
        Ok(())
    })
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
                bytes: size_of::<Activation<Room<G>>>(),
                stays: G::STAYS,
                active_max: G::ACTIVE_MAX,
                reentrant: G::REENTRANT,
                call_chain_reentrancy: G::CALL_CHAIN_REENTRANCY,
                reminders: G::REMINDERS,
                has_constructor: G::CONSTRUCTOR,
                state_stores: G::STATE_STORES,
                data_version: G::DATA_VERSION,
                services: G::services,
                placement: G::placement,
                ticks: G::ticks,
                activation: |parts| Activation::around(parts, Room::<G>(None)),
            }
        }
    }
}
