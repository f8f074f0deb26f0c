//! Random peers: honest ones, which do anything in any order.

use std::time::Duration;

use emmer_core::rng::SeededRng;
use emmer_link::{Phase, SendError};
use emmer_wire::{GoodbyeCode, channel};

use crate::world::{Outcome, World};

const STEPS: u64 = 400;

/// One run; returns what happened at least once.
fn run(seed: u64) -> [bool; 6] {
    let mut rng = SeededRng::new(seed);
    let mut world = if rng.chance(0.3) { World::client_and_silo() } else { World::silos() };
    let (mut number, mut full, mut drained) = (0, false, false);
    let slow = rng.chance(0.3);
    let ends_early = rng.chance(0.5);
    let (mut retired, mut parted) = (false, false);
    for step in 0..STEPS {
        let side = rng.index(2);
        let at_once = |number: u64| !number.is_multiple_of(3);
        match rng.below(100) {
            0..25 => {
                number += 1;
                let bytes = if rng.chance(0.1) { 30_000 } else { rng.index(300) };
                let deadline = world.now.after(Duration::from_millis(1 + rng.below(3_000)));
                let sent = world.ends[side].call(number, bytes, deadline);
                full |= matches!(sent, Err(SendError::Full(_) | SendError::Overloaded(_)));
            }
            25..33 => {
                number += 1;
                let sent = world.ends[side].one_way(number, rng.index(100));
                full |= matches!(sent, Err(SendError::Overloaded(_)));
            }
            33..36 if !world.ends[side].waiting.is_empty() => {
                let at = rng.index(world.ends[side].waiting.len());
                world.ends[side].give_up(at);
            }
            36..55 => {
                let bytes = if slow { 50 } else { 20_000 };
                world.transmit(side, 1 + rng.index(bytes));
            }
            55..80 => {
                let bytes = if slow { 50 } else { 20_000 };
                world.deliver(side, 1 + rng.index(bytes), at_once);
            }
            80..90 if !world.ends[side].turns.is_empty() => {
                let at = rng.index(world.ends[side].turns.len());
                world.ends[side].reply(at);
            }
            90..93 => world.pass(Duration::from_millis(rng.below(200))),
            93..95 => {
                let _ = world.ends[side].link.system(channel::DIRECTORY, &step);
            }
            95 => world.ends[side].read_again(at_once),
            96 if ends_early && rng.chance(0.2) => {
                drained = true;
                world.ends[side].link.stop_serving();
            }
            97 if ends_early && rng.chance(0.1) => {
                parted = true;
                world.ends[side].link.part();
                world.ends[side].settle();
            }
            98 if ends_early && rng.chance(0.1) => {
                retired = true;
                world.ends[side].link.retire();
            }
            99 if ends_early && rng.chance(0.05) => {
                world.ends[side].link.goodbye(GoodbyeCode::Stopping, "");
            }
            _ => {}
        }
        world.check();
    }
    let cut = rng.chance(0.4);
    if cut {
        world.cut();
    } else {
        world.run();
        // The last words, and the deadlines of calls whose peer no longer serves.
        for _ in 0..40 {
            world.pass(Duration::from_millis(100));
            world.run();
        }
    }
    world.check();
    let mut lost = false;
    for side in 0..2 {
        let (me, peer) = (&world.ends[side], &world.ends[1 - side]);
        assert!(me.waiting.is_empty(), "every call has ended");
        let is_closed = me.link.phase() == Phase::Closed || peer.link.phase() == Phase::Closed;
        assert!(is_closed || !me.silent || peer.silent, "a peer that answers is not silent");
        let not_run = (me.one_ways_sent.len() - peer.one_ways_ran.len()) as u64;
        lost |= not_run > 0;
        // A silo that drains, or that talks over another connection, has read calls and drops them.
        if cut && !drained && !retired {
            assert!(me.link.counts().one_ways_lost >= not_run, "a lost call is counted");
        }
        if !cut && !is_closed && !drained && !retired {
            assert_eq!(not_run, 0, "nothing is lost on a connection that lives");
        }
        if !cut && !is_closed {
            assert_eq!(me.link.poll_timeout(), None, "a connection at rest waits for nothing");
            if drained && !parted {
                assert_eq!(me.link.has_stopped_serving(), peer.is_drained);
            }
        }
    }
    let answered = [0, 1].map(|side: usize| {
        world.ends[side].outcomes.values().any(|o| matches!(o, Outcome::Answered(_)))
    });
    let timed_out =
        world.ends.iter().any(|end| end.outcomes.values().any(|o| *o == Outcome::TimedOut));
    for end in world.ends {
        let held = end.process.held.clone();
        drop(end);
        assert_eq!(held.total(), 0, "nothing is counted that is gone");
    }
    [answered[0], answered[1], timed_out, full, lost, drained]
}

#[test]
fn random_peers_lose_no_call_and_hold_nothing_in_the_end() {
    let mut seen = [false; 6];
    for seed in 0..600 {
        let happened = std::panic::catch_unwind(|| run(seed));
        let happened = happened.unwrap_or_else(|_| panic!("seed {seed}"));
        for (seen, happened) in seen.iter_mut().zip(happened) {
            *seen |= happened;
        }
    }
    assert_eq!(seen, [true; 6], "all of it has happened");
}
