//! Facts that every part of the directory may read, and none may change.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::ring::Ring;
use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};

use crate::api::Config;
use crate::ranges::RangeSet;
use crate::silos::{Change, Silos};

/// The longest time for which another owner is believed that a silo fades.
const TOLD_MAX: Duration = Duration::from_secs(600);

/// One clock runs faster than another by at most one part in this many, with room to spare
/// (`docs/membership.md`).
const CLOCK_RATE_PART: u32 = 25;

/// Knowledge of a silo's directory. The machine changes it between the calls of its parts.
#[derive(Debug)]
pub(crate) struct Facts {
    me: SiloAddress,
    config: Config,
    now: Instant,
    /// The version of the installed view; 0: none yet.
    version: u64,
    silos: Silos,
    ring: Ring,
    /// The ranges that this silo owns by the installed view.
    owned: RangeSet,
    /// Silos that are Dead and may still run turns, and until when: no silo is granted one of their
    /// grains before (invariant I8).
    fading: BTreeMap<SiloAddress, Instant>,
}

impl Facts {
    pub(crate) fn new(me: SiloAddress, config: Config, now: Instant) -> Self {
        Self {
            me,
            now,
            version: 0,
            silos: Silos::default(),
            ring: Ring::with_points([], 0, config.points_per_silo),
            owned: RangeSet::default(),
            fading: BTreeMap::new(),
            config,
        }
    }

    /// The silo of this directory.
    pub(crate) const fn me(&self) -> SiloAddress {
        self.me
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// The time of the input that is being handled.
    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// The version of the installed view; 0 before the first.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The silos of the installed view.
    pub(crate) const fn silos(&self) -> &Silos {
        &self.silos
    }

    /// The owners of all ranges by the installed view.
    pub(crate) const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Ranges that this silo owns by the installed view, locked or not.
    pub(crate) const fn owned(&self) -> &RangeSet {
        &self.owned
    }

    /// The owner of `grain` by the installed view; none when no silo is Active.
    pub(crate) fn owner_of(&self, grain: &GrainId) -> Option<SiloAddress> {
        self.ring.owner(grain.stable_hash())
    }

    /// Returns true if `silo` may host activations by the installed view: Active, or leaving and
    /// not yet Dead.
    pub(crate) fn is_host(&self, silo: &SiloAddress) -> bool {
        self.silos.is_host(silo)
    }

    // ---- the dead that may still run turns
    // --------------------------------------------------------------------------

    /// The silos that fade, and until when.
    pub(crate) const fn fading(&self) -> &BTreeMap<SiloAddress, Instant> {
        &self.fading
    }

    /// Returns true if `silo` is Dead and may still run turns.
    pub(crate) fn fades(&self, silo: &SiloAddress) -> bool {
        self.fading.contains_key(silo)
    }

    /// Returns true if registrations of `silo` are kept: it hosts grains, or fades.
    pub(crate) fn keeps(&self, silo: &SiloAddress) -> bool {
        self.is_host(silo) || self.fades(silo)
    }

    /// From when on no silo that is Dead by now can run turns.
    pub(crate) fn all_faded(&self) -> Instant {
        self.fading.values().copied().fold(self.now, Instant::max)
    }

    // ---- what the machine alone changes
    // -----------------------------------------------------------------------------

    /// An input has come at this time.
    pub(crate) const fn pass(&mut self, now: Instant) {
        self.now = now;
    }

    /// Takes the silos of the view `version`. Returns what became of each that is different.
    pub(crate) fn see(&mut self, version: u64, silos: &[(SiloAddress, SiloStatus)]) -> Vec<Change> {
        let silos = Silos::new(silos);
        let changes = self.silos.changes(&silos);
        self.version = version;
        self.silos = silos;
        changes
    }

    /// The ring follows the silos that became Active or ceased to be. Returns what this silo owned
    /// before.
    pub(crate) fn change_ring(&mut self, changes: &[Change]) -> RangeSet {
        let all = |which: fn(&Change) -> bool| -> Vec<SiloAddress> {
            changes.iter().filter(|change| which(change)).map(Change::silo).collect()
        };
        self.ring.change(&all(Change::left_the_ring), &all(Change::joined_the_ring));
        std::mem::replace(&mut self.owned, RangeSet::owned(&self.ring, self.me))
    }

    /// This silo is out: it owns nothing.
    pub(crate) fn close(&mut self) {
        self.owned = RangeSet::default();
        self.fading.clear();
    }

    /// Takes what a view's news say about the dead. Whatever was said before stays true. Returns
    /// when each of them has faded.
    pub(crate) fn note_fading(&mut self, fading: &[(SiloAddress, Instant)]) -> Vec<Instant> {
        let now = self.now;
        let noted = fading.iter().filter(|(_, until)| *until > now).map(|(silo, until)| {
            let known = self.fading.entry(*silo).or_insert(*until);
            *known = (*known).max(*until);
            *known
        });
        noted.collect()
    }

    /// Notes another owner's times of dead silos that it had entries of. This silo's own knowledge
    /// comes first; a silo that it knows as a host will die in a later view. Returns the times at
    /// which each of them has faded.
    pub(crate) fn note_told_fading(&mut self, fading: &[(SiloAddress, u64)]) -> Vec<Instant> {
        let mut noted = Vec::new();
        for (silo, millis) in fading {
            if !self.keeps(silo) {
                // The other one's clock may run faster.
                let span = Duration::from_millis(*millis).min(TOLD_MAX);
                let until = self.now + span + span / CLOCK_RATE_PART;
                noted.extend(self.note_fading(&[(*silo, until)]));
            }
        }
        noted
    }

    /// The time has come for some to have faded.
    pub(crate) fn forget_faded(&mut self) {
        let now = self.now;
        self.fading.retain(|_, until| *until > now);
    }
}
