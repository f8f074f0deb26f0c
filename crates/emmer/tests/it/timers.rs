//! Timers of activations, in virtual time.

use std::cell::RefCell;
use std::time::Duration;

use emmer::prelude::*;
use emmer::test::{Cluster, World, hours};

#[grain_interface(key = String)]
trait Ticking {
    /// Starts a timer: the first tick after `delay`, each `took` long.
    async fn start(&mut self, how: How);
    async fn change(&mut self, delay: Duration, every: Option<Duration>);
    async fn stop(&mut self);
    async fn is_over(&self) -> bool;
    async fn hold(&mut self, time: Duration);
    async fn rest(&self);
    /// Changes the timer while its tick runs, again and again.
    async fn churn(&self);
}

#[derive(serde::Serialize, serde::Deserialize, Clone, Debug, Default)]
struct How {
    delay: Duration,
    every: Option<Duration>,
    took: Duration,
    beside: bool,
    keep: bool,
    what: String,
}

#[derive(Grain)]
#[grain(idle = "10s")]
struct TickingGrain {
    #[context]
    ctx: Ctx,
    how: How,
    timer: Option<Timer>,
}

thread_local! {
    /// A world has one thread: when a tick began, and whose.
    static TICKS: RefCell<Vec<(String, u64)>> = const { RefCell::new(Vec::new()) };
    static BEGUN: RefCell<Option<emmer::tables::Timestamp>> = const { RefCell::new(None) };
}

/// The seconds at which ticks began since the last look.
fn ticks() -> Vec<u64> {
    TICKS.take().into_iter().map(|(_, at)| at).collect()
}

impl TickingGrain {
    fn note(&self) {
        let now = self.ctx.now();
        let begun = BEGUN.with_borrow_mut(|begun| *begun.get_or_insert(now));
        let at = (now.saturating_since(begun) + millis(500)).as_secs();
        TICKS.with_borrow_mut(|ticks| ticks.push((self.ctx.key().to_string(), at)));
    }

    async fn tick(&mut self) -> Result<(), String> {
        self.note();
        tokio::time::sleep(self.how.took).await;
        match self.how.what.as_str() {
            "fail" => Err("no luck".to_owned()),
            "panic" => panic!("a tick that panics"),
            _ => Ok(()),
        }
    }

    async fn look(&self) {
        self.note();
        tokio::time::sleep(self.how.took).await;
    }
}

#[grain]
impl Ticking for TickingGrain {
    async fn start(&mut self, how: How) {
        let now = self.ctx.now();
        BEGUN.with_borrow_mut(|begun| begun.get_or_insert(now).to_owned());
        let mut timer = self.ctx.timer(how.delay);
        if let Some(every) = how.every {
            timer = timer.every(every);
        }
        if how.keep {
            timer = timer.keep_alive();
        }
        self.timer = Some(if how.beside { timer.run(Self::look) } else { timer.run(Self::tick) });
        self.how = how;
    }

    async fn change(&mut self, delay: Duration, every: Option<Duration>) {
        self.timer.as_ref().unwrap().change(delay, every);
    }

    async fn stop(&mut self) {
        self.timer.as_ref().unwrap().stop();
    }

    async fn is_over(&self) -> bool {
        self.timer.as_ref().unwrap().is_over()
    }

    async fn hold(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn rest(&self) {
        self.ctx.deactivate_on_idle();
    }

    async fn churn(&self) {
        for _ in 0..100 {
            self.timer.as_ref().unwrap().change(Duration::ZERO, Some(secs(5)));
            tokio::time::sleep(millis(10)).await;
        }
    }
}

async fn one(world: &World) -> (Cluster, TickingRef) {
    TICKS.take();
    BEGUN.take();
    let cluster = world.cluster(1, |silo| silo.host::<dyn Ticking, TickingGrain>()).await;
    let client = cluster.client().await;
    let grain = client.grain::<dyn Ticking>("a");
    // The client lives as long as the world.
    std::mem::forget(client);
    (cluster, grain)
}

fn every(period: u64) -> How {
    How { delay: secs(period), every: Some(secs(period)), keep: true, ..How::default() }
}

#[emmer::test(seeds = 3)]
async fn ticks_come_and_the_period_counts_from_their_end(world: World) {
    let (cluster, grain) = one(&world).await;
    grain.start(every(5)).await.unwrap();
    world.advance(secs(21)).await;
    assert_eq!(ticks(), [5, 10, 15, 20]);
    grain.stop().await.unwrap();
    world.advance(secs(60)).await;
    assert_eq!((ticks(), cluster.node(0).statistics().timers), (vec![], 0));
    // Each tick takes 7 s: the next one is 5 s after its end.
    BEGUN.take();
    grain.start(How { took: secs(7), ..every(5) }).await.unwrap();
    world.advance(secs(42)).await;
    assert_eq!(ticks(), [5, 17, 29, 41]);
}

#[emmer::test(seeds = 3)]
async fn one_shots_changes_and_a_busy_grain(world: World) {
    let (cluster, grain) = one(&world).await;
    let once = How { delay: secs(3), ..How::default() };
    grain.start(once.clone()).await.unwrap();
    world.advance(secs(5)).await;
    assert!(ticks() == [3] && grain.is_over().await.unwrap());
    // A change of an ended timer does nothing.
    grain.change(secs(1), None).await.unwrap();
    world.advance(secs(3)).await;
    assert_eq!(ticks(), [0; 0]);
    BEGUN.take();
    grain.start(every(5)).await.unwrap();
    grain.change(secs(1), Some(secs(2))).await.unwrap();
    world.advance(millis(5_500)).await;
    assert_eq!(ticks(), [1, 3, 5]);
    // While another turn holds the grain the tick waits, and is not lost. Ticks do not pile up.
    grain.hold(secs(25)).timeout(secs(60)).await.unwrap();
    world.advance(millis(100)).await;
    assert_eq!(ticks().len(), 1);
    assert_eq!(cluster.node(0).statistics().timers, 1);
    grain.stop().await.unwrap();
    assert!(grain.is_over().await.unwrap());
}

#[emmer::test(seeds = 3)]
async fn a_timer_goes_with_its_activation_and_keeps_it_only_when_asked(world: World) {
    let (cluster, grain) = one(&world).await;
    grain.start(How { keep: false, ..every(2) }).await.unwrap();
    // Idle activations are looked for once a minute.
    world.advance(secs(120)).await;
    let last = ticks().pop().unwrap();
    assert!((8..=75).contains(&last), "{last}");
    assert_eq!((cluster.activations(), cluster.node(0).statistics().timers), (0, 0));
    grain.start(every(2)).await.unwrap();
    world.advance(hours(1)).await;
    assert!(ticks().len() > 1_700 && cluster.activations() == 1);
    grain.rest().await.unwrap();
    world.advance(secs(10)).await;
    ticks();
    world.advance(secs(60)).await;
    assert_eq!((ticks(), cluster.node(0).statistics().timers), (vec![], 0));
}

#[emmer::test(seeds = 3)]
async fn shared_ticks_run_beside_readers_and_exclusive_ones_do_not(world: World) {
    let (_cluster, grain) = one(&world).await;
    grain.start(How { beside: true, took: secs(20), delay: secs(1), ..every(60) }).await.unwrap();
    world.advance(secs(2)).await;
    assert!(!grain.is_over().timeout(secs(1)).await.unwrap());
    grain.stop().await.unwrap();
    grain.start(How { took: secs(20), delay: secs(1), ..every(60) }).await.unwrap();
    world.advance(secs(10)).await;
    grain.is_over().timeout(secs(1)).await.unwrap_err();
    world.advance(secs(15)).await;
    assert!(!grain.is_over().timeout(secs(1)).await.unwrap());
}

#[emmer::test(seeds = 3)]
async fn a_failed_tick_goes_on_and_a_panic_ends_the_activation_alone(world: World) {
    let (cluster, grain) = one(&world).await;
    grain.start(How { what: "fail".into(), ..every(5) }).await.unwrap();
    world.advance(secs(16)).await;
    assert_eq!(ticks(), [5, 10, 15]);
    grain.stop().await.unwrap();
    grain.start(How { what: "panic".into(), ..every(5) }).await.unwrap();
    world.advance(secs(16)).await;
    assert_eq!((ticks().len(), cluster.node(0).statistics().timers), (1, 0));
    grain.start(every(5)).await.unwrap();
    world.advance(secs(6)).await;
    assert_eq!(ticks().len(), 1);
}

#[emmer::test(seeds = 3)]
async fn a_timer_that_is_changed_again_and_again_has_one_tick_at_a_time(world: World) {
    let (_cluster, grain) = one(&world).await;
    grain.start(How { beside: true, took: secs(10), ..every(1) }).await.unwrap();
    world.advance(millis(1_100)).await;
    assert_eq!(ticks().len(), 1);
    grain.churn().await.unwrap();
    assert_eq!(ticks(), [0; 0]);
    // A tick that was due meanwhile comes right after the end, once.
    world.advance(secs(9)).await;
    assert_eq!(ticks().len(), 1);
    world.advance(secs(9)).await;
    assert_eq!(ticks(), [0; 0]);
    world.advance(secs(7)).await;
    assert_eq!(ticks().len(), 1);
}
