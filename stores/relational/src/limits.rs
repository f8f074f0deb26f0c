//! The limits that every store's URL may set.

use std::time::Duration;

use emmer_store::Parameters;

/// The connections a store opens at most, when the URL does not say.
const POOL_MAX: usize = 8;

/// Sizes that a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once (`pool_max=`).
    pub pool_max: usize,
    /// Longest time of an operation, connecting and waiting for locks included (`timeout_ms=`).
    /// Waiting for one of the pool's connections may take as long again.
    pub timeout: Duration,
}

impl Limits {
    /// The limits that the parameters of a URL set.
    pub fn of(parameters: &Parameters) -> Self {
        let pool_max = parameters.number("pool_max").unwrap_or(POOL_MAX);
        Self { pool_max, timeout: parameters.timeout() }
    }

    /// Time for which the server works on one request, waiting for locks included. Shorter than an
    /// operation's, so that the server ends it and says that nothing was changed.
    pub fn statement_timeout(&self) -> Duration {
        self.timeout * 5 / 6
    }
}
