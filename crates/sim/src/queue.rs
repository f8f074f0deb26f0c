//! The event queue: what happens next, in an order that never depends on chance.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::VirtualTime;

/// A queue of `T` ordered by time, then by the order of insertion.
///
/// The heap moves 24-byte keys; what they stand for lies still in a slab whose slots are used again, so that
/// an event in flight costs no allocation once the slab has grown.
#[derive(Debug)]
pub struct Queue<T> {
    heap: BinaryHeap<Key>,
    slab: Vec<Option<T>>,
    free: Vec<u32>,
    next_seq: u64,
}

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
        Self { heap: BinaryHeap::new(), slab: Vec::new(), free: Vec::new(), next_seq: 0 }
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
        self.heap.push(Key { at, seq: self.next_seq, slot });
    }

    /// The time of the next item.
    pub fn next_at(&self) -> Option<VirtualTime> {
        self.heap.peek().map(|key| key.at)
    }

    /// Takes the next item out.
    pub fn pop(&mut self) -> Option<(VirtualTime, T)> {
        loop {
            let key = self.heap.pop()?;
            self.free.push(key.slot);
            if let Some(item) = self.slab[key.slot as usize].take() {
                return Some((key.at, item));
            }
        }
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
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
