//! The end that values are written to.

use bytes::Bytes;
use emmer_core::Instant;

use crate::api::{Config, Credit, StreamId, Unwritable};
use crate::message::{Block, ToReader, ToWriter};

/// The writing end of a stream.
///
/// The shell asks [`has_room`](Self::has_room) before each [`put`](Self::put), and sends what
/// [`poll_transmit`](Self::poll_transmit) returns after each input. [`is_over`](Self::is_over) says
/// when it may be dropped.
#[derive(Debug)]
pub struct Writer {
    stream: StreamId,
    config: Config,
    credit: Credit,
    /// The encoded values that were not sent yet, and their number.
    batch: Vec<u8>,
    batched: u32,
    /// Totals of what was sent.
    sent: Credit,
    /// Time from which a batch is sent before it is full.
    next_batch: Instant,
    /// Time at which a writer that has sent nothing says that it is there.
    hello: Option<Instant>,
    /// True once the reader's process is known.
    is_attached: bool,
    /// True if the application still waits for the call that the reader was an argument of.
    is_call_open: bool,
    /// Time at which the reader was heard last, or at which waiting for it began.
    heard: Instant,
    /// True if the reader waits to know how far the writer is.
    is_asked: bool,
    /// True if a writer without room was told to wait.
    is_awaited: bool,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// All values were put in; the last ones, or the end, are not sent yet.
    Finishing,
    /// The writer was dropped before it had finished; this is not sent yet.
    Leaving,
    Left,
    Finished,
    Ended(Unwritable),
}

impl Writer {
    /// The writer that came as an argument of a call, from a reader that gave it this credit.
    pub fn arrived(now: Instant, stream: StreamId, credit: Credit, config: Config) -> Self {
        let hello = Some(now + config.hello_after);
        Self { credit, hello, is_attached: true, ..Self::new(now, stream, config) }
    }

    /// The writer of a stream whose reader is an argument of a call. It has credit when the reader
    /// has arrived, and is heard.
    pub fn new(now: Instant, stream: StreamId, config: Config) -> Self {
        Self {
            stream,
            config,
            credit: Credit::default(),
            batch: Vec::new(),
            batched: 0,
            sent: Credit::default(),
            next_batch: now,
            hello: None,
            is_attached: false,
            is_call_open: true,
            heard: now,
            is_asked: false,
            is_awaited: false,
            phase: Phase::Open,
        }
    }

    /// The reason why no value can be written; None while one can, now or after a wait.
    pub const fn unwritable(&self) -> Option<Unwritable> {
        match self.phase {
            Phase::Ended(why) => Some(why),
            Phase::Leaving | Phase::Left => Some(Unwritable::Left),
            Phase::Open | Phase::Finishing | Phase::Finished => None,
        }
    }

    /// Returns true if one more value fits. After false the shell waits until
    /// [`take_writable`](Self::take_writable) returns true.
    pub fn has_room(&mut self) -> bool {
        let has_room = self.phase == Phase::Open && self.fits();
        self.is_awaited |= !has_room;
        has_room
    }

    fn fits(&self) -> bool {
        self.batch.len() < self.config.batch_bytes
            && self.sent.items + u64::from(self.batched) < self.credit.items
            && self.sent.bytes + (self.batch.len() as u64) < self.credit.bytes
    }

    /// Returns true, once, when a writer that had no room may look again.
    pub fn take_writable(&mut self) -> bool {
        let is_writable = self.is_awaited && (self.phase != Phase::Open || self.fits());
        self.is_awaited &= !is_writable;
        is_writable
    }

    /// Puts a value in. Only after [`has_room`](Self::has_room) was true.
    ///
    /// # Errors
    /// Those of `encode`. What it has written is taken back, also when it panics.
    pub fn put<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        debug_assert!(self.phase == Phase::Open && self.fits(), "a value without room");
        let start = self.batch.len();
        let mut value = Unfinished { batch: &mut self.batch, start, is_whole: false };
        encode(value.batch)?;
        value.is_whole = true;
        drop(value);
        debug_assert!(self.batch.len() > start, "a value without a byte");
        self.batched += 1;
        Ok(())
    }

    /// No value follows. The reader learns it after the last one.
    pub fn finish(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Finishing;
        }
    }

    /// The writer is dropped before it has finished. The reader learns it after the last value.
    pub fn leave(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Leaving;
        }
    }

    /// A message from the reader.
    pub fn handle_message(&mut self, now: Instant, message: ToWriter) {
        self.heard = now;
        self.is_attached = true;
        match message {
            ToWriter::Credit { credit, .. } => self.credit = self.credit.or(credit),
            ToWriter::Check { credit, .. } => {
                self.credit = self.credit.or(credit);
                self.is_asked = true;
            }
            ToWriter::Stop { .. } => self.end(Unwritable::Stopped),
        }
    }

    /// The call that the reader was an argument of has ended, well or not.
    pub fn handle_call_ended(&mut self, now: Instant) {
        self.is_call_open = false;
        if !self.is_attached {
            self.heard = now;
        }
    }

    /// The process of the reader, or its gateway, has ended.
    pub fn handle_process_lost(&mut self) {
        self.end(Unwritable::Process);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if now >= self.silent_at() {
            self.end(Unwritable::Silence);
        }
    }

    /// Time at which silence ends the stream. A reader is awaited for as long as its call.
    fn silent_at(&self) -> Instant {
        let waits = !self.is_attached && self.is_call_open;
        if waits { Instant::from_nanos(u64::MAX) } else { self.heard + self.config.silence }
    }

    fn end(&mut self, why: Unwritable) {
        if matches!(self.phase, Phase::Open | Phase::Finishing | Phase::Leaving) {
            self.phase = Phase::Ended(why);
            self.batch = Vec::new();
            self.batched = 0;
        }
    }

    /// Returns true when nothing is left to do.
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Left | Phase::Ended(_))
    }

    /// The next message to the reader; None while its process is not known.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<ToReader> {
        let stream = self.stream;
        if !self.is_attached {
            return None;
        }
        if self.is_over() {
            return None;
        }
        if !self.is_due(now) {
            let is_asked = std::mem::take(&mut self.is_asked);
            return is_asked.then_some(ToReader::Sent { stream, items: self.sent.items });
        }
        let first = self.sent.items;
        let count = std::mem::take(&mut self.batched);
        let bytes = Bytes::from(std::mem::take(&mut self.batch));
        self.sent.items += u64::from(count);
        self.sent.bytes += bytes.len() as u64;
        self.next_batch = now + self.config.batch_time;
        self.hello = None;
        let (is_last, is_broken) = (self.phase != Phase::Open, self.phase == Phase::Leaving);
        if is_last {
            self.phase = if is_broken { Phase::Left } else { Phase::Finished };
        }
        let block = Block { count, bytes };
        Some(ToReader::Values { stream, first, block, is_last, is_broken })
    }

    /// Returns true if [`poll_transmit`](Self::poll_transmit) would return values, or the end.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_open = match self.phase {
            Phase::Finished | Phase::Left | Phase::Ended(_) => return false,
            Phase::Finishing | Phase::Leaving => false,
            Phase::Open => true,
        };
        self.is_attached
            && (!is_open
                || self.batch.len() >= self.config.batch_bytes
                || (self.batched > 0 && now >= self.next_batch)
                || self.hello.is_some_and(|hello| now >= hello))
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) are wanted, whatever arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_over() {
            return None;
        }
        let silence = self.silent_at();
        if !self.is_attached {
            return Some(silence);
        }
        let batch = (self.batched > 0).then_some(self.next_batch);
        [batch, self.hello].into_iter().flatten().chain([silence]).min()
    }
}

/// Takes a value back that was not encoded to its end.
struct Unfinished<'a> {
    batch: &'a mut Vec<u8>,
    start: usize,
    is_whole: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.batch.truncate(self.start);
        }
    }
}
