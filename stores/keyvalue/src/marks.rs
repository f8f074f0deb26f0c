//! Texts that never come back.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes marks on the client's side, e.g. `9f3c2a17d00b4e55.17`: 64 random bits of the maker and a
/// counter. So there is no counter on the server that a failover which lost commits would set back.
///
/// One maker repeats none; two makers collide with the chance of guessing a 64-bit number.
#[derive(Debug)]
pub struct Marks {
    maker: u64,
    next: AtomicU64,
}

impl Marks {
    /// A maker with a random name.
    pub fn random() -> Self {
        Self { maker: random(), next: AtomicU64::new(1) }
    }

    /// A mark that was never used.
    pub fn next(&self) -> String {
        format!("{:016x}.{}", self.maker, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// 64 random bits.
pub fn random() -> u64 {
    let (a, b) = uuid::Uuid::new_v4().as_u64_pair();
    // Six bits of a random UUID are fixed, at different places in its halves.
    a ^ b.rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ() {
        let (a, b) = (Marks::random(), Marks::random());
        let mut all = [a.next(), a.next(), b.next(), b.next()];
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    }
}
