//! Dials in flight, and what each of them is for.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Now, SiloAddress};

use crate::api::{DialId, DialOutcome, Effect};
use crate::membership::Membership;

/// Why a silo is dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    /// A probed silo missed a probe, or a connection to it broke.
    Hint,
    /// A joiner misses its answer.
    Join,
    /// A predecessor on one `ip:port`, or a monitor of it, may be gone.
    Eviction,
    /// A joiner asked to be dialled at its address.
    Reach,
}

/// The dials whose outcome is awaited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Dials {
    last: u64,
    under_way: BTreeMap<DialId, (Purpose, SiloAddress)>,
}

impl Dials {
    const fn new_id(&mut self) -> DialId {
        self.last += 1;
        DialId(self.last)
    }

    /// Whether `silo` is being dialled for this purpose.
    pub(crate) fn is_under_way(&self, purpose: Purpose, silo: &SiloAddress) -> bool {
        self.under_way.values().any(|(why, other)| *why == purpose && other == silo)
    }

    /// How many dials there are for this purpose.
    pub(crate) fn count(&self, purpose: Purpose) -> usize {
        self.under_way.values().filter(|(why, _)| *why == purpose).count()
    }

    /// Nobody awaits the dial to `silo` any more.
    pub(crate) fn forget(&mut self, purpose: Purpose, silo: &SiloAddress) {
        self.under_way.retain(|_, (why, other)| *why != purpose || other != silo);
    }

    /// Nobody awaits any dial for this purpose any more.
    pub(crate) fn forget_all(&mut self, purpose: Purpose) {
        self.under_way.retain(|_, (why, _)| *why != purpose);
    }
}

impl Membership {
    /// Dials `silo`, on a fresh connection.
    pub(crate) fn dial(&mut self, silo: SiloAddress, purpose: Purpose, timeout: Duration) {
        let dial = self.dials.new_id();
        self.dials.under_way.insert(dial, (purpose, silo));
        self.counters.dials += 1;
        self.effects.push_back(Effect::Dial { dial, to: silo, timeout });
    }

    /// A dial ended. One that was forgotten says nothing.
    pub(crate) fn on_dial(&mut self, now: Now, dial: DialId, outcome: DialOutcome) {
        let Some((purpose, silo)) = self.dials.under_way.remove(&dial) else { return };
        match purpose {
            Purpose::Hint => self.hint_dialled(now, silo, outcome),
            Purpose::Join => self.join_dialled(now, silo, outcome),
            Purpose::Eviction => self.eviction_dialled(now, silo, outcome),
            Purpose::Reach => self.reach_dialled(silo, outcome),
        }
    }
}
