//! The judgement at the end of a world.

use std::collections::BTreeSet;
use std::time::Duration;

use emmer_core::reminder::MissedPolicy;
use emmer_core::{Reminder, Timestamp};

use super::world::{BEGIN, FAULTS, SETTLE, WINDOW, World};

impl World {
    /// Every occurrence of every reminder is accounted for.
    pub(super) fn judge(&self) {
        let seed = self.seed;
        let calm = FAULTS + SETTLE;
        for life in &self.lives {
            let mut covered = BTreeSet::new();
            for (number, missed, _) in &life.delivered {
                covered.extend(number - missed..=*number);
            }
            // A tick that was under way when it ended need not come.
            let until = match life.ended {
                None => self.wall() - Duration::from_secs(2),
                Some(_) => Timestamp::from_millis(0),
            };
            let last = life.schedule.last_due(until);
            let skips = life.missed == MissedPolicy::Skip;
            // A skipped end shows in no later tick.
            let is_over = life.schedule.time_of(last + 1).is_none();
            let told = covered.last().copied().unwrap_or(0);
            for number in 1..=last {
                let late_end = skips && is_over && number > told;
                assert!(
                    covered.contains(&number) || late_end,
                    "seed {seed}: occurrence {number} of {last} is lost: {life:?}",
                );
            }
            // After the faults each comes in time, as itself, and once.
            let calm_from = Timestamp::from_millis(BEGIN + calm as i64);
            let is_calm = |number: u64| {
                let due = life.schedule.time_of(number);
                life.ended.is_none() && due.is_some_and(|due| due >= calm_from)
            };
            for number in (1..=last).filter(|number| is_calm(*number)) {
                let times: Vec<_> =
                    life.delivered.iter().filter(|(n, ..)| *n == number).map(|d| d.2).collect();
                let due = life.schedule.time_of(number).unwrap().as_millis() - BEGIN;
                assert!(
                    times.len() == 1 && times[0] as i64 - due <= 1_000,
                    "seed {seed}: occurrence {number}, due at {due}, came at {times:?}: {life:?}",
                );
            }
            // All of them are delivered, if none was given up.
            if life.missed == MissedPolicy::All && life.failed.is_empty() {
                let each: BTreeSet<_> = life.delivered.iter().map(|(n, ..)| *n).collect();
                assert!((1..=last).all(|n| each.contains(&n)), "seed {seed}: {life:?}");
            }
        }
        for (reminder, _, life) in self.table.values() {
            let life = &self.lives[*life];
            let last = life.delivered.iter().map(|(number, ..)| *number).max().unwrap_or(0);
            let old = self.wall() - Duration::from_secs(2);
            let waits = reminder.schedule.time_of(last).is_some_and(|due| due > old);
            assert!(reminder.fired == last || waits, "seed {seed}: {reminder:?} {life:?}");
            let over = reminder.next().is_none_or(|(_, due)| due <= old);
            assert!(!over, "seed {seed}: a reminder that is over, or late, stays: {reminder:?}");
            let numbers: BTreeSet<_> = life.delivered.iter().map(|(number, ..)| *number).collect();
            let came = numbers.range(..=reminder.fired).count() as u64;
            assert!(
                reminder.missed_count + came >= reminder.fired,
                "seed {seed}: occurrences neither came nor count as missed: {reminder:?} {life:?}"
            );
        }
        let soon = |reminder: &Reminder| {
            reminder.next().is_some_and(|(_, due)| due <= self.wall() + WINDOW)
        };
        let wanted = self.table.values().filter(|(reminder, ..)| soon(reminder)).count() as u64;
        let alive = self.silos.iter().filter(|silo| silo.is_alive);
        let kept: u64 = alive.map(|silo| silo.machine.statistics().in_memory).sum();
        // Answers on their way may say that rows are gone.
        let wanted = wanted + self.under_way();
        assert!(kept <= wanted, "seed {seed}: {kept} in memory, {wanted} are due soon");
    }
}
