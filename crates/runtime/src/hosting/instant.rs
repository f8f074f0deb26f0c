//! Turns that are over in one poll.
//!
//! A method whose body waits for nothing needs no task, no box and no place to come back to: when
//! its grain is there and nobody is inside, it is run in place, between taking the lock and giving
//! it back. `#[grain]` finds such methods; what stands in the way of a turn (somebody inside, the
//! fence, a grain that is not there yet) sends it down the usual path.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use emmer_wire::CallChain;

use super::contain::contain;
use super::gate::Gate;
use super::turn::deliver;
use super::{Activation, Exclusive, Input, RunActivation, Shared, Sink, StartError, TurnEnd};
use crate::clock::{CoarseInstant, Due};
use crate::filters::{Around, FilterCall, Outcome, around_now};
use crate::grain::{DeactivationReason, Grain, Method, TurnContext};
use crate::metrics::Ended;
use crate::trace;

/// How a method that cannot suspend is run in place.
pub enum Instant<G: Grain> {
    /// It can suspend.
    No,
    /// It takes `&mut self`.
    Exclusive(fn(Exclusive<'_, G>, InstantTurn<'_, '_>) -> InstantEnd),
    /// It takes `&self`.
    Shared(fn(Shared<'_, G>, InstantTurn<'_, '_>) -> InstantEnd),
}

impl<G: Grain> Clone for Instant<G> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<G: Grain> Copy for Instant<G> {}

/// A turn that is run in place: whose, who calls, where its arguments come from and where its
/// output goes.
pub struct InstantTurn<'a, 'sink> {
    activation: &'a Arc<dyn RunActivation>,
    /// Filters are around its method, none of which waits.
    filtered: bool,
    context: TurnContext,
    input: Input<'a>,
    sink: &'a mut Sink<'sink>,
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

impl<G: Send> Admitted for Exclusive<'_, G> {
    #[inline]
    fn done(self) {
        Self::done(self);
    }
}

impl<G: Sync> Admitted for Shared<'_, G> {
    #[inline]
    fn done(self) {
        Self::done(self);
    }
}

impl InstantTurn<'_, '_> {
    /// Runs `method`, and gives the grain's lock back.
    pub fn run<M: Method, L: Admitted>(
        self,
        mut admitted: L,
        method: impl FnOnce(&mut L, M) -> Poll<M::Output> + Send,
    ) -> InstantEnd {
        if self.filtered {
            return self.run_filtered(admitted, method);
        }
        let Self { activation, context, input, sink, .. } = self;
        let mut refused = None;
        let polled = TurnContext::scope_instant(activation, context, || {
            let args = match input.take::<M>() {
                Ok(args) => args,
                Err(detail) => {
                    admitted.done();
                    refused = Some(detail);
                    return Ok(Poll::Pending);
                }
            };
            // As for a turn of its own: a panic unwinds through the method's values and the lock,
            // and breaks the activation.
            contain(move || {
                let output = method(&mut admitted, args);
                if output.is_ready() {
                    admitted.done();
                }
                output
            })
        });
        if let Some(detail) = refused {
            return InstantEnd(Err(detail));
        }
        InstantEnd(Ok(ended::<M>(polled, sink)))
    }

    /// The same with filters around the method.
    #[inline(never)]
    fn run_filtered<M: Method, L: Admitted>(
        self,
        admitted: L,
        method: impl FnOnce(&mut L, M) -> Poll<M::Output> + Send,
    ) -> InstantEnd {
        let Self { activation, context, input, sink, .. } = self;
        let filters = activation.filters();
        let call = FilterCall::in_place::<M>(activation.id(), context.chain());
        let mut admitted = Some(admitted);
        let around = TurnContext::scope_instant(activation, context, || {
            let args = input.take::<M>()?;
            let work = |context| {
                if let Some(context) = context {
                    TurnContext::set_request_context(context);
                }
                // Nobody else takes it.
                let mut admitted = admitted.take();
                contain(move || {
                    let output = admitted.as_mut().map(|admitted| method(admitted, args));
                    let output = output.unwrap_or(Poll::Pending);
                    if output.is_ready() {
                        admitted.into_iter().for_each(Admitted::done);
                    }
                    output
                })
            };
            let outcome_of = |done: &Result<Poll<M::Output>, String>| match done {
                Ok(Poll::Ready(output)) => Outcome::of::<M>(output),
                Ok(Poll::Pending) => Outcome::failed("the method waits"),
                Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
            };
            Ok(around_now(filters, call, work, outcome_of))
        });
        // What was not begun has changed nothing.
        admitted.into_iter().for_each(Admitted::done);
        InstantEnd(match around {
            Err(detail) => Err(detail),
            Ok(Around::Done(polled)) => Ok(ended::<M>(polled, sink)),
            Ok(Around::Refused(why)) => Ok((TurnEnd::Refused(why), Ended::Failed)),
            Ok(Around::GivenUp(why)) => {
                let why = format!("a filter gave the method up half way: {why}");
                Ok((TurnEnd::Panicked(why), Ended::Failed))
            }
        })
    }
}

/// How a turn ended whose method was polled.
fn ended<M: Method>(
    polled: Result<Poll<M::Output>, String>,
    sink: &mut Sink<'_>,
) -> (TurnEnd, Ended) {
    match polled {
        Ok(Poll::Ready(output)) => {
            let own = if M::is_error(&output) { Ended::OwnError } else { Ended::Done };
            match deliver::<M>(output, sink) {
                unencodable @ TurnEnd::Unencodable(_) => (unencodable, Ended::Failed),
                end => (end, own),
            }
        }
        Ok(Poll::Pending) => (TurnEnd::Panicked(hidden_wait::<M>()), Ended::Failed),
        Err(text) => (TurnEnd::Panicked(text), Ended::Failed),
    }
}

#[cold]
fn hidden_wait<M: Method>() -> String {
    format!(
        "{} waited inside a macro that looks like one of the standard library; write the `.await` \
         outside of it",
        M::NAME
    )
}

impl<G: Grain> Activation<G> {
    /// See [`RunActivation::run_instant`].
    #[inline]
    pub(super) fn instant(
        &self,
        me: &Arc<dyn RunActivation>,
        method: u32,
        input: Input<'_>,
        due: Due,
        chain: &CallChain,
        sink: &mut Sink<'_>,
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
                let turn = InstantTurn { activation: me, filtered, context, input, sink };
                let ended = run(admitted, turn);
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
                let turn = InstantTurn { activation: me, filtered, context, input, sink };
                let ended = run(admitted, turn);
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
        me: &Arc<dyn RunActivation>,
        place: u16,
        timed: Option<NonZeroU64>,
        ended: InstantEnd,
    ) -> Result<TurnEnd, StartError> {
        let (end, ended) = ended.0.map_err(StartError::BadArguments)?;
        if let TurnEnd::Panicked(text) = &end {
            me.clone().deactivate(DeactivationReason::Broken(text.clone()));
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
