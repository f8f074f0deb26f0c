//! The changes of the membership that this silo has committed, until they are recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use emmer_core::{SiloAddress, SiloEntry, Timestamp};
use emmer_membership::changes::{Change, What, change};
use emmer_membership::{TableRequest, View};
use emmer_store::history::Recorded;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The most changes that wait to be recorded: while the store is away, the oldest ones are dropped.
const WAITING_MAX: usize = 1_000;

/// Changes that wait to be recorded.
#[derive(Default)]
pub(crate) struct History {
    waiting: Mutex<Vec<Recorded>>,
    more: Notify,
}

impl History {
    /// This silo has committed `version` with these changes.
    pub(crate) fn committed(
        &self,
        (writer, at): (SiloAddress, Timestamp),
        version: u64,
        changes: &[Change],
    ) {
        let writer: Arc<str> = writer.to_string().into();
        let recorded = (0..).zip(changes).map(|(number, Change { silo, what })| Recorded {
            version,
            number,
            at,
            writer: writer.clone(),
            silo: silo.address.to_string().into(),
            name: silo.instance_name.clone(),
            host: silo.host_name.clone(),
            change: what.word().into(),
            evidence: what.evidence().into_iter().map(Into::into).collect(),
        });
        let mut waiting = self.waiting.lock();
        waiting.extend(recorded);
        let too_many = waiting.len().saturating_sub(WAITING_MAX);
        waiting.drain(..too_many);
        drop(waiting);
        self.more.notify_one();
    }

    /// An operator has acted on this silo.
    pub(crate) fn acted(&self, act: Recorded) {
        let mut waiting = self.waiting.lock();
        waiting.push(act);
        let too_many = waiting.len().saturating_sub(WAITING_MAX);
        waiting.drain(..too_many);
        drop(waiting);
        self.more.notify_one();
    }

    /// Waits until there is something to record.
    pub(crate) async fn more(&self) {
        self.more.notified().await;
    }

    /// The changes that wait, oldest first.
    pub(crate) fn waiting(&self) -> Vec<Recorded> {
        self.waiting.lock().clone()
    }

    /// These are recorded.
    pub(crate) fn recorded(&self, all: &[Recorded]) {
        let key = |one: &Recorded| (one.version, one.number);
        let all: BTreeSet<_> = all.iter().map(key).collect();
        self.waiting.lock().retain(|one| !all.contains(&key(one)));
    }
}

/// The changes that a request would make to a view; none if it is no commit.
pub(super) fn changes_of(request: &TableRequest, before: &View) -> Vec<Change> {
    let TableRequest::Commit { rows, deletes, .. } = request else { return Vec::new() };
    let later = |row: &SiloEntry| {
        let known = before.successor_of(&row.address).map(|later| later.address);
        let new = rows.iter().map(|other| other.address);
        let new = new.filter(|other| {
            other.same_endpoint(&row.address) && other.epoch() > row.address.epoch()
        });
        known.into_iter().chain(new).max()
    };
    let written = rows.iter().filter_map(|row| {
        let known = before.get(&row.address).map(|known| &**known);
        change(known, &Arc::new(row.clone()), later(row))
    });
    let removed = deletes
        .iter()
        .filter_map(|silo| before.get(silo))
        .map(|silo| Change { silo: silo.clone(), what: What::Removed });
    written.chain(removed).collect()
}

#[cfg(test)]
mod tests {
    use emmer_core::SiloStatus;

    use super::*;

    #[test]
    fn a_thousand_changes_wait_and_the_oldest_are_dropped() {
        let history = History::default();
        let me: SiloAddress = "10.0.0.1:1:7".parse().unwrap();
        let silo = SiloEntry::new(me, SiloStatus::Active, Timestamp::from_millis(0));
        let change = Change { silo: Arc::new(silo), what: What::Joined };
        for version in 1..=600 {
            let two = [change.clone(), change.clone()];
            history.committed((me, Timestamp::from_millis(0)), version, &two);
        }
        let waiting = history.waiting();
        assert_eq!((waiting.len(), waiting[0].version), (WAITING_MAX, 101));
        // One more comes while they are being written.
        history.committed((me, Timestamp::from_millis(0)), 601, &[change]);
        history.recorded(&waiting);
        let left = history.waiting();
        assert_eq!((left.len(), left[0].version), (1, 601));
    }
}
