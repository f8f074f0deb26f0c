//! The one task of a connection: reads frames, runs turns that do not suspend, writes the queue.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_wire::{
    FrameKind, GoodbyeCode, HeaderError, PeerKind, RequestHeader, encode_goodbye, peek_frame,
    read_response,
};
use tokio::io::AsyncReadExt;

use super::account::{self, Room, Written};
use super::connection::Connection;
use super::driving::Driving;
use super::frames::handle_frame;
use super::half_closed::HalfClosed;
use super::lost::Lost;
use super::silence::Stuck;
use crate::world::ReadHalf;

/// Minimum size of one read. It grows while reads fill their buffer, and shrinks when they leave
/// most of it empty, so that bytes that usually come together are read together.
const READ_BYTES_MIN: usize = 4 << 10;
/// The most that is read at once.
const READ_BYTES_MAX: usize = 64 << 10;

/// A buffer that grew beyond this is let go when the connection falls silent: a silo has thousands
/// of connections, and few of them are busy.
const KEPT_BYTES_MAX: usize = 2 * READ_BYTES_MIN;

/// The body of an answer of this size is copied before the connection is locked, not under its
/// lock.
const LARGE_BODY_BYTES: usize = 32 << 10;

/// After this many answers the connection is unlocked for a moment: callers on other threads want
/// it, too.
const ANSWERS_IN_ONE_GO_MAX: u32 = 16;

/// Bytes of a frame that count like one more frame.
const SMALL_FRAME_BYTES: usize = 512;
/// Weight of a question between runtimes, in frames.
const SYSTEM_FRAMES: usize = 16;
/// Weight of a call that waits, in frames.
const CALL_FRAMES: usize = 8;

/// Maximum reads before other tasks get their turn.
const READS_PER_TURN: usize = 16;

/// Handler of messages that arrive at a silo or a client.
pub trait Handler: Send + Sync + 'static {
    /// A call. The answer goes to `replies` at once (whole frames) when the turn does not suspend;
    /// else later through [`Connection::reply`]. `cost` is the size of the whole frame; returns the
    /// bytes whose processing is over (`cost` or 0).
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: RequestHeader,
        body: &[u8],
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64;

    /// A message between runtimes.
    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes);

    /// The peer serves no further calls.
    fn drained(self: &Arc<Self>, connection: &Arc<Connection>) {
        let _ = connection;
    }

    /// The peer wants to be talked to over this connection, and no earlier one.
    fn prefer(self: &Arc<Self>, connection: &Arc<Connection>) {
        let _ = connection;
    }

    /// Bytes arrived.
    fn heard(self: &Arc<Self>, connection: &Arc<Connection>);

    /// Returns true if the cluster's view names this silo.
    fn knows(&self, silo: SiloAddress) -> bool {
        let _ = silo;
        true
    }

    /// The connection has ended.
    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost);
}

/// Drives `connection` until it ends. `input` has the bytes behind the handshake.
pub async fn drive<H: Handler>(connection: Arc<Connection>, handler: Arc<H>, input: BytesMut) {
    let Some(reading) = connection.reading.lock().take() else { return };
    let _ = connection.me.set(Arc::downgrade(&connection));
    {
        // Calls may have been sent before.
        let mut shared = connection.shared.lock();
        if shared.pending.live() > 0 {
            connection.look_at_ticks(&mut shared);
        }
    }
    connection.has_received(input.len());
    // When the runtime ends, this task is dropped, and callers that wait for an answer hear of it.
    let _ends = Ends(connection.clone());
    let mut driver = Driver {
        connection: connection.clone(),
        reading,
        handler: handler.clone(),
        input,
        read_bytes: READ_BYTES_MIN,
        replies: BytesMut::new(),
        writing: BytesMut::new(),
        counted: None,
        stuck: Stuck::default(),
        half_closed: None,
        wake: Vec::new(),
        busy: false,
        behind: Behind::default(),
        deaf: false,
        room: None,
        mute: matches!(connection.peer, PeerKind::Watch(_)),
        withheld: false,
        frames_left: 0,
    };
    let why = std::future::poll_fn(|cx| driver.poll(cx)).await;
    if let Lost::Protocol(text) = &why {
        let mut last = BytesMut::new();
        encode_goodbye(&mut last, GoodbyeCode::ProtocolError, text);
        // Behind half a frame the message could not be read; and the peer may not be reading at
        // all.
        let told = driver.writing.is_empty()
            && driver.reading.try_write(&last).is_ok_and(|n| n == last.len());
        if !told {
            connection.reset(why.clone());
        }
    }
    connection.lose(why.clone());
    handler.lost(&connection, &why);
}

/// The number of frames in whole frames.
fn frames_in(mut bytes: &[u8]) -> u64 {
    let mut frames = 0;
    while let Some(prefix) = bytes.first_chunk::<4>() {
        frames += 1;
        let frame = prefix.len() + u32::from_le_bytes(*prefix) as usize;
        bytes = bytes.get(frame..).unwrap_or_default();
    }
    frames
}

/// The end of a connection's driver, however it comes.
struct Ends(Arc<Connection>);

impl Drop for Ends {
    fn drop(&mut self) {
        // Nothing changes when it was said before why.
        self.0.lose(Lost::Closed);
    }
}

struct Driver<H> {
    connection: Arc<Connection>,
    reading: ReadHalf,
    handler: Arc<H>,
    input: BytesMut,
    /// Room that the next read gets.
    read_bytes: usize,
    /// Answers of the turns that ran in this go.
    replies: BytesMut,
    /// Bytes that the socket takes next.
    writing: BytesMut,
    /// Their count, if they are many.
    counted: Option<Written>,
    stuck: Stuck,
    /// The peer sends nothing more, and waits for answers.
    half_closed: Option<HalfClosed>,
    wake: Vec<Waker>,
    /// True if enough calls of this side were in flight at the last look that they are worth
    /// collecting.
    busy: bool,
    /// Way to let callers go first.
    behind: Behind,
    /// True once the peer heard that no further calls of it are served.
    deaf: bool,
    /// Held by a large frame that has begun and not ended.
    room: Option<Room>,
    /// A lifeline: the peer sends nothing.
    mute: bool,
    /// Whole frames wait in `input` until the peer has read its waiting answers.
    withheld: bool,
    /// The frames that are left of this go.
    frames_left: usize,
}

/// Callers that have their answers and are let go before the driver writes.
#[derive(Default)]
struct Behind {
    /// Number of callers at the last look.
    callers: u32,
    /// For how many looks none of them moved.
    in_vain: u32,
    /// Looks since the last write.
    looks: u32,
}

/// Number of times in a row that the driver waits for callers that do not move.
const LOOKS_IN_VAIN_MAX: u32 = 4;
/// Number of times that the driver waits at most: others may wait for the write.
const LOOKS_MAX: u32 = 64;

/// Number of calls in flight that are worth collecting for one write.
const BUSY_CALLS_MIN: u32 = 4;

impl<H: Handler> Driver<H> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        // Before the first call is read: a connection may come when calls are no longer served.
        self.deaf = self.connection.tell_drained();
        self.frames_left = self.connection.frames_in_one_go();
        let go = Driving::begin(&*self.connection);
        let reading = self.poll_read(cx);
        drop(go);
        self.queue_replies();
        self.deaf = self.connection.tell_drained();
        if self.busy
            && matches!(reading, Ok(Progress::Read | Progress::Idle))
            && self.callers_come()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(half_closed) = &mut self.half_closed {
            half_closed.poll(&self.connection, cx);
        }
        let writing = self.poll_write(cx);
        if self.withheld && !self.connection.must_read(0) {
            cx.waker().wake_by_ref();
        }
        if self.half_closed.is_some() && HalfClosed::is_over(&self.connection, &self.writing) {
            return Poll::Ready(Lost::Ended);
        }
        match (reading, writing) {
            (Err(why), _) | (_, Err(why)) => Poll::Ready(why),
            (Ok(Progress::More), _) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            // The driver runs once more, behind the tasks that are ready now. Their frames then go
            // out in one write, and none of them needs to wake the driver. With few callers the
            // next wake is better.
            (Ok(reading), Ok(wrote)) => {
                if self.busy && (wrote || reading == Progress::Read) {
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    /// Returns true if callers are about to take their answers. Most of them call again at once,
    /// perhaps on another thread, and their frames then go out in one write. False when they do not
    /// move: they have other work.
    fn callers_come(&mut self) -> bool {
        let waiting = self.connection.answered.load(Ordering::Relaxed);
        let Behind { callers, in_vain, looks } = self.behind;
        let in_vain = if waiting == callers { in_vain + 1 } else { 0 };
        let come = waiting > 0 && in_vain < LOOKS_IN_VAIN_MAX && looks < LOOKS_MAX;
        let looks = if come { looks + 1 } else { 0 };
        self.behind = Behind { callers: waiting, in_vain, looks };
        come
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<Progress, Lost> {
        if self.half_closed.is_some() {
            return Ok(Progress::Idle);
        }
        if self.mute && !self.input.is_empty() {
            return Err(Lost::Protocol("bytes on a lifeline".to_owned()));
        }
        // Frames that came together with the handshake, or had to wait.
        self.handle_frames(cx)?;
        if self.frames_left == 0 {
            return Ok(Progress::More);
        }
        if self.withheld {
            return Ok(Progress::Idle);
        }
        // A connection that has never carried anything has no buffer.
        if self.input.capacity() == 0 && self.reading.poll_read_ready(cx).is_pending() {
            return Ok(Progress::Idle);
        }
        let mut progress = Progress::Idle;
        for _ in 0..READS_PER_TURN {
            if !self.has_frame_room(cx)? {
                return Ok(progress);
            }
            self.input.reserve(self.read_bytes);
            let room = self.input.capacity() - self.input.len();
            // Nothing is lost if this future is dropped. After a read that does not fill its buffer
            // there is no further read, which would find nothing.
            let read = std::pin::pin!(self.reading.read_buf(&mut self.input)).poll(cx);
            match read {
                Poll::Pending => {
                    if progress == Progress::Idle
                        && self.connection.rest.swap(false, Ordering::Relaxed)
                    {
                        self.rest();
                    }
                    return Ok(progress);
                }
                Poll::Ready(Ok(0)) => {
                    // Half a frame will never be a whole one, and holds room.
                    if self.input.is_empty() {
                        self.half_closed = HalfClosed::begin(&self.connection);
                    }
                    return self.half_closed.as_ref().map(|_| progress).ok_or_else(|| self.ended());
                }
                Poll::Ready(Ok(n)) => {
                    progress = Progress::Read;
                    if self.mute {
                        return Err(Lost::Protocol("bytes on a lifeline".to_owned()));
                    }
                    self.connection.active.store(true, Ordering::Relaxed);
                    self.note_room(self.input.len());
                    self.read_bytes = if n == room {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else if n < self.read_bytes / 4 {
                        (self.read_bytes / 2).max(READ_BYTES_MIN)
                    } else {
                        self.read_bytes
                    };
                    self.connection.has_received(n);
                    self.handler.heard(&self.connection);
                    self.handle_frames(cx)?;
                    if self.frames_left == 0 {
                        return Ok(Progress::More);
                    }
                    if self.withheld {
                        return Ok(progress);
                    }
                }
                Poll::Ready(Err(e)) => return Err(Lost::Broken(e.to_string())),
            }
        }
        Ok(Progress::More)
    }

    /// Returns true if more may be read: a large frame that has begun needs room until it is there,
    /// and has a limit of time.
    fn has_frame_room(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        let Some(bytes) = account::wanted(&self.input) else {
            self.room = None;
            return Ok(true);
        };
        if self.room.is_none() {
            let Some(room) = self.connection.frame_room.take(bytes, cx.waker()) else {
                return Ok(false);
            };
            self.input.reserve(bytes - self.input.len());
            self.room = Some(room);
        }
        if self.room.as_mut().is_some_and(|room| room.is_overdue(cx)) {
            return Err(Lost::Protocol(account::overdue()));
        }
        Ok(true)
    }

    /// Reason for the end of a connection that the peer ended without a goodbye. A peer that has
    /// been silent since the handshake may have given up its dial, which says nothing about its
    /// process.
    fn ended(&self) -> Lost {
        if self.connection.bytes_received.load(Ordering::Relaxed) > 0 {
            Lost::Ended
        } else {
            Lost::Broken("the peer closed it before it said anything".to_owned())
        }
    }

    /// Lets memory go: nothing has come for a while.
    fn rest(&mut self) {
        self.read_bytes = READ_BYTES_MIN;
        let mut shared = self.connection.shared.lock();
        for buffer in [&mut self.input, &mut self.writing, &mut self.replies, &mut shared.out] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }

    /// Notes a buffer of this many bytes, to be freed when nothing comes for a while. (Once its
    /// bytes are taken off, its capacity does not tell.)
    fn note_room(&self, bytes: usize) {
        if bytes > KEPT_BYTES_MAX && !self.connection.roomy.swap(true, Ordering::Relaxed) {
            self.connection.look_at_ticks(&mut self.connection.shared.lock());
        }
    }

    /// Handles every whole frame that is there, as long as the peer reads, and others need not wait
    /// for it. The connection is locked
    /// once for a run of answers, and once for the credit of all calls.
    fn handle_frames(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        let Self { connection, handler, input, replies, wake, deaf, withheld, frames_left, .. } =
            self;
        *withheld = false;
        let max = connection.limits.frame_bytes_max;
        let broken = |e: HeaderError| Lost::Protocol(e.to_string());
        let (mut at, mut processed, mut frames) = (0, 0, 0);
        let (mut answers, mut run) = (None, 0u32);
        let end = loop {
            let frame = match peek_frame(&input[at..], max) {
                Ok(Some(frame)) => frame,
                Ok(None) => break Ok(()),
                Err(e) => break Err(Lost::Protocol(e.to_string())),
            };
            // Any frame may have an answer, if only a refusal.
            if connection.must_read(replies.len()) {
                *withheld = true;
                break Ok(());
            }
            if *frames_left == 0 {
                break Ok(());
            }
            *frames_left = frames_left.saturating_sub(1 + frame.bytes / SMALL_FRAME_BYTES);
            at += frame.bytes;
            frames += 1;
            if frame.kind == FrameKind::Response {
                let (header, body) = match read_response(frame.payload) {
                    Ok(response) => response,
                    Err(e) => break Err(broken(e)),
                };
                let large = if body.len() > LARGE_BODY_BYTES {
                    answers = None;
                    Some(body.to_vec())
                } else {
                    None
                };
                let shared = answers.get_or_insert_with(|| connection.shared.lock());
                wake.extend(shared.pending.answer(&header, body, large));
                connection.answered.store(shared.pending.answered(), Ordering::Relaxed);
                run += 1;
                if run % ANSWERS_IN_ONE_GO_MAX == 0 {
                    answers = None;
                }
                continue;
            }
            // The handler of another frame may need the connection.
            answers = None;
            if frame.kind == FrameKind::Request && *deaf {
                // The peer knows that this one does not run.
                continue;
            }
            match handle_frame(connection, handler, &frame, replies, cx) {
                Ok(over) => {
                    processed += over;
                    // A call that continues in a task of its own, or a question.
                    *frames_left = frames_left.saturating_sub(match frame.kind {
                        FrameKind::System => SYSTEM_FRAMES - 1,
                        FrameKind::Request if over == 0 => CALL_FRAMES - 1,
                        _ => 0,
                    });
                }
                Err(why) => break Err(why),
            }
        };
        if processed > 0 {
            connection
                .note_processed(answers.get_or_insert_with(|| connection.shared.lock()), processed);
        }
        drop(answers);
        connection.messages_received.fetch_add(frames, Ordering::Relaxed);
        input.advance(at);
        wake.drain(..).for_each(Waker::wake);
        end
    }

    /// Puts the answers of this go behind what others queued.
    fn queue_replies(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        self.connection.has_answered.store(true, Ordering::Relaxed);
        let frames = frames_in(&self.replies);
        let mut shared = self.connection.shared.lock();
        shared.messages_sent += frames;
        if shared.out.is_empty() {
            std::mem::swap(&mut shared.out, &mut self.replies);
        } else {
            shared.out.extend_from_slice(&self.replies);
            self.replies.clear();
        }
        self.connection.note_full(&shared);
    }

    /// Writes the queue. Returns true if anything was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        let mut wrote = false;
        loop {
            let ready = if self.writing.is_empty() {
                // Before the driver sleeps, and before the connection ends.
                let sent = self.reading.poll_sent(cx);
                if matches!(sent, Poll::Ready(Ok(()))) && !self.take_queued(cx)? {
                    self.stuck = Stuck::default();
                    return Ok(wrote);
                }
                sent
            } else {
                match self.reading.try_write(&self.writing) {
                    Ok(n) => {
                        wrote = true;
                        self.stuck.moves();
                        if let Some(counted) = &mut self.counted {
                            counted.moves();
                        }
                        self.writing.advance(n);
                        self.connection.bytes_sent.fetch_add(n as u64, Ordering::Relaxed);
                        Poll::Ready(Ok(()))
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                        self.reading.poll_write_ready(cx)
                    }
                    Err(e) => Poll::Ready(Err(e)),
                }
            };
            match ready {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Err(Lost::Broken(e.to_string())),
                Poll::Pending => {
                    self.check_lost(cx)?;
                    return self.stuck.look(cx).map(|()| false);
                }
            }
        }
    }

    /// Swaps the queued bytes in; false, with the driver marked asleep, when there are none.
    fn take_queued(&mut self, cx: &Context<'_>) -> Result<bool, Lost> {
        let mut shared = self.connection.shared.lock();
        if let Some(lost) = &shared.lost {
            return Err(lost.clone());
        }
        if !shared.out.is_empty() {
            self.writing.clear();
            std::mem::swap(&mut shared.out, &mut self.writing);
            shared.last_cancel = (0, 0);
            shared.messages_gone = shared.messages_sent;
            self.connection.count_queued(&shared);
            self.counted = None;
            self.counted = Written::begin(&self.connection, self.writing.len());
            self.connection.note_room();
            if self.writing.len() > KEPT_BYTES_MAX
                && !self.connection.roomy.swap(true, Ordering::Relaxed)
            {
                self.connection.look_at_ticks(&mut shared);
            }
            // While the driver holds bytes, others must not write around it.
            shared.driver_idle = false;
            drop(shared);
            if let Some(counted) = &self.counted {
                counted.make_room();
            }
            return Ok(true);
        }
        self.counted = None;
        if shared.closing {
            return Err(Lost::Closed);
        }
        shared.driver_idle = true;
        self.busy = shared.pending.live() >= BUSY_CALLS_MIN;
        shared.leave_driver(cx);
        Ok(false)
    }

    /// Leaves the driver's waker, for `lose`, while it waits for the socket.
    fn check_lost(&self, cx: &Context<'_>) -> Result<(), Lost> {
        let mut shared = self.connection.shared.lock();
        shared.leave_driver(cx);
        match &shared.lost {
            Some(lost) => Err(lost.clone()),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The socket was empty.
    Idle,
    /// Something was read, and the socket is empty now.
    Read,
    /// There is more to read; others go first.
    More,
}
