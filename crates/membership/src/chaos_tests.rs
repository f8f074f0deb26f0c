//! Random faults in small clusters: the invariants that the test world checks at every commit and
//! every view, the fence after every death, and wholeness once the faults stop. `emmer-sim` does
//! the same with far more kinds of trouble; this is what runs with the unit tests.

use std::time::Duration;

use emmer_core::SiloStatus;
use emmer_core::rng::SeededRng;

use crate::Config;
use crate::world::{Store, World, address, ms};

/// One fault, or its end.
fn disturb(world: &mut World, config: &Config, rng: &mut SeededRng, epoch: &mut u64) {
    let i = rng.index(world.silos.len());
    let me = world.silos[i].machine.me();
    // One process per port: the system sees to that.
    let vacant = !world.silos.iter().any(|p| p.up && p.machine.me().same_endpoint(&me));
    match rng.below(10) {
        0 => world.kill(i),
        1 | 2 if vacant => {
            *epoch += 1;
            world.start(config, address(me.port(), *epoch), *epoch);
        }
        1 => world.call(i, |m, now| m.leave(now)),
        2 | 3 => world.silos[i].silent = true,
        4 | 5 => world.silos[i].silent = false,
        6 => {
            let other = world.silos[rng.index(world.silos.len())].machine.me();
            world.cut.insert((me, other));
        }
        7 => world.cut.clear(),
        8 => world.silos[i].skew_ms = i64::try_from(rng.below(7_200_000)).unwrap() - 3_600_000,
        _ => {
            world.store = match rng.below(4) {
                0 => Store::Down,
                1 => Store::AppliesAsUnknown,
                2 => Store::LosesAsUnknown,
                _ => Store::Up,
            };
        }
    }
}

/// I8: a silo whose death is in the table is fenced once the bound has passed.
fn check_fences(world: &World, config: &Config) {
    if config.fence_timeout.is_zero() {
        return;
    }
    for process in world.silos.iter().filter(|p| p.up) {
        let me = process.machine.me();
        let Some(died) = world.died_at.get(&me) else { continue };
        let bound = *died + config.fence_timeout + ms(1);
        let runs = process.machine.fence_deadline().is_none_or(|until| world.now < until);
        let serves = process.machine.status() == SiloStatus::Active && runs;
        assert!(
            world.now <= bound || !serves,
            "I8: {me} died at {died:?} and serves at {:?}",
            world.now
        );
    }
}

fn chaos(config: &Config, seed: u64) {
    println!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let n = 3 + u16::try_from(rng.below(7)).unwrap();
    let mut world = World::new();
    // CHAOS_TRACE=<seed>, set when this is compiled, prints what happens under that seed.
    world.trace = option_env!("CHAOS_TRACE").is_some_and(|traced| traced == seed.to_string());
    let mut epoch = 1;
    for i in 0..n {
        world.start(config, address(1_000 + i, 1), seed * 100 + u64::from(i));
    }
    for _ in 0..rng.below(60) {
        disturb(&mut world, config, &mut rng, &mut epoch);
        for _ in 0..rng.below(20) {
            world.run(rng.duration_below(ms(900)));
            check_fences(&world, config);
        }
    }
    world.store = Store::Up;
    world.cut.clear();
    for process in &mut world.silos {
        (process.silent, process.skew_ms) = (false, 0);
    }
    for i in 0..world.silos.len() {
        if world.silos[i].machine.status().is_terminating() {
            world.call(i, |m, now| m.finish_leave(now));
        }
    }
    epoch += 1;
    world.start(config, address(5_000, epoch), epoch);
    world.until(Duration::from_secs(900), |w| {
        let whole = |p: &crate::world::Process| {
            let status = w.status(&p.machine.me());
            !p.up || status == Some(SiloStatus::Active) || p.machine.status().is_terminating()
        };
        let gone = |silo: &emmer_core::SiloAddress| {
            !w.silos.iter().any(|p| p.up && p.machine.me() == *silo)
        };
        // With the original's numbers joiners give up before crashed silos become stale.
        let nobody = !w.silos.iter().any(|p| p.up);
        nobody
            || w.silos.iter().all(whole)
                && w.converged()
                && w.rows.values().all(|row| row.status == SiloStatus::Dead || !gone(&row.address))
    });
}

#[test]
fn chaos_does_no_harm() {
    for seed in 0..150 {
        chaos(&Config::default(), seed);
        chaos(&Config::fast(), seed);
    }
}

#[test]
fn chaos_does_classic_no_harm() {
    for seed in 0..60 {
        chaos(&Config::classic(), seed);
        chaos(&Config::orleans_2026(), seed);
    }
}

#[test]
#[ignore = "long"]
fn much_chaos_does_no_harm() {
    for seed in 1_000..20_000 {
        chaos(&Config::default(), seed);
        chaos(&Config::fast(), seed);
    }
}
