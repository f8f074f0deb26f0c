//! What a silo is told of placement before it starts.

use emmer_placement::{Director, PlacementTable, Strategy};

use super::StartError;

/// The application's own directors, by the names of their strategies, and the strategy of classes that name none.
#[derive(Default)]
pub(super) struct Directors {
    pub(super) named: Vec<(String, Box<dyn Director>)>,
    pub(super) default: Strategy,
}

impl Directors {
    /// Whether there is a director for each grain type, which come with the strategies of their classes.
    ///
    /// # Errors
    /// [`StartError::NoDirector`].
    pub(super) fn check<'a>(
        &self,
        hosted: impl Iterator<Item = (&'static str, Option<&'a Strategy>)>,
    ) -> Result<(), StartError> {
        for (grain_type, strategy) in hosted {
            let Strategy::Custom(custom) = strategy.unwrap_or(&self.default) else { continue };
            if !self.named.iter().any(|(name, _)| name == custom.name()) {
                return Err(StartError::NoDirector { grain_type, strategy: custom.name().to_owned() });
            }
        }
        Ok(())
    }

    /// The table of a silo whose random choices grow from `seed`.
    pub(super) fn table(self, seed: u64) -> PlacementTable {
        let mut table = PlacementTable::new(seed);
        table.set_default_strategy(self.default);
        for (name, director) in self.named {
            table.register(name, director);
        }
        table
    }
}
