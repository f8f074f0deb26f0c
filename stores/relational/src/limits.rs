//! The two limits that every store's URL may set, and the parts of a URL that the drivers of
//! several servers lack.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The connections a store opens at most, when the URL does not say (`pool_max=`).
const POOL_MAX: usize = 8;
/// The most an operator may ask for.
const POOL_MAX_LIMIT: usize = 64;
/// How long an operation takes at most, connecting and waiting for locks included, when the URL
/// does not say (`timeout_ms=`).
const OPERATION_TIMEOUT: Duration = Duration::from_millis(4_800);
/// What an operator may ask for.
const OPERATION_TIMEOUT_MS: RangeInclusive<u64> = 1_000..=60_000;

/// How much a store takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at once (`pool_max=`).
    pub pool_max: usize,
    /// How long an operation takes at most, connecting and waiting for locks included
    /// (`timeout_ms=`).
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pool_max: POOL_MAX, timeout: OPERATION_TIMEOUT }
    }
}

impl Limits {
    /// Takes a parameter of a URL, if it is one of these. Whether it was.
    ///
    /// # Errors
    /// In words: the value is out of range.
    pub fn take(&mut self, key: &str, value: &str) -> Result<bool, &'static str> {
        match key {
            "pool_max" => {
                let parsed = value.parse().ok().filter(|n| (1..=POOL_MAX_LIMIT).contains(n));
                self.pool_max = parsed.ok_or("pool_max is not a number from 1 to 64")?;
            }
            "timeout_ms" => {
                let parsed = value.parse().ok().filter(|ms| OPERATION_TIMEOUT_MS.contains(ms));
                let parsed = parsed.ok_or("timeout_ms is not a number from 1000 to 60000")?;
                self.timeout = Duration::from_millis(parsed);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How long the server works on one request, waiting for locks included. Shorter than an
    /// operation may take, so that it is the server that ends it, which tells that nothing was
    /// changed.
    pub fn statement_timeout(&self) -> Duration {
        self.timeout * 5 / 6
    }
}
