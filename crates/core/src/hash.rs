//! The stable hash: XXH3 with 64 bits, the same on every machine and in every version.
//!
//! Rings, directory ranges and method numbers are derived from it, so its values are part of the
//! wire format. The vectors in the tests are frozen: a change of them is a protocol change.

/// The stable hash of `bytes`.
pub fn stable64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// The stable hash of `bytes` under `seed`: different seeds give independent rings.
pub fn stable64_seeded(bytes: &[u8], seed: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed)
}

/// The low half of the stable hash of a name, computed by the compiler: type and method numbers.
pub const fn name32(name: &str) -> u32 {
    let [a, b, c, d, ..] = xxhash_rust::const_xxh3::xxh3_64(name.as_bytes()).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_frozen() {
        // The first is XXH3's own published value for the empty input.
        assert_eq!(stable64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!([stable64(b"emmer"), stable64_seeded(b"emmer", 1)], VECTORS);
        assert_eq!(name32("Counter.add"), stable64(b"Counter.add") as u32);
    }

    const VECTORS: [u64; 2] = [8_634_274_474_056_484_517, 386_925_182_676_592_020];
}
