//! The threads SQLite works on: one writer, which puts commits that wait together into one
//! transaction, and readers.

use std::time::{Duration, Instant};

use emmer_store::{Failure, Fault};
use rusqlite::ErrorCode;
use tokio::sync::{mpsc, oneshot};

use crate::fault::Failed;
use crate::session::Session;

/// The most requests waiting for one thread; more callers wait with theirs.
pub(crate) const QUEUE_MAX: usize = 1_024;
/// Maximum requests in one transaction, so that other processes get their turn.
const BATCH_MAX: usize = 64;

/// The end of a request that writes. `Broken` if the disk failed while it was made durable.
pub(crate) type End<T> = Result<T, Failure>;

/// A request that reads.
pub(crate) type ReadJob = Box<dyn FnOnce(&mut Session) + Send>;

/// A request that writes; it may run twice, when the transaction it shared was rolled back.
pub(crate) trait WriteJob: Send {
    /// Runs inside a transaction.
    fn run(&mut self, session: &mut Session) -> Result<(), Failed>;
    /// Latest time at which its transaction may begin.
    fn deadline(&self) -> Instant;
    /// Returns true if the caller is gone, so that there is no need to begin.
    fn is_abandoned(&self) -> bool;
    /// Answers the caller once the transaction has ended.
    fn end(self: Box<Self>, end: End<()>);
}

/// A [`WriteJob`] from a closure and the caller's end of a channel.
pub(crate) struct Job<T, F> {
    pub(crate) work: F,
    pub(crate) deadline: Instant,
    pub(crate) found: Option<T>,
    pub(crate) reply: oneshot::Sender<End<T>>,
}

impl<T: Send, F: FnMut(&mut Session) -> Result<T, Failed> + Send> WriteJob for Job<T, F> {
    fn run(&mut self, session: &mut Session) -> Result<(), Failed> {
        self.found = Some((self.work)(session)?);
        Ok(())
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn end(self: Box<Self>, end: End<()>) {
        let Self { found, reply, .. } = *self;
        let not_run = || Failure::Nothing(Fault::unavailable("the request was not run"));
        let answer = end.and_then(|()| found.ok_or_else(not_run));
        // A caller that is gone needs no answer.
        let _ = reply.send(answer);
    }
}

/// Reads until every sender is gone.
pub(crate) fn read_loop(
    mut session: Session,
    mut requests: mpsc::Receiver<ReadJob>,
    busy_timeout: Duration,
) {
    while let Some(job) = requests.blocking_recv() {
        session.wait_until(Instant::now() + busy_timeout);
        job(&mut session);
    }
}

/// Writes until every sender is gone.
pub(crate) fn write_loop(mut session: Session, mut requests: mpsc::Receiver<Box<dyn WriteJob>>) {
    while let Some(first) = requests.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(next) = requests.try_recv()
        {
            batch.push(next);
        }
        batch.retain(|job| !job.is_abandoned());
        if batch.is_empty() {
            continue;
        }
        for job in run_batch(&mut session, batch) {
            // One of them failed and took the others' transaction with it: each runs alone now.
            run_batch(&mut session, vec![job]);
        }
    }
}

/// Runs a batch in one transaction and answers. Returns the jobs to run again one by one: all of
/// them when one of several failed, none otherwise.
fn run_batch(session: &mut Session, mut batch: Vec<Box<dyn WriteJob>>) -> Vec<Box<dyn WriteJob>> {
    batch = begin(session, batch);
    if batch.is_empty() {
        return Vec::new();
    }
    let failed = batch.iter_mut().find_map(|job| job.run(session).err());
    if let Some(fault) = failed {
        session.note(&fault);
        roll_back(session);
        if batch.len() > 1 {
            return batch;
        }
        end_all(batch, &Err(Failure::Nothing(fault.into())));
        return Vec::new();
    }
    let end = match session.execute("COMMIT") {
        Ok(()) => Ok(()),
        Err(error) => {
            // After a failed write the log on disk may hold the whole commit, which a restart would
            // find.
            let unknown = error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
            roll_back(session);
            let failed = Failed::from(error);
            session.note(&failed);
            let fault = failed.into();
            Err(if unknown { Failure::Broken(fault) } else { Failure::Nothing(fault) })
        }
    };
    end_all(batch, &end);
    Vec::new()
}

/// Begins the transaction, for the requests whose time is not over before another process releases
/// the lock. No request waits longer because of others: each has its time from the moment it was
/// made.
fn begin(session: &mut Session, mut batch: Vec<Box<dyn WriteJob>>) -> Vec<Box<dyn WriteJob>> {
    if let Err(failed) = session.follow() {
        end_all(batch, &Err(Failure::Nothing(failed.into())));
        return Vec::new();
    }
    while let Some(first) = batch.iter().map(|job| job.deadline()).min() {
        session.wait_until(first);
        let Err(error) = session.execute("BEGIN IMMEDIATE") else { return batch };
        let is_busy = error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        let now = first.max(Instant::now());
        let (over, left) = batch.into_iter().partition(|job| !is_busy || job.deadline() <= now);
        let failed = Failed::from(error);
        session.note(&failed);
        end_all(over, &Err(Failure::Nothing(failed.into())));
        batch = left;
    }
    batch
}

fn end_all(batch: Vec<Box<dyn WriteJob>>, end: &End<()>) {
    for job in batch {
        job.end(end.clone());
    }
}

fn roll_back(session: &mut Session) {
    if !session.conn.is_autocommit() {
        // A rollback that fails leaves the transaction open; the next BEGIN then fails and says so.
        let _ = session.execute("ROLLBACK");
    }
}
