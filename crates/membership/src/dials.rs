//! Dials in flight, and what each of them is for.

use std::collections::BTreeMap;

use emmer_core::SiloAddress;

use crate::api::DialId;

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
    /// A dial to `silo` begins.
    pub(crate) fn begin(&mut self, purpose: Purpose, silo: SiloAddress) -> DialId {
        self.last += 1;
        let dial = DialId(self.last);
        self.under_way.insert(dial, (purpose, silo));
        dial
    }

    /// A dial ended. Returns its purpose, or None for a forgotten dial.
    pub(crate) fn end(&mut self, dial: DialId) -> Option<(Purpose, SiloAddress)> {
        self.under_way.remove(&dial)
    }

    /// Returns true if `silo` is being dialled for this purpose.
    pub(crate) fn is_under_way(&self, purpose: Purpose, silo: &SiloAddress) -> bool {
        self.under_way.values().any(|(why, other)| *why == purpose && other == silo)
    }

    /// Number of dials for this purpose.
    pub(crate) fn count(&self, purpose: Purpose) -> usize {
        self.under_way.values().filter(|(why, _)| *why == purpose).count()
    }

    /// Forgets the dial to `silo`.
    pub(crate) fn forget(&mut self, purpose: Purpose, silo: &SiloAddress) {
        self.under_way.retain(|_, (why, other)| *why != purpose || other != silo);
    }

    /// Forgets every dial for this purpose.
    pub(crate) fn forget_all(&mut self, purpose: Purpose) {
        self.under_way.retain(|_, (why, _)| *why != purpose);
    }
}
