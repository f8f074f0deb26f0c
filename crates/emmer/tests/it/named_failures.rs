//! A failure names the call: the type and the key of the grain, and the method. A program tells
//! failures apart by variants.

use emmer::calls::{CallTarget, Rejection};
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::prelude::*;
use emmer::test::{Cluster, World};
use emmer::{GrainFactory, SiloBuilder};
use tokio_util::sync::CancellationToken;

#[grain_interface(key = String, grain = "lamp")]
trait Lamp {
    async fn switch(&mut self, ms: u64) -> u64;
    async fn burst(&mut self);
    async fn again(&mut self) -> Result<u64, String>;
}

/// An interface that silos of a later version have.
#[grain_interface(key = String, grain = "lamp")]
trait Dimmer {
    async fn dim(&mut self) -> u64;
}

#[grain_interface(key = String, grain = "nowhere")]
trait Nowhere {
    async fn go(&self);
}

#[derive(Grain)]
struct LampGrain {
    #[context]
    ctx: Ctx,
}

impl Lifecycle for LampGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        if ctx.key().to_string() == "broken" {
            return Err(ActivationError::new("no bulb"));
        }
        Ok(())
    }
}

#[grain]
impl Lamp for LampGrain {
    async fn switch(&mut self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        ms
    }

    async fn burst(&mut self) {
        panic!("bang");
    }

    async fn again(&mut self) -> Result<u64, String> {
        let me = self.ctx.grains().grain::<dyn Lamp>("self");
        me.switch(0).await.map_err(|failure| failure.to_string())
    }
}

struct Unwilling;

impl Filter for Unwilling {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        if call.key().to_string() == "refused" {
            return call.refuse("not today");
        }
        next.run(call).await
    }
}

async fn cluster(world: &World) -> Cluster {
    let describe = move |silo: SiloBuilder| {
        silo.host::<dyn Lamp, LampGrain>().configure(|options| {
            options.limits.activation_queue_max = 1;
        })
    };
    world.cluster(3, describe).await
}

/// The failure names the call, in its text and in its parts.
fn names<E: std::fmt::Display>(failure: &CallError<E>, key: &str, method: &str) {
    let called = failure.call().unwrap();
    assert_eq!((called.grain_type(), called.method()), ("lamp", method), "{failure}");
    assert_eq!(called.key().map(ToString::to_string).as_deref(), Some(key));
    assert!(failure.to_string().starts_with(&format!("lamp/{key}.{method}: ")), "{failure}");
}

/// Every failure that a lamp can have, by this client, which may be outside or a silo's own.
async fn every_failure(client: GrainFactory) {
    let lamp = |key: &str| client.grain::<dyn Lamp>(key);
    // On each of the silos.
    for n in 0..6 {
        let key = format!("slow-{n}");
        let failure = lamp(&key).switch(300).timeout(millis(100)).await.unwrap_err();
        assert!(matches!(failure, CallError::Timeout { maybe_executed: true, .. }), "{failure}");
        names(&failure, &key, "switch");
        // It is busy still, and a second one waits.
        let waiting = tokio::spawn(lamp(&key).switch(0).timeout(millis(100)).into_future());
        tokio::time::sleep(millis(20)).await;
        let failure = lamp(&key).switch(0).await.unwrap_err();
        assert!(matches!(failure, CallError::Overloaded { .. }), "{failure}");
        names(&failure, &key, "switch");
        let failure = waiting.await.unwrap().unwrap_err();
        assert!(matches!(failure, CallError::Timeout { .. }), "{failure}");
        names(&failure, &key, "switch");

        let key = format!("bursts-{n}");
        let failure = lamp(&key).burst().await.unwrap_err();
        assert!(
            matches!(&failure, CallError::Panicked { message, .. } if message == "bang"),
            "{failure}"
        );
        names(&failure, &key, "burst");

        let token = CancellationToken::new();
        let key = format!("cancelled-{n}");
        let call = tokio::spawn(lamp(&key).switch(300).cancel_on(token.clone()).into_future());
        tokio::time::sleep(millis(20)).await;
        token.cancel();
        let failure = call.await.unwrap().unwrap_err();
        assert!(matches!(failure, CallError::Cancelled { .. }), "{failure}");
        names(&failure, &key, "switch");
    }
    let failure = lamp("broken").switch(0).await.unwrap_err();
    let CallError::Rejected { why: Rejection::ActivationFailed(why), .. } = &failure else {
        panic!("{failure:?}")
    };
    assert!(why.contains("no bulb"), "{why}");
    names(&failure, "broken", "switch");

    let long = "k".repeat(2_000);
    let failure = lamp(&long).switch(0).await.unwrap_err();
    let CallError::Rejected { why: Rejection::Refused(_), .. } = &failure else {
        panic!("{failure:?}")
    };
    assert!(failure.to_string().len() < 200, "{failure}");

    let failure = client.grain::<dyn Dimmer>("a").dim().await.unwrap_err();
    let CallError::Rejected { why: Rejection::NoSuchMethod(_), .. } = &failure else {
        panic!("{failure:?}")
    };
    names(&failure, "a", "dim");

    let failure = client.grain::<dyn Nowhere>("a").go().await.unwrap_err();
    let CallError::Rejected { why: Rejection::NoSuchGrainType(_), .. } = &failure else {
        panic!("{failure:?}")
    };
    assert!(failure.to_string().starts_with("nowhere/a.go: "), "{failure}");

    // A failure that a grain passes on as its own error still names the call that failed.
    let CallError::App(told) = lamp("self").again().await.unwrap_err() else { panic!() };
    assert!(told.starts_with("lamp/self.switch: deadlock: "), "{told}");
}

#[emmer::test(seeds = 3)]
async fn a_failure_names_the_grain_and_the_method_wherever_it_comes_from(world: World) {
    let cluster = cluster(&world).await;
    every_failure(cluster.client().await.grains()).await;
    let own = cluster.node(1).run(async |silo| every_failure(silo).await);
    own.await.unwrap();
}

#[emmer::test]
async fn a_failure_names_the_call_when_its_silo_dies_or_its_caller_stops(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Lamp, LampGrain>()).await;
    let client = cluster.client_of(|client| client.filter(Unwilling)).await;
    let failure = client.grain::<dyn Lamp>("refused").switch(0).await.unwrap_err();
    let CallError::Rejected { why: Rejection::Refused(why), .. } = &failure else {
        panic!("{failure:?}")
    };
    assert_eq!(why, "not today");
    names(&failure, "refused", "switch");
    let failure = client.grain::<dyn Lamp>("refused").switch(0).send().unwrap_err();
    names(&failure, "refused", "switch");

    let lamp = client.grain::<dyn Lamp>("a");
    let under_way = tokio::spawn(lamp.switch(5_000).into_future());
    tokio::time::sleep(millis(100)).await;
    cluster.kill(0);
    let failure = under_way.await.unwrap().unwrap_err();
    assert!(matches!(failure, CallError::Unreachable { maybe_executed: true, .. }), "{failure}");
    names(&failure, "a", "switch");
    let failure = lamp.switch(0).timeout(secs(1)).await.unwrap_err();
    names(&failure, "a", "switch");
    let failure = lamp.switch(0).send().unwrap_err();
    assert!(matches!(failure, CallError::Unreachable { maybe_executed: false, .. }), "{failure}");
    names(&failure, "a", "switch");

    client.close().await;
    let failure = lamp.switch(0).await.unwrap_err();
    names(&failure, "a", "switch");
}

#[test]
fn a_program_can_make_a_failure_to_test_itself_with() {
    let call = CallTarget::new("lamp", "a", "switch");
    let failure = CallError::<String>::Overloaded { call, detail: "too much".to_owned() };
    assert_eq!(failure.to_string(), "lamp/a.switch: overloaded: too much");
}

#[emmer::test]
async fn a_one_way_call_to_a_queue_that_is_known_to_be_full_is_refused(world: World) {
    let describe = move |silo: SiloBuilder| {
        silo.host::<dyn Lamp, LampGrain>().configure(|options| {
            options.limits.activation_queue_max = 3;
        })
    };
    let cluster = world.cluster(1, describe).await;
    let near = cluster.node(0).run(async |silo| {
        // One that is active, and one that is nowhere.
        for key in ["active", "nowhere"] {
            let lamp = silo.grain::<dyn Lamp>(key);
            if key == "active" {
                lamp.switch(0).await.unwrap();
            }
            lamp.switch(500).send().unwrap();
            for pause in [0, 100] {
                tokio::time::sleep(millis(pause)).await;
                let ends: Vec<_> = (0..20).map(|_| lamp.switch(0).send()).collect();
                let sent = ends.iter().take_while(|end| end.is_ok()).count();
                // Three in the queue, or one there and three in front of it.
                assert!(sent <= 4, "{key}: {sent} went on");
                for failure in ends.into_iter().skip(sent).map(Result::unwrap_err) {
                    assert!(matches!(failure, CallError::Overloaded { .. }), "{failure}");
                    names(&failure, key, "switch");
                }
            }
            // All that were taken run.
            tokio::time::sleep(secs(1)).await;
            lamp.switch(0).send().unwrap();
        }
    });
    near.await.unwrap();
}
