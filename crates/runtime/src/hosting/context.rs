//! The context of the turn that this thread polls.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;

use emmer_core::GrainId;
use emmer_net::clock::{CoarseInstant, Due};
use emmer_wire::{CallChain, ChainLink, RequestContext};
use tracing::Span;

use super::Host;
use super::activation::{Activation, Held};
use super::ends::TurnEnd;
use super::gate::{Asks, Who};
use super::late;
use super::standing::{Listed, Stood};
use crate::metrics::{Ended, Outer};
use crate::trace;
use crate::turn::{Asker, DeactivationReason, MethodInfo};
use crate::waits::{Listing, next_turn};

/// The state of the turn that is being polled.
pub struct TurnContext {
    /// None: the activation in [`INSTANT`], of a turn that runs in place.
    activation: Option<Held>,
    /// The chain that led here; with this turn at its end once it has made a call.
    chain: CallChain,
    due: Due,
    /// Start of the turn, if the turn is timed.
    timed: Option<NonZeroU64>,
    method: u16,
    exclusive: bool,
    begun: bool,
    linked: bool,
    /// Bits for rare properties.
    marks: u8,
}

/// The call came from elsewhere.
const REMOTE: u8 = 1;
/// The caller has given the call up.
const ORPHAN: u8 = 1 << 1;
/// The turn waits in a cycle: [`DOOM`] names it.
const DOOMED: u8 = 1 << 2;
/// [`ASKER`] is this turn's.
const ASKED: u8 = 1 << 3;
/// The turn holds nothing of its grain while it waits.
const FREE: u8 = 1 << 4;
/// The chain has room for no other turn: its calls are refused.
const FULL: u8 = 1 << 6;
/// A task of the runtime polls the turn, and no code of the application keeps it. When it is called
/// it comes, as soon as a thread is free.
const DRIVEN: u8 = 1 << 5;
/// Wakes wait for the end of the poll: [`late`].
const LATE: u8 = 1 << 7;

thread_local! {
    /// The asker of the turn that is polled, if it is marked so.
    static ASKER: Cell<Option<Arc<Asker>>> = const { Cell::new(None) };
    /// The cycle that the turn was found in that is polled, if it is marked so.
    static DOOM: Cell<Option<String>> = const { Cell::new(None) };
}

thread_local! {
    // Without drop code, which would make every access check whether the value is alive. Nothing is
    // left behind: the code that puts a context here takes it out again before it returns.
    static CURRENT: RefCell<ManuallyDrop<Option<TurnContext>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

scoped_tls::scoped_thread_local! {
    // The grain whose turn runs in place on this thread. The caller lends it, and the turn counts
    // no hold of its own.
    static INSTANT: Held
}

/// Exchanges the context in the thread's hands with `context`.
#[inline]
fn exchange(context: &mut Option<TurnContext>) {
    // Borrowed only here and in `with`; neither runs user code meanwhile.
    CURRENT.with_borrow_mut(|current| std::mem::swap(&mut **current, context));
}

impl TurnContext {
    pub(crate) const fn new(
        activation: Held,
        method: u16,
        exclusive: bool,
        due: Due,
        chain: CallChain,
        timed: Option<NonZeroU64>,
    ) -> Self {
        let activation = Some(activation);
        Self {
            activation,
            chain,
            due,
            timed,
            method,
            exclusive,
            begun: false,
            linked: false,
            marks: 0,
        }
    }

    /// The context of a timer's turn, which has no caller.
    pub(crate) const fn timer(activation: Held, exclusive: bool, due: Due) -> Self {
        Self::new(activation, u16::MAX, exclusive, due, CallChain::EMPTY, None)
    }

    /// The context of a hook that holds its grain alone.
    pub(crate) fn hook(activation: Held, due: Due) -> Self {
        let mut hook = Self::new(activation, u16::MAX, true, due, CallChain::EMPTY, None);
        hook.begun = true;
        hook
    }

    /// The context of a turn that runs in place until `deadline`; its end is not told through it.
    pub(crate) const fn instant(
        exclusive: bool,
        deadline: CoarseInstant,
        chain: CallChain,
    ) -> Self {
        let (due, timed, method) = (Due::at(deadline), None, 0);
        Self {
            activation: None,
            chain,
            due,
            timed,
            method,
            exclusive,
            begun: true,
            linked: false,
            marks: 0,
        }
    }

    /// The context of a director that places `grain`. Its calls come behind those that wait for its
    /// answer, as if the grain made them.
    pub(crate) fn director(grain: GrainId, chain: &CallChain, due: Due) -> Self {
        let link = ChainLink { grain, exclusive: true, free: false, turn: next_turn() };
        let linked = chain.push(link);
        let (chain, marks) = linked.map_or_else(|_| (chain.clone(), FULL), |chain| (chain, 0));
        Self {
            activation: None,
            chain,
            due,
            timed: None,
            method: u16::MAX,
            exclusive: true,
            begun: true,
            linked: marks == 0,
            marks,
        }
    }

    /// Runs a turn of `activation` in place, with `context`.
    #[inline]
    pub(crate) fn scope_instant<R>(activation: &Held, context: Self, run: impl FnOnce() -> R) -> R {
        INSTANT.set(activation, || Self::scope(&mut Some(context), run))
    }

    pub(crate) fn activation<R>(&self, look: impl FnOnce(&Held) -> R) -> Option<R> {
        match &self.activation {
            Some(activation) => Some(look(activation)),
            None => INSTANT.is_set().then(|| INSTANT.with(look)),
        }
    }

    /// Runs `poll` with the context in `slot` as the thread's current one, and puts it back.
    #[inline(always)]
    pub(crate) fn scope<R>(slot: &mut Option<Self>, poll: impl FnOnce() -> R) -> R {
        exchange(slot);
        let result = poll();
        exchange(slot);
        if let Some(turn) = slot
            && turn.marks & LATE != 0
        {
            turn.marks &= !LATE;
            late::wake_all();
        }
        result
    }

    /// Wakes at the end of this poll of the current turn, or at once outside a turn.
    pub(crate) fn wake_late(waker: Waker) {
        if Self::with(|turn| turn.map(|turn| turn.marks |= LATE).is_some()) {
            late::wait(waker);
        } else {
            waker.wake();
        }
    }

    /// Looks at the thread's current turn.
    #[inline]
    pub(crate) fn with<R>(look: impl FnOnce(Option<&mut Self>) -> R) -> R {
        CURRENT.with_borrow_mut(|current| look(current.as_mut()))
    }

    /// Notes that the current turn has begun, at `now`: from now on it must run to its end.
    #[inline]
    pub(crate) fn begin(now: CoarseInstant) {
        Self::with(|turn| {
            if let Some(turn) = turn {
                turn.begun = true;
                turn.due = Due::at(turn.due.settle(now));
            }
        });
    }

    /// The deadline of the current turn, which has to wait from `now` on.
    pub(crate) fn deadline(now: CoarseInstant) -> CoarseInstant {
        Self::with(|turn| turn.map_or(CoarseInstant::LAST, |turn| turn.settle(now)))
    }

    /// This turn's deadline; a span counts from `now`, once and for all.
    pub(crate) const fn settle(&mut self, now: CoarseInstant) -> CoarseInstant {
        let at = self.due.settle(now);
        self.due = Due::at(at);
        at
    }

    #[inline]
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns true if later calls find the activation of this turn.
    pub(crate) fn is_settled(&self) -> bool {
        self.activation(|activation| activation.is_registered() || activation.is_worker())
            .unwrap_or(true)
    }

    /// Returns true if this thread polls a turn.
    pub(crate) fn is_in_turn() -> bool {
        Self::with(|turn| turn.is_some())
    }

    /// The span of this turn of `method`, if it is traced.
    pub(crate) fn span(&self, method: &MethodInfo) -> Option<Box<Span>> {
        trace::is_traced().then(|| {
            let grain = self.activation(|activation| activation.title()).unwrap_or_default();
            let silo = self.activation(|activation| activation.host().address);
            Box::new(trace::turn(method.interface, method.name, &grain, silo))
        })
    }

    /// The chain a call made now belongs to, and the deadline it inherits.
    ///
    /// # Errors
    /// The turn already stands at the deepest place a call may be made from: the turns before it.
    #[inline]
    pub(crate) fn caller() -> Result<(CallChain, Option<Due>), CallChain> {
        Self::with(|turn| {
            let Some(turn) = turn else { return Ok((CallChain::EMPTY, None)) };
            if !turn.linked {
                if turn.marks & FULL != 0 {
                    return Err(turn.chain.clone());
                }
                if let Some(grain) = turn.activation(|activation| activation.id().clone()) {
                    let (exclusive, free) = (turn.exclusive, turn.marks & FREE != 0);
                    let link = ChainLink { grain, exclusive, free, turn: next_turn() };
                    turn.chain = turn.chain.push(link).map_err(|_| turn.chain.clone())?;
                }
                turn.linked = true;
            }
            if turn.marks & ORPHAN != 0 {
                turn.cut_loose();
            }
            Ok((turn.chain.clone(), Some(turn.due)))
        })
    }

    /// The grain whose turn this thread polls.
    pub(crate) fn own_grain() -> Option<GrainId> {
        Self::with(|turn| turn?.activation(|activation| activation.id().clone()))
    }

    /// The grain whose turn waits for the current one, before that has made a call.
    pub(crate) fn calling_grain() -> Option<GrainId> {
        Self::with(|turn| Some(turn?.chain.last()?.grain.clone()))
    }

    /// The request context of the calls of the current turn; none outside a turn.
    pub(crate) fn request_context() -> Option<RequestContext> {
        Self::with(|turn| turn.map(|turn| turn.chain.context().inherited()))
    }

    /// Sends something else along with the calls that the current turn makes from now on. Returns
    /// false outside a turn.
    pub(crate) fn set_request_context(context: RequestContext) -> bool {
        Self::with(|turn| {
            let Some(turn) = turn else { return false };
            turn.chain = std::mem::take(&mut turn.chain).with_context(context);
            true
        })
    }

    /// Notes that the caller is gone: calls that the turn makes from now on have its link alone.
    #[cold]
    fn cut_loose(&mut self) {
        let own = self.chain.last().cloned();
        let alone = own.and_then(|own| CallChain::EMPTY.push(own).ok()).unwrap_or_default();
        self.chain = alone.with_context(self.chain.context().clone());
        self.marks &= !ORPHAN;
    }

    /// Returns true if a task of the runtime polls the current turn, whatever user code does.
    pub(crate) fn is_driven() -> bool {
        Self::with(|turn| turn.is_none_or(|turn| turn.marks & DRIVEN != 0))
    }

    /// The question of the current turn to the queue of the grain `id`, where it waits from `now`.
    pub(crate) fn asks(now: CoarseInstant, id: &GrainId) -> Asks {
        Self::with(|turn| {
            let Some(turn) = turn else { return Asks::until(CoarseInstant::LAST) };
            let who = turn.chain.last().map(|caller| Who {
                caller: caller.turn,
                since: now,
                suspect: turn.chain.iter().any(|l| l.grain == *id && l.holds_up(turn.exclusive)),
                remote: turn.marks & REMOTE != 0,
            });
            // A turn that has begun may keep its future without polling it.
            let driven = turn.marks & DRIVEN != 0 && !turn.begun;
            Asks { deadline: turn.settle(now), who, past: false, driven }
        })
    }

    /// The context of a turn that holds nothing of its grain while it waits.
    #[must_use]
    pub const fn interleaved(mut self) -> Self {
        self.marks |= FREE;
        self
    }

    /// The context of a turn that may run while others run.
    #[must_use]
    pub const fn concurrent(mut self) -> Self {
        self.exclusive = false;
        self
    }

    /// Returns true if a turn of the grain `id` waits for the current one, and holds its grain.
    pub(crate) fn comes_back(id: &GrainId) -> bool {
        Self::with(|turn| {
            turn.is_some_and(|turn| turn.chain.iter().any(|l| l.grain == *id && !l.free))
        })
    }

    /// As [`take_doom`](Self::take_doom), of the turn that is being polled.
    pub(crate) fn take_current_doom() -> Option<String> {
        Self::with(|turn| turn.and_then(Self::take_doom))
    }

    /// Notes that the call came from elsewhere.
    pub(crate) const fn set_remote(&mut self) {
        self.marks |= REMOTE | DRIVEN;
    }

    /// Notes that a task of the runtime polls the turn.
    pub(crate) const fn set_driven(&mut self) {
        self.marks |= DRIVEN;
    }

    /// The asker of the current turn, if it is known.
    pub(crate) fn asker() -> Option<Arc<Asker>> {
        let asked = Self::with(|turn| turn.is_some_and(|turn| turn.marks & ASKED != 0));
        if !asked {
            return None;
        }
        let asker = ASKER.take();
        ASKER.set(asker.clone());
        asker
    }

    /// The current turn cannot begin: it waits for itself.
    #[cold]
    pub(crate) fn doom(cycle: String) {
        Self::with(|turn| {
            if let Some(turn) = turn {
                turn.marks |= DOOMED;
                DOOM.set(Some(cycle));
            }
        });
    }

    /// The cycle that the turn was found in, in the poll that is just over.
    #[inline]
    pub(crate) fn take_doom(&mut self) -> Option<String> {
        if self.marks & DOOMED == 0 {
            return None;
        }
        self.marks &= !DOOMED;
        DOOM.take()
    }

    /// As [`scope`](Self::scope), of a turn that `asker` waits for.
    pub(crate) fn scope_asked<R>(
        slot: &mut Option<Self>,
        asker: &Arc<Asker>,
        poll: impl FnOnce() -> R,
    ) -> R {
        if let Some(turn) = slot {
            turn.marks |= if asker.waits() { ASKED } else { ASKED | ORPHAN };
        }
        let outer = ASKER.replace(Some(asker.clone()));
        let result = Self::scope(slot, poll);
        ASKER.set(outer);
        result
    }

    /// Puts a turn that waits, and has made calls, in the silo's list of such turns.
    pub(crate) fn list(&self, asker: Option<&Arc<Asker>>) -> Option<Listing> {
        let (link, outer) = self.linked.then(|| self.chain.split_last())??;
        let activation = self.activation.as_ref()?;
        let caller = outer.last().map_or(0, |caller| caller.turn);
        Some(activation.activation().list_turn(link.turn, caller, asker.cloned(), !link.free))
    }

    /// Lists the turn for operators, until the result is dropped; none for a turn of no grain.
    pub(super) fn list_standing<'a>(&self, host: &'a Host) -> Option<Listed<'a, Arc<Activation>>> {
        let activation = self.activation.as_ref()?.activation().clone();
        let (number, chain) = (activation.number(), (self.chain.clone(), self.linked));
        let stood = Stood::new(activation, self.method, chain, host.clock.now());
        Some(host.standing.list(number, stood))
    }

    /// Notes a failure for operators.
    #[cold]
    pub(crate) fn note_failure(&self, end: &TurnEnd) {
        if let Some(activation) = &self.activation {
            activation.note_failure(self.method, end);
        }
    }

    /// Returns true if the turn has made a call.
    #[inline]
    pub(crate) const fn has_called(&self) -> bool {
        self.linked
    }

    /// Returns true if a call may wait for the turn whose own wait is being checked.
    pub(crate) fn has_caller(&self) -> bool {
        self.chain.len() > usize::from(self.linked)
    }

    pub(crate) fn break_activation(&self, why: &str) {
        if let Some(activation) = self.activation.clone() {
            activation.activation().deactivate(DeactivationReason::Broken(why.to_owned()));
        }
    }

    /// Tells the silo that this thread polls the turn; none when it `goes_on` and the fence is
    /// closed.
    pub(crate) fn poll_begins(&self, goes_on: bool) -> Option<Outer> {
        match &self.activation {
            Some(activation) => activation.poll_begins(self.method, goes_on),
            None => Some(Outer::default()),
        }
    }

    /// Waits until the fence may be open.
    pub(crate) fn reopened(&self) -> emmer_store::BoxFuture<'static, ()> {
        match &self.activation {
            Some(activation) => activation.reopened(),
            None => Box::pin(std::future::ready(())),
        }
    }

    /// Tells the silo that the poll is over.
    pub(crate) fn poll_ends(&self, outer: Outer) {
        if let Some(activation) = &self.activation {
            activation.poll_ends(outer);
        }
    }

    /// Tells the activation that the turn suspends while it holds the grain, or continues.
    pub(crate) fn note_suspended(&self, suspended: bool) {
        if let Some(activation) = &self.activation {
            activation.note_suspended(suspended);
        }
    }

    /// Tells the counters how the turn ended.
    #[inline]
    pub(crate) fn note_end(&self, ended: Ended) {
        if let Some(activation) =
            self.activation.as_ref().filter(|_| ended != Ended::Done || self.timed.is_some())
        {
            let own = usize::from(self.linked);
            let callers = self.chain.get(..self.chain.len().saturating_sub(own));
            activation.note_end(self.method, ended, self.timed, callers.unwrap_or_default());
        }
    }
}
