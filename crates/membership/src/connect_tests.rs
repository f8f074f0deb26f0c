//! A joiner that a writer asks to check again.

use std::time::Duration;

use crate::Config;
use crate::membership::Membership;
use crate::world::{World, address};

/// The first joiner that wishes to be Active, and has seen a view with rows that it did not check.
fn waiting(world: &World) -> Option<usize> {
    world.silos.iter().position(|silo| silo.machine.waits_with_a_later_view())
}

#[test]
fn a_joiner_asked_to_check_again_vouches_by_its_log_and_without_a_log_makes_round_trips() {
    let mut world = World::new();
    for i in 0..250 {
        world.start(&Config::default(), address(1_000 + i * 7 % 250, 1), u64::from(i) + 1);
    }
    world.until(Duration::from_secs(5), |world| waiting(world).is_some());
    let i = waiting(&world).unwrap();
    let mut by_log = world.silos[i].machine.clone();
    let mut without = by_log.clone();
    let version = by_log.view().version();
    let probes = |machine: &Membership| machine.counters().probes_sent;
    let before = probes(&by_log);
    by_log.on_recheck(version);
    assert_eq!((probes(&by_log), by_log.claimed()), (before, version));
    assert!(by_log.wishes_to_be_active());
    without.forget_steps();
    without.on_recheck(version);
    assert!(probes(&without) > before, "whom it has not heard is probed");
}
