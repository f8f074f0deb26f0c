//! Two ends of a connection, the wires between them, and what is known of their calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use emmer_core::{CoarseInstant, GrainId, GrainKey, GrainTypeId, SiloAddress};
use emmer_link::account::{Account, FrameRooms, HeldBytes};
use emmer_link::{
    Answer, Budget, Correlation, Event, Intake, Link, Lost, Next, SendError, Setup, Ticked,
};
use emmer_wire::{
    CallChain, ConnectionLimits, PeerKind, RequestFlags, RequestHead, ResponseHeader,
    ResponseStatus, encode_request_head, encode_response,
};

/// Limits that a test reaches.
pub(crate) const LIMITS: ConnectionLimits =
    ConnectionLimits { calls_in_flight_max: 40, frame_bytes_max: 60_000, credit_bytes: 150_000 };

/// Bytes that may wait to be sent.
pub(crate) const OUTGOING_BYTES_MAX: usize = 200_000;

pub(crate) fn silo(port: u16) -> SiloAddress {
    SiloAddress::new(([127, 0, 0, 1], port).into(), 1)
}

/// Budgets that the connections of one process share.
pub(crate) struct Process {
    pub(crate) budget: Arc<Budget>,
    pub(crate) held: Arc<HeldBytes>,
    pub(crate) rooms: Arc<FrameRooms>,
}

impl Default for Process {
    fn default() -> Self {
        Self {
            budget: Arc::new(Budget::new(10_000)),
            held: HeldBytes::new(1 << 20),
            rooms: Arc::new(FrameRooms::new(100_000)),
        }
    }
}

impl Process {
    /// This process's end of a connection to `peer`.
    pub(crate) fn link(&self, peer: PeerKind) -> Link {
        self.link_with(peer, LIMITS)
    }

    /// As [`link`](Self::link), with `limits` for this process.
    pub(crate) fn link_with(&self, peer: PeerKind, limits: ConnectionLimits) -> Link {
        Link::new(Setup {
            peer,
            limits,
            peer_limits: LIMITS,
            outgoing_bytes_max: OUTGOING_BYTES_MAX,
            budget: self.budget.clone(),
            account: Account::new(peer, &self.held, OUTGOING_BYTES_MAX),
            frame_rooms: self.rooms.clone(),
        })
    }
}

/// How a call ended for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the answer to the call of this number.
    Answered(u64),
    TimedOut,
    GivenUp,
    Lost(Lost),
}

/// A call, from the side that makes it.
#[derive(Debug)]
pub(crate) struct Call {
    number: u64,
    correlation: Correlation,
    deadline: CoarseInstant,
}

/// A call, on the side where it runs.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) number: u64,
    correlation: u64,
    cost: u64,
}

/// One end.
pub(crate) struct End {
    pub(crate) process: Process,
    pub(crate) link: Link,
    intake: Intake,
    input: BytesMut,
    received: usize,
    /// Bytes on their way to this end.
    pub(crate) wire: VecDeque<u8>,
    pub(crate) waiting: Vec<Call>,
    pub(crate) turns: Vec<Turn>,
    /// Numbers of calls that have begun to run here, in order.
    pub(crate) ran: Vec<u64>,
    pub(crate) one_ways_ran: Vec<u64>,
    pub(crate) one_ways_sent: Vec<u64>,
    pub(crate) given_up: Vec<u64>,
    pub(crate) systems: Vec<u8>,
    /// Channels of messages that came before the first call.
    pub(crate) before_calls: Vec<u8>,
    pub(crate) is_drained: bool,
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
    pub(crate) silent: bool,
}

impl End {
    fn new(peer: PeerKind) -> Self {
        let process = Process::default();
        let link = process.link(peer);
        let intake = Intake::new(&link);
        Self {
            process,
            link,
            intake,
            input: BytesMut::new(),
            received: 0,
            wire: VecDeque::new(),
            waiting: Vec::new(),
            turns: Vec::new(),
            ran: Vec::new(),
            one_ways_ran: Vec::new(),
            one_ways_sent: Vec::new(),
            given_up: Vec::new(),
            systems: Vec::new(),
            before_calls: Vec::new(),
            is_drained: false,
            outcomes: BTreeMap::new(),
            silent: false,
        }
    }

    /// Bytes come in. `at_once` says which calls are answered while they are read.
    pub(crate) fn receive(&mut self, bytes: &[u8], at_once: impl Fn(u64) -> bool) {
        if self.link.lost().is_some() {
            return;
        }
        self.input.extend_from_slice(bytes);
        self.received += bytes.len();
        self.intake.begin_go();
        if let Err(why) = self.handle(at_once) {
            self.link.lose(why);
        }
        self.settle();
    }

    /// Frames that had to wait for room are handled.
    pub(crate) fn read_again(&mut self, at_once: impl Fn(u64) -> bool) {
        self.receive(&[], at_once);
    }

    fn handle(&mut self, at_once: impl Fn(u64) -> bool) -> Result<(), Lost> {
        let received = std::mem::take(&mut self.received);
        self.link.begin_intake(&mut self.intake, received)?;
        let mut replies = BytesMut::new();
        let end = self.handle_frames(&mut replies, at_once);
        self.link.end_intake(&mut self.intake, &mut replies);
        self.input.advance(self.intake.take_handled());
        if let Some(bytes) = self.intake.needs_room(&self.input) {
            let taken = self.link.take_frame_room(&mut self.intake, bytes, Waker::noop());
            assert!(taken, "one frame always fits");
        } else if self.intake.is_done_with_room(&self.input) {
            self.link.end_frame(&mut self.intake);
        }
        end
    }

    fn handle_frames(
        &mut self,
        replies: &mut BytesMut,
        at_once: impl Fn(u64) -> bool,
    ) -> Result<(), Lost> {
        loop {
            match self.intake.next(&self.input, replies.len())? {
                Next::Nothing => return Ok(()),
                Next::Answer { header, body } => self.link.handle_answer(&header, body, None),
                Next::Other(frame) => {
                    self.link.handle_frame(&frame)?;
                    while let Some(event) = self.link.poll_event() {
                        match event {
                            Event::System { channel, .. } => {
                                self.systems.push(channel);
                                if self.ran.is_empty() && self.one_ways_ran.is_empty() {
                                    self.before_calls.push(channel);
                                }
                            }
                            Event::GivenUp(call) => {
                                let turns = self.turns.iter();
                                let number = turns
                                    .filter(|turn| turn.correlation == call)
                                    .map(|turn| turn.number);
                                self.given_up.extend(number);
                            }
                            Event::Drained => self.is_drained = true,
                            Event::Instead | Event::Unknown(_) => {}
                        }
                    }
                }
                Next::Request { header, body, cost } => {
                    let number = u64::from_le_bytes(*body.first_chunk().expect("a number"));
                    if header.correlation == 0 {
                        if self.link.reads_one_ways() {
                            self.one_ways_ran.push(number);
                        }
                        self.intake.over(cost);
                        continue;
                    }
                    self.ran.push(number);
                    if at_once(number) {
                        put_answer(replies, header.correlation, number);
                        self.intake.over(cost);
                    } else {
                        self.link.begin_serving(cost)?;
                        self.intake.over(0);
                        let correlation = header.correlation;
                        self.turns.push(Turn { number, correlation, cost });
                    }
                }
            }
        }
    }

    /// Callers look at their calls.
    pub(crate) fn settle(&mut self) {
        let mut body = Vec::new();
        let Self { waiting, link, outcomes, .. } = self;
        waiting.retain(|call| {
            let outcome = match link.poll_answer(call.correlation, Waker::noop(), &mut body) {
                Poll::Pending => return true,
                Poll::Ready(Err(why)) => Outcome::Lost(why),
                Poll::Ready(Ok(Answer::TimedOut)) => Outcome::TimedOut,
                Poll::Ready(Ok(Answer::Response { .. })) => {
                    Outcome::Answered(u64::from_le_bytes(*body.first_chunk().expect("a number")))
                }
            };
            let before = outcomes.insert(call.number, outcome);
            assert_eq!(before, None, "a call ends once");
            false
        });
        let mut wakers = Vec::new();
        link.take_wakers(&mut wakers);
    }

    /// Makes a call with `bytes` of arguments.
    pub(crate) fn call(
        &mut self,
        number: u64,
        bytes: usize,
        deadline: CoarseInstant,
    ) -> Result<(), SendError> {
        let mut frame = request(number, bytes, RequestFlags::NONE);
        let correlation = self.link.call(&mut frame, Waker::noop().clone(), deadline, number)?;
        self.waiting.push(Call { number, correlation, deadline });
        Ok(())
    }

    pub(crate) fn one_way(&mut self, number: u64, bytes: usize) -> Result<(), SendError> {
        let frame = request(number, bytes, RequestFlags::ONE_WAY);
        assert!(self.link.one_way(&frame, || true)?);
        self.one_ways_sent.push(number);
        Ok(())
    }

    pub(crate) fn give_up(&mut self, at: usize) {
        let call = self.waiting.swap_remove(at);
        self.link.give_up(call.correlation);
        self.outcomes.insert(call.number, Outcome::GivenUp);
    }

    /// Answers a turn, if the peer reads.
    pub(crate) fn reply(&mut self, at: usize) {
        if self.link.has_reply_room() {
            let turn = self.turns.swap_remove(at);
            self.link.reply(turn.correlation, turn.cost, |out| {
                put_answer(out, turn.correlation, turn.number)
            });
        }
    }

    pub(crate) fn tick(&mut self, now: CoarseInstant) -> Ticked {
        let ticked = self.link.handle_timeout(now);
        self.silent |= ticked.silent;
        let early = |call: &&Call| call.deadline > now;
        let late: Vec<u64> =
            self.waiting.iter().filter(|call| !early(call)).map(|call| call.number).collect();
        self.settle();
        for number in late {
            assert!(self.outcomes.contains_key(&number), "a call outlives its deadline");
        }
        if let Some(why) = self.link.verdict() {
            self.link.lose(why);
            self.settle();
        }
        ticked
    }
}

fn put_answer(out: &mut BytesMut, correlation: u64, number: u64) -> usize {
    let header = ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
    let body = |out: &mut BytesMut| -> Result<(), std::convert::Infallible> {
        out.extend_from_slice(&number.to_le_bytes());
        out.resize(out.len() + answer_bytes(number), 7);
        Ok(())
    };
    encode_response(out, &header, body).expect("it never fails")
}

/// Most answers are small.
fn answer_bytes(number: u64) -> usize {
    if number.is_multiple_of(13) { 30_000 } else { 3 }
}

/// A call as a frame; its arguments begin with `number`.
pub(crate) fn request(number: u64, bytes: usize, flags: RequestFlags) -> BytesMut {
    let grain = GrainId::new(GrainTypeId::from_u32(1), GrainKey::from(1_u64));
    let head = RequestHead {
        correlation: u64::from(!flags.contains(RequestFlags::ONE_WAY)),
        target: &grain,
        method: 1,
        flags,
        deadline_ms: 0,
        forwards: 0,
        expect_view: 0,
        chain: &CallChain::EMPTY,
        trace: None,
    };
    let mut frame = BytesMut::new();
    let body = |out: &mut BytesMut| -> Result<(), std::convert::Infallible> {
        out.extend_from_slice(&number.to_le_bytes());
        out.resize(out.len() + bytes, 9);
        Ok(())
    };
    encode_request_head(&mut frame, &head, body).expect("it never fails");
    frame
}

/// Both ends.
pub(crate) struct World {
    pub(crate) ends: [End; 2],
    pub(crate) now: CoarseInstant,
}

impl World {
    /// Two silos.
    pub(crate) fn silos() -> Self {
        Self::of([PeerKind::Silo(silo(2)), PeerKind::Silo(silo(1))])
    }

    /// A client, and its silo.
    pub(crate) fn client_and_silo() -> Self {
        Self::of([PeerKind::Silo(silo(2)), PeerKind::Client(7)])
    }

    fn of(peers: [PeerKind; 2]) -> Self {
        Self { ends: peers.map(End::new), now: CoarseInstant::from_millis(1_000) }
    }

    /// The socket of `side` takes at most `bytes`.
    pub(crate) fn transmit(&mut self, side: usize, bytes: usize) {
        let link = &mut self.ends[side].link;
        let Some(waiting) = link.poll_transmit() else { return };
        let taken = waiting[..bytes.min(waiting.len())].to_vec();
        link.transmitted(taken.len());
        link.note_waiting();
        if !link.has_transmit() {
            // Its owner wakes those that wait for room.
            self.ends[side].process_room();
        }
        self.ends[1 - side].wire.extend(taken);
    }

    /// At most `bytes` arrive at `side`.
    pub(crate) fn deliver(&mut self, side: usize, bytes: usize, at_once: impl Fn(u64) -> bool) {
        let end = &mut self.ends[side];
        let bytes: Vec<u8> = end.wire.drain(..bytes.min(end.wire.len())).collect();
        end.receive(&bytes, at_once);
    }

    /// Time passes.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        let now = self.now;
        for end in &mut self.ends {
            end.tick(now);
        }
    }

    /// Everything that was queued arrives, and turns are answered, until nothing moves.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            let moves = (0..2).any(|side| {
                let end = &self.ends[side];
                end.link.has_transmit() || !end.wire.is_empty() || !end.turns.is_empty()
            });
            if !moves {
                return;
            }
            for side in 0..2 {
                self.transmit(side, usize::MAX);
                self.deliver(1 - side, usize::MAX, |_| true);
                self.ends[side].read_again(|_| true);
                for at in (0..self.ends[side].turns.len()).rev() {
                    self.ends[side].reply(at);
                }
            }
        }
        panic!("the two ends never rest");
    }

    /// The stream ends: in good order at the other end if `why` is an end of this side.
    pub(crate) fn cut(&mut self) {
        for end in &mut self.ends {
            end.wire.clear();
            end.link.lose(Lost::Broken("cut".to_owned()));
            end.settle();
        }
    }

    /// Checks the rules that hold at every moment.
    pub(crate) fn check(&self) {
        for side in 0..2 {
            let (me, peer) = (&self.ends[side], &self.ends[1 - side]);
            for (number, outcome) in &me.outcomes {
                match outcome {
                    Outcome::Answered(of) => {
                        assert_eq!(of, number, "a caller gets its own answer");
                        assert!(peer.ran.contains(number), "an answered call has run");
                    }
                    Outcome::Lost(Lost::Drained) => {
                        assert!(!peer.ran.contains(number), "a drained call has not run");
                    }
                    Outcome::Lost(Lost::Protocol(why)) => panic!("an honest peer: {why}"),
                    Outcome::TimedOut | Outcome::GivenUp | Outcome::Lost(_) => {}
                }
            }
            let mut once = peer.ran.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), peer.ran.len(), "a call runs once");
            assert!(
                peer.one_ways_ran.is_sorted_by(|a, b| a < b),
                "one-way calls run in order, once: {:?}",
                peer.one_ways_ran
            );
            if let Some(Lost::Protocol(why)) = me.link.lost() {
                panic!("honest peers break no protocol: {why}");
            }
            assert_eq!(me.link.waiting() as usize, me.waiting.len(), "no slot is lost");
            assert_eq!(me.link.serving() as usize, me.turns.len(), "no turn is lost");
        }
    }
}

impl End {
    fn process_room(&self) {
        let _ = self.link.account().note_room();
    }
}
