//! Spans of calls, for programs that record traces: which calls have spans, and how a trace goes
//! from process to process.
//!
//! A call is traced if the span in which it is made is recorded or, without a span, if the dice say
//! so. Its header carries the trace, and every silo that it reaches continues the trace. A silo
//! never begins a trace for a call of another process. Calls that are not traced have no spans and
//! nothing in their headers.

use std::cell::Cell;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use emmer_core::SiloAddress;
use emmer_net::world;
use pin_project_lite::pin_project;
use tracing::Span;
use tracing::field::{Empty, display};
use tracing::span::Entered;

pub use emmer_wire::TraceContext;

/// The target of every span of the runtime, for filters.
pub const TARGET: &str = "emmer::trace";

/// Knows the ids of spans: the bridge between `tracing` and whatever records traces.
pub trait Tracer: Send + Sync + 'static {
    /// Returns the context of `span`; none if the recorder does not know the span.
    fn context(&self, span: &Span) -> Option<TraceContext>;

    /// Makes `span`, which was not entered yet, a child of a span of another process.
    fn adopt(&self, span: &Span, parent: &TraceContext);
}

/// This process traces already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("traces are switched on already")]
pub struct AlreadyTraced;

struct Tracing {
    tracer: Box<dyn Tracer>,
    /// A call begins a trace when the dice show less: the share of 2^64.
    begins_below: u64,
}

static TRACING: OnceLock<Tracing> = OnceLock::new();

/// Switches spans on for all calls of this process, until it ends. `share` is the part of the calls
/// made outside any span that begin a trace, from 0 to 1; reminders and timers count as such calls.
///
/// # Errors
/// [`AlreadyTraced`] after the first time.
pub fn trace_calls(tracer: impl Tracer, share: f64) -> Result<(), AlreadyTraced> {
    // The conversion of a float saturates, and makes 0 of NaN.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
    let begins_below = (share * 2f64.powi(64)) as u64;
    let tracing = Tracing { tracer: Box::new(tracer), begins_below };
    TRACING.set(tracing).map_err(|_| AlreadyTraced)
}

thread_local! {
    /// This thread is in a span of the runtime: every one of them is recorded.
    static TRACED: Cell<bool> = const { Cell::new(false) };
}

/// A span of the runtime that this thread is in.
pub(crate) struct InSpan<'a> {
    _entered: Entered<'a>,
    outer: bool,
}

/// Enters a span of the runtime.
pub(crate) fn enter(span: &Span) -> InSpan<'_> {
    InSpan { _entered: span.enter(), outer: TRACED.replace(true) }
}

impl Drop for InSpan<'_> {
    fn drop(&mut self) {
        TRACED.set(self.outer);
    }
}

impl Tracing {
    /// The context of the span in which this thread is.
    fn around(&self) -> Option<TraceContext> {
        let current = Span::current();
        // Most code is in no span.
        if current.is_none() { None } else { self.tracer.context(&current) }
    }

    fn draws(&self) -> bool {
        world::random_bits() < self.begins_below || self.begins_below == u64::MAX
    }
}

/// Returns true if a trace is recorded: bit 0 of its flags.
fn is_recorded(context: &TraceContext) -> bool {
    context.flags() & 1 != 0
}

/// The span of a call that is about to be made, if it is traced. `in_turn` returns the trace of the
/// turn that makes the call.
#[inline]
pub(crate) fn of_call(in_turn: impl FnOnce() -> bool, span: impl FnOnce() -> Span) -> Option<Span> {
    TRACING.get().and_then(|tracing| begin(tracing, in_turn, span))
}

fn begin(
    tracing: &Tracing,
    in_turn: impl FnOnce() -> bool,
    span: impl FnOnce() -> Span,
) -> Option<Span> {
    let begins = is_traced()
        || !in_turn()
            && match tracing.around() {
                Some(context) => is_recorded(&context),
                None => tracing.draws(),
            };
    begins.then(span).filter(|span| !span.is_disabled())
}

/// The span of a part of a traced call; elsewhere a span that does nothing.
#[inline]
pub(crate) fn part(span: impl FnOnce() -> Span) -> Span {
    if is_traced() { span() } else { Span::none() }
}

/// Returns true if this thread is in a span of the runtime.
#[inline]
pub(crate) fn is_traced() -> bool {
    TRACED.get()
}

/// The trace that a call made now carries.
#[inline]
pub(crate) fn carried() -> Option<TraceContext> {
    if is_traced() { TRACING.get().and_then(Tracing::around) } else { None }
}

/// The span in which this thread is, if that is recorded.
#[inline]
pub(crate) fn current() -> Span {
    if is_traced() { Span::current() } else { Span::none() }
}

/// Work that continues elsewhere, in the span in which this thread is now.
#[inline]
pub(crate) fn along<F: Future>(future: F) -> Within<F> {
    within(current(), future)
}

/// A future in its span.
#[inline]
pub(crate) fn within<F: Future>(span: Span, future: F) -> Within<F> {
    let span = if span.is_none() { None } else { Some(Box::new(span)) };
    Within { span, future }
}

pin_project! {
    /// A future that may have a span. Unlike the future of `tracing` it costs almost nothing
    /// without one.
    pub(crate) struct Within<F> {
        span: Option<Box<Span>>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _in_span = this.span.as_deref().map(enter);
        this.future.poll(cx)
    }
}

/// The span of a call that came with a trace; none if this process records none, or the caller says
/// that the trace is not recorded.
#[cold]
pub(crate) fn arrived(parent: &TraceContext, span: impl FnOnce() -> Span) -> Option<Span> {
    let tracing = TRACING.get().filter(|_| is_recorded(parent))?;
    let span = Some(span()).filter(|span| !span.is_disabled())?;
    tracing.tracer.adopt(&span, parent);
    Some(span)
}

/// Notes the silo that placement has chosen.
#[cold]
pub(crate) fn chosen(span: &Span, silo: SiloAddress) {
    span.record("emmer.chosen", display(silo));
}

/// Notes that what a span stands for failed.
#[cold]
pub(crate) fn failed(span: &Span, why: &dyn Display) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", display(why));
}

/// Makes a span of the runtime. All have the same fields, so they are made in one place.
macro_rules! span {
    ($name:literal, $kind:expr, $title:expr, $($field:tt)*) => {
        tracing::info_span!(
            target: TARGET,
            $name,
            otel.kind = $kind,
            otel.name = $title,
            otel.status_code = Empty,
            otel.status_description = Empty,
            $($field)*
        )
    };
}

/// The span of a call as its caller sees it: of the kind `client`, or `producer` if it is one-way.
pub(crate) fn call(kind: &str, interface: &str, method: &str, grain: &dyn Debug) -> Span {
    span!(
        "call",
        kind,
        format!("{interface}.{method}"),
        rpc.system = "emmer",
        rpc.service = interface,
        rpc.method = method,
        emmer.grain = debug(grain)
    )
}

/// A call of a client, as its gateway sees it.
pub(crate) fn gateway(silo: SiloAddress) -> Span {
    span!("gateway", "server", "gateway", emmer.silo = display(silo))
}

/// A call of another silo, as the silo sees it that it came to.
pub(crate) fn serve(silo: SiloAddress) -> Span {
    span!("serve", "server", "serve", emmer.silo = display(silo))
}

/// The span of a turn, from the moment in which it begins to wait for its grain.
pub(crate) fn turn(
    interface: &str,
    method: &str,
    grain: &dyn Display,
    silo: Option<SiloAddress>,
) -> Span {
    let title = format!("turn {interface}.{method}");
    span!("turn", "internal", title, emmer.grain = display(grain), emmer.silo = silo.map(display))
}

/// A silo is chosen for a grain that is nowhere.
pub(crate) fn placement() -> Span {
    span!("placement", "internal", "placement", emmer.chosen = Empty)
}

/// The directory is asked: `what` is `lookup` or `register`.
pub(crate) fn directory(what: &str) -> Span {
    span!("directory", "internal", format!("directory {what}"),)
}

/// The span of an activation: the grain's registration, state and hook.
pub(crate) fn activation(grain: &dyn Display) -> Span {
    span!("activation", "internal", "activation", emmer.grain = display(grain))
}

/// A state of a grain is read, written or cleared: `what`.
pub(crate) fn state(what: &str, name: &str) -> Span {
    span!("state", "client", format!("state {what}"), emmer.state = name)
}

/// A reminder fires.
pub(crate) fn reminder(grain: &dyn Display, name: &str) -> Span {
    span!("reminder", "internal", format!("reminder {name}"), emmer.grain = display(grain))
}

/// A timer ticks.
pub(crate) fn timer(grain: &dyn Display) -> Span {
    span!("timer", "internal", "timer", emmer.grain = display(grain))
}
