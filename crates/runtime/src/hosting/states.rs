//! The stores that have the states of a silo's grains.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_store::state::{StateKind, StateTable};
use parking_lot::RwLock;

/// The states of a class, by their stores and names, once they have been asked for.
#[derive(Default)]
pub(super) struct StateKinds(RwLock<Vec<(StateName, Arc<StateKind>)>>);

/// Name of the store of a state, if it names one, and its own name.
type StateName = (Option<&'static str>, &'static str);

impl StateKinds {
    /// The state of this name; `make` makes it the first time.
    pub(super) fn of(
        &self,
        name: StateName,
        make: impl FnOnce() -> Option<Arc<StateKind>>,
    ) -> Option<Arc<StateKind>> {
        let find = |kinds: &[(StateName, Arc<StateKind>)]| {
            kinds.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind.clone())
        };
        let known = find(&self.0.read());
        if known.is_some() {
            return known;
        }
        let kind = make()?;
        let mut kinds = self.0.write();
        // Another thread may have been faster.
        Some(find(&kinds).unwrap_or_else(|| {
            kinds.push((name, kind.clone()));
            kind
        }))
    }
}

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
