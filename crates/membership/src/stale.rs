//! When the rows are read to see which of them are stale.

use emmer_core::Now;

use crate::inner::Read;
use crate::membership::Membership;
use crate::timers::Timer;

impl Membership {
    /// Reads the table now and then while votes do not suffice: perhaps those who could vote are
    /// stale.
    pub(crate) fn look_for_staleness(&mut self, now: Now) {
        if self.detect.suspects_any(&self.facts) || self.write.has_votes() {
            self.read_for_staleness(now);
        }
    }

    /// Has the rows read, unless they were lately: as often as a silo touches its own.
    pub(crate) fn read_for_staleness(&mut self, now: Now) {
        let period = self.facts.publish_period();
        let due = self.facts.rows().read_at().map_or(now.mono, |at| at + period);
        if now.mono >= due {
            self.table.want(Read::All);
        }
        if !self.facts.config().fence_timeout.is_zero() {
            let next = if now.mono >= due { now.mono + period } else { due };
            self.out.timers().set(Timer::Stale, next);
        }
    }
}
