//! How loaded a silo is.

use std::sync::Arc;

use emmer_placement::load::LoadReport;

use crate::cluster::load::Measured;
use crate::hosting::catalog::Catalog;
use crate::net::Pool;

/// Measures a silo by its parts.
pub(super) struct Meter {
    pub(super) catalog: Arc<Catalog>,
    pub(super) pool: Arc<Pool>,
    /// How many activations it may have.
    pub(super) activations_max: usize,
}

impl Measured for Meter {
    fn load(&self) -> LoadReport {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let activations = self.catalog.len();
        LoadReport {
            activations: number(activations),
            busy: number(self.catalog.busy()),
            calls: self.pool.open().iter().map(|connection| connection.serving()).sum(),
            cpu: None,
            memory: None,
            overloaded: activations >= self.activations_max,
        }
    }
}
