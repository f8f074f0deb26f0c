//! The calls that wait for an answer on one connection.
//!
//! A slab: the correlation number is the slot and the slot's generation, so that finding a call is an index
//! and a late answer to a slot's earlier call is recognised. A slot holds the caller's waker and nothing
//! else is shared between the caller and the connection (`docs/benchmarks.md` says what that saves).

use std::task::Waker;

use bytes::Bytes;
use emmer_wire::ResponseHeader;

use crate::clock::CoarseInstant;

/// How a call ended, as far as its connection knows.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A response frame.
    Response(ResponseHeader, Bytes),
    /// The deadline passed first.
    TimedOut,
}

enum Slot {
    Free { next: u32 },
    Waiting { waker: Option<Waker>, deadline: Option<CoarseInstant> },
    Done(Answer),
}

struct Entry {
    generation: u32,
    slot: Slot,
}

const NONE: u32 = u32::MAX;

/// The slab of pending calls.
pub(super) struct Pending {
    entries: Vec<Entry>,
    free: u32,
    live: u32,
    max: u32,
    /// No deadline is earlier than this.
    earliest: Option<CoarseInstant>,
}

/// The name of one call on one connection. Never 0 on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correlation {
    index: u32,
    generation: u32,
}

impl Correlation {
    pub(super) const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | (self.index as u64 + 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves are what is asked for")]
    const fn from_u64(number: u64) -> Self {
        Self { index: (number as u32).wrapping_sub(1), generation: (number >> 32) as u32 }
    }
}

impl Pending {
    pub(super) const fn new(max: u32) -> Self {
        Self { entries: Vec::new(), free: NONE, live: 0, max, earliest: None }
    }

    /// A slot for a new call; none when as many calls wait as may.
    pub(super) fn begin(&mut self, waker: Waker, deadline: Option<CoarseInstant>) -> Option<Correlation> {
        if self.live >= self.max {
            return None;
        }
        self.live += 1;
        if let Some(deadline) = deadline {
            self.earliest = Some(self.earliest.map_or(deadline, |e| e.min(deadline)));
        }
        let slot = Slot::Waiting { waker: Some(waker), deadline };
        let index = self.free;
        if index == NONE {
            let index = u32::try_from(self.entries.len()).ok()?;
            self.entries.push(Entry { generation: 0, slot });
            return Some(Correlation { index, generation: 0 });
        }
        let entry = self.entries.get_mut(index as usize)?;
        if let Slot::Free { next } = entry.slot {
            self.free = next;
        }
        entry.slot = slot;
        Some(Correlation { index, generation: entry.generation })
    }

    fn entry(&mut self, at: Correlation) -> Option<&mut Entry> {
        self.entries.get_mut(at.index as usize).filter(|e| e.generation == at.generation)
    }

    /// The answer, if it is there (the slot is then free again); else remembers who to wake.
    pub(super) fn poll(&mut self, at: Correlation, waker: &Waker) -> Option<Answer> {
        match &mut self.entry(at)?.slot {
            Slot::Waiting { waker: old, .. } => {
                if !old.as_ref().is_some_and(|old| old.will_wake(waker)) {
                    *old = Some(waker.clone());
                }
                None
            }
            _ => self.end(at),
        }
    }

    /// Frees the slot, whatever it holds.
    pub(super) fn end(&mut self, at: Correlation) -> Option<Answer> {
        let free = self.free;
        let entry = self.entry(at)?;
        let slot = std::mem::replace(&mut entry.slot, Slot::Free { next: free });
        // 2^32 calls on one slot while one answer is late: the wrap is harmless.
        entry.generation = entry.generation.wrapping_add(1);
        self.free = at.index;
        self.live -= 1;
        match slot {
            Slot::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// Puts an answer into its slot; returns who to wake. An answer nobody waits for is dropped.
    pub(super) fn answer(&mut self, header: ResponseHeader, body: Bytes) -> Option<Waker> {
        let entry = self.entry(Correlation::from_u64(header.correlation))?;
        let Slot::Waiting { waker, .. } = &mut entry.slot else { return None };
        let waker = waker.take();
        entry.slot = Slot::Done(Answer::Response(header, body));
        waker
    }

    /// Ends every call whose deadline has passed; the callers are pushed to `wake`.
    pub(super) fn expire(&mut self, now: CoarseInstant, wake: &mut Vec<Waker>) {
        if self.earliest.is_none_or(|earliest| earliest > now) {
            return;
        }
        let mut earliest: Option<CoarseInstant> = None;
        for entry in &mut self.entries {
            let Slot::Waiting { waker, deadline: Some(deadline) } = &mut entry.slot else { continue };
            if *deadline <= now {
                wake.extend(waker.take());
                entry.slot = Slot::Done(Answer::TimedOut);
            } else {
                earliest = Some(earliest.map_or(*deadline, |e| e.min(*deadline)));
            }
        }
        self.earliest = earliest;
    }

    /// Everybody who waits, because the connection ended.
    pub(super) fn drain_wakers(&mut self, wake: &mut Vec<Waker>) {
        for entry in &mut self.entries {
            if let Slot::Waiting { waker, .. } = &mut entry.slot {
                wake.extend(waker.take());
            }
        }
    }

    /// How many calls have a slot.
    pub(super) const fn live(&self) -> u32 {
        self.live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn header(at: Correlation) -> ResponseHeader {
        ResponseHeader { correlation: at.as_u64(), status: emmer_wire::ResponseStatus::Ok, location: None }
    }

    #[test]
    fn answers_find_their_call_and_late_ones_nobody() {
        let mut pending = Pending::new(8);
        let first = pending.begin(Waker::noop().clone(), None).unwrap();
        assert!(pending.poll(first, Waker::noop()).is_none());
        assert!(pending.answer(header(first), Bytes::new()).is_some());
        assert!(matches!(pending.poll(first, Waker::noop()), Some(Answer::Response(..))));
        let second = pending.begin(Waker::noop().clone(), None).unwrap();
        assert_eq!((second.index, second.generation), (first.index, 1));
        assert!(pending.answer(header(first), Bytes::new()).is_none(), "the slot has a new call");
        assert!(pending.answer(header(second), Bytes::new()).is_some());
        assert_eq!(pending.live(), 1);
    }

    #[test]
    fn refuses_calls_beyond_the_maximum_and_takes_them_again_later() {
        let mut pending = Pending::new(2);
        let calls: Vec<_> = (0..2).map(|_| pending.begin(Waker::noop().clone(), None).unwrap()).collect();
        assert!(pending.begin(Waker::noop().clone(), None).is_none());
        pending.end(calls[0]);
        assert!(pending.begin(Waker::noop().clone(), None).is_some());
    }

    #[test]
    fn deadlines_expire_only_what_is_due() {
        let start = Clock::new().now();
        let (soon, late) = (
            start.after(std::time::Duration::from_millis(10)),
            start.after(std::time::Duration::from_secs(9)),
        );
        let mut pending = Pending::new(8);
        let a = pending.begin(Waker::noop().clone(), Some(soon)).unwrap();
        let b = pending.begin(Waker::noop().clone(), Some(late)).unwrap();
        let mut wake = Vec::new();
        pending.expire(start, &mut wake);
        assert!(wake.is_empty());
        pending.expire(soon, &mut wake);
        assert_eq!(wake.len(), 1);
        assert!(matches!(pending.poll(a, Waker::noop()), Some(Answer::TimedOut)));
        assert!(pending.poll(b, Waker::noop()).is_none());
    }

    #[test]
    fn correlations_are_never_zero_and_round_trip() {
        for at in [Correlation { index: 0, generation: 0 }, Correlation { index: 7, generation: u32::MAX }] {
            assert_ne!(at.as_u64(), 0);
            assert_eq!(Correlation::from_u64(at.as_u64()), at);
        }
    }
}
