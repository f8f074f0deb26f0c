//! How a connection ends: with a word, without one, or bit by bit.

use std::sync::atomic::Ordering;
use std::task::Waker;

use bytes::BytesMut;
use emmer_wire::{GoodbyeCode, encode_goodbye};

use super::connection::{Connection, Lost};

impl Connection {
    /// Ends the connection after what is queued is written, saying why.
    pub(crate) fn goodbye(&self, code: GoodbyeCode, text: &str) {
        let mut shared = self.shared.lock();
        if shared.lost.is_none() && !shared.closing {
            shared.closing = true;
            encode_goodbye(&mut shared.out, code, text);
            self.flush(shared, true);
        }
    }

    /// The peer is dead in the view: every call that waits for it fails now, and no more are taken. What the runtimes
    /// have to say to it still goes out, and its last words come in, until somebody ends the connection.
    pub(crate) fn part(&self) {
        let mut wake = Vec::new();
        let mut shared = self.shared.lock();
        shared.parting = true;
        self.is_parting.store(true, Ordering::Relaxed);
        shared.pending.drain_wakers(&mut wake);
        drop(shared);
        wake.into_iter().for_each(Waker::wake);
    }

    /// Whether the peer is dead in the view.
    pub(crate) fn is_parting(&self) -> bool {
        self.is_parting.load(Ordering::Relaxed)
    }

    /// Ends the connection now, as a process that dies does; everybody who waits learns why.
    pub(crate) fn lose(&self, why: Lost) {
        self.cut(why, false);
    }

    /// As [`lose`](Self::lose), when the peer could not be told why. Its host gets a reset, not the orderly end which
    /// only a process that has said goodbye or is gone may leave behind.
    pub(crate) fn reset(&self, why: Lost) {
        self.cut(why, true);
    }

    fn cut(&self, why: Lost, reset: bool) {
        let mut wake = Vec::new();
        let mut shared = self.shared.lock();
        if shared.lost.is_none() {
            shared.lost = Some(why);
            if let Some(stream) = shared.stream.take()
                && reset
            {
                // Best effort: a socket that cannot be told is broken already.
                let _ = stream.as_ref().set_zero_linger();
                // Dropped as usual it would send the orderly end first.
                stream.forget();
            }
            shared.out = BytesMut::new();
            shared.pending.drain_wakers(&mut wake);
            wake.extend(shared.driver.take());
        }
        drop(shared);
        wake.into_iter().for_each(Waker::wake);
    }
}
