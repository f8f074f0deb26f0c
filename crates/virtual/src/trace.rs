//! The events of a run, as one number.

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash over everything that happened, in order. Two runs with equal hashes did the same
/// things.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<(u64, u64)>);

impl Trace {
    /// Takes in one event: its name, its time (in nanoseconds of the world), and its values.
    pub(crate) fn event(&self, what: &str, at: u64, detail: &[u8]) {
        let mut trace = self.0.lock();
        let hash = xxh3_64_with_seed(what.as_bytes(), trace.0 ^ at);
        *trace = (xxh3_64_with_seed(detail, hash), trace.1 + 1);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.lock().0
    }

    pub(crate) fn events(&self) -> u64 {
        self.0.lock().1
    }
}
