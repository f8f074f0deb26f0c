//! The turns that have begun and wait in tasks of their own. Operators see them, and may have one
//! dropped.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use emmer_net::clock::CoarseInstant;
use emmer_net::numbers::NumberMap;
use emmer_wire::{CallChain, ChainLink};
use parking_lot::Mutex;

/// Locks that the list is divided over.
const SHARDS: usize = 16;

/// A turn in the list, on the activation `A`.
pub(crate) struct Stood<A> {
    pub(crate) activation: A,
    /// Place of its method in its class; of no method for a tick of a timer.
    pub(crate) method: u16,
    /// Calls that led to the turn; with its own link at the end if it `is_linked`.
    chain: CallChain,
    is_linked: bool,
    /// Time since which it waits in its task.
    pub(crate) since: CoarseInstant,
    /// Waker of its task.
    waker: Mutex<Option<Waker>>,
    /// The words of the operator that has it dropped.
    dropped: OnceLock<String>,
}

impl<A> Stood<A> {
    pub(super) fn new(
        activation: A,
        method: u16,
        (chain, is_linked): (CallChain, bool),
        since: CoarseInstant,
    ) -> Self {
        let (waker, dropped) = (Mutex::default(), OnceLock::new());
        Self { activation, method, chain, is_linked, since, waker, dropped }
    }

    /// Turns that wait for this turn, the first caller first.
    pub(crate) fn callers(&self) -> &[ChainLink] {
        let own = usize::from(self.is_linked);
        self.chain.get(..self.chain.len().saturating_sub(own)).unwrap_or_default()
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
    fn poll<T>(
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

struct Shard<A> {
    next: u64,
    turns: NumberMap<u64, Arc<Stood<A>>>,
}

impl<A> Default for Shard<A> {
    fn default() -> Self {
        Self { next: 0, turns: NumberMap::default() }
    }
}

/// The turns of a silo that have begun and wait in tasks of their own.
pub(crate) struct Standing<A> {
    shards: [Mutex<Shard<A>>; SHARDS],
}

impl<A> Default for Standing<A> {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<A> Standing<A> {
    /// Lists a turn until the result is dropped. `number` spreads the turns over the locks.
    pub(super) fn list(&self, number: u64, turn: Stood<A>) -> Listed<'_, A> {
        let at = usize::try_from(number % SHARDS as u64).unwrap_or(0);
        let (shard, turn) = (&self.shards[at], Arc::new(turn));
        let mut locked = shard.lock();
        locked.next += 1;
        let number = locked.next;
        locked.turns.insert(number, turn.clone());
        Listed { shard, number, turn }
    }

    /// The turns that `is_wanted`, the oldest first, at most `max` of them.
    pub(crate) fn oldest(
        &self,
        max: usize,
        is_wanted: impl Fn(&Stood<A>) -> bool,
    ) -> Vec<Arc<Stood<A>>> {
        let mut found: Vec<Arc<Stood<A>>> = Vec::new();
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

    /// Number of turns in the list.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().turns.len()).sum()
    }
}

/// The place of a turn in the list.
pub(super) struct Listed<'a, A> {
    shard: &'a Mutex<Shard<A>>,
    number: u64,
    turn: Arc<Stood<A>>,
}

impl<A> Listed<'_, A> {
    /// Polls the turn, unless it is to be dropped: then the words of the operator.
    pub(super) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, String>> {
        self.turn.poll(cx, poll)
    }
}

impl<A> Drop for Listed<'_, A> {
    fn drop(&mut self) {
        let gone = self.shard.lock().turns.remove(&self.number);
        drop(gone);
    }
}
