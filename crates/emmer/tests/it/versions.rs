//! Versions of one interface side by side: who is served where, and upgrades under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer::SiloBuilder;
use emmer::placement::VersionSelector;
use emmer::prelude::*;
use emmer::tables::SiloAddress;
use emmer::test::{Cluster, NetModel, World};
use tokio::task::JoinHandle;

/// One version of the interface `Account`, and its class, in a module.
macro_rules! account {
    ($module:ident, ($($args:tt)*), $version:literal $(, $more:ident)?) => {
        mod $module {
            use std::sync::Mutex;

            use emmer::prelude::*;
            use emmer::DeactivationReason;
            use emmer::tables::SiloAddress;

            /// Why grains of this version were deactivated.
            pub static ENDED: Mutex<Vec<(String, DeactivationReason)>> = Mutex::new(Vec::new());

            #[grain_interface(key = String, $($args)*)]
            pub trait Account {
                async fn add(&mut self, n: u64) -> Result<u64, StateError>;
                /// The version of the class that has it, and where.
                async fn place(&self) -> (u32, SiloAddress);
                $(async fn $more(&mut self) -> Result<u64, StateError>;)?
            }

            #[derive(Grain)]
            pub struct AccountGrain {
                #[state("total")]
                total: Persistent<u64>,
                #[context]
                ctx: Ctx,
            }

            impl Lifecycle for AccountGrain {
                async fn deactivate(&mut self, ctx: &Ctx, reason: DeactivationReason) {
                    ENDED.lock().unwrap().push((ctx.key().to_string(), reason));
                }
            }

            #[grain]
            impl Account for AccountGrain {
                async fn add(&mut self, n: u64) -> Result<u64, StateError> {
                    self.total.modify(|total| *total += n);
                    self.total.write().await?;
                    Ok(*self.total)
                }

                async fn place(&self) -> (u32, SiloAddress) {
                    ($version, self.ctx.silo().unwrap())
                }

                $(async fn $more(&mut self) -> Result<u64, StateError> {
                    self.add(1_000).await
                })?
            }
        }
    };
}

account!(v1, (grain = "account"), 1);
account!(v2, (grain = "account", version = 2), 2, bonus);
account!(strict1, (grain = "strict", compatible = "strict"), 1);
account!(strict2, (grain = "strict", version = 2, compatible = "strict"), 2);
account!(all1, (grain = "all", compatible = "all"), 1);
account!(all2, (grain = "all", version = 2, compatible = "all"), 2, bonus);

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn host_1(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn v1::Account, v1::AccountGrain>()
        .host::<dyn strict1::Account, strict1::AccountGrain>()
        .host::<dyn all1::Account, all1::AccountGrain>()
}

fn host_2(silo: SiloBuilder) -> SiloBuilder {
    silo.host::<dyn v2::Account, v2::AccountGrain>()
        .host::<dyn strict2::Account, strict2::AccountGrain>()
        .host::<dyn all2::Account, all2::AccountGrain>()
}

/// Two silos of version 1, and two of version 2.
async fn both(world: &World, selector: VersionSelector) -> Cluster {
    let with = move |silo: SiloBuilder| silo.configure(move |o| o.version_selector = selector);
    let mut cluster = world.cluster(2, move |silo| host_1(with(silo))).await;
    cluster.describe(move |silo| host_2(with(silo)));
    for _ in 0..2 {
        cluster.add().await;
    }
    world.advance(secs(3)).await;
    cluster
}

fn addresses(cluster: &Cluster, nodes: &[usize]) -> BTreeSet<SiloAddress> {
    nodes.iter().map(|node| cluster.node(*node).address()).collect()
}

#[emmer::test(seeds = 5)]
async fn a_call_of_a_newer_version_moves_the_grain_and_older_callers_follow(world: World) {
    let cluster = both(&world, VersionSelector::Any).await;
    let old = cluster.client().await;
    let new = cluster.client().await;
    let (mut on, mut moved) = ([0, 0], 0);
    for n in 0..20 {
        let key = format!("{}-{n}", world.bits());
        let account = old.grain::<dyn v1::Account>(&key);
        assert_eq!(account.add(1).await, Ok(1));
        let (before, _) = account.place().await.unwrap();
        on[before as usize - 1] += 1;
        let newer = new.grain::<dyn v2::Account>(&key);
        // Not even a method that both have is served by the older one.
        assert_eq!(newer.add(1).await, Ok(2));
        assert_eq!(newer.bonus().await, Ok(1_002));
        let (after, silo) = newer.place().await.unwrap();
        assert!(after == 2 && addresses(&cluster, &[2, 3]).contains(&silo));
        assert_eq!(account.add(1).await, Ok(1_003));
        assert_eq!(account.place().await.unwrap(), (2, silo), "nothing moves it back");
        let ended = v1::ENDED.lock().unwrap();
        let why: Vec<_> = ended.iter().filter(|(of, _)| *of == key).map(|(_, why)| why).collect();
        let moved_away = why == [&DeactivationReason::OtherVersion(silo)];
        assert!(if before == 1 { moved_away } else { why.is_empty() }, "{before}: {why:?}");
        moved += usize::from(before == 1);
    }
    assert!(moved > 0 && on[0] > 0 && on[1] > 0, "{moved}, {on:?}");
}

#[emmer::test(seeds = 5)]
async fn strict_versions_serve_their_own_callers_only(world: World) {
    let cluster = both(&world, VersionSelector::Any).await;
    let client = cluster.client().await;
    for n in 0..10 {
        let key = format!("{}-{n}", world.bits());
        for round in 0..3 {
            let older = client.grain::<dyn strict1::Account>(&key);
            assert_eq!(older.add(1).await, Ok(2 * round + 1));
            assert_eq!(older.place().await.unwrap().0, 1);
            let newer = client.grain::<dyn strict2::Account>(&key);
            assert_eq!(newer.add(1).await, Ok(2 * round + 2));
            assert_eq!(newer.place().await.unwrap().0, 2);
        }
    }
}

#[emmer::test(seeds = 10)]
async fn callers_of_strict_versions_that_call_in_turn_are_all_served(world: World) {
    let cluster = both(&world, VersionSelector::Any).await;
    let mut callers = Vec::new();
    for _ in 0..3 {
        callers.push((cluster.client().await, cluster.client().await));
    }
    for n in 0..5 {
        let key = format!("{}-{n}", world.bits());
        let mut total = 0;
        for (older, newer) in callers.iter().cycle().take(12) {
            // One without an answer, and one with an answer, of each version.
            older.grain::<dyn strict1::Account>(&key).add(1).send().unwrap();
            world.advance(Duration::from_millis(20)).await;
            newer.grain::<dyn strict2::Account>(&key).add(1).send().unwrap();
            world.advance(Duration::from_millis(20)).await;
            let older = older.grain::<dyn strict1::Account>(&key);
            assert_eq!(older.add(1).timeout(secs(5)).await, Ok(total + 3));
            let newer = newer.grain::<dyn strict2::Account>(&key);
            assert_eq!(newer.add(1).timeout(secs(5)).await, Ok(total + 4));
            total += 4;
        }
    }
}

#[emmer::test(seeds = 5)]
async fn versions_that_serve_all_callers_do_so_as_far_as_they_have_the_method(world: World) {
    let cluster = both(&world, VersionSelector::Any).await;
    let client = cluster.client().await;
    let mut versions = BTreeSet::new();
    for n in 0..20 {
        let account = client.grain::<dyn all2::Account>(format!("{}-{n}", world.bits()));
        assert_eq!(account.add(1).await, Ok(1));
        versions.insert(account.place().await.unwrap().0);
        assert_eq!(account.bonus().await, Ok(1_001));
        assert_eq!(account.place().await.unwrap().0, 2);
    }
    assert_eq!(versions, BTreeSet::from([1, 2]));
}

#[emmer::test(seeds = 3)]
async fn the_selector_says_which_version_gets_new_activations(world: World) {
    for (selector, nodes) in [
        (VersionSelector::Any, &[0, 1, 2, 3][..]),
        (VersionSelector::Newest, &[2, 3]),
        (VersionSelector::Oldest, &[0, 1]),
    ] {
        let cluster = both(&world, selector).await;
        let client = cluster.client().await;
        let mut used = BTreeSet::new();
        for n in 0..40 {
            let account = client.grain::<dyn v1::Account>(format!("{}-{n}", world.bits()));
            used.insert(account.place().await.unwrap().1);
        }
        assert_eq!(used, addresses(&cluster, nodes), "{selector}");
        for node in 0..4 {
            cluster.stop(node).await;
        }
    }
}

#[emmer::test(seeds = 3)]
async fn a_call_that_no_version_serves_is_rejected_and_told_which_there_are(world: World) {
    let listing = |silo| host_1(silo).configure(|options| options.list_types_to_clients = true);
    let cluster = world.cluster(2, listing).await;
    let client = cluster.client().await;
    world.advance(secs(3)).await;
    // Active or not.
    let (idle, active) = (format!("idle-{}", world.bits()), format!("active-{}", world.bits()));
    client.grain::<dyn v1::Account>(&active).add(1).await.unwrap();
    for key in [&idle, &active] {
        let refused = client.grain::<dyn v2::Account>(key).bonus().await.unwrap_err();
        assert!(matches!(refused, CallError::Rejected { .. }), "{refused:?}");
        let told = "no active silo has this method of account: version 1 by 2 silos";
        assert!(refused.to_string().contains(told), "{refused}");
    }
    world.advance(secs(10)).await;
    assert!(v1::ENDED.lock().unwrap().iter().all(|(key, _)| *key != active), "it stays");
    assert_eq!(client.grain::<dyn v1::Account>(&active).add(1).await, Ok(2));
}

#[emmer::test(seeds = 5)]
async fn a_silo_with_the_older_version_calls_the_newer_one_too(world: World) {
    let cluster = both(&world, VersionSelector::Oldest).await;
    let run = u64::from(world.bits() as u32);
    for node in 0..2 {
        let called = cluster.node(node).run(async move |silo| {
            for n in 0..10 {
                let key = format!("{run}-{node}-{n}");
                let older = silo.grain::<dyn v1::Account>(&key);
                assert_eq!(older.add(1).await, Ok(1));
                assert_eq!(older.place().await.unwrap().0, 1);
                let newer = silo.grain::<dyn v2::Account>(&key);
                // Where it is active, wherever that is: every second time without an answer.
                if n % 2 == 0 {
                    newer.bonus().send().unwrap();
                    tokio::time::sleep(secs(2)).await;
                } else {
                    assert_eq!(newer.bonus().await, Ok(1_001));
                }
                assert_eq!(newer.place().await.unwrap().0, 2);
                assert_eq!(older.add(1).await, Ok(1_002));
            }
        });
        assert!(called.await.is_some());
    }
}

#[emmer::test(seeds = 5)]
async fn a_busy_grain_moves_once_however_many_older_callers_it_has(world: World) {
    let mut cluster = both(&world, VersionSelector::Oldest).await;
    cluster.describe(host_1);
    for _ in 0..2 {
        cluster.add().await;
    }
    // Calls are under way for long, so that some come when the grain has gone.
    let (delay_min, delay_max) = (Duration::from_millis(5), Duration::from_millis(30));
    world.net().set_model(NetModel { delay_min, delay_max, ..NetModel::default() });
    let key = format!("busy-{}", world.bits());
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for _ in 0..8 {
        let (client, key, stop) = (cluster.client().await, key.clone(), stop.clone());
        callers.push(tokio::spawn(async move {
            let mut calls = 0;
            while !stop.load(Ordering::Relaxed) {
                client.grain::<dyn v1::Account>(&key).add(1).await.unwrap();
                calls += 1;
            }
            calls
        }));
    }
    world.advance(secs(1)).await;
    let client = cluster.client().await;
    for _ in 0..20 {
        client.grain::<dyn v2::Account>(&key).add(1).timeout(secs(2)).await.unwrap();
        world.advance(Duration::from_millis(300)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut calls = 20;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert_eq!(client.grain::<dyn v2::Account>(&key).add(0).await, Ok(calls));
    let ended = v1::ENDED.lock().unwrap().iter().filter(|(of, _)| *of == key).count();
    assert_eq!(ended, 1);
}

#[emmer::test(seeds = 5)]
async fn silos_of_the_selected_version_that_are_gone_hold_nothing_up(world: World) {
    let cluster = both(&world, VersionSelector::Newest).await;
    let client = cluster.client().await;
    world.advance(secs(1)).await;
    [2, 3].into_iter().for_each(|node| cluster.kill(node));
    world.advance(secs(10)).await;
    for n in 0..20 {
        let key = format!("{}-{n}", world.bits());
        let account = client.grain::<dyn v1::Account>(key);
        assert_eq!(account.add(1).timeout(secs(20)).await, Ok(1));
    }
    let left = cluster.node(1).run(async |silo| {
        let account = silo.grain::<dyn v2::Account>("left");
        account.bonus().timeout(secs(3)).await.unwrap_err()
    });
    let refused = left.await.unwrap();
    assert!(
        matches!(refused, CallError::Unreachable { .. } | CallError::Timeout { .. }),
        "{refused:?}"
    );
}

#[emmer::test(seeds = 10)]
async fn callers_wait_for_the_only_silo_of_their_version_while_it_is_replaced(world: World) {
    let mut cluster = world.cluster(2, host_1).await;
    cluster.describe(host_2);
    cluster.add().await;
    world.advance(secs(2)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let calling = new_callers(cluster.client().await, stop.clone());
    world.advance(secs(2)).await;
    cluster.stop(2).await;
    world.advance(secs(3)).await;
    cluster.restart(2).await;
    world.advance(secs(3)).await;
    stop.store(true, Ordering::Relaxed);
    assert!(calling.await.unwrap() > 10);
}

#[emmer::test(seeds = 5)]
async fn one_class_may_host_two_versions_of_an_interface(world: World) {
    for order in [false, true] {
        let describe = move |silo: SiloBuilder| {
            if order {
                silo.host::<dyn twice::v1::Twice, twice::TwiceGrain>()
                    .host::<dyn twice::v2::Twice, twice::TwiceGrain>()
            } else {
                silo.host::<dyn twice::v2::Twice, twice::TwiceGrain>()
                    .host::<dyn twice::v1::Twice, twice::TwiceGrain>()
            }
        };
        let cluster = world.cluster(1, describe).await;
        let client = cluster.client().await;
        assert_eq!(client.grain::<dyn twice::v1::Twice>(1).say().await, Ok(2));
        assert_eq!(client.grain::<dyn twice::v2::Twice>(1).say().await, Ok(2));
        cluster.stop(0).await;
    }
}

mod twice {
    use emmer::prelude::*;

    pub mod v1 {
        use super::*;
        #[grain_interface(key = u64, grain = "twice")]
        pub trait Twice {
            async fn say(&self) -> u64;
        }
    }
    pub mod v2 {
        use super::*;
        #[grain_interface(key = u64, grain = "twice", version = 2)]
        pub trait Twice {
            async fn say(&self) -> u64;
        }
    }

    #[derive(Grain, Default)]
    pub struct TwiceGrain;

    #[grain]
    impl v1::Twice for TwiceGrain {
        async fn say(&self) -> u64 {
            1
        }
    }

    #[grain]
    impl v2::Twice for TwiceGrain {
        async fn say(&self) -> u64 {
            2
        }
    }
}

/// A grain that calls itself by way of another one, by a method that came later.
mod ring {
    use emmer::prelude::*;

    #[grain_interface(key = u64, grain = "ring")]
    pub trait Ring {
        async fn around(&mut self) -> String;
    }

    #[grain_interface(key = u64, grain = "ring")]
    pub trait Later {
        async fn late(&mut self) -> String;
    }

    #[grain_interface(key = u64)]
    pub trait Relay {
        async fn pass(&mut self) -> String;
    }

    #[derive(Grain)]
    #[placement(prefer_local)]
    pub struct RingGrain {
        #[context]
        ctx: Ctx,
    }

    #[derive(Grain)]
    pub struct RelayGrain {
        #[context]
        ctx: Ctx,
    }

    fn key(ctx: &Ctx) -> u64 {
        ctx.key().to_string().parse().unwrap()
    }

    #[grain]
    impl Ring for RingGrain {
        async fn around(&mut self) -> String {
            let relay = self.ctx.grains().grain::<dyn Relay>(key(&self.ctx));
            relay.pass().await.unwrap_or_else(|e| e.to_string())
        }
    }

    #[grain]
    impl Later for RingGrain {
        async fn late(&mut self) -> String {
            "late".to_owned()
        }
    }

    #[grain]
    impl Relay for RelayGrain {
        async fn pass(&mut self) -> String {
            let ring = self.ctx.grains().grain::<dyn Later>(key(&self.ctx));
            ring.late().await.unwrap_or_else(|e| e.to_string())
        }
    }
}

#[emmer::test(seeds = 5)]
async fn a_circle_that_waits_for_a_newer_version_is_a_deadlock(world: World) {
    let old = |silo: SiloBuilder| {
        silo.host::<dyn ring::Ring, ring::RingGrain>().host::<dyn ring::Relay, ring::RelayGrain>()
    };
    let mut cluster = world.cluster(1, old).await;
    cluster.describe(move |silo| old(silo).host::<dyn ring::Later, ring::RingGrain>());
    cluster.add().await;
    world.advance(secs(2)).await;
    let called = cluster.node(0).run(async |silo| {
        for key in 0..5 {
            let answer = silo.grain::<dyn ring::Ring>(key).around().timeout(secs(3)).await.unwrap();
            assert!(answer.contains("waits for"), "{answer}");
            let late = silo.grain::<dyn ring::Later>(key).late().await;
            assert_eq!(late, Ok("late".to_owned()));
        }
    });
    assert!(called.await.is_some());
}

/// Workers, of which the newer class has one method more.
mod mill {
    use emmer::prelude::*;
    use emmer::tables::SiloAddress;

    #[grain_interface(key = u64, grain = "mill")]
    pub trait Mill {
        /// Number of calls that this worker has had, and where.
        async fn grind(&mut self) -> (u64, SiloAddress);
    }

    #[grain_interface(key = u64, grain = "mill")]
    pub trait Fine {
        async fn fine(&mut self) -> SiloAddress;
    }

    #[derive(Grain)]
    #[placement(stateless_worker = 1)]
    pub struct MillGrain {
        ground: u64,
        #[context]
        ctx: Ctx,
    }

    #[grain]
    impl Mill for MillGrain {
        async fn grind(&mut self) -> (u64, SiloAddress) {
            self.ground += 1;
            (self.ground, self.ctx.silo().unwrap())
        }
    }

    #[grain]
    impl Fine for MillGrain {
        async fn fine(&mut self) -> SiloAddress {
            self.ctx.silo().unwrap()
        }
    }
}

#[emmer::test(seeds = 5)]
async fn workers_that_lack_a_method_stay_and_others_take_its_calls(world: World) {
    let old = |silo: SiloBuilder| silo.host::<dyn mill::Mill, mill::MillGrain>();
    let mut cluster = world.cluster(1, old).await;
    cluster.describe(move |silo| old(silo).host::<dyn mill::Fine, mill::MillGrain>());
    cluster.add().await;
    world.advance(secs(2)).await;
    let (here, there) = (cluster.node(0).address(), cluster.node(1).address());
    let called = cluster.node(0).run(async move |silo| {
        for calls in 1..20 {
            let mill = silo.grain::<dyn mill::Mill>(1);
            assert_eq!(mill.grind().await, Ok((calls, here)), "the same worker");
            assert_eq!(silo.grain::<dyn mill::Fine>(1).fine().await, Ok(there));
        }
    });
    assert!(called.await.is_some());
}

/// Calls accounts in turn until it is stopped, and expects each to have grown by its own calls
/// only. Returns the number of calls.
macro_rules! caller {
    ($name:ident, $interface:path) => {
        fn $name(client: Client, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
            tokio::spawn(async move {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) {
                    rounds += 1;
                    for n in 0..20 {
                        let key = format!("{}-{n}", stringify!($name));
                        let account = client.grain::<dyn $interface>(&key);
                        let added = account.add(1).timeout(secs(30)).await;
                        assert_eq!(added, Ok(rounds), "account {key}");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                rounds
            })
        }
    };
}

caller!(old_callers, v1::Account);
caller!(new_callers, v2::Account);

#[emmer::test(seeds = 10)]
async fn an_upgrade_to_another_version_and_back_loses_no_call_and_doubles_none(world: World) {
    let mut cluster = world.cluster(3, host_1).await;
    let stops = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let old = old_callers(cluster.client().await, stops[0].clone());
    let mut new = None;
    cluster.describe(host_2);
    for node in 0..3 {
        cluster.stop(node).await;
        cluster.restart(node).await;
        world.advance(secs(2)).await;
        if node == 0 {
            new = Some(new_callers(cluster.client().await, stops[1].clone()));
        }
    }
    cluster.describe(host_1);
    for node in 0..3 {
        if node == 2 {
            // No silo is left for them.
            stops[1].store(true, Ordering::Relaxed);
            assert!(new.take().unwrap().await.unwrap() > 50);
        }
        cluster.stop(node).await;
        cluster.restart(node).await;
        world.advance(secs(2)).await;
    }
    stops[0].store(true, Ordering::Relaxed);
    assert!(old.await.unwrap() > 100);
}
