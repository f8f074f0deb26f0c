//! The turns that have begun and wait in tasks of their own. Operators see them, and may have one
//! dropped.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use emmer_core::GrainId;
use emmer_net::clock::CoarseInstant;
use emmer_net::numbers::NumberMap;
use emmer_wire::CallChain;
use parking_lot::Mutex;

use super::Activation;

/// Locks that the list is divided over.
const SHARDS: usize = 16;

/// A turn in the list.
pub(crate) struct Stood {
    pub(crate) activation: Arc<Activation>,
    /// Place of its method in its class; of no method for a tick of a timer.
    pub(crate) method: u16,
    /// The turns that wait for it, the first one first.
    pub(crate) chain: CallChain,
    /// Time since which it waits in its task.
    pub(crate) since: CoarseInstant,
    /// Waker of its task.
    waker: Mutex<Option<Waker>>,
    /// The words of the operator that has it dropped.
    dropped: OnceLock<String>,
}

impl Stood {
    pub(super) fn new(
        activation: Arc<Activation>,
        method: u16,
        chain: CallChain,
        since: CoarseInstant,
    ) -> Self {
        let (waker, dropped) = (Mutex::default(), OnceLock::new());
        Self { activation, method, chain, since, waker, dropped }
    }

    /// Has the turn dropped at its next await, with these words for its caller. False if that was
    /// said before.
    pub(crate) fn drop_turn(&self, words: &str) -> bool {
        let is_first = self.dropped.set(words.to_owned()).is_ok();
        let waker = self.waker.lock().take();
        waker.into_iter().for_each(Waker::wake);
        is_first
    }

    /// Polls the turn, unless it is to be dropped: then the words.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, String>> {
        if let Some(words) = self.dropped.get() {
            return Poll::Ready(Err(words.clone()));
        }
        if let Poll::Ready(end) = poll(cx) {
            return Poll::Ready(Ok(end));
        }
        {
            let mut waker = self.waker.lock();
            if !waker.as_ref().is_some_and(|old| old.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        // The word may have come before the waker.
        self.dropped.get().map_or(Poll::Pending, |words| Poll::Ready(Err(words.clone())))
    }
}

#[derive(Default)]
struct Shard {
    next: u64,
    turns: NumberMap<u64, Arc<Stood>>,
}

/// The turns of a silo that have begun and wait in tasks of their own.
#[derive(Default)]
pub(crate) struct Standing {
    shards: [Mutex<Shard>; SHARDS],
}

impl Standing {
    /// Lists a turn until the result is dropped.
    pub(super) fn list(&self, turn: Stood) -> Listed<'_> {
        let at = usize::try_from(turn.activation.number() % SHARDS as u64).unwrap_or(0);
        let (shard, turn) = (&self.shards[at], Arc::new(turn));
        let mut locked = shard.lock();
        locked.next += 1;
        let number = locked.next;
        locked.turns.insert(number, turn.clone());
        Listed { shard, number, turn }
    }

    /// The turns that `is_wanted`, the oldest first, at most `max` of them.
    pub(crate) fn oldest(&self, max: usize, is_wanted: impl Fn(&Stood) -> bool) -> Vec<Arc<Stood>> {
        let mut found: Vec<Arc<Stood>> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            found.extend(shard.turns.values().filter(|turn| is_wanted(turn)).cloned());
            drop(shard);
            found.sort_by_key(|turn| turn.since);
            // Dropped outside of the lock: a turn may be the last that holds its grain.
            found.truncate(max);
        }
        found
    }

    /// The turns on a grain, the oldest first, at most `max` of them.
    pub(crate) fn of_grain(&self, grain: &GrainId, max: usize) -> Vec<Arc<Stood>> {
        self.oldest(max, |turn| turn.activation.id() == grain)
    }

    /// Number of turns in the list.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().turns.len()).sum()
    }
}

/// The place of a turn in the list.
pub(super) struct Listed<'a> {
    shard: &'a Mutex<Shard>,
    number: u64,
    turn: Arc<Stood>,
}

impl Listed<'_> {
    /// Waits for `turn` to end.
    ///
    /// # Errors
    /// The words of the operator that has it dropped.
    pub(super) fn until_dropped<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> impl Future<Output = Result<T, String>> {
        std::future::poll_fn(move |cx| self.turn.poll(cx, &mut poll))
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        let gone = self.shard.lock().turns.remove(&self.number);
        drop(gone);
    }
}
