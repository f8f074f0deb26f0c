//! The request context: what flows with the calls of a chain, and what does not.

use std::time::Duration;

use emmer::calls::{ContextKey, SetContextError};
use emmer::prelude::*;
use emmer::test::World;

static TENANT: ContextKey<String> = ContextKey::new("tenant");
static DEPTH: ContextKey<u32> = ContextKey::new("depth");

#[grain_interface(key = u64)]
trait Hop {
    /// Goes on to the next grain, and says what the last one saw.
    async fn go(&self, left: u64) -> emmer::Result<(Option<String>, Option<u32>)>;
    async fn tell(&mut self, left: u64) -> emmer::Result<()>;
    async fn told(&self) -> Option<String>;
    /// Starts a timer, which is no part of the request.
    async fn start(&mut self);
    async fn own(&self) -> (Option<u32>, Option<u32>);
    async fn huge(&self) -> Result<(), String>;
}

#[derive(Grain)]
struct HopGrain {
    told: Option<String>,
    timer: Option<Timer>,
    #[context]
    ctx: Ctx,
}

impl HopGrain {
    async fn tick(&mut self) {
        self.told = TENANT.get();
    }

    fn next(&self) -> HopRef {
        self.ctx.grains().grain::<dyn Hop>(self.ctx.me::<dyn Hop>().key() + 1)
    }
}

#[grain]
impl Hop for HopGrain {
    async fn go(&self, left: u64) -> emmer::Result<(Option<String>, Option<u32>)> {
        if left == 0 {
            return Ok((TENANT.get(), DEPTH.get()));
        }
        DEPTH.set(DEPTH.get().unwrap_or(0) + 1)?;
        Ok(self.next().go(left - 1).await?)
    }

    async fn tell(&mut self, left: u64) -> emmer::Result<()> {
        self.told = TENANT.get();
        if left > 0 {
            self.next().tell(left - 1).send()?;
        }
        Ok(())
    }

    async fn told(&self) -> Option<String> {
        self.told.clone()
    }

    async fn start(&mut self) {
        self.told = TENANT.get();
        self.timer = Some(self.ctx.timer(Duration::from_secs(1)).run(Self::tick));
    }

    async fn own(&self) -> (Option<u32>, Option<u32>) {
        let before = DEPTH.get();
        DEPTH.set(77_u32).unwrap();
        DEPTH.clear();
        (before, DEPTH.get())
    }

    async fn huge(&self) -> Result<(), String> {
        let long = ContextKey::<String>::new("long");
        long.set("x".repeat(3_000)).map_err(|e| e.to_string())?;
        let error = ContextKey::<String>::new("longer").set("x".repeat(2_000)).unwrap_err();
        assert!(error.to_string().contains("no room for \"longer\""), "{error}");
        self.next()
            .own()
            .with(&TENANT, "x".repeat(2_000))
            .await
            .map(drop)
            .map_err(|e| e.to_string())
    }
}

fn describe(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Hop, HopGrain>()
}

#[emmer::test(seeds = 5)]
async fn it_flows_along_a_chain_over_several_silos(world: World) {
    let cluster = world.cluster(3, describe).await;
    let client = cluster.client().await;
    let hop = client.grain::<dyn Hop>(1);
    let seen = hop.go(9).with(&TENANT, "acme").await.unwrap();
    assert_eq!(seen, (Some("acme".to_owned()), Some(9)));
    // The next call is another request.
    assert_eq!(hop.go(3).await.unwrap(), (None, Some(3)));
    assert_eq!(hop.go(0).await.unwrap(), (None, None));
    // One-way calls take it along, too.
    hop.tell(4).with(&TENANT, "acme").send().unwrap();
    world.advance(Duration::from_secs(1)).await;
    for key in 1..=5 {
        let told = client.grain::<dyn Hop>(key).told().await.unwrap();
        assert_eq!(told.as_deref(), Some("acme"), "{key}");
    }
}

#[emmer::test]
async fn what_a_turn_sets_is_for_its_own_calls(world: World) {
    let cluster = world.cluster(1, describe).await;
    let hop = cluster.client().await.grain::<dyn Hop>(1);
    assert_eq!(hop.own().with(&DEPTH, 3_u32).await.unwrap(), (Some(3), None));
    assert_eq!(hop.own().await.unwrap(), (None, None));
    assert!(matches!(DEPTH.set(1_u32), Err(SetContextError::NoTurn("depth"))));
    assert_eq!(DEPTH.get(), None);
    hop.start().with(&TENANT, "acme").await.unwrap();
    assert_eq!(hop.told().await.unwrap().as_deref(), Some("acme"));
    world.advance(Duration::from_secs(2)).await;
    assert_eq!(hop.told().await.unwrap(), None, "a timer inherits nothing");
    // A text that is not a number reads as None.
    let text = ContextKey::<String>::new("depth");
    assert_eq!(hop.own().with(&text, "deep").await.unwrap(), (None, None));
}

#[emmer::test]
async fn what_is_too_much_is_refused_and_named(world: World) {
    let cluster = world.cluster(1, describe).await;
    let hop = cluster.client().await.grain::<dyn Hop>(1);
    let error = hop.huge().await.unwrap_err();
    assert!(error.to_string().contains("no room for \"tenant\""), "{error}");
    let error = hop.own().with(&TENANT, "x".repeat(5_000)).await.unwrap_err();
    assert!(error.to_string().contains("no room for \"tenant\""), "{error}");
    assert!(!error.maybe_executed());
    let odd = ContextKey::<String>::new("");
    assert!(hop.own().with(&odd, "x").await.is_err());
}
