//! Filters: their view of calls, their effects, and what they cannot break.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use emmer::calls::ContextKey;
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::prelude::*;
use emmer::test::World;

static TENANT: ContextKey<String> = ContextKey::new("tenant");
/// Tells the filter how to treat a call.
static DO: ContextKey<String> = ContextKey::new("do");

#[grain_interface(key = u64)]
trait Shelf {
    async fn put(&mut self, left: u64) -> Result<u64, String>;
    async fn count(&self) -> u64;
    async fn tenant(&self) -> Option<String>;
    async fn burn(&mut self);
    /// Waits with half of its work done.
    async fn slow(&mut self);
    async fn lend(this: Interleaved<Self>) -> Option<u64>;
}

#[derive(Grain)]
struct ShelfGrain {
    count: u64,
    #[context]
    ctx: Ctx,
}

#[grain]
impl Shelf for ShelfGrain {
    async fn put(&mut self, left: u64) -> Result<u64, String> {
        self.count += 1;
        match left {
            0 => Err("the shelf is full".to_owned()),
            1 => Ok(self.count),
            _ => {
                let next = self.ctx.me::<dyn Shelf>().key() + 1;
                let next = self.ctx.grains().grain::<dyn Shelf>(next);
                next.put(left - 1).await.map_err(|e| e.to_string())
            }
        }
    }

    async fn count(&self) -> u64 {
        self.count
    }

    async fn tenant(&self) -> Option<String> {
        TENANT.get()
    }

    async fn burn(&mut self) {
        self.count += 1;
        panic!("fire");
    }

    async fn slow(&mut self) {
        self.count += 1;
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.count += 1;
    }

    async fn lend(this: Interleaved<Self>) -> Option<u64> {
        this.read(|shelf| shelf.count).await.ok()
    }
}

type Seen = Arc<Mutex<Vec<String>>>;

/// Records the calls that it sees, under its name.
struct Notes(&'static str, Seen);

impl Filter for Notes {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        let (method, key) = (call.method(), call.key().clone());
        let caller =
            call.caller().map_or_else(|| "-".to_owned(), |caller| caller.key().to_string());
        assert_eq!(call.interface(), "Shelf");
        let outcome = next.run(call).await;
        self.1.lock().unwrap().push(format!("{} {caller}>{key} {method}: {outcome}", self.0));
        outcome
    }
}

/// Does what the call's context asks for.
struct Unruly;

impl Filter for Unruly {
    async fn call(&self, mut call: FilterCall, next: Next<'_>) -> Outcome {
        match call.get(&DO).unwrap_or_default().as_str() {
            "refuse" => call.refuse("not today"),
            "panic" => panic!("a bad filter"),
            "panic after" => {
                let _ = next.run(call).await;
                panic!("a bad filter")
            }
            "never" => pending().await,
            "wait" => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                next.run(call).await
            }
            "impatient" => {
                tokio::select! {
                    biased;
                    outcome = next.run(call) => outcome,
                    () = tokio::time::sleep(Duration::from_secs(1)) => {
                        Outcome::given_up("too slow")
                    }
                }
            }
            "name" => {
                call.set(&TENANT, "acme").unwrap();
                next.run(call).await
            }
            "stuff" => {
                let error = call.set(&TENANT, "x".repeat(5_000)).unwrap_err();
                call.refuse(error.to_string())
            }
            _ => next.run(call).await,
        }
    }
}

/// A filter that says that it does not wait.
struct Quick<F>(F);

impl<F: Filter> Filter for Quick<F> {
    const WAITS: bool = false;

    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        self.0.call(call, next).await
    }
}

fn notes() -> Seen {
    Arc::default()
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut seen.lock().unwrap())
}

#[emmer::test]
async fn they_see_each_call_in_their_order_and_none_of_its_values(world: World) {
    let (seen, at) = (notes(), notes());
    let (inner, client_side) = (seen.clone(), at.clone());
    let cluster = world
        .cluster(1, move |silo| {
            silo.host::<dyn Shelf, ShelfGrain>()
                .filter_class::<ShelfGrain>(Notes("class", inner.clone()))
                .filter_incoming(Notes("silo", inner.clone()))
                .filter_outgoing(Notes("out", inner.clone()))
        })
        .await;
    let client = cluster.client_of(|client| client.filter(Notes("client", client_side))).await;
    let shelf = client.grain::<dyn Shelf>(1);
    assert_eq!(shelf.put(2).await.unwrap(), 1);
    let expected = [
        "class 1>2 put: ok",
        "silo 1>2 put: ok",
        "out 1>2 put: ok",
        "class ->1 put: ok",
        "silo ->1 put: ok",
    ];
    assert_eq!(taken(&seen), expected);
    assert_eq!(taken(&at), ["client ->1 put: ok"]);
    // An error of the method's own; its words are a value.
    assert_eq!(shelf.put(0).await.unwrap_err().to_string(), "the shelf is full");
    assert_eq!(taken(&at), ["client ->1 put: the method returned its own error"]);
    assert_eq!(shelf.lend().await.unwrap(), Some(2));
    taken(&seen);
    // A panic, of which the filters see the words, breaks the grain as ever.
    assert!(matches!(shelf.burn().await, Err(CallError::Panicked { .. })));
    assert_eq!(taken(&seen)[0], "class ->1 burn: failed: the grain panicked: fire");
    assert_eq!(shelf.count().await.unwrap(), 0);
}

#[emmer::test(seeds = 3)]
async fn they_refuse_and_add_to_what_goes_along(world: World) {
    let cluster =
        world.cluster(3, |silo| silo.host::<dyn Shelf, ShelfGrain>().filter_incoming(Unruly)).await;
    let outside = cluster.client_of(|client| client.filter(Unruly)).await;
    let inside = cluster.client().await;
    for client in [inside, outside] {
        for key in 0..5 {
            let shelf = client.grain::<dyn Shelf>(key);
            let error = shelf.put(1).with(&DO, "refuse").await.unwrap_err();
            assert!(matches!(&error, CallError::Rejected { .. }) && !error.maybe_executed());
            assert!(
                error.to_string().ends_with("put: the call was rejected: not today"),
                "{error}"
            );
            let error = shelf.put(1).with(&DO, "panic").await.unwrap_err();
            assert!(error.to_string().ends_with("a filter panicked: a bad filter"), "{error}");
            let error = shelf.put(1).with(&DO, "stuff").await.unwrap_err();
            assert!(error.to_string().contains("no room for \"tenant\""), "{error}");
            assert_eq!(shelf.count().await.unwrap(), 0, "nothing was executed");
            let tenant = shelf.tenant().with(&DO, "name").await.unwrap();
            assert_eq!(tenant.as_deref(), Some("acme"));
            assert_eq!(shelf.tenant().await.unwrap(), None);
        }
    }
}

#[emmer::test]
async fn what_is_done_is_done_whatever_they_do(world: World) {
    let cluster =
        world.cluster(1, |silo| silo.host::<dyn Shelf, ShelfGrain>().filter_incoming(Unruly)).await;
    let outside = cluster.client_of(|client| client.filter(Unruly)).await;
    let inside = cluster.client().await;
    for (key, client) in [(1, &inside), (2, &outside)] {
        let shelf = client.grain::<dyn Shelf>(key);
        assert_eq!(shelf.put(1).with(&DO, "panic after").await.unwrap(), 1);
        assert_eq!(shelf.put(1).with(&DO, "wait").await.unwrap(), 2);
        // Half a method is no method: its grain breaks.
        let error = shelf.slow().with(&DO, "impatient").await.unwrap_err();
        assert!(error.to_string().contains("too slow"), "{error}");
        assert!(error.maybe_executed(), "{error}");
        assert_eq!(shelf.count().timeout(secs(100)).await.unwrap(), 0);
    }
    // A filter that never ends: the call's own deadline holds.
    let shelf = outside.grain::<dyn Shelf>(3);
    let error = shelf.put(1).with(&DO, "never").timeout(secs(5)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { maybe_executed: false, .. }), "{error}");
    let shelf = inside.grain::<dyn Shelf>(4);
    let error = shelf.put(1).with(&DO, "never").timeout(secs(5)).await.unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    assert_eq!(inside.grain::<dyn Shelf>(5).count().await.unwrap(), 0);
}

#[emmer::test]
async fn those_that_do_not_wait_see_and_do_the_same_in_place(world: World) {
    let seen = notes();
    let inner = seen.clone();
    let cluster = world
        .cluster(1, move |silo| {
            silo.host::<dyn Shelf, ShelfGrain>()
                .filter_class::<ShelfGrain>(Quick(Notes("class", inner.clone())))
                .filter_incoming(Quick(Notes("silo", inner.clone())))
                .filter_incoming(Quick(Unruly))
        })
        .await;
    let outside = cluster.client().await;
    let inside = cluster.node(0).run(async move |client| {
        let shelf = client.grain::<dyn Shelf>(1u64);
        assert_eq!(shelf.count().await.unwrap(), 0);
        assert_eq!(taken(&seen), ["class ->1 count: ok", "silo ->1 count: ok"]);
        let error = shelf.count().with(&DO, "refuse").await.unwrap_err();
        assert!(matches!(&error, CallError::Rejected { .. }) && !error.maybe_executed(), "{error}");
        assert_eq!(taken(&seen), ["silo ->1 count: refused: not today"]);
        shelf.burn().await.unwrap_err();
        let burnt = "failed: the grain panicked: fire";
        assert_eq!(
            taken(&seen),
            [format!("class ->1 burn: {burnt}"), format!("silo ->1 burn: {burnt}")]
        );
        // A method that waits has them as well.
        assert_eq!(shelf.put(2).await.unwrap(), 1);
        assert_eq!(taken(&seen).len(), 4);
        check(&client, 10).await;
    });
    inside.await.unwrap();
    check(&outside.grains(), 20).await;

    async fn check(client: &GrainFactory, key: u64) {
        let shelf = client.grain::<dyn Shelf>(key);
        shelf.put(1).await.unwrap();
        let error = shelf.count().with(&DO, "panic").await.unwrap_err();
        assert!(error.to_string().ends_with("a filter panicked: a bad filter"), "{error}");
        let error = shelf.count().with(&DO, "stuff").await.unwrap_err();
        assert!(error.to_string().contains("no room for \"tenant\""), "{error}");
        assert_eq!(shelf.count().with(&DO, "panic after").await.unwrap(), 1);
        let tenant = shelf.tenant().with(&DO, "name").await.unwrap();
        assert_eq!(tenant.as_deref(), Some("acme"));
        assert_eq!(shelf.tenant().await.unwrap(), None);
        // A filter that waits although it says that it does not.
        for how in ["wait", "never"] {
            let error = shelf.count().with(&DO, how).await.unwrap_err();
            assert!(error.to_string().contains("it waits, and says"), "{error}");
            assert_eq!(shelf.count().await.unwrap(), 0, "a new activation");
            shelf.put(1).await.unwrap();
        }
    }
}

#[emmer::test]
async fn one_way_calls_have_them_too(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Shelf, ShelfGrain>()).await;
    let client = cluster.client_of(|client| client.filter(Unruly)).await;
    let shelf = client.grain::<dyn Shelf>(1);
    let error = shelf.put(1).with(&DO, "refuse").send().unwrap_err();
    assert!(error.to_string().ends_with("put: the call was rejected: not today"), "{error}");
    let error = shelf.put(1).with(&DO, "panic").send().unwrap_err();
    assert!(error.to_string().contains("a filter panicked"), "{error}");
    // The call's own part is too much, whatever a filter adds.
    let large = shelf.put(1).with(&DO, "name").with(&TENANT, "x".repeat(5_000));
    let error = large.send().unwrap_err();
    assert!(error.to_string().contains("no room for \"tenant\""), "{error}");
    shelf.put(1).with(&DO, "name").send().unwrap();
    shelf.put(1).with(&DO, "wait").send().unwrap();
    shelf.put(1).with(&DO, "never").send().unwrap();
    world.advance(Duration::from_millis(500)).await;
    assert_eq!(shelf.count().await.unwrap(), 1);
    world.advance(Duration::from_secs(60)).await;
    assert_eq!(shelf.count().await.unwrap(), 2);
}

/// Makes a call of its own before each call, and filters that one, too.
#[derive(Clone, Default)]
struct Audit(Arc<(std::sync::OnceLock<GrainFactory>, Mutex<Option<String>>)>);

impl Filter for Audit {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        if let Some(client) = self.0.0.get()
            && let Err(error) = client.grain::<dyn Shelf>(1).count().await
        {
            self.0.1.lock().unwrap().get_or_insert(error.to_string());
        }
        next.run(call).await
    }
}

/// Without a bound it ends the process: the stack overflows.
#[emmer::test]
async fn a_filter_that_filters_its_own_calls_is_told_so(world: World) {
    let audit = Audit::default();
    let own = audit.clone();
    let describe = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Shelf, ShelfGrain>().filter_outgoing(own.clone())
    };
    let cluster = world.cluster(1, describe).await;
    let (client, told) = (audit.clone(), audit);
    let called = cluster.node(0).run(async move |silo| {
        let _ = client.0.0.set(silo.clone());
        silo.grain::<dyn Shelf>(3).burn().send().unwrap();
        silo.grain::<dyn Shelf>(2).count().timeout(secs(5)).await
    });
    assert_eq!(called.await.unwrap().unwrap(), 0);
    let error = told.0.1.lock().unwrap().clone().unwrap();
    assert!(error.contains("64 calls wait for each other's filters"), "{error}");
    assert!(error.contains("Shelf.count -> Shelf.count"), "{error}");
}
