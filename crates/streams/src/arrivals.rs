//! Values that have arrived: in order, or too early.

use std::collections::{BTreeMap, VecDeque};

use crate::api::{Credit, Lost};
use crate::message::Block;

/// The blocks of a stream, put into order.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Blocks that the application may take.
    ready: VecDeque<Block>,
    /// Blocks behind a missing one, by the number of values before them.
    early: BTreeMap<u64, Block>,
    /// The bytes of all that has arrived, early blocks included.
    bytes: u64,
    /// The last block in the order of the writer, of those that have arrived: the number of values
    /// before it, and its bytes.
    last: (u64, u64),
    /// The number of values that are in order.
    in_order: u64,
    /// The number of all values of the stream, once it is known.
    total: Option<u64>,
}

impl Arrivals {
    /// Takes a block that may be early, or come again.
    ///
    /// # Errors
    /// [`Lost::Rules`] if the writer had no credit for it, or if it contradicts what has arrived.
    pub(crate) fn take(
        &mut self,
        first: u64,
        block: Block,
        is_last: bool,
        given: Credit,
    ) -> Result<(), Lost> {
        let count = u64::from(block.count);
        let end = first.checked_add(count).ok_or(Lost::Rules)?;
        let is_plausible =
            (count as usize) <= block.bytes.len() && (count > 0 || block.bytes.is_empty());
        if !is_plausible || end > given.items || self.total.is_some_and(|total| end > total) {
            return Err(Lost::Rules);
        }
        if is_last {
            if self.total.is_some_and(|total| total != end) || self.seen() > end {
                return Err(Lost::Rules);
            }
            self.total = Some(end);
        }
        if count == 0 || end <= self.in_order || self.early.get(&first) == Some(&block) {
            return Ok(());
        }
        let before = self.early.range(..end).next_back();
        let overlaps = before.is_some_and(|(at, early)| at + u64::from(early.count) > first);
        let bytes = block.bytes.len() as u64;
        // The last value may pass the limit, so all blocks but the last one are within it.
        let last = if first >= self.last.0 { (first, bytes) } else { self.last };
        let is_within = self.bytes + bytes - last.1 < given.bytes;
        if first < self.in_order || overlaps || !is_within {
            return Err(Lost::Rules);
        }
        self.bytes += bytes;
        self.last = last;
        self.early.insert(first, block);
        while let Some(next) = self.early.remove(&self.in_order) {
            self.in_order += u64::from(next.count);
            self.ready.push_back(next);
        }
        Ok(())
    }

    /// The number of values before the end of the last block that has arrived.
    fn seen(&self) -> u64 {
        let early = self.early.last_key_value();
        early.map_or(self.in_order, |(first, block)| first + u64::from(block.count))
    }

    /// The next values in order.
    pub(crate) fn next(&mut self) -> Option<Block> {
        self.ready.pop_front()
    }

    /// Returns true if values wait to be taken.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The number of values in order.
    pub(crate) const fn in_order(&self) -> u64 {
        self.in_order
    }

    /// Returns true if every value of the stream has arrived.
    pub(crate) fn are_complete(&self) -> bool {
        self.total == Some(self.in_order)
    }

    /// Returns true if a value is missing before one that has arrived, or before the known end.
    pub(crate) fn have_gap(&self) -> bool {
        !self.early.is_empty() || self.total.is_some_and(|total| total > self.in_order)
    }

    /// Forgets what is not in order: the stream ends there.
    pub(crate) fn forget_early(&mut self) {
        self.early.clear();
    }

    /// Forgets everything: the application takes no further value.
    pub(crate) fn forget_all(&mut self) {
        self.ready.clear();
        self.forget_early();
    }
}
