//! Etags that never come back.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use emmer_store::Etag;

/// Makes etags on the client's side: 64 bits from a random start. So the database needs no counter,
/// which writers would queue for, and which may go back after a failover.
///
/// One maker repeats none in 2^64; two makers collide with the chance of guessing a 64-bit number.
#[derive(Debug)]
pub struct Etags {
    next: AtomicU64,
}

impl Etags {
    /// A maker that starts at `seed`, which must be random.
    pub const fn new(seed: u64) -> Self {
        Self { next: AtomicU64::new(seed) }
    }

    /// An etag no commit ever had.
    pub fn next(&self) -> i64 {
        spread(self.next.fetch_add(1, Ordering::Relaxed)).cast_signed()
    }
}

/// A one-to-one map of the 64-bit numbers (the finalizer of splitmix64): makers whose counters are
/// close at different times get distant etags.
const fn spread(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A random number: every such hasher begins with random keys.
pub fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// An etag as the contract shows it.
pub fn text(etag: i64) -> Etag {
    etag.to_string().into()
}

/// An etag as the server stores it; None for a text that is not an etag of a relational store. The
/// text must be the one spelling of its number: an etag is equal only to itself.
pub fn number(etag: &str) -> Option<i64> {
    etag.parse().ok().filter(|n: &i64| n.to_string() == etag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_maker_repeats_none_and_runs_over_the_end() {
        let etags = Etags::new(u64::MAX - 5_000);
        let made: BTreeSet<i64> = (0..10_000).map(|_| etags.next()).collect();
        assert_eq!(made.len(), 10_000);
    }

    #[test]
    fn only_one_spelling_is_an_etag() {
        for n in [0, 1, -1, i64::MIN, i64::MAX] {
            assert_eq!(number(&text(n)), Some(n));
        }
        for other in ["", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(number(other), None, "{other:?}");
        }
    }
}
