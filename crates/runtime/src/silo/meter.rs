//! The load of a silo.

use std::sync::Arc;

use emmer_core::Instant;
use emmer_net::clock::Clock;
use emmer_net::transport::Pool;
use emmer_placement::load::LoadReport;
use parking_lot::Mutex;

use crate::calls::shedding::Shedding;
use crate::cluster::load::Measured;
use crate::hosting::Shortage;
use crate::hosting::catalog::Catalog;
use crate::metrics::resources::{InUse, Resources};

/// The part of its limit of activations, in percent, from which on other silos are preferred.
const NEARLY_FULL_PERCENT: usize = 95;

/// A silo with a lower limit fills up.
const SMALL: usize = 1_000;

/// Measures a silo by its parts.
pub(super) struct Meter {
    catalog: Arc<Catalog>,
    pool: Arc<Pool>,
    /// Number of activations that it may have.
    activations_max: usize,
    shedding: Arc<Shedding>,
    shortage: Arc<Shortage>,
    /// None where nothing is known of the machine.
    resources: Option<Mutex<Resources>>,
}

impl Meter {
    /// In a virtual world nothing is known of the machine: a run must not depend on it.
    pub(super) fn new(
        (catalog, pool, shortage): (Arc<Catalog>, Arc<Pool>, Arc<Shortage>),
        activations_max: usize,
        shedding: Arc<Shedding>,
        clock: &Clock,
    ) -> Self {
        let resources = if clock.is_virtual() { None } else { Resources::new() };
        let resources = resources.map(Mutex::new);
        Self { catalog, pool, activations_max, shedding, shortage, resources }
    }
}

impl Meter {
    /// Number of activations from which on other silos are preferred.
    const fn nearly_full(&self) -> usize {
        if self.activations_max < SMALL {
            return self.activations_max;
        }
        self.activations_max / 100 * NEARLY_FULL_PERCENT
    }
}

impl Measured for Meter {
    fn load(&self, now: Instant) -> LoadReport {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let activations = self.catalog.len();
        let resources = self.resources.as_ref();
        let InUse { cpu, memory } =
            resources.map_or_else(InUse::default, |resources| resources.lock().read(now));
        LoadReport {
            activations: number(activations),
            busy: number(self.catalog.busy()),
            calls: self.pool.open().iter().map(|connection| connection.serving()).sum(),
            cpu,
            memory,
            overloaded: activations >= self.nearly_full()
                || self.shortage.is_hard()
                || self.shedding.sheds(),
        }
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.resources.as_ref()?.lock().memory_bytes()
    }
}
