//! Handlers of reminders and timers that misbehave, and reminders that ask for too much.

use std::cell::Cell;
use std::time::Duration;

use emmer::prelude::*;
use emmer::test::World;
use emmer::{ReminderError, Timestamp};

#[grain_interface(key = String)]
trait Rogue {
    async fn start(&mut self, what: String) -> Result<(), String>;
    async fn ask_for_many(&mut self) -> (usize, String);
    async fn ask_for_too_much(&mut self) -> Vec<String>;
    async fn ticks(&self) -> u64;
}

/// Its reminder is asked for while it is activated, and again while it is deactivated.
#[derive(Grain)]
#[grain(lifecycle)]
struct RogueGrain {
    #[context]
    ctx: Ctx,
    what: String,
}

thread_local! {
    /// Ticks of a world, which has one thread.
    static TICKS: Cell<u64> = const { Cell::new(0) };
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Lifecycle for RogueGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        // The key says what its handler does, in each activation.
        self.what = ctx.key().to_string();
        ctx.remind("due").every(secs(2)).if_absent().await.map_err(text)?;
        ctx.timer(secs(1)).every(secs(1)).run(Self::timer);
        Ok(())
    }

    async fn deactivate(&mut self, ctx: &Ctx, _: DeactivationReason) {
        ctx.timer(Duration::ZERO).every(Duration::ZERO).run(Self::timer);
        let _ = ctx.remind("due").every(secs(2)).if_absent().await;
    }
}

#[grain]
impl Rogue for RogueGrain {
    async fn start(&mut self, what: String) -> Result<(), String> {
        self.what = what;
        Ok(())
    }

    async fn ask_for_many(&mut self) -> (usize, String) {
        for number in 0.. {
            let name = format!("many {number}");
            // The names have no handler: the first thing that is looked at.
            if let Err(error) = self.ctx.remind(&name).after(secs(100)).await {
                return (number, error.to_string());
            }
        }
        unreachable!("an endless loop")
    }

    async fn ask_for_too_much(&mut self) -> Vec<String> {
        let ask = || self.ctx.remind("due");
        let far = Timestamp::from_millis(i64::MAX);
        let asked = [
            ask().after(Duration::MAX).await,
            ask().at(far).await,
            ask().after(secs(1)).until(far).await,
            ask().every(Duration::ZERO).await,
            ask().after(secs(1)).every(Duration::MAX).await,
        ];
        let told = asked.into_iter().map(|asked: Result<_, ReminderError>| match asked {
            Ok(info) => format!("next {:?}", info.next.is_some()),
            Err(error) => error.to_string(),
        });
        told.collect()
    }

    async fn ticks(&self) -> u64 {
        TICKS.get()
    }
}

#[grain]
impl RogueGrain {
    #[reminder("due")]
    async fn on_due(&mut self, _: Tick) -> Result<(), String> {
        TICKS.set(TICKS.get() + 1);
        match self.what.as_str() {
            "panic" => panic!("a handler that panics"),
            "never" => std::future::pending().await,
            "rest" => self.ctx.deactivate_on_idle(),
            "remove" => {
                self.ctx.remove_reminder("due").await.map_err(text)?;
            }
            "again" => {
                self.ctx.remind("due").after(secs(5)).await.map_err(text)?;
            }
            "itself" => {
                let me = self.ctx.client().grain::<dyn Rogue>(self.what.as_str());
                me.ticks().await.map_err(text)?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn timer(&mut self) {}
}

/// Runs a grain of this kind beside a good one for a while; the ticks of both.
async fn beside(world: &World, what: &str, time: Duration) -> (u64, u64) {
    TICKS.set(0);
    let cluster = world.cluster(2, |silo| silo.host::<dyn Rogue, RogueGrain>()).await;
    let client = cluster.client().await;
    let (bad, good) = (client.grain::<dyn Rogue>(what), client.grain::<dyn Rogue>("good"));
    good.ticks().await.unwrap();
    world.advance(time).await;
    let alone = TICKS.get();
    bad.ticks().await.unwrap();
    TICKS.set(0);
    world.advance(time).await;
    let both = TICKS.get();
    (alone, both - alone.min(both))
}

#[emmer::test(seeds = 2)]
async fn handlers_that_misbehave_disturb_nobody_else(world: World) {
    // In a minute a good one ticks thirty times.
    for (what, least, most) in [
        ("panic", 20, 90),
        ("never", 1, 3),
        ("rest", 28, 31),
        ("remove", 1, 1),
        ("again", 11, 13),
        ("itself", 1, 90),
    ] {
        let (alone, more) = beside(&world, what, secs(60)).await;
        assert!((28..=31).contains(&alone), "{what}: {alone} alone");
        assert!((least..=most).contains(&more), "{what}: {more} more");
    }
}

#[emmer::test]
async fn who_asks_for_too_much_is_told(world: World) {
    let cluster = world.cluster(1, |silo| silo.host::<dyn Rogue, RogueGrain>()).await;
    let client = cluster.client().await;
    let grain = client.grain::<dyn Rogue>("good");
    let (made, why) = grain.ask_for_many().await.unwrap();
    assert!(made == 0 && why.contains("#[reminder(\"many 0\")]"), "{why}");
    let told = grain.ask_for_too_much().await.unwrap();
    for (told, says) in told.iter().zip(["last time", "last time", "last time", "shortest", "next"])
    {
        assert!(told.contains(says), "{told} does not say {says}");
    }
    // The last one is due once, for its next occurrence is beyond all time.
    world.advance(secs(10)).await;
    assert!(TICKS.get() >= 1);
}
