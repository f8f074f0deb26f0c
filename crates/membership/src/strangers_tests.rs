//! Powers of a silo that no view names, and their limits.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Timestamp};

use crate::delta::Delta;
use crate::intent::{Evidence, Intent};
use crate::snapshot::TableSnapshot;
use crate::view::View;
use crate::world::{World, address, ms};
use crate::{Config, Message};

fn stranger() -> SiloAddress {
    address(9, 9)
}

/// A view of a table that never was: the stranger's own.
fn invented(number: u64) -> View {
    let row = SiloEntry::new(stranger(), SiloStatus::Active, Timestamp::from_millis(1));
    let version = TableVersion { number, etag: "invented".into(), ..TableVersion::default() };
    View::from_snapshot(&TableSnapshot { version, rows: vec![row] })
}

/// The next view of `world`, in which its first silo is dead, in the stranger's words.
fn deadly_delta(world: &World) -> Arc<Delta> {
    let view = world.silos[0].machine.view().clone();
    let mut row = (**view.get(&address(1_000, 1)).unwrap()).clone();
    row.status = SiloStatus::Dead;
    let version = TableVersion {
        number: view.version() + 1,
        etag: "invented".into(),
        ..TableVersion::default()
    };
    Arc::new(Delta::of_commit(&view, version, vec![Arc::new(row)], Vec::new(), Vec::new()).0)
}

fn tell(world: &mut World, i: usize, message: Message) {
    world.call(i, |machine, now| machine.handle_message(now, stranger(), message));
}

#[test]
fn a_stranger_ends_nobody_and_changes_no_view() {
    let mut world = World::cluster(&Config::default(), 3);
    let before = world.version.clone();
    let victim = address(1_000, 1);
    let successor = address(1_000, 2);
    let delta = deadly_delta(&world);
    let messages = [
        Message::Obituary { version: u64::MAX },
        Message::Superseded { by: successor },
        Message::Hush { target: victim, by: successor, stamp: 1 },
        Message::Snapshot { view: Arc::new(invented(1_000)), fading: None },
        Message::Tree { root: stranger(), delta: delta.clone() },
        Message::Deltas(vec![delta]),
        Message::Recheck { version: 1_000 },
        Message::ProbeFor { seq: 1, target: victim, wait_ms: 1_000 },
    ];
    for i in 0..3 {
        for message in &messages {
            tell(&mut world, i, message.clone());
        }
        assert_eq!(world.silos[i].machine.counters().refused, messages.len() as u64);
    }
    world.run(Duration::from_secs(30));
    assert!(world.silos.iter().all(|silo| silo.up && silo.fences.is_empty()));
    assert_eq!((world.version.clone(), world.active()), (before, 3));
    assert!(world.converged());
}

#[test]
fn a_strangers_votes_are_not_written() {
    let mut world = World::cluster(&Config::default(), 5);
    let (target, before) = (address(1_000, 1), world.version.number);
    for _ in 0..100 {
        for i in 1..5 {
            let voters = [stranger(), address(1_001, 1), address(1_002, 1), address(1_003, 1)];
            let at = Timestamp::from_millis(1_795_265_085_000 + 31_000);
            let votes =
                voters.map(|voter| Intent::Vote { target, voter, at, evidence: Evidence::Gone });
            let leave = Intent::Status { silo: target, status: SiloStatus::Dead };
            let intents = votes.into_iter().chain([leave]).collect();
            tell(&mut world, i, Message::Write { version: before, intents, hops: 1 });
        }
        world.run(ms(100));
    }
    assert_eq!((world.version.number, world.active()), (before, 5));
}

#[test]
fn a_stranger_cannot_keep_a_monitor_from_confirming() {
    let mut world = World::cluster(&Config::default(), 3);
    let (target, by) = (address(1_001, 1), address(1_001, 2));
    tell(&mut world, 0, Message::Hush { target, by, stamp: 5 });
    assert!(world.confirms(0, &target));
}

#[test]
fn what_strangers_claim_costs_two_reads_of_the_version_a_second() {
    let mut world = World::cluster(&Config::default(), 3);
    let before = world.silos[0].machine.counters().clone();
    for n in 0..10_000 {
        tell(&mut world, 0, Message::Hint { version: u64::MAX - n });
        world.run(ms(1));
    }
    let after = world.silos[0].machine.counters();
    let refreshes = 1;
    assert!(after.version_reads - before.version_reads <= 20 + refreshes, "{after:?}");
    assert_eq!(after.reads, before.reads);
    assert!(!world.silos[0].machine.is_behind(), "a claim is no knowledge");
}

#[test]
fn a_silo_that_hears_of_a_view_from_strangers_only_takes_it_from_the_table() {
    let mut world = World::cluster(&Config::default(), 3);
    let deaf = address(1_000, 1);
    for other in [address(1_001, 1), address(1_002, 1)] {
        world.cut.insert((other, deaf));
    }
    world.start(&Config::default(), address(1_003, 1), 77);
    let took = world.until(ms(3_000), |w| w.active() == 4 && w.converged());
    assert!(took < ms(2_000), "long before the periodic read: {took:?}");
}
