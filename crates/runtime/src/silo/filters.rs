//! The filters that a silo is given.

use std::any::TypeId;
use std::collections::HashMap;

use super::builder::SiloBuilder;
use crate::filters::{Filter, Filters};
use crate::grain::Grain;

/// The filters of a silo, before it starts.
#[derive(Default)]
pub(super) struct SiloFilters {
    pub(super) outgoing: Filters,
    incoming: Filters,
    by_class: HashMap<TypeId, Filters>,
}

impl SiloFilters {
    /// The filters around the methods of a class: the silo's, and inside of them its own.
    pub(super) fn of(&self, class: TypeId) -> Filters {
        let mut all = self.incoming.clone();
        if let Some(own) = self.by_class.get(&class) {
            all.extend(own);
        }
        all
    }
}

impl SiloBuilder {
    /// A [`Filter`] around each call that grains of this silo get, in the grain's own turn. The
    /// first one is outermost. Timers and reminders are no calls.
    #[must_use]
    pub fn filter_incoming(mut self, filter: impl Filter) -> Self {
        self.filters.incoming.add(filter);
        self
    }

    /// As [`filter_incoming`](Self::filter_incoming), for grains of class `G` alone, inside of the
    /// filters for all.
    #[must_use]
    pub fn filter_class<G: Grain>(mut self, filter: impl Filter) -> Self {
        self.filters.by_class.entry(TypeId::of::<G>()).or_default().add(filter);
        self
    }

    /// A [`Filter`] around each call that is made on this silo, by its grains and by the
    /// application, wherever the called grain is. The first one is outermost.
    #[must_use]
    pub fn filter_outgoing(mut self, filter: impl Filter) -> Self {
        self.filters.outgoing.add(filter);
        self
    }
}
