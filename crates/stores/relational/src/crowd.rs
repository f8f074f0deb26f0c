//! What many tasks of one process want of one row at the same moment: they queue here instead of at the server, and are
//! told here what is known here.
//!
//! In a race for one version row all but one commit of a round lose, and every loser reads the row again. At the server
//! each of these costs as much as the commit that wins. So:
//!
//! * commits whose first mutation is about the same row go one after the other ([`Crowd::lane`]);
//! * a commit that expects an etag which this process itself has just replaced has lost, with certainty and without
//!   asking: an etag never comes back ([`Crowd::has_lost`]);
//! * readers of one row who come while it is being read share the next read: it begins after each of them asked, so it is
//!   as fresh as one of their own ([`Crowd::read`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use emmer_store::{Etag, Mutation, StoredRow};
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::fault::Fault;

/// How long a replaced etag is remembered. Longer than a round of a race; much shorter than a server takes to fall back to
/// an older state (a failover, a restored backup), after which the etag would be good again.
const REMEMBERED: Duration = Duration::from_millis(250);
/// How many are remembered.
const REMEMBERED_MAX: usize = 1_024;

/// A row: table, partition, row key.
pub(crate) type RowName = (&'static str, String, String);

type Found = Result<Option<StoredRow>, Fault>;

/// One row's queue, there as long as somebody is in it.
type Queue = Arc<Turn<()>>;

#[derive(Default)]
struct Reads {
    turn: Queue,
    progress: Arc<Mutex<Progress>>,
}

/// Reads of one row are numbered; the last one's end is kept for those who waited for it.
#[derive(Default)]
struct Progress {
    begun: u64,
    ended: Option<(u64, Found)>,
}

#[derive(Default)]
struct Replaced {
    known: BTreeSet<(RowName, Etag)>,
    by_age: VecDeque<(Instant, (RowName, Etag))>,
}

/// Everybody of this process who wants something of a row.
#[derive(Default)]
pub(crate) struct Crowd {
    lanes: Mutex<BTreeMap<RowName, Queue>>,
    reads: Mutex<BTreeMap<RowName, Reads>>,
    replaced: Mutex<Replaced>,
}

/// The right to commit to a row. Dropped, it lets the next one go.
pub(crate) struct Lane<'a> {
    crowd: &'a Crowd,
    name: RowName,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        drop(self.turn.take());
        let mut lanes = lock(&self.crowd.lanes);
        // Whoever waits holds the queue too, and takes hold of it under this lock.
        if lanes.get(&self.name).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            lanes.remove(&self.name);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The etag a mutation expects.
fn expected(mutation: &Mutation) -> Option<&Etag> {
    match mutation {
        Mutation::Replace { etag, .. }
        | Mutation::Check { etag, .. }
        | Mutation::Delete { etag: Some(etag), .. } => Some(etag),
        Mutation::Insert { .. } | Mutation::Upsert { .. } | Mutation::Delete { etag: None, .. } => None,
    }
}

impl Crowd {
    /// Waits for the right to commit to the row of `first`, if `first` has a condition that others may break.
    ///
    /// # Errors
    /// `Unavailable`: not until `deadline`.
    pub(crate) async fn lane(
        &self,
        table: &'static str,
        partition: &str,
        first: &Mutation,
        deadline: Instant,
    ) -> Result<Option<Lane<'_>>, Fault> {
        if expected(first).is_none() && !matches!(first, Mutation::Insert { .. }) {
            return Ok(None);
        }
        let name = (table, partition.to_owned(), first.row_key().to_owned());
        let queue = lock(&self.lanes).entry(name.clone()).or_default().clone();
        // Made before the wait: a wait given up leaves no queue behind.
        let mut lane = Lane { crowd: self, name, turn: None };
        let turn = timeout_at(deadline, queue.lock_owned()).await;
        let late = |_| Fault::unavailable("other commits of this process to the same row take too long");
        lane.turn = Some(turn.map_err(late)?);
        Ok(Some(lane))
    }

    /// Whether the commit in `lane` expects an etag that this process has just replaced.
    pub(crate) fn has_lost(&self, lane: &Lane<'_>, first: &Mutation) -> bool {
        let mut replaced = lock(&self.replaced);
        replaced.forget(Instant::now());
        expected(first).is_some_and(|etag| replaced.known.contains(&(lane.name.clone(), etag.clone())))
    }

    /// The commit in `lane`, which began with `first`, happened.
    pub(crate) fn has_won(&self, lane: &Lane<'_>, first: &Mutation) {
        // A check leaves the etag as it is.
        let (Mutation::Replace { etag, .. } | Mutation::Delete { etag: Some(etag), .. }) = first else {
            return;
        };
        let (now, entry) = (Instant::now(), (lane.name.clone(), etag.clone()));
        let mut replaced = lock(&self.replaced);
        replaced.forget(now);
        if replaced.known.insert(entry.clone()) {
            replaced.by_age.push_back((now, entry));
        }
    }

    /// Reads a row by `read`, or shares the read of another that began after this call.
    pub(crate) async fn read<F: Future<Output = Found>>(
        &self,
        name: RowName,
        deadline: Instant,
        read: impl FnOnce() -> F,
    ) -> Found {
        let (turn, progress) = {
            let mut reads = lock(&self.reads);
            let entry = reads.entry(name.clone()).or_default();
            (entry.turn.clone(), entry.progress.clone())
        };
        let leave = Leave { crowd: self, name };
        let fresh_from = lock(&progress).begun + 1;
        let found = match timeout_at(deadline, turn.lock_owned()).await {
            Err(_) => Err(Fault::unavailable("another read of the same row takes too long")),
            Ok(_turn) => {
                let shared = lock(&progress).ended.clone().filter(|(number, _)| *number >= fresh_from);
                match shared {
                    Some((_, found)) => found,
                    None => {
                        let number = {
                            let mut progress = lock(&progress);
                            progress.begun += 1;
                            progress.begun
                        };
                        let found = read().await;
                        // Held by the map and by this reader; by more where others wait who may share it.
                        if Arc::strong_count(&progress) > 2 {
                            lock(&progress).ended = Some((number, found.clone()));
                        }
                        found
                    }
                }
            }
        };
        drop(progress);
        drop(leave);
        found
    }
}

/// Whoever reads leaves; the last one forgets the row.
struct Leave<'a> {
    crowd: &'a Crowd,
    name: RowName,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut reads = lock(&self.crowd.reads);
        if reads.get(&self.name).is_some_and(|reads| Arc::strong_count(&reads.turn) == 1) {
            reads.remove(&self.name);
        }
    }
}

impl Replaced {
    fn forget(&mut self, now: Instant) {
        while let Some((since, _)) = self.by_age.front()
            && (now.duration_since(*since) > REMEMBERED || self.by_age.len() >= REMEMBERED_MAX)
        {
            if let Some((_, entry)) = self.by_age.pop_front() {
                self.known.remove(&entry);
            }
        }
    }
}
