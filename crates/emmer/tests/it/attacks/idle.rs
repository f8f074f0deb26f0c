//! Grains that go and come while calls arrive; in virtual time.
use std::future::IntoFuture;

use emmer::prelude::*;
use emmer::test::World;

use super::imp::*;

#[grain_interface(key = String)]
pub trait Brief {
    async fn count(&mut self) -> u64;
    async fn wait_for_end(this: Interleaved<Self>) -> String;
    async fn hold(&mut self, ms: u64) -> u64;
    async fn leave_then(&mut self, ms: u64) -> u64;
    async fn piece_loop(this: Interleaved<Self>, n: u64, ms: u64) -> Result<u64, String>;
}

#[derive(Grain)]
#[grain(idle = "100ms")]
struct BriefGrain {
    #[context]
    ctx: Ctx,
    n: u64,
    news: tokio::sync::watch::Sender<u64>,
}

/// Begun and ended activations of the grains whose key is a number: other tests kill silos, and
/// their grains run no hook.
static HOOKS: std::sync::Mutex<(u64, u64)> = std::sync::Mutex::new((0, 0));

impl BriefGrain {
    fn is_counted(&self) -> bool {
        self.ctx.key().to_string().parse::<u64>().is_ok()
    }
}

impl Lifecycle for BriefGrain {
    async fn activate(&mut self, _ctx: &Ctx) -> Result<(), ActivationError> {
        if self.is_counted() {
            HOOKS.lock().unwrap().0 += 1;
        }
        tokio::time::sleep(millis(3)).await;
        Ok(())
    }
    async fn deactivate(&mut self, _ctx: &Ctx, _reason: DeactivationReason) {
        tokio::time::sleep(millis(7)).await;
        if self.is_counted() {
            HOOKS.lock().unwrap().1 += 1;
        }
    }
}

#[grain]
impl Brief for BriefGrain {
    async fn count(&mut self) -> u64 {
        self.n += 1;
        self.n
    }
    async fn wait_for_end(this: Interleaved<Self>) -> String {
        let mut news = match this.read(|g| g.news.subscribe()).await {
            Ok(n) => n,
            Err(l) => return format!("{l}"),
        };
        let closed = news.changed().await.is_err();
        format!("closed {closed}, then {:?}", this.read(|g| g.n).await)
    }
    async fn hold(&mut self, ms: u64) -> u64 {
        tokio::time::sleep(millis(ms)).await;
        self.n += 1;
        self.n
    }
    async fn leave_then(&mut self, ms: u64) -> u64 {
        self.ctx.deactivate_on_idle();
        tokio::time::sleep(millis(ms)).await;
        self.n
    }
    async fn piece_loop(this: Interleaved<Self>, n: u64, ms: u64) -> Result<u64, String> {
        for _ in 0..n {
            tokio::time::sleep(millis(ms)).await;
            this.write(|g| g.n += 1).await.map_err(|l| l.to_string())?;
        }
        this.read(|g| g.n).await.map_err(|l| l.to_string())
    }
}

/// Calls about as often as the grain grows idle: each is answered, no hook is left out.
#[emmer::test(seeds = 5)]
async fn calls_that_meet_an_idle_grain(world: World) {
    let cluster = world
        .cluster(3, |silo| {
            silo.configure(|o| o.collection_quantum = Some(millis(20)))
                .host::<dyn Brief, BriefGrain>()
        })
        .await;
    let client = cluster.client().await;
    let before = *HOOKS.lock().unwrap();
    let mut tasks = Vec::new();
    for task in 0..8u64 {
        let (client, mut dice) = (client.grains(), Dice(world.seed() * 50 + task));
        tasks.push(tokio::spawn(async move {
            for _ in 0..100 {
                let g = client.grain::<dyn Brief>(format!("{}", dice.roll(3)));
                let end = match dice.roll(5) {
                    0 => g.hold(dice.roll(150)).timeout(secs(8)).await.map(|_| ()),
                    1 => g.leave_then(dice.roll(20)).timeout(secs(8)).await.map(|_| ()),
                    2 if dice.roll(10) == 0 => {
                        let _ = g.piece_loop(5, dice.roll(40)).timeout(secs(8)).await;
                        Ok(())
                    }
                    _ => g.count().timeout(secs(8)).await.map(|_| ()),
                };
                assert!(end.is_ok(), "{end:?}");
                tokio::time::sleep(millis(dice.roll(160))).await;
            }
        }));
    }
    for t in tasks {
        t.await.unwrap();
    }
    let end = tokio::spawn(
        client.grain::<dyn Brief>("news").wait_for_end().timeout(secs(20)).into_future(),
    );
    // A method that waits through `Interleaved` keeps its grain as long as its caller may wait.
    world.advance(secs(19)).await;
    assert!(!end.is_finished() && cluster.activations() == 1);
    let end = tokio::time::timeout(secs(30), end).await;
    assert!(matches!(end.unwrap().unwrap(), Err(CallError::Timeout { .. })));
    world.advance(secs(30)).await;
    assert_eq!(cluster.activations(), 0, "somebody stays in memory for ever");
    let after = *HOOKS.lock().unwrap();
    assert_eq!(after.0 - before.0, after.1 - before.1, "hooks");
}

/// A caller that is killed, cut off or gone holds nothing for ever.
#[emmer::test(seeds = 5)]
async fn callers_that_vanish(world: World) {
    let mut cluster = world.cluster(3, |silo| silo.host::<dyn Brief, BriefGrain>()).await;
    let client = cluster.client().await;
    for round in 0..3 {
        let second = cluster.client().await;
        for n in 0..10 {
            let f = second.grain::<dyn Brief>(format!("v{n}")).hold(2000).into_future();
            tokio::spawn(f);
            let g = second.grain::<dyn Brief>(format!("v{n}"));
            tokio::spawn(async move {
                let _ = g.count().await;
            });
        }
        world.advance(millis(50)).await;
        match round {
            0 => drop(second),
            1 => second.close().await,
            _ => cluster.kill(1 + (world.seed() % 2) as usize),
        }
        world.advance(secs(20)).await;
        for n in 0..10 {
            let end = client.grain::<dyn Brief>(format!("v{n}")).count().timeout(secs(10)).await;
            assert!(end.is_ok(), "round {round}: {end:?}");
        }
        for n in 0..3 {
            if cluster.node(n).has_ended() {
                continue;
            }
            if round == 2 && n == 1 + (world.seed() % 2) as usize {
                continue;
            }
            let s = cluster.node(n).statistics();
            assert_eq!(
                (s.turns_waiting, s.calls_in_flight, s.calls_serving),
                (0, 0, 0),
                "round {round} silo {n}"
            );
        }
    }
    cluster.restart(1 + (world.seed() % 2) as usize).await;
    world.advance(secs(60)).await;
    // Tasks do not grow.
    let tasks: Vec<_> = (0..3).map(|n| cluster.node(n).tasks()).collect();
    for n in 0..200 {
        let f = client.grain::<dyn Brief>(format!("t{n}")).hold(10).timeout(millis(5)).await;
        assert!(f.is_err() || f.is_ok());
    }
    world.advance(secs(60)).await;
    for n in 0..400 {
        let f = client.grain::<dyn Brief>(format!("u{n}")).hold(10).timeout(millis(5)).await;
        assert!(f.is_err() || f.is_ok());
    }
    world.advance(secs(120)).await;
    let latest: Vec<_> = (0..3).map(|n| cluster.node(n).tasks()).collect();
    assert!((0..3).all(|n| latest[n] <= tasks[n] + 20), "tasks stay: {tasks:?} then {latest:?}");
}

/// The caller's deadline and the answer meet: what the caller hears is true.
#[emmer::test(seeds = 5)]
async fn deadlines_that_meet_answers(world: World) {
    let cluster = world.cluster(3, |silo| silo.host::<dyn Imp, ImpGrain>()).await;
    let client = cluster.client().await;
    for n in 0..300u64 {
        let g = client.grain::<dyn Imp>(format!("m{}-{}", world.seed(), n % 7));
        let call = id();
        let end = g.slow(call, 5000).timeout(millis(3 + n % 9)).await;
        world.advance(millis(50)).await;
        let ran = LEDGER.runs(call);
        match end {
            Ok(_) => assert_eq!(ran, 1),
            Err(e) => assert!(ran <= 1 && (e.maybe_executed() || ran == 0), "{e:?} ran {ran}"),
        }
    }
}
