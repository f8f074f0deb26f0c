//! The calls that wait for an answer on one connection.
//!
//! A slab: the correlation number is the slot and the slot's generation, so that finding a call is
//! an index and a late answer to a slot's earlier call is recognised. A slot holds the caller's
//! waker and, later, the answer's bytes in a buffer that is used again: no call allocates
//! here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use emmer_core::{CoarseInstant, SiloAddress};
use emmer_wire::{ResponseHeader, ResponseStatus};

/// A larger buffer is not kept for the next answer.
pub const KEPT_BODY_BYTES_MAX: usize = 1 << 10;

/// End of a call, as far as its connection knows.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response frame, whose body is in the caller's buffer. The location is rare, and large.
    Response {
        /// Outcome that the other side reports.
        status: ResponseStatus,
        /// The silo that has the grain, where the answer names it.
        location: Option<Box<SiloAddress>>,
    },
    /// The deadline passed first.
    TimedOut,
}

/// Room for calls in flight, shared by all connections of a silo or client.
#[derive(Debug)]
pub struct Budget {
    taken: AtomicUsize,
    max: usize,
}

/// Connections take room for this many calls at once, so that a call seldom touches what all of
/// them share.
const ROOM_STEP: u32 = 64;

impl Budget {
    /// Room for `max` calls.
    pub const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    fn take(&self) -> bool {
        let step = ROOM_STEP as usize;
        let taken = self.taken.fetch_add(step, Ordering::Relaxed);
        // One step is always there, whatever the limit: the last calls of a limit that is no
        // multiple of the step.
        let fits = taken < self.max;
        if !fits {
            self.taken.fetch_sub(step, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, room: u32) {
        self.taken.fetch_sub(room as usize, Ordering::Relaxed);
    }
}

/// Why no further calls may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// This connection has reached its limit of calls: `calls_in_flight_max`, of the stricter side.
    Connection(u32),
    /// All connections together have: `silo_calls_in_flight_max`.
    Silo(usize),
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connection(max) => {
                write!(
                    f,
                    "{max} calls wait on this connection (calls_in_flight_max, the peer's or this \
                     side's)"
                )
            }
            Self::Silo(max) => {
                write!(f, "{max} calls wait on all connections together (silo_calls_in_flight_max)")
            }
        }
    }
}

enum State {
    Free { next: u32 },
    Waiting,
    Done(Answer),
}

struct Entry {
    generation: u32,
    state: State,
    waker: Option<Waker>,
    deadline: CoarseInstant,
    /// The turn that made the call; 0 when there is none.
    caller: u64,
    /// The answer's body once it is there; else room for one.
    body: Vec<u8>,
}

const NONE: u32 = u32::MAX;

/// The slab of pending calls.
pub(crate) struct Pending {
    entries: Vec<Entry>,
    free: u32,
    live: u32,
    /// Number of calls whose answer their caller has not taken yet.
    answered: u32,
    max: u32,
    /// Number of calls for which room was taken from the budget.
    room: u32,
    budget: Arc<Budget>,
    /// No deadline is earlier than this.
    earliest: CoarseInstant,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.budget.give_back(self.room);
    }
}

/// The name of one call on one connection. Never 0 on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlation {
    index: u32,
    generation: u32,
}

impl Correlation {
    pub(crate) const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | (self.index as u64 + 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves are what is asked for")]
    const fn from_u64(number: u64) -> Self {
        Self { index: (number as u32).wrapping_sub(1), generation: (number >> 32) as u32 }
    }
}

impl Pending {
    pub(crate) const fn new(max: u32, budget: Arc<Budget>) -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            live: 0,
            answered: 0,
            max,
            room: 0,
            budget,
            earliest: CoarseInstant::LAST,
        }
    }

    /// A slot for a new call.
    pub(crate) fn begin(
        &mut self,
        waker: Waker,
        deadline: CoarseInstant,
        caller: u64,
    ) -> Result<Correlation, Full> {
        if self.live >= self.max {
            return Err(Full::Connection(self.max));
        }
        if self.live == self.room {
            if !self.budget.take() {
                return Err(Full::Silo(self.budget.max));
            }
            self.room += ROOM_STEP;
        }
        self.live += 1;
        self.earliest = self.earliest.min(deadline);
        let index = self.free;
        let Some(entry) = self.entries.get_mut(index as usize) else {
            let entry = Entry {
                generation: 0,
                state: State::Waiting,
                waker: Some(waker),
                deadline,
                caller,
                body: Vec::new(),
            };
            // There are never more entries than `max`, a u32.
            let index = u32::try_from(self.entries.len()).unwrap_or(NONE);
            self.entries.push(entry);
            return Ok(Correlation { index, generation: 0 });
        };
        if let State::Free { next } = entry.state {
            self.free = next;
        }
        entry.state = State::Waiting;
        entry.waker = Some(waker);
        entry.deadline = deadline;
        entry.caller = caller;
        Ok(Correlation { index, generation: entry.generation })
    }

    fn entry(&mut self, at: Correlation) -> Option<&mut Entry> {
        self.entries.get_mut(at.index as usize).filter(|e| e.generation == at.generation)
    }

    /// The answer, if it has come: its body is then in `body`, which gives the slot its room, and
    /// the slot is free again. Otherwise remembers the waker.
    pub(crate) fn poll(
        &mut self,
        at: Correlation,
        waker: &Waker,
        body: &mut Vec<u8>,
    ) -> Option<Answer> {
        let entry = self.entry(at)?;
        if let State::Waiting = entry.state {
            if !entry.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
                entry.waker = Some(waker.clone());
            }
            return None;
        }
        std::mem::swap(&mut entry.body, body);
        match self.end(at) {
            State::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// Frees the slot, whatever it holds; whether the peer may still be at the call.
    pub(crate) fn give_up(&mut self, at: Correlation) -> bool {
        matches!(self.end(at), State::Waiting)
    }

    fn end(&mut self, at: Correlation) -> State {
        let next = self.free;
        let Some(entry) = self.entry(at) else { return State::Free { next } };
        let state = std::mem::replace(&mut entry.state, State::Free { next });
        let answered = u32::from(matches!(state, State::Done(_)));
        entry.waker = None;
        // 2^32 calls on one slot while one answer is late: the wrap is harmless.
        entry.generation = entry.generation.wrapping_add(1);
        if entry.body.capacity() > KEPT_BODY_BYTES_MAX {
            entry.body = Vec::new();
        }
        self.free = at.index;
        self.live -= 1;
        self.answered -= answered;
        if self.live + ROOM_STEP + ROOM_STEP / 2 < self.room {
            self.room -= ROOM_STEP;
            self.budget.give_back(ROOM_STEP);
        }
        state
    }

    /// Puts an answer into its slot; returns who to wake. An answer without a waiting call is
    /// dropped. `large` holds a copy of the body when it is a large one.
    pub(crate) fn answer(
        &mut self,
        header: &ResponseHeader,
        body: &[u8],
        large: Option<Vec<u8>>,
    ) -> Option<Waker> {
        let entry = self.entry(Correlation::from_u64(header.correlation))?;
        let State::Waiting = entry.state else { return None };
        if let Some(large) = large {
            entry.body = large;
        } else {
            entry.body.clear();
            entry.body.extend_from_slice(body);
        }
        let location = header.location.map(Box::new);
        entry.state = State::Done(Answer::Response { status: header.status, location });
        let waker = entry.waker.take();
        self.answered += 1;
        waker
    }

    /// Ends every call whose deadline has passed: the callers are pushed to `wake`, the calls to
    /// `over`. Called at every tick of the clock.
    pub(crate) fn expire(
        &mut self,
        now: CoarseInstant,
        wake: &mut Vec<Waker>,
        over: &mut Vec<Correlation>,
    ) {
        if self.live == 0 && self.room > 0 {
            // Between bursts the others may have all of it.
            self.budget.give_back(std::mem::take(&mut self.room));
        }
        if self.earliest > now {
            return;
        }
        let mut earliest = CoarseInstant::LAST;
        for (index, entry) in (0..).zip(&mut self.entries) {
            let State::Waiting = entry.state else { continue };
            if entry.deadline <= now {
                wake.extend(entry.waker.take());
                over.push(Correlation { index, generation: entry.generation });
                entry.state = State::Done(Answer::TimedOut);
                self.answered += 1;
            } else {
                earliest = earliest.min(entry.deadline);
            }
        }
        self.earliest = earliest;
    }

    /// Everybody who waits, because the connection ended.
    pub(crate) fn drain_wakers(&mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.entries.iter_mut().filter_map(|entry| entry.waker.take()));
    }

    /// The turns whose calls wait, of those that are `wanted`.
    pub(crate) fn callers(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let waiting = self.entries.iter().filter(|entry| matches!(entry.state, State::Waiting));
        waiting.map(|entry| entry.caller).filter(|turn| *turn != 0 && wanted(*turn)).collect()
    }

    /// Number of calls whose answer their caller has not taken yet.
    pub(crate) const fn answered(&self) -> u32 {
        self.answered
    }

    /// The earliest deadline, or an earlier moment.
    pub(crate) const fn due(&self) -> CoarseInstant {
        self.earliest
    }

    /// Number of calls that have a slot.
    pub(crate) const fn live(&self) -> u32 {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(at: Correlation) -> ResponseHeader {
        ResponseHeader { correlation: at.as_u64(), status: ResponseStatus::Ok, location: None }
    }

    fn pending(max: u32) -> Pending {
        Pending::new(max, Arc::new(Budget::new(1_000)))
    }

    fn begin(pending: &mut Pending) -> Result<Correlation, Full> {
        pending.begin(Waker::noop().clone(), CoarseInstant::LAST, 0)
    }

    const OK: Option<Answer> =
        Some(Answer::Response { status: ResponseStatus::Ok, location: None });

    #[test]
    fn answers_find_their_call_and_late_ones_nobody() {
        let (mut pending, mut body) = (pending(8), Vec::new());
        let first = begin(&mut pending).unwrap();
        assert_eq!(pending.poll(first, Waker::noop(), &mut body), None);
        assert!(pending.answer(&header(first), b"one", None).is_some());
        assert_eq!(pending.poll(first, Waker::noop(), &mut body), OK);
        assert_eq!(body, b"one");
        let second = begin(&mut pending).unwrap();
        assert_eq!((second.index, second.generation), (first.index, 1));
        assert!(pending.answer(&header(first), b"late", None).is_none(), "the slot has a new call");
        assert!(pending.answer(&header(second), b"", Some(vec![2; 9_000])).is_some());
        assert!(pending.answer(&header(second), b"twice", None).is_none());
        assert_eq!(pending.live(), 1);
        assert_eq!(pending.poll(second, Waker::noop(), &mut body), OK);
        assert_eq!(body, vec![2; 9_000]);
    }

    #[test]
    fn refuses_calls_beyond_the_maximum_and_takes_them_again_later() {
        let mut pending = pending(2);
        let calls: Vec<_> = (0..2).map(|_| begin(&mut pending).unwrap()).collect();
        assert_eq!(begin(&mut pending), Err(Full::Connection(2)));
        pending.give_up(calls[0]);
        assert!(begin(&mut pending).is_ok());
    }

    #[test]
    fn connections_share_a_budget_and_give_room_back() {
        let budget = Arc::new(Budget::new(100));
        let mut busy = Pending::new(u32::MAX, budget.clone());
        let mut calls: Vec<_> = std::iter::from_fn(|| begin(&mut busy).ok()).collect();
        assert_eq!(calls.len(), 128, "the limit, to a step");
        assert_eq!(begin(&mut busy), Err(Full::Silo(100)));
        let mut other = Pending::new(u32::MAX, budget.clone());
        assert_eq!(begin(&mut other), Err(Full::Silo(100)));
        calls.drain(..).for_each(|call| assert!(busy.give_up(call), "it has no answer"));
        busy.expire(CoarseInstant::from_millis(0), &mut Vec::new(), &mut Vec::new());
        assert!(begin(&mut other).is_ok());
        drop((busy, other));
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn deadlines_expire_only_what_is_due() {
        let start = CoarseInstant::from_millis(7);
        let (soon, late) = (
            start.after(std::time::Duration::from_millis(10)),
            start.after(std::time::Duration::from_secs(9)),
        );
        let (mut pending, mut body) = (pending(8), Vec::new());
        let a = pending.begin(Waker::noop().clone(), soon, 0).unwrap();
        let b = pending.begin(Waker::noop().clone(), late, 0).unwrap();
        let (mut wake, mut over) = (Vec::new(), Vec::new());
        pending.expire(start, &mut wake, &mut over);
        assert!(wake.is_empty() && over.is_empty());
        pending.expire(soon, &mut wake, &mut over);
        assert_eq!((wake.len(), over), (1, vec![a]));
        assert_eq!(pending.poll(a, Waker::noop(), &mut body), Some(Answer::TimedOut));
        assert_eq!(pending.poll(b, Waker::noop(), &mut body), None);
    }

    #[test]
    fn correlations_are_never_zero_and_round_trip() {
        for at in [
            Correlation { index: 0, generation: 0 },
            Correlation { index: 7, generation: u32::MAX },
        ] {
            assert_ne!(at.as_u64(), 0);
            assert_eq!(Correlation::from_u64(at.as_u64()), at);
        }
    }
}
