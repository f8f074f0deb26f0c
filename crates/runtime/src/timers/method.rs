//! The method that a timer runs: one of the class, alone or concurrent with others as its `self`
//! says.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::BytesMut;
use emmer_core::hash::name32;
use emmer_wire::{CodecError, codec};
use serde::{Deserialize, Serialize};

use crate::grain::{Grain, Interface, LocalSlot, Method, RawRef, boxed, not_admitted};
use crate::hosting::{Activation, BoxTurn, TurnContext, TurnOutcome};
use crate::reminders::TickResult;

/// The call that a timer's turn is: only a timer can make it.
#[derive(Debug, Serialize, Deserialize)]
pub struct TimerTick {
    pub(super) keep: bool,
}

/// The interface of [`TimerTick`].
#[derive(Debug)]
pub enum Timed {}

impl Interface for Timed {
    type Key = String;
    type Ref = RawRef;
    const NAME: &'static str = "Timer";
    const GRAIN_TYPE: &'static str = "";
    const VERSION: u32 = 1;
}

impl Method for TimerTick {
    type Interface = Timed;
    type Output = Result<(), String>;
    type Ok = ();
    type Err = String;
    const NAME: &'static str = "tick";
    const ID: u32 = name32("Timer.tick");
    const EXCLUSIVE: bool = true;

    fn encode_args(&self, out: &mut BytesMut) -> Result<(), CodecError> {
        codec::encode_into(out, self)
    }

    fn decode_args(body: &[u8]) -> Result<Self, CodecError> {
        codec::decode(body)
    }

    fn is_error(output: &Self::Output) -> bool {
        output.is_err()
    }

    fn split(output: Self::Output) -> Result<Self::Ok, Self::Err> {
        output
    }
}

/// A method that takes the grain and may use it while it runs.
pub trait Runs<'a, A: 'a>: Send + Sync + 'static {
    /// The method's result.
    type Output: TickResult;
    /// Its future.
    type Future: Future<Output = Self::Output> + Send + 'a;

    /// Begins to run.
    fn run(&self, grain: A) -> Self::Future;
}

impl<'a, A, F, T> Runs<'a, A> for F
where
    A: 'a,
    F: Fn(A) -> T + Send + Sync + 'static,
    T: Future + Send + 'a,
    T::Output: TickResult,
{
    type Output = T::Output;
    type Future = T;

    fn run(&self, grain: A) -> T {
        self(grain)
    }
}

/// Says of a method that it takes `&mut self`.
#[derive(Debug)]
pub struct Alone<G>(PhantomData<fn(G)>);

/// Says of a method that it takes `&self`.
#[derive(Debug)]
pub struct Beside<G>(PhantomData<fn(G)>);

/// A method that a timer can run: `async fn tick(&mut self)` or `async fn tick(&self)` of the
/// class, written `Self::tick`. It returns nothing, or a result.
#[diagnostic::on_unimplemented(
    message = "a timer cannot run this",
    label = "not an `async fn` of the class that takes `&mut self` or `&self` alone",
    note = "write `.run(Self::tick)` for `async fn tick(&mut self)`"
)]
pub trait TimerMethod<M>: Send + Sync + 'static {
    /// The class.
    type Grain: Grain;
    /// True if it takes `&mut self`.
    const EXCLUSIVE: bool;

    /// Starts a turn of it.
    #[doc(hidden)]
    fn start(
        self: Arc<Self>,
        activation: Arc<Activation>,
        tick: TimerTick,
        context: TurnContext,
    ) -> BoxTurn;
}

impl<G, F> TimerMethod<Alone<G>> for F
where
    G: Grain,
    F: for<'a> Runs<'a, &'a mut G>,
{
    type Grain = G;
    const EXCLUSIVE: bool = true;

    fn start(
        self: Arc<Self>,
        activation: Arc<Activation>,
        tick: TimerTick,
        context: TurnContext,
    ) -> BoxTurn {
        boxed::<TimerTick, _>(context, async move {
            let mut admitted = match activation.admit_timer_exclusive(tick.keep).await {
                Ok(admitted) => admitted,
                Err(closed) => return not_admitted(tick, closed),
            };
            let mut slot = LocalSlot::empty();
            let is_error = slot.put(self.run(admitted.grain::<G>()).await.told());
            admitted.done();
            (slot, TurnOutcome::Done { is_error })
        })
    }
}

impl<G, F> TimerMethod<Beside<G>> for F
where
    G: Grain,
    F: for<'a> Runs<'a, &'a G>,
{
    type Grain = G;
    const EXCLUSIVE: bool = false;

    fn start(
        self: Arc<Self>,
        activation: Arc<Activation>,
        tick: TimerTick,
        context: TurnContext,
    ) -> BoxTurn {
        boxed::<TimerTick, _>(context, async move {
            let admitted = match activation.admit_timer_shared(tick.keep).await {
                Ok(admitted) => admitted,
                Err(closed) => return not_admitted(tick, closed),
            };
            let mut slot = LocalSlot::empty();
            let is_error = slot.put(self.run(admitted.grain::<G>()).await.told());
            admitted.done();
            (slot, TurnOutcome::Done { is_error })
        })
    }
}
