//! I2: the views a silo puts in force have strictly growing versions, and each equals the table's
//! history at that version.

use std::collections::BTreeMap;

use emmer_membership::View;

use crate::invariants::{Facts, Violation};
use crate::table::row_hash;

/// In large clusters one in this many views is compared row by row, the others by their digest.
const FULL_EVERY: u64 = 64;

/// The digest of each version, as the first view that was compared row by row carried it.
#[derive(Debug)]
pub(super) struct Views {
    thorough: bool,
    digests: BTreeMap<u64, (u64, usize)>,
    looked: u64,
}

impl Views {
    pub(super) const fn new(thorough: bool) -> Self {
        Self { thorough, digests: BTreeMap::new(), looked: 0 }
    }

    /// Looks at a view as it is put in force.
    pub(super) fn check(
        &mut self,
        facts: &Facts<'_>,
        number: u32,
        view: &View,
        previous: u64,
    ) -> Result<(), Violation> {
        let version = view.version();
        let who = facts.processes[number as usize].address;
        if version <= previous {
            let what = format!("{who} went from version {previous} to {version}");
            return Err(facts.violated("I2", what));
        }
        let Some(content) = facts.table.content_at(version) else {
            let newest = facts.table.version().number;
            let what = format!("{who} installed version {version}, the table is at {newest}");
            return Err(facts.violated("I2", what));
        };
        self.looked += 1;
        let known = self.digests.get(&version).copied();
        let full = self.thorough || known.is_none() || self.looked.is_multiple_of(FULL_EVERY);
        if full {
            let seen = view.members().iter().fold(0u64, |sum, row| sum.wrapping_add(row_hash(row)));
            if seen != content {
                let what = format!(
                    "{who} installed a version {version} that the table never was: {view:?}"
                );
                return Err(facts.violated("I2", what));
            }
        }
        let carried = (view.digest(), view.len());
        let first = *self.digests.entry(version).or_insert(carried);
        if first != carried {
            let what = format!("{who} installed another version {version} than others did");
            return Err(facts.violated("I2", what));
        }
        Ok(())
    }
}
