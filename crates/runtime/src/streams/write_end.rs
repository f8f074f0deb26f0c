//! The writing end of a stream whose reader is in another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::Instant;
use emmer_streams::{StreamId, ToReader, ToWriter, Writer};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::hub::{Armed, End, Hub, Key};
use super::post::{Outbox, Part, Place};

/// Values that wait for a full connection are tried again after this time.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Bytes in front of an encoded value: its length.
const PREFIX_BYTES: usize = 4;

/// The writing end of a stream.
pub(crate) struct WriteEnd {
    key: Key,
    /// The place of this end.
    here: Place,
    state: Mutex<State>,
    /// There is room again, or never will be.
    changed: Notify,
    /// Called once, when the stream is over.
    when_over: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct State {
    machine: Writer,
    /// The place of the reader, once it is known.
    peer: Option<Place>,
    armed: Armed,
    /// True if a value waits for the connection, which is full.
    waits_for_way: bool,
}

/// The reason why a value was not written.
pub(crate) enum NotPut {
    Full,
    Ended,
}

impl WriteEnd {
    /// A writer of a stream of this number, known to the hub until it is over.
    pub(crate) fn begin(hub: &Hub, key: Key, here: Place, machine: Writer) -> Arc<Self> {
        Self::at(hub, key, here, key.0, machine)
    }

    /// The writer of a link to the process at `to`.
    pub(crate) fn of_link(
        hub: &Hub,
        stream: StreamId,
        here: Place,
        to: Place,
        machine: Writer,
    ) -> Arc<Self> {
        Self::at(hub, (None, stream), here, Some(to), machine)
    }

    fn at(hub: &Hub, key: Key, here: Place, peer: Option<Place>, machine: Writer) -> Arc<Self> {
        let state = Mutex::new(State { machine, peer, armed: None, waits_for_way: false });
        let (changed, when_over) = (Notify::new(), Mutex::new(None));
        let end = Arc::new(Self { key, here, state, changed, when_over });
        hub.add_writer(key, end.clone());
        let now = hub.now();
        end.change_into(hub, now, &mut Outbox::default(), |_| {});
        end
    }

    fn follow(
        self: &Arc<Self>,
        hub: &Hub,
        state: &mut State,
        now: Instant,
        out: &mut Outbox,
    ) -> bool {
        let mut is_full = false;
        if let Some(peer) = state.peer {
            let asks = state.waits_for_way || state.machine.is_due(now);
            is_full = asks && hub.is_full(self.here, peer);
            while !is_full && let Some(message) = state.machine.poll_transmit(now) {
                if let ToReader::Values { block, .. } = &message {
                    let written = &hub.counts().values_written;
                    written.fetch_add(block.count.into(), Ordering::Relaxed);
                }
                out.put(self.here, peer, Part::ToReader(message));
            }
        }
        if state.machine.is_over() {
            hub.disarm(&mut state.armed);
            hub.remove_writer(self.key);
            return true;
        }
        let next = state.machine.poll_timeout();
        let next = if is_full { Some(now + FULL_PAUSE) } else { next };
        hub.arm(&mut state.armed, next, || self.clone());
        let is_free = !is_full && std::mem::take(&mut state.waits_for_way);
        state.machine.take_writable() || is_free
    }

    fn change_into<T>(
        self: &Arc<Self>,
        hub: &Hub,
        now: Instant,
        out: &mut Outbox,
        how: impl FnOnce(&mut State) -> T,
    ) -> T {
        let mut state = self.state.lock();
        let result = how(&mut state);
        let is_news = self.follow(hub, &mut state, now, out);
        let is_over = state.machine.is_over();
        drop(state);
        if is_over {
            self.tell_over();
        }
        if is_news {
            self.changed.notify_waiters();
        }
        result
    }

    fn tell_over(&self) {
        let told = self.when_over.lock().take();
        if let Some(tell) = told {
            tell();
        }
    }

    /// Calls `tell` once, when the stream is over.
    pub(crate) fn when_over(&self, tell: impl FnOnce() + Send + 'static) {
        *self.when_over.lock() = Some(Box::new(tell));
        if self.state.lock().machine.is_over() {
            self.tell_over();
        }
    }

    fn change<T>(self: &Arc<Self>, hub: &Hub, how: impl FnOnce(&mut State) -> T) -> T {
        let mut out = Outbox::default();
        let result = self.change_into(hub, hub.now(), &mut out, how);
        hub.post(out);
        result
    }

    pub(crate) fn handle(
        self: &Arc<Self>,
        hub: &Hub,
        now: Instant,
        from: Place,
        message: ToWriter,
        out: &mut Outbox,
    ) {
        self.change_into(hub, now, out, |state| {
            state.peer = Some(from);
            state.machine.handle_message(now, message);
        });
    }

    pub(crate) fn process_lost(
        self: &Arc<Self>,
        hub: &Hub,
        is_lost: impl Fn(Option<Place>, Place) -> bool,
    ) {
        self.change(hub, |state| {
            if is_lost(state.peer, self.here) {
                state.machine.handle_process_lost();
            }
        });
    }

    /// Writes an encoded value, if there is room.
    ///
    /// # Errors
    /// There is none now, or never again.
    pub(crate) fn put(self: &Arc<Self>, hub: &Hub, value: &[u8]) -> Result<(), NotPut> {
        self.change(hub, |state| {
            if state.machine.unwritable().is_some() {
                return Err(NotPut::Ended);
            }
            if !state.machine.has_room() {
                return Err(NotPut::Full);
            }
            // Of a peer that does not read, each stream holds no value more than it held already.
            if state.peer.is_some_and(|peer| hub.is_full(self.here, peer)) {
                state.waits_for_way = true;
                return Err(NotPut::Full);
            }
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            let put = state.machine.put(|out| {
                out.reserve(PREFIX_BYTES + value.len());
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(value);
                Ok::<(), std::convert::Infallible>(())
            });
            put.unwrap_or_else(|never| match never {});
            Ok(())
        })
    }

    /// No value follows. `is_complete` is false for a writer that had more.
    pub(crate) fn close(self: &Arc<Self>, hub: &Hub, is_complete: bool) {
        self.change(hub, |state| {
            if is_complete {
                state.machine.finish();
            } else {
                state.machine.leave();
            }
        });
    }

    /// Returns true if no value can be written, now or ever.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().machine.unwritable().is_some()
    }

    /// The call that the reader was an argument of has ended.
    pub(crate) fn call_ended(self: &Arc<Self>, hub: &Hub) {
        let now = hub.now();
        self.change(hub, |state| state.machine.handle_call_ended(now));
    }

    /// Returns true if a value fits. After false it is told by [`changed`](Self::changed) when one
    /// may.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().machine.has_room()
    }

    /// Fires when there may be room, and when there never will be.
    pub(crate) const fn changed(&self) -> &Notify {
        &self.changed
    }
}

impl End for WriteEnd {
    fn fire(self: Arc<Self>, hub: &Hub, now: Instant, out: &mut Outbox) {
        self.change_into(hub, now, out, |state| {
            state.armed = None;
            state.machine.handle_timeout(now);
        });
    }
}

/// The first value in `values`, and what is behind it. None if the bytes are no values.
pub(crate) fn split_value(values: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = values.split_first_chunk::<PREFIX_BYTES>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}
