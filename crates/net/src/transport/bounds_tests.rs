//! Bounds that hold: what peers send, and do not read, and how long a driver does not look.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use emmer_core::SiloAddress;
use emmer_wire::{GoodbyeCode, PeerKind, encode_credit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::tests::{Told, call, connected, connected_with, driven, greeting, silo, speak, ticks};
use super::{FrameRooms, HeldBytes, Lost, Pool};
use crate::clock::CoarseInstant;

/// Lets every task run that can.
async fn let_others_run() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dials_that_are_given_up_leave_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = silent.local_addr().unwrap();
    let mut greeting = greeting(silo("127.0.0.1:1:1"));
    greeting.timeout = Duration::from_millis(20);
    let pool = Arc::new(Pool::new(greeting));
    let (tell, _told) = tokio::sync::mpsc::channel(1);
    let side = Arc::new(super::tests::Side(tell));
    pool.handled_by(&side);
    for epoch in 0..50 {
        let dial = std::pin::pin!(pool.connect(SiloAddress::new(endpoint, epoch)));
        assert!(dial.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(pool.dialing(), 50);
    while pool.dialing() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A holder of the pool of a silo that is gone gets an error, and no silo is dialled for it.
#[tokio::test]
async fn a_pool_whose_handler_is_gone_dials_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = SiloAddress::new(silent.local_addr().unwrap(), 1);
    let pool = Arc::new(Pool::new(greeting(silo("127.0.0.1:1:1"))));
    let (tell, _told) = tokio::sync::mpsc::channel(1);
    pool.handled_by(&Arc::new(super::tests::Side(tell)));
    let refused = pool.connect(peer).await.err().map(|e| e.to_string());
    assert!(refused.is_some_and(|why| why.contains("this silo has ended")));
    assert_eq!(pool.dialing(), 0);
}

#[tokio::test]
async fn the_clock_looks_only_at_connections_that_owe_a_word() {
    let greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:1"))];
    let ticking = greetings[0].ticking.clone();
    let (dialed, accepted) = connected_with(greetings).await;
    let (_accepted, mut told) = driven(accepted);
    let (dialed, _hears) = driven(dialed);
    speak(&dialed, &mut told).await;
    assert_eq!(ticking.len(), 0);
    let now = CoarseInstant::from_millis;
    let calls = [call(&dialed).unwrap(), call(&dialed).unwrap()];
    assert_eq!(ticking.len(), 1);
    assert!(ticking.tick(now(1)).is_empty());
    assert_eq!(ticking.len(), 1);
    calls.into_iter().for_each(|call| dialed.give_up(call));
    // Nothing has come since they were sent. The peer is asked for a word, and its word ends it.
    assert!(ticking.tick(now(2)).is_empty());
    assert_eq!(ticking.len(), 1);
    assert_eq!(ticking.tick(now(1_001)).len(), 1);
    while ticking.len() > 0 {
        tokio::task::yield_now().await;
        assert!(ticking.tick(now(1_002)).is_empty());
    }
    call(&dialed).unwrap();
    assert_eq!(ticking.len(), 1);
}

#[tokio::test]
async fn a_credit_beyond_what_was_sent_is_no_credit() {
    let (dialed, accepted) = connected().await;
    let (_accepted, _told) = driven(accepted);
    let (dialed, mut hears) = driven(dialed);
    let mut credit = BytesMut::new();
    encode_credit(&mut credit, 1);
    dialed.raw(&credit);
    assert_eq!(hears.recv().await, Some(Told::Lost(Lost::Goodbye(GoodbyeCode::ProtocolError))));
}

/// Eight peers send most of a frame and stop.
#[tokio::test]
async fn frames_that_have_begun_and_not_ended_hold_no_more_than_their_room() {
    const FRAME: usize = 200 << 10;
    const ROOM: usize = 3 * FRAME;
    let rooms = Arc::new(FrameRooms::new(ROOM));
    let mut frame = BytesMut::new();
    // Like a system message on a channel that is never read.
    frame.put_u32_le(u32::try_from(FRAME).unwrap() - 4);
    frame.put_slice(&[6, 99]);
    frame.resize(FRAME, 0);
    let (half, rest) = frame.split_at(FRAME - 10);
    let (mut senders, mut receivers, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for port in 1..=8 {
        let mut greetings =
            [port, 100 + port].map(|port| greeting(silo(&format!("127.0.0.1:{port}:1"))));
        greetings[1].frame_rooms = rooms.clone();
        let (dialed, accepted) = connected_with(greetings).await;
        let (accepted, tells) = driven(accepted);
        let (dialed, _) = driven(dialed);
        dialed.raw(half);
        senders.push(dialed);
        receivers.push(accepted);
        told.push(tells);
    }
    let received = || receivers.iter().map(|c| c.traffic().bytes_received);
    while received().filter(|n| *n >= half.len() as u64).count() < 3 {
        tokio::task::yield_now().await;
    }
    let_others_run().await;
    assert!(rooms.taken()[0] <= ROOM, "{:?}", rooms.taken());
    assert_eq!(received().filter(|n| *n >= half.len() as u64).count(), 3);
    // A peer that continues makes room for others.
    senders.iter().for_each(|sender| sender.raw(rest));
    for mut told in told {
        assert_eq!(told.recv().await, Some(Told::System(99)));
    }
    let_others_run().await;
    assert_eq!(rooms.taken(), [0, 0]);
}

/// As when they waited for the connection to be made, and the limits of the peer were unknown.
#[tokio::test]
async fn messages_that_are_too_large_for_the_peer_do_not_end_the_connection() {
    const LARGE: usize = 100 << 10;
    let mut greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:1"))];
    greetings[1].limits.frame_bytes_max = 64 << 10;
    let (dialed, accepted) = connected_with(greetings).await;
    let (_accepted, mut told) = driven(accepted);
    let (dialed, _) = driven(dialed);
    let mut waiting = BytesMut::new();
    for (channel, bytes) in [(97, 10), (98, LARGE), (99, 10)] {
        let before = waiting.len();
        waiting.put_u32_le(u32::try_from(bytes).unwrap());
        waiting.put_slice(&[6, channel]);
        waiting.resize(before + 4 + bytes, 0);
    }
    let left_out = dialed.frames(&waiting);
    assert!(
        matches!(left_out, Err(crate::transport::SendError::TooLarge(bytes)) if bytes == LARGE + 4),
        "{left_out:?}"
    );
    for channel in [97, 99] {
        assert_eq!(told.recv().await, Some(Told::System(channel)));
    }
}

#[tokio::test]
async fn answers_wait_for_a_caller_that_does_not_read_and_are_not_lost() {
    const ANSWER: usize = 1 << 20;
    let mut greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:1"))];
    greetings[1].limits.outgoing_bytes_max = 2 * ANSWER;
    let (dialed, accepted) = connected_with(greetings).await;
    let (accepted, _) = driven(accepted);
    // Frames of a channel that is never read stand for answers.
    let answer = |out: &mut BytesMut| {
        let before = out.len();
        out.put_u32_le(u32::try_from(ANSWER).unwrap());
        out.put_slice(&[6, 99]);
        out.resize(before + 4 + ANSWER, 0);
        out.len() - before
    };
    let answering = {
        let accepted = accepted.clone();
        tokio::spawn(async move {
            for _ in 0..40 {
                let _ = accepted.begin_serving(0, 1);
                while !accepted.try_reply(1, 1, answer) {
                    assert!(!accepted.has_room(0));
                    accepted.until_room().await;
                }
            }
        })
    };
    while accepted.has_room(0) {
        tokio::task::yield_now().await;
    }
    assert!(!answering.is_finished());
    let (_dialed, mut hears) = driven(dialed);
    for _ in 0..40 {
        assert_eq!(hears.recv().await, Some(Told::System(99)));
    }
    answering.await.unwrap();
    let idle = std::pin::pin!(accepted.until_room()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(idle.is_ready());
}

/// A client at one end, and at the other a silo whose clients may hold `max` bytes.
async fn client_and_silo(held: &Arc<HeldBytes>) -> (super::Connection, super::Connection) {
    let mut greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:2"))];
    greetings[0].me = PeerKind::Client(7);
    greetings[1].held = held.clone();
    connected_with(greetings).await
}

/// Appends a frame of this many bytes.
fn large(bytes: usize) -> impl Fn(&mut BytesMut) -> usize {
    move |out| {
        let before = out.len();
        out.put_u32_le(u32::try_from(bytes).unwrap());
        out.put_slice(&[6, 99]);
        out.resize(before + 4 + bytes, 0);
        out.len() - before
    }
}

#[tokio::test]
async fn what_clients_hold_is_counted_and_given_back() {
    const ANSWER: usize = 100 << 10;
    let held = HeldBytes::new(4 << 20);
    let (dialed, accepted) = client_and_silo(&held).await;
    let (accepted, _told) = driven(accepted);
    let mut answers = 0;
    loop {
        let _ = accepted.begin_serving(0, 1);
        if !accepted.try_reply(1, 1, large(ANSWER)) {
            break;
        }
        answers += 1;
        tokio::task::yield_now().await;
    }
    // A quarter, what the two kernels hold, and one answer.
    assert!(held.total() >= 1 << 20 && held.total() <= (1 << 20) + 2 * ANSWER, "{}", held.total());
    // Another client is served all the same.
    let (_other, beside) = client_and_silo(&held).await;
    let (beside, _told_too) = driven(beside);
    let _ = beside.begin_serving(0, 1);
    assert!(beside.has_room(0) && beside.try_reply(1, 1, large(1_000)));
    // The first one reads.
    let (dialed, mut hears) = driven(dialed);
    for _ in 0..answers {
        assert_eq!(hears.recv().await, Some(Told::System(99)));
    }
    while held.total() > 0 {
        tokio::task::yield_now().await;
    }
    // Or goes away.
    let _ = accepted.begin_serving(0, 1);
    accepted.reply(1, 1, large(16 << 20));
    drop((dialed, hears));
    accepted.lose(Lost::Closed);
    while held.total() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(accepted.take_arguments(3 << 20, true) && !accepted.take_arguments(1, false));
    assert!(!accepted.has_argument_room(100 << 10) && !accepted.has_argument_room(1));
    assert!(beside.has_argument_room(1_000) && beside.take_arguments(1_000, false));
    accepted.give_arguments(3 << 20);
    beside.give_arguments(1_000);
    assert_eq!(held.total(), 0);
}

/// One client sends fifty thousand questions, another client sends one.
#[tokio::test]
async fn a_client_that_sends_much_lets_others_go_first() {
    const FRAMES: u64 = 50_000;
    let held = HeldBytes::new(64 << 20);
    let (many, accepted) = client_and_silo(&held).await;
    let (one, other) = client_and_silo(&held).await;
    let mut frames = BytesMut::new();
    for _ in 0..FRAMES {
        large(2)(&mut frames);
    }
    let ends = [many, one].map(driven);
    ends[0].0.raw(&frames);
    ends[1].0.raw(&frames[..frames.len() / usize::try_from(FRAMES).unwrap()]);
    let (accepted, _told) = driven(accepted);
    let (_other, mut told) = driven(other);
    assert_eq!(told.recv().await, Some(Told::System(99)));
    let handled = || accepted.traffic().messages_received;
    assert!(handled() < FRAMES / 4, "{} came first", handled());
    while handled() < FRAMES {
        tokio::task::yield_now().await;
    }
}

/// Each client may have one answer beyond the common limit, until those answers are too many.
#[tokio::test]
async fn clients_that_read_nothing_end_when_their_answers_are_too_many() {
    const ANSWER: usize = 16 << 20;
    const MAX: usize = 2 * ANSWER;
    let held = HeldBytes::new(MAX);
    let mut clients = Vec::new();
    for n in 0..8 {
        let (dialed, accepted) = client_and_silo(&held).await;
        let (accepted, told) = driven(accepted);
        let _ = accepted.begin_serving(0, 1);
        assert!(accepted.try_reply(1, 1, large(ANSWER)));
        let_others_run().await;
        // Another answer would be its second one.
        let _ = accepted.begin_serving(0, 1);
        assert!(!accepted.try_reply(1, 1, large(ANSWER)) && accepted.account.must_read(0), "{n}");
        assert!(held.total() <= MAX, "{n}: {}", held.total());
        clients.push((dialed, accepted, told));
    }
    let mut rest = Vec::new();
    for (dialed, accepted, mut told) in clients {
        if accepted.is_lost() {
            assert!(rest.is_empty(), "the later ones have read later");
            let lost = told.recv().await;
            assert!(matches!(&lost, Some(Told::Lost(Lost::Broken(why))) if why.contains("slowly")));
        } else {
            rest.push((dialed, accepted, told));
        }
    }
    assert!((1..8).contains(&rest.len()));
    for (dialed, ..) in rest {
        let (_dialed, mut hears) = driven(dialed);
        assert_eq!(hears.recv().await, Some(Told::System(99)));
    }
    while held.total() > 0 {
        tokio::task::yield_now().await;
    }
}

/// Calls that wait for room begin as many at a time as their answers will have room.
#[tokio::test]
async fn calls_whose_answers_would_not_fit_begin_one_after_the_other() {
    const ANSWER: usize = 300 << 10;
    let held = HeldBytes::new(4 << 20);
    let (_dialed, accepted) = client_and_silo(&held).await;
    accepted.account.note_answer(ANSWER);
    let accepted = &accepted;
    let mut begun = Vec::new();
    let now = |wait: std::pin::Pin<&mut dyn Future<Output = _>>| {
        wait.poll(&mut Context::from_waker(Waker::noop()))
    };
    for _ in 0..20 {
        let wait = std::pin::pin!(accepted.until_room());
        if let Poll::Ready(expected) = now(wait) {
            begun.push(expected);
            accepted.account.note_answer(ANSWER);
        }
    }
    assert_eq!(begun.len(), 3, "of a quarter of four megabytes");
    let mut next = std::pin::pin!(accepted.until_room());
    assert!(now(next.as_mut()).is_pending());
    begun.pop();
    assert!(now(next.as_mut()).is_ready());
    drop(begun);
    assert_eq!(held.total(), 0);
}

#[tokio::test]
async fn a_peer_that_goes_beyond_its_credit_is_lost() {
    let (_dialed, accepted) = connected().await;
    let (accepted, mut told) = driven(accepted);
    for _ in 0..5 {
        let _ = accepted.begin_serving(0, 16 << 20);
        assert!(!accepted.is_lost(), "its credit, and a frame");
    }
    let _ = accepted.begin_serving(0, 1);
    assert!(matches!(told.recv().await, Some(Told::Lost(Lost::Protocol(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_for_30_s_is_lost() {
    let (dialed, accepted) = connected().await;
    ticks(accepted.ticking.clone());
    let (accepted, mut told) = driven(accepted);
    accepted.raw(&vec![0; 64 << 20]);
    let begun = tokio::time::Instant::now();
    let lost = told.recv().await;
    assert!(
        matches!(&lost, Some(Told::Lost(Lost::Broken(why))) if why.contains("read nothing")),
        "{lost:?}"
    );
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31), "{took:?}");
    drop(dialed);
}

/// The time begins again with each read.
#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_something_within_30_s_is_not_lost_before_30_s_more() {
    let (dialed, accepted) = connected().await;
    ticks(accepted.ticking.clone());
    let (accepted, mut told) = driven(accepted);
    let mut reading = dialed.reading.lock().take().unwrap();
    accepted.raw(&vec![0; 128 << 20]);
    let mut bytes = BytesMut::new();
    let begun = tokio::time::Instant::now();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        // The clock does not jump while a thread is at work: the sockets are real.
        let (at_work, ends) = std::sync::mpsc::sync_channel::<()>(0);
        let thread = tokio::task::spawn_blocking(move || ends.recv());
        let before = bytes.len();
        while bytes.len() < before + (20 << 20) {
            assert!(reading.read_buf(&mut bytes).await.unwrap() > 0, "the peer is lost");
        }
        // Nor before the other side has written what there is room for now.
        let (mut sent, mut same) = (0, 0);
        while same < 10 {
            let real = || std::thread::sleep(Duration::from_millis(10));
            let _ = tokio::task::spawn_blocking(real).await;
            let now = accepted.traffic().bytes_sent;
            same = if now == sent { same + 1 } else { 0 };
            sent = now;
        }
        drop(at_work);
        let _ = thread.await;
    }
    assert!(matches!(told.recv().await, Some(Told::Lost(Lost::Broken(_)))));
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(90) && took < Duration::from_secs(91), "{took:?}");
}

/// A call that takes long lets others begin.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_keeps_no_other_call_waiting() {
    const ANSWER: usize = 900 << 10;
    let held = HeldBytes::new(4 << 20);
    let (_dialed, accepted) = client_and_silo(&held).await;
    accepted.account.note_answer(ANSWER);
    let slow = accepted.until_room().await;
    accepted.account.note_answer(ANSWER);
    let mut call = std::pin::pin!(std::future::pending::<()>());
    let begun = tokio::time::Instant::now();
    tokio::select! {
        () = slow.during(call.as_mut()) => {}
        next = accepted.until_room() => drop(next),
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(200), "{took:?}");
    assert_eq!(held.total(), 0);
}
