//! The reading end of a stream whose writer is in another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use emmer_core::{Instant, SiloAddress};
use emmer_streams::{Block, End as StreamEnd, Reader, ToReader};
use parking_lot::Mutex;

use super::hub::{Armed, End, Hub, Key};
use super::post::{Outbox, Part, Place};

/// The reading end of a stream.
pub(crate) struct ReadEnd {
    key: Key,
    /// The place of this end, as the writer knows it.
    here: Place,
    state: Mutex<State>,
}

struct State {
    machine: Reader,
    /// The place of the writer, once it is known.
    peer: Option<Place>,
    armed: Armed,
    waker: Option<Waker>,
    /// The application has dropped its end.
    is_stopped: bool,
}

/// The next thing that a reader is given.
pub(crate) enum Next {
    Values(Block),
    End(StreamEnd),
}

impl ReadEnd {
    /// A reader of a stream of this number, known to the hub until it is over.
    pub(crate) fn begin(hub: &Hub, key: Key, here: Place, machine: Reader) -> Arc<Self> {
        let state = State { machine, peer: key.0, armed: None, waker: None, is_stopped: false };
        let end = Arc::new(Self { key, here, state: Mutex::new(state) });
        hub.add_reader(key, end.clone());
        end
    }

    /// Sends what the machine has to send, and asks for its next look.
    fn follow(
        self: &Arc<Self>,
        hub: &Hub,
        state: &mut State,
        now: Instant,
        out: &mut Outbox,
    ) -> Option<Waker> {
        while let Some(message) = state.machine.poll_transmit(now) {
            if let Some(peer) = state.peer {
                out.put(self.here, peer, Part::ToWriter(message));
            }
        }
        if state.machine.is_over() {
            hub.disarm(&mut state.armed);
            if hub.remove_reader(self.key) && state.machine.is_lost() && !state.is_stopped {
                hub.counts().broken.fetch_add(1, Ordering::Relaxed);
            }
        } else {
            let next = state.machine.poll_timeout();
            hub.arm(&mut state.armed, next, || self.clone());
        }
        if state.machine.end().is_some() || state.machine.has_values() {
            state.waker.take()
        } else {
            None
        }
    }

    /// Changes the machine; sends what follows, and wakes the application.
    fn change(self: &Arc<Self>, hub: &Hub, now: Instant, how: impl FnOnce(&mut State)) -> Outbox {
        let mut out = Outbox::default();
        self.change_into(hub, now, &mut out, how);
        out
    }

    fn change_into(
        self: &Arc<Self>,
        hub: &Hub,
        now: Instant,
        out: &mut Outbox,
        how: impl FnOnce(&mut State),
    ) {
        let mut state = self.state.lock();
        how(&mut state);
        let waker = self.follow(hub, &mut state, now, out);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn handle(
        self: &Arc<Self>,
        hub: &Hub,
        now: Instant,
        from: Place,
        message: ToReader,
        out: &mut Outbox,
    ) {
        if let ToReader::Values { block, .. } = &message {
            hub.counts().values_read.fetch_add(block.count.into(), Ordering::Relaxed);
        }
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
        let out = self.change(hub, hub.now(), |state| {
            if is_lost(state.peer, self.here) {
                state.machine.handle_process_lost();
            }
        });
        hub.post(out);
    }

    pub(crate) fn connection_lost(
        self: &Arc<Self>,
        hub: &Hub,
        now: Instant,
        silo: SiloAddress,
        out: &mut Outbox,
    ) {
        self.change_into(hub, now, out, |state| {
            if state.peer.is_some_and(|peer| peer.silo == silo) {
                state.machine.handle_connection_lost(now);
            }
        });
    }

    /// Says that this end is there.
    pub(crate) fn greet(self: &Arc<Self>, hub: &Hub) {
        hub.post(self.change(hub, hub.now(), |_| {}));
    }

    /// The call that the writer was an argument of has ended.
    pub(crate) fn call_ended(self: &Arc<Self>, hub: &Hub) {
        let now = hub.now();
        hub.post(self.change(hub, now, |state| state.machine.handle_call_ended(now)));
    }

    /// The application takes no further value.
    pub(crate) fn stop(self: &Arc<Self>, hub: &Hub) {
        let out = self.change(hub, hub.now(), |state| {
            state.is_stopped = true;
            state.machine.stop();
        });
        hub.post(out);
    }

    /// The next values, or the end.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Next> {
        let mut state = self.state.lock();
        if let Some(block) = state.machine.take() {
            return Poll::Ready(Next::Values(block));
        }
        if let Some(end) = state.machine.end() {
            return Poll::Ready(Next::End(end));
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// The application has read values: there is room for as many.
    pub(crate) fn taken(self: &Arc<Self>, hub: &Hub, items: u64, bytes: u64) {
        hub.post(self.change(hub, hub.now(), |state| state.machine.taken(items, bytes)));
    }
}

impl End for ReadEnd {
    fn fire(self: Arc<Self>, hub: &Hub, now: Instant, out: &mut Outbox) {
        self.change_into(hub, now, out, |state| {
            state.armed = None;
            state.machine.handle_timeout(now);
        });
    }
}
