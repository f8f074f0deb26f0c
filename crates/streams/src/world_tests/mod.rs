//! Many streams over a network that loses, doubles, delays and cuts, with both ends judged.

mod world;

use std::time::Duration;

use world::{Faults, World};

use crate::api::{End, Lost, Unwritable};

#[test]
fn a_stream_in_a_calm_world_is_complete() {
    for seed in 0..300 {
        let world = World::new(seed, Faults::NONE).run();
        assert_eq!(world.end, Some(End::Complete), "seed {seed}");
        assert_eq!(world.read, world.written, "seed {seed}");
    }
}

#[test]
fn messages_that_overtake_each_other_and_come_twice_do_no_harm() {
    for seed in 0..300 {
        let faults = Faults { delay_max: Duration::from_millis(300), double: 0.2, ..Faults::NONE };
        let world = World::new(seed, faults).run();
        assert_eq!(world.end, Some(End::Complete), "seed {seed}");
        assert_eq!(world.read, world.written, "seed {seed}");
    }
}

#[test]
fn every_end_is_told_whatever_is_lost() {
    let (mut complete, mut lost) = (0, 0);
    for seed in 0..2_000 {
        let world = World::new(seed, Faults::drawn(seed)).run();
        match world.end {
            Some(End::Complete) => complete += 1,
            Some(End::Lost(_)) => lost += 1,
            None => assert!(world.is_reader_gone, "seed {seed}: the reader was told no end"),
        }
    }
    assert!(complete > 200 && lost > 200, "{complete} complete, {lost} lost");
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer_within_its_window() {
    let mut world = World::new(1, Faults::NONE);
    world.reads = false;
    world.values = 100_000;
    world.run_for(Duration::from_secs(60));
    let window = u64::from(world.config.window.items);
    assert!(world.written <= window + world.batch_items_max(), "{} written", world.written);
    assert_eq!((world.end, world.unwritable()), (None, None), "both ends are alive");
}

#[test]
fn an_idle_stream_stays_open() {
    let mut world = World::new(2, Faults::NONE);
    world.pause = Duration::from_secs(100);
    world.values = 3;
    world.run_for(Duration::from_secs(1_000));
    assert_eq!((world.read, world.end), (3, Some(End::Complete)));
}

#[test]
fn a_slow_stream_stays_open() {
    for seed in 0..50 {
        let mut world = World::new(seed, Faults::NONE);
        world.pause = Duration::from_secs(2);
        world.values = 40;
        world.run_for(Duration::from_secs(200));
        assert_eq!((world.read, world.end), (40, Some(End::Complete)), "seed {seed}");
    }
}

#[test]
fn a_reader_that_is_dropped_stops_its_writer_at_once() {
    let mut world = World::new(4, Faults::NONE);
    world.values = u64::MAX;
    world.run_for(Duration::from_secs(5));
    world.drop_reader();
    world.run_for(Duration::from_millis(10));
    assert_eq!(world.unwritable(), Some(Unwritable::Stopped));
}

#[test]
fn a_lost_message_ends_the_stream_soon() {
    for seed in 0..100 {
        let mut world = World::new(seed, Faults::NONE);
        world.values = u64::MAX;
        world.run_for(Duration::from_secs(5));
        world.lose_next_values();
        // A writer without credit sends nothing that shows the gap: the next regular check does.
        world.run_for(world.config.check_every + world.config.doubt * 3);
        assert_eq!(world.end, Some(End::Lost(Lost::Message)), "seed {seed}");
        assert_eq!(world.unwritable(), Some(Unwritable::Stopped), "seed {seed}");
    }
}

#[test]
fn the_first_value_waits_for_nothing() {
    let mut world = World::new(6, Faults::NONE);
    world.pause = Duration::from_secs(1);
    world.values = 1;
    world.run_for(Duration::from_millis(2));
    assert_eq!(world.read, 1);
}

#[test]
fn a_writer_that_breaks_the_rules_is_stopped() {
    for seed in 0..200 {
        let mut world = World::new(seed, Faults::NONE);
        world.values = u64::MAX;
        world.run_for(Duration::from_secs(1));
        world.forge();
        world.run_for(Duration::from_secs(1));
        assert_eq!(world.end, Some(End::Lost(Lost::Rules)), "seed {seed}");
        assert_eq!(world.unwritable(), Some(Unwritable::Stopped), "seed {seed}");
    }
}
