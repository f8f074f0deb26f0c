//! Methods of an activation for the other parts of its silo.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_net::clock::{CoarseInstant, Due};
use emmer_store::BoxFuture;
use emmer_store::journal::JournalSlot;
use emmer_store::state::StateKind;
use emmer_wire::{CallChain, ChainLink};

use super::activation::Held;
use super::arriving::arriving;
use super::services::Services;
use super::{Activation, BoxTurn, Host, Input, StartError, TurnContext, TurnEnd};
use crate::metrics::{Ended, Outer, StateEnded, StateOperation};
use crate::turn::{Asker, DeactivationReason, contain};
use crate::waits::{self, Listed, Listing, Wait};

/// The round of a registration is above its activation's number.
const ROUND_SHIFT: u32 = 56;

impl Activation {
    /// The grain.
    pub(crate) const fn id(&self) -> &GrainId {
        &self.id
    }

    /// Its number on this silo.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Number of its registration in the directory: another one after each move that failed.
    pub(crate) fn registration(&self) -> u64 {
        self.registration_of(self.round.load(Ordering::Acquire))
    }

    /// Number of its registration in the directory after `round` moves that failed.
    pub(super) const fn registration_of(&self, round: u8) -> u64 {
        self.number | (round as u64) << ROUND_SHIFT
    }

    /// The part of the silo that it lives in.
    pub(crate) const fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The number of one of its methods; 0 for a class without.
    pub(crate) fn any_method(&self) -> u32 {
        self.class.number_of(0)
    }

    /// The name of its grain type.
    pub(crate) fn type_name(&self) -> &'static str {
        self.class.name
    }

    /// Returns true if it is of class `G`.
    pub(crate) fn is_of<G: 'static>(&self) -> bool {
        (self.class.info.type_id)() == std::any::TypeId::of::<G>()
    }

    /// The services of its silo.
    pub(crate) fn services(&self) -> Arc<Services> {
        self.host.services.clone()
    }

    /// Its state `name`, as all grains of its class have it; none when there is no such store
    /// (never, for a silo that has started).
    pub(crate) fn state_kind(
        &self,
        store: Option<&'static str>,
        name: &'static str,
    ) -> Option<Arc<StateKind>> {
        self.class
            .states
            .of((store, name), || Some(self.host.states.of(store)?.kind(self.class.name, name)))
    }

    /// The place of its journal `name`; none when there is no such store.
    pub(crate) fn journal_slot(&self, store: Option<&str>, name: &str) -> Option<JournalSlot> {
        Some(self.host.states.of(store)?.journal(self.class.name, self.id.key(), name))
    }

    /// Counts an operation on one of the grain's states.
    pub(crate) fn count_state(&self, operation: StateOperation, ended: StateEnded) {
        self.host.metrics.states.note(operation, ended);
    }

    /// The names of its reminders that have a handler.
    pub(crate) fn reminder_names(&self) -> &'static [&'static str] {
        self.class.info.reminders
    }

    /// Keeps the activation in memory for `duration` from now, even if it is idle.
    pub(crate) fn keep_for(&self, duration: Duration) {
        self.host.kept.keep(self.number, self.host.clock.now().after(duration));
    }

    /// Begins its deactivation, once. Turns that were admitted run first, and those that wait,
    /// unless the grain is broken or a duplicate: those are then resolved again.
    pub(crate) fn deactivate(self: &Arc<Self>, reason: DeactivationReason) {
        self.begin_closing(reason);
    }

    /// Starts a turn that keeps `held`, a hold on this activation.
    pub(super) fn start_for(
        self: Arc<Self>,
        held: Held,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: CallChain,
    ) -> Result<BoxTurn, StartError> {
        let Some((place, entry)) = self.class.method(method) else {
            return Err(StartError::NoSuchMethod);
        };
        self.check_queue()?;
        let timed = self.class.metrics.begin(usize::from(place)).then(|| self.host.clock.stamp());
        let (start, exclusive) = (entry.start, entry.info.exclusive);
        let mut context = TurnContext::new(held, place, exclusive, due, chain, timed);
        let started = match input {
            Input::Local(slot) => start(self, slot, context),
            Input::Wire(body) => {
                context.set_remote();
                let (grain, arrive) = (Held::from(self.clone()), entry.arrive);
                let (mut begins, mut started) = (Some((self, context)), None);
                let decoded = arriving(&grain, || {
                    contain(|| {
                        arrive(body, &mut |slot| {
                            let begins = begins.take();
                            started = begins.map(|(own, context)| start(own, slot, context));
                        })
                    })
                });
                match (decoded, started) {
                    (Ok(Ok(())), Some(started)) => started,
                    (Ok(Err(detail)), _) => Err(detail.to_string()),
                    (Ok(Ok(())), None) => Err("no arguments".to_owned()),
                    (Err(panic), _) => Err(panic),
                }
            }
        };
        started.map_err(StartError::BadArguments)
    }

    /// A poll of a turn of the method at `method` begins. Its result goes to
    /// [`poll_ends`](Self::poll_ends). None when the turn had begun and suspended (`goes_on`) and
    /// the fence is closed: it must not be polled.
    pub(crate) fn poll_begins(&self, method: u16, goes_on: bool) -> Option<Outer> {
        let now = self.host.clock.now();
        if goes_on && self.host.fence.is_closed_at(now) {
            return None;
        }
        Some(self.host.metrics.watch.begin(self.class.number_of(method), now))
    }

    /// Waits until the fence may be open. Never ends once the fence is shut for good.
    pub(crate) fn reopened(&self) -> BoxFuture<'static, ()> {
        let host = self.host.clone();
        Box::pin(async move {
            if host.fence.opened(&host.clock).await.is_err() {
                // The driver of the turn drops it.
                std::future::pending::<()>().await;
            }
        })
    }

    /// The poll is over.
    pub(crate) fn poll_ends(&self, outer: Outer) {
        self.host.metrics.watch.end(outer);
    }

    /// Notes that the turn inside suspends or resumes.
    pub(crate) fn note_suspended(&self, suspended: bool) {
        self.gate.line().set_suspended(suspended);
    }

    /// A turn of the method at `method` ended; `timed` says when it was started, if it is to be
    /// timed. `callers` are the turns that wait for it.
    pub(crate) fn note_end(
        &self,
        method: u16,
        ended: Ended,
        timed: Option<NonZeroU64>,
        callers: &[ChainLink],
    ) {
        let took = timed.map(|since| self.note_timed(method, ended, since, callers));
        self.class.metrics.end(usize::from(method), ended, took.flatten());
    }

    /// A turn that was timed has ended. Returns its duration if it is a sample.
    fn note_timed(
        &self,
        method: u16,
        ended: Ended,
        since: NonZeroU64,
        callers: &[ChainLink],
    ) -> Option<Duration> {
        let (host, took) = (&self.host, self.host.clock.since_stamp(since));
        if host.traces.is_on() {
            let caller = callers.last().map(|link| &link.grain);
            host.traces.note(&self.id, self.class.name_of(method), caller, since, (took, ended));
        }
        if !self.class.metrics.is_sample(since) {
            return None;
        }
        if host.metrics.hot.is_watched() {
            host.metrics.hot.note(&self.id, took);
        }
        Some(took)
    }

    /// Notes a failed turn of the method at `method`, for operators.
    #[cold]
    pub(crate) fn note_failure(&self, method: u16, end: &TurnEnd) {
        let words = match end {
            TurnEnd::Done | TurnEnd::Closed(_) => return,
            TurnEnd::Panicked(words) => format!("panicked: {words}"),
            TurnEnd::Unencodable(words) => format!("the answer cannot be encoded: {words}"),
            TurnEnd::Deadlock(words) => format!("deadlock: {words}"),
            TurnEnd::ActivationFailed(words)
            | TurnEnd::Dropped(words)
            | TurnEnd::Refused(words) => words.clone(),
        };
        let host = &self.host;
        host.failures.note(&self.id, self.class.name_of(method), &words, host.clock.now());
    }

    /// The number of turns that wait for it.
    pub(crate) fn waiting(&self) -> u32 {
        self.gate.line().waiting()
    }

    /// A tick of the clock for the turns that wait; false when none does.
    pub(crate) fn tick(&self, now: CoarseInstant) -> bool {
        self.gate.line().tick(now)
    }

    /// Lists a turn of this activation that has made a call and waits.
    pub(crate) fn list_turn(
        &self,
        turn: u64,
        caller: u64,
        asker: Option<Arc<Asker>>,
        holds: bool,
    ) -> Listing {
        let (gate, type_name, grain) = (self.number, self.class.name, self.id.clone());
        let turn = Listed { id: turn, caller, gate, holds, type_name, grain };
        self.host.waits.list(turn, asker)
    }

    /// Returns true if the directory holds a registration for it.
    pub(crate) fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// Returns true if it is a stateless worker, which the directory never knows.
    pub(crate) fn is_worker(&self) -> bool {
        self.class.info.workers_max.is_some()
    }

    /// Returns an error, `Overloaded`, if as many calls wait for it as may.
    pub(crate) fn check_queue(&self) -> Result<(), StartError> {
        let max = self.host.limits.activation_queue_max;
        let (line, max_len) = (self.gate.line(), usize::try_from(max).unwrap_or(usize::MAX));
        if line.waiting() < max || line.waiters() < max_len {
            return Ok(());
        }
        self.host.metrics.refused();
        Err(StartError::Overloaded(max))
    }

    /// Notes if the directory holds a registration for it. Called under the directory's lock only.
    pub(crate) fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    /// Begins the activation's deactivation after its idle time.
    pub(crate) fn collect_if_idle(self: &Arc<Self>, now: CoarseInstant) {
        if self.idle_for(now) >= self.class.idle && self.may_end(now) {
            self.deactivate(DeactivationReason::Idle);
        }
    }

    /// Returns true if no turn is inside and nothing keeps the activation in memory.
    pub(super) fn may_end(&self, now: CoarseInstant) -> bool {
        // A running turn holds the lock: a grain that is idle by the clock may be busy.
        self.gate.try_exclusive().is_some()
            && !self.host.timers.keep(self.number)
            && !self.host.kept.keeps(self.number, now)
    }

    /// Returns true if it was called within `span`.
    pub(crate) fn is_busy(&self, now: CoarseInstant, span: Duration) -> bool {
        self.waiting() > 0 || self.idle_for(now) < span
    }

    /// Returns true if no grain of its class moves.
    pub(crate) fn never_moves(&self) -> bool {
        self.is_worker() || self.class.info.stays
    }

    /// Returns true if no balance of silos has moved its grain lately.
    pub(crate) fn is_unsettled(&self, now: CoarseInstant) -> bool {
        self.host.kept.settled_for(self.number, now).is_zero()
    }

    /// No balance moves its grain again until then, wherever it is; none: any may.
    pub(crate) fn settle(&self, until: Option<CoarseInstant>) {
        self.host.kept.settle(self.number, until);
    }

    /// The time since it was last called.
    pub(crate) fn idle_for(&self, now: CoarseInstant) -> Duration {
        now.idle_since(self.last_used.load(Ordering::Relaxed))
    }
}

impl waits::Gate for Arc<Activation> {
    fn number(&self) -> u64 {
        self.number
    }

    fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        self.gate.waits(&mut waits);
        waits
    }

    fn doom(&self, ticket: u64, circle: String) {
        self.gate.line().doom(ticket, circle);
    }
}
