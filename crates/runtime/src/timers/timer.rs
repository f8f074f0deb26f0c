//! A timer: starting it, its ticks, its handle.

use std::any::type_name;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use emmer_core::Instant;
use emmer_net::{clock, warn_seldom};
use parking_lot::Mutex;
use tracing::Span;

use super::method::{TimerMethod, TimerTick};
use crate::calls::outset::failure_of;
use crate::cluster::moves::TimerMemory;
use crate::grain::{Ctx, LocalSlot};
use crate::hosting::{
    Activation, Begun, BoxTurn, ExpectedTimer, Sink, Stays, Timed, TimerEntry, TurnContext,
    TurnEnd, run_to_end, until_begun,
};
use crate::trace;
use crate::wheel::{Due, Place};

/// No timer ticks more often than this.
const LEAST: Duration = Duration::from_millis(10);
/// Ticks are put off to whole steps of this length: ticks of one step fire together, and wake the
/// silo up once.
const STEP: Duration = Duration::from_millis(10);
/// The step of a timer that waits for [`LONG`] or longer.
const LONG_STEP: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(10);
/// Thirty years are as good as never.
const MOST: Duration = Duration::from_secs(1_000_000_000);

impl Ctx {
    /// Begins to describe a timer of this activation: the first tick is `delay` after now.
    ///
    /// A tick is an ordinary turn. The timer is gone with the activation, and does not keep it in
    /// memory; what must survive it is a [reminder](Self::remind).
    ///
    /// ```ignore (needs the facade, whose tests compile it)
    /// self.ctx.timer(secs(5)).every(secs(5)).run(Self::sample);
    /// ```
    #[must_use = "a timer ticks once `run` says what to call"]
    pub fn timer(&self, delay: Duration) -> TimerBuilder {
        TimerBuilder { ctx: self.clone(), delay, period: None, keep: false }
    }
}

/// A timer that does not run yet.
#[must_use = "a timer ticks once `run` says what to call"]
pub struct TimerBuilder {
    ctx: Ctx,
    delay: Duration,
    period: Option<Duration>,
    keep: bool,
}

impl fmt::Debug for TimerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerBuilder").field("grain", self.ctx.grain_id()).finish_non_exhaustive()
    }
}

impl TimerBuilder {
    /// Ticks again this long after each tick has ended: ticks never pile up. Without it there is
    /// one tick. At least 10 ms, and exact to about as much; to 50 ms from 10 s on.
    pub const fn every(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// Keeps the grain in memory as long as the timer runs: it is not deactivated for being idle.
    pub const fn keep_alive(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Starts the timer. `method` is an `async fn` of the grain's class that takes `&mut self` (its
    /// ticks are exclusive turns) or `&self` (its ticks are shared turns). It returns nothing or a
    /// result. A failure goes to the log, and the timer stays.
    ///
    /// The timer runs on when the handle is dropped. A method of another class never runs: the log
    /// says so.
    pub fn run<M: 'static, F: TimerMethod<M>>(self, method: F) -> Timer {
        let method = Arc::new(method);
        self.start(
            type_name::<F>(),
            F::EXCLUSIVE,
            |activation| activation.is_of::<F::Grain>(),
            Box::new(move |activation, tick, context| {
                method.clone().start(activation, tick, context)
            }),
        )
    }

    fn start(
        self,
        name: &'static str,
        exclusive: bool,
        is_own: fn(&Activation) -> bool,
        method: Method,
    ) -> Timer {
        let Self { ctx, mut delay, mut period, keep } = self;
        let Some(activation) = ctx.activation() else { return Timer(Weak::new()) };
        if !is_own(&activation) {
            let grain = ctx.grain_id();
            tracing::error!(?grain, "a timer was to run a method of another class");
            return Timer(Weak::new());
        }
        let timers = &activation.host().timers;
        let of_hook = activation.is_waking();
        if of_hook {
            match timers.take_expected(activation.number(), name) {
                ExpectedTimer::Anything => {}
                ExpectedTimer::Timer(memory) => {
                    delay = Duration::from_millis(memory.left_ms);
                    period = memory.period_ms.map(Duration::from_millis);
                }
                ExpectedTimer::Nothing => return Timer(Weak::new()),
            }
        }
        let ticking = timers.add(activation.number(), |entry| Ticking {
            activation: Arc::downgrade(&activation),
            method,
            name,
            of_hook,
            exclusive,
            keep,
            state: Mutex::new(State { period, ..State::default() }),
            _entry: entry,
        });
        ticking.wait(&activation, delay);
        // The wheel holds it from now on, and its own turns.
        Timer(Arc::downgrade(&ticking))
    }
}

/// A timer of an activation. It can be changed and stopped; dropping it does neither. Cheap to
/// clone.
#[derive(Clone)]
pub struct Timer(Weak<Ticking>);

impl Timer {
    /// The next tick is `delay` after now, further ones as `every` says. A running tick is not
    /// affected. Does nothing when the timer is over.
    pub fn change(&self, delay: Duration, every: Option<Duration>) {
        if let Some(control) = self.0.upgrade() {
            control.change(delay, every);
        }
    }

    /// No further tick begins. A running tick is not affected.
    pub fn stop(&self) {
        if let Some(control) = self.0.upgrade() {
            control.stop();
        }
    }

    /// Returns true if no further tick will begin: the timer was stopped, has had its one tick, or
    /// its activation is gone.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|control| control.is_over())
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("is_over", &self.is_over()).finish()
    }
}

#[derive(Default)]
struct State {
    period: Option<Duration>,
    /// Its place in the wheel while it waits, and its next tick.
    place: Option<Place>,
    next: Instant,
    stopped: bool,
    /// A tick is under way.
    ticking: bool,
    /// The next tick was due before the last one ended: it was changed meanwhile.
    overdue: bool,
    /// It was changed since the tick that is under way began.
    changed: bool,
}

/// Starts a turn of a timer's method.
type Method = Box<dyn Fn(Arc<Activation>, TimerTick, TurnContext) -> BoxTurn + Send + Sync>;

pub(super) struct Ticking {
    activation: Weak<Activation>,
    method: Method,
    /// Name of the method.
    name: &'static str,
    /// True if the hook of the activation has started it: the hook of an arrival starts it again.
    of_hook: bool,
    /// True if the method takes `&mut self`.
    exclusive: bool,
    keep: bool,
    state: Mutex<State>,
    _entry: TimerEntry,
}

impl Ticking {
    /// Waits for the next tick.
    fn wait(self: &Arc<Self>, activation: &Activation, delay: Duration) {
        let host = activation.host();
        let at = in_steps(host.clock.mono() + delay.min(MOST), delay);
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        if let Some(before) = state.place.take() {
            host.wheel.take(before);
        }
        state.next = at;
        state.place = Some(host.wheel.put(at, self.clone()));
    }

    async fn tick(self: Arc<Self>, activation: Arc<Activation>) {
        let host = activation.host().clone();
        let mut slot = LocalSlot::<TimerTick>::empty();
        let end = loop {
            let due = clock::Due::after(host.response_timeout);
            let context = TurnContext::timer(activation.clone().into(), self.exclusive, due);
            let tick = TimerTick { keep: self.keep };
            let mut turn = (self.method)(activation.clone(), tick, context);
            turn.as_mut().set_driven();
            let mut sink = Sink::Local(&mut slot);
            // Most ticks are over in one poll, and need no notice of the silo's end.
            let first = poll_fn(|cx| Poll::Ready(turn.as_mut().poll_turn(cx, &mut sink))).await;
            if let Poll::Ready(end) = first {
                break end;
            }
            let begun = until_begun(&mut turn, &host.clock, &mut sink);
            match host.fence.unless_shut(begun).await {
                Ok(Begun::Over(end)) => break end,
                Ok(Begun::Running) => match run_to_end(turn, &host, &mut sink, None).await {
                    Ok(end) => break end,
                    Err(_) => return,
                },
                // The grain is busy: the tick waits on for its turn.
                Ok(Begun::Overdue) => {}
                Ok(Begun::Ended) | Err(_) => return,
            }
        };
        let failure = match (end, slot.output) {
            (TurnEnd::Closed(_), _) => return,
            (TurnEnd::Done, Some(Err(error))) => Some(error),
            (TurnEnd::Done, _) => None,
            (end, _) => Some(failure_of(end).to_string()),
        };
        if let Some(error) = failure {
            let grain = activation.title();
            warn_seldom!(grain, error, "a tick of a timer failed");
        }
        self.after_tick(&activation);
    }

    fn after_tick(self: &Arc<Self>, activation: &Activation) {
        let mut state = self.state.lock();
        state.ticking = false;
        let next = if std::mem::take(&mut state.overdue) {
            Some(Duration::ZERO)
        } else if state.changed {
            // The change has said when.
            return;
        } else {
            state.period.map(|period| period.max(LEAST))
        };
        state.stopped |= next.is_none();
        drop(state);
        if let Some(delay) = next {
            self.wait(activation, delay);
        }
    }
}

/// Puts a moment off to a whole step.
fn in_steps(at: Instant, delay: Duration) -> Instant {
    let step = if delay < LONG { STEP } else { LONG_STEP };
    let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos(at.as_nanos().div_ceil(step).saturating_mul(step))
}

impl Due for Ticking {
    fn fire(self: Arc<Self>) {
        let Some(activation) = self.activation.upgrade() else { return };
        let mut state = self.state.lock();
        state.place = None;
        if state.stopped {
            return;
        }
        if state.ticking {
            state.overdue = true;
            return;
        }
        (state.ticking, state.changed) = (true, false);
        drop(state);
        let spawner = activation.host().spawner.clone();
        let span = trace::of_call(|| false, || trace::timer(&activation.title()));
        let tick = self.tick(activation);
        drop(spawner.spawn(trace::within(span.unwrap_or_else(Span::none), tick)));
    }
}

impl Ticking {
    fn change(self: &Arc<Self>, delay: Duration, period: Option<Duration>) {
        let Some(activation) = self.activation.upgrade() else { return };
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        (state.period, state.changed, state.overdue) = (period, true, false);
        drop(state);
        self.wait(&activation, delay);
    }

    fn is_over(&self) -> bool {
        self.state.lock().stopped || self.activation.strong_count() == 0
    }
}

impl Timed for Ticking {
    fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        if let (Some(place), Some(activation)) = (state.place.take(), self.activation.upgrade()) {
            activation.host().wheel.take(place);
        }
    }

    fn keeps(&self) -> bool {
        self.keep && !self.is_over()
    }

    fn pack(&self, now: Instant) -> Result<Option<TimerMemory>, Stays> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let state = self.state.lock();
        if state.stopped {
            return Ok(None);
        }
        if state.ticking {
            return Err(Stays::Busy);
        }
        if !self.of_hook {
            return Err(Stays::Timer);
        }
        let left_ms = millis(state.next.saturating_since(now));
        let period_ms = state.period.map(millis);
        Ok(Some(TimerMemory { method: self.name.to_owned(), left_ms, period_ms }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_never_early_and_late_by_less_than_a_step() {
        for (delay, step) in [(0, 10), (10, 10), (9_999, 10), (10_000, 50), (86_400_000, 50)] {
            let delay = Duration::from_millis(delay);
            for now in [0, 1, 9_999_999, 10_000_000, 123_456_789_012_345] {
                let wanted = Instant::from_nanos(now) + delay;
                let late = in_steps(wanted, delay).saturating_since(wanted);
                assert!(in_steps(wanted, delay) >= wanted, "{delay:?} {now}");
                assert!(late < Duration::from_millis(step), "{delay:?} {now}: {late:?}");
            }
        }
    }
}
