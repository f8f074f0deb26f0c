//! The account of the memory that peers make a silo hold.
//!
//! - Calls of clients that are not over: their frames, and what the runtime keeps for each.
//! - Whatever waits for a client to read it: answers, refusals, words between runtimes.
//! - Frames that have begun and not ended, of clients and of silos (`frames`).
//!
//! A client need not read its answers, and may call a grain that is busy for long. Each of its
//! connections is bounded, but there are many. So that no client suffers for others, each
//! connection may always hold [`FREE_BYTES`], and one answer more. When those answers together take
//! too much, the connections that have read nothing for longest end (`unread`).
//!
//! Silos are not counted: the cluster declares one dead that does not read.

mod frames;
mod unread;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_wire::PeerKind;

pub use self::frames::FrameRooms;
pub(super) use self::frames::{FrameRoom, Room, overdue, wanted};
use self::unread::Unread;
pub(super) use self::unread::Written;
use super::connection::{Connection, Shared};

/// Number of bytes of arguments, and as many of answers, that each connection may hold whatever the
/// others do.
pub(super) const FREE_BYTES: usize = 64 << 10;

/// After this many bytes of answers to a client in one go of a driver, calls that are read begin
/// when their connection has room.
pub(super) const REPLIES_BYTES_MAX: usize = 1 << 20;

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

/// A call is expected to have its answer within this time.
const EXPECTED_FOR: Duration = Duration::from_millis(100);

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

    /// The count for what `peer` makes this side hold; silos are not counted.
    pub(super) fn of(self: &Arc<Self>, peer: PeerKind) -> Option<Arc<Self>> {
        matches!(peer, PeerKind::Client(_)).then(|| {
            self.clients.fetch_add(1, Ordering::Relaxed);
            self.clone()
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

/// Bytes of it that one connection holds.
#[derive(Debug, Default)]
pub(super) struct Holds {
    arguments: AtomicUsize,
    /// Bytes that wait to be written, as they are counted; changed under the lock.
    queued: AtomicUsize,
    /// Bytes that are being written, if they are many.
    writing: AtomicUsize,
    /// Answers that calls under way are expected to have.
    expected: AtomicUsize,
    /// The size of large answers lately.
    answer: AtomicUsize,
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

/// Bytes that are counted until it is dropped; none of a silo's.
pub struct Counted {
    of: Option<Arc<HeldBytes>>,
    count: fn(&HeldBytes) -> &AtomicUsize,
    bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(held) = &self.of {
            (self.count)(held).fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A call that is expected to have a large answer.
pub struct Expected<'c> {
    on: &'c Connection,
    bytes: usize,
}

impl Expected<'_> {
    /// Keeps the permit until `call` is over, or for a moment: late answers do not come all at
    /// once, and other calls need not wait for them.
    pub async fn during<F: Future>(self, mut call: Pin<&mut F>) -> F::Output {
        if self.bytes > 0 {
            tokio::select! {
                biased;
                over = &mut call => return over,
                () = tokio::time::sleep(EXPECTED_FOR) => {}
            }
        }
        drop(self);
        call.await
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.on.held.as_ref().filter(|_| self.bytes > 0) {
            held.queued.fetch_sub(self.bytes, Ordering::Relaxed);
            self.on.holds.expected.fetch_sub(self.bytes, Ordering::Relaxed);
            // The next one that waits for its turn.
            self.on.room.notify_one();
        }
    }
}

impl Connection {
    /// Returns true if the arguments of a call fit together with what clients hold. They are not
    /// counted yet: a call that is over at once holds nothing.
    #[inline]
    pub fn has_argument_room(&self, bytes: usize) -> bool {
        self.held.as_ref().is_none_or(|held| {
            held.arguments.load(Ordering::Relaxed) + bytes <= held.arguments_max()
                || self.holds.arguments.load(Ordering::Relaxed) + bytes <= FREE_BYTES
        })
    }

    /// Counts the arguments of a call that is not over at once; false, and nothing has changed, if
    /// they do not fit. `surely` counts them all the same.
    pub fn take_arguments(&self, bytes: usize, surely: bool) -> bool {
        let Some(held) = &self.held else { return true };
        let own = self.holds.arguments.fetch_add(bytes, Ordering::Relaxed);
        let max =
            if surely || own + bytes <= FREE_BYTES { usize::MAX } else { held.arguments_max() };
        let fits = add_within(&held.arguments, bytes, max);
        if !fits {
            self.holds.arguments.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// The call is over.
    pub fn give_arguments(&self, bytes: usize) {
        if let Some(held) = &self.held {
            self.holds.arguments.fetch_sub(bytes, Ordering::Relaxed);
            held.arguments.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Counts the bytes that wait for the driver. Called under the lock.
    pub(super) fn count_queued(&self, shared: &Shared) {
        let Some(held) = &self.held else { return };
        let bytes = if shared.out.len() > FREE_BYTES { shared.out.len() } else { 0 };
        let before = self.holds.queued.load(Ordering::Relaxed);
        if bytes != before {
            self.holds.queued.store(bytes, Ordering::Relaxed);
            held.queued.fetch_add(bytes, Ordering::Relaxed);
            held.queued.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// Returns true if the peer has a large answer to read while clients hold too much: it gets no
    /// other one.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        self.holds.writing.load(Ordering::Relaxed) > 0
            && self.held.as_ref().is_some_and(|held| held.is_full())
    }

    /// The connection is gone.
    pub(super) fn uncount(&self) {
        if let Some(held) = &self.held {
            let bytes = self.holds.queued.swap(0, Ordering::Relaxed);
            held.queued.fetch_sub(bytes, Ordering::Relaxed);
            held.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The frames that the driver handles before other connections have their turn. A silo's are
    /// not counted.
    pub(super) fn frames_in_one_go(&self) -> usize {
        self.held.as_ref().map_or(usize::MAX, |held| {
            let clients = held.clients.load(Ordering::Relaxed).max(1);
            (ROUND_FRAMES / clients).clamp(GO_FRAMES_MIN, GO_FRAMES_MAX)
        })
    }

    /// Number of bytes of answers that may wait for this peer now.
    pub(super) fn queue_max(&self) -> usize {
        match &self.held {
            Some(held) if held.is_full() => FREE_BYTES.min(self.outgoing_bytes_max),
            _ => self.outgoing_bytes_max,
        }
    }

    /// Keeps an answer for which there is no room yet; none if clients hold too much.
    pub fn keep_answer(&self, bytes: usize) -> Option<Counted> {
        let fits = |held: &Arc<HeldBytes>| add_within(&held.finished, bytes, held.finished_max());
        let of = self.held.clone();
        of.as_ref().is_none_or(fits).then(|| Counted { of, count: |held| &held.finished, bytes })
    }

    /// Notes the size of a large answer: calls that wait for room expect the like.
    #[inline]
    pub(super) fn note_answer(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            self.holds.answer.store(bytes, Ordering::Relaxed);
        }
    }

    /// Lets a call begin whose answer would have room; one call of each connection always.
    fn expect_answer(&self) -> Option<Expected<'_>> {
        let none = Expected { on: self, bytes: 0 };
        let Some(held) = &self.held else { return Some(none) };
        let bytes = self.holds.answer.load(Ordering::Relaxed);
        if bytes <= FREE_BYTES {
            return Some(none);
        }
        let own = self.holds.expected.fetch_add(bytes, Ordering::Relaxed);
        let max = if own == 0 { usize::MAX } else { held.queued_max() };
        if add_within(&held.queued, bytes, max) {
            // The expected size falls again, unless answers stay large.
            self.holds.answer.store(bytes - bytes / 8, Ordering::Relaxed);
            return Some(Expected { on: self, bytes });
        }
        self.holds.expected.fetch_sub(bytes, Ordering::Relaxed);
        None
    }

    /// Waits until the peer has read, or is gone. Keep the result [during](Expected::during) the
    /// call.
    pub async fn until_room(&self) -> Expected<'_> {
        let mut waited = false;
        loop {
            // Registered before the check, so that no later change is missed.
            let room = self.room.notified();
            if self.has_room(0)
                && let Some(expected) = self.expect_answer()
            {
                if waited {
                    // There may be room for the next one as well.
                    self.room.notify_one();
                }
                return expected;
            }
            room.await;
            waited = true;
        }
    }
}

impl Connection {
    /// Waits until something that waited for the peer is on its way, or the peer is gone.
    pub async fn until_read(&self) {
        loop {
            let room = self.room.notified();
            if self.has_room(0) {
                return;
            }
            room.await;
        }
    }
}
