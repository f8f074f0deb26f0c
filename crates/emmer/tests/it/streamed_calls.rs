//! A streamed call is a call: filters, contexts, rules of access and versions treat it as one.

use std::sync::{Arc, Mutex};

use emmer::access::Access;
use emmer::calls::ContextKey;
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::prelude::*;
use emmer::test::World;

static TENANT: ContextKey<String> = ContextKey::new("tenant");

#[grain_interface(key = u64)]
trait Feed {
    /// The tenant that came along, as often as asked for.
    async fn tenants(&self, times: u64, to: Sink<Option<String>>) -> Result<u64, String>;
    /// The tenant that came along, and the sum.
    async fn sum(&self, numbers: Source<u64>) -> emmer::Result<(Option<String>, u64)>;
}

/// As a later version has it.
mod newer {
    use emmer::prelude::*;

    #[grain_interface(key = u64)]
    pub(super) trait Feed {
        async fn later(&self, to: Sink<u64>);
    }
}

#[derive(Grain)]
struct FeedGrain;

#[grain]
impl Feed for FeedGrain {
    async fn tenants(&self, times: u64, to: Sink<Option<String>>) -> Result<u64, String> {
        for _ in 0..times {
            to.send(TENANT.get()).await.map_err(|e| e.to_string())?;
        }
        if times == 0 { Err("nothing was asked for".to_owned()) } else { Ok(times) }
    }

    async fn sum(&self, mut numbers: Source<u64>) -> emmer::Result<(Option<String>, u64)> {
        let mut sum = 0;
        while let Some(number) = numbers.next().await {
            sum += number?;
        }
        Ok((TENANT.get(), sum))
    }
}

/// Records calls, names their tenant, and refuses the tenant "mallory".
struct Guard(Arc<Mutex<Vec<String>>>);

impl Filter for Guard {
    async fn call(&self, mut call: FilterCall, next: Next<'_>) -> Outcome {
        let method = call.method();
        let tenant = call.get(&TENANT);
        let outcome = if tenant.as_deref() == Some("mallory") {
            call.refuse("not for mallory")
        } else {
            if tenant.is_none() {
                call.set(&TENANT, "acme").unwrap();
            }
            next.run(call).await
        };
        self.0.lock().unwrap().push(format!("{method}: {outcome}"));
        outcome
    }
}

fn taken(seen: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    std::mem::take(&mut seen.lock().unwrap())
}

#[emmer::test(seeds = 5)]
async fn filters_see_streamed_calls_name_their_context_and_refuse_them(world: World) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let inner = seen.clone();
    let hosting = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Feed, FeedGrain>().filter_incoming(Guard(inner.clone()))
    };
    let cluster = world.cluster(2, hosting).await;
    let asks = async move |grains: GrainFactory| {
        for key in 0..6 {
            let feed = grains.grain::<dyn Feed>(key);
            let mut tenants = feed.tenants(2);
            for _ in 0..2 {
                assert_eq!(tenants.next().await.unwrap().unwrap().as_deref(), Some("acme"));
            }
            assert!(tenants.next().await.is_none());
            let mut tenants = feed.tenants(1).with(&TENANT, "umbrella");
            assert_eq!(tenants.next().await.unwrap().unwrap().as_deref(), Some("umbrella"));
            assert_eq!(tenants.returned().await.unwrap(), 1);
            let sum = feed.sum(vec![3, 4]).with(&TENANT, "umbrella").await.unwrap();
            assert_eq!(sum, (Some("umbrella".to_owned()), 7));
            assert_eq!(feed.sum(vec![5]).await.unwrap(), (Some("acme".to_owned()), 5));
            assert_eq!(
                taken(&seen),
                ["tenants: ok", "tenants: ok", "sum: ok", "sum: ok"],
                "a filter waits for the end of the stream"
            );
            // The method's own error, and a refusal: the call has not run.
            let error = feed.tenants(0).returned().await.unwrap_err();
            assert!(matches!(&error, CallError::App(words) if words == "nothing was asked for"));
            let mut refused = feed.tenants(2).with(&TENANT, "mallory");
            let error = refused.next().await.unwrap().unwrap_err();
            assert!(matches!(&error, CallError::Rejected { .. }), "{error}");
            assert!(error.to_string().ends_with("not for mallory") && !error.maybe_executed());
            assert!(refused.next().await.is_none());
            let refused = feed.sum(vec![3, 4]).with(&TENANT, "mallory").await.unwrap_err();
            assert!(refused.to_string().ends_with("not for mallory"), "{refused}");
            let own = "tenants: the method returned its own error";
            let refusal = "refused: not for mallory";
            let expected = [own, &format!("tenants: {refusal}"), &format!("sum: {refusal}")];
            assert_eq!(taken(&seen), expected);
        }
    };
    asks(cluster.client().await.grains()).await;
    cluster.node(0).run(asks).await.unwrap();
    world.advance(secs(20)).await;
    for n in 0..2 {
        assert_eq!(cluster.node(n).statistics().calls_serving, 0);
    }
}

#[emmer::test(seeds = 3)]
async fn rules_of_access_hold_for_streamed_calls(world: World) {
    let hosting = |silo: emmer::SiloBuilder| {
        silo.host::<dyn Feed, FeedGrain>().authorize(|call| {
            Access::when(call.method() == "sum" || call.key().to_string() == "1", "for 1 alone")
        })
    };
    let cluster = world.cluster(2, hosting).await;
    let client = cluster.client().await;
    let open = client.grain::<dyn Feed>(1u64);
    assert_eq!(open.tenants(3).returned().await.unwrap(), 3);
    let shut = client.grain::<dyn Feed>(2u64);
    let error = shut.tenants(3).returned().await.unwrap_err();
    assert!(matches!(&error, CallError::Rejected { .. }), "{error}");
    assert!(error.to_string().ends_with("for 1 alone"), "{error}");
    assert_eq!(shut.sum(vec![1, 2]).await.unwrap().1, 3);
    // They are asked about clients, and not about grains and silos.
    let inside = async |grains: GrainFactory| {
        assert_eq!(grains.grain::<dyn Feed>(2u64).tenants(3).returned().await.unwrap(), 3);
    };
    cluster.node(0).run(inside).await.unwrap();
}

#[emmer::test(seeds = 3)]
async fn a_streamed_method_that_the_silos_do_not_know_is_an_error(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Feed, FeedGrain>()).await;
    let asks = async |grains: GrainFactory| {
        for key in 0..4 {
            let mut later = grains.grain::<dyn newer::Feed>(key).later();
            let error = later.next().await.unwrap().unwrap_err();
            assert!(!error.maybe_executed(), "{error}");
            assert!(error.to_string().contains("later"), "{error}");
            assert!(later.next().await.is_none());
        }
    };
    asks(cluster.client().await.grains()).await;
    cluster.node(0).run(asks).await.unwrap();
}
