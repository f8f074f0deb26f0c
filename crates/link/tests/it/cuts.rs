//! A short exchange that is cut after each byte.

use std::time::Duration;

use emmer_link::Lost;

use crate::world::{Outcome, World};

/// Two calls, a one-way call, and a call that is given up, from each side; then one side drains.
fn exchange(world: &mut World) {
    let deadline = world.now.after(Duration::from_secs(30));
    for side in 0..2 {
        let first = 44 + 100 * side as u64;
        let end = &mut world.ends[side];
        end.call(first, 20, deadline).unwrap();
        end.one_way(first + 1, 5).unwrap();
        end.call(first + 2, 400, deadline).unwrap();
        end.call(first + 3, 0, deadline).unwrap();
        end.give_up(2);
        end.one_way(first + 4, 5).unwrap();
    }
}

/// The bytes from `side` to the other arrive up to byte `cut`; the others do not.
fn cut_after(side: usize, cut: usize, drains: bool) -> bool {
    let mut world = World::silos();
    exchange(&mut world);
    let mut left = cut;
    for round in 0..6 {
        if drains && round == 1 {
            world.ends[1 - side].link.stop_serving();
        }
        for from in 0..2 {
            world.transmit(from, usize::MAX);
            let to = 1 - from;
            let bytes = if from == side { left } else { usize::MAX };
            if from == side {
                left -= left.min(world.ends[to].wire.len());
            }
            world.deliver(to, bytes, |number| number % 2 == 0);
            world.check();
        }
        for end in &mut world.ends {
            for at in (0..end.turns.len()).rev() {
                end.reply(at);
            }
        }
    }
    let is_whole = left > 0;
    world.cut();
    world.check();
    for side in 0..2 {
        let (me, peer) = (&world.ends[side], &world.ends[1 - side]);
        assert_eq!(me.outcomes.len(), 3, "every call has ended");
        // A one-way call that did not run is counted, whatever the peer has said.
        let not_run = me.one_ways_sent.len() - peer.one_ways_ran.len();
        let counted = me.link.counts().one_ways_lost;
        let is_drained = me.is_drained;
        assert!(counted >= not_run as u64 || is_drained, "{counted} of {not_run}");
        assert!(!is_whole || drains || not_run == 0);
        assert_eq!(me.process.held.total(), 0);
        assert_eq!(me.process.rooms.taken(), [0, 0]);
        if is_whole && !drains {
            let answered =
                me.outcomes.values().filter(|o| matches!(o, Outcome::Answered(_))).count();
            assert_eq!(answered, 2, "{:?}", me.outcomes);
        }
        for outcome in me.outcomes.values() {
            let ends = matches!(
                outcome,
                Outcome::Answered(_)
                    | Outcome::GivenUp
                    | Outcome::Lost(Lost::Drained | Lost::Broken(_))
            );
            assert!(ends, "{outcome:?}");
        }
    }
    is_whole
}

#[test]
fn a_connection_that_is_cut_after_any_byte_ends_every_call_and_says_what_may_be_lost() {
    for side in 0..2 {
        for drains in [false, true] {
            let whole = (0..4_000).find(|cut| cut_after(side, *cut, drains));
            assert!(whole.is_some_and(|cut| cut > 600), "{whole:?} bytes were tried");
        }
    }
}
