//! The placement directors that a silo gets before it starts.

use std::sync::Arc;

use emmer_placement::{AsyncDirector, Director, PlacementTable, Strategy};

use super::start_error::StartError;
use crate::hosting::Classes;

/// The application's own directors, by the names of their strategies, and the strategy of classes
/// that name none.
#[derive(Default)]
pub(super) struct Directors {
    named: Vec<(String, Own)>,
    pub(super) default: Strategy,
}

/// A director of the application's own.
enum Own {
    Now(Box<dyn Director>),
    Later(Arc<dyn AsyncDirector>),
}

impl Directors {
    pub(super) fn add(&mut self, name: String, director: impl Director + 'static) {
        self.named.push((name, Own::Now(Box::new(director))));
    }

    pub(super) fn add_later(&mut self, name: String, director: impl AsyncDirector + 'static) {
        self.named.push((name, Own::Later(Arc::new(director))));
    }

    /// Returns true if there is a director for each class.
    ///
    /// # Errors
    /// [`StartError::NoDirector`], with the first grain type that lacks one.
    pub(super) fn check(&self, classes: &Classes) -> Result<(), StartError> {
        let lacking = classes.values().filter_map(|class| {
            let strategy = class.placement().strategy.as_ref().unwrap_or(&self.default);
            let Strategy::Custom(custom) = strategy else { return None };
            let is_known = self.named.iter().any(|(name, _)| name == custom.name());
            (!is_known).then(|| (class.name(), custom.name().to_owned()))
        });
        match lacking.min() {
            Some((grain_type, strategy)) => Err(StartError::NoDirector { grain_type, strategy }),
            None => Ok(()),
        }
    }

    /// The table of a silo whose random choices grow from `seed`, and which draws
    /// `activation_count` silos for placement by the number of activations.
    pub(super) fn table(self, seed: u64, activation_count_choices: usize) -> PlacementTable {
        let mut table = PlacementTable::new(seed);
        table.set_activation_count_choices(activation_count_choices);
        table.set_default_strategy(self.default);
        for (name, director) in self.named {
            match director {
                Own::Now(director) => table.register(name, director),
                Own::Later(director) => table.register_later(name, director),
            }
        }
        table
    }
}
