//! The account of the memory that peers make a silo hold.
//!
//! - Calls of clients that are not over: their frames, and what the runtime keeps for each.
//! - Whatever waits for a client to read it: answers, refusals, words between runtimes.
//! - Frames that have begun and not ended, of clients and of silos (`frames`).
//!
//! A client need not read its answers, and may call a grain that is busy for long. Each of its
//! connections is bounded, but there are many. So that no client suffers for others, each
//! connection may always hold 64 KB, and one answer more. When those answers together take
//! too much, the connections that have read nothing for longest end (`unread`).
//!
//! Silos are not counted: the cluster declares one dead that does not read.

mod frames;
mod unread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use emmer_wire::PeerKind;

pub use self::frames::FrameRooms;
pub(crate) use self::frames::{FrameRoom, Room, overdue, wanted};
use self::unread::Unread;
pub use self::unread::{Cut, Written};

/// Number of bytes of arguments, and as many of answers, that each connection may hold whatever the
/// others do.
const FREE_BYTES: usize = 64 << 10;

/// After this many bytes of answers to a client in one go of a reader, calls that are read begin
/// when their connection has room.
const REPLIES_BYTES_MAX: usize = 1 << 20;

/// Memory of a waiting call without its frame: its task, its header, and its places in the lists of
/// calls.
const CALL_BYTES: usize = 3 << 10;

/// The bytes that a call is counted with while it waits; its frame has `cost` bytes.
pub fn weight(cost: u64) -> usize {
    usize::try_from(cost).unwrap_or(usize::MAX).saturating_add(CALL_BYTES)
}

/// The frames that the clients of a silo have handled before the first of them comes again.
const ROUND_FRAMES: usize = 16 << 10;
/// The frames of one client among many in such a round.
const GO_FRAMES_MIN: usize = 16;
/// The frames of one client among few.
const GO_FRAMES_MAX: usize = 1 << 10;

/// The bytes of all clients of one silo.
#[derive(Debug)]
pub struct HeldBytes {
    max: usize,
    /// Connections of clients.
    clients: AtomicUsize,
    /// Arguments of calls that are not over.
    arguments: AtomicUsize,
    /// Answers that wait to be written, or will when their calls are over.
    queued: AtomicUsize,
    /// Answers of calls that are over, for which there is no room among those.
    finished: AtomicUsize,
    /// Large answers that are being written.
    unread: Unread,
}

impl HeldBytes {
    /// At most `max` bytes ([`Limits::client_bytes_max`](emmer_core::limits::Limits)).
    pub fn new(max: usize) -> Arc<Self> {
        let count = AtomicUsize::default;
        Arc::new(Self {
            max,
            clients: count(),
            arguments: count(),
            queued: count(),
            finished: count(),
            unread: Unread::default(),
        })
    }

    /// Sum of these bytes.
    pub fn total(&self) -> usize {
        [&self.arguments, &self.queued, &self.finished]
            .map(|count| count.load(Ordering::Relaxed))
            .into_iter()
            .sum()
    }

    const fn arguments_max(&self) -> usize {
        self.max / 2
    }

    const fn queued_max(&self) -> usize {
        self.max / 4
    }

    const fn finished_max(&self) -> usize {
        self.max / 4
    }

    /// The most bytes that wait to be read, the answers of single connections beyond included.
    const fn unread_max(&self) -> usize {
        self.max
    }

    fn is_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= self.queued_max()
    }
}

/// Adds `bytes` to a count that must not exceed `max` by it, or changes nothing.
fn add_within(count: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let before = count.fetch_add(bytes, Ordering::Relaxed);
    let fits = before.saturating_add(bytes) <= max;
    if !fits {
        count.fetch_sub(bytes, Ordering::Relaxed);
    }
    fits
}

/// Bytes of a finished answer, counted until this is dropped; none of a silo's.
pub struct Counted {
    of: Option<Arc<HeldBytes>>,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(held) = &self.of {
            held.finished.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The account of one connection. Its counts are read without the connection's lock.
#[derive(Debug)]
pub struct Account {
    /// The bytes that all clients hold together; none for the connection of a silo.
    held: Option<Arc<HeldBytes>>,
    outgoing_bytes_max: usize,
    /// After this many bytes of answers in one go of the reader, calls begin in tasks of their own.
    replies_bytes_max: usize,
    /// True if as many bytes wait for the peer that answers have to wait.
    full: AtomicBool,
    arguments: AtomicUsize,
    /// Bytes that wait to be written, as they are counted; changed under the connection's lock.
    queued: AtomicUsize,
    /// Bytes that are being written, if they are many.
    writing: AtomicUsize,
    /// Answers that calls under way are expected to have.
    expected: AtomicUsize,
    /// The size of large answers lately.
    answer: AtomicUsize,
}

impl Account {
    /// The account of a connection to `peer`, of whose frames `outgoing_bytes_max` bytes may wait.
    pub fn new(peer: PeerKind, held: &Arc<HeldBytes>, outgoing_bytes_max: usize) -> Arc<Self> {
        let held = matches!(peer, PeerKind::Client(_)).then(|| {
            held.clients.fetch_add(1, Ordering::Relaxed);
            held.clone()
        });
        let replies_bytes_max =
            held.as_ref().map_or(outgoing_bytes_max, |_| REPLIES_BYTES_MAX.min(outgoing_bytes_max));
        Arc::new(Self {
            held,
            outgoing_bytes_max,
            replies_bytes_max,
            full: AtomicBool::new(false),
            arguments: AtomicUsize::default(),
            queued: AtomicUsize::default(),
            writing: AtomicUsize::default(),
            expected: AtomicUsize::default(),
            answer: AtomicUsize::default(),
        })
    }

    /// Returns true if the arguments of a call fit together with what clients hold. They are not
    /// counted yet: a call that is over at once holds nothing.
    #[inline]
    pub fn has_argument_room(&self, bytes: usize) -> bool {
        self.held.as_ref().is_none_or(|held| {
            held.arguments.load(Ordering::Relaxed) + bytes <= held.arguments_max()
                || self.arguments.load(Ordering::Relaxed) + bytes <= FREE_BYTES
        })
    }

    /// Counts the arguments of a call that is not over at once; false, and nothing has changed, if
    /// they do not fit. `surely` counts them all the same.
    pub fn take_arguments(&self, bytes: usize, surely: bool) -> bool {
        let Some(held) = &self.held else { return true };
        let own = self.arguments.fetch_add(bytes, Ordering::Relaxed);
        let max =
            if surely || own + bytes <= FREE_BYTES { usize::MAX } else { held.arguments_max() };
        let fits = add_within(&held.arguments, bytes, max);
        if !fits {
            self.arguments.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// The call is over.
    pub fn give_arguments(&self, bytes: usize) {
        if let Some(held) = &self.held {
            self.arguments.fetch_sub(bytes, Ordering::Relaxed);
            held.arguments.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts the bytes that wait for the socket, and makes answers wait if they are too many.
    /// Called under the connection's lock.
    pub(crate) fn note_queued(&self, waiting: usize) {
        self.count_queued(waiting);
        if waiting >= self.queue_max() {
            self.note_full();
        }
    }

    /// Counts the bytes that wait for the socket. Called under the connection's lock.
    pub(crate) fn count_queued(&self, waiting: usize) {
        let Some(held) = &self.held else { return };
        let bytes = if waiting > FREE_BYTES { waiting } else { 0 };
        let before = self.queued.load(Ordering::Relaxed);
        if bytes != before {
            self.queued.store(bytes, Ordering::Relaxed);
            held.queued.fetch_add(bytes, Ordering::Relaxed);
            held.queued.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// An answer has to wait.
    pub(crate) fn note_full(&self) {
        self.full.store(true, Ordering::Release);
    }

    /// Notes that waiting bytes are on their way, or that the connection has ended. Returns true if
    /// answers waited.
    pub fn note_room(&self) -> bool {
        self.full.swap(false, Ordering::AcqRel)
    }

    /// Returns true if the peer has a large answer to read while clients hold too much: it gets no
    /// other one.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.writing.load(Ordering::Relaxed) > 0
            && self.held.as_ref().is_some_and(|held| held.is_full())
    }

    /// The frames that the reader handles before other connections have their turn. A silo's are
    /// not counted.
    pub(crate) fn frames_in_one_go(&self) -> usize {
        self.held.as_ref().map_or(usize::MAX, |held| {
            let clients = held.clients.load(Ordering::Relaxed).max(1);
            (ROUND_FRAMES / clients).clamp(GO_FRAMES_MIN, GO_FRAMES_MAX)
        })
    }

    /// Number of bytes of answers that may wait for this peer now.
    pub(crate) fn queue_max(&self) -> usize {
        match &self.held {
            Some(held) if held.is_full() => FREE_BYTES.min(self.outgoing_bytes_max),
            _ => self.outgoing_bytes_max,
        }
    }

    /// Returns true if the peer reads its answers, `queued` more bytes of which wait.
    #[inline]
    pub fn has_room(&self, queued: usize) -> bool {
        !self.full.load(Ordering::Acquire) && queued < self.replies_bytes_max
    }

    /// Returns true if a client has to read its waiting answers, `queued` more bytes among them,
    /// before this side takes another frame from it. A silo is always heard: if two silos waited
    /// for each other like this, neither would read again.
    #[inline]
    pub fn must_read(&self, queued: usize) -> bool {
        let is_full = || queued >= FREE_BYTES && queued >= self.queue_max();
        self.held.is_some() && (!self.has_room(queued) || is_full() || self.owes())
    }

    /// Keeps an answer for which there is no room yet; none if clients hold too much.
    pub fn keep_answer(&self, bytes: usize) -> Option<Counted> {
        let fits = |held: &Arc<HeldBytes>| add_within(&held.finished, bytes, held.finished_max());
        self.held.as_ref().is_none_or(fits).then(|| Counted { of: self.held.clone(), bytes })
    }

    /// Notes the size of a large answer: calls that wait for room expect the like.
    #[inline]
    pub fn note_answer(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            self.answer.store(bytes, Ordering::Relaxed);
        }
    }

    /// Lets a call begin whose answer would have room; one call of each connection always. Returns
    /// the bytes that it is expected to have, to be [given back](Self::give_expected).
    pub fn expect_answer(&self) -> Option<usize> {
        let Some(held) = &self.held else { return Some(0) };
        let bytes = self.answer.load(Ordering::Relaxed);
        if bytes <= FREE_BYTES {
            return Some(0);
        }
        let own = self.expected.fetch_add(bytes, Ordering::Relaxed);
        let max = if own == 0 { usize::MAX } else { held.queued_max() };
        if add_within(&held.queued, bytes, max) {
            // The expected size falls again, unless answers stay large.
            self.answer.store(bytes - bytes / 8, Ordering::Relaxed);
            return Some(bytes);
        }
        self.expected.fetch_sub(bytes, Ordering::Relaxed);
        None
    }

    /// The answer that was expected is there, or late.
    pub fn give_expected(&self, bytes: usize) {
        if let Some(held) = &self.held {
            held.queued.fetch_sub(bytes, Ordering::Relaxed);
            self.expected.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.queued.fetch_sub(*self.queued.get_mut(), Ordering::Relaxed);
            held.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
