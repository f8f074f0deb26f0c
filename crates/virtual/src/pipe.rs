//! One direction of a connection: bytes under way, in order.

use std::collections::VecDeque;
use std::io;
use std::task::Waker;

use bytes::{Buf, Bytes};
use tokio::io::ReadBuf;
use tokio::time::Instant;

/// The most bytes under way in one direction, as a socket's buffers hold them.
const PIPE_BYTES_MAX: usize = 256 << 10;

/// Bytes on their way from one end to the other.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<Piece>,
    bytes: usize,
    /// Time at which the last bytes arrive: nothing overtakes.
    last: Option<Instant>,
    /// Time at which the orderly end arrives.
    end: Option<Instant>,
    /// The connection broke.
    broken: bool,
    /// True once the reader is gone.
    deaf: bool,
    /// Time at which bytes arrived after the reader had gone: a reset comes back.
    refused: Option<Instant>,
    /// Nothing arrives: the link is cut.
    held: bool,
    /// Nothing arrives ever again, and neither end notices: something on the way has forgotten the
    /// connection.
    forgotten: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Piece {
    due: Instant,
    bytes: Bytes,
}

/// Result of a look by the reader.
pub(crate) enum Found {
    /// Something to read, or the end, or an error.
    Now,
    /// Something at that moment.
    At(Instant),
    /// Nothing yet.
    Nothing,
}

impl Pipe {
    /// Number of bytes that can be written now.
    pub(crate) fn room(&self) -> io::Result<usize> {
        if self.broken || self.refused.is_some_and(|at| at < Instant::now()) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.end.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(PIPE_BYTES_MAX.saturating_sub(self.bytes))
    }

    /// Sends bytes that arrive at `due`, or behind earlier bytes that arrive later.
    pub(crate) fn send(&mut self, bytes: &[u8], due: Instant) {
        if self.deaf || self.forgotten {
            // The sender does not know it yet: it learns it by the peer's end or reset.
            if !self.forgotten {
                self.refused.get_or_insert(due);
            }
            return;
        }
        let due = self.after_all(due);
        self.bytes += bytes.len();
        self.under_way.push_back(Piece { due, bytes: Bytes::copy_from_slice(bytes) });
        self.wake_reader();
    }

    fn after_all(&mut self, due: Instant) -> Instant {
        let due = self.last.map_or(due, |last| last.max(due));
        self.last = Some(due);
        due
    }

    /// Looks for the reader. It is woken when the result changes, but not when the moment comes.
    pub(crate) fn look(&mut self, now: Instant, reader: &Waker) -> Found {
        let next = self.under_way.front().map(|piece| piece.due).or(self.end);
        let next = next.filter(|_| !self.forgotten);
        if self.broken || (!self.held && next.is_some_and(|due| due <= now)) {
            return Found::Now;
        }
        self.reader = Some(reader.clone());
        next.filter(|_| !self.held).map_or(Found::Nothing, Found::At)
    }

    /// Reads what has arrived; nothing after the last byte, which marks the end.
    pub(crate) fn read(&mut self, now: Instant, into: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        while let Some(piece) = self.under_way.front_mut()
            && piece.due <= now
            && into.remaining() > 0
        {
            let n = piece.bytes.len().min(into.remaining());
            into.put_slice(&piece.bytes[..n]);
            piece.bytes.advance(n);
            self.bytes -= n;
            if piece.bytes.is_empty() {
                self.under_way.pop_front();
            }
        }
        self.wake_writer();
        Ok(())
    }

    /// The waker of the task that waits for room.
    pub(crate) fn wait_for_room(&mut self, writer: &Waker) {
        self.writer = Some(writer.clone());
    }

    /// The writer has ended in good order.
    pub(crate) fn end(&mut self, due: Instant) {
        if self.end.is_none() {
            self.end = Some(self.after_all(due));
            self.wake_reader();
        }
    }

    /// Notes that the reader is gone. Returns true if something was left unread.
    pub(crate) fn deafen(&mut self) -> bool {
        self.deaf = true;
        self.wake_writer();
        !self.under_way.is_empty()
    }

    /// The connection breaks now; bytes under way are lost.
    pub(crate) fn break_now(&mut self) {
        // The reset is lost as well.
        self.broken = !self.forgotten;
        self.under_way.clear();
        self.bytes = 0;
        self.wake_reader();
        self.wake_writer();
    }

    /// Nothing arrives from now on; sent bytes are lost.
    pub(crate) fn forget(&mut self) {
        self.forgotten = true;
        self.under_way.clear();
        self.bytes = 0;
        self.wake_writer();
    }

    /// Lets nothing arrive from now on.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    /// Releases held bytes, to arrive at `at` or later.
    pub(crate) fn release(&mut self, at: Instant) {
        if std::mem::take(&mut self.held) {
            for piece in &mut self.under_way {
                piece.due = piece.due.max(at);
            }
            self.last = self.last.map(|last| last.max(at));
            self.end = self.end.map(|end| end.max(at));
            self.wake_reader();
        }
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
}
