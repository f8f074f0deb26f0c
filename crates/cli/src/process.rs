//! The threads and the clock of this process.

use std::time::SystemTime;

use emmer::tables::Timestamp;

use crate::exit::{Failure, Result};

/// The threads of every command that needs them.
///
/// # Errors
/// The system has none to give.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| Failure::other(format!("no threads to run on: {error}")))
}

/// The time by this host's clock.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(i64::try_from(now_us() / 1_000).unwrap_or(i64::MAX))
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
