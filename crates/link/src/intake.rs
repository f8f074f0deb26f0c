//! Frames as they arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use emmer_wire::{
    FrameError, FrameKind, FrameRef, Goodbye, HeaderError, PeerKind, RequestHeader, ResponseHeader,
    channel, codec, decode_cancel, decode_credit, decode_system_channel, peek_frame, read_request,
    read_response,
};

use crate::account::{self, Account, Room};
use crate::link::Link;
use crate::lost::Lost;
use crate::words::CallsMessage;

/// Bytes of a frame that count like one more frame.
const SMALL_FRAME_BYTES: usize = 512;
/// Weight of a question between runtimes, in frames.
const SYSTEM_FRAMES: usize = 16;
/// With fewer bytes than this there is no look for urgent frames behind others.
const LOOK_AHEAD_BYTES_MIN: usize = 512;
/// Weight of a call that waits, in frames.
const CALL_FRAMES: usize = 8;

/// News of the peer for the rest of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message between runtimes.
    System {
        /// The part of the runtime that reads it ([`channel`]).
        channel: u8,
        /// The message.
        payload: Bytes,
    },
    /// The peer has given up the call with this correlation.
    GivenUp(u64),
    /// The peer serves no further calls.
    Drained,
    /// The peer wants to be talked to over this connection, and no earlier one:
    /// [`hear_proposal`](Link::hear_proposal).
    Instead,
    /// A word about calls that this version does not know; the text says why.
    Unknown(String),
}

/// State of a link about arriving frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Bytes have come since the last look.
    pub(crate) came: bool,
    /// Frames are read now: calls may begin.
    pub(crate) is_reading: bool,
    /// Room for the large frame that has begun and not ended.
    pub(crate) room: Option<Room>,
}

/// The next thing in the bytes that have come.
#[derive(Debug)]
pub enum Next<'i> {
    /// A call of the peer, for [`over`](Intake::over). For a one-way call ask
    /// [`reads_one_ways`](Link::reads_one_ways) first.
    Request {
        /// Everything but the arguments.
        header: RequestHeader,
        /// The arguments.
        body: &'i [u8],
        /// Size of the whole frame: the peer counts all of its bytes.
        cost: u64,
    },
    /// An answer, for [`handle_answer`](Link::handle_answer).
    Answer {
        /// Everything but the result.
        header: ResponseHeader,
        /// The result.
        body: &'i [u8],
    },
    /// Another frame, for [`handle_frame`](Link::handle_frame).
    Other(FrameRef<'i>),
    /// Nothing now.
    Nothing,
}

/// The reader's side of a [`Link`]: it cuts what comes into frames. It belongs to the thread that
/// reads, and takes no lock.
#[derive(Debug)]
pub struct Intake {
    frame_bytes_max: u32,
    account: Arc<Account>,
    /// The peer knows that none of its calls begin.
    deaf: bool,
    /// Whole frames wait until the peer has read its answers.
    withheld: bool,
    /// The frames that are left before others have their turn.
    left: usize,
    /// Bytes that were handled.
    at: usize,
    /// Bytes that were looked through for urgent frames.
    looked: usize,
    /// Length of the input that was looked through to its end.
    seen: usize,
    /// The starts of urgent frames that were handled before those that came before them.
    early: VecDeque<usize>,
    /// Frames that were handled.
    frames: u64,
    /// Bytes of calls that are over.
    processed: u64,
    holds_room: bool,
}

impl Intake {
    /// A reader for `link`.
    pub fn new(link: &Link) -> Self {
        Self {
            frame_bytes_max: link.limits.frame_bytes_max,
            account: link.account.clone(),
            deaf: false,
            withheld: false,
            left: 0,
            at: 0,
            looked: 0,
            seen: 0,
            early: VecDeque::new(),
            frames: 0,
            processed: 0,
            holds_room: false,
        }
    }

    /// Other connections have had their turn.
    pub fn begin_go(&mut self) {
        self.left = self.account.frames_in_one_go();
    }

    /// The next thing in `input`, which has all bytes that came and were not
    /// [taken off](Self::take_handled). `replies` bytes of answers wait to be handed to the link.
    ///
    /// # Errors
    /// The peer breaks the protocol.
    pub fn next<'i>(&mut self, input: &'i [u8], replies: usize) -> Result<Next<'i>, Lost> {
        self.withheld = false;
        if let Some(urgent) = self.next_urgent(input) {
            return Ok(Next::Other(urgent));
        }
        loop {
            while self.early.pop_front_if(|start| *start == self.at).is_some() {
                self.at += peek_frame(input.get(self.at..).unwrap_or_default(), u32::MAX)
                    .map_err(no_frame)?
                    .map_or(0, |frame| frame.bytes);
            }
            let rest = input.get(self.at..).unwrap_or_default();
            let Some(frame) = peek_frame(rest, self.frame_bytes_max).map_err(no_frame)? else {
                return Ok(Next::Nothing);
            };
            // Any frame may have an answer, if only a refusal.
            self.withheld = self.account.must_read(replies);
            if self.withheld || self.left == 0 {
                return Ok(Next::Nothing);
            }
            self.left = self.left.saturating_sub(1 + frame.bytes / SMALL_FRAME_BYTES);
            self.at += frame.bytes;
            self.frames += 1;
            match frame.kind {
                FrameKind::Response => {
                    let (header, body) = read_response(frame.payload).map_err(broken)?;
                    return Ok(Next::Answer { header, body });
                }
                // The peer knows that this one does not run.
                FrameKind::Request if self.deaf => {}
                FrameKind::Request => {
                    let (header, body) = read_request(frame.payload).map_err(broken)?;
                    return Ok(Next::Request { header, body, cost: frame.bytes as u64 });
                }
                FrameKind::System => {
                    self.left = self.left.saturating_sub(SYSTEM_FRAMES - 1);
                    return Ok(Next::Other(frame));
                }
                _ => return Ok(Next::Other(frame)),
            }
        }
    }

    /// The next frame of membership or credit that came behind calls. These frames keep silos
    /// alive, and are handled before the calls.
    fn next_urgent<'i>(&mut self, input: &'i [u8]) -> Option<FrameRef<'i>> {
        if input.len() == self.seen || input.len() < self.at + LOOK_AHEAD_BYTES_MIN {
            return None;
        }
        self.looked = self.looked.max(self.at);
        let mut rest = input.get(self.looked..).unwrap_or_default();
        // A broken frame is found when its turn comes.
        while let Ok(Some(frame)) = peek_frame(rest, self.frame_bytes_max) {
            let start = self.looked;
            self.looked += frame.bytes;
            rest = input.get(self.looked..).unwrap_or_default();
            let is_urgent = match frame.kind {
                FrameKind::System => frame.payload.first() == Some(&channel::MEMBERSHIP),
                FrameKind::Credit => true,
                _ => false,
            };
            // The one at the start has its turn now.
            if is_urgent && start > self.at {
                self.early.push_back(start);
                self.frames += 1;
                return Some(frame);
            }
        }
        self.seen = input.len();
        None
    }

    /// Notes the end of a call: `processed` bytes of it are over. 0 says that it continues in a
    /// task of its own.
    pub const fn over(&mut self, processed: u64) {
        self.processed += processed;
        if processed == 0 {
            self.left = self.left.saturating_sub(CALL_FRAMES - 1);
        }
    }

    /// Number of bytes at the start of the input that were handled. The caller takes them off.
    pub fn take_handled(&mut self) -> usize {
        let handled = std::mem::replace(&mut self.at, 0);
        self.looked = self.looked.saturating_sub(handled);
        self.seen = self.seen.saturating_sub(handled);
        self.early.iter_mut().for_each(|start| *start -= handled);
        handled
    }

    /// Returns true if whole frames wait for others to have their turn.
    pub const fn is_tired(&self) -> bool {
        self.left == 0
    }

    /// Returns true if whole frames wait until the peer has read its answers.
    pub const fn is_withheld(&self) -> bool {
        self.withheld
    }

    /// Length of a large frame that has begun and needs [room](Link::take_frame_room); then no
    /// other byte is read before. `input` was looked through.
    pub fn needs_room(&self, input: &[u8]) -> Option<usize> {
        if self.holds_room { None } else { account::wanted(input) }
    }

    /// Returns true if room is held that the input no longer needs: [`end_frame`](Link::end_frame).
    pub fn is_done_with_room(&self, input: &[u8]) -> bool {
        self.holds_room && account::wanted(input).is_none()
    }
}

fn no_frame(error: FrameError) -> Lost {
    Lost::Protocol(error.to_string())
}

fn broken(error: HeaderError) -> Lost {
    Lost::Protocol(error.to_string())
}

impl Link {
    /// `received` more bytes have come. They are looked through with `intake` now, and
    /// [`end_intake`](Self::end_intake) ends that.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn begin_intake(&mut self, intake: &mut Intake, received: usize) -> Result<(), Lost> {
        if received > 0 {
            if matches!(self.peer, PeerKind::Watch(_)) {
                return Err(Lost::Protocol("bytes on a lifeline".to_owned()));
            }
            self.frames.came = true;
            self.counts.bytes_received += received as u64;
        }
        if let Some(fault) = self.fault() {
            return Err(fault.clone());
        }
        self.frames.is_reading = true;
        intake.deaf = self.is_deaf();
        Ok(())
    }

    /// All frames that can be handled now were handled. `replies` are the answers to calls among
    /// them, and are queued.
    pub fn end_intake(&mut self, intake: &mut Intake, replies: &mut BytesMut) {
        self.frames.is_reading = false;
        self.counts.messages_received += std::mem::take(&mut intake.frames);
        if self.lost().is_some() {
            replies.clear();
            return;
        }
        self.put_replies(replies);
        self.note_processed(std::mem::take(&mut intake.processed));
        self.tell_drained();
    }

    /// Returns true if a one-way call of the peer is to be run. On a connection that was replaced
    /// later words may have come over its successor, and no caller waits for this one.
    pub const fn reads_one_ways(&self) -> bool {
        !self.is_retired()
    }

    /// Handles an answer; `large` is a copy of its body, if it is a large one. The caller is among
    /// the [wakers](Self::take_wakers) afterwards.
    #[inline]
    pub fn handle_answer(&mut self, header: &ResponseHeader, body: &[u8], large: Option<Vec<u8>>) {
        self.wakers.extend(self.pending.answer(header, body, large));
    }

    /// Handles a frame that is neither a call nor an answer.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn handle_frame(&mut self, frame: &FrameRef<'_>) -> Result<(), Lost> {
        match frame.kind {
            FrameKind::System => {
                let payload = Bytes::copy_from_slice(frame.payload);
                let (channel, payload) = decode_system_channel(&payload).map_err(broken)?;
                if channel == channel::CALLS {
                    match codec::decode(&payload) {
                        Ok(word) => self.handle_word(word),
                        Err(e) => self.events.push_back(Event::Unknown(e.to_string())),
                    }
                } else if channel == channel::WAITS || !self.is_retired() {
                    // A question about a call comes where the call came, also on a connection that
                    // another one has replaced since.
                    self.events.push_back(Event::System { channel, payload });
                }
            }
            FrameKind::Credit => {
                let total = decode_credit(frame.payload).map_err(broken)?;
                if total > self.sent {
                    return Err(Lost::Protocol("a credit for more than was sent".to_owned()));
                }
                self.acknowledged = self.acknowledged.max(total);
            }
            FrameKind::Cancel => {
                let calls = decode_cancel(frame.payload).map_err(broken)?;
                self.events.extend(calls.into_iter().map(Event::GivenUp));
            }
            FrameKind::Goodbye => {
                let goodbye = Goodbye::decode(frame.payload).map_err(broken)?;
                return Err(Lost::Goodbye(goodbye.code));
            }
            FrameKind::Hello
            | FrameKind::Welcome
            | FrameKind::Refuse
            | FrameKind::Request
            | FrameKind::Response => {
                return Err(Lost::Protocol(format!("{:?} after the handshake", frame.kind)));
            }
        }
        Ok(())
    }

    fn handle_word(&mut self, word: CallsMessage) {
        match word {
            CallsMessage::Drained => {
                self.life.drain();
                self.pending.drain_wakers(&mut self.wakers);
                self.events.push_back(Event::Drained);
            }
            CallsMessage::Ping => {
                // Without room the peer hears it later, when it reads again.
                let _ = self.system(channel::CALLS, &CallsMessage::Pong);
                self.note_waiting();
            }
            CallsMessage::Pong => {
                self.words.said += 1;
                self.unread.said(self.words.said);
            }
            CallsMessage::Instead(number) => {
                self.renewal.heard = number;
                self.events.push_back(Event::Instead);
            }
        }
    }

    /// Takes room for a large frame that has begun, so that it may be read to its end; else `waker`
    /// is woken when there may be some.
    pub fn take_frame_room(&mut self, intake: &mut Intake, bytes: usize, waker: &Waker) -> bool {
        if self.frames.room.is_none() {
            self.frames.room = self.frame_room.take(bytes, waker);
        }
        intake.holds_room = self.frames.room.is_some();
        intake.holds_room
    }

    /// The large frame is there.
    pub fn end_frame(&mut self, intake: &mut Intake) {
        intake.holds_room = false;
        self.frames.room = None;
    }
}
