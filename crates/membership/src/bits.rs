//! A set of positions in a view.
//!
//! A silo that joins thousands of others keeps a bit for each of them instead of its address: a
//! tenth of a tree's memory, and none of its cache misses.

/// Positions from 0 up to the size given at its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// An empty set for positions below `size`.
    pub(crate) fn new(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)], count: 0 }
    }

    const fn bit(at: usize) -> u64 {
        1 << (at % 64)
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        self.words.get(at / 64).is_some_and(|word| word & Self::bit(at) != 0)
    }

    /// Adds `at`; whether it was new. A position beyond the size is not taken.
    pub(crate) fn insert(&mut self, at: usize) -> bool {
        let Some(word) = self.words.get_mut(at / 64).filter(|word| **word & Self::bit(at) == 0)
        else {
            return false;
        };
        *word |= Self::bit(at);
        self.count += 1;
        true
    }

    /// Takes `at` out; whether it was in.
    pub(crate) fn remove(&mut self, at: usize) -> bool {
        let Some(word) = self.words.get_mut(at / 64).filter(|word| **word & Self::bit(at) != 0)
        else {
            return false;
        };
        *word &= !Self::bit(at);
        self.count -= 1;
        true
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The positions, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(i, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Bits;

    #[test]
    fn holds_what_was_put_in_and_counts_it_once() {
        let mut bits = Bits::new(130);
        assert!(bits.is_empty());
        for at in [129, 0, 63, 64] {
            assert!(bits.insert(at));
            assert!(!bits.insert(at));
        }
        assert!(!bits.insert(192), "beyond the last word");
        assert_eq!(bits.iter().collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(bits.remove(63));
        assert!(!bits.remove(63));
        assert!(!bits.remove(1_000));
        assert_eq!((bits.iter().count(), bits.contains(64), bits.contains(63)), (3, true, false));
    }
}
