//! What a seed means.

use emmer_core::rng::SeededRng;

/// How a world is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Silos at the start.
    pub silos: usize,
    /// Grains that are called.
    pub grains: u64,
    /// Calls from outside.
    pub calls: u64,
    /// For how many virtual seconds calls are made.
    pub seconds: u64,
    /// How likely a grain's own code makes trouble, wherever it can.
    pub trouble: f64,
    /// How many faults happen to silos, network and store.
    pub faults: u64,
    /// Whether the network is noisy: late, lossy, in pieces.
    pub is_noisy: bool,
    /// Whether the limits of queues and calls under way are so small that they are met.
    pub is_tight: bool,
    /// Whether the profile `fast` is used.
    pub is_fast: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed ^ 0x5e1d_0f3a);
        let mut pick = |of: &[u64]| of[rng.index(of.len())];
        let silos = pick(&[1, 2, 3, 3, 3, 3, 4, 5]);
        let faults = pick(&[0, 1, 4, 8, 16]);
        Self {
            seed,
            silos: usize::try_from(silos).unwrap_or(1),
            grains: pick(&[3, 20, 200, 2_000]),
            calls: pick(&[2_000, 10_000, 18_000]),
            seconds: 60,
            trouble: [0.0, 0.002, 0.02][rng.index(3)],
            faults,
            is_noisy: rng.chance(0.4),
            is_tight: rng.chance(0.2),
            is_fast: rng.chance(0.3),
        }
    }
}
