//! Many silos crash and come back on their addresses. All are Active again soon, in whatever order
//! they come and whichever are left.

use std::time::Duration;

use emmer_core::SiloStatus;

use crate::config::Config;
use crate::dice::Dice;
use crate::world::{World, address, ms};

/// After the last start. A joiner asks two writers, writes itself, waits for two seconds and asks
/// eight others.
const WITHIN: Duration = Duration::from_secs(6);

/// Seed 60000160 of the swarm. The silos that come first on the ring are gone. A silo that started
/// later asked them in vain, and its own word is worth nothing to returning silos: it waited until
/// the rows of the lost ones were stale.
#[test]
fn a_cluster_lost_and_started_on_its_addresses_one_silo_after_the_other_is_active_soon() {
    for (n, pause) in [(20, 20), (40, 100), (40, 1_000), (100, 50)] {
        let config = Config::default();
        let mut world = World::cluster(&config, n);
        let view = world.silos[0].machine.view().clone();
        let ring = view.ring(0).iter().map(|(_, at)| view.members()[*at as usize].address.port());
        let last_first: Vec<u16> = ring.rev().collect();
        for i in 0..usize::from(n) {
            world.kill(i);
        }
        for port in last_first {
            world.start(&config, address(port, 2), 500 + u64::from(port));
            world.run(ms(pause));
        }
        let all = |w: &World| {
            (0..n).all(|i| w.status(&address(1_000 + i, 2)) == Some(SiloStatus::Active))
        };
        let took = world.until(WITHIN, all);
        println!("{n} silos, one every {pause} ms: {took:?} after the last");
    }
}

/// Kills some of up to twelve silos, in some order, and starts them again.
fn crash_and_come_back(plan: u64) {
    let mut dice = Dice::new(plan);
    let config = if dice.index(2) == 0 { Config::default() } else { Config::fast() };
    let n = 1 + dice.index(12) as u16;
    let mut world = World::cluster(&config, n);
    world.run(ms(dice.index(20_000) as u64));
    let mut order: Vec<u16> = (0..n).collect();
    for i in 0..order.len() {
        order.swap(i, dice.index(usize::from(n)));
    }
    order.truncate(1 + dice.index(usize::from(n)));
    let pause = [0, 5, 50, 1_000, 3_000][dice.index(5)];
    let between = if dice.index(2) == 0 { 0 } else { pause };
    for lost in &order {
        world.kill(usize::from(*lost));
        world.run(ms(dice.index(between + 1) as u64));
    }
    world.run(ms(dice.index(2 * pause + 1) as u64));
    for back in &order {
        world.start(&config, address(1_000 + back, 2), plan * 100 + u64::from(*back));
        world.run(ms(dice.index(pause + 1) as u64));
    }
    let active = |w: &World, i: &u16| w.status(&address(1_000 + i, 2)) == Some(SiloStatus::Active);
    println!("plan {plan}: {order:?} of {n} come back");
    world.until(WITHIN, |w| order.iter().all(|i| active(w, i)));
    assert_eq!(
        world.silos.iter().filter(|silo| silo.up).count(),
        usize::from(n),
        "nobody else ended"
    );
}

#[test]
fn whoever_crashed_and_is_back_on_its_address_is_active_soon() {
    (0..300).for_each(crash_and_come_back);
}

/// A process that died comes back at another port, as with port 0. Returns the time until the new
/// silo is Active and the old one Dead.
fn back_at_another_port(mut world: World, n: u16) -> Duration {
    for i in 0..usize::from(n) {
        world.kill(i);
    }
    for i in 0..n {
        world.start(&Config::default(), address(2_000 + i, 2), 77 + u64::from(i));
    }
    world.until(Duration::from_secs(60), |w| {
        (0..n).all(|i| {
            w.status(&address(2_000 + i, 2)) == Some(SiloStatus::Active)
                && w.status(&address(1_000 + i, 1)) == Some(SiloStatus::Dead)
        })
    })
}

#[test]
fn a_host_that_knows_that_a_silo_is_gone_need_not_wait_for_its_row() {
    for n in [1, 2, 5] {
        let config = Config::default();
        let took = back_at_another_port(World::cluster_on("one", &config, n), n);
        assert!(took < ms(if n == 1 { 600 } else { 2_500 }), "{n} silos: {took:?}");
        // A stranger's refusal may be a firewall's.
        let took = back_at_another_port(World::cluster(&config, n), n);
        assert!(took > Duration::from_secs(3), "{n} silos: {took:?}");
    }
}

/// The silo runs, and its port refuses: two hosts have one name, or one address.
#[test]
fn only_the_own_host_is_believed() {
    for host in ["", "another"] {
        let config = Config::default();
        let mut world = World::cluster_on("one", &config, 1);
        world.silos[0].silent = true;
        world.host = host;
        world.refusing.insert(address(1_000, 1));
        world.start(&config, address(2_000, 2), 77);
        world.run(Duration::from_secs(2));
        assert_eq!(world.status(&address(1_000, 1)), Some(SiloStatus::Active), "{host:?}");
    }
}
