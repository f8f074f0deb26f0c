//! Reminders of real silos, in virtual time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::time::Duration;

use emmer::prelude::*;
use emmer::reminders::{ReminderError, ReminderInfo};
use emmer::tables::Timestamp;
use emmer::test::{Cluster, Failure, World, hours};

/// A reminder that a grain is to ask for.
#[derive(serde::Serialize, serde::Deserialize, Clone, Debug)]
struct Ask {
    name: String,
    at: Option<Timestamp>,
    after: Option<Duration>,
    every: Option<Duration>,
    until: Option<Duration>,
    missed: String,
    if_absent: bool,
}

fn ask(name: &str) -> Ask {
    Ask {
        name: name.to_owned(),
        at: None,
        after: None,
        every: None,
        until: None,
        missed: "Once".to_owned(),
        if_absent: false,
    }
}

#[grain_interface(key = String)]
trait Clockwork {
    async fn remind(&self, ask: Ask) -> Result<(), String>;
    async fn both(&mut self) -> Result<(), String>;
    async fn list(&self) -> Result<Vec<(String, u64, u64)>, String>;
    async fn remove(&self, name: String) -> Result<bool, String>;
    async fn fail(&mut self, times: u32);
    async fn rest(&self);
    async fn now(&self) -> Timestamp;
    /// Asks for a reminder, and does not wait for longer than this.
    async fn give_up(&self, after: Duration);
}

#[derive(Grain)]
struct Clock {
    #[context]
    ctx: Ctx,
    failures: u32,
}

thread_local! {
    /// A world has one thread: every tick that a handler was told of, with its grain.
    static TICKS: RefCell<Vec<(String, Tick, Timestamp)>> = const { RefCell::new(Vec::new()) };
}

fn ticks() -> Vec<(String, Tick, Timestamp)> {
    TICKS.take()
}

fn numbers(of: &str) -> Vec<u64> {
    let is = |(key, ..): &&(String, Tick, Timestamp)| key == of;
    TICKS.with_borrow(|all| all.iter().filter(is).map(|(_, tick, _)| tick.number).collect())
}

fn shown(info: &ReminderInfo) -> (String, u64, u64) {
    (info.name.clone(), info.fired, info.missed_count)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[grain]
impl Clockwork for Clock {
    async fn remind(&self, ask: Ask) -> Result<(), String> {
        let mut remind = self.ctx.remind(&ask.name).missed(ask.missed.parse().map_err(words)?);
        if let Some(at) = ask.at {
            remind = remind.at(at);
        }
        if let Some(after) = ask.after {
            remind = remind.after(after);
        }
        if let Some(every) = ask.every {
            remind = remind.every(every);
        }
        if let Some(until) = ask.until {
            remind = remind.until(self.ctx.now() + until);
        }
        if ask.if_absent {
            remind = remind.if_absent();
        }
        remind.await.map_err(words)?;
        Ok(())
    }

    async fn both(&mut self) -> Result<(), String> {
        self.ctx.remind("due").after(secs(3)).await.map_err(words)?;
        self.ctx.remind("look").every(secs(2)).await.map_err(words)?;
        Ok(())
    }

    async fn list(&self) -> Result<Vec<(String, u64, u64)>, String> {
        Ok(self.ctx.reminders().await.map_err(words)?.iter().map(shown).collect())
    }

    async fn remove(&self, name: String) -> Result<bool, String> {
        self.ctx.remove_reminder(&name).await.map_err(words)
    }

    async fn fail(&mut self, times: u32) {
        self.failures = times;
    }

    async fn rest(&self) {
        self.ctx.deactivate_on_idle();
    }

    async fn now(&self) -> Timestamp {
        self.ctx.now()
    }

    async fn give_up(&self, after: Duration) {
        let remind = self.ctx.remind("due").after(secs(10)).into_future();
        let _ = tokio::time::timeout(after, remind).await;
    }
}

#[grain]
impl Clock {
    fn note(&self, tick: Tick) {
        let key = self.ctx.key().to_string();
        let now = self.ctx.now();
        TICKS.with_borrow_mut(|ticks| ticks.push((key, tick, now)));
    }

    #[reminder("due")]
    async fn on_due(&mut self, tick: Tick) -> Result<(), String> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err("not now".to_owned());
        }
        self.note(tick);
        Ok(())
    }

    #[reminder("look")]
    async fn look(&self, tick: Tick) {
        self.note(tick);
    }
}

async fn clocks(world: &World, silos: usize) -> Cluster {
    ticks();
    world.cluster(silos, |silo| silo.host::<dyn Clockwork, Clock>()).await
}

async fn on<T>(cluster: &Cluster, key: &str, call: impl AsyncFnOnce(ClockworkRef) -> T) -> T {
    let node = cluster.nodes().iter().find(|node| !node.has_ended() && node.tasks() > 0).unwrap();
    node.run(async |client| call(client.grain::<dyn Clockwork>(key)).await).await.unwrap()
}

async fn remind(cluster: &Cluster, key: &str, ask: Ask) -> Result<(), String> {
    on(cluster, key, async |clock| clock.remind(ask).await.map_err(words)).await
}

async fn list(cluster: &Cluster, key: &str) -> Vec<(String, u64, u64)> {
    on(cluster, key, async |clock| clock.list().await.unwrap()).await
}

#[emmer::test]
async fn a_day_of_reminders_fires_in_time(world: World) {
    let cluster = clocks(&world, 2).await;
    for key in ["a", "b", "c", "d"] {
        remind(&cluster, key, Ask { every: Some(hours(1)), ..ask("due") }).await.unwrap();
    }
    remind(&cluster, "a", Ask { after: Some(hours(5)), ..ask("look") }).await.unwrap();
    world.advance(hours(24) + secs(5)).await;
    let all = ticks();
    for key in ["a", "b", "c", "d"] {
        let due: Vec<_> =
            all.iter().filter(|(of, tick, _)| of == key && tick.name == "due").collect();
        let numbers: Vec<_> = due.iter().map(|(_, tick, _)| tick.number).collect();
        assert_eq!(numbers, (1..=24).collect::<Vec<_>>());
        for (_, tick, came) in due {
            assert!(came.saturating_since(tick.due) < secs(1) && tick.missed == 0, "{tick:?}");
            assert_eq!(tick.due, tick.first + hours(tick.number - 1));
        }
    }
    assert_eq!(all.iter().filter(|(_, tick, _)| tick.name == "look").count(), 1);
    // The one that was due once is gone.
    assert_eq!(list(&cluster, "a").await, [("due".to_owned(), 24, 0)]);
}

#[emmer::test(seeds = 5)]
async fn reminders_are_listed_changed_and_removed(world: World) {
    let cluster = clocks(&world, 2).await;
    on(&cluster, "a", async |clock| clock.both().await.unwrap()).await;
    assert_eq!(list(&cluster, "a").await, [("due".to_owned(), 0, 0), ("look".to_owned(), 0, 0)]);
    world.advance(millis(6_500)).await;
    let names: Vec<_> = ticks().into_iter().map(|(_, tick, _)| (tick.name, tick.number)).collect();
    let look = |number| ("look".to_owned(), number);
    assert_eq!(names, [look(1), ("due".to_owned(), 1), look(2), look(3)]);
    // Changed: from now on, every ten seconds, twice.
    let changed =
        Ask { every: Some(secs(10)), until: Some(secs(25)), missed: "All".into(), ..ask("look") };
    remind(&cluster, "a", changed.clone()).await.unwrap();
    // Asked for again, it is left alone.
    world.advance(secs(5)).await;
    remind(&cluster, "a", Ask { if_absent: true, ..changed }).await.unwrap();
    world.advance(secs(60)).await;
    assert_eq!(numbers("a"), [1, 2]);
    assert_eq!(list(&cluster, "a").await, []);
    let remove = async |name: &str| {
        on(&cluster, "a", async |clock| clock.remove(name.to_owned()).await.unwrap()).await
    };
    assert!(!remove("look").await);
    remind(&cluster, "a", Ask { every: Some(secs(10)), ..ask("look") }).await.unwrap();
    world.advance(secs(15)).await;
    assert!(remove("look").await && !remove("look").await);
    ticks();
    world.advance(hours(1)).await;
    assert_eq!(numbers("a"), [0; 0]);
}

#[emmer::test(seeds = 3)]
async fn a_reminder_wakes_its_grain_and_a_failed_tick_comes_again(world: World) {
    let cluster = clocks(&world, 3).await;
    remind(&cluster, "a", Ask { every: Some(secs(60)), ..ask("due") }).await.unwrap();
    on(&cluster, "a", async |clock| clock.rest().await.unwrap()).await;
    world.advance(secs(61)).await;
    assert_eq!(numbers("a"), [1]);
    // Three failures, then the same number.
    on(&cluster, "a", async |clock| clock.fail(3).await.unwrap()).await;
    world.advance(secs(30 + 30 + 5)).await;
    assert_eq!(numbers("a"), [1, 2]);
    // It fails until the next occurrence is due, which reports it as missed.
    on(&cluster, "a", async |clock| clock.fail(u32::MAX).await.unwrap()).await;
    world.advance(secs(100)).await;
    on(&cluster, "a", async |clock| clock.fail(0).await.unwrap()).await;
    world.advance(secs(60)).await;
    let last = ticks().pop().unwrap().1;
    assert!(last.number >= 4 && last.missed == last.number - 3, "{last:?}");
    let failed: u64 = cluster.nodes().iter().map(|n| n.statistics().reminders_failed).sum();
    assert!(failed >= 6, "{failed}");
}

#[emmer::test(seeds = 3)]
async fn what_was_missed_is_made_up_for_as_the_reminder_says(world: World) {
    let mut cluster = clocks(&world, 2).await;
    for missed in ["Skip", "Once", "All"] {
        let asked = Ask { every: Some(hours(1)), missed: missed.into(), ..ask("due") };
        remind(&cluster, missed, asked).await.unwrap();
    }
    let begun = world.elapsed();
    world.advance(hours(1) + secs(60)).await;
    assert!(["Skip", "Once", "All"].iter().all(|key| numbers(key) == [1]));
    cluster.stop(0).await;
    cluster.stop(1).await;
    ticks();
    // No silo is there for the occurrences 2 to 5.
    world.advance(begun + hours(5) + secs(1_800) - world.elapsed()).await;
    cluster.add().await;
    world.advance(secs(60)).await;
    assert_eq!(numbers("Skip"), [0; 0]);
    assert_eq!(numbers("Once"), [5]);
    assert_eq!(numbers("All"), [2, 3, 4, 5]);
    world.advance(hours(1)).await;
    let missed = |of: &str| -> Vec<(u64, u64)> {
        TICKS.with_borrow(|all| {
            let of = all.iter().filter(|(key, ..)| key == of);
            of.map(|(_, tick, _)| (tick.number, tick.missed)).collect()
        })
    };
    assert_eq!(missed("Skip"), [(6, 4)]);
    assert_eq!(missed("Once"), [(5, 3), (6, 0)]);
    assert_eq!(missed("All"), [(2, 0), (3, 0), (4, 0), (5, 0), (6, 0)]);
    assert_eq!(list(&cluster, "Skip").await, [("due".to_owned(), 6, 4)]);
}

#[emmer::test(seeds = 2)]
async fn of_ten_thousand_ticks_none_is_lost_whatever_happens(world: World) {
    let mut cluster = clocks(&world, 3).await;
    let keys: Vec<String> = (0..50).map(|n| format!("clock {n}")).collect();
    for key in &keys {
        let asked = Ask { every: Some(secs(1)), missed: "All".into(), ..ask("look") };
        remind(&cluster, key, asked).await.unwrap();
    }
    world.advance(secs(20)).await;
    cluster.kill(0);
    cluster.add().await;
    world.advance(secs(20)).await;
    cluster.pause(1);
    world.advance(secs(10)).await;
    cluster.resume(1);
    world.advance(secs(20)).await;
    cluster.isolate(2);
    world.advance(secs(15)).await;
    cluster.heal();
    // All of them are replaced, one after the other.
    for _ in 0..3 {
        cluster.add().await;
    }
    for old in 1..4 {
        if !cluster.node(old).has_ended() {
            cluster.stop(old).await;
        }
        world.advance(secs(10)).await;
    }
    world.store().fail(Failure::Unavailable);
    world.advance(secs(15)).await;
    world.store().recover();
    world.advance(secs(20)).await;
    world.store().be_slow(millis(300));
    world.advance(secs(20)).await;
    world.store().recover();
    world.advance(secs(20)).await;
    world.advance(secs(20)).await;
    let (mut all, mut repeated) = (0, 0);
    for key in &keys {
        let came = numbers(key);
        let each: BTreeSet<u64> = came.iter().copied().collect();
        let last = came.iter().copied().max().unwrap();
        assert_eq!(each.len() as u64, last, "{key}: {came:?}");
        assert!(last + 3 >= world.elapsed().as_secs() - 10, "{key}: {last}");
        all += each.len();
        repeated += came.len() - each.len();
    }
    // Repetitions have the number of the first delivery: the check above tells them apart.
    assert!(all >= 10_000 && repeated < all / 10, "{all} ticks, {repeated} repetitions");
}

#[emmer::test(seeds = 3)]
async fn an_occurrence_that_is_due_while_the_store_is_away_comes_when_it_is_back(world: World) {
    let cluster = clocks(&world, 2).await;
    remind(&cluster, "a", Ask { after: Some(secs(20)), ..ask("due") }).await.unwrap();
    // Far away, and after the window: not in memory.
    remind(&cluster, "b", Ask { after: Some(hours(2)), ..ask("due") }).await.unwrap();
    remind(&cluster, "c", Ask { after: Some(hours(24 * 900)), ..ask("due") }).await.unwrap();
    world.advance(secs(15)).await;
    let in_memory = || cluster.nodes().iter().map(|n| n.statistics().reminders).sum::<u64>();
    assert_eq!(in_memory(), 1);
    world.store().fail(Failure::Unavailable);
    world.advance(secs(10)).await;
    // It was delivered in time, and is settled when the store is back, once.
    assert_eq!(numbers("a"), [1]);
    world.store().recover();
    world.advance(secs(60)).await;
    assert_eq!((numbers("a"), list(&cluster, "a").await), (vec![1], vec![]));
    world.advance(hours(1) + secs(3_350)).await;
    assert_eq!((numbers("b"), in_memory()), (vec![], 1));
    world.advance(secs(300)).await;
    assert_eq!((numbers("b"), in_memory()), (vec![1], 0));
    assert_eq!(list(&cluster, "c").await.len(), 1);
}

#[emmer::test(seeds = 3)]
async fn many_grains_keep_their_ticks_while_two_silos_join(world: World) {
    let mut cluster = clocks(&world, 1).await;
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for key in &keys {
        remind(&cluster, key, Ask { every: Some(secs(5)), ..ask("due") }).await.unwrap();
    }
    world.advance(secs(12)).await;
    cluster.add().await;
    cluster.add().await;
    world.advance(secs(30)).await;
    for key in &keys {
        let came = numbers(key);
        let last = came.last().copied().unwrap();
        assert!(last >= 8 && (1..=last).all(|n| came.contains(&n)), "{key}: {came:?}");
    }
    let fired: Vec<u64> =
        cluster.nodes().iter().map(|node| node.statistics().reminders_fired).collect();
    assert!(fired.iter().all(|fired| *fired > 20), "{fired:?}");
}

#[emmer::test]
async fn bad_input_is_refused_and_stores_nothing(world: World) {
    let cluster = clocks(&world, 1).await;
    let now = on(&cluster, "a", async |clock| clock.now().await.unwrap()).await;
    let refused = async |ask: Ask, says: &str| {
        let words = remind(&cluster, "a", ask.clone()).await.unwrap_err();
        assert!(words.contains(says), "{ask:?}: {words}");
    };
    refused(Ask { after: Some(secs(1)), ..ask("") }, "0 bytes: expected 1 to 128").await;
    refused(Ask { after: Some(secs(1)), ..ask(&"x".repeat(129)) }, "129 bytes").await;
    refused(Ask { after: Some(secs(1)), ..ask("dew") }, "#[reminder(\"dew\")]").await;
    refused(ask("due"), "has no time: write").await;
    refused(Ask { every: Some(millis(999)), ..ask("due") }, "shortest period is 1s").await;
    refused(Ask { at: Some(now - secs(60)), ..ask("due") }, "has passed").await;
    let ended = Ask { after: Some(secs(20)), until: Some(secs(10)), ..ask("due") };
    refused(ended, "before it is due first").await;
    assert_eq!(list(&cluster, "a").await, []);
    world.store().fail(Failure::Unavailable);
    refused(Ask { after: Some(secs(1)), ..ask("due") }, "").await;
    world.store().recover();
    assert_eq!(list(&cluster, "a").await, []);
}

#[emmer::test]
async fn a_grain_has_no_more_reminders_than_it_may(world: World) {
    ticks();
    let describe = |silo: emmer::SiloBuilder| {
        silo.configure(|o| o.reminders.per_grain_max = 1).host::<dyn Clockwork, Clock>()
    };
    let cluster = world.cluster(2, describe).await;
    let later = |name| Ask { after: Some(secs(100)), ..ask(name) };
    remind(&cluster, "a", later("due")).await.unwrap();
    // It may be replaced, and another grain has its own.
    remind(&cluster, "a", later("due")).await.unwrap();
    remind(&cluster, "b", later("look")).await.unwrap();
    let refused = remind(&cluster, "a", later("look")).await.unwrap_err();
    assert!(refused.contains(&ReminderError::TooMany(1).to_string()), "{refused}");
    assert_eq!(list(&cluster, "a").await.len(), 1);
}

#[emmer::test(seeds = 3)]
async fn a_reminder_that_its_grain_does_not_know_to_be_stored_comes_in_time(world: World) {
    let cluster = clocks(&world, 2).await;
    let keys: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    for key in &keys {
        on(&cluster, key, async |clock| clock.rest().await.unwrap()).await;
    }
    world.store().be_slow(millis(100));
    for (key, time) in keys.iter().zip((0u64..).map(|n| millis(20 + 25 * n))) {
        on(&cluster, key, async |clock| clock.give_up(time).await.unwrap()).await;
    }
    world.store().recover();
    // Here it is certainly stored, and its grain does not know.
    world.store().fail_next_write("s.lost-due", Failure::LostAnswer);
    let asked = Ask { after: Some(secs(10)), ..ask("due") };
    remind(&cluster, "lost", asked).await.unwrap_err();
    world.advance(secs(30)).await;
    assert_eq!(numbers("lost"), [1]);
    // Stored reminders have fired, and are gone: due once.
    let left: Vec<usize> = {
        let mut left = Vec::new();
        for key in &keys {
            left.push(list(&cluster, key).await.len());
        }
        left
    };
    let fired = keys.iter().filter(|key| numbers(key) == [1]).count();
    assert!(left.iter().all(|left| *left == 0) && fired > 0, "{left:?}, {fired} fired");
}
