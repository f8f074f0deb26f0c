//! What a silo is told of placement before it starts.

use emmer_placement::{Director, PlacementTable, Strategy};

use super::StartError;
use crate::hosting::Classes;

/// The application's own directors, by the names of their strategies, and the strategy of classes
/// that name none.
#[derive(Default)]
pub(super) struct Directors {
    pub(super) named: Vec<(String, Box<dyn Director>)>,
    pub(super) default: Strategy,
}

impl Directors {
    /// Whether there is a director for each class.
    ///
    /// # Errors
    /// [`StartError::NoDirector`], with the first grain type that lacks one.
    pub(super) fn check(&self, classes: &Classes) -> Result<(), StartError> {
        let lacking = classes.values().filter_map(|class| {
            let Strategy::Custom(custom) =
                class.placement().unwrap_or_else(|| self.default.clone())
            else {
                return None;
            };
            let is_known = self.named.iter().any(|(name, _)| name == custom.name());
            (!is_known).then(|| (class.name(), custom.name().to_owned()))
        });
        match lacking.min() {
            Some((grain_type, strategy)) => Err(StartError::NoDirector { grain_type, strategy }),
            None => Ok(()),
        }
    }

    /// The table of a silo whose random choices grow from `seed`, and which draws so many silos
    /// for placement by the number of activations.
    pub(super) fn table(self, seed: u64, activation_count_choices: usize) -> PlacementTable {
        let mut table = PlacementTable::new(seed);
        table.set_activation_count_choices(activation_count_choices);
        table.set_default_strategy(self.default);
        for (name, director) in self.named {
            table.register(name, director);
        }
        table
    }
}
