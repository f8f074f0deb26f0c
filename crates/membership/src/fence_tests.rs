//! Cases in which an adversary found the fence of a silo open for too long (invariant I8), each in
//! the smallest world that shows it. Promises of `docs/at-most-one.md`.

use emmer_core::SiloStatus;

use crate::Config;
use crate::world::{World, address, isolate, ms, secs};

/// Scenario 4652 of the class `split`. A silo that the table alone confirms gets new monitors,
/// which have not heard it, and keeps one that hears it all the time.
#[test]
fn new_monitors_give_nobody_more_time_than_the_tables_word() {
    let config = Config { num_probed_silos: 4, num_probe_rings: 1, ..Config::default() };
    for hears in 1..6 {
        let mut world = World::cluster(&config, 6);
        isolate(&mut world, 0);
        let [me, friend] = [0, hears].map(|i| world.silos[i].machine.me());
        world.cut.remove(&(me, friend));
        world.cut.remove(&(friend, me));
        // The word of its monitors is over, and they do not vote yet.
        world.run(config.fence_timeout + ms(20));
        let before = world.silos[0].machine.view().version();
        for port in 3_000..3_012 {
            let joiner = address(port, 1);
            world.start(&config, joiner, u64::from(port));
            world.cut.extend([(joiner, me), (me, joiner)]);
        }
        while let (Some(SiloStatus::Active), Some(until)) =
            (world.status(&me), world.silos[0].machine.fence_deadline())
        {
            assert!(
                until <= world.now + config.fence_table_timeout,
                "{until:?} at {:?}",
                world.now
            );
            world.run(ms(1));
        }
        assert!(world.silos[0].machine.view().version() > before, "it has no new monitors");
    }
}

/// Seed 58002636 of 3 to 64 silos. Rows may come from a replica that lags; the version row alone is
/// always the latest.
#[test]
fn rows_of_a_replica_that_lags_open_no_fence() {
    let config = Config::default();
    let mut world = World::cluster(&config, 8);
    let [cut, beside] = [0, 1].map(|i| world.silos[i].machine.me());
    for i in 0..2 {
        isolate(&mut world, i);
    }
    world.cut.remove(&(cut, beside));
    world.cut.remove(&(beside, cut));
    // Its votes against the others get no answer, so it reads all rows and continues.
    world.on_a_replica.extend([cut, beside]);
    world.until(secs(10), |w| w.status(&cut) == Some(SiloStatus::Dead));
    let may_grant = world.now + config.fence_table_timeout;
    while world.silos[0].up && world.now < may_grant + secs(9) {
        let closes_at = world.silos[0].machine.fence_deadline().unwrap();
        assert!(
            closes_at <= may_grant,
            "{closes_at:?}, others may have its grains at {may_grant:?}"
        );
        world.run(ms(1));
    }
}

/// Scenario 898 of the class `restale`. Two silos have lost the store, and one of them does not get
/// through to a newcomer.
#[test]
fn known_monitors_are_not_enough_where_a_newcomer_speaks_of_a_later_view() {
    for config in [Config::default(), Config::fast()] {
        let mut world = World::cluster(&config, 2);
        let [old, other] = [0, 1].map(|i| world.silos[i].machine.me());
        world.offline.extend([old, other]);
        let joiner = address(2_000, 1);
        world.cut.insert((old, joiner));
        world.start(&config, joiner, 2_000);
        world.until(secs(300), |w| w.status(&old) == Some(SiloStatus::Dead));
        world.run(config.fence_table_timeout);
        for _ in 0..200 {
            let open = world.silos[0].machine.fence_deadline() > Some(world.now);
            assert!(!world.silos[0].up || !open, "{:?}", world.now);
            world.run(ms(50));
        }
    }
}

/// Touches succeed, and nothing else: no view comes, and no rows are read.
#[test]
fn a_silo_that_lacks_a_view_for_long_trusts_no_monitor_of_the_old_one() {
    let config = Config::default();
    let mut world = World::cluster(&config, 3);
    let [old, other] = [0, 1].map(|i| world.silos[i].machine.me());
    world.touches_only.extend([old, other]);
    // Later views they hear from strangers, and cannot read.
    let last = world.silos[2].machine.me();
    for silo in [old, other] {
        world.cut.extend([(last, silo), (silo, last)]);
    }
    let newcomer = address(2_000, 1);
    world.start(&config, newcomer, 2_000);
    world.run(secs(5));
    let view = world.silos[0].machine.view().version();
    assert!(world.version.number > view, "{view}");
    assert!(world.silos[0].machine.fence_deadline() <= Some(world.now));
}

/// A joiner makes no round trip with a silo that leaves, and is Active at once.
#[test]
fn a_silo_that_leaves_and_is_alone_rests_on_no_touch() {
    for config in [Config::default(), Config::fast()] {
        let mut world = World::cluster(&config, 1);
        let leaver = world.silos[0].machine.me();
        let newcomer = address(2_000, 1);
        world.call(0, |machine, now| machine.leave(now));
        world.run(secs(7));
        assert_eq!(world.status(&leaver), Some(SiloStatus::ShuttingDown));
        world.offline.insert(leaver);
        world.cut.extend([(leaver, newcomer), (newcomer, leaver)]);
        world.start(&config, newcomer, 2_000);
        world.until(secs(30), |w| w.status(&leaver) == Some(SiloStatus::Dead));
        world.run(config.fence_table_timeout);
        assert!(world.silos[0].machine.fence_deadline() <= Some(world.now));
    }
}

/// Scenario 34772 of the class `alone`. What refuses the newcomer may be a firewall, so it
/// overlooks the row after 6 s, not 15.
#[test]
fn a_silo_that_is_alone_behind_a_firewall_stops_before_a_newcomer_has_its_grains() {
    for config in [Config::default(), Config::fast()] {
        for wait in [0, 1_000, 2_000, 3_000, 4_000, 4_900] {
            let mut world = World::cluster(&config, 1);
            let alone = world.silos[0].machine.me();
            let newcomer = address(2_000, 1);
            world.run(ms(wait));
            world.offline.insert(alone);
            world.refusing.insert(alone);
            world.cut.extend([(alone, newcomer), (newcomer, alone)]);
            world.start(&config, newcomer, 2_000);
            world.until(secs(30), |w| w.status(&alone) == Some(SiloStatus::Dead));
            world.run(config.fence_table_timeout);
            assert!(world.silos[0].machine.fence_deadline() <= Some(world.now), "{wait}");
        }
    }
}

/// Statement of `docs/at-most-one.md` about a touch: how long a cluster of one outlives the store.
#[test]
fn a_touch_is_good_for_as_long_as_the_page_says() {
    for (config, least, most) in [(Config::default(), 8_500, 8_550), (Config::fast(), 6_100, 6_120)]
    {
        let mut world = World::cluster(&config, 1);
        let mut longest = ms(0);
        for _ in 0..10_000 {
            let closes_at = world.silos[0].machine.fence_deadline().unwrap();
            longest = longest.max(closes_at.saturating_since(world.now));
            world.run(ms(1));
        }
        assert!(ms(least) <= longest && longest <= ms(most), "{longest:?}");
    }
}

/// A group of silos loses the store. The few that keep it are too few to declare a silo dead, until
/// a newcomer helps them.
#[test]
fn a_group_without_the_store_stops_where_it_is_told_to() {
    let stops = [(2, 0, false), (3, 0, false), (5, 0, false), (5, 2, false), (3, 0, true)];
    let cases = stops.map(|case| (Config::default(), case)).into_iter();
    let quick = [(2, 0, false), (5, 2, false)].map(|case| (Config::fast(), case));
    for (config, (group, beside, serve_without_store)) in cases.chain(quick) {
        stops_where_it_is_told_to(&config, (group, beside), serve_without_store, false);
        // The newcomer may be refused by a firewall: it overlooks the group sooner.
        stops_where_it_is_told_to(&config, (group, beside), serve_without_store, true);
    }
}

fn stops_where_it_is_told_to(
    config: &Config,
    (group, beside): (u16, u16),
    serve_without_store: bool,
    firewall: bool,
) {
    let config = Config { serve_without_store, ..config.clone() };
    let mut world = World::cluster(&config, group + beside);
    let mut silos: Vec<_> = world.silos.iter().map(|p| p.machine.me()).collect();
    silos.push(address(2_000, 1));
    let (group, others) = silos.split_at(usize::from(group));
    for silo in group {
        world.offline.insert(*silo);
        world.cut.extend(others.iter().flat_map(|other| [(*silo, *other), (*other, *silo)]));
        if firewall {
            world.refusing.insert(*silo);
        }
    }
    world.start(&config, silos[silos.len() - 1], 2_000);
    let open = |w: &World, i: usize| {
        w.silos[i].up && w.silos[i].machine.fence_deadline().is_none_or(|at| at > w.now)
    };
    world.run(ms(1_500));
    assert!((0..group.len()).all(|i| open(&world, i)), "a short outage stops nothing");
    while group.iter().any(|silo| world.status(silo) != Some(SiloStatus::Dead)) {
        world.run(ms(100));
        let late = (0..group.len()).find(|i| {
            let died = world.died_at.get(&group[*i]);
            died.is_some_and(|at| world.now > *at + config.fence_table_timeout) && open(&world, *i)
        });
        assert!(
            serve_without_store || late.is_none(),
            "{late:?} of {} at {:?}",
            group.len(),
            world.now
        );
    }
    assert_eq!(open(&world, 0), serve_without_store, "the documented exception");
}
