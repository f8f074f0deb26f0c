//! The ages of activations, without a byte in any of them: their numbers rise, so a few notes of
//! which number came when say how old each is.

use std::collections::VecDeque;
use std::time::Duration;

use emmer_core::Instant;
use parking_lot::Mutex;

/// Number of notes. When there are more, every second one of the older half goes.
const NOTES_MAX: usize = 4_096;

/// Notes of which number came when.
#[derive(Default)]
pub(crate) struct Ages(Mutex<VecDeque<(u64, Instant)>>);

impl Ages {
    /// Notes that the next activation has the number `next`.
    pub(crate) fn note(&self, next: u64, now: Instant) {
        let mut notes = self.0.lock();
        // Of a time without an activation the first and the last moment are kept.
        let same = notes.iter().rev().take_while(|(last, _)| *last == next).count();
        if same >= 2
            && let Some((_, last)) = notes.back_mut()
        {
            *last = now;
            return;
        }
        notes.push_back((next, now));
        if notes.len() > NOTES_MAX {
            let mut at = 0;
            notes.retain(|_| {
                at += 1;
                at > NOTES_MAX / 2 || at % 2 == 1
            });
        }
    }

    /// The age of the activation of this number, exact to the time between two notes. None without
    /// a note.
    pub(crate) fn of(&self, number: u64, now: Instant) -> Option<Duration> {
        let notes = self.0.lock();
        let later = notes.partition_point(|(next, _)| *next <= number);
        // It came before the first note that has a later number; the newest after the last note.
        let (_, made) = notes.get(later).or_else(|| notes.back())?;
        Some(now.saturating_since(*made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_and_ages_stay_about_right() {
        let ages = Ages::default();
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        assert_eq!(ages.of(1, at(0)), None);
        for second in 0..20_000 {
            ages.note(1 + second * 3, at(second));
        }
        assert!(ages.0.lock().len() <= NOTES_MAX + 1);
        let now = at(20_000);
        for number in (1..60_000).step_by(97) {
            let real = Duration::from_secs(20_000) - Duration::from_secs((number - 1) / 3);
            let told = ages.of(number, now).unwrap();
            assert!(told <= real && told >= real.mul_f64(0.5) - Duration::from_secs(2), "{number}");
        }
        assert_eq!(ages.of(59_997, now), Some(Duration::from_secs(1)));
        // An hour in which nothing comes, and then one.
        (20_000..23_600).for_each(|second| ages.note(60_000, at(second)));
        assert_eq!(ages.of(60_000, at(23_600)), Some(Duration::from_secs(1)));
        assert_eq!(ages.of(59_999, at(23_600)), Some(Duration::from_secs(3_600)));
    }
}
