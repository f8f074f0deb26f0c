//! Silos that are Dead and may still run turns, because they do not know it yet: nobody is granted
//! one of their grains before they have faded (invariant I8).

use std::time::Duration;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::directory::Directory;
use crate::pending::Timer;
use crate::ranges::RangeSet;

/// The longest time for which another owner is believed that somebody fades.
const TOLD_MAX: Duration = Duration::from_secs(600);

/// One clock runs faster than another by one part in so many at most, with room to spare
/// (`docs/membership.md`).
const CLOCK_RATE_PART: u32 = 25;

impl Directory {
    /// Takes what a view's news say about the dead. Whatever was said before stays true.
    pub(crate) fn note_fading(&mut self, now: Instant, fading: &[(SiloAddress, Instant)]) {
        for (silo, until) in fading.iter().filter(|(_, until)| *until > now) {
            let known = self.fading.entry(*silo).or_insert(*until);
            *known = (*known).max(*until);
            self.timers.insert((*known, Timer::Fading));
        }
    }

    /// What another owner says about the dead it had entries of. This silo's own knowledge goes
    /// first; one that it knows as a host it will see die.
    pub(crate) fn note_told_fading(&mut self, now: Instant, fading: &[(SiloAddress, u64)]) {
        for (silo, millis) in fading {
            if !self.is_host(silo) && !self.fading.contains_key(silo) {
                // The other one's clock may run faster.
                let span = Duration::from_millis(*millis).min(TOLD_MAX);
                self.note_fading(now, &[(*silo, now + span + span / CLOCK_RATE_PART)]);
            }
        }
    }

    /// From when on no silo that is Dead by now can run turns.
    pub(crate) fn all_faded(&self, now: Instant) -> Instant {
        self.fading.values().copied().fold(now, Instant::max)
    }

    /// Somebody has faded: what was registered for it goes, and what waited for it is served.
    pub(crate) fn fading_due(&mut self, now: Instant) {
        self.fading.retain(|_, until| *until > now);
        self.keep_entries(None);
        self.finish_recoveries(now);
        self.settle_own();
    }

    /// Drops registrations outside of `ranges`, and those of silos that neither host grains nor
    /// fade.
    pub(crate) fn keep_entries(&mut self, ranges: Option<&RangeSet>) {
        let (silos, fading) = (&self.silos, &self.fading);
        let keep = |silo: &SiloAddress| silos.is_host(silo) || fading.contains_key(silo);
        if ranges.is_some() || self.entries.names_silo_not(keep) {
            self.entries.retain(|hash| ranges.is_none_or(|ranges| ranges.contains(hash)), keep);
        }
    }

    /// Whether `grain` is registered here for a silo that is Dead and may still run turns. Nothing
    /// but a removal is served for it until that is over.
    pub fn is_fading(&self, grain: &GrainId) -> bool {
        !self.fading.is_empty()
            && self.entries.get(grain).is_some_and(|held| self.fading.contains_key(&held.silo))
    }
}
