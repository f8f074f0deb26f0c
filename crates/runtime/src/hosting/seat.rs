//! A worker for the length of one call.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_store::BoxFuture;
use emmer_store::journal::JournalSlot;
use emmer_store::state::StateSlot;
use emmer_wire::CallChain;

use super::catalog::Catalog;
use super::{AnyActivation, BoxTurn, Ends, Input, RunActivation, StartError, TurnEnd};
use crate::calls::waits::{Asker, Listing, Wait};
use crate::clock::{CoarseInstant, Due};
use crate::filters::Filters;
use crate::grain::{ClusterClient, DeactivationReason, Services};
use crate::metrics::{Ended, Outer, StateEnded, StateOperation};
use crate::reminders::Reminding;

/// A stateless worker as the call sees it that has it for itself. The turn holds it, and whoever
/// drops it hands the worker over to the next call.
pub(crate) struct Seat {
    worker: Arc<dyn RunActivation>,
    catalog: Arc<Catalog>,
    /// The worker was handed over already.
    is_over: AtomicBool,
}

impl Seat {
    pub(super) fn new(worker: Arc<dyn RunActivation>, catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { worker, catalog: catalog.clone(), is_over: AtomicBool::new(false) })
    }

    /// Nobody is to have the worker after this one.
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

impl AnyActivation for Seat {
    fn id(&self) -> &GrainId {
        self.worker.id()
    }

    fn number(&self) -> u64 {
        self.worker.number()
    }

    fn type_name(&self) -> &'static str {
        self.worker.type_name()
    }

    fn keep_for(&self, duration: Duration) {
        self.worker.keep_for(duration);
    }

    fn services(&self) -> Arc<Services> {
        self.worker.services()
    }

    fn client(&self) -> Option<ClusterClient> {
        self.worker.client()
    }

    fn state_slot(&self, store: Option<&str>, name: &str) -> Option<StateSlot> {
        self.worker.state_slot(store, name)
    }

    fn journal_slot(&self, store: Option<&str>, name: &str) -> Option<JournalSlot> {
        self.worker.journal_slot(store, name)
    }

    fn count_state(&self, operation: StateOperation, ended: StateEnded) {
        self.worker.count_state(operation, ended);
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self.worker.clone().into_any()
    }

    fn reminding(&self) -> Reminding {
        self.worker.reminding()
    }

    fn deactivate(self: Arc<Self>, reason: DeactivationReason) {
        self.worker.clone().deactivate(reason);
    }
}

impl RunActivation for Seat {
    fn filters(&self) -> &Filters {
        self.worker.filters()
    }

    fn run_instant(
        &self,
        me: &Arc<dyn RunActivation>,
        method: u32,
        ends: &mut Ends<'_>,
        due: Due,
        chain: &CallChain,
    ) -> Option<Result<TurnEnd, StartError>> {
        self.worker.run_instant(me, method, ends, due, chain)
    }

    fn start(
        self: Arc<Self>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.worker.clone().start_for(self, method, input, due, chain)
    }

    fn start_for(
        self: Arc<Self>,
        held: Arc<dyn RunActivation>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        self.worker.clone().start_for(held, method, input, due, chain)
    }

    fn step_aside(
        self: Arc<Self>,
        _: SiloAddress,
        _: Due,
        _: CallChain,
    ) -> Result<BoxTurn, StartError> {
        // Another silo's worker takes the call.
        Err(StartError::NoSuchMethod)
    }

    fn poll_begins(&self, method: u16, goes_on: bool) -> Option<Outer> {
        self.worker.poll_begins(method, goes_on)
    }

    fn reopened(&self) -> BoxFuture<'static, ()> {
        self.worker.reopened()
    }

    fn poll_ends(&self, outer: Outer) {
        self.worker.poll_ends(outer);
    }

    fn note_suspended(&self, suspended: bool) {
        self.worker.note_suspended(suspended);
    }

    fn note_end(&self, method: u16, ended: Ended, timed: Option<NonZeroU64>) {
        self.worker.note_end(method, ended, timed);
    }

    fn waiting(&self) -> u32 {
        self.worker.waiting()
    }

    fn tick(&self, now: CoarseInstant) -> bool {
        self.worker.tick(now)
    }

    fn waits(&self, out: &mut Vec<Wait>) {
        self.worker.waits(out);
    }

    fn doom(&self, ticket: u64, circle: String) -> bool {
        self.worker.doom(ticket, circle)
    }

    fn list_turn(
        self: Arc<Self>,
        turn: u64,
        caller: u64,
        asker: Option<Arc<Asker>>,
        holds: bool,
    ) -> Listing {
        self.worker.clone().list_turn(turn, caller, asker, holds)
    }

    fn name(&self) -> String {
        self.worker.name()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn AnyActivation> {
        self.worker.clone().as_any()
    }

    fn is_registered(&self) -> bool {
        self.worker.is_registered()
    }

    fn is_worker(&self) -> bool {
        true
    }

    fn check_queue(&self) -> Result<(), StartError> {
        self.worker.check_queue()
    }

    fn is_free(&self) -> bool {
        self.worker.is_free()
    }

    fn set_registered(&self, registered: bool) {
        self.worker.set_registered(registered);
    }

    fn collect_if_idle(self: Arc<Self>, now: CoarseInstant) {
        self.worker.clone().collect_if_idle(now);
    }

    fn idle_for(&self, now: CoarseInstant) -> Duration {
        self.worker.idle_for(now)
    }

    fn close_and_wait(self: Arc<Self>, reason: DeactivationReason) -> BoxFuture<'static, ()> {
        self.worker.clone().close_and_wait(reason)
    }
}
