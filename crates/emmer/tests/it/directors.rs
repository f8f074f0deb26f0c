//! Directors with knowledge of silos, directors that wait, and directors with hints; filters by
//! metadata.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use emmer::errors::StartError;
use emmer::placement::{DirectorError, PlacementContext, PlacementRequest, PlacementTarget};
use emmer::prelude::*;
use emmer::tables::SiloAddress;
use emmer::test::{Cluster, World};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::common::class;

/// The sample of the book; its main function runs three silos on real sockets.
#[path = "../../examples/fixed_silo.rs"]
#[allow(missing_docs, unreachable_pub)]
mod fixed_silo;

#[test]
fn the_sample_with_a_database_that_answers_late_runs() {
    fixed_silo::main().unwrap();
}

#[derive(Serialize, Deserialize)]
struct Region {
    zone: String,
    spare: Option<u32>,
}

class!(ByZone, ByZoneGrain, #[placement("zone", Region { zone: "b".to_owned(), spare: Some(2) })]);
class!(Late, LateGrain, #[placement("late")]);
class!(Plain, PlainGrain,);
class!(Ssd, SsdGrain, #[placement(require("disk" = "ssd"))]);
class!(SameZone, SameZoneGrain, #[placement(random, require("zone"))]);
class!(Gpu, GpuGrain, #[placement(prefer("gpu" = "yes", "zone"))]);
class!(Tape, TapeGrain, #[placement(require("disk" = "tape"))]);

/// A silo of each zone, the second with a fast disk: they are called `a`, `b` and `c`.
async fn zones(
    world: &World,
    describe: impl Fn(emmer::SiloBuilder) -> emmer::SiloBuilder + 'static,
) -> Cluster {
    let begun = AtomicU32::new(0);
    let cluster = world
        .cluster(3, move |silo| {
            let n = begun.fetch_add(1, Ordering::Relaxed) as usize;
            let zone = ["a", "b", "c"][n % 3];
            let silo = silo.metadata("zone", zone).metadata("disk", ["hdd", "ssd", "hdd"][n % 3]);
            let silo = silo.configure(|options| {
                options.name = Some(format!("silo {zone}"));
                options.role = Some(format!("role {zone}"));
                (options.update_zone, options.fault_zone) = (n as i32, -7);
            });
            describe(silo)
        })
        .await;
    // By then all have told their metadata.
    tokio::time::sleep(secs(5)).await;
    cluster
}

#[emmer::test(seeds = 3)]
async fn a_director_sees_of_each_silo_what_it_is_and_how_loaded(world: World) {
    let by_zone = |target: &PlacementTarget<'_>, context: &PlacementContext<'_>| {
        let Region { zone, spare } = target.data().unwrap();
        assert_eq!(spare, Some(2));
        for silo in context.candidates() {
            let zone = silo.metadata("zone").unwrap();
            assert_eq!(silo.name(), format!("silo {zone}"));
            assert_eq!(silo.role(), format!("role {zone}"));
            assert_eq!(silo.fault_zone(), -7);
            assert_eq!(["a", "b", "c"][silo.update_zone() as usize], zone);
            assert!(!silo.host().is_empty() && silo.load().is_some());
            assert_eq!(silo.metadata("nothing"), None);
        }
        context.candidates().find(|silo| silo.metadata("zone") == Some(&zone)).map(|s| s.address())
    };
    let cluster =
        zones(&world, move |silo| silo.host::<dyn ByZone, ByZoneGrain>().director("zone", by_zone))
            .await;
    let client = cluster.client().await;
    for key in 0..10 {
        let at = client.grain::<dyn ByZone>(key).silo().await.unwrap();
        assert_eq!(at, cluster.node(1).address());
    }
}

#[emmer::test(seeds = 3)]
async fn classes_go_where_their_filters_let_them(world: World) {
    let cluster = zones(&world, move |silo| {
        silo.host::<dyn Ssd, SsdGrain>()
            .host::<dyn SameZone, SameZoneGrain>()
            .host::<dyn Gpu, GpuGrain>()
            .host::<dyn Tape, TapeGrain>()
    })
    .await;
    for n in 0..3 {
        let here = cluster.node(n).address();
        let found = cluster.node(n).run(async move |silo| {
            let mut found = Vec::new();
            for key in 0..10 {
                let key = key + 100 * n as u64;
                found.push((
                    silo.grain::<dyn Ssd>(key).silo().await.unwrap(),
                    silo.grain::<dyn SameZone>(key).silo().await.unwrap(),
                    silo.grain::<dyn Gpu>(key).silo().await.unwrap(),
                ));
            }
            found
        });
        for (ssd, same, preferred) in found.await.unwrap() {
            assert_eq!(ssd, cluster.node(1).address());
            assert_eq!(same, here);
            assert_eq!(preferred, here, "no silo has a gpu, and one has the zone");
        }
    }
    let call = cluster.node(0).run(async |silo| silo.grain::<dyn Tape>(1u64).silo().await);
    let said = call.await.unwrap().unwrap_err().to_string();
    assert!(said.contains("\"disk\" = \"tape\""), "{said}");
}

/// Returns its silo, and the director's request for a call that this grain makes.
#[grain_interface(key = u64)]
trait Front {
    async fn silo(&self) -> SiloAddress;
    async fn next(&self, key: u64) -> SiloAddress;
}

#[derive(Grain, Default)]
#[placement("hinted")]
struct FrontGrain {
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Front for FrontGrain {
    async fn silo(&self) -> SiloAddress {
        self.ctx.as_ref().unwrap().silo().unwrap()
    }

    async fn next(&self, key: u64) -> SiloAddress {
        let ctx = self.ctx.as_ref().unwrap();
        ctx.grains().grain::<dyn Front>(key).silo().await.unwrap()
    }
}

/// The place that the call says; without a word the first one for a client, the last for a grain.
fn hinted(target: &PlacementTarget<'_>, context: &PlacementContext<'_>) -> Option<SiloAddress> {
    if let Some(caller) = target.caller {
        assert!(target.grain.key().to_string().parse::<u64>().unwrap() >= 100, "by {caller}");
    }
    let otherwise = if target.caller.is_some() { 2 } else { 0 };
    let place: usize = target.hint().unwrap_or(otherwise);
    context.silos.get(place).copied()
}

#[emmer::test(seeds = 3)]
async fn a_call_says_something_to_the_director_and_what_follows_does_not(world: World) {
    let cluster = zones(&world, move |silo| {
        silo.host::<dyn Front, FrontGrain>()
            .host::<dyn Plain, PlainGrain>()
            .director("hinted", hinted)
    })
    .await;
    let mut silos: Vec<_> = cluster.nodes().iter().map(emmer::test::Node::address).collect();
    silos.sort_unstable();
    let client = cluster.client().await;
    let front = |key| client.grain::<dyn Front>(key);
    assert_eq!(front(1).silo().await.unwrap(), silos[0]);
    assert_eq!(front(2).silo().hint(1).await.unwrap(), silos[1]);
    // The call of the grain carries no hint, and its director learns the calling grain.
    assert_eq!(front(3).next(100).hint(1).await.unwrap(), silos[2]);
    // An in-built strategy goes to the silo that the call names.
    for (key, silo) in (0..9).zip(silos.iter().cycle()) {
        let at = client.grain::<dyn Plain>(key).silo().hint(silo).await.unwrap();
        assert_eq!(at, *silo);
    }
    // A grain that is active stays where it is.
    assert_eq!(front(2).silo().hint(0).await.unwrap(), silos[1]);
    let long = "x".repeat(5_000);
    let error = front(4).silo().hint(long).await.unwrap_err();
    assert!(matches!(error, CallError::Rejected { .. }), "{error}");
}

/// A director that waits until it is let through.
#[derive(Clone)]
struct Gate {
    asked: Arc<AtomicU32>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Self { asked: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    async fn choose(self, request: PlacementRequest) -> Result<Option<SiloAddress>, DirectorError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let key: u64 = request.grain().key().to_string().parse()?;
        match key {
            1_000 => panic!("no idea"),
            1_001 => return Ok(None),
            1_002 => return Err("the database is away".into()),
            1_003 => return Ok(Some("10.9.9.9:1:1".parse()?)),
            _ => {}
        }
        self.open.acquire().await?.forget();
        Ok(request.candidates().next().map(|silo| silo.address()))
    }
}

async fn gated(world: &World) -> (Cluster, Gate) {
    let gate = Gate::new();
    let own = gate.clone();
    let describe = move |silo: emmer::SiloBuilder| {
        let gate = own.clone();
        silo.host::<dyn Late, LateGrain>()
            .host::<dyn Plain, PlainGrain>()
            .async_director("late", move |request| gate.clone().choose(request))
    };
    (world.cluster(3, describe).await, gate)
}

#[emmer::test(seeds = 3)]
async fn calls_wait_for_a_director_share_its_answer_and_hold_nobody_up(world: World) {
    let (cluster, gate) = gated(&world).await;
    let waiting = cluster.node(0).run(async |silo| {
        let calls = (0..50).map(|_| silo.grain::<dyn Late>(1u64).silo());
        let calls = calls.map(async |call| call.await.unwrap());
        futures_util::future::join_all(calls).await
    });
    let mut waiting = Box::pin(waiting);
    let others = cluster.node(0).run(async |silo| {
        for key in 0..20u64 {
            silo.grain::<dyn Plain>(key).silo().await.unwrap();
        }
    });
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("nobody has let it through"),
        done = others => done.unwrap(),
    }
    gate.open.add_permits(1);
    let found: BTreeSet<_> = waiting.await.unwrap().into_iter().collect();
    assert_eq!(found.len(), 1);
    assert_eq!(gate.asked.load(Ordering::Relaxed), 1, "one question for all of them");
}

#[emmer::test(seeds = 3)]
async fn a_director_that_never_answers_costs_its_own_calls_their_time_only(world: World) {
    let (cluster, gate) = gated(&world).await;
    let client = cluster.client().await;
    let late = |key: u64| client.grain::<dyn Late>(key).silo();
    let first = cluster
        .node(0)
        .run(async |silo| silo.grain::<dyn Late>(1u64).silo().timeout(secs(2)).await.unwrap_err());
    let error = first.await.unwrap();
    assert!(matches!(error, CallError::Timeout { maybe_executed: false, .. }), "{error}");
    // No call waits for it: the director's task is gone, and so is its permit.
    gate.open.add_permits(1);
    late(2).timeout(secs(2)).await.unwrap();
    assert_eq!(gate.asked.load(Ordering::Relaxed), 2);
    for (key, words) in [
        (1_000, "\"late\" panicked: no idea"),
        (1_001, "\"late\" chose none"),
        (1_002, "\"late\" failed: the database is away"),
        (1_003, "chose 10.9.9.9:1:1"),
    ] {
        let error = late(key).await.unwrap_err();
        assert!(matches!(error, CallError::Rejected { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// A call that its caller does not poll has an answer of its own.
#[emmer::test(seeds = 3)]
async fn a_call_that_is_kept_gives_no_old_answer_to_others(world: World) {
    let (failing, asked) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicU32::new(0)));
    let (fails, counted) = (failing.clone(), asked.clone());
    let director = move |request: PlacementRequest| {
        counted.fetch_add(1, Ordering::Relaxed);
        let fails = fails.load(Ordering::Relaxed) > 0;
        async move {
            tokio::time::sleep(secs(1)).await;
            if fails {
                return Err("the database is away".into());
            }
            Ok(request.candidates().next().map(|silo| silo.address()))
        }
    };
    let describe = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Late, LateGrain>().async_director("late", director.clone())
    };
    let cluster = world.cluster(2, describe).await;
    let called = cluster.node(0).run(async move |silo| {
        let mut kept = Box::pin(silo.grain::<dyn Late>(1u64).silo().into_future());
        let once = std::future::poll_fn(|cx| std::task::Poll::Ready(kept.as_mut().poll(cx)));
        assert!(once.await.is_pending());
        tokio::time::sleep(secs(5)).await;
        failing.store(0, Ordering::Relaxed);
        let fresh = silo.grain::<dyn Late>(1u64).silo().await;
        assert!(fresh.is_ok(), "{fresh:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 2, "each has an answer of its own");
        let error = kept.await.unwrap_err().to_string();
        assert!(error.contains("the database is away"), "{error}");
    });
    called.await.unwrap();
}

#[emmer::test(seeds = 3)]
async fn a_caller_that_gives_up_takes_its_director_along(world: World) {
    let (cluster, gate) = gated(&world).await;
    let client = cluster.client().await;
    let token = tokio_util::sync::CancellationToken::new();
    let call = client.grain::<dyn Late>(1u64).silo().cancel_on(token.clone());
    let cancel = async {
        tokio::time::sleep(secs(1)).await;
        token.cancel();
    };
    let (called, ()) = tokio::join!(call.into_future(), cancel);
    assert!(matches!(called.unwrap_err(), CallError::Cancelled { .. }));
    tokio::time::sleep(secs(1)).await;
    // Besides the silos' closures and this test, only a question holds the gate.
    assert_eq!(Arc::strong_count(&gate.open), 5);
}

#[emmer::test(seeds = 3)]
async fn a_silo_that_stops_answers_calls_that_wait_for_a_director(world: World) {
    let (cluster, _gate) = gated(&world).await;
    let waiting = cluster.node(0).run(async |silo| silo.grain::<dyn Late>(1u64).silo().await);
    tokio::time::sleep(secs(1)).await;
    let before = world.elapsed();
    cluster.stop(0).await;
    // Its own task may be gone with the silo's host.
    if let Some(answer) = waiting.await {
        let error = answer.unwrap_err();
        assert!(!matches!(error, CallError::Timeout { .. }), "{error}");
    }
    assert!(world.elapsed() - before < secs(20), "it waited for the director");
}

#[emmer::test(seeds = 3)]
async fn a_silo_that_dies_while_its_name_is_looked_up_is_not_chosen_again(world: World) {
    let (cluster, gate) = gated(&world).await;
    let mut silos: Vec<_> = cluster.nodes().iter().map(emmer::test::Node::address).collect();
    silos.sort_unstable();
    // The director answers with the first of the candidates it was asked about.
    let first = cluster.nodes().iter().position(|node| node.address() == silos[0]).unwrap();
    let caller = (first + 1) % 3;
    let waiting = cluster
        .node(caller)
        .run(async |silo| silo.grain::<dyn Late>(1u64).silo().timeout(secs(120)).await);
    tokio::time::sleep(secs(1)).await;
    cluster.kill(first);
    gate.open.add_permits(10);
    assert_eq!(waiting.await.unwrap().unwrap(), silos[1]);
}

/// A director whose code panics wherever code runs.
#[emmer::test(seeds = 3)]
async fn a_director_that_panics_anywhere_ends_its_own_calls_only(world: World) {
    #[derive(Debug)]
    struct Odd;
    impl std::fmt::Display for Odd {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("in its words")
        }
    }
    impl std::error::Error for Odd {}
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "in its drop");
        }
    }
    let odd = |request: PlacementRequest| {
        let key: u64 = request.grain().key().to_string().parse().unwrap();
        assert_ne!(key, 0, "at once");
        async move {
            let _bomb = (key == 1).then(|| Bomb);
            match key {
                2 => Err(Odd)?,
                3 => {
                    let _bomb = Bomb;
                    std::future::pending::<()>().await;
                }
                _ => {}
            }
            Ok(request.candidates().next().map(|silo| silo.address()))
        }
    };
    let describe = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Late, LateGrain>().async_director("late", odd)
    };
    let cluster = world.cluster(2, describe).await;
    let client = cluster.client().await;
    for (key, words) in [(0, "at once"), (1, "in its drop"), (2, "in its words")] {
        let error = client.grain::<dyn Late>(key).silo().await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    client.grain::<dyn Late>(3).silo().timeout(secs(1)).await.unwrap_err();
    for key in 4..10 {
        client.grain::<dyn Late>(key).silo().await.unwrap();
    }
}

#[test]
fn data_that_cannot_travel_stops_the_start_with_the_class() {
    struct Odd;
    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("odd"))
        }
    }
    class!(Oddly, OddlyGrain, #[placement("odd", Odd)]);
    let late = |_: PlacementRequest| async { Ok(None) };
    let start = |silo: emmer::SiloBuilder| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(silo.store("memory://odd").start()).unwrap_err()
    };
    let silo = Silo::builder().host::<dyn Oddly, OddlyGrain>().async_director("odd", late);
    let error = start(silo);
    assert!(matches!(error, StartError::PlacementData { .. }));
    let said = error.to_string();
    assert!(said.contains("OddlyGrain") && said.contains("\"odd\" cannot be sent: odd"), "{said}");

    let error = start(Silo::builder().host::<dyn Late, LateGrain>());
    assert!(error.to_string().contains(".async_director("), "{error}");

    let error = start(Silo::builder().metadata("", "x"));
    assert!(error.to_string().starts_with("metadata: the key \"\""), "{error}");
}
