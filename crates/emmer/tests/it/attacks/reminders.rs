//! Handlers of reminders and timers that misbehave, and reminders that ask for too much.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use emmer::prelude::*;
use emmer::reminders::ReminderError;
use emmer::tables::Timestamp;
use emmer::test::World;

#[grain_interface(key = String)]
trait Rogue {
    async fn start(&mut self, what: String) -> Result<(), String>;
    async fn ask_for_many(&mut self) -> (usize, String);
    async fn ask_for_too_much(&mut self) -> Vec<String>;
    async fn ticks(&self) -> u64;
}

/// A grain that asks for its reminder while it is activated, and again while it is deactivated.
#[derive(Grain)]
struct RogueGrain {
    #[context]
    ctx: Ctx,
    what: String,
}

thread_local! {
    /// Ticks of each grain of a world, which has one thread.
    static TICKS: RefCell<BTreeMap<String, u64>> = const { RefCell::new(BTreeMap::new()) };
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Lifecycle for RogueGrain {
    async fn activate(&mut self, ctx: &Ctx) -> Result<(), ActivationError> {
        // The key says what its handler does, in each activation.
        self.what = ctx.key().to_string();
        ctx.remind("due").every(secs(2)).if_absent().await?;
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
            // The names have no handler, which is checked first.
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
        TICKS.with_borrow(|ticks| ticks.get(&self.what).copied().unwrap_or(0))
    }
}

#[grain]
impl RogueGrain {
    #[reminder("due")]
    async fn on_due(&mut self, _: Tick) -> Result<(), String> {
        TICKS.with_borrow_mut(|ticks| *ticks.entry(self.what.clone()).or_default() += 1);
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
                let me = self.ctx.grains().grain::<dyn Rogue>(self.what.as_str());
                me.ticks().await.map_err(text)?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn timer(&mut self) {}
}

#[emmer::test(seeds = 2)]
async fn handlers_that_misbehave_disturb_nobody_else(world: World) {
    TICKS.take();
    let cluster = world.cluster(2, |silo| silo.host::<dyn Rogue, RogueGrain>()).await;
    let client = cluster.client().await;
    // In a minute a good one ticks thirty times, and a failing one is tried again in between.
    let expected = [
        ("good", 28, 31),
        ("panic", 60, 150),
        ("never", 1, 3),
        ("rest", 28, 31),
        ("remove", 1, 1),
        ("again", 11, 13),
        ("itself", 60, 150),
    ];
    for (what, ..) in expected {
        client.grain::<dyn Rogue>(what).ticks().await.unwrap();
    }
    world.advance(secs(60)).await;
    let ticks = TICKS.take();
    for (what, least, most) in expected {
        let came = ticks.get(what).copied().unwrap_or(0);
        assert!((least..=most).contains(&came), "{what}: {came}");
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
    assert!(grain.ticks().await.unwrap() >= 1);
}
