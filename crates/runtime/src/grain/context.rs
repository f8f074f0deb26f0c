//! Who is running: the context of a grain and of the turn on this thread.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};

use emmer_core::{GrainId, GrainKey, SiloAddress};
use emmer_store::state::StateSlot;
use emmer_wire::{CallChain, ChainLink, ChainTooLong};

use crate::activation::AnyActivation;
use crate::clock::CoarseInstant;
use crate::grain::{ClusterClient, DeactivationReason};

/// A grain's view of itself and of the cluster. Cheap to clone; may be kept in a field marked `#[context]`.
#[derive(Clone)]
pub struct Ctx {
    activation: Weak<dyn AnyActivation>,
    client: ClusterClient,
    id: GrainId,
}

impl Ctx {
    pub(crate) fn new(activation: &Arc<dyn AnyActivation>, client: ClusterClient) -> Self {
        Self { activation: Arc::downgrade(activation), client, id: activation.id().clone() }
    }

    /// The context of the grain whose turn runs on this thread now; none outside a turn.
    pub fn current() -> Option<Self> {
        TurnContext::with(|turn| {
            let activation = &turn?.activation;
            Some(Self::new(activation, activation.client()))
        })
    }

    /// The grain's identity.
    pub const fn grain_id(&self) -> &GrainId {
        &self.id
    }

    /// The grain's key.
    pub const fn key(&self) -> &GrainKey {
        self.id.key()
    }

    /// The way to call other grains.
    pub const fn client(&self) -> &ClusterClient {
        &self.client
    }

    /// The silo that hosts this activation.
    pub fn silo(&self) -> Option<SiloAddress> {
        self.client.silo()
    }

    /// Deactivates this activation once its running and waiting turns are over.
    pub fn deactivate_on_idle(&self) {
        if let Some(activation) = self.activation.upgrade() {
            activation.deactivate(DeactivationReason::Requested);
        }
    }

    /// The place of this grain's state `name`; none when the grain is already gone.
    pub(crate) fn state_slot(&self, name: &str) -> Option<StateSlot> {
        self.activation.upgrade()?.state_slot(name)
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

/// What is known about the turn that is being polled.
pub struct TurnContext {
    activation: Arc<dyn AnyActivation>,
    exclusive: bool,
    begun: bool,
    deadline: Option<CoarseInstant>,
    /// The chain that led here, this turn not included.
    chain: CallChain,
    /// The chain including this turn; made at the first nested call.
    own: Option<CallChain>,
}

thread_local! {
    static CURRENT: Cell<Option<TurnContext>> = const { Cell::new(None) };
}

impl TurnContext {
    pub(crate) const fn new(
        activation: Arc<dyn AnyActivation>,
        exclusive: bool,
        deadline: Option<CoarseInstant>,
        chain: CallChain,
    ) -> Self {
        Self { activation, exclusive, begun: false, deadline, chain, own: None }
    }

    /// Runs `poll` with the context in `slot` as the thread's current one, and puts it back.
    pub(crate) fn scope<R>(slot: &mut Option<Self>, poll: impl FnOnce() -> R) -> R {
        let outer = CURRENT.replace(slot.take());
        let result = poll();
        *slot = CURRENT.replace(outer);
        result
    }

    /// Looks at the thread's current turn.
    fn with<R>(look: impl FnOnce(Option<&mut Self>) -> R) -> R {
        let mut current = CURRENT.take();
        let result = look(current.as_mut());
        CURRENT.set(current);
        result
    }

    /// Notes that the current turn has begun: from now on it must run to its end.
    pub(crate) fn begin() {
        Self::with(|turn| {
            if let Some(turn) = turn {
                turn.begun = true;
            }
        });
    }

    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// The chain a call made now belongs to, and the deadline it inherits.
    ///
    /// # Errors
    /// [`ChainTooLong`] when the turn already stands at the deepest place a call may be made from.
    pub(crate) fn caller() -> Result<(CallChain, Option<CoarseInstant>), ChainTooLong> {
        Self::with(|turn| {
            let Some(turn) = turn else { return Ok((CallChain::EMPTY, None)) };
            let own = match &turn.own {
                Some(own) => own.clone(),
                None => {
                    let link = ChainLink { grain: turn.activation.id().clone(), exclusive: turn.exclusive };
                    turn.own.insert(turn.chain.push(link)?).clone()
                }
            };
            Ok((own, turn.deadline))
        })
    }

    pub(crate) fn break_activation(&self, why: &str) {
        self.activation.clone().deactivate(DeactivationReason::Broken(why.to_owned()));
    }
}
