//! Hooks of the application that call grains: directors, filters, rules. Where they come back to
//! themselves their calls fail with words, and the process lives.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use emmer::SiloBuilder;
use emmer::access::Access;
use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer::placement::{DirectorError, PlacementContext, PlacementRequest, PlacementTarget};
use emmer::prelude::*;
use emmer::tables::SiloAddress;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::imp::run;
use crate::common::class;

class!(Placed, PlacedGrain, #[placement("own")]);

type Answered = Result<SiloAddress, CallError<std::convert::Infallible>>;

/// The silo that hooks call, and how their calls ended.
#[derive(Clone, Default)]
struct Calls {
    silo: Arc<OnceLock<GrainFactory>>,
    ended: Arc<Mutex<Vec<Answered>>>,
}

impl Calls {
    /// Calls the grain that follows: itself below 1,000, and the next number above.
    async fn call(&self, key: u64) {
        let next = if key < 1_000 { key } else { key + 1 };
        let ended = self.silo.get().unwrap().grain::<dyn Placed>(next).silo().await;
        self.ended.lock().unwrap().push(ended);
    }

    fn call_now(&self, key: u64) {
        block_in_place(|| Handle::current().block_on(self.call(key)));
    }

    /// Starts the silo, and makes a call from it and one from outside, for `key`.
    async fn try_out(&self, silo: SiloBuilder, key: u64) -> Vec<Answered> {
        let silo = silo.host::<dyn Placed, PlacedGrain>().start().await.unwrap();
        self.silo.set(silo.grains()).ok().unwrap();
        let begun = Instant::now();
        silo.grain::<dyn Placed>(key).silo().await.unwrap();
        let client = Client::builder().gateways([silo.gateway().unwrap().to_string()]);
        let client = client.cluster_id("dev").connect().await.unwrap();
        // Grains above 1,000 have all been placed by then.
        let other = if key < 1_000 { key + 1 } else { key + 1_000 };
        client.grain::<dyn Placed>(other).silo().await.unwrap();
        assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
        client.close().await;
        silo.stop().await.unwrap();
        std::mem::take(&mut *self.ended.lock().unwrap())
    }
}

fn builder(store: &str) -> SiloBuilder {
    Silo::builder().store(format!("memory://{store}")).gateway("127.0.0.1:0")
}

fn first(silos: &[SiloAddress]) -> Option<SiloAddress> {
    silos.first().copied()
}

/// Directors of both kinds. They call the grain that they are asked about, or the next one.
fn with_director(silo: SiloBuilder, calls: &Calls, waits: bool) -> SiloBuilder {
    let calls = calls.clone();
    let key = |grain: &emmer::tables::GrainId| grain.key().to_string().parse::<u64>().unwrap();
    if waits {
        silo.async_director("own", move |request: PlacementRequest| {
            let calls = calls.clone();
            async move {
                calls.call(key(request.target().grain)).await;
                Ok::<_, DirectorError>(request.candidates().next().map(|silo| silo.address()))
            }
        })
    } else {
        silo.director("own", move |target: &PlacementTarget<'_>, on: &PlacementContext<'_>| {
            calls.call_now(key(target.grain));
            first(on.silos)
        })
    }
}

#[test]
fn a_director_that_calls_the_grain_it_places_is_told_so() {
    for waits in [true, false] {
        run(2, 60, async move {
            let calls = Calls::default();
            let silo = with_director(builder(&format!("hooks-own-{waits}")), &calls, waits);
            let ended = calls.try_out(silo, 1).await;
            assert_eq!(ended.len(), 2, "{ended:?}");
            for ended in ended {
                assert!(matches!(ended, Err(CallError::Deadlock { .. })), "{ended:?}");
            }
        });
    }
}

#[test]
fn directors_that_call_each_other_without_end_are_told_so() {
    for waits in [true, false] {
        run(2, 60, async move {
            let calls = Calls::default();
            let silo = with_director(builder(&format!("hooks-long-{waits}")), &calls, waits);
            let ended = calls.try_out(silo, 1_000).await;
            let refused: Vec<_> = ended.iter().filter_map(|e| e.as_ref().err()).collect();
            assert_eq!(refused.len(), 2, "the deepest call of each: {refused:?}");
            for error in refused {
                let said = error.to_string();
                assert!(matches!(error, CallError::Rejected { .. }), "{said}");
                assert!(said.contains("64 deep") && said.contains("-> placed/"), "{said}");
            }
        });
    }
}

/// Writes down each call in a grain, also that one.
struct Audits(Calls);

impl Filter for Audits {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        let key: u64 = call.key().to_string().parse().unwrap_or(0);
        if self.0.silo.get().is_some() {
            self.0.call(key).await;
        }
        next.run(call).await
    }
}

#[test]
fn an_incoming_filter_that_filters_its_own_calls_is_told_so() {
    run(2, 60, async {
        for key in [1, 1_000] {
            let calls = Calls::default();
            let silo = builder(&format!("hooks-incoming-{key}"));
            let silo = silo
                .director("own", |_: &PlacementTarget<'_>, on: &PlacementContext<'_>| {
                    first(on.silos)
                });
            let ended = calls.try_out(silo.filter_incoming(Audits(calls.clone())), key).await;
            assert!(ended.iter().any(Result::is_err), "{ended:?}");
        }
    });
}

/// Rules that ask a grain hold their thread, and are not asked again.
#[test]
fn rules_that_ask_a_grain_have_its_answer() {
    run(2, 60, async {
        let calls = Calls::default();
        let asks = calls.clone();
        let silo = builder("hooks-rules").authorize(move |_| {
            asks.call_now(7);
            Access::Allow
        });
        let silo = silo
            .director("own", |_: &PlacementTarget<'_>, on: &PlacementContext<'_>| first(on.silos));
        let ended = calls.try_out(silo, 1).await;
        assert!(!ended.is_empty() && ended.iter().all(Result::is_ok), "{ended:?}");
    });
}
