//! The stores that have the states of a silo's grains.

use std::collections::BTreeMap;

use emmer_store::state::StateTable;

/// Name of the store for states that name none, where the application gives one.
pub(crate) const DEFAULT: &str = "default";

/// The stores of states, by name.
pub(crate) struct States {
    usual: StateTable,
    named: BTreeMap<String, StateTable>,
}

impl States {
    /// `system` is the silo's system store; one of the others may be the default of states.
    pub(crate) fn new(system: StateTable, mut named: BTreeMap<String, StateTable>) -> Self {
        let usual = named.remove(DEFAULT).unwrap_or(system);
        Self { usual, named }
    }

    /// The states in a store, or in the usual one; none if there is no such store.
    pub(crate) fn of(&self, store: Option<&str>) -> Option<&StateTable> {
        match store {
            None | Some(DEFAULT) => Some(&self.usual),
            Some(name) => self.named.get(name),
        }
    }
}
