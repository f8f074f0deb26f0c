//! The position of a silo's row in a view, by its address.
//!
//! Every message makes its receiver look its sender up, often more than once. In a view of
//! thousands of silos a binary search reads a dozen places that are far from each other; this index
//! reads two.

use emmer_core::SiloAddress;

/// Maximum addresses for which a binary search is as quick as the index.
const SEARCHED_MAX: usize = 32;

/// A hash table of positions: open addressing, half full at most.
pub(crate) struct Index {
    /// A power of two slots; [`FREE`] in empty ones.
    slots: Box<[u32]>,
}

const FREE: u32 = u32::MAX;

impl Index {
    /// The index of `addresses`, which are sorted and all different; none of a few.
    pub(crate) fn of(addresses: &[SiloAddress]) -> Option<Self> {
        if addresses.len() <= SEARCHED_MAX {
            return None;
        }
        let size = (addresses.len() * 2).next_power_of_two();
        let mut slots = vec![FREE; size].into_boxed_slice();
        for (position, silo) in (0u32..).zip(addresses) {
            let mut at = hash(silo) & (size - 1);
            while slots[at] != FREE {
                at = (at + 1) & (size - 1);
            }
            slots[at] = position;
        }
        Some(Self { slots })
    }

    /// The position of `silo` in `addresses`, those that the index was made of.
    pub(crate) fn position(&self, addresses: &[SiloAddress], silo: &SiloAddress) -> Option<usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash(silo) & mask;
        // At least half of the slots are free, so this ends.
        loop {
            let position = self.slots[at] as usize;
            let found = addresses.get(position)?;
            if found == silo {
                return Some(position);
            }
            at = (at + 1) & mask;
        }
    }
}

/// Spreads addresses that differ in a few bits. Nothing but the place in the index depends on it.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is mixed in before")]
const fn hash(silo: &SiloAddress) -> usize {
    let ip = silo.ip_v6().to_bits();
    let mut mixed =
        (ip as u64) ^ ((ip >> 64) as u64).rotate_left(32) ^ ((silo.port() as u64) << 40);
    mixed = (mixed ^ silo.epoch().rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed ^ (mixed >> 32)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_binary_search_finds() {
        for count in [0, 1, SEARCHED_MAX, SEARCHED_MAX + 1, 64, 65, 3_000] {
            let silo = |i: usize| {
                format!("10.0.{}.{}:11111:{}", i / 200, i % 200, 7 + i % 3).parse().unwrap()
            };
            let mut addresses: Vec<SiloAddress> = (0..count).map(silo).collect();
            addresses.sort_unstable();
            let Some(index) = Index::of(&addresses) else {
                assert!(count <= SEARCHED_MAX);
                continue;
            };
            for (at, silo) in addresses.iter().enumerate() {
                assert_eq!(index.position(&addresses, silo), Some(at));
                let later = SiloAddress::new(silo.endpoint(), silo.epoch() + 100);
                assert_eq!(index.position(&addresses, &later), None);
            }
        }
    }
}
