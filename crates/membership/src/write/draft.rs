//! A commit in the making.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{SiloAddress, SiloEntry, SiloStatus, TableVersion, Vote};

use crate::api::TableRequest;
use crate::delta::Delta;
use crate::view::View;

/// Changes of a commit, on top of the view of one version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Draft {
    base: u64,
    rows: BTreeMap<SiloAddress, SiloEntry>,
    deletes: Vec<SiloAddress>,
    /// See [`Delta`].
    skipped: Vec<(SiloAddress, SiloAddress)>,
}

impl Draft {
    pub(super) const fn new(base: u64) -> Self {
        Self { base, rows: BTreeMap::new(), deletes: Vec::new(), skipped: Vec::new() }
    }

    /// The version that this commit replaces.
    pub(crate) const fn base_number(&self) -> u64 {
        self.base
    }

    /// The request to commit it on top of `base`.
    pub(crate) fn request(&self, base: TableVersion) -> TableRequest {
        TableRequest::Commit {
            base,
            rows: self.rows.values().cloned().collect(),
            deletes: self.deletes.clone(),
        }
    }

    /// The silos that die in this draft because a successor joins, with the successor.
    pub(crate) fn superseded(&self) -> Vec<(SiloAddress, SiloAddress)> {
        let joining = self.rows.values().filter(|row| row.status == SiloStatus::Joining);
        joining
            .flat_map(|new| {
                let old =
                    self.rows.values().filter(|old| old.address.is_succeeded_by(&new.address));
                old.map(|old| (old.address, new.address))
            })
            .collect()
    }

    /// The row of `silo` as the draft would leave it in `view`.
    pub(super) fn row<'a>(&'a self, view: &'a View, silo: &SiloAddress) -> Option<&'a SiloEntry> {
        self.rows.get(silo).or_else(|| view.get(silo).map(|row| &**row))
    }

    /// The status that it would leave to `silo` in `view`.
    pub(super) fn status(&self, view: &View, silo: &SiloAddress) -> Option<SiloStatus> {
        self.row(view, silo).map(|row| row.status)
    }

    /// Returns true if the draft changes the row of `silo`.
    pub(super) fn changes(&self, silo: &SiloAddress) -> bool {
        self.rows.contains_key(silo)
    }

    /// The rows that it changes.
    pub(super) fn rows(&self) -> impl Iterator<Item = &SiloEntry> {
        self.rows.values()
    }

    /// Number of rows that there is room for.
    pub(super) fn room(&self) -> usize {
        MEMBERSHIP_ROWS_PER_COMMIT_MAX.saturating_sub(self.rows.len() + self.deletes.len())
    }

    /// Returns true if the draft changes nothing so far.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.deletes.is_empty()
    }

    pub(super) fn put(&mut self, row: SiloEntry) {
        self.rows.insert(row.address, row);
    }

    pub(super) fn delete(&mut self, silo: SiloAddress) {
        self.deletes.push(silo);
    }

    /// Makes `row` Active, although it made no round trip with `missing`.
    pub(super) fn activate(&mut self, mut row: SiloEntry, missing: &[SiloAddress]) {
        row.status = SiloStatus::Active;
        self.skipped.extend(missing.iter().map(|other| (row.address, *other)));
        self.rows.insert(row.address, row);
    }

    /// Returns true if this draft makes Active a silo that made no round trip with `silo`.
    pub(super) fn skips(&self, silo: &SiloAddress) -> bool {
        self.skipped.iter().any(|(_, other)| other == silo)
    }

    /// Returns true if this draft makes `silo` Active.
    pub(super) fn activates(&self, silo: &SiloAddress) -> bool {
        self.rows.get(silo).is_some_and(|row| row.status == SiloStatus::Active)
    }

    /// The step that this commit was, and the view that it led to from `base`.
    pub(super) fn into_delta(self, base: &View, version: TableVersion) -> (Delta, Arc<View>) {
        let rows = self.rows.into_values().map(Arc::new).collect();
        Delta::of_commit(base, version, rows, self.deletes, self.skipped)
    }
}

/// The most votes kept in one row.
const VOTES_MAX: usize = 16;

/// Adds `vote`. It replaces an earlier vote of the same voter (one voter never counts twice), or
/// the oldest one when there are too many.
pub(super) fn add_vote(votes: &mut Vec<Vote>, vote: Vote) {
    if let Some(old) = votes.iter_mut().find(|v| v.voter == vote.voter) {
        *old = vote;
        return;
    }
    if votes.len() >= VOTES_MAX
        && let Some(oldest) = (0..votes.len()).min_by_key(|i| votes[*i].at)
    {
        votes.remove(oldest);
    }
    votes.push(vote);
}
