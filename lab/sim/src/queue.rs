//! The event queue: what happens next, in an order that never depends on chance.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use crate::time::VirtualTime;

/// Span of one bucket, as a power of two in nanoseconds: about a quarter of a millisecond.
const BUCKET_BITS: u32 = 18;

/// A queue of `T` ordered by time, then by the order of insertion.
///
/// Later events wait unsorted in buckets of a quarter of a millisecond; a bucket is sorted when its
/// time has come, which costs far less than a heap over millions of events in flight. Only events
/// for the bucket that is being emptied go through a heap. Keys of 24 bytes move; the events stay
/// in a slab whose slots are used again, so an event costs no allocation once the slab has grown.
#[derive(Debug)]
pub struct Queue<T> {
    /// The number of the bucket that is being emptied.
    current: u64,
    /// Items at the time when it came due, the next one last.
    sorted: Vec<Key>,
    /// Items that were added since.
    heap: BinaryHeap<Key>,
    /// Everything due later, by bucket.
    later: BTreeMap<u64, Vec<Key>>,
    /// Emptied buckets, to be used again.
    spare: Vec<Vec<Key>>,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    next_seq: u64,
}

/// Number of emptied buckets that are kept for later use.
const SPARE_BUCKETS_MAX: usize = 64;

/// Reversed order, because the standard heap gives the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    at: VirtualTime,
    seq: u64,
    slot: u32,
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.cmp(&self.at).then(other.seq.cmp(&self.seq))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            current: 0,
            sorted: Vec::new(),
            heap: BinaryHeap::new(),
            later: BTreeMap::new(),
            spare: Vec::new(),
            slab: Vec::new(),
            free: Vec::new(),
            next_seq: 0,
        }
    }
}

impl<T> Queue<T> {
    /// Puts `item` in at `at`, behind everything already there for that moment.
    pub fn push(&mut self, at: VirtualTime, item: T) {
        let slot = if let Some(slot) = self.free.pop() {
            self.slab[slot as usize] = Some(item);
            slot
        } else {
            self.slab.push(Some(item));
            u32::try_from(self.slab.len() - 1).unwrap_or(u32::MAX)
        };
        self.next_seq += 1;
        let key = Key { at, seq: self.next_seq, slot };
        let bucket = at.as_nanos() >> BUCKET_BITS;
        if bucket <= self.current {
            self.heap.push(key);
        } else {
            let spare = &mut self.spare;
            self.later.entry(bucket).or_insert_with(|| spare.pop().unwrap_or_default()).push(key);
        }
    }

    /// Sorts the next bucket when the current one is empty.
    fn refill(&mut self) {
        if self.sorted.is_empty()
            && self.heap.is_empty()
            && let Some((bucket, keys)) = self.later.pop_first()
        {
            self.current = bucket;
            let emptied = std::mem::replace(&mut self.sorted, keys);
            // The order of keys is reversed: ascending puts the next one last.
            self.sorted.sort_unstable();
            if self.spare.len() < SPARE_BUCKETS_MAX {
                self.spare.push(emptied);
            }
        }
    }

    /// The time of the next item.
    pub fn next_at(&mut self) -> Option<VirtualTime> {
        self.refill();
        self.sorted.last().max(self.heap.peek()).map(|key| key.at)
    }

    /// Takes the next item out.
    pub fn pop(&mut self) -> Option<(VirtualTime, T)> {
        loop {
            self.refill();
            let key = if self.sorted.last() >= self.heap.peek() {
                self.sorted.pop()
            } else {
                self.heap.pop()
            }?;
            self.free.push(key.slot);
            if let Some(item) = self.slab[key.slot as usize].take() {
                return Some((key.at, item));
            }
        }
    }

    /// Number of items that wait.
    pub fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Returns true if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_by_time_then_by_insertion() {
        let mut queue = Queue::default();
        for (at, item) in [(5, 'd'), (1, 'a'), (5, 'e'), (3, 'b'), (3, 'c')] {
            queue.push(VirtualTime::from_nanos(at), item);
        }
        assert_eq!(queue.next_at(), Some(VirtualTime::from_nanos(1)));
        let order: String = std::iter::from_fn(|| queue.pop().map(|(_, item)| item)).collect();
        assert_eq!(order, "abcde");
    }

    #[test]
    fn buckets_keep_the_order_of_a_sorted_list() {
        let mut rng = emmer_core::rng::SeededRng::new(5);
        let (mut queue, mut sorted) = (Queue::default(), Vec::new());
        let mut now = 0;
        for number in 0..5_000u64 {
            let at = now + rng.below(if number % 3 == 0 { 1_000 } else { 5_000_000 });
            queue.push(VirtualTime::from_nanos(at), (at, number));
            sorted.push((at, number));
            if rng.chance(0.4) {
                sorted.sort_unstable();
                let (popped, item) = queue.pop().unwrap();
                assert_eq!((popped.as_nanos(), item), (sorted[0].0, sorted.remove(0)));
                now = item.0;
            }
        }
        sorted.sort_unstable();
        assert_eq!(
            std::iter::from_fn(|| queue.pop().map(|(_, item)| item)).collect::<Vec<_>>(),
            sorted
        );
    }

    #[test]
    fn slots_are_used_again() {
        let mut queue = Queue::default();
        for round in 0..1_000 {
            queue.push(VirtualTime::from_nanos(round), round);
            queue.push(VirtualTime::from_nanos(round), round);
            queue.pop();
            queue.pop();
        }
        assert_eq!((queue.slab.len(), queue.len()), (2, 0));
    }
}
