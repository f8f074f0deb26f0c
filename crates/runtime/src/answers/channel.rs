//! The values between a sink and its caller. Within a process they move, and nothing is encoded.
//! When the call goes to another process, the caller takes from the end that is read here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use emmer_net::clock::{Clock, CoarseInstant};
use emmer_streams::{End as StreamEnd, Lost};
use emmer_wire::CodecError;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::calls::Node;
use crate::hosting::{TurnContext, late};
use crate::streams::{Hub, Listed, Local, Next as Blocks, ReadEnd, split_value};
use crate::turn::contain;

/// A reader tells its writer after as many values that there is room again, or sooner.
const TOLD_EVERY: u64 = 64;

/// The two ends of a stream that holds at most `window` values, and as many that its reader has
/// taken over.
pub(super) fn channel<T>(window: u32) -> (Writing<T>, Reading<T>)
where
    T: DeserializeOwned,
{
    let state = State {
        values: VecDeque::new(),
        reader: None,
        woken: None,
        end: None,
        is_stopped: false,
        remote: None,
        past: Vec::new(),
    };
    let window = window as usize;
    let shared = Arc::new(Shared { state: Mutex::new(state), room: Notify::new(), window });
    let arrived = Arrived { values: Bytes::new(), items: 0, bytes: 0 };
    let decode = emmer_wire::codec::decode::<T>;
    (Writing(shared.clone()), Reading { shared, taken: VecDeque::new(), arrived, decode })
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// A writer may look again for room.
    room: Notify,
    window: usize,
}

struct State<T> {
    values: VecDeque<T>,
    reader: Option<Waker>,
    /// The millisecond in which the reader was woken last.
    woken: Option<CoarseInstant>,
    /// Set when the writer was dropped: true if it had finished.
    end: Option<bool>,
    /// The reader was dropped.
    is_stopped: bool,
    /// The end that is read in this process, if the sink has gone to another one.
    remote: Option<Arc<Remote>>,
    /// Ends of calls that were tried before. The reader drops them: a call is encoded under the
    /// lock of its connection, and they may send.
    past: Vec<Arc<Remote>>,
}

/// The end of a stream from another process. Dropping it stops the stream.
pub(super) struct Remote {
    pub(super) hub: Arc<Hub>,
    pub(super) end: Arc<ReadEnd>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.end.stop(&self.hub);
    }
}

/// The writing end.
pub(super) struct Writing<T>(Arc<Shared<T>>);

/// The reading end. Dropping it stops the stream.
pub(super) struct Reading<T> {
    shared: Arc<Shared<T>>,
    /// Values that were taken over together, so that the lock is taken once for many.
    taken: VecDeque<T>,
    arrived: Arrived,
    decode: fn(&[u8]) -> Result<T, CodecError>,
}

/// Encoded values of another process, and those of them that were read and not told yet.
struct Arrived {
    values: Bytes,
    items: u64,
    bytes: u64,
}

/// The reason why a value was not written. It comes back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotWritten<T> {
    Full(T),
    Stopped(T),
}

/// The next thing that a caller is given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<T> {
    Value(T),
    End(StreamEnd),
    /// A value that is none of this type.
    Unreadable(String),
}

impl<T: Send> Local for Shared<T> {
    fn leave(&self) {
        let mut state = self.state.lock();
        state.end.get_or_insert(false);
        state.is_stopped = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        self.room.notify_waiters();
    }
}

impl<T: Send + 'static> Writing<T> {
    /// Breaks off when the silo leaves, until the value is dropped.
    pub(super) fn list(&self, hub: &Arc<Hub>) -> Listed {
        let shared: Arc<dyn Local> = self.0.clone();
        hub.list(Arc::downgrade(&shared))
    }
}

impl<T> Writing<T> {
    /// Writes a value if there is room. A turn that writes wakes the reader at once, but no more
    /// than once in a millisecond: else at the end of its poll, or when half the room is taken.
    ///
    /// # Errors
    /// The value, if there is none, or if the reader was dropped.
    pub(super) fn try_write(&self, value: T, clock: Option<&Clock>) -> Result<(), NotWritten<T>> {
        let mut state = self.0.state.lock();
        if state.is_stopped {
            return Err(NotWritten::Stopped(value));
        }
        if state.values.len() >= self.0.window {
            return Err(NotWritten::Full(value));
        }
        state.values.push_back(value);
        let is_half_full = state.values.len() == self.0.window / 2;
        let reader = state.reader.take();
        let now = clock.filter(|_| reader.is_some()).map(Clock::now);
        let is_late = now.is_some() && std::mem::replace(&mut state.woken, now) == now;
        drop(state);
        match reader {
            Some(reader) if is_late => TurnContext::wake_late(reader),
            Some(reader) => reader.wake(),
            None if is_half_full => late::wake_all(),
            None => {}
        }
        Ok(())
    }

    /// The sink is used in the process that it was made in.
    pub(super) fn stays(&self) {
        let before = self.0.state.lock().remote.take();
        drop(before);
    }

    /// The sink has gone to another process, whose values arrive at `remote`.
    pub(super) fn goes(&self, remote: Remote) {
        let mut state = self.0.state.lock();
        let before = state.remote.replace(Arc::new(remote));
        state.past.extend(before);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// No value follows. `is_complete` is false for a writer that had more.
    pub(super) fn close(&self, is_complete: bool) {
        let mut state = self.0.state.lock();
        state.end.get_or_insert(is_complete);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.state.lock().is_stopped
    }

    /// Fires when there may be room, and when the reader was dropped.
    pub(super) fn room(&self) -> &Notify {
        &self.0.room
    }
}

impl<T> Reading<T> {
    /// The next of the values that were taken over. `node` is the process that reads.
    pub(super) fn next_now(&mut self, node: &Node) -> Option<Next<T>> {
        if let Some(value) = self.taken.pop_front() {
            return Some(Next::Value(value));
        }
        (!self.arrived.values.is_empty()).then(|| self.decode_next(node))
    }

    /// The next value, or the end.
    pub(super) fn poll_next(&mut self, node: &Node, cx: &Context<'_>) -> Poll<Next<T>> {
        loop {
            if let Some(next) = self.next_now(node) {
                return Poll::Ready(next);
            }
            let mut state = self.shared.state.lock();
            let past = std::mem::take(&mut state.past);
            if !past.is_empty() {
                drop(state);
                drop(past);
                continue;
            }
            if !state.values.is_empty() {
                let was_full = state.values.len() >= self.shared.window;
                std::mem::swap(&mut self.taken, &mut state.values);
                drop(state);
                if was_full {
                    self.shared.room.notify_waiters();
                }
                continue;
            }
            if !state.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.reader = Some(cx.waker().clone());
            }
            let Some(remote) = state.remote.clone() else {
                return match state.end {
                    Some(true) => Poll::Ready(Next::End(StreamEnd::Complete)),
                    Some(false) => Poll::Ready(Next::End(StreamEnd::Lost(Lost::Left))),
                    None => Poll::Pending,
                };
            };
            drop(state);
            self.tell(&remote);
            match remote.end.poll_next(cx) {
                Poll::Ready(Blocks::Values(block)) => self.arrived.values = block.bytes,
                Poll::Ready(Blocks::End(end)) => return Poll::Ready(Next::End(end)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn decode_next(&mut self, node: &Node) -> Next<T> {
        let Some((value, rest)) = split_value(&self.arrived.values) else {
            self.arrived.values = Bytes::new();
            return Next::Unreadable("a value is cut off".to_owned());
        };
        let whole = self.arrived.values.len() - rest.len();
        let decoded = contain(|| node.binds(|| (self.decode)(value)));
        self.arrived.values.advance(whole);
        self.arrived.items += 1;
        self.arrived.bytes += whole as u64;
        if self.arrived.items >= TOLD_EVERY
            && let Some(remote) = self.remote()
        {
            self.tell(&remote);
        }
        match decoded {
            Ok(Ok(value)) => Next::Value(value),
            Ok(Err(error)) => Next::Unreadable(error.to_string()),
            Err(panic) => Next::Unreadable(format!("a panic: {panic}")),
        }
    }

    /// Tells the writer of the values that were read.
    fn tell(&mut self, remote: &Remote) {
        let (items, bytes) = (self.arrived.items, self.arrived.bytes);
        if items > 0 {
            (self.arrived.items, self.arrived.bytes) = (0, 0);
            remote.end.taken(&remote.hub, items, bytes);
        }
    }

    fn remote(&self) -> Option<Arc<Remote>> {
        self.shared.state.lock().remote.clone()
    }

    /// The call that the sink was an argument of has ended.
    pub(super) fn call_ended(&self) {
        if let Some(remote) = self.remote() {
            remote.end.call_ended(&remote.hub);
        }
    }
}

impl<T> Drop for Reading<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_stopped = true;
        // Dropped without the lock: they are the application's.
        let left = std::mem::take(&mut state.values);
        let remote = state.remote.take();
        let past = std::mem::take(&mut state.past);
        drop(state);
        self.shared.room.notify_waiters();
        drop((remote, past));
        drop(left);
    }
}
