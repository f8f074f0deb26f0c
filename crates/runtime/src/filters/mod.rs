//! Filters: an application's own code around calls.
//!
//! Outgoing filters run around each call of a silo's grains, or of a client. Incoming filters run
//! around the method, in the grain's turn. They see [`FilterCall`], and never the arguments or the
//! result.

mod around;

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use emmer_core::{GrainId, GrainKey};
use emmer_store::BoxFuture;
use emmer_wire::{CallChain, ContextError, RequestContext};
use parking_lot::Mutex;

use crate::access::Identity;
use crate::turn::{ContextKey, MethodInfo};

pub(crate) use around::{Around, around, around_now};

/// Code around calls, in the style of tower: it passes a call on, or refuses it, and sees its end.
///
/// ```ignore (needs the facade, whose book compiles it)
/// impl Filter for Timed {
///     async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
///         let (method, begun) = (call.method(), Instant::now());
///         let outcome = next.run(call).await;
///         tracing::info!(method, took = ?begun.elapsed(), %outcome);
///         outcome
///     }
/// }
/// ```
///
/// If it panics before it passes the call on, the call is refused; after that, the call's own end
/// stands. A filter that never ends holds up its call until the deadline; an incoming one holds up
/// its grain as a method would.
pub trait Filter: Send + Sync + 'static {
    /// False if [`call`](Self::call) awaits nothing but [`Next::run`]. A method that waits for
    /// nothing then runs in place with its filters, as it does without any, and costs less. A call
    /// whose filter waits all the same fails, and may have been executed.
    const WAITS: bool = true;

    /// Goes around a call: answers what `next.run(call)` answers, or `call.refuse(..)`.
    fn call(&self, call: FilterCall, next: Next<'_>) -> impl Future<Output = Outcome> + Send;
}

/// A filter whose future is in a box.
trait Boxed: Send + Sync {
    fn waits(&self) -> bool;

    /// Ready unless it waits.
    fn call_now(&self, call: FilterCall, next: Next<'_>) -> Poll<Outcome>;

    fn call<'a>(&'a self, call: FilterCall, next: Next<'a>) -> BoxFuture<'a, Outcome>;
}

impl<F: Filter> Boxed for F {
    fn waits(&self) -> bool {
        F::WAITS
    }

    fn call_now(&self, call: FilterCall, next: Next<'_>) -> Poll<Outcome> {
        pin!(Filter::call(self, call, next)).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn call<'a>(&'a self, call: FilterCall, next: Next<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(Filter::call(self, call, next))
    }
}

/// Some filters, outermost first; nothing if there are none.
#[derive(Clone, Default)]
pub(crate) struct Filters(Option<Arc<[Arc<dyn Boxed>]>>);

impl Filters {
    /// Puts one more inside of those that are there.
    pub(crate) fn add(&mut self, filter: impl Filter) {
        self.extend(&Self(Some(Arc::new([Arc::new(filter)]))));
    }

    /// Puts others inside of those that are there.
    pub(crate) fn extend(&mut self, others: &Self) {
        let all: Vec<_> = self.list().iter().chain(others.list()).cloned().collect();
        self.0 = (!all.is_empty()).then(|| all.into());
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if one of them may wait for something else than the call.
    pub(crate) fn wait(&self) -> bool {
        self.list().iter().any(|filter| filter.waits())
    }

    fn list(&self) -> &[Arc<dyn Boxed>] {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A call as a filter sees it.
pub struct FilterCall {
    interface: &'static str,
    method: &'static str,
    grain: GrainId,
    caller: Option<GrainId>,
    context: RequestContext,
    is_changed: bool,
}

impl FilterCall {
    /// The call of a turn that runs in place.
    pub(crate) fn in_place(method: &MethodInfo, grain: &GrainId, chain: &CallChain) -> Self {
        let caller = chain.last().map(|caller| caller.grain.clone());
        Self::new(method, grain, caller, chain.context().inherited())
    }

    /// A call of the grain `caller`, if a turn makes it, which takes `context` along.
    pub(crate) fn new(
        method: &MethodInfo,
        grain: &GrainId,
        caller: Option<GrainId>,
        context: RequestContext,
    ) -> Self {
        Self {
            interface: method.interface,
            method: method.name,
            grain: grain.clone(),
            caller,
            context,
            is_changed: false,
        }
    }

    /// The name of the interface's trait.
    pub const fn interface(&self) -> &'static str {
        self.interface
    }

    /// The name of the method.
    pub const fn method(&self) -> &'static str {
        self.method
    }

    /// The key of the grain that is called.
    pub const fn key(&self) -> &GrainKey {
        self.grain.key()
    }

    /// The grain that is called.
    pub const fn grain(&self) -> &GrainId {
        &self.grain
    }

    /// The grain whose turn waits for the call. None for a call of a client or a task, and for a
    /// one-way call.
    pub const fn caller(&self) -> Option<&GrainId> {
        self.caller.as_ref()
    }

    /// The identity of the client that the call comes from, over however many grains; none if it
    /// comes from none.
    pub fn identity(&self) -> Option<Identity> {
        Identity::read(&self.context)
    }

    /// Value that travels with the call under this key, if it is a `T`.
    pub fn get<T: std::str::FromStr>(&self, key: &ContextKey<T>) -> Option<T> {
        key.read(&self.context)
    }

    /// Sends a value along with the call, and with what follows from it.
    ///
    /// # Errors
    /// [`ContextError`]: there is no room for it.
    pub fn set<T: Display>(
        &mut self,
        key: &ContextKey<T>,
        value: impl Into<T>,
    ) -> Result<(), ContextError> {
        self.context = key.put(&self.context, value)?;
        self.is_changed = true;
        Ok(())
    }

    /// Refuses the call: its caller gets [`CallError::Rejected`](crate::turn::CallError) with
    /// these words, and nothing was executed.
    pub fn refuse(self, why: impl Into<String>) -> Outcome {
        Outcome(End::Refused(why.into()))
    }
}

impl fmt::Debug for FilterCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterCall({}.{} of {:?})", self.interface, self.method, self.grain)
    }
}

/// The way on: the filters inside of this one, and then the call itself.
pub struct Next<'a> {
    rest: &'a [Arc<dyn Boxed>],
    changed: &'a Mutex<Option<RequestContext>>,
    /// No filter has said that it waits.
    now: bool,
    end: Pin<&'a mut (dyn Future<Output = Outcome> + Send + 'a)>,
}

impl Next<'_> {
    /// Passes the call on, and waits for its end. A filter that drops this half way gives the call
    /// up, and answers [`Outcome::given_up`]; a grain whose method is given up so is deactivated.
    pub async fn run(self, call: FilterCall) -> Outcome {
        let Self { rest, changed, now, end } = self;
        match rest.split_first() {
            Some((first, rest)) if now => {
                match first.call_now(call, Next { rest, changed, now, end }) {
                    Poll::Ready(outcome) => outcome,
                    // The filters further out do not end either.
                    Poll::Pending => std::future::pending().await,
                }
            }
            Some((first, rest)) => first.call(call, Next { rest, changed, now, end }).await,
            None => {
                if call.is_changed {
                    *changed.lock() = Some(call.context);
                }
                end.await
            }
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Next({} filters)", self.rest.len())
    }
}

/// End of a call, for filters. It prints as words.
#[must_use = "a filter answers with it"]
pub struct Outcome(End);

#[derive(Debug)]
enum End {
    Done,
    OwnError,
    Failed(String),
    Refused(String),
}

impl Outcome {
    pub(crate) const fn own_error() -> Self {
        Self(End::OwnError)
    }

    pub(crate) const fn done() -> Self {
        Self(End::Done)
    }

    pub(crate) fn failed(why: impl Display) -> Self {
        Self(End::Failed(why.to_string()))
    }

    /// The answer of a filter that dropped [`Next::run`] half way: the call fails with these words,
    /// and may have been executed.
    pub fn given_up(why: impl Into<String>) -> Self {
        Self(End::Refused(why.into()))
    }

    /// The method ran, and did not return its own error.
    pub const fn is_ok(&self) -> bool {
        matches!(self.0, End::Done)
    }

    /// The method ran and returned its own error, `E` of `Result<T, E>`.
    pub const fn is_own_error(&self) -> bool {
        matches!(self.0, End::OwnError)
    }

    /// Why the call failed or was refused, if it was.
    pub fn failure(&self) -> Option<&str> {
        match &self.0 {
            End::Done | End::OwnError => None,
            End::Failed(why) | End::Refused(why) => Some(why),
        }
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            End::Done => f.write_str("ok"),
            End::OwnError => f.write_str("the method returned its own error"),
            End::Failed(why) => write!(f, "failed: {why}"),
            End::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outcome({self})")
    }
}
