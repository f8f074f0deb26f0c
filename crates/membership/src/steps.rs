//! The last steps from view to view, to bring others up to date, and oneself.

use std::collections::VecDeque;
use std::sync::Arc;

use emmer_core::SiloAddress;

use crate::delta::Delta;

/// The last deltas, in order, ending with the view in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Steps(VecDeque<Arc<Delta>>);

impl Steps {
    /// The view in force is another one: `delta` later, or by an unknown way. Keeps `max` steps.
    pub(crate) fn follow(&mut self, delta: Option<&Arc<Delta>>, max: usize) {
        match delta {
            Some(delta) => {
                self.0.push_back(delta.clone());
                if self.0.len() > max {
                    self.0.pop_front();
                }
            }
            None => self.0.clear(),
        }
    }

    /// Number of steps that are kept.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The last `count` steps, in order; none when fewer are kept.
    pub(crate) fn last(&self, count: usize) -> Option<impl Iterator<Item = &Arc<Delta>>> {
        Some(self.0.range(self.0.len().checked_sub(count)?..))
    }

    /// Returns true if a silo that is Active at version `now` became so after version `before`
    /// without a round trip with `silo`; none when the steps do not reach back that far.
    pub(crate) fn skipped(&self, now: u64, before: u64, silo: &SiloAddress) -> Option<bool> {
        let missing = usize::try_from(now.checked_sub(before)?).ok()?;
        let mut skipped = self.last(missing)?.flat_map(|delta| delta.skipped());
        Some(skipped.any(|(_, other)| other == silo))
    }

    /// Returns true if the steps end with this version.
    pub(crate) fn lead_to(&self, version: u64) -> bool {
        self.0.back().is_none_or(|last| last.version() == version)
    }
}
