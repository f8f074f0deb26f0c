//! What many tasks of one process want of one row at the same moment: they queue here instead of at the server, and are
//! told here what is known here.
//!
//! In a race for one version row all but one commit of a round lose, and every loser reads the row again. At the server
//! each of these costs as much as the commit that wins. So:
//!
//! * commits whose first mutation is about the same row go one after the other ([`Crowd::lane`]);
//! * a commit that expects an etag which this process itself has just replaced has lost, with certainty and without
//!   asking: an etag never comes back ([`Turned::Lost`]);
//! * readers of one row who come while it is being read share the next read: it begins after each of them asked, so it is
//!   as fresh as one of their own ([`Crowd::read`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use emmer_store::{Etag, Mutation, StoredRow};
use tokio::sync::{Mutex as Turn, Notify, OwnedMutexGuard};
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

/// Those who want to commit to one row; there as long as somebody does.
#[derive(Clone, Default)]
struct Queue {
    turn: Arc<Turn<()>>,
    /// Somebody won: those who expect what is replaced need not wait for their turn.
    won: Arc<Notify>,
}

/// Those who read one row; there as long as somebody does.
#[derive(Clone, Default)]
struct Reads {
    turn: Arc<Turn<()>>,
    progress: Arc<Mutex<Progress>>,
    /// A read ended.
    ended: Arc<Notify>,
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

/// A place in the queue of those who commit to a row. Dropped, it lets the next one go.
pub(crate) struct Lane<'a> {
    crowd: &'a Crowd,
    name: RowName,
    queue: Queue,
    turn: Option<OwnedMutexGuard<()>>,
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        drop(self.turn.take());
        let mut lanes = lock(&self.crowd.lanes);
        // Held by the map, by this and by nobody else: others take hold of it under this lock.
        if Arc::strong_count(&self.queue.won) == 2 {
            lanes.remove(&self.name);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of waiting for a turn.
pub(crate) enum Turned<'a> {
    /// There is nothing to wait for.
    Free,
    /// It is this commit's turn.
    First(Lane<'a>),
    /// Its first condition does not hold any more.
    Lost,
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
    /// Waits for the right to commit to the row of `first`, if `first` has a condition that others may break; none if
    /// it has not. [`Turned::Lost`] when this process has just replaced what `first` expects.
    ///
    /// # Errors
    /// `Unavailable`: not until `deadline`.
    pub(crate) async fn lane(
        &self,
        table: &'static str,
        partition: &str,
        first: &Mutation,
        deadline: Instant,
    ) -> Result<Turned<'_>, Fault> {
        if expected(first).is_none() && !matches!(first, Mutation::Insert { .. }) {
            return Ok(Turned::Free);
        }
        let name = (table, partition.to_owned(), first.row_key().to_owned());
        let queue = lock(&self.lanes).entry(name.clone()).or_default().clone();
        let mut lane = Lane { crowd: self, name, queue, turn: None };
        let (turn, won) = (lane.queue.turn.clone(), lane.queue.won.clone());
        let either = async {
            tokio::select! {
                biased;
                () = until(&won, || self.has_lost(&lane.name, first).then_some(())) => None,
                turn = turn.lock_owned() => Some(turn),
            }
        };
        let late = |_| Fault::unavailable("other commits of this process to the same row take too long");
        lane.turn = timeout_at(deadline, either).await.map_err(late)?;
        // Its last holder may have won.
        if lane.turn.is_none() || self.has_lost(&lane.name, first) {
            return Ok(Turned::Lost);
        }
        Ok(Turned::First(lane))
    }

    fn has_lost(&self, name: &RowName, first: &Mutation) -> bool {
        let Some(etag) = expected(first) else { return false };
        let mut replaced = lock(&self.replaced);
        replaced.forget(Instant::now());
        !replaced.known.is_empty() && replaced.known.contains(&(name.clone(), etag.clone()))
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
        drop(replaced);
        lane.queue.won.notify_waiters();
    }

    /// Reads a row by `read`, or shares the read of another that began after this call.
    pub(crate) async fn read<F: Future<Output = Found>>(
        &self,
        name: RowName,
        deadline: Instant,
        read: impl FnOnce() -> F,
    ) -> Found {
        let reads = lock(&self.reads).entry(name.clone()).or_default().clone();
        let leave = Leave { crowd: self, name, reads };
        let reads = &leave.reads;
        let fresh_from = lock(&reads.progress).begun + 1;
        let shared = || {
            let progress = lock(&reads.progress);
            progress
                .ended
                .as_ref()
                .filter(|(number, _)| *number >= fresh_from)
                .map(|(_, found)| found.clone())
        };
        let either = async {
            tokio::select! {
                biased;
                found = until(&reads.ended, shared) => Err(found),
                turn = reads.turn.lock() => Ok(turn),
            }
        };
        let late = |_| Fault::unavailable("another read of the same row takes too long");
        let turn = match timeout_at(deadline, either).await.map_err(late)? {
            Err(found) => return found,
            Ok(turn) => turn,
        };
        if let Some(found) = shared() {
            return found;
        }
        let number = {
            let mut progress = lock(&reads.progress);
            progress.begun += 1;
            progress.begun
        };
        let found = read().await;
        // Held by the map and by this reader; by more where others wait, who may share it.
        if Arc::strong_count(&reads.ended) > 2 {
            lock(&reads.progress).ended = Some((number, found.clone()));
            reads.ended.notify_waiters();
        }
        drop(turn);
        found
    }
}

/// Waits until `look` finds something. It looks now and whenever there is `news`.
async fn until<T>(news: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        let mut told = std::pin::pin!(news.notified());
        // From here on no news is missed.
        told.as_mut().enable();
        if let Some(found) = look() {
            return found;
        }
        told.await;
    }
}

/// Whoever reads leaves; the last one forgets the row.
struct Leave<'a> {
    crowd: &'a Crowd,
    name: RowName,
    reads: Reads,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.crowd.reads);
        // Held by the map, by this and by nobody else: others take hold of it under this lock.
        if Arc::strong_count(&self.reads.ended) == 2 {
            all.remove(&self.name);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use emmer_store::Row;

    use super::*;

    fn replace(etag: &str) -> Mutation {
        Mutation::Replace { row: Row::new("r"), etag: etag.into() }
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[tokio::test(start_paused = true)]
    async fn commits_of_one_row_queue_and_losers_are_told() {
        let crowd = Crowd::default();
        let (a, b) = (replace("a"), replace("b"));
        let Turned::First(first) = crowd.lane("t", "p", &a, far()).await.unwrap() else { panic!("no turn") };
        // Another row's, and one without a condition, do not wait.
        let other = Mutation::Delete { row_key: "s".to_owned(), etag: Some("a".into()) };
        assert!(matches!(crowd.lane("t", "p", &other, far()).await.unwrap(), Turned::First(_)));
        assert!(matches!(
            crowd.lane("t", "p", &Mutation::Upsert { row: Row::new("r") }, far()).await.unwrap(),
            Turned::Free
        ));
        // Nobody waits for ever.
        let soon = Instant::now() + Duration::from_millis(10);
        assert!(crowd.lane("t", "p", &b, soon).await.is_err());
        let waiting = async { crowd.lane("t", "p", &a, far()).await.unwrap() };
        let winning = async {
            tokio::task::yield_now().await;
            crowd.has_won(&first, &a);
        };
        // Told while the turn is still another's.
        let (turned, ()) = tokio::join!(waiting, winning);
        assert!(matches!(turned, Turned::Lost));
        drop(first);
        assert!(matches!(crowd.lane("t", "p", &b, far()).await.unwrap(), Turned::First(_)));
        assert!(matches!(crowd.lane("t", "p", &a, far()).await.unwrap(), Turned::Lost));
        // Forgotten soon: the server may have gone back.
        tokio::time::advance(REMEMBERED * 2).await;
        assert!(matches!(crowd.lane("t", "p", &a, far()).await.unwrap(), Turned::First(_)));
        assert!(lock(&crowd.lanes).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn readers_share_a_read_that_began_after_they_asked() {
        let crowd = Crowd::default();
        let (reads, moment) = (AtomicU64::new(0), AtomicU64::new(0));
        let one = || async {
            let asked_at = moment.load(Ordering::Relaxed);
            let read = || async {
                reads.fetch_add(1, Ordering::Relaxed);
                let began_at = moment.load(Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
                let etag: Etag = began_at.to_string().into();
                Ok(Some(StoredRow { row: Row::new("r"), etag }))
            };
            let name = ("t", "p".to_owned(), "r".to_owned());
            let found = crowd.read(name, far(), read).await.unwrap().unwrap();
            assert!(found.etag.parse::<u64>().unwrap() >= asked_at, "older than the question");
        };
        let later = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            moment.store(1, Ordering::Relaxed);
            tokio::join!(one(), one(), one(), one());
        };
        tokio::join!(one(), later);
        assert_eq!(reads.load(Ordering::Relaxed), 2, "one for the first, one for all the others");
        // A reader who gives up leaves the turn to the next.
        {
            let name = ("t", "p".to_owned(), "r".to_owned());
            let stuck = crowd.read(name, far(), std::future::pending);
            assert!(tokio::time::timeout(Duration::from_millis(1), stuck).await.is_err());
        }
        one().await;
        assert!(lock(&crowd.reads).is_empty());
    }
}
