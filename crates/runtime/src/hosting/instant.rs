//! Turns that are over in one poll.
//!
//! A method whose body waits for nothing needs no task and no box. When its grain is in memory and
//! no turn is inside, it runs in place, between taking the lock and giving it back. `#[grain]`
//! finds such methods. An obstacle (a turn inside, the fence, a grain that is not in memory) sends
//! the turn down the usual path.

use std::num::NonZeroU64;

use emmer_core::GrainId;
use emmer_net::clock::{CoarseInstant, Due};
use emmer_wire::CallChain;

use super::activation::{Exclusive, Held, Shared};
use super::class::{Instant, MethodEntry, Ran};
use super::gate::Gate;
use super::slot::empty;
use super::{Activation, Class, Ends, Sink, Slot, StartError, TurnEnd};
use crate::filters::{Around, FilterCall, Outcome, around_now};
use crate::hosting::TurnContext;
use crate::metrics::Ended;
use crate::trace;
use crate::turn::{DeactivationReason, MethodInfo, contain};

/// The lock of a turn.
enum Admitted<'a> {
    Exclusive(Exclusive<'a>, fn(&mut Exclusive<'_>, &mut dyn Slot) -> Ran),
    Shared(Shared<'a>, fn(&Shared<'_>, &mut dyn Slot) -> Ran),
}

impl Admitted<'_> {
    #[inline]
    fn run(&mut self, slot: &mut dyn Slot) -> Ran {
        match self {
            Self::Exclusive(lock, run) => run(lock, slot),
            Self::Shared(lock, run) => run(lock, slot),
        }
    }

    #[inline]
    fn done(self) {
        match self {
            Self::Exclusive(lock, _) => lock.done(),
            Self::Shared(lock, _) => lock.done(),
        }
    }
}

/// Runs the method, and gives the grain's lock back. A panic unwinds through the method's values
/// and the lock, as for a turn of its own, and breaks the activation.
#[inline]
fn contained_run(mut admitted: Admitted<'_>, slot: &mut dyn Slot) -> Result<Ran, String> {
    contain(move || {
        let ran = admitted.run(slot);
        if !matches!(ran, Ran::Waits) {
            admitted.done();
        }
        ran
    })
}

/// Runs the method as [`contained_run`] does, with the class's filters around it.
#[inline(never)]
fn filtered_run(
    class: &Class,
    info: &MethodInfo,
    grain: &GrainId,
    chain: &CallChain,
    admitted: Admitted<'_>,
    slot: &mut dyn Slot,
) -> Result<Ran, TurnEnd> {
    let call = FilterCall::in_place(info, grain, chain);
    let mut admitted = Some(admitted);
    let mut slot = Some(slot);
    let work = |context| {
        if let Some(context) = context {
            TurnContext::set_request_context(context);
        }
        // The work runs at most once.
        let (Some(admitted), Some(slot)) = (admitted.take(), slot.take()) else {
            return Ok(Ran::Waits);
        };
        contained_run(admitted, slot)
    };
    let outcome_of = |ran: &Result<Ran, String>| match ran {
        Ok(Ran::Done) => Outcome::done(),
        Ok(Ran::OwnError) => Outcome::own_error(),
        Ok(Ran::Waits) => Outcome::failed("the method waits"),
        Ok(Ran::Refused(why)) => Outcome::failed(why),
        Err(panic) => Outcome::failed(format_args!("the grain panicked: {panic}")),
    };
    let around = around_now(&class.filters, call, work, outcome_of);
    // A method that has not begun has changed nothing.
    admitted.into_iter().for_each(Admitted::done);
    match around {
        Around::Done(ran) => ran.map_err(TurnEnd::Panicked),
        Around::Refused(why) => Err(TurnEnd::Refused(why)),
        Around::GivenUp(why) => {
            Err(TurnEnd::Panicked(format!("a filter gave the method up half way: {why}")))
        }
    }
}

#[cold]
fn hidden_wait(method: &str) -> (TurnEnd, Ended) {
    let why = format!(
        "{method} waited inside a macro that looks like one of the standard library; write the \
         `.await` outside of it"
    );
    (TurnEnd::Panicked(why), Ended::Failed)
}

/// End of a turn in place; an error text if the arguments are of another method.
type InPlace = Result<(TurnEnd, Ended), String>;

impl Activation {
    /// See [`Held::run_instant`].
    #[inline(always)]
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
        let (admitted, now) = match entry.instant {
            Instant::No => return None,
            Instant::Exclusive(run) => {
                let lock =
                    self.gate.try_exclusive().or_else(|| self.gate.spin(Gate::try_exclusive))?;
                let now = self.open_now()?;
                (Admitted::Exclusive(lock.grain().ok()?, run), now)
            }
            Instant::Shared(run) => {
                let lock = self.gate.try_shared().or_else(|| self.gate.spin(Gate::try_shared))?;
                let now = self.open_now()?;
                (Admitted::Shared(lock.grain().ok()?, run), now)
            }
        };
        let timed = self.class.metrics.begin(usize::from(place)).then(|| self.host.clock.stamp());
        let context = TurnContext::instant(entry.info.exclusive, due.settle(now), chain.clone());
        let polling = self.host.metrics.watch.polling(method, now);
        let ended = TurnContext::scope_instant(me, context, || match ends {
            Ends::Local(slot) => self.in_place(entry, chain, admitted, *slot, None),
            Ends::Wire(body, sink) => self.arrived(entry, chain, admitted, body, sink),
        });
        polling.end();
        Some(self.after_instant(me, place, timed, ended, chain))
    }

    /// Runs the method with the arguments in a request's body.
    fn arrived(
        &self,
        entry: &MethodEntry,
        chain: &CallChain,
        admitted: Admitted<'_>,
        body: &[u8],
        sink: &mut Sink<'_>,
    ) -> InPlace {
        let mut ended = None;
        let mut admitted = Some(admitted);
        let decoded = contain(|| {
            (entry.arrive)(body, &mut |slot| {
                if let Some(admitted) = admitted.take() {
                    ended = Some(self.in_place(entry, chain, admitted, slot, Some(sink)));
                }
            })
        });
        // A method that has not begun has changed nothing.
        admitted.into_iter().for_each(Admitted::done);
        match (decoded, ended) {
            (_, Some(ended)) => ended,
            (Ok(Err(detail)), None) => Err(detail.to_string()),
            (Ok(Ok(())), None) => Err("no arguments".to_owned()),
            (Err(panic), None) => Err(panic),
        }
    }

    /// Runs the method with the arguments in `slot`; its output stays there where there is no
    /// `sink`.
    fn in_place(
        &self,
        entry: &MethodEntry,
        chain: &CallChain,
        admitted: Admitted<'_>,
        slot: &mut dyn Slot,
        sink: Option<&mut Sink<'_>>,
    ) -> InPlace {
        let ran = if self.class.filtered {
            filtered_run(&self.class, entry.info, &self.id, chain, admitted, slot)
        } else {
            contained_run(admitted, slot).map_err(TurnEnd::Panicked)
        };
        let ended = match (ran, sink) {
            (Ok(Ran::Done), None) => return Ok((TurnEnd::Done, Ended::Done)),
            (Ok(Ran::OwnError), None) => return Ok((TurnEnd::Done, Ended::OwnError)),
            (Ok(Ran::Done), Some(sink)) => return Ok(sink.deliver(slot, false)),
            (Ok(Ran::OwnError), Some(sink)) => return Ok(sink.deliver(slot, true)),
            (Ok(Ran::Waits), _) => hidden_wait(entry.info.name),
            (Ok(Ran::Refused(why)), _) => return Err(why),
            (Err(end), _) => (end, Ended::Failed),
        };
        empty(slot);
        Ok(ended)
    }

    #[inline]
    fn after_instant(
        &self,
        me: &Held,
        place: u16,
        timed: Option<NonZeroU64>,
        ended: InPlace,
        chain: &CallChain,
    ) -> Result<TurnEnd, StartError> {
        let (end, ended) = ended.map_err(StartError::BadArguments)?;
        if let TurnEnd::Panicked(text) = &end {
            me.activation().deactivate(DeactivationReason::Broken(text.clone()));
        }
        if ended != Ended::Done || timed.is_some() {
            self.note_instant(place, &end, (ended, timed), chain);
        }
        Ok(end)
    }

    /// A turn has ended that was timed or did not succeed.
    #[cold]
    #[inline(never)]
    fn note_instant(
        &self,
        place: u16,
        end: &TurnEnd,
        (ended, timed): (Ended, Option<NonZeroU64>),
        chain: &CallChain,
    ) {
        if ended == Ended::Failed {
            self.note_failure(place, end);
        }
        self.note_end(place, ended, timed, chain);
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
