//! Spans of calls and their parents, in virtual time. The recorder is the test's own;
//! `emmer-telemetry` has a test with OpenTelemetry's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use emmer::prelude::*;
use emmer::reminders::Tick;
use emmer::test::{Cluster, World};
use emmer::trace::{TraceContext, Tracer, trace_calls};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument, Span, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// The part of the calls outside any span that begin a trace, for every test of this program.
const SHARE: f64 = 0.25;

#[grain_interface(key = u64)]
trait First {
    async fn silo(&self) -> String;
    /// Asks the second grain of this key.
    async fn ask(&mut self, key: u64) -> Result<String, String>;
    async fn tell(&mut self, key: u64) -> Result<(), String>;
    /// Streams what the second grain of this key says.
    async fn stream(&self, key: u64, to: Sink<String>) -> Result<(), String>;
    async fn refuse(&self) -> Result<(), String>;
    async fn fall(&mut self);
    async fn remind(&self) -> Result<(), String>;
    async fn tick(&self);
}

#[grain_interface(key = u64)]
trait Second {
    async fn silo(&self) -> String;
    async fn note(&mut self) -> Result<(), StateError>;
}

#[derive(Grain)]
struct FirstGrain {
    #[context]
    ctx: Ctx,
}

#[derive(Grain)]
struct SecondGrain {
    #[state("notes")]
    notes: Persistent<u64>,
    #[context]
    ctx: Ctx,
}

#[grain]
impl FirstGrain {
    #[reminder("look")]
    async fn look(&self, _: Tick) {
        let _ = self.ctx.grains().grain::<dyn Second>(78).silo().await;
    }

    async fn ticked(&mut self) {
        let _ = self.ctx.grains().grain::<dyn Second>(77).silo().await;
    }
}

#[grain]
impl First for FirstGrain {
    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    async fn ask(&mut self, key: u64) -> Result<String, String> {
        let second = self.ctx.grains().grain::<dyn Second>(key);
        second.silo().await.map_err(|error| error.to_string())
    }

    async fn tell(&mut self, key: u64) -> Result<(), String> {
        let second = self.ctx.grains().grain::<dyn Second>(key);
        second.note().send().map_err(|error| error.to_string())
    }

    async fn stream(&self, key: u64, to: Sink<String>) -> Result<(), String> {
        let second = self.ctx.grains().grain::<dyn Second>(key);
        to.send(second.silo().await.map_err(|e| e.to_string())?).await.map_err(|e| e.to_string())
    }

    async fn refuse(&self) -> Result<(), String> {
        Err("no".to_owned())
    }

    async fn fall(&mut self) {
        tokio::time::sleep(millis(1)).await;
        panic!("it falls");
    }

    async fn remind(&self) -> Result<(), String> {
        let asked = self.ctx.remind("look").after(secs(1)).every(secs(5)).await;
        asked.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn tick(&self) {
        self.ctx.timer(secs(1)).every(secs(1)).run(Self::ticked);
    }
}

#[grain]
impl Second for SecondGrain {
    async fn silo(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }

    async fn note(&mut self) -> Result<(), StateError> {
        self.notes.modify(|notes| *notes += 1);
        self.notes.write().await
    }
}

/// One span.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    trace: u128,
    parent: Option<u64>,
    fields: HashMap<&'static str, String>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Spans by their ids; what `tracing` calls each.
#[derive(Default)]
struct Spans {
    seen: Vec<Seen>,
    now: HashMap<Id, usize>,
    /// Traces that are not recorded.
    unrecorded: Vec<u128>,
}

thread_local! {
    static SPANS: RefCell<Spans> = RefCell::default();
}

struct Recorder;

impl<S: Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        SPANS.with_borrow_mut(|spans| {
            let around = context.current_span().id().cloned();
            let parent = attributes.parent().cloned().or(around);
            let parent = parent.and_then(|id| spans.now.get(&id)).copied();
            let own = spans.seen.len();
            let trace = parent.map_or(own as u128 + 1, |parent| spans.seen[parent].trace);
            let mut seen = Seen {
                name: attributes.metadata().name().to_owned(),
                trace,
                parent: parent.map(|at| at as u64),
                ..Seen::default()
            };
            attributes.record(&mut seen);
            spans.seen.push(seen);
            spans.now.insert(id.clone(), own);
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        SPANS.with_borrow_mut(|spans| {
            let at = spans.now[id];
            values.record(&mut spans.seen[at]);
        });
    }
}

struct Ids;

impl Tracer for Ids {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        SPANS.with_borrow(|spans| {
            let at = *spans.now.get(&span.id()?)?;
            let trace = spans.seen[at].trace;
            let flags = u8::from(!spans.unrecorded.contains(&trace));
            TraceContext::new(trace.to_be_bytes(), (at as u64 + 1).to_be_bytes(), flags)
        })
    }

    fn adopt(&self, span: &Span, parent: &TraceContext) {
        SPANS.with_borrow_mut(|spans| {
            let at = spans.now[&span.id().unwrap()];
            spans.seen[at].trace = u128::from_be_bytes(parent.trace_id());
            spans.seen[at].parent = Some(u64::from_be_bytes(parent.span_id()) - 1);
        });
    }
}

/// Records the spans of this thread.
fn record() -> tracing::subscriber::DefaultGuard {
    // Another test of this program may have been first.
    let _ = trace_calls(Ids, SHARE);
    SPANS.take();
    tracing::subscriber::set_default(tracing_subscriber::registry().with(Recorder))
}

fn seen() -> Vec<Seen> {
    SPANS.with_borrow(|spans| spans.seen.clone())
}

/// The names from this span out to its root.
fn way_out(seen: &[Seen], from: usize) -> Vec<String> {
    let outwards = |at: &usize| seen[*at].parent.map(|at| usize::try_from(at).unwrap());
    std::iter::successors(Some(from), outwards).map(|at| title(&seen[at])).collect()
}

fn title(span: &Seen) -> String {
    span.fields.get("otel.name").unwrap_or(&span.name).clone()
}

async fn cluster(world: &World, silos: usize) -> Cluster {
    let hosting = |silo: emmer::SiloBuilder| {
        silo.host::<dyn First, FirstGrain>().host::<dyn Second, SecondGrain>()
    };
    world.cluster(silos, hosting).await
}

#[emmer::test(seeds = 5)]
async fn a_trace_goes_through_a_gateway_and_two_grains_on_two_silos(world: World) {
    let cluster = Rc::new(cluster(&world, 3).await);
    let client = cluster.client().await;
    let _recording = record();
    // Before every silo knows where the grains are, and after.
    for key in [1, 1, 2, 2, 3, 3] {
        let root = tracing::info_span!("root");
        let before = seen().len();
        let ask = client.grain::<dyn First>(key).ask(key).into_future();
        let second = ask.instrument(root).await.unwrap();
        let seen = seen();
        let (turn, _) =
            seen.iter().enumerate().rfind(|(_, span)| title(span) == "turn Second.silo").unwrap();
        let trace = seen[turn].trace;
        assert!(seen[before..].iter().all(|span| span.trace == trace), "{seen:?}");
        assert_eq!(seen[turn].fields["emmer.silo"], second);
        // A call goes over a connection or stays, and may be passed on once.
        let mut way = way_out(&seen, turn);
        way.retain(|name| name != "serve");
        let expected = [
            "turn Second.silo",
            "call Second.silo",
            "turn First.ask",
            "gateway",
            "call First.ask",
            "root",
        ];
        let expected = expected.map(|name| name.strip_prefix("call ").unwrap_or(name));
        assert_eq!(way, expected);
        for span in &seen[before..] {
            assert!(
                span.name == "root" || !span.fields.contains_key("otel.status_code"),
                "{span:?}"
            );
        }
    }
    let seen = seen();
    let gateways = seen.iter().filter(|span| span.name == "gateway");
    let forwarded = gateways.filter(|gateway| {
        let hosts =
            seen.iter().filter(|s| s.trace == gateway.trace && title(s) == "turn First.ask");
        hosts.into_iter().any(|host| host.fields["emmer.silo"] != gateway.fields["emmer.silo"])
    });
    // With three silos no seed has all grains at their gateways and on one silo.
    let servings = seen.iter().filter(|span| span.name == "serve").count();
    assert!(forwarded.count() + servings > 0);
    for part in ["activation", "directory register", "placement", "state read"] {
        assert!(seen.iter().any(|span| title(span) == part), "no {part}");
    }
    let loads = seen.iter().enumerate().filter(|(_, span)| span.name == "state");
    for (at, _) in loads {
        assert_eq!(way_out(&seen, at)[1..3], ["activation", "turn Second.silo"]);
    }
}

#[emmer::test(seeds = 3)]
async fn a_streamed_call_is_part_of_its_trace(world: World) {
    let cluster = cluster(&world, 2).await;
    let client = cluster.client().await;
    let _recording = record();
    let reads = async {
        let mut parts = client.grain::<dyn First>(1).stream(1);
        let second = parts.next().await.unwrap().unwrap();
        assert!(parts.next().await.is_none());
        second
    };
    let second = reads.instrument(tracing::info_span!("root")).await;
    let seen = seen();
    let (turn, _) =
        seen.iter().enumerate().rfind(|(_, span)| title(span) == "turn Second.silo").unwrap();
    assert_eq!(seen[turn].fields["emmer.silo"], second);
    let mut way = way_out(&seen, turn);
    way.retain(|name| name != "serve");
    let expected =
        ["turn Second.silo", "Second.silo", "turn First.stream", "gateway", "First.stream", "root"];
    assert_eq!(way, expected);
}

#[emmer::test(seeds = 3)]
async fn a_call_that_its_caller_does_not_record_has_no_span_anywhere(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let _recording = record();
    let root = tracing::info_span!("root");
    SPANS.with_borrow_mut(|spans| spans.unrecorded.push(1));
    for key in 0..20 {
        let ask = client.grain::<dyn First>(key).ask(key).into_future();
        ask.instrument(root.clone()).await.unwrap();
    }
    assert_eq!(seen().len(), 1, "{:?}", seen());
}

#[emmer::test(seeds = 3)]
async fn a_share_of_the_calls_outside_any_span_begins_a_trace_and_no_turn_does(world: World) {
    const CALLS: u32 = 400;
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let _recording = record();
    for key in 0..u64::from(CALLS) {
        client.grain::<dyn First>(key % 10).ask(key % 10).await.unwrap();
    }
    let seen = seen();
    let roots: Vec<_> = seen.iter().filter(|span| span.parent.is_none()).collect();
    assert!(roots.iter().all(|span| title(span) == "First.ask"), "{roots:?}");
    let (traces, expected) = (roots.len() as f64, f64::from(CALLS) * SHARE);
    // Five times the standard deviation.
    assert!((traces - expected).abs() < 45.0, "{traces} traces");
    let turns = seen.iter().filter(|span| title(span) == "turn Second.silo").count();
    assert_eq!(turns, roots.len(), "a traced call has every part of its trace");
}

#[emmer::test(seeds = 3)]
async fn calls_that_nobody_waits_for_and_failures_are_in_the_trace(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let _recording = record();
    let root = tracing::info_span!("root");
    let tell = client.grain::<dyn First>(1).tell(1).into_future();
    tell.instrument(root.clone()).await.unwrap();
    let refuse = client.grain::<dyn First>(1).refuse().into_future();
    refuse.instrument(root).await.unwrap_err();
    world.advance(secs(5)).await;
    let seen = seen();
    let at = |name: &str| seen.iter().position(|span| title(span) == name).unwrap();
    let mut way = way_out(&seen, at("state write"));
    way.retain(|name| name != "serve");
    let expected = ["state write", "turn Second.note", "Second.note", "turn First.tell", "gateway"];
    assert_eq!(way[..5], expected);
    for failed in ["First.refuse", "turn First.refuse"] {
        assert_eq!(seen[at(failed)].fields["otel.status_code"], "ERROR");
    }
}

/// Polls a call once; true if it waits.
async fn waits<F: Future>(mut call: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await
}

#[emmer::test(seeds = 3)]
async fn a_turn_that_panics_or_is_given_up_leaves_no_trace_behind(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let _recording = record();
    let root = tracing::info_span!("root");
    let fall = client.grain::<dyn First>(1).fall().into_future();
    fall.instrument(root.clone()).await.unwrap_err();
    // One is polled once and kept, and one is dropped.
    let mut kept =
        Box::pin(client.grain::<dyn First>(2).fall().into_future().instrument(root.clone()));
    assert!(waits(kept.as_mut()).await);
    let mut dropped = Box::pin(client.grain::<dyn First>(3).fall().into_future().instrument(root));
    assert!(waits(dropped.as_mut()).await);
    drop(dropped);
    world.advance(secs(1)).await;
    let before = seen();
    let fallen = before.iter().find(|span| title(span) == "turn First.fall").unwrap();
    assert_eq!(fallen.fields["otel.status_description"], "it falls");
    // In any span of the threads, calls that their caller does not record have no span.
    let unrecorded = tracing::info_span!("unrecorded");
    let trace = seen().last().unwrap().trace;
    SPANS.with_borrow_mut(|spans| spans.unrecorded.push(trace));
    let count = seen().len();
    for key in 0..10 {
        let ask = client.grain::<dyn First>(key).ask(key).into_future();
        let _ = ask.instrument(unrecorded.clone()).await;
    }
    assert_eq!(seen().len(), count, "{:?}", seen().last());
}

#[emmer::test(seeds = 3)]
async fn a_share_of_reminders_and_timers_begins_traces(world: World) {
    let cluster = cluster(&world, 3).await;
    let client = cluster.client().await;
    let _recording = record();
    let unrecorded = tracing::info_span!("root");
    SPANS.with_borrow_mut(|spans| spans.unrecorded.push(1));
    let begin = async {
        client.grain::<dyn First>(1).remind().await.unwrap();
        client.grain::<dyn First>(1).tick().await.unwrap();
    };
    begin.instrument(unrecorded).await;
    world.advance(secs(300)).await;
    let seen = seen();
    let roots: Vec<_> = seen[1..].iter().filter(|span| span.parent.is_none()).collect();
    let count = |name: &str| roots.iter().filter(|span| title(span) == name).count();
    let (reminders, timers) = (count("reminder look"), count("timer"));
    assert_eq!(reminders + timers, roots.len(), "{roots:?}");
    assert!((3..32).contains(&reminders) && (40..120).contains(&timers), "{reminders} {timers}");
    let calls = seen.iter().enumerate().filter(|(_, span)| title(span) == "turn Second.silo");
    assert!(calls.clone().count() >= reminders + timers - 1);
    for (at, _) in calls {
        let way = way_out(&seen, at);
        let root = way.last().map(String::as_str);
        assert!(matches!(root, Some("timer" | "reminder look")), "{way:?}");
    }
}
