//! The one task of a connection: reads frames, runs turns that do not suspend, writes the queue.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_link::account::{Cut, Written};
use emmer_link::{Event, Intake, Lost, Next};
use emmer_wire::{GoodbyeCode, RequestHeader, encode_goodbye};
use tokio::io::AsyncReadExt;

use super::connection::Connection;
use super::driving::Driving;
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
    let intake = {
        let mut shared = connection.shared.lock();
        // Calls may have been sent before.
        if shared.link.poll_timeout().is_some() {
            connection.look_at_ticks(&mut shared);
        }
        Intake::new(&shared.link)
    };
    // When the runtime ends, this task is dropped, and callers that wait for an answer hear of it.
    let _ends = Ends(connection.clone());
    let mut driver = Driver {
        connection: connection.clone(),
        reading,
        handler: handler.clone(),
        received: input.len(),
        input,
        intake,
        read_bytes: READ_BYTES_MIN,
        replies: BytesMut::new(),
        writing: BytesMut::new(),
        written: 0,
        counted: None,
        half_closed: false,
        wake: Vec::new(),
        busy: false,
        behind: Behind::default(),
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
    /// Bytes of it that the link has not heard of.
    received: usize,
    intake: Intake,
    /// Room that the next read gets.
    read_bytes: usize,
    /// Answers of the turns that ran in this go.
    replies: BytesMut,
    /// Bytes that the socket takes next.
    writing: BytesMut,
    /// Bytes that the socket has taken, and the link has not heard of.
    written: u64,
    /// Their count, if they are many.
    counted: Option<Written>,
    /// The peer sends nothing more, and waits for answers.
    half_closed: bool,
    wake: Vec<Waker>,
    /// True if enough calls of this side were in flight at the last look that they are worth
    /// collecting.
    busy: bool,
    /// Way to let callers go first.
    behind: Behind,
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
        self.intake.begin_go();
        let go = Driving::begin(&*self.connection);
        let reading = self.poll_read(cx);
        drop(go);
        if self.busy
            && matches!(reading, Ok(Progress::Read | Progress::Idle))
            && self.callers_come()
        {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let writing = self.poll_write(cx);
        if self.intake.is_withheld() && !self.connection.account.must_read(0) {
            cx.waker().wake_by_ref();
        }
        if self.half_closed
            && self.writing.is_empty()
            && self.connection.shared.lock().link.is_half_closed_and_done()
        {
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
        let waiting = self.connection.shared.lock().link.answered();
        let Behind { callers, in_vain, looks } = self.behind;
        let in_vain = if waiting == callers { in_vain + 1 } else { 0 };
        let come = waiting > 0 && in_vain < LOOKS_IN_VAIN_MAX && looks < LOOKS_MAX;
        let looks = if come { looks + 1 } else { 0 };
        self.behind = Behind { callers: waiting, in_vain, looks };
        come
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<Progress, Lost> {
        if self.half_closed {
            return Ok(Progress::Idle);
        }
        // Frames that came together with the handshake, or had to wait.
        if !self.input.is_empty() {
            self.handle_frames(cx)?;
        }
        if self.intake.is_tired() {
            return Ok(Progress::More);
        }
        if self.intake.is_withheld() {
            return Ok(Progress::Idle);
        }
        // A connection that has never carried anything has no buffer.
        if self.input.capacity() == 0 && self.reading.poll_read_ready(cx).is_pending() {
            return Ok(Progress::Idle);
        }
        let mut progress = Progress::Idle;
        for _ in 0..READS_PER_TURN {
            if !self.has_frame_room(cx) {
                return Ok(progress);
            }
            self.input.reserve(self.read_bytes);
            let room = self.input.capacity() - self.input.len();
            // Nothing is lost if this future is dropped. After a read that does not fill its buffer
            // there is no further read, which would find nothing.
            let read = std::pin::pin!(self.reading.read_buf(&mut self.input)).poll(cx);
            match read {
                Poll::Pending => return Ok(progress),
                Poll::Ready(Ok(0)) => {
                    let mut shared = self.connection.shared.lock();
                    shared.link.handle_end(self.input.len())?;
                    self.connection.look_at_ticks(&mut shared);
                    self.half_closed = true;
                    return Ok(progress);
                }
                Poll::Ready(Ok(n)) => {
                    progress = Progress::Read;
                    self.received += n;
                    self.read_bytes = if n == room {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else if n < self.read_bytes / 4 {
                        (self.read_bytes / 2).max(READ_BYTES_MIN)
                    } else {
                        self.read_bytes
                    };
                    self.handler.heard(&self.connection);
                    self.handle_frames(cx)?;
                    if self.intake.is_tired() {
                        return Ok(Progress::More);
                    }
                    if self.intake.is_withheld() {
                        return Ok(progress);
                    }
                }
                Poll::Ready(Err(e)) => return Err(Lost::Broken(e.to_string())),
            }
        }
        Ok(Progress::More)
    }

    /// Returns true if more may be read: a large frame that has begun needs room until it is there.
    fn has_frame_room(&mut self, cx: &Context<'_>) -> bool {
        if let Some(bytes) = self.intake.needs_room(&self.input) {
            let mut shared = self.connection.shared.lock();
            if !shared.link.take_frame_room(&mut self.intake, bytes, cx.waker()) {
                return false;
            }
            self.connection.look_at_ticks(&mut shared);
            drop(shared);
            self.input.reserve(bytes - self.input.len());
        } else if self.intake.is_done_with_room(&self.input) {
            self.connection.shared.lock().link.end_frame(&mut self.intake);
        }
        true
    }

    /// Handles every whole frame that is there, as long as the peer reads, and others need not wait
    /// for it. The connection is locked once for a run of answers.
    fn handle_frames(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        {
            let mut shared = self.connection.shared.lock();
            let received = std::mem::take(&mut self.received);
            shared.link.begin_intake(&mut self.intake, received)?;
            if self.input.len() > KEPT_BYTES_MAX {
                shared.link.note_roomy();
            }
        }
        let end = self.handle_next_frames(cx);
        let mut shared = self.connection.shared.lock();
        shared.link.end_intake(&mut self.intake, &mut self.replies);
        shared.link.take_wakers(&mut self.wake);
        if shared.link.poll_timeout().is_some() {
            self.connection.look_at_ticks(&mut shared);
        }
        drop(shared);
        self.input.advance(self.intake.take_handled());
        self.wake.drain(..).for_each(Waker::wake);
        end
    }

    fn handle_next_frames(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        let Self { connection, handler, input, intake, replies, .. } = self;
        let (mut answers, mut run) = (None, 0u32);
        loop {
            match intake.next(input, replies.len())? {
                Next::Answer { header, body } => {
                    let large = (body.len() > LARGE_BODY_BYTES).then(|| {
                        answers = None;
                        body.to_vec()
                    });
                    let shared = answers.get_or_insert_with(|| connection.shared.lock());
                    shared.link.handle_answer(&header, body, large);
                    run += 1;
                    if run % ANSWERS_IN_ONE_GO_MAX == 0 {
                        answers = None;
                    }
                }
                Next::Request { header, body, cost } => {
                    // Its handler may need the connection.
                    answers = None;
                    let runs =
                        header.correlation != 0 || connection.shared.lock().link.reads_one_ways();
                    let over = if runs {
                        handler.request(connection, header, body, cost, replies, cx)
                    } else {
                        cost
                    };
                    intake.over(over);
                }
                Next::Other(frame) => {
                    let shared = answers.get_or_insert_with(|| connection.shared.lock());
                    shared.link.handle_frame(&frame)?;
                    while let Some(event) =
                        answers.get_or_insert_with(|| connection.shared.lock()).link.poll_event()
                    {
                        answers = None;
                        tell(connection, handler, event);
                    }
                }
                Next::Nothing => return Ok(()),
            }
        }
    }

    /// Writes the queue. Returns true if anything was written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, Lost> {
        let (mut wrote, mut moved) = (false, false);
        loop {
            let ready = if self.writing.is_empty() {
                // Before the driver sleeps, and before the connection ends.
                let sent = self.reading.poll_sent(cx);
                if matches!(sent, Poll::Ready(Ok(()))) && !self.take_queued(cx)? {
                    return Ok(wrote);
                }
                sent
            } else {
                match self.reading.try_write(&self.writing) {
                    Ok(n) => {
                        (wrote, moved) = (true, true);
                        if let Some(counted) = &mut self.counted {
                            counted.moves();
                        }
                        self.writing.advance(n);
                        self.written += n as u64;
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
                Poll::Pending => return self.wait_for_socket(moved, cx).map(|()| false),
            }
        }
    }

    /// Swaps the queued bytes in; false, with the driver marked asleep, when there are none.
    fn take_queued(&mut self, cx: &Context<'_>) -> Result<bool, Lost> {
        let mut shared = self.connection.shared.lock();
        shared.link.note_written(std::mem::take(&mut self.written));
        if let Some(why) = shared.link.verdict() {
            return Err(why);
        }
        shared.link.note_all_written();
        if shared.link.take_transmit(&mut self.writing) {
            if self.writing.len() > KEPT_BYTES_MAX {
                shared.link.note_roomy();
                self.connection.look_at_ticks(&mut shared);
            }
            // While the driver holds bytes, others must not write around it.
            shared.driver_idle = false;
            let has_room = shared.link.has_queue_room();
            drop(shared);
            // First the old count, so that its bytes make room.
            self.counted = None;
            let connection = &self.connection;
            let me = || -> Weak<dyn Cut> { Arc::downgrade(connection) as Weak<dyn Cut> };
            self.counted = Written::begin(&connection.account, self.writing.len(), me);
            if has_room {
                connection.note_room();
            }
            if let Some(counted) = &self.counted {
                counted.make_room();
            }
            return Ok(true);
        }
        if shared.link.is_closing() {
            return Err(Lost::Closed);
        }
        shared.driver_idle = true;
        self.busy = shared.link.waiting() >= BUSY_CALLS_MIN;
        shared.leave_driver(cx);
        let rests = shared.link.takes_rest();
        drop(shared);
        if self.counted.take().is_some() {
            self.connection.note_room();
        }
        if rests {
            self.rest();
        }
        Ok(false)
    }

    /// Lets memory go: nothing has come for a while.
    fn rest(&mut self) {
        self.read_bytes = READ_BYTES_MIN;
        for buffer in [&mut self.input, &mut self.writing, &mut self.replies] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }

    /// Leaves the driver's waker, for the end of the connection, while it waits for the socket.
    fn wait_for_socket(&mut self, moved: bool, cx: &Context<'_>) -> Result<(), Lost> {
        let mut shared = self.connection.shared.lock();
        shared.link.note_written(std::mem::take(&mut self.written));
        shared.leave_driver(cx);
        shared.link.note_stuck(moved);
        self.connection.look_at_ticks(&mut shared);
        shared.link.verdict().map_or(Ok(()), Err)
    }
}

/// Hands on what has arrived.
fn tell<H: Handler>(connection: &Arc<Connection>, handler: &Arc<H>, event: Event) {
    match event {
        Event::System { channel, payload } => handler.system(connection, channel, payload),
        Event::GivenUp(call) => connection.given_up(call),
        Event::Drained => handler.drained(connection),
        Event::Instead => handler.prefer(connection),
        Event::Unknown(error) => {
            tracing::debug!(peer = ?connection.peer, %error, "an unknown word about calls");
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
