//! The hold of a call on an activation; of a worker, for the length of one call.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer_core::SiloAddress;
use emmer_wire::CallChain;

use super::catalog::Catalog;
use super::{Activation, BoxTurn, Ends, Input, StartError, TurnEnd};
use emmer_net::clock::Due;

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

    /// Runs a turn in place, from its start to its end, if its method cannot suspend and nothing
    /// stands in its way. Else none, and nothing happened: [`start`](Self::start) it.
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

    /// Starts a turn for a call whose method the class does not have, so that the grain can be on
    /// `to`: this activation ends, and then the turn, which tells the caller where the grain is.
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
