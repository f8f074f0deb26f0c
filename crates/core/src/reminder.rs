//! A reminder: a name that a grain gave to times at which it wants to be called, kept in a table.
//!
//! Occurrences have numbers, from 1. Occurrences that were missed while no silo could fire them are
//! made up for as [`MissedPolicy`] says.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::{GrainId, Timestamp};

/// The longest name of a reminder, in bytes.
pub const REMINDER_NAME_BYTES_MAX: usize = 128;

/// The last time at which anything can be due, the end of the year 9999: no store and no calendar
/// has trouble with it.
pub const REMINDER_TIME_MAX: Timestamp = Timestamp::from_millis(253_402_300_799_999);

/// The number of parts that the ring of hashes is cut into for reminders. A part is owned as a
/// whole.
pub const REMINDER_BUCKETS: u16 = 1 << 12;

/// The policy for occurrences that were missed while no silo could fire them.
///
/// An occurrence is late after a minute, or after the period where that is shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedPolicy {
    /// They are left out: the next tick is the next occurrence that is not late.
    Skip,
    /// The last of them is delivered, late, in place of all.
    #[default]
    Once,
    /// Each is delivered, in order; of more than a thousand the last thousand.
    All,
}

impl MissedPolicy {
    /// The name, as the table has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "Skip",
            Self::Once => "Once",
            Self::All => "All",
        }
    }
}

impl fmt::Display for MissedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy for missed occurrences: expected Skip, Once or All")]
pub struct ParseMissedError(String);

impl FromStr for MissedPolicy {
    type Err = ParseMissedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Skip, Self::Once, Self::All]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| ParseMissedError(text.chars().take(80).collect()))
    }
}

/// Due times of a reminder: once, or again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// The time of the first occurrence.
    pub start: Timestamp,
    /// The time between two; none for a reminder that is due once. At least a millisecond.
    pub period: Option<Duration>,
    /// No occurrence is later than this.
    pub end: Option<Timestamp>,
}

impl Schedule {
    fn period_millis(&self) -> Option<i64> {
        self.period.map(|period| i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1))
    }

    /// The time of an occurrence; none when there is no such occurrence.
    pub fn time_of(&self, number: u64) -> Option<Timestamp> {
        let steps = i64::try_from(number.checked_sub(1)?).ok()?;
        let at = match self.period_millis() {
            None if steps > 0 => return None,
            None => self.start,
            Some(period) => {
                let offset = steps.checked_mul(period)?;
                Timestamp::from_millis(self.start.as_millis().checked_add(offset)?)
            }
        };
        (at <= REMINDER_TIME_MAX && self.end.is_none_or(|end| at <= end)).then_some(at)
    }

    /// The number of the last occurrence that is due at `now`; 0 when none is.
    pub fn last_due(&self, now: Timestamp) -> u64 {
        let now = now.min(REMINDER_TIME_MAX);
        let until = self.end.map_or(now, |end| end.min(now));
        if until < self.start {
            return 0;
        }
        let Some(period) = self.period_millis() else { return 1 };
        let passed = until.as_millis().saturating_sub(self.start.as_millis()) / period;
        u64::try_from(passed).unwrap_or(0) + 1
    }
}

/// A reminder as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reminder {
    /// Whose.
    pub grain: GrainId,
    /// The name of the grain's type.
    pub grain_type: Arc<str>,
    /// Its name, unique among the grain's.
    pub name: Arc<str>,
    /// Due times.
    pub schedule: Schedule,
    /// The policy for missed occurrences.
    pub missed: MissedPolicy,
    /// The number of the last occurrence that is settled: delivered, or given up. 0 before the
    /// first.
    pub fired: u64,
    /// Time at which a tick was last delivered.
    pub last_fired: Option<Timestamp>,
    /// The number of occurrences that were missed, or given up, so far.
    pub missed_count: u64,
}

impl Reminder {
    /// The next unsettled occurrence and its time; None when none is left.
    pub fn next(&self) -> Option<(u64, Timestamp)> {
        let number = self.fired.checked_add(1)?;
        Some((number, self.schedule.time_of(number)?))
    }

    /// The hash of its grain, as the table has it.
    pub fn hash(&self) -> u32 {
        hash_of(&self.grain)
    }

    /// The part of the ring it is in.
    pub fn bucket(&self) -> u16 {
        bucket_of(self.hash())
    }
}

/// The hash of a grain, as the reminders table has it: the upper half of its stable hash.
pub const fn hash_of(grain: &GrainId) -> u32 {
    (grain.stable_hash() >> 32) as u32
}

/// The part of the ring that a hash is in.
pub const fn bucket_of(hash: u32) -> u16 {
    (hash >> 20) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn occurrences_are_counted_from_the_start_without_drift() {
        let hourly = Schedule { start: at(500), period: Some(Duration::from_secs(1)), end: None };
        for (now, due) in [(0, 0), (499, 0), (500, 1), (1_499, 1), (1_500, 2), (10_500, 11)] {
            assert_eq!(hourly.last_due(at(now)), due, "{now}");
        }
        assert_eq!(hourly.time_of(0), None);
        assert_eq!(hourly.time_of(1), Some(at(500)));
        assert_eq!(hourly.time_of(1_000_001), Some(at(500 + 1_000_000_000)));
        assert_eq!(hourly.time_of(u64::MAX), None);
        let last = hourly.last_due(at(i64::MAX));
        assert_eq!(last, (REMINDER_TIME_MAX.as_millis() as u64 - 500) / 1_000 + 1);
        assert!(hourly.time_of(last).is_some() && hourly.time_of(last + 1).is_none());
    }

    #[test]
    fn nothing_is_due_after_the_end() {
        let some =
            Schedule { start: at(0), period: Some(Duration::from_millis(10)), end: Some(at(25)) };
        assert_eq!(
            (some.last_due(at(1_000)), some.time_of(3), some.time_of(4)),
            (3, Some(at(20)), None)
        );
        let once = Schedule { period: None, ..some };
        assert_eq!((once.last_due(at(1_000)), once.time_of(2)), (1, None));
        let never = Schedule { end: Some(at(-1)), ..some };
        assert_eq!((never.last_due(at(1_000)), never.time_of(1)), (0, None));
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [MissedPolicy::Skip, MissedPolicy::Once, MissedPolicy::All] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("once".parse::<MissedPolicy>().is_err());
    }

    #[test]
    fn every_hash_is_in_a_bucket() {
        assert_eq!((bucket_of(0), bucket_of(u32::MAX)), (0, REMINDER_BUCKETS - 1));
    }
}
