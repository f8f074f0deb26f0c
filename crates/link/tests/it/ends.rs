//! Ends of connections: with a word, without one, bit by bit, and by silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::CoarseInstant;
use emmer_link::{Intake, Link, Lost, Next, Phase};
use emmer_wire::{ConnectionLimits, GoodbyeCode, PeerKind, RequestFlags};

use crate::world::{LIMITS, Outcome, Process, World, request, silo};

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Otherwise the caller would look at the clock at its deadline.
#[test]
fn callers_are_woken_when_no_answer_will_come() {
    let ends: [fn(&mut Link); 2] = [Link::part, |link| link.lose(Lost::Closed)];
    for end in ends {
        let mut link = Process::default().link(PeerKind::Silo(silo(2)));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut frame = request(1, 0, RequestFlags::NONE);
        link.call(&mut frame, waker, CoarseInstant::LAST, 0).unwrap();
        end(&mut link);
        let mut wakers = Vec::new();
        link.take_wakers(&mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        assert!(woken.0.load(Ordering::SeqCst));
    }
}

#[test]
fn a_connection_goes_through_its_phases() {
    let mut link = Process::default().link(PeerKind::Silo(silo(2)));
    assert_eq!(link.phase(), Phase::Open);
    link.stop_serving();
    assert_eq!(link.phase(), Phase::Draining);
    assert!(link.takes_calls(), "its own calls still go out");
    link.part();
    assert_eq!(link.phase(), Phase::Parting);
    assert!(!link.takes_calls());
    link.retire();
    assert_eq!(link.phase(), Phase::Retired);
    link.goodbye(GoodbyeCode::Idle, "");
    assert_eq!(link.phase(), Phase::Closed);
    assert!(link.is_retired() && link.is_parting() && link.lost().is_none());
    link.lose(Lost::Closed);
    link.lose(Lost::Silent);
    assert_eq!(link.lost(), Some(&Lost::Closed), "the first reason stays");
}

#[test]
fn a_silo_that_drains_answers_what_it_has_begun_and_nothing_else() {
    let mut world = World::silos();
    let late = world.now.after(Duration::from_secs(9));
    world.ends[0].call(1, 0, late).unwrap();
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| false);
    world.ends[1].link.stop_serving();
    assert!(!world.ends[1].link.has_stopped_serving());
    world.ends[0].call(2, 0, late).unwrap();
    world.transmit(0, usize::MAX);
    world.ends[1].reply(0);
    assert!(world.ends[1].link.has_stopped_serving() && !world.ends[1].link.knows_of_the_end());
    world.run();
    assert_eq!(world.ends[1].ran, [1]);
    assert_eq!(world.ends[0].outcomes[&1], Outcome::Answered(1));
    assert_eq!(world.ends[0].outcomes[&2], Outcome::Lost(Lost::Drained));
    assert!(world.ends[1].link.knows_of_the_end());
    // It stays known when the peer dies.
    world.ends[0].link.part();
    assert!(matches!(
        world.ends[0].call(3, 0, late),
        Err(emmer_link::SendError::Lost(Lost::Drained))
    ));
}

/// The wires swallow everything.
#[test]
fn a_peer_that_says_nothing_is_asked_after_a_second_and_silent_three_seconds_later() {
    let mut world = World::silos();
    world.ends[0].one_way(1, 0).unwrap();
    let (mut asked, mut silent) = (None, None);
    for ms in (0..6_000).step_by(5) {
        let ticked = world.ends[0].tick(CoarseInstant::from_millis(10_000 + ms));
        asked = asked.or_else(|| ticked.asked.then_some(ms));
        silent = silent.or_else(|| ticked.silent.then_some(ms));
        world.transmit(0, usize::MAX);
        world.ends[1].wire.clear();
    }
    assert_eq!((asked, silent), (Some(1_000), Some(4_000)));
    assert!(world.ends[0].link.is_silent());
}

#[test]
fn a_peer_that_reads_nothing_for_30_s_is_lost_and_one_that_reads_a_little_is_not() {
    let mut link = Process::default().link(PeerKind::Silo(silo(2)));
    let at = |seconds: u64| CoarseInstant::from_millis(1_000 * seconds);
    link.note_stuck(true);
    for second in 0..20 {
        link.handle_timeout(at(second));
    }
    link.note_stuck(true);
    for second in 20..50 {
        link.handle_timeout(at(second));
        assert_eq!(link.verdict(), None);
    }
    assert!(link.poll_timeout().is_some_and(|due| due <= at(50)));
    assert!(link.handle_timeout(at(50)).wake);
    assert!(matches!(link.verdict(), Some(Lost::Broken(why)) if why.contains("read nothing")));
}

/// A frame of 59,000 bytes is small: the process receives it without room.
#[test]
fn a_small_frame_that_comes_in_parts_takes_no_room() {
    let mut world = World::silos();
    let frame = system_frame(59_000);
    world.ends[0].link.put_raw(&frame[..50_000]);
    world.run();
    assert_eq!(world.ends[1].process.rooms.taken(), [0, 0]);
    world.ends[0].link.put_raw(&frame[50_000..]);
    world.run();
    assert_eq!(world.ends[1].systems, [99]);
}

#[test]
fn a_large_frame_that_does_not_end_is_lost_after_30_s() {
    let process = Process::default();
    let limits = ConnectionLimits { frame_bytes_max: 200_000, ..LIMITS };
    let frame = system_frame(150_000);
    for ends in [false, true] {
        let mut link = process.link_with(PeerKind::Silo(silo(2)), limits);
        let mut intake = Intake::new(&link);
        link.begin_intake(&mut intake, 50_000).unwrap();
        assert!(matches!(intake.next(&frame[..50_000], 0), Ok(Next::Nothing)));
        link.end_intake(&mut intake, &mut BytesMut::new());
        let wanted = intake.needs_room(&frame[..50_000]);
        assert_eq!(wanted, Some(150_000));
        assert!(link.take_frame_room(&mut intake, 150_000, Waker::noop()));
        assert_eq!(process.rooms.taken(), [150_000, 0]);
        // The clock of the frame begins with the first look.
        for ms in (5_000..35_000).step_by(250).chain([34_999]) {
            link.handle_timeout(CoarseInstant::from_millis(ms));
            // The peer still answers: all that is missing is the end of the frame.
            link.begin_intake(&mut intake, 1).unwrap();
            link.end_intake(&mut intake, &mut BytesMut::new());
            assert_eq!(link.verdict(), None, "after {ms} ms");
        }
        if ends {
            link.begin_intake(&mut intake, 100_000).unwrap();
            intake.begin_go();
            assert!(matches!(intake.next(&frame, 0), Ok(Next::Other(_))));
            link.end_intake(&mut intake, &mut BytesMut::new());
            assert!(intake.is_done_with_room(&frame));
            link.end_frame(&mut intake);
            assert_eq!(process.rooms.taken(), [0, 0]);
        }
        link.handle_timeout(CoarseInstant::from_millis(35_000));
        let verdict = link.verdict();
        let is_lost = matches!(&verdict, Some(Lost::Protocol(why)) if why.contains("30s"));
        assert_eq!(is_lost, !ends, "{verdict:?}");
    }
}

/// A frame of the membership's channel 99, of `bytes` in all.
fn system_frame(bytes: u32) -> Vec<u8> {
    let mut frame = vec![0; bytes as usize];
    frame[..4].copy_from_slice(&(bytes - 4).to_le_bytes());
    frame[4..6].copy_from_slice(&[6, 99]);
    frame
}

/// A client that was killed looks like one that only has nothing more to say.
#[test]
fn a_client_that_ends_its_half_is_asked_for_a_word_until_its_calls_are_answered() {
    let mut world = World::client_and_silo();
    let late = world.now.after(Duration::from_secs(9));
    // The client is the second end's peer.
    world.ends[0].call(1, 0, late).unwrap();
    world.transmit(0, usize::MAX);
    world.deliver(1, usize::MAX, |_| false);
    let link = &mut world.ends[1].link;
    link.handle_end(0).unwrap();
    let asked = link.counts().bytes_waiting;
    assert!(asked > 0, "at once");
    let mut times = 0;
    for ms in (0..1_000).step_by(5) {
        times += u32::from(link.handle_timeout(CoarseInstant::from_millis(2_000 + ms)).queued);
    }
    assert_eq!(times, 9, "every 100 ms");
    assert!(!link.is_half_closed_and_done());
    world.ends[1].reply(0);
    world.transmit(1, usize::MAX);
    assert!(world.ends[1].link.is_half_closed_and_done());
    let mut fresh = Process::default().link(PeerKind::Client(7));
    assert!(matches!(fresh.handle_end(0), Err(Lost::Broken(_))), "a dial that was given up");
}
