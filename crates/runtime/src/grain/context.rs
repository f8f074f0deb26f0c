//! The context of a grain: its knowledge of itself and of the cluster.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use emmer_core::{GrainId, GrainKey, SiloAddress};
use emmer_store::journal::JournalSlot;
use emmer_store::state::StateKind;
use tokio_util::sync::CancellationToken;

use super::reference::GrainFactory;
use crate::hosting::{Activation, Services, TurnContext};
use crate::turn::DeactivationReason;

/// A grain's view of itself and of the cluster. Cheap to clone; may be kept in a field marked
/// `#[context]`.
///
/// ```
/// fn rest(ctx: &emmer::Ctx) {
///     println!("{} on {:?} has nothing to do", ctx.key(), ctx.silo());
///     ctx.deactivate_on_idle();
/// }
/// ```
#[derive(Clone)]
pub struct Ctx {
    activation: Weak<Activation>,
    grains: GrainFactory,
    id: GrainId,
}

impl Ctx {
    /// The context of the grain of this activation; none when its silo is gone.
    pub(crate) fn of(activation: &Arc<Activation>) -> Option<Self> {
        let grains = GrainFactory::of(activation)?;
        Some(Self { activation: Arc::downgrade(activation), grains, id: activation.id().clone() })
    }

    /// The context of the grain whose turn runs on this thread now; none outside a turn.
    pub fn current() -> Option<Self> {
        TurnContext::with(|turn| {
            let activation = turn?.activation(|held| held.activation().clone())?;
            Self::of(&activation)
        })
    }

    /// The grain's identity.
    pub const fn grain_id(&self) -> &GrainId {
        &self.id
    }

    /// The grain's key, whatever its type. The key as its interface has it:
    /// `ctx.me::<dyn Cart>().key()`.
    pub const fn key(&self) -> &GrainKey {
        self.id.key()
    }

    /// The way to call other grains.
    pub const fn grains(&self) -> &GrainFactory {
        &self.grains
    }

    /// The silo that hosts this activation.
    pub fn silo(&self) -> Option<SiloAddress> {
        self.grains.silo()
    }

    /// Deactivates this activation once its running and waiting turns are over.
    pub fn deactivate_on_idle(&self) {
        if let Some(activation) = self.activation.upgrade() {
            activation.deactivate(DeactivationReason::Requested);
        }
    }

    /// Keeps this activation in memory for this time, even without calls. A later call of this
    /// method starts the time again. Deactivations for other reasons still happen.
    pub fn keep_for(&self, duration: Duration) {
        if let Some(activation) = self.activation.upgrade() {
            activation.keep_for(duration);
        }
    }

    /// Ready when no caller waits for the current call: its caller has dropped it, its token has
    /// fired, its deadline has passed, or its connection is lost. A caller on this silo that keeps
    /// its call without polling it still waits. Never ready in the turn of a one-way call, a timer
    /// or a hook.
    pub async fn cancelled(&self) {
        self.cancellation().await.cancelled().await;
    }

    /// A token that fires when [`cancelled`](Self::cancelled) is ready: for calls that this turn
    /// makes ([`Call::cancel_on`](super::Call::cancel_on)), and for other code that takes one.
    pub async fn cancellation(&self) -> CancellationToken {
        let mut is_second = false;
        let asker = poll_fn(|cx| {
            let asker = TurnContext::asker();
            if asker.is_some() || is_second {
                return Poll::Ready(asker);
            }
            // The caller is known once the turn has suspended.
            is_second = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        asker.await.map_or_else(CancellationToken::new, |asker| asker.token())
    }

    /// The service of type `T` that the silo was given, if any.
    pub fn service<T: ?Sized + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.services()?.get()
    }

    /// The services of the silo; none when it is gone.
    pub(crate) fn services(&self) -> Option<Arc<Services>> {
        Some(self.activation.upgrade()?.services())
    }

    /// The place of this grain's state `name`; none when the grain is already gone.
    pub(crate) fn state_kind(
        &self,
        store: Option<&'static str>,
        name: &'static str,
    ) -> Option<Arc<StateKind>> {
        self.activation.upgrade()?.state_kind(store, name)
    }

    /// The place of this grain's journal `name`; none when the grain is already gone.
    pub(crate) fn journal_slot(&self, store: Option<&str>, name: &str) -> Option<JournalSlot> {
        self.activation.upgrade()?.journal_slot(store, name)
    }

    /// The grain's type and key, for people.
    pub(crate) fn title(&self) -> String {
        let type_name = self.activation.upgrade().map(|activation| activation.type_name());
        format!("{}/{}", type_name.unwrap_or_default(), self.key())
    }

    /// A hold that keeps nothing.
    pub(crate) fn weak(&self) -> Weak<Activation> {
        self.activation.clone()
    }

    /// The activation, while it is there.
    pub(crate) fn activation(&self) -> Option<Arc<Activation>> {
        self.activation.upgrade()
    }

    pub(crate) fn break_activation(&self, why: String) {
        if let Some(activation) = self.activation.upgrade() {
            activation.deactivate(DeactivationReason::Broken(why));
        }
    }
}

impl fmt::Debug for Ctx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ctx").field("grain", &self.id).finish_non_exhaustive()
    }
}
