//! Bounds that peers meet, and ends of those that break the protocol.

use bytes::BytesMut;
use emmer_core::CoarseInstant;
use emmer_link::{Lost, SendError};
use emmer_wire::{PeerKind, RequestFlags, channel, encode_credit};

use crate::world::{LIMITS, Process, World, request, silo};

/// The end of a silo's connection over which these bytes arrive.
fn end_of(bytes: &[u8]) -> Option<Lost> {
    let mut world = World::silos();
    world.ends[0].link.put_raw(bytes);
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| true);
    world.ends[1].link.lost().cloned()
}

#[test]
fn peers_that_break_the_protocol_are_lost() {
    let mut credit = BytesMut::new();
    encode_credit(&mut credit, 1);
    let frame = |kind: u8| [vec![2, 0, 0, 0], vec![kind, 0]].concat();
    let too_long = (LIMITS.frame_bytes_max + 1).to_le_bytes();
    for bytes in [&credit[..], &[0, 0, 0, 0], &frame(77), &frame(1), &frame(2), &too_long] {
        assert!(matches!(end_of(bytes), Some(Lost::Protocol(_))), "{bytes:?}");
    }
    assert_eq!(end_of(&[2, 0, 0]), None, "half a frame");
    let mut lifeline = Process::default().link(PeerKind::Watch(silo(2)));
    let mut intake = emmer_link::Intake::new(&lifeline);
    assert_eq!(lifeline.begin_intake(&mut intake, 0), Ok(()));
    let spoken = lifeline.begin_intake(&mut intake, 1);
    assert!(matches!(spoken, Err(Lost::Protocol(_))));
}

#[test]
fn a_peer_that_goes_beyond_its_credit_is_lost() {
    let mut link = Process::default().link(PeerKind::Silo(silo(2)));
    assert_eq!(link.begin_serving(LIMITS.credit_bytes), Ok(()));
    assert_eq!(link.begin_serving(u64::from(LIMITS.frame_bytes_max)), Ok(()), "and a frame");
    assert!(matches!(link.begin_serving(1), Err(Lost::Protocol(_))));
}

#[test]
fn calls_stop_at_the_peers_credit_and_go_on_when_it_is_given_back() {
    let mut world = World::silos();
    let mut number = 0;
    let refused = loop {
        number += 1;
        match world.ends[0].call(number, 20_000, CoarseInstant::LAST) {
            Ok(()) => world.transmit(0, usize::MAX),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, SendError::Overloaded(why) if why.contains("credit")), "{refused:?}");
    assert_eq!(number, 9, "eight of 20,000 bytes reach 150,000");
    world.run();
    world.ends[0].call(99, 20_000, CoarseInstant::LAST).unwrap();
    world.run();
    world.check();
}

#[test]
fn a_message_that_is_too_large_for_the_peer_is_refused_and_not_queued() {
    let mut link = Process::default().link(PeerKind::Silo(silo(2)));
    let large = vec![0_u8; LIMITS.frame_bytes_max as usize];
    assert!(matches!(link.system(channel::DIRECTORY, &large), Err(SendError::TooLarge(_))));
    assert_eq!(link.poll_transmit(), None);
    let frames = [&request(1, 10, RequestFlags::NONE)[..], &request(2, 70_000, RequestFlags::NONE)];
    assert!(matches!(link.put_frames(&frames.concat()), Err(SendError::TooLarge(_))));
    assert_eq!(link.poll_transmit(), Some(frames[0]));
}

/// Calls that are given up one after the other share a frame, and no longer wait.
#[test]
fn a_call_that_is_given_up_is_cancelled_at_the_peer_and_its_late_answer_is_dropped() {
    let mut world = World::silos();
    for number in 0..20 {
        world.ends[0].call(number, 0, CoarseInstant::LAST).unwrap();
    }
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| false);
    let before = world.ends[0].link.counts().bytes_waiting;
    for _ in 0..10 {
        world.ends[0].give_up(0);
    }
    let cancels = world.ends[0].link.counts().bytes_waiting - before;
    assert_eq!(cancels, 4 + 1 + 10 * 8, "one frame");
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| false);
    assert_eq!(world.ends[1].given_up.len(), 10);
    world.run();
    world.check();
    assert_eq!(world.ends[0].link.waiting(), 0);
}

/// A message of the membership is queued behind calls, and arrives before them.
#[test]
fn membership_goes_before_calls_on_the_way_and_where_it_arrives() {
    for cut in [0, 1, 100, 5_000] {
        let mut world = World::silos();
        for number in 0..30 {
            world.ends[0].call(number, 300, CoarseInstant::LAST).unwrap();
        }
        world.transmit(0, cut);
        world.ends[0].link.system(channel::MEMBERSHIP, &7).unwrap();
        world.ends[0].link.system(channel::DIRECTORY, &7).unwrap();
        world.transmit(0, usize::MAX);
        world.transmit(0, usize::MAX);
        world.transmit(0, usize::MAX);
        let bytes = world.ends[0].link.counts().bytes_sent;
        // It has overtaken the calls that were not sent yet.
        world.deliver(1, cut + 1_000, |_| true);
        assert_eq!(world.ends[1].systems, [channel::MEMBERSHIP], "{cut} of {bytes} bytes");
        world.run();
        assert_eq!(world.ends[1].systems, [channel::MEMBERSHIP, channel::DIRECTORY]);
        assert_eq!(world.ends[1].ran, (0..30).collect::<Vec<_>>());
        world.check();
    }
    // All of it is there at once, in the order of calls first.
    let mut world = World::silos();
    let mut frames = BytesMut::new();
    for number in 0..30 {
        frames.extend_from_slice(&request(number, 300, RequestFlags::ONE_WAY));
    }
    emmer_wire::encode_system(&mut frames, channel::MEMBERSHIP, &7).unwrap();
    frames.extend_from_slice(&request(30, 300, RequestFlags::ONE_WAY));
    world.ends[0].link.put_raw(&frames);
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| true);
    assert_eq!(world.ends[1].before_calls, [channel::MEMBERSHIP]);
    assert_eq!(world.ends[1].one_ways_ran, (0..31).collect::<Vec<_>>(), "each once");
}
