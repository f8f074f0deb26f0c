//! Rare situations that the protocol handles. What no run ever reaches, no run tests.

use std::collections::BTreeMap;

/// How often each situation came up in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sometimes(BTreeMap<&'static str, u64>);

impl Sometimes {
    /// `what` came up.
    pub fn reach(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// How often each situation came up.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(what, times)| (*what, *times))
    }

    /// Adds what another run reached.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in other.iter() {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Whether `what` came up at all.
    pub fn reached(&self, what: &str) -> bool {
        self.0.contains_key(what)
    }
}
