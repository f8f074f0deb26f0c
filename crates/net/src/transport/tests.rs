//! Ends of connections, as the other side sees them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use emmer_core::limits::Limits;
use emmer_core::{ClusterId, GrainId, GrainKey, GrainTypeId, SiloAddress};
use emmer_link::Rank;
use emmer_wire::{
    CallChain, FailureCode, FrameKind, GoodbyeCode, PeerKind, RequestFlags, RequestHead,
    RequestHeader, channel, decode_frame, encode_failure,
};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::handshake::{Verdict, accept};
use super::listener::Port;
use super::security::Security;
use super::{
    Budget, Connection, Correlation, Greeting, Handler, HeldBytes, Lost, Pool, SendError, Ticking,
    dial, drive,
};
use crate::clock::{COARSE_TICK, CoarseInstant};

/// The events of a side.
#[derive(Debug, PartialEq)]
pub(super) enum Told {
    Call,
    System(u8),
    Instead,
    Lost(Lost),
}

/// More events than any test has.
const TOLD_MAX: usize = 64;

pub(super) struct Side(pub(super) mpsc::Sender<Told>);

impl Handler for Side {
    fn request(
        self: &Arc<Self>,
        _: &Arc<Connection>,
        _: RequestHeader,
        _: &[u8],
        cost: u64,
        _: &mut BytesMut,
        _: &mut Context<'_>,
    ) -> u64 {
        let _ = self.0.try_send(Told::Call);
        cost
    }

    fn system(self: &Arc<Self>, _: &Arc<Connection>, channel: u8, _: Bytes) {
        let _ = self.0.try_send(Told::System(channel));
    }

    fn drained(self: &Arc<Self>, _: &Arc<Connection>) {
        let _ = self.0.try_send(Told::System(channel::CALLS));
    }

    fn prefer(self: &Arc<Self>, _: &Arc<Connection>) {
        let _ = self.0.try_send(Told::Instead);
    }

    fn heard(self: &Arc<Self>, _: &Arc<Connection>) {}

    fn lost(self: &Arc<Self>, _: &Arc<Connection>, why: &Lost) {
        let _ = self.0.try_send(Told::Lost(why.clone()));
    }
}

pub(super) const FROM: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

pub(super) fn greeting(me: SiloAddress) -> Greeting {
    Greeting {
        cluster: ClusterId::new("test").unwrap(),
        me: PeerKind::Silo(me),
        limits: Limits::default(),
        budget: Arc::new(Budget::new(1_000)),
        ticking: Arc::default(),
        gone: Arc::default(),
        frame_rooms: Arc::default(),
        held: HeldBytes::new(1 << 20),
        timeout: Duration::from_secs(5),
        options: me.epoch(),
        security: Security::default(),
        admit: None,
        token: None,
        pulse: None,
    }
}

pub(super) fn silo(text: &str) -> SiloAddress {
    text.parse().unwrap()
}

/// Both ends of a connection after its handshake, without their drivers.
pub(super) async fn connected() -> (Connection, Connection) {
    connected_with([greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:2"))]).await
}

/// A connection between these two: who dials, and who accepts.
pub(super) async fn connected_with(greetings: [Greeting; 2]) -> (Connection, Connection) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let acceptor = SiloAddress::new(listener.local_addr().unwrap(), 2);
    let [dialing, accepting] = greetings;
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        accept((stream.into(), FROM), Port::Silo, acceptor, &accepting, |_| Verdict::Accept)
            .await
            .unwrap()
            .0
    };
    let (dialed, accepted) = tokio::join!(dial(acceptor.endpoint(), None, &dialing), accepting);
    (dialed.unwrap().0, accepted)
}

/// Drives an end.
pub(super) fn driven(connection: Connection) -> (Arc<Connection>, mpsc::Receiver<Told>) {
    let (tell, told) = mpsc::channel(TOLD_MAX);
    let connection = Arc::new(connection);
    tokio::spawn(drive(connection.clone(), Arc::new(Side(tell)), BytesMut::new()));
    (connection, told)
}

/// Looks at the connections of `ticking` at every tick, until the test ends.
pub(super) fn ticks(ticking: Arc<Ticking>) {
    let start = tokio::time::Instant::now();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(COARSE_TICK).await;
            let now = u64::try_from(start.elapsed().as_millis()).unwrap();
            let _ = ticking.tick(CoarseInstant::from_millis(now));
        }
    });
}

/// Sends a call.
pub(super) fn call(over: &Connection) -> Result<Correlation, SendError> {
    let grain = GrainId::new(GrainTypeId::from_u32(1), GrainKey::from(1_u64));
    let head = RequestHead {
        correlation: 0,
        target: &grain,
        method: 1,
        flags: RequestFlags::NONE,
        deadline_ms: 0,
        forwards: 0,
        expect_view: 0,
        chain: &CallChain::EMPTY,
        trace: None,
    };
    over.begin_call(Waker::noop(), head, CoarseInstant::LAST, |_| Ok(()))
}

/// Sends a message and waits until it has arrived.
pub(super) async fn speak(connection: &Connection, told: &mut mpsc::Receiver<Told>) {
    connection.system(channel::MEMBERSHIP, &7).unwrap();
    assert_eq!(told.recv().await, Some(Told::System(channel::MEMBERSHIP)));
}

#[tokio::test]
async fn a_dial_that_was_given_up_is_not_the_end_of_a_process() {
    let (dialed, accepted) = connected().await;
    drop(dialed);
    let (_accepted, mut told) = driven(accepted);
    assert!(matches!(told.recv().await, Some(Told::Lost(Lost::Broken(_)))));
}

#[tokio::test]
async fn a_connection_that_ends_without_a_word_is_the_end_of_a_process() {
    let (dialed, accepted) = connected().await;
    let (_accepted, mut told) = driven(accepted);
    let (dialed, _) = driven(dialed);
    speak(&dialed, &mut told).await;
    dialed.lose(Lost::Closed);
    assert_eq!(told.recv().await, Some(Told::Lost(Lost::Ended)));
}

#[tokio::test]
async fn a_connection_that_is_reset_is_not() {
    let (dialed, accepted) = connected().await;
    let (_accepted, mut told) = driven(accepted);
    let (dialed, _) = driven(dialed);
    speak(&dialed, &mut told).await;
    dialed.reset(Lost::PeerDead);
    assert!(matches!(told.recv().await, Some(Told::Lost(Lost::Broken(_)))));
}

/// Another connection is in its place: one-way messages would come out of order. A call that awaits
/// an answer is served.
#[tokio::test]
async fn nothing_that_nobody_waits_for_is_heard_over_a_connection_that_was_replaced() {
    let (dialed, accepted) = connected().await;
    let (accepted, mut told) = driven(accepted);
    let (dialed, _) = driven(dialed);
    speak(&dialed, &mut told).await;
    let grain = GrainId::new(GrainTypeId::from_u32(1), GrainKey::from(1_u64));
    let one_way = || {
        let head = RequestHead {
            correlation: 0,
            target: &grain,
            method: 1,
            flags: RequestFlags::NONE,
            deadline_ms: 0,
            forwards: 0,
            expect_view: 0,
            chain: &CallChain::EMPTY,
            trace: None,
        };
        dialed.one_way(head, |_| Ok(()), || true)
    };
    one_way().unwrap();
    assert_eq!(told.recv().await, Some(Told::Call));
    accepted.retire();
    one_way().unwrap();
    dialed.system(channel::DIRECTORY, &7).unwrap();
    call(&dialed).unwrap();
    assert_eq!(told.recv().await, Some(Told::Call));
    // A question about a call that came over it: a circle of calls would never end.
    dialed.system(channel::WAITS, &7).unwrap();
    assert_eq!(told.recv().await, Some(Told::System(channel::WAITS)));
    dialed.lose(Lost::Closed);
    assert_eq!(told.recv().await, Some(Told::Lost(Lost::Ended)), "one call and nothing else");
    assert!(matches!(call(&accepted), Err(SendError::Lost(_))), "no new call goes out");
}

/// Both sides have found at the same moment that nothing comes, and each has dialled the other.
#[tokio::test]
async fn two_connections_that_take_the_place_of_one_at_once_become_one() {
    for (me, is_lower) in [("127.0.0.1:1:1", true), ("127.9.9.9:1:1", false)] {
        let mut greetings = [greeting(silo(me)), greeting(silo("127.0.0.1:2:2"))];
        let pool = Arc::new(Pool::new(greetings[0].clone()));
        let (mine, _other_end) = connected_with(greetings.clone()).await;
        let peer = mine.silo().unwrap();
        let (mine, _) = driven(mine);
        pool.adopt(&mine);
        let before = mine.rank();
        mine.propose(before, is_lower);
        greetings[1].me = PeerKind::Silo(peer);
        greetings.reverse();
        // A connection that the peer has dialled, and says so.
        let dialled = async |before: Rank| {
            let (theirs, accepted) = connected_with(greetings.clone()).await;
            let (accepted, mut told) = driven(accepted);
            let (theirs, _) = driven(theirs);
            pool.adopt(&accepted);
            theirs.propose(before, !is_lower);
            assert_eq!(told.recv().await, Some(Told::Instead));
            (theirs, accepted)
        };
        let (_theirs, accepted) = dialled(before).await;
        assert_eq!(pool.proposed(&accepted), Some(peer));
        // A repetition changes nothing, and gets no answer.
        let answered = accepted.traffic().messages_sent;
        assert!((0..100).all(|_| pool.proposed(&accepted).is_none()));
        assert_eq!(accepted.traffic().messages_sent, answered);
        let chosen = pool.get(peer).unwrap();
        assert_eq!(Arc::ptr_eq(&chosen, &mine), is_lower, "{me}");
        assert_eq!((mine.is_retired(), accepted.is_retired()), (!is_lower, is_lower), "{me}");
        // One that the peer dialled later takes the place of both, and one that it dialled before
        // that takes none.
        let (_later, later) = dialled(chosen.rank()).await;
        let (_early, early) = dialled(before).await;
        assert_eq!(pool.proposed(&later), Some(peer));
        assert_eq!(pool.proposed(&early), Some(peer));
        assert!(Arc::ptr_eq(&pool.get(peer).unwrap(), &later) && early.is_retired(), "{me}");
    }
}

/// This side was dialling, too, and no longer proposes anything: the peer would follow, and this
/// side has followed the peer.
#[tokio::test]
async fn a_peer_that_was_faster_takes_the_place_of_the_connection() {
    let mut greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:2"))];
    let pool = Arc::new(Pool::new(greetings[0].clone()));
    let (tell, _told) = mpsc::channel(TOLD_MAX);
    let side = Arc::new(Side(tell));
    pool.handled_by(&side);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = SiloAddress::new(listener.local_addr().unwrap(), 2);
    greetings[1].me = PeerKind::Silo(peer);
    let (dialling, accepting) = (pool.clone(), greetings[1].clone());
    let renewing = tokio::spawn(async move { dialling.renew(peer).await });
    let (stream, _) = listener.accept().await.unwrap();
    // Its dial is under way.
    greetings.reverse();
    let (_theirs, accepted) = connected_with(greetings).await;
    let accepted = Arc::new(accepted);
    pool.adopt(&accepted);
    pool.proposed(&accepted);
    let _fresh = accept((stream.into(), FROM), Port::Silo, peer, &accepting, |_| Verdict::Accept)
        .await
        .unwrap();
    renewing.await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&pool.get(peer).unwrap(), &accepted));
    let ours = pool.open().into_iter().find(|c| !Arc::ptr_eq(c, &accepted)).unwrap();
    assert!(ours.is_retired());
    assert_eq!(ours.traffic().bytes_waiting + ours.traffic().bytes_sent, 0, "it proposes nothing");
}

/// This side has lost its own connection to the peer already.
#[tokio::test]
async fn a_connection_that_takes_the_place_of_none_is_used() {
    for me in ["127.0.0.1:1:1", "127.9.9.9:1:1"] {
        let mut greetings = [greeting(silo("127.0.0.1:2:2")), greeting(silo(me))];
        greetings[0].me = PeerKind::Silo(silo("127.0.0.1:7:2"));
        let pool = Arc::new(Pool::new(greetings[1].clone()));
        let (_theirs, accepted) = connected_with(greetings).await;
        let accepted = Arc::new(accepted);
        pool.adopt(&accepted);
        assert_eq!(pool.proposed(&accepted), accepted.silo());
        assert!(!accepted.is_retired() && accepted.takes_calls(), "{me}");
    }
}

/// The client at `dialed`, and its silo.
async fn client_and_silo() -> (Connection, Connection) {
    let mut greetings = [greeting(silo("127.0.0.1:1:1")), greeting(silo("127.0.0.1:2:2"))];
    greetings[0].me = PeerKind::Client(7);
    ticks(greetings[1].ticking.clone());
    connected_with(greetings).await
}

#[tokio::test]
async fn a_client_that_ends_its_half_of_the_connection_gets_its_answers() {
    let (dialed, accepted) = client_and_silo().await;
    let (accepted, mut told) = driven(accepted);
    let _waiting = [call(&dialed).unwrap(), call(&dialed).unwrap()];
    let (stream, calls) = dialed.take_stream();
    assert_eq!(stream.try_write(&calls).unwrap(), calls.len());
    for correlation in [1, 2] {
        assert_eq!(told.recv().await, Some(Told::Call));
        let _ = accepted.begin_serving(correlation, 1);
    }
    // It says that nothing more comes.
    drop(stream);
    let mut reading = dialed.reading.lock().take().unwrap();
    let mut read = BytesMut::new();
    let mut next = async || loop {
        if let Some(frame) = decode_frame(&mut read, 1 << 20).unwrap() {
            return Some(frame.kind);
        }
        if reading.read_buf(&mut read).await.unwrap() == 0 {
            return None;
        }
    };
    for correlation in [1, 2] {
        // The silo asks whether the peer is there.
        assert_eq!(next().await, Some(FrameKind::System));
        assert!(!accepted.is_lost());
        accepted.reply(correlation, 1, |out| {
            encode_failure(out, correlation, FailureCode::Rejected, false, "an answer")
        });
        while next().await.unwrap() != FrameKind::Response {}
    }
    assert_eq!(told.recv().await, Some(Told::Lost(Lost::Ended)), "nothing is left to be told");
    while next().await.is_some() {}
}

/// Its second call will never be whole, and holds room for its frame.
#[tokio::test]
async fn a_client_that_ends_within_a_frame_is_lost_at_once() {
    let (dialed, accepted) = client_and_silo().await;
    let (accepted, mut told) = driven(accepted);
    let _waiting = [call(&dialed).unwrap(), call(&dialed).unwrap()];
    let (stream, calls) = dialed.take_stream();
    assert_eq!(stream.try_write(&calls[..calls.len() - 1]).unwrap(), calls.len() - 1);
    assert_eq!(told.recv().await, Some(Told::Call));
    let asker = accepted.begin_serving(1, 1);
    drop(stream);
    assert_eq!(told.recv().await, Some(Told::Lost(Lost::Ended)));
    assert!(!asker.waits());
}

/// Its host ends the stream as well, and refuses later bytes.
#[tokio::test]
async fn a_client_that_is_gone_is_not_waited_for() {
    let (dialed, accepted) = client_and_silo().await;
    let (accepted, mut told) = driven(accepted);
    call(&dialed).unwrap();
    let (dialed, _) = driven(dialed);
    assert_eq!(told.recv().await, Some(Told::Call));
    let asker = accepted.begin_serving(1, 1);
    dialed.lose(Lost::Closed);
    let Some(Told::Lost(Lost::Broken(_))) = told.recv().await else { panic!("it is waited for") };
    assert!(!asker.waits());
}

#[tokio::test]
async fn who_breaks_the_protocol_is_told() {
    let (dialed, accepted) = connected().await;
    let (_accepted, _) = driven(accepted);
    let (dialed, mut told) = driven(dialed);
    dialed.raw(&[0, 0, 0, 0]);
    let goodbye = Lost::Goodbye(GoodbyeCode::ProtocolError);
    assert_eq!(told.recv().await, Some(Told::Lost(goodbye)));
}

#[tokio::test]
async fn a_dead_peer_is_told_and_not_called() {
    let (dialed, accepted) = connected().await;
    let (_accepted, mut told) = driven(accepted);
    let (dialed, _) = driven(dialed);
    let call = || call(&dialed);
    let waiting = call().unwrap();
    dialed.part();
    let answered = dialed.poll_answer(waiting, Waker::noop(), &mut Vec::new());
    assert_eq!(answered, std::task::Poll::Ready(Err(Lost::PeerDead)));
    assert!(matches!(call(), Err(SendError::Lost(Lost::PeerDead))));
    assert_eq!(told.recv().await, Some(Told::Call));
    speak(&dialed, &mut told).await;
    dialed.goodbye(GoodbyeCode::Dead, "");
    assert_eq!(told.recv().await, Some(Told::Lost(Lost::Goodbye(GoodbyeCode::Dead))));
}

#[tokio::test]
async fn calls_on_their_way_to_who_serves_no_more_are_known_not_to_have_run() {
    let (dialed, accepted) = connected().await;
    let (accepted, mut told) = driven(accepted);
    accepted.stop_serving();
    while !accepted.has_stopped_serving() {
        tokio::task::yield_now().await;
    }
    // The callers do not know that yet.
    assert!(!accepted.knows_of_the_end());
    let waiting = call(&dialed).unwrap();
    let kept = call(&dialed).unwrap();
    let (dialed, mut hears) = driven(dialed);
    assert_eq!(hears.recv().await, Some(Told::System(channel::CALLS)));
    let answered = dialed.poll_answer(waiting, Waker::noop(), &mut Vec::new());
    assert_eq!(answered, std::task::Poll::Ready(Err(Lost::Drained)));
    assert!(matches!(call(&dialed), Err(SendError::Lost(Lost::Drained))));
    // The call has arrived before this message, and was not read.
    speak(&dialed, &mut told).await;
    assert!(accepted.knows_of_the_end());
    // Known facts stay known when the connection ends.
    dialed.part();
    let answered = dialed.poll_answer(kept, Waker::noop(), &mut Vec::new());
    assert_eq!(answered, std::task::Poll::Ready(Err(Lost::Drained)));
    dialed.lose(Lost::Closed);
    assert!(matches!(call(&dialed), Err(SendError::Lost(_))));
}

/// Otherwise it would look at the clock at its deadline.
#[tokio::test]
async fn who_waits_for_an_answer_is_woken_when_none_will_come() {
    let ends: [fn(&Connection); 3] =
        [Connection::part, |c| c.reset(Lost::PeerDead), |c| c.lose(Lost::Closed)];
    for end in ends {
        let (dialed, _accepted) = connected().await;
        let waiting = call(&dialed).unwrap();
        let woken = Arc::new(Woken::default());
        let answered = dialed.poll_answer(waiting, &Waker::from(woken.clone()), &mut Vec::new());
        assert!(answered.is_pending() && !woken.0.load(Ordering::SeqCst));
        end(&dialed);
        assert!(woken.0.load(Ordering::SeqCst));
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn who_has_begun_a_call_does_not_say_that_it_serves_no_more() {
    let (dialed, accepted) = connected().await;
    let (accepted, mut told) = driven(accepted);
    let (dialed, mut hears) = driven(dialed);
    call(&dialed).unwrap();
    assert_eq!(told.recv().await, Some(Told::Call));
    let _ = accepted.begin_serving(0, 1);
    accepted.stop_serving();
    speak(&dialed, &mut told).await;
    assert!(!accepted.has_stopped_serving() && dialed.takes_calls());
    accepted.reply(1, 1, |_| 0);
    assert_eq!(hears.recv().await, Some(Told::System(channel::CALLS)));
    assert!(accepted.has_stopped_serving() && !dialed.takes_calls());
}

/// Not even a peer that has stopped reading sees the orderly end of a process when it is given up.
#[tokio::test]
async fn a_goodbye_that_nobody_reads_ends_in_a_reset() {
    let (dialed, accepted) = connected().await;
    let (dialed, _) = driven(dialed);
    let flood = vec![0_u8; 1 << 20];
    for _ in 0..16 {
        let _ = dialed.system(channel::MEMBERSHIP, &flood);
    }
    dialed.goodbye(GoodbyeCode::Dead, "");
    dialed.reset(Lost::PeerDead);
    let (_accepted, mut told) = driven(accepted);
    let last = loop {
        match told.recv().await {
            Some(Told::System(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(last, Some(Told::Lost(Lost::Broken(_)))), "{last:?}");
}

#[tokio::test]
async fn silos_with_other_options_are_noticed_on_both_sides() {
    let (dialer, same) = (silo("127.0.0.1:1:1"), silo("127.0.0.1:9:1"));
    let (dialed, accepted) = connected().await;
    let acceptor = dialed.silo().unwrap();
    for (me, connection, stranger) in [(dialer, dialed, acceptor), (acceptor, accepted, dialer)] {
        let pool = Arc::new(Pool::new(greeting(me)));
        let connection = Arc::new(connection);
        pool.adopt(&connection);
        pool.adopt(&connection);
        assert_eq!(pool.strangers(), [stranger]);
        pool.set_dead([stranger].into_iter());
        assert!(pool.strangers().is_empty());
    }
    let (_, accepted) = connected().await;
    let pool = Arc::new(Pool::new(greeting(same)));
    pool.adopt(&Arc::new(accepted));
    assert!(pool.strangers().is_empty(), "the same digest");
}

#[tokio::test]
async fn a_refused_handshake_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stranger = TcpStream::connect(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    drop(stranger);
    let me = silo("127.0.0.1:1:1");
    assert!(
        accept((stream.into(), FROM), Port::Silo, me, &greeting(me), |_| Verdict::Accept)
            .await
            .is_err()
    );
}
