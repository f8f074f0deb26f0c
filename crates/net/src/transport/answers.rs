//! Answers to the peer's calls, and how they wait for a peer that does not read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use emmer_link::account::Counted;
use parking_lot::MutexGuard;

use super::connection::{Connection, Shared};
use crate::asker::Asker;

/// A call is expected to have its answer within this time.
const EXPECTED_FOR: Duration = Duration::from_millis(100);

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
        if self.bytes > 0 {
            self.on.account.give_expected(self.bytes);
            // The next one that waits for its turn.
            self.on.room.notify_one();
        }
    }
}

impl Connection {
    /// Number of calls of the peer that are under way here.
    pub fn serving(&self) -> u32 {
        self.shared.lock().link.serving()
    }

    /// Counts a call of the peer that could not be answered at once; [`reply`](Self::reply) ends
    /// it, and [`forget`](Self::forget) comes last. The caller waits as long as the asker says so.
    pub fn begin_serving(&self, correlation: u64, cost: u64) -> Arc<Asker> {
        let begun = self.shared.lock().link.begin_serving(cost);
        if let Err(why) = begun {
            self.reset(why);
        }
        let asker = Arc::<Asker>::default();
        if correlation != 0 {
            self.askers.lock().insert(correlation, asker.clone());
        }
        asker
    }

    /// The call is answered, or will not be.
    pub fn forget(&self, correlation: u64) {
        if correlation != 0 {
            self.askers.lock().remove(&correlation);
        }
    }

    /// The peer has given a call up.
    pub(super) fn given_up(&self, correlation: u64) {
        let asker = self.askers.lock().remove(&correlation);
        if let Some(asker) = asker {
            asker.give_up();
        }
    }

    /// Ends a call counted by [`begin_serving`](Self::begin_serving): queues the response frame
    /// that `write` appends (nothing for a one-way call, whose correlation is 0). `processed` is
    /// the size of the call's frame.
    pub fn reply(
        &self,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) {
        self.put_reply(self.shared.lock(), correlation, processed, write);
    }

    /// As [`reply`](Self::reply), if the peer reads its answers; else false, and nothing has
    /// changed: [`until_room`](Self::until_room).
    pub fn try_reply(
        &self,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) -> bool {
        let shared = self.shared.lock();
        let room = shared.link.has_reply_room();
        if room {
            self.put_reply(shared, correlation, processed, write);
        }
        room
    }

    fn put_reply(
        &self,
        mut shared: MutexGuard<'_, Shared>,
        correlation: u64,
        processed: u64,
        write: impl FnOnce(&mut BytesMut) -> usize,
    ) {
        let lone = shared.link.serving() == 1;
        shared.link.reply(correlation, processed, write);
        self.flush(shared, lone);
    }

    /// Replaces an answer that is too large for the peer by a failure.
    pub fn fit_reply(&self, out: &mut BytesMut, correlation: u64, appended: usize) {
        self.account.note_answer(appended);
        emmer_link::fit_reply(out, correlation, appended, self.peer_limits.frame_bytes_max);
    }

    /// Keeps an answer for which there is no room yet; none if clients hold too much.
    pub fn keep_answer(&self, bytes: usize) -> Option<Counted> {
        self.account.keep_answer(bytes)
    }

    /// Returns true if the arguments of a call fit: `Account::has_argument_room`.
    #[inline]
    pub fn has_argument_room(&self, bytes: usize) -> bool {
        self.account.has_argument_room(bytes)
    }

    /// Counts the arguments of a call that is not over at once: `Account::take_arguments`.
    pub fn take_arguments(&self, bytes: usize, surely: bool) -> bool {
        self.account.take_arguments(bytes, surely)
    }

    /// The call is over.
    pub fn give_arguments(&self, bytes: usize) {
        self.account.give_arguments(bytes);
    }

    /// Returns true if the peer reads its answers, `queued` more bytes of which wait.
    #[inline]
    pub fn has_room(&self, queued: usize) -> bool {
        self.account.has_room(queued)
    }

    /// The driver has taken what waited, or it has ended.
    pub(super) fn note_room(&self) {
        if self.account.note_room() {
            self.room.notify_waiters();
        }
    }

    /// Waits until the peer has read, or is gone. Keep the result [during](Expected::during) the
    /// call.
    pub async fn until_room(&self) -> Expected<'_> {
        let mut waited = false;
        loop {
            // Registered before the check, so that no later change is missed.
            let room = self.room.notified();
            if self.has_room(0)
                && let Some(bytes) = self.account.expect_answer()
            {
                if waited {
                    // There may be room for the next one as well.
                    self.room.notify_one();
                }
                return Expected { on: self, bytes };
            }
            room.await;
            waited = true;
        }
    }

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
