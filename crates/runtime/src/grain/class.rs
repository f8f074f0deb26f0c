//! A grain class: what the derive implements, and what may happen in a grain's life.

use std::future::{Future, Ready};
use std::marker::PhantomData;
use std::time::Duration;

use emmer_placement::{DataError, Placement};

use super::carried::CarriedFields;
use super::context::Ctx;
use crate::hosting::{MethodEntry, ServiceNeed};
use crate::turn::{ActivationError, DeactivationReason, StateError};

/// Hooks in a grain's life besides calls. A class that implements it has these hooks.
pub trait Lifecycle: Sized + Send + Sync + 'static {
    /// Runs once, after the state was read and before the first call.
    ///
    /// # Errors
    /// An error fails the activation and every call that waits for it.
    fn activate(&mut self, ctx: &Ctx) -> impl Future<Output = Result<(), ActivationError>> + Send {
        let _ = ctx;
        std::future::ready(Ok(()))
    }

    /// Runs once, after the last call. The grain can be activated elsewhere only when it has
    /// returned (or after `deactivation_timeout`).
    fn deactivate(
        &mut self,
        ctx: &Ctx,
        reason: DeactivationReason,
    ) -> impl Future<Output = ()> + Send {
        let _ = (ctx, reason);
        std::future::ready(())
    }

    /// Runs once, when the grain has come from another silo with its memory, before the next call.
    /// Without it [`activate`](Self::activate) runs. A timer that the hook starts continues: it has
    /// the time left that it had on the other silo, and is over if it was over there.
    ///
    /// # Errors
    /// An error fails the activation and every call that waits for it.
    fn arrive(&mut self, ctx: &Ctx) -> impl Future<Output = Result<(), ActivationError>> + Send {
        self.activate(ctx)
    }

    /// Returns false as long as the grain must stay where it is.
    fn may_move(&self) -> bool {
        true
    }
}

/// The hooks of class `G`. In generated code its own items win over those of [`NoHooks`] where the
/// class implements [`Lifecycle`].
pub struct Hooks<G>(PhantomData<G>);

impl<G: Lifecycle> Hooks<G> {
    /// True for a class with hooks.
    pub const ARE_THERE: bool = true;

    /// Runs the hook of the activation.
    pub fn activate(
        grain: &mut G,
        ctx: &Ctx,
    ) -> impl Future<Output = Result<(), ActivationError>> + Send {
        grain.activate(ctx)
    }

    /// Runs the hook of the deactivation.
    pub fn deactivate(
        grain: &mut G,
        ctx: &Ctx,
        reason: DeactivationReason,
    ) -> impl Future<Output = ()> + Send {
        grain.deactivate(ctx, reason)
    }

    /// Runs the hook of the arrival.
    pub fn arrive(
        grain: &mut G,
        ctx: &Ctx,
    ) -> impl Future<Output = Result<(), ActivationError>> + Send {
        grain.arrive(ctx)
    }

    /// Asks the grain whether it may move.
    pub fn may_move(grain: &G) -> bool {
        grain.may_move()
    }
}

/// The hooks of a class that does not implement [`Lifecycle`].
pub trait NoHooks<G> {
    /// True for a class with hooks.
    const ARE_THERE: bool = false;

    /// Does nothing.
    fn activate(grain: &mut G, ctx: &Ctx) -> Ready<Result<(), ActivationError>> {
        let _ = (grain, ctx);
        std::future::ready(Ok(()))
    }

    /// Does nothing.
    fn deactivate(grain: &mut G, ctx: &Ctx, reason: DeactivationReason) -> Ready<()> {
        let _ = (grain, ctx, reason);
        std::future::ready(())
    }

    /// Does nothing.
    fn arrive(grain: &mut G, ctx: &Ctx) -> Ready<Result<(), ActivationError>> {
        let _ = (grain, ctx);
        std::future::ready(Ok(()))
    }

    /// Returns true.
    fn may_move(grain: &G) -> bool {
        let _ = grain;
        true
    }
}

impl<G> NoHooks<G> for Hooks<G> {}

/// A grain class. Implemented by `#[derive(Grain)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a grain class",
    label = "not a class that a silo can host",
    note = "write `#[derive(Grain)]` on `{Self}`"
)]
pub trait Grain: Sized + Send + Sync + 'static {
    /// For a stateless worker: the most activations of a grain on a silo, 0 for one per processor.
    /// None for grains that have one in the whole cluster.
    const WORKERS_MAX: Option<usize> = None;
    /// Time after which an idle activation is deactivated; the silo's setting when none.
    const IDLE: Option<Duration>;
    /// True if [`load`](Self::load) has anything to read.
    const HAS_STATE: bool;
    /// True for a class that implements [`Lifecycle`].
    const HAS_HOOKS: bool;

    /// True if its `&self` methods go past calls that wait for their turn.
    const REENTRANT: bool = false;
    /// True if its `&self` methods do so in a call that comes back to the grain.
    const CALL_CHAIN_REENTRANCY: bool = false;

    /// True for a class whose grains never move to another silo.
    const STAYS: bool = false;

    /// Activations of the class on a silo, at most: then those end that were idle for longest.
    const ACTIVE_MAX: Option<usize> = None;

    /// The class's name, if an interface has several classes; see
    /// [`RawRef::of_class`](super::RawRef::of_class).
    const CLASS: Option<&'static str> = None;

    /// The names of its reminders that have a handler.
    const REMINDERS: &'static [&'static str] = &[];

    /// The method that ticks of reminders call; none without a handler.
    fn ticks() -> Option<MethodEntry> {
        None
    }

    /// True if only a constructor of the application makes it
    /// ([`host_with`](crate::SiloBuilder::host_with)).
    const CONSTRUCTOR: bool = false;

    /// The names of the stores where it has states.
    const STATE_STORES: &'static [&'static str] = &[];

    /// Version of the data of its states: 1, and one more with each new version of a state.
    const DATA_VERSION: u32 = 1;

    /// Placement of new activations; the silo's default strategy if the class names none.
    ///
    /// # Errors
    /// The data that the class gives to its placement director cannot be encoded.
    fn placement() -> Result<Placement, DataError> {
        Ok(Placement::default())
    }

    /// The services that a silo needs to host it.
    fn services() -> Vec<ServiceNeed> {
        Vec::new()
    }

    /// Makes the instance: state fields bound to the system store, the context where asked for, the
    /// rest default.
    ///
    /// # Errors
    /// A service is missing.
    fn create(ctx: &Ctx) -> Result<Self, ActivationError>;

    /// Binds the states of an instance that a constructor made.
    fn bind(&mut self, ctx: &Ctx) {
        let _ = ctx;
    }

    /// Runs the hook of its activation, if it has hooks.
    ///
    /// # Errors
    /// The hook's.
    fn run_activate(
        &mut self,
        ctx: &Ctx,
    ) -> impl Future<Output = Result<(), ActivationError>> + Send;

    /// Runs the hook of its deactivation, if it has hooks.
    fn run_deactivate(
        &mut self,
        ctx: &Ctx,
        reason: DeactivationReason,
    ) -> impl Future<Output = ()> + Send;

    /// Runs the hook of its arrival from another silo, if it has hooks.
    ///
    /// # Errors
    /// The hook's.
    fn run_arrive(&mut self, ctx: &Ctx)
    -> impl Future<Output = Result<(), ActivationError>> + Send;

    /// Asks the grain whether it may move.
    fn may_move(&self) -> bool;

    /// The fields that move with it.
    fn carried(&mut self) -> CarriedFields<'_>;

    /// Reads every state field from the system store.
    fn load(&mut self) -> impl Future<Output = Result<(), StateError>> + Send;
}
