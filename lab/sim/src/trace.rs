//! The trace: one line per event when asked for, one hash over all events always.

use std::fmt;

use crate::time::VirtualTime;

/// The most lines a trace keeps; later ones are counted, not kept.
pub const TRACE_LINES_MAX: usize = 2_000_000;

/// Records what happened. Two runs with the same hash did the same things at the same times.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    /// None without a request for lines.
    lines: Option<Vec<String>>,
    dropped: u64,
}

/// Mixes `value` into `hash`: two multiplications, good enough to tell runs apart, cheap enough for
/// every event.
pub const fn mix(hash: u64, value: u64) -> u64 {
    let x = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl Trace {
    /// A trace that keeps lines when `keep_lines`.
    pub fn new(keep_lines: bool) -> Self {
        Self { lines: keep_lines.then(Vec::new), ..Self::default() }
    }

    /// Counts one event of `kind` at `at` about `a` and `b` into the hash.
    pub const fn event(&mut self, at: VirtualTime, kind: u8, a: u64, b: u64) {
        self.events += 1;
        let head = (at.as_nanos() << 8) ^ kind as u64;
        self.hash = mix(mix(self.hash, head), (a << 32) ^ b);
    }

    /// Returns true if lines are kept: format nothing when not.
    pub const fn keeps_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Adds a line about what happened at `at`.
    pub fn line(&mut self, at: VirtualTime, text: fmt::Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            if lines.len() < TRACE_LINES_MAX {
                lines.push(format!("{at:>14} {text}"));
            } else {
                self.dropped += 1;
            }
        }
    }

    /// The hash over all events so far.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of events.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The kept lines, and a last one saying how many were dropped, if any.
    pub fn into_lines(self) -> Vec<String> {
        let mut lines = self.lines.unwrap_or_default();
        if self.dropped > 0 {
            lines.push(format!("... and {} lines more", self.dropped));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_every_part_and_on_the_order() {
        let hash = |events: &[(u64, u8, u64, u64)]| {
            let mut trace = Trace::new(false);
            for &(at, kind, a, b) in events {
                trace.event(VirtualTime::from_nanos(at), kind, a, b);
            }
            trace.hash()
        };
        let base = hash(&[(1, 2, 3, 4), (5, 6, 7, 8)]);
        assert_eq!(base, hash(&[(1, 2, 3, 4), (5, 6, 7, 8)]));
        for other in [
            hash(&[(5, 6, 7, 8), (1, 2, 3, 4)]),
            hash(&[(1, 2, 3, 4)]),
            hash(&[(2, 2, 3, 4), (5, 6, 7, 8)]),
            hash(&[(1, 3, 3, 4), (5, 6, 7, 8)]),
            hash(&[(1, 2, 4, 4), (5, 6, 7, 8)]),
            hash(&[(1, 2, 3, 5), (5, 6, 7, 8)]),
        ] {
            assert_ne!(base, other);
        }
    }
}
