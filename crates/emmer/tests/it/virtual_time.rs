//! Real silos in virtual time: what a user's tests can do.

use emmer::prelude::*;
use emmer::test::{Failure, World, at_rest, hours};
use std::future::{Future, IntoFuture, poll_fn};
use std::task::Poll;
use std::time::Duration;

#[grain_interface(key = String)]
trait Counter {
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    async fn total(&self) -> u64;
}

#[derive(Grain, Default)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        self.total.modify(|t| *t += n);
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }
}

/// A grain that asks another one.
#[grain_interface(key = String)]
trait Shop {
    async fn buy(&mut self, item: String) -> Result<u64, String>;
}

#[grain_interface(key = String)]
trait Bank {
    async fn pay(&mut self, amount: u64) -> bool;
}

#[derive(Grain, Default)]
struct ShopGrain {
    #[state("stock")]
    stock: Persistent<u64>,
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Shop for ShopGrain {
    async fn buy(&mut self, item: String) -> Result<u64, String> {
        let ctx = self.ctx.as_ref().ok_or("no context")?;
        if *self.stock == 0 {
            return Err(format!("no {item} left"));
        }
        let paid =
            ctx.grains().grain::<dyn Bank>("main").pay(5).await.map_err(|e| e.to_string())?;
        if !paid {
            return Err("not paid".to_owned());
        }
        self.stock.modify(|stock| *stock -= 1);
        self.stock.write().await.map_err(|e| e.to_string())?;
        Ok(*self.stock)
    }
}

/// A bank that pays once.
#[derive(Grain, Default)]
struct FakeBank {
    paid: bool,
}

#[grain]
impl Bank for FakeBank {
    async fn pay(&mut self, _: u64) -> bool {
        !std::mem::replace(&mut self.paid, true)
    }
}

async fn counters(world: &World, silos: usize) -> emmer::test::Cluster {
    world.cluster(silos, |silo| silo.host::<dyn Counter, CounterGrain>()).await
}

#[emmer::test(seeds = 5)]
async fn what_was_stored_survives_the_death_of_a_silo(world: World) {
    let mut cluster = counters(&world, 3).await;
    let client = cluster.client().await;
    let counter = |n: usize| client.grain::<dyn Counter>(format!("c{n}"));
    for n in 0..30 {
        assert_eq!(counter(n).add(1).await.unwrap(), 1);
    }
    cluster.kill(1);
    world.advance(secs(10)).await;
    for n in 0..30 {
        assert_eq!(counter(n).add(1).await.unwrap(), 2);
    }
    cluster.restart(1).await;
    cluster.stop(0).await;
    for n in 0..30 {
        assert_eq!(counter(n).total().await.unwrap(), 2);
    }
    assert_eq!(
        cluster
            .node(1)
            .view()
            .iter()
            .filter(|(_, s)| *s == emmer::tables::SiloStatus::Active)
            .count(),
        2
    );
}

#[emmer::test]
async fn a_grain_that_nobody_calls_for_a_day_is_not_active_any_more(world: World) {
    let cluster = counters(&world, 1).await;
    let client = cluster.client().await;
    client.grain::<dyn Counter>("c").add(1).await.unwrap();
    assert_eq!(cluster.activations(), 1);
    world.advance(hours(24)).await;
    assert_eq!(cluster.activations(), 0);
    assert_eq!(client.grain::<dyn Counter>("c").total().await.unwrap(), 1);
}

#[emmer::test]
async fn a_write_that_fails_is_told_and_the_next_one_succeeds(world: World) {
    let cluster = counters(&world, 1).await;
    let client = cluster.client().await;
    let account = client.grain::<dyn Counter>("account");
    assert_eq!(account.add(1).await.unwrap(), 1);
    for (how, told) in [
        (Failure::Unavailable, "StoreUnavailable"),
        (Failure::Conflict, "EtagMismatch"),
        (Failure::LostAnswer, "Unknown"),
    ] {
        let before = account.total().await.unwrap();
        world.store().fail_next_write("account", how);
        let error = account.add(1).await.unwrap_err();
        println!("{told}: {error:?}");
        let after = account.total().await.unwrap();
        assert_eq!(after, before + u64::from(how == Failure::LostAnswer), "{how:?}");
    }
}

#[emmer::test]
async fn a_grain_is_tested_alone_with_a_state_and_a_fake(world: World) {
    let shop = world.alone(|silo| silo.host::<dyn Shop, ShopGrain>().host::<dyn Bank, FakeBank>());
    let (_cluster, client) = shop.given::<dyn Shop>("corner", "stock", &2u64).await.start().await;
    let shop = client.grain::<dyn Shop>("corner");
    assert_eq!(shop.buy("bread".to_owned()).await.unwrap(), 1);
    let error = shop.buy("bread".to_owned()).await.unwrap_err();
    assert!(error.to_string().contains("not paid"), "{error}");
}

#[emmer::test]
async fn a_silo_that_is_cut_off_ends_and_its_grains_go_on_elsewhere(world: World) {
    let cluster = counters(&world, 5).await;
    let client = cluster.client().await;
    for n in 0..20 {
        client.grain::<dyn Counter>(format!("c{n}")).add(1).await.unwrap();
    }
    let start = world.elapsed();
    cluster.isolate(2);
    let reason = cluster.node(2).terminated().await;
    println!("{reason} after {:?}", world.elapsed() - start);
    world.advance(secs(5)).await;
    for n in 0..20 {
        assert_eq!(client.grain::<dyn Counter>(format!("c{n}")).add(1).await.unwrap(), 2);
    }
}

#[emmer::test(seeds = 5)]
async fn a_call_that_was_kept_while_the_fence_was_closed_holds_up_no_other(world: World) {
    let cluster = counters(&world, 1).await;
    let called = cluster.node(0).run(async |silo| {
        let counter = || silo.grain::<dyn Counter>("kept");
        assert_eq!(counter().add(1).await, Ok(1));
        cluster.cut_from_store(0);
        world.advance(secs(60)).await;
        let mut kept = std::pin::pin!(counter().add(1).timeout(secs(300)).into_future());
        let waits = poll_fn(|cx| Poll::Ready(kept.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "the fence is closed");
        cluster.heal();
        world.advance(secs(20)).await;
        assert_eq!(counter().add(1).timeout(secs(5)).await, Ok(2));
        assert_eq!(kept.await, Ok(3));
    });
    assert!(called.await.is_some());
}

#[grain_interface(key = String)]
trait Door {
    async fn hold(&mut self, millis: u64);
    async fn pass(&mut self) -> u64;
    async fn look(&self) -> u64;
}

#[derive(Grain, Default)]
struct DoorGrain {
    passed: u64,
}

#[grain]
impl Door for DoorGrain {
    async fn hold(&mut self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    async fn pass(&mut self) -> u64 {
        self.passed += 1;
        self.passed
    }

    async fn look(&self) -> u64 {
        tokio::task::yield_now().await;
        self.passed
    }
}

#[emmer::test(seeds = 5)]
async fn a_call_times_out_behind_one_that_was_kept_and_then_went_in_at_once(world: World) {
    const LIMIT: Duration = Duration::from_millis(200);
    let cluster = world.cluster(1, |silo| silo.host::<dyn Door, DoorGrain>()).await;
    let called = cluster.node(0).run(async |silo| {
        let door = || silo.grain::<dyn Door>("d");
        let mut kept = std::pin::pin!(door().pass().into_future());
        let keep = async {
            let waits = poll_fn(|cx| Poll::Ready(kept.as_mut().poll(cx).is_pending())).await;
            assert!(waits, "another call is inside");
        };
        let (held, ()) = tokio::join!(door().hold(30).into_future(), keep);
        assert_eq!(held, Ok(()));
        // The kept call loses its place meanwhile.
        world.advance(secs(2)).await;
        assert_eq!(kept.await, Ok(1));
        let start = world.elapsed();
        let late = async {
            let late = door().pass().timeout(LIMIT).await;
            (late, world.elapsed() - start)
        };
        let (held, (late, took)) = tokio::join!(door().hold(3_000).into_future(), late);
        assert_eq!(held, Ok(()));
        assert!(late.is_err() && took < LIMIT * 2, "{late:?} after {took:?}");
        assert_eq!(door().pass().await, Ok(2));
    });
    assert!(called.await.is_some());
}

#[test]
fn the_same_seed_does_the_same_things() {
    let run = |seed: u64| {
        let trace = std::sync::Arc::new(std::sync::Mutex::new((0, 0)));
        let told = trace.clone();
        emmer::test::run_seed(seed, async move |world: World| {
            let cluster = counters(&world, 4).await;
            let client = cluster.client().await;
            for n in 0..50 {
                let counter = client.grain::<dyn Counter>(format!("c{n}"));
                let _ = counter.add(world.bits() % 7).await;
                if n == 20 {
                    cluster.kill(3);
                }
                if n == 35 {
                    cluster.pause(1);
                    world.advance(millis(300)).await;
                    cluster.resume(1);
                }
            }
            world.advance(secs(30)).await;
            *told.lock().unwrap() = (world.trace(), world.events());
        });
        *trace.lock().unwrap()
    };
    let first = run(7);
    assert_eq!(run(7), first, "the same seed");
    assert_ne!(run(8), first, "another seed");
}

#[emmer::test]
async fn a_silo_that_is_killed_is_found_at_once_at_rest_too(world: World) {
    let cluster =
        world.cluster(3, |silo| silo.configure(at_rest).host::<dyn Counter, CounterGrain>()).await;
    let killed = cluster.node(1).address();
    cluster.kill(1);
    world.advance(secs(1)).await;
    for node in [0, 2] {
        let view = cluster.node(node).view();
        let status = view.iter().find(|(silo, _)| *silo == killed).map(|(_, status)| *status);
        assert!(matches!(status, None | Some(emmer::tables::SiloStatus::Dead)), "{view:?}");
    }
}

/// A consumer that is slow keeps the calls that it does not poll. Nobody is inside.
#[emmer::test(seeds = 5)]
async fn nobody_waits_more_than_150_ms_before_a_free_grain(world: World) {
    use futures_util::StreamExt as _;
    let cluster = world.cluster(1, |silo| silo.host::<dyn Door, DoorGrain>()).await;
    let called = cluster.node(0).run(async |silo| {
        let door = || silo.grain::<dyn Door>("d");
        let slow = async {
            let calls = futures_util::stream::iter(0..12).map(|n| {
                let door = door();
                // The queue has writers, readers, and calls that hold the grain.
                async move {
                    match n % 3 {
                        0 => door.hold(1).await.map(|()| 0),
                        1 => door.pass().await,
                        _ => door.look().await,
                    }
                }
            });
            let mut calls = std::pin::pin!(calls.buffer_unordered(4));
            while calls.next().await.is_some() {
                world.advance(secs(3)).await;
            }
        };
        let others = async {
            for n in 0..200 {
                let start = world.elapsed();
                if n % 2 == 0 { door().look().await } else { door().pass().await }.unwrap();
                let took = world.elapsed() - start;
                assert!(took <= millis(150), "call {n} took {took:?}");
                world.advance(millis(37 * (n % 7))).await;
            }
        };
        tokio::join!(slow, others);
    });
    assert!(called.await.is_some());
}

#[emmer::test]
async fn a_silo_that_was_declared_dead_gives_its_process_an_error_and_the_exit_code(world: World) {
    use std::process::ExitCode;
    let cluster = counters(&world, 4).await;
    let cut_off = cluster.node(3);
    let faults = async {
        world.advance(secs(1)).await;
        cluster.isolate(3);
        cluster.stop(0).await;
    };
    let run = |n: usize| cluster.node(n).run_until_stopped();
    let (stopped, dead, ()) = tokio::join!(run(0), run(3), faults);
    // A silo that leaves ends its process, which may come first.
    assert!(matches!(stopped, None | Some(Ok(()))), "{stopped:?}");
    let dead = dead.unwrap().unwrap_err();
    assert_eq!(dead.silo, cut_off.address());
    assert!(dead.to_string().ends_with("stopped itself: this silo was declared dead"), "{dead}");
    assert_eq!(emmer::exit(Err(dead.into())), ExitCode::from(86));
    let lost = emmer::errors::TerminateReason::TableWentBack;
    let lost = emmer::errors::Terminated { silo: cut_off.address(), reason: lost };
    assert_eq!(emmer::exit(Err(lost.into())), ExitCode::from(87));
    let start = Silo::builder().store("sqlite:///nowhere/at/all.db").start().await.unwrap_err();
    assert_eq!(emmer::exit(Err(start.into())), ExitCode::from(3));
    assert_eq!(emmer::exit(Err(emmer::Error::new("something else"))), ExitCode::FAILURE);
    assert_eq!(emmer::exit(Ok(())), ExitCode::SUCCESS);
}

/// A firewall forgets every connection that is open; new ones work.
#[emmer::test(seeds = 3)]
async fn a_client_whose_connection_falls_silent_is_served_within_5_s(world: World) {
    for silos in [1, 3] {
        let cluster = counters(&world, silos).await;
        let (idle, busy) = (cluster.client().await, cluster.client().await);
        let gateways = busy.gateways();
        let add = |client: &Client, n: usize| {
            client.grain::<dyn Counter>(format!("{silos}-{n}")).add(1).timeout(secs(60))
        };
        for n in 0..8 {
            add(&idle, n).await.unwrap();
        }
        let end = world.elapsed() + secs(25);
        let callers = (0..8).map(|n| {
            let (busy, world) = (busy.clone(), &world);
            async move {
                let mut worst = Duration::ZERO;
                let mut last = world.elapsed();
                while last < end {
                    if add(&busy, n).await.is_ok() {
                        worst = worst.max(world.elapsed() - last);
                        last = world.elapsed();
                    }
                    world.advance(millis(20)).await;
                }
                worst
            }
        });
        let forgets = async {
            world.advance(secs(5)).await;
            cluster.forget_all_connections();
            // One that was idle finds out with its next call.
            world.advance(secs(7)).await;
            let start = world.elapsed();
            while add(&idle, 0).await.is_err() {}
            world.elapsed() - start
        };
        let (worst, idle_took) = tokio::join!(futures_util::future::join_all(callers), forgets);
        assert!(idle_took <= secs(5), "{silos} silos: the idle client waited {idle_took:?}");
        assert!(worst.iter().all(|worst| *worst <= secs(5)), "{silos} silos: {worst:?}");
        assert_eq!(busy.gateways(), gateways);
        assert!(cluster.nodes().iter().all(|node| !node.has_ended()));
    }
}

/// A firewall resets all connections between some silos, their lifelines too, and refuses new ones
/// in one direction: the other silo dials, and is heard.
#[emmer::test(seeds = 5)]
async fn a_firewall_that_resets_and_refuses_between_some_pairs_kills_nobody(world: World) {
    let cluster = counters(&world, 5).await;
    let client = cluster.client().await;
    for n in 0..20 {
        client.grain::<dyn Counter>(format!("c{n}")).add(1).await.unwrap();
    }
    for pairs in [&[(0, 1)][..], &[(0, 2), (1, 3)], &[(0, 4), (1, 4), (2, 4), (3, 4)]] {
        for (from, to) in pairs {
            cluster.refuse(*from, *to);
        }
        world.advance(secs(30)).await;
        let ended = cluster.nodes().iter().filter(|node| node.has_ended()).count();
        assert_eq!(ended, 0, "{pairs:?}: {:?}", cluster.node(3).view());
        cluster.heal();
        world.advance(secs(10)).await;
    }
    for n in 0..20 {
        assert_eq!(client.grain::<dyn Counter>(format!("c{n}")).total().await, Ok(1));
    }
}

/// A firewall forgets the connections between two silos, or between all of them: their lifelines,
/// and those of their probes and calls.
#[emmer::test(seeds = 10)]
async fn nobody_dies_of_a_silent_connection_between_silos(world: World) {
    let cluster = counters(&world, 4).await;
    let called = |node: usize| {
        cluster.node(node).run(async move |silo| {
            for n in 0..40 {
                let counter = silo.grain::<dyn Counter>(format!("c{n}"));
                counter.total().timeout(secs(1)).await.unwrap();
            }
        })
    };
    called(0).await.unwrap();
    for round in 0..3 {
        match round {
            0 => cluster.forget_connections(0, 1),
            1 => (1..4).for_each(|other| cluster.forget_connections(0, other)),
            _ => cluster.forget_all_connections(),
        }
        world.advance(secs(5)).await;
        for node in 0..4 {
            called(node).await.unwrap();
        }
        world.advance(secs(60)).await;
        for node in 0..4 {
            let view = cluster.node(node).view();
            assert_eq!(view.len(), 4);
            assert!(view.iter().all(|(_, s)| *s == emmer::tables::SiloStatus::Active), "{view:?}");
        }
    }
}

/// A kernel that ends a process resets the connections in which bytes lie unread. A firewall does
/// so too, but it does not close a lifeline in good order.
#[emmer::test(seeds = 5)]
async fn a_silo_killed_with_unread_bytes_is_dead_within_150_ms(world: World) {
    let cluster = counters(&world, 3).await;
    let killed = cluster.node(1).address();
    let client = cluster.client().await;
    for n in 0..30 {
        client.grain::<dyn Counter>(format!("c{n}")).add(1).await.unwrap();
    }
    // It no longer reads, and its peers continue to ask it.
    cluster.pause(1);
    for node in [0, 2] {
        let asked = cluster.node(node).run(async |silo| {
            for n in 0..30 {
                let counter = silo.grain::<dyn Counter>(format!("c{n}"));
                let _ = counter.total().timeout(millis(5)).await;
            }
        });
        asked.await.unwrap();
    }
    cluster.kill(1);
    world.advance(millis(150)).await;
    for node in [0, 2] {
        let view = cluster.node(node).view();
        let status = view.iter().find(|(silo, _)| *silo == killed).map(|(_, status)| *status);
        assert!(matches!(status, None | Some(emmer::tables::SiloStatus::Dead)), "{view:?}");
    }
    let start = world.elapsed();
    for n in 0..30 {
        let counter = client.grain::<dyn Counter>(format!("c{n}"));
        assert_eq!(counter.total().timeout(secs(1)).await, Ok(1), "c{n}");
    }
    assert!(world.elapsed() - start < secs(1), "{:?}", world.elapsed() - start);
}

#[emmer::test]
async fn a_day_of_three_silos(world: World) {
    let cluster =
        world.cluster(3, |silo| silo.configure(at_rest).host::<dyn Counter, CounterGrain>()).await;
    let start = std::time::Instant::now();
    world.advance(hours(24)).await;
    println!("a day: {:?}, {} events", start.elapsed(), world.events());
    assert_eq!(cluster.nodes().len(), 3);
}

/// Says where it is.
#[grain_interface(key = String)]
trait Whereabouts {
    async fn silo(&self) -> Option<String>;
}

#[derive(Grain)]
#[placement(prefer_local)]
struct SlowToGo {
    #[context]
    ctx: Ctx,
}

impl Lifecycle for SlowToGo {
    async fn deactivate(&mut self, _: &Ctx, _: DeactivationReason) {
        tokio::time::sleep(secs(20)).await;
    }
}

#[grain]
impl Whereabouts for SlowToGo {
    async fn silo(&self) -> Option<String> {
        self.ctx.silo().map(|silo| silo.to_string())
    }
}

/// Its row says Active all the while, because the store does not answer.
#[emmer::test]
async fn a_silo_that_sends_its_grains_away_takes_none_whatever_the_view_says(world: World) {
    let cluster = world.cluster(5, |silo| silo.host::<dyn Whereabouts, SlowToGo>()).await;
    let leaver = cluster.node(0);
    let at = async |key: &str| {
        let asked =
            leaver.run(async |client| client.grain::<dyn Whereabouts>(key).silo().await.unwrap());
        asked.await.unwrap()
    };
    assert_eq!(at("first").await, Some(leaver.address().to_string()));
    world.store().be_silent();
    let meanwhile = async {
        // The silo has waited for its row, and waits for the hook of the first grain.
        world.advance(secs(10)).await;
        assert!(leaver.view().contains(&(leaver.address(), emmer::tables::SiloStatus::Active)));
        assert_ne!(at("second").await, Some(leaver.address().to_string()));
        world.store().recover();
    };
    tokio::join!(cluster.stop(0), meanwhile);
    assert!(leaver.has_ended());
}
