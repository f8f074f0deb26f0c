//! The one task of a connection: reads frames, runs the turns that do not suspend, writes what was queued.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use emmer_wire::{
    FRAME_PREFIX_BYTES, Frame, FrameKind, Goodbye, GoodbyeCode, RequestHeader, decode_credit, decode_frame,
    decode_request, decode_response, decode_system_channel, encode_goodbye,
};

use super::connection::{Connection, Lost};

/// How much is read at once: grows while reads fill their room, shrinks when they do not.
const READ_BYTES_MIN: usize = 4 << 10;
/// The most that is read at once.
const READ_BYTES_MAX: usize = 64 << 10;

/// A buffer that grew beyond this is let go when the connection falls idle: a silo has thousands of connections,
/// and few of them are busy.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The most reads in one go before other tasks get their turn.
const READS_PER_TURN: usize = 16;

/// What a silo or a client does with what arrives.
pub(crate) trait Handler: Send + Sync + 'static {
    /// A call. The answer goes to `replies` at once (whole frames) when the turn does not suspend; else later
    /// through [`Connection::reply`]. `cost` is the size of the whole frame; returns the bytes whose processing
    /// is over (`cost` or 0).
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: RequestHeader,
        body: Bytes,
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64;

    /// A message between runtimes.
    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes);

    /// Bytes arrived.
    fn heard(self: &Arc<Self>, connection: &Arc<Connection>);

    /// The connection has ended.
    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost);
}

/// Drives `connection` until it ends. `input` is what came behind the handshake.
pub(crate) async fn drive<H: Handler>(connection: Arc<Connection>, handler: Arc<H>, input: BytesMut) {
    let mut driver = Driver {
        connection: connection.clone(),
        handler: handler.clone(),
        input,
        read_bytes: READ_BYTES_MIN,
        replies: BytesMut::new(),
        writing: BytesMut::new(),
        wake: Vec::new(),
    };
    let why = std::future::poll_fn(|cx| driver.poll(cx)).await;
    if let Lost::Protocol(text) = &why {
        // Best effort: the peer may not be reading at all.
        let mut last = BytesMut::new();
        encode_goodbye(&mut last, GoodbyeCode::ProtocolError, text);
        let _ = connection.stream.try_write(&last);
    }
    connection.lose(why.clone());
    handler.lost(&connection, &why);
}

struct Driver<H> {
    connection: Arc<Connection>,
    handler: Arc<H>,
    input: BytesMut,
    /// How much room the next read gets.
    read_bytes: usize,
    /// Answers of the turns that ran in this go.
    replies: BytesMut,
    /// What the socket takes next.
    writing: BytesMut,
    wake: Vec<Waker>,
}

impl<H: Handler> Driver<H> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        let reading = self.poll_read(cx);
        self.queue_replies();
        let writing = self.poll_write(cx);
        match (reading, writing) {
            (Err(why), _) | (_, Err(why)) => Poll::Ready(why),
            (Ok(Progress::More), _) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            _ => Poll::Pending,
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<Progress, Lost> {
        // Frames that came together with the handshake.
        self.handle_frames(cx)?;
        for _ in 0..READS_PER_TURN {
            match self.connection.stream.poll_read_ready(cx) {
                Poll::Pending => {
                    self.rest();
                    return Ok(Progress::Idle);
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Err(Lost::Broken(e.to_string())),
            }
            self.input.reserve(self.read_bytes);
            let room = self.input.capacity() - self.input.len();
            match self.connection.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Err(Lost::Broken("the peer closed the stream".to_owned())),
                Ok(n) => {
                    self.read_bytes = if n == room {
                        (self.read_bytes * 2).min(READ_BYTES_MAX)
                    } else {
                        (self.read_bytes / 2).max(READ_BYTES_MIN).max(n.min(READ_BYTES_MAX))
                    };
                    self.connection.bytes_received.fetch_add(n as u64, Ordering::Relaxed);
                    self.handler.heard(&self.connection);
                    self.handle_frames(cx)?;
                }
                // The readiness was stale; asking again waits for a new one.
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(Lost::Broken(e.to_string())),
            }
        }
        Ok(Progress::More)
    }

    /// Lets memory go while nothing comes in.
    fn rest(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
            self.read_bytes = READ_BYTES_MIN;
        }
        if self.writing.is_empty() && self.writing.capacity() > KEPT_BYTES_MAX {
            self.writing = BytesMut::new();
        }
        if self.replies.is_empty() && self.replies.capacity() > KEPT_BYTES_MAX {
            self.replies = BytesMut::new();
        }
    }

    fn handle_frames(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        let max = self.connection.limits.frame_bytes_max;
        loop {
            match decode_frame(&mut self.input, max) {
                Ok(Some(frame)) => self.handle_frame(frame, cx)?,
                Ok(None) => break,
                Err(e) => return Err(Lost::Protocol(e.to_string())),
            }
        }
        self.wake.drain(..).for_each(Waker::wake);
        Ok(())
    }

    fn handle_frame(&mut self, frame: Frame, cx: &mut Context<'_>) -> Result<(), Lost> {
        let broken = |e: emmer_wire::HeaderError| Lost::Protocol(e.to_string());
        match frame.kind {
            FrameKind::Request => {
                // Prefix and kind count too: the sender counts what it appended.
                let cost = (frame.payload.len() + FRAME_PREFIX_BYTES + 1) as u64;
                let (header, body) = decode_request(frame.payload).map_err(broken)?;
                let over = self.handler.request(&self.connection, header, body, cost, &mut self.replies, cx);
                if over > 0 {
                    let mut shared = self.connection.shared.lock();
                    self.connection.note_processed(&mut shared, over);
                }
            }
            FrameKind::Response => {
                let (header, body) = decode_response(frame.payload).map_err(broken)?;
                self.wake.extend(self.connection.shared.lock().pending.answer(header, body));
            }
            FrameKind::System => {
                let (channel, payload) = decode_system_channel(&frame.payload).map_err(broken)?;
                self.handler.system(&self.connection, channel, payload);
            }
            FrameKind::Credit => {
                let total = decode_credit(&frame.payload).map_err(broken)?;
                let mut shared = self.connection.shared.lock();
                shared.acknowledged = shared.acknowledged.max(total);
            }
            FrameKind::Goodbye => {
                let goodbye = Goodbye::decode(&frame.payload).map_err(broken)?;
                return Err(Lost::Goodbye(goodbye.code));
            }
            FrameKind::Hello | FrameKind::Welcome | FrameKind::Refuse => {
                return Err(Lost::Protocol(format!("{:?} after the handshake", frame.kind)));
            }
        }
        Ok(())
    }

    /// Puts the answers of this go behind what others queued.
    fn queue_replies(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let mut shared = self.connection.shared.lock();
        if shared.out.is_empty() {
            std::mem::swap(&mut shared.out, &mut self.replies);
        } else {
            shared.out.extend_from_slice(&self.replies);
            self.replies.clear();
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), Lost> {
        loop {
            if self.writing.is_empty() && !self.take_queued(cx)? {
                return Ok(());
            }
            match self.connection.stream.try_write(&self.writing) {
                Ok(n) => {
                    self.writing.advance(n);
                    self.connection.bytes_sent.fetch_add(n as u64, Ordering::Relaxed);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    match self.connection.stream.poll_write_ready(cx) {
                        Poll::Pending => return self.check_lost(),
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(e)) => return Err(Lost::Broken(e.to_string())),
                    }
                }
                Err(e) => return Err(Lost::Broken(e.to_string())),
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
            // While the driver holds bytes, others must not write around it.
            shared.driver_idle = false;
            return Ok(true);
        }
        if shared.closing {
            return Err(Lost::Closed);
        }
        shared.driver_idle = true;
        if !shared.driver.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            shared.driver = Some(cx.waker().clone());
        }
        Ok(false)
    }

    /// Leaves the driver's waker, for `lose`, while it waits for the socket.
    fn check_lost(&self) -> Result<(), Lost> {
        match &self.connection.shared.lock().lost {
            Some(lost) => Err(lost.clone()),
            None => Ok(()),
        }
    }
}

enum Progress {
    /// The socket is empty.
    Idle,
    /// There is more to read; others go first.
    More,
}
