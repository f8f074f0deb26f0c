//! Turns that are over in one poll.
//!
//! A method whose body waits for nothing needs no task, no box and no place to come back to: when
//! its grain is there and nobody is inside, it is run in place, between taking the lock and giving
//! it back. `#[grain]` finds such methods; what stands in the way of a turn (somebody inside, the
//! fence, a grain that is not there yet) sends it down the usual path.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use emmer_wire::CallChain;

use super::contain::{contain, let_go};
use super::gate::Gate;
use super::slot::deliver;
use super::{Activation, Ends, Exclusive, Held, Shared, StartError, TurnEnd};
use crate::clock::{CoarseInstant, Due};
use crate::filters::{Around, FilterCall, Outcome, around_now};
use crate::grain::{DeactivationReason, Method, MethodInfo, TurnContext};
use crate::metrics::Ended;
use crate::trace;

/// How a method that cannot suspend is run in place.
#[derive(Clone, Copy)]
pub enum Instant {
    /// It can suspend.
    No,
    /// It takes `&mut self`.
    Exclusive(fn(Exclusive<'_>, InstantTurn<'_, '_>) -> InstantEnd),
    /// It takes `&self`.
    Shared(fn(Shared<'_>, InstantTurn<'_, '_>) -> InstantEnd),
}

/// A turn that is run in place: whose, who calls, where its arguments come from and where its
/// output goes.
pub struct InstantTurn<'a, 'e> {
    activation: &'a Held,
    /// Filters are around its method, none of which waits.
    filtered: bool,
    chain: &'a CallChain,
    ends: &'a mut Ends<'e>,
}

/// How such a turn ended.
pub struct InstantEnd(Result<(TurnEnd, Ended), String>);

/// Polls the future of a method that waits for nothing.
pub fn poll_now<T>(method: impl Future<Output = T>) -> Poll<T> {
    pin!(method).poll(&mut Context::from_waker(Waker::noop()))
}

/// The lock of a turn.
pub trait Admitted: Send {
    /// The turn is over.
    fn done(self);
}

impl Admitted for Exclusive<'_> {
    #[inline]
    fn done(self) {
        Self::done(self);
    }
}

impl Admitted for Shared<'_> {
    #[inline]
    fn done(self) {
        Self::done(self);
    }
}

impl InstantTurn<'_, '_> {
    /// Runs `method`, and gives the grain's lock back.
    pub fn run<M: Method, L: Admitted>(
        self,
        admitted: L,
        method: impl FnOnce(&mut L, M) -> Poll<M::Output> + Send,
    ) -> InstantEnd {
        let args = match self.ends.input().take::<M>() {
            Ok(args) => args,
            Err(detail) => {
                admitted.done();
                return InstantEnd(Err(detail));
            }
        };
        let mut output = None;
        let mut begins = Some((admitted, method, args));
        let ran = self.ran(M::INFO, &mut || {
            let Some((mut admitted, method, args)) = begins.take() else { return Ran::Waits };
            // As for a turn of its own: a panic unwinds through the method's values and the lock,
            // and breaks the activation.
            let Poll::Ready(done) = method(&mut admitted, args) else { return Ran::Waits };
            admitted.done();
            let ran = if M::is_error(&done) { Ran::OwnError } else { Ran::Done };
            output = Some(done);
            ran
        });
        // What was not begun has changed nothing.
        if let Some((admitted, ..)) = begins {
            admitted.done();
        }
        InstantEnd(Ok(match (ran, output) {
            (Ok(()), Some(output)) => deliver::<M>(output, &mut self.ends.sink()),
            (Ok(()), None) => hidden_wait(M::NAME),
            (Err(end), output) => {
                let_go(output);
                (end, Ended::Failed)
            }
        }))
    }

    /// Runs `method`, with the filters around it if there are any.
    fn ran(
        &self,
        info: &'static MethodInfo,
        method: &mut (dyn FnMut() -> Ran + Send),
    ) -> Result<(), TurnEnd> {
        if self.filtered {
            return self.ran_filtered(info, method);
        }
        contain(method).map(|_| ()).map_err(TurnEnd::Panicked)
    }

    #[inline(never)]
    fn ran_filtered(
        &self,
        info: &'static MethodInfo,
        method: &mut (dyn FnMut() -> Ran + Send),
    ) -> Result<(), TurnEnd> {
        let filters = &self.activation.class.filters;
        let call = FilterCall::in_place(info, self.activation.id(), self.chain);
        let work = |context| {
            if let Some(context) = context {
                TurnContext::set_request_context(context);
            }
            contain(method)
        };
        let outcome_of = |ran: &Result<Ran, String>| match ran {
            Ok(Ran::Done) => Outcome::done(),
            Ok(Ran::OwnError) => Outcome::own_error(),
            Ok(Ran::Waits) => Outcome::failed("the method waits"),
            Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
        };
        match around_now(filters, call, work, outcome_of) {
            Around::Done(ran) => ran.map(|_| ()).map_err(TurnEnd::Panicked),
            Around::Refused(why) => Err(TurnEnd::Refused(why)),
            Around::GivenUp(why) => {
                Err(TurnEnd::Panicked(format!("a filter gave the method up half way: {why}")))
            }
        }
    }
}

/// What a method came to that was polled once.
pub(crate) enum Ran {
    /// It returned, and not its own error.
    Done,
    /// It returned its own error.
    OwnError,
    /// It waits.
    Waits,
}

#[cold]
fn hidden_wait(method: &str) -> (TurnEnd, Ended) {
    let why = format!(
        "{method} waited inside a macro that looks like one of the standard library; write the \
         `.await` outside of it"
    );
    (TurnEnd::Panicked(why), Ended::Failed)
}

impl Activation {
    /// See [`Held::run_instant`].
    #[inline]
    pub(super) fn instant(
        &self,
        me: &Held,
        method: u32,
        ends: &mut Ends<'_>,
        due: Due,
        chain: &CallChain,
    ) -> Option<Result<TurnEnd, StartError>> {
        let (place, entry) = self.class.method(method)?;
        // The span of a turn is its own.
        if trace::is_traced() {
            return None;
        }
        let (watch, filtered) = (&self.host.metrics.watch, self.class.filtered);
        let (timed, ended) = match entry.instant {
            Instant::No => return None,
            Instant::Exclusive(run) => {
                let lock =
                    self.gate.try_exclusive().or_else(|| self.gate.spin(Gate::try_exclusive))?;
                let now = self.open_now()?;
                let admitted = lock.grain().ok()?;
                let timed = self.count(place);
                let context = TurnContext::instant(true, due.settle(now), chain.clone());
                let polling = watch.polling(method, now);
                let turn = InstantTurn { activation: me, filtered, chain, ends };
                let ended = TurnContext::scope_instant(me, context, || run(admitted, turn));
                polling.end();
                (timed, ended)
            }
            Instant::Shared(run) => {
                let lock = self.gate.try_shared().or_else(|| self.gate.spin(Gate::try_shared))?;
                let now = self.open_now()?;
                let admitted = lock.grain().ok()?;
                let timed = self.count(place);
                let context = TurnContext::instant(false, due.settle(now), chain.clone());
                let polling = watch.polling(method, now);
                let turn = InstantTurn { activation: me, filtered, chain, ends };
                let ended = TurnContext::scope_instant(me, context, || run(admitted, turn));
                polling.end();
                (timed, ended)
            }
        };
        Some(self.after_instant(me, place, timed, ended))
    }

    /// Counts the turn; when it was started, if it is one to be timed.
    #[inline]
    fn count(&self, place: u16) -> Option<NonZeroU64> {
        self.class.metrics.begin(usize::from(place)).then(|| self.host.clock.stamp())
    }

    #[inline]
    fn after_instant(
        &self,
        me: &Held,
        place: u16,
        timed: Option<NonZeroU64>,
        ended: InstantEnd,
    ) -> Result<TurnEnd, StartError> {
        let (end, ended) = ended.0.map_err(StartError::BadArguments)?;
        if let TurnEnd::Panicked(text) = &end {
            me.activation().deactivate(DeactivationReason::Broken(text.clone()));
        }
        if ended != Ended::Done || timed.is_some() {
            self.note_end(place, ended, timed);
        }
        Ok(end)
    }

    /// Asks the fence, under the grain's lock, and notes the grain's use.
    #[inline]
    fn open_now(&self) -> Option<CoarseInstant> {
        let now = self.host.clock.now();
        if self.host.fence.is_closed_at(now) {
            return None;
        }
        self.note_use(now);
        Some(now)
    }
}
