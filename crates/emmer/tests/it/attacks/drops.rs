//! Values that panic when they are dropped: an answer, an own error, an argument.

use std::future::IntoFuture;
use std::time::Duration;

use emmer::SiloBuilder;
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::prelude::*;
use emmer::tables::SiloStatus;
use emmer::test::World;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Panics when it is dropped, if it is armed.
#[derive(Debug, Default)]
pub struct Mine {
    armed: bool,
    /// The copy that arrives elsewhere is armed.
    next: bool,
}

/// Panics on the silo only.
const ANSWER: Mine = Mine { armed: true, next: false };

impl Serialize for Mine {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bool(self.next)
    }
}

impl<'de> Deserialize<'de> for Mine {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Ok(Self { armed: bool::deserialize(d)?, next: false })
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(!self.armed || std::thread::panicking(), "boom on purpose: drop of a value");
    }
}

#[grain_interface(key = String)]
trait Field {
    async fn answer(&self) -> Mine;
    async fn answer_later(&mut self) -> Mine;
    async fn error(&self) -> Result<(), Mine>;
    async fn error_later(&mut self) -> Result<(), Mine>;
    async fn argument(&mut self, mine: Mine);
    async fn argument_later(&self, mine: Mine);
    async fn piece(this: Interleaved<Self>, mine: Mine) -> Mine;
    async fn wait(&self, millis: u64) -> u64;
    async fn hold(&mut self, millis: u64);
    async fn boom_later(&mut self);
    async fn silo(&self) -> Option<String>;
}

#[derive(Grain, Default)]
#[placement(hash_based)]
struct FieldGrain {
    #[context]
    ctx: Option<Ctx>,
}

async fn a_moment() {
    tokio::time::sleep(millis(5)).await;
}

#[grain]
impl Field for FieldGrain {
    async fn answer(&self) -> Mine {
        ANSWER
    }
    async fn answer_later(&mut self) -> Mine {
        a_moment().await;
        ANSWER
    }
    async fn error(&self) -> Result<(), Mine> {
        Err(ANSWER)
    }
    async fn error_later(&mut self) -> Result<(), Mine> {
        a_moment().await;
        Err(ANSWER)
    }
    async fn argument(&mut self, mine: Mine) {
        drop(mine);
    }
    async fn argument_later(&self, mine: Mine) {
        a_moment().await;
        drop(mine);
    }
    async fn piece(this: Interleaved<Self>, mine: Mine) -> Mine {
        let _ = this.read(|_| ()).await;
        drop(mine);
        ANSWER
    }
    async fn wait(&self, millis: u64) -> u64 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
        millis
    }
    async fn hold(&mut self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    async fn boom_later(&mut self) {
        a_moment().await;
        panic!("boom on purpose: a turn");
    }
    async fn silo(&self) -> Option<String> {
        self.ctx.as_ref()?.silo().map(|silo| silo.to_string())
    }
}

/// Takes what a caller heard, and does not drop it.
fn heard<T>(answer: T) {
    std::mem::forget(answer);
}

/// Every form of it, for one grain.
async fn step_on_all(grains: &GrainFactory, me: Option<String>, key: &str) {
    let field = || grains.grain::<dyn Field>(key);
    // A grain goes where its key says, also after its instance broke.
    let is_near = field().silo().await.unwrap() == me;
    let answers = [field().answer().await, field().answer_later().await];
    assert!(answers.iter().all(Result::is_ok), "{key}: {answers:?}");
    heard(answers);
    let errors = [field().error().await, field().error_later().await];
    assert!(errors.iter().all(|e| matches!(e, Err(CallError::App(_)))), "{key}: {errors:?}");
    heard(errors);
    // A near grain gets the value itself, a far one a copy.
    let mine = || Mine { armed: is_near, next: true };
    let arguments = [field().argument(mine()).await, field().argument_later(mine()).await];
    let is_panic = |end: &Result<_, _>| matches!(end, Err(CallError::Panicked { .. }));
    assert!(arguments.iter().all(is_panic), "{key}: {arguments:?}");
    let piece = field().piece(mine()).await;
    assert!(matches!(piece, Err(CallError::Panicked { .. })), "{key}: {piece:?}");
    heard(piece);
    // A call that waits in vain takes its argument along.
    let inside = field().answer_later().into_future();
    let late = field().argument(mine()).timeout(millis(1)).into_future();
    let (inside, late) = tokio::join!(inside, late);
    assert!(late.is_err());
    heard(inside);
    field().answer().send().unwrap();
    field().answer_later().send().unwrap();
    field().error().send().unwrap();
    field().error_later().send().unwrap();
    field().argument(mine()).send().unwrap();
    field().argument_later(mine()).send().unwrap();
    field().piece(mine()).send().unwrap();
}

#[emmer::test(seeds = 5)]
async fn a_drop_that_panics_ends_no_call_but_its_own(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Field, FieldGrain>()).await;
    let outside = cluster.client().await;
    let bystanders = |grains: GrainFactory| async move {
        for n in 0..40_u64 {
            let field = grains.grain::<dyn Field>(format!("bystander{n}"));
            assert_eq!(field.wait(7).timeout(secs(1)).await, Ok(7), "bystander {n}");
        }
    };
    let start = world.elapsed();
    for node in [0, 1] {
        let me = cluster.node(node).address().to_string();
        let from_inside = cluster.node(node).run(async move |silo| {
            let steps = async {
                for n in 0..6 {
                    step_on_all(&silo, Some(me.clone()), &format!("g{n}")).await;
                }
            };
            tokio::join!(steps, bystanders(silo.clone()));
        });
        assert!(from_inside.await.is_some());
    }
    let from_outside = async {
        for n in 0..6 {
            step_on_all(&outside.grains(), None, &format!("g{n}")).await;
        }
    };
    tokio::join!(from_outside, bystanders(outside.grains()));
    assert!(world.elapsed() - start < secs(5), "{:?}", world.elapsed() - start);
    world.advance(secs(20)).await;
    for node in [0, 1] {
        let view = cluster.node(node).view();
        assert!(view.iter().all(|(_, status)| *status == SiloStatus::Active), "{view:?}");
        assert_eq!(cluster.node(node).statistics().calls_serving, 0);
    }
    for node in [1, 0] {
        let start = world.elapsed();
        cluster.stop(node).await;
        assert!(world.elapsed() - start <= millis(100), "{:?}", world.elapsed() - start);
    }
}

/// Calls that end before their turn, on this silo, on another one, and from a client. The caller's
/// task continues, and hears that an argument has panicked.
#[emmer::test(seeds = 5)]
async fn an_argument_that_panics_before_its_turn_fails_its_call(world: World) {
    let cluster = world.cluster(2, narrow).await;
    for node in [0, 1] {
        let inside = cluster.node(node).run(async move |silo| unlucky(&silo).await);
        assert!(inside.await.is_some());
    }
    let outside = cluster.client().await;
    unlucky(&outside.grains()).await;
}

async fn unlucky(grains: &GrainFactory) {
    let mine = || Mine { armed: true, next: false };
    let is_panic = |end: Result<_, _>, what: &str| {
        assert!(matches!(end, Err(CallError::Panicked { .. })), "{what}: {end:?}");
    };
    for n in 0..6 {
        let field = grains.grain::<dyn Field>(format!("unlucky{n}"));
        field.silo().await.unwrap();
        // Its deadline passes in the queue; the queue has room for one.
        let inside = field.hold(50).into_future();
        let late = field.argument(mine()).timeout(millis(10)).into_future();
        let full = async {
            tokio::time::sleep(millis(5)).await;
            field.argument(mine()).timeout(millis(10)).await
        };
        let (inside, late, full) = tokio::join!(inside, late, full);
        inside.unwrap();
        is_panic(late, "late");
        is_panic(full, "full");
        // The turn before it ends the activation.
        let inside = field.boom_later().into_future();
        let behind = field.argument_later(mine()).into_future();
        let (inside, behind) = tokio::join!(inside, behind);
        assert!(inside.is_err());
        is_panic(behind, "behind");
    }
    let nowhere = grains.grain::<dyn NotHosted>("a");
    is_panic(nowhere.argument(mine()).await, "not hosted");
    let long = grains.grain::<dyn Field>("k".repeat(2_000));
    is_panic(long.argument(mine()).await, "a long key");
}

/// Refuses one-way calls to some grains.
struct Unwilling;

impl Filter for Unwilling {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        if call.key().to_string() == "refused" { call.refuse("no") } else { next.run(call).await }
    }
}

#[grain_interface(key = String)]
trait NotHosted {
    async fn argument(&mut self, mine: Mine);
}

/// Whatever end a one-way call has, the `Drop` of its argument does not affect its caller.
#[emmer::test(seeds = 3)]
async fn a_one_way_call_whose_argument_panics_when_it_is_dropped_does_not_harm_its_caller(
    world: World,
) {
    let cluster = world.cluster(2, narrow).await;
    let inside = cluster.node(0).run(async move |silo| every_one_way(silo).await);
    assert!(inside.await.is_some());
    let outside = cluster.client().await;
    every_one_way(outside.grains()).await;
    outside.close().await;
    assert!(send(&outside.grains(), "a").is_err());
    let filtered = cluster.client_of(|client| client.filter(Unwilling)).await;
    assert!(send(&filtered.grains(), "refused").is_err());
    every_one_way(filtered.grains()).await;
}

/// A call that a filter refuses, and one that a filter gives up half way.
#[emmer::test(seeds = 3)]
async fn an_argument_of_a_refused_call_panics_its_call_only(world: World) {
    let cluster = world.cluster(2, |silo| narrow(silo).filter_outgoing(Unwilling)).await;
    let refused = async |grains: GrainFactory| {
        let field = grains.grain::<dyn Field>("refused");
        let ended = field.argument(Mine { armed: true, next: false }).await;
        assert!(matches!(ended, Err(CallError::Panicked { .. })), "{ended:?}");
    };
    let inside = cluster.node(0).run(async move |silo| refused(silo).await);
    assert!(inside.await.is_some());
    let filtered = cluster.client_of(|client| client.filter(Unwilling)).await;
    refused(filtered.grains()).await;
}

/// A filter of the silo passes the calls on. Some of them meet a limit behind it.
#[emmer::test(seeds = 3)]
async fn a_filter_between_them_changes_nothing(world: World) {
    let cluster = world.cluster(2, |silo| narrow(silo).filter_outgoing(Unwilling)).await;
    let inside = cluster.node(0).run(async move |silo| {
        assert!(send(&silo, "refused").is_err());
        every_one_way(silo).await;
    });
    assert!(inside.await.is_some());
}

fn narrow(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn Field, FieldGrain>().configure(|options| {
        options.limits.activation_queue_max = 1;
    })
}

fn send(grains: &GrainFactory, key: &str) -> Result<(), CallError<std::convert::Infallible>> {
    grains.grain::<dyn Field>(key).argument(Mine { armed: true, next: true }).send()
}

async fn every_one_way(grains: GrainFactory) {
    // Grains that are nowhere yet, grains that are active, on either silo.
    for n in 0..8 {
        for _ in 0..3 {
            let _ = send(&grains, &format!("one-way{n}"));
        }
        tokio::time::sleep(millis(10)).await;
        let _ = send(&grains, &format!("one-way{n}"));
        // Busy, and its queue is full.
        let busy = format!("busy{n}");
        let field = grains.grain::<dyn Field>(&busy);
        let turns = [field.wait(100).into_future(), field.wait(100).into_future()];
        let turns = tokio::spawn(async move {
            for turn in turns {
                let _ = turn.await;
            }
        });
        tokio::time::sleep(millis(10)).await;
        for _ in 0..4 {
            let _ = send(&grains, &busy);
        }
        turns.await.unwrap();
    }
    assert!(send(&grains, &"k".repeat(2_000)).is_err());
    let mine = Mine { armed: true, next: true };
    let _ = grains.grain::<dyn NotHosted>("a").argument(mine).send();
    tokio::time::sleep(secs(1)).await;
}
