//! Joins that do not fit into the next commit.

use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{SiloEntry, SiloStatus, Timestamp};

use crate::intent::Intent;
use crate::membership::Membership;
use crate::world::{World, address};
use crate::{Config, Effect, Message};

#[test]
fn joins_that_do_not_fit_into_the_next_commit_are_handed_on_to_the_writer_of_the_view() {
    const JOINS: u16 = 130;
    let mut world = World::new();
    for i in 0..3 {
        world.start(&Config::default(), address(1_000 + i, 1), u64::from(i) + 1);
    }
    let is_active = |m: &Membership| m.status() == SiloStatus::Active;
    world.until(Duration::from_secs(10), |world| {
        world.silos.iter().all(|silo| is_active(&silo.machine))
    });
    let row =
        |port| SiloEntry::new(address(2_000 + port, 1), SiloStatus::Joining, Timestamp::default());
    for silo in &world.silos {
        let mut machine = silo.machine.clone();
        while machine.poll_effect().is_some() {}
        let joins = (0..JOINS).map(|port| Intent::Join(row(port).into())).collect();
        let [before, after] = machine.enqueue_and_hand_on(joins);
        let mut handed = Vec::new();
        while let Some(effect) = machine.poll_effect() {
            if let Effect::Send { to, message: Message::Write { intents, hops: 1, .. } } = effect {
                handed.push((to, intents.len()));
            }
        }
        let writer = machine.writer_to_ask();
        let beyond = writer.map_or(0, |_| usize::from(JOINS) - MEMBERSHIP_ROWS_PER_COMMIT_MAX);
        assert_eq!(
            handed.iter().map(|(_, joins)| joins).sum::<usize>(),
            beyond,
            "writer {writer:?}"
        );
        assert!(handed.iter().all(|(to, _)| Some(*to) == writer));
        assert_eq!(after, before - beyond);
    }
}
