//! The time that an operation waits for a server that is away: the same in every store.
//!
//! *Away* is a server that cannot be reached (nothing listens, or the connection is refused or ends
//! before a request was sent) or that says it serves no requests now. Nothing was done. The
//! operation is tried again for [`AWAY_WAIT`] from its beginning, then it is
//! [`Unavailable`](crate::StoreErrorKind::Unavailable). That is long enough for a quick restart or
//! failover, and short enough for the caller. So is opening a store.
//!
//! A server that took a request and says nothing is not away: that takes the operation's whole time
//! (`timeout_ms`). Nor is one that refuses: that is reported at once.

use std::time::Duration;

use crate::contract::StoreErrorKind;

/// Time for which an operation tries to reach a server that is away.
pub const AWAY_WAIT: Duration = Duration::from_secs(1);

/// The pause between two attempts.
pub const AWAY_PAUSE: Duration = Duration::from_millis(50);

/// Returns true if to pause and try once more, after an attempt that did nothing and failed in this
/// way: `since` the operation's beginning, with `left` of its time.
pub fn is_worth_waiting(kind: StoreErrorKind, since: Duration, left: Duration) -> bool {
    kind == StoreErrorKind::Unavailable && since + AWAY_PAUSE <= AWAY_WAIT && left > AWAY_PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_is_away_is_waited_for_and_only_so_long() {
        let (ms, long) = (Duration::from_millis, Duration::from_secs(60));
        let worth = |since, left| is_worth_waiting(StoreErrorKind::Unavailable, since, left);
        assert!(worth(ms(0), long) && worth(ms(950), long));
        assert!(!worth(ms(951), long) && !worth(ms(4_000), long));
        assert!(!worth(ms(0), ms(50)), "the time of the operation comes first");
        assert!(!is_worth_waiting(StoreErrorKind::Refused, ms(0), long));
    }
}
