//! The step from one view to the next, and the tree it travels down (improvement 6).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion};
use serde::{Deserialize, Serialize};

use crate::compact;
use crate::view::{View, is_on_rings};

/// Changes of a commit: everything that turns the view of version `n - 1` into the view of version
/// `n`.
///
/// The digest of the resulting view travels along. A silo whose result differs does not install it.
#[derive(Serialize, Deserialize)]
pub struct Delta {
    /// The new version row.
    #[serde(rename = "t")]
    table: TableVersion,
    /// Rows inserted or replaced.
    #[serde(rename = "r", with = "compact::rows")]
    rows: Vec<Arc<SiloEntry>>,
    /// Rows deleted.
    #[serde(rename = "x", default, skip_serializing_if = "Vec::is_empty")]
    deletes: Vec<SiloAddress>,
    /// Pairs without a round trip: the first became Active although the second, Joining, did not
    /// answer it.
    #[serde(rename = "k", default, skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<(SiloAddress, SiloAddress)>,
    /// The digest of the view that results.
    #[serde(rename = "g")]
    digest: u64,
}

/// The delta does not lead anywhere from the view it was applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The view already has this version or a later one.
    Old,
    /// A version between the view and the delta is missing.
    Gap,
    /// The result is not what the committer had: the view was wrong.
    Digest,
}

impl Delta {
    /// The step that a commit on top of `base` made, and the view it led to.
    pub(crate) fn of_commit(
        base: &View,
        table: TableVersion,
        rows: Vec<Arc<SiloEntry>>,
        deletes: Vec<SiloAddress>,
        skipped: Vec<(SiloAddress, SiloAddress)>,
    ) -> (Self, Arc<View>) {
        let view = Arc::new(base.next(table.clone(), &rows, &deletes));
        let digest = view.digest();
        (Self { table, rows, deletes, skipped, digest }, view)
    }

    /// The version that results.
    pub const fn version(&self) -> u64 {
        self.table.number
    }

    /// The version row that results.
    pub(crate) const fn table(&self) -> &TableVersion {
        &self.table
    }

    /// The rows that it inserts or replaces.
    pub(crate) fn rows(&self) -> &[Arc<SiloEntry>] {
        &self.rows
    }

    /// Pairs without a round trip: the first becomes Active although the second, Joining, did not
    /// answer it.
    pub(crate) fn skipped(&self) -> &[(SiloAddress, SiloAddress)] {
        &self.skipped
    }

    /// The digest of the view that results.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Number of rows that it changes.
    pub const fn len(&self) -> usize {
        self.rows.len() + self.deletes.len()
    }

    /// Returns true if it changes no row.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The view that follows `base`.
    pub(crate) fn apply(&self, base: &View) -> Result<View, Misfit> {
        if self.version() <= base.version() {
            return Err(Misfit::Old);
        }
        if self.version() != base.version() + 1 {
            return Err(Misfit::Gap);
        }
        let view = base.next(self.table.clone(), &self.rows, &self.deletes);
        if view.digest() == self.digest { Ok(view) } else { Err(Misfit::Digest) }
    }
}

/// The order in which a view is passed on: the silo at place `i` sends to those at
/// `i * f + 1 ..= i * f + f`.
///
/// First the root and the others in ring order, then Joining silos: they may have no view yet, and
/// silos below them would wait. Last the silos that this commit inserted or declared dead, which
/// cannot pass the view on.
pub(crate) struct Tree {
    /// Positions in the view, by place.
    order: Box<[u32]>,
    /// Places, by position in the view.
    place: Box<[u32]>,
}

const NOWHERE: u32 = u32::MAX;

impl Tree {
    /// The tree that starts at `root` over `view`, the view that `delta` led to.
    pub(crate) fn new(delta: &Delta, view: &View, root: &SiloAddress) -> Self {
        let ring = view.ring(0);
        let root = view.position(root);
        let start = root.and_then(|at| ring.iter().position(|(_, p)| *p as usize == at));
        // A silo that commits its own death is no longer on a ring, and begins all the same.
        let leaver = root.filter(|_| start.is_none()).and_then(|at| u32::try_from(at).ok());
        let start = start.unwrap_or(0);
        let mut last: Vec<u32> = delta
            .rows
            .iter()
            .filter(|row| matches!(row.status, SiloStatus::Joining | SiloStatus::Dead))
            .filter(|row| row.status == SiloStatus::Dead || row.votes.is_empty())
            .filter_map(|row| view.position(&row.address))
            .filter_map(|at| u32::try_from(at).ok())
            .collect();
        last.sort_unstable();
        let on_ring = ring[start..].iter().chain(&ring[..start]).map(|(_, at)| *at);
        let on_ring = on_ring.filter(|at| last.binary_search(at).is_err());
        let joins = |at: &u32| view.status_at(*at) == SiloStatus::Joining;
        let (joining, others): (Vec<u32>, Vec<u32>) = on_ring.partition(joins);
        let first = joining.first().copied().filter(|at| root == Some(*at as usize));
        let mut order: Vec<u32> = leaver.into_iter().chain(first).chain(others).collect();
        order.extend(joining.iter().filter(|at| Some(**at) != first));
        order.extend(last.iter().filter(|at| Some(**at) != leaver));
        let mut place = vec![NOWHERE; view.len()];
        for (i, at) in (0u32..).zip(&order) {
            place[*at as usize] = i;
        }
        Self { order: order.into(), place: place.into() }
    }

    /// Whom `silo` passes it on to.
    pub(crate) fn children<'a>(
        &'a self,
        view: &'a View,
        silo: &SiloAddress,
        fan_out: usize,
    ) -> impl Iterator<Item = &'a Arc<SiloEntry>> {
        let mine = view
            .position(silo)
            .filter(|at| self.place[*at] == 0 || is_on_rings(view.members()[*at].status))
            .map(|at| self.place[at])
            .filter(|place| *place != NOWHERE);
        let range = mine.map_or(0..0, |place| {
            let first = (place as usize).saturating_mul(fan_out) + 1;
            first.min(self.order.len())..(first + fan_out).min(self.order.len())
        });
        self.order[range].iter().map(|at| &view.members()[*at as usize])
    }
}

impl PartialEq for Delta {
    fn eq(&self, other: &Self) -> bool {
        (&self.table, &self.rows, &self.deletes, self.digest)
            == (&other.table, &other.rows, &other.deletes, other.digest)
    }
}

impl Eq for Delta {}

impl Hash for Delta {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.table, self.digest).hash(state);
    }
}

impl fmt::Debug for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.rows.iter().map(|row| (row.address, row.status)).collect();
        f.debug_struct("Delta")
            .field("version", &self.version())
            .field("rows", &rows)
            .field("deletes", &self.deletes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::Timestamp;

    use super::*;
    use crate::snapshot::TableSnapshot;
    use crate::world::address;

    #[test]
    fn those_who_join_come_after_all_others_in_the_tree_unless_one_is_its_root() {
        let status =
            |i: u16| if i.is_multiple_of(3) { SiloStatus::Active } else { SiloStatus::Joining };
        let row = |i: u16| SiloEntry::new(address(1_000 + i, 1), status(i), Timestamp::default());
        let version = TableVersion { number: 8, etag: "8".into(), ..TableVersion::default() };
        let snapshot = TableSnapshot { version: version.clone(), rows: (0..30).map(row).collect() };
        let view = View::from_snapshot(&snapshot);
        let before = View::from_snapshot(&TableSnapshot {
            version: TableVersion { number: 7, etag: "7".into(), ..TableVersion::default() },
            rows: snapshot.rows,
        });
        let (delta, _) = Delta::of_commit(&before, version, Vec::new(), Vec::new(), Vec::new());
        for root in [address(1_000, 1), address(1_001, 1)] {
            let tree = Tree::new(&delta, &view, &root);
            let order: Vec<_> = tree.order.iter().map(|at| &view.members()[*at as usize]).collect();
            assert_eq!((order.len(), order[0].address), (30, root));
            let statuses = order[1..].iter().map(|row| row.status);
            assert!(
                statuses
                    .clone()
                    .skip_while(|s| *s == SiloStatus::Active)
                    .all(|s| s == SiloStatus::Joining)
            );
            assert!(statuses.filter(|s| *s == SiloStatus::Active).count() >= 9);
        }
    }
}
