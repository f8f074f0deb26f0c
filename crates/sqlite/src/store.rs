//! The store itself: requests into threads, answers out.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmer_core::Timestamp;
use emmer_store::{
    Answered, CommitOutcome, Contention, Examination, Failure, Fault, FindingLevel, FindingSubject,
    Mutation, Result, Row, StoreErrorKind, StoredRow, TableDecl, Unchecked, Value,
};
use emmer_store_relational::Etags;
use emmer_store_relational::etags::random;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::fault::Failed;
use crate::place::Place;
use crate::session::{Damage, Session};
use crate::worker::{self, Job, QUEUE_MAX, ReadJob, WriteJob};
use crate::{operations, tables};

/// The threads that read.
const READERS: usize = 2;

/// A system store in a SQLite file.
///
/// Dropping it closes the file. It waits for the running transaction, at most as long as that waits
/// for a lock, and forgets requests whose callers are gone. When no other process has the file
/// open, its log is then folded into it, so that the one file is all there is to copy.
pub struct SqliteStore {
    name: String,
    writer: mpsc::Sender<Box<dyn WriteJob>>,
    readers: Vec<mpsc::Sender<ReadJob>>,
    next_reader: AtomicUsize,
    writing: Option<JoinHandle<()>>,
    reading: Vec<JoinHandle<()>>,
    etags: Etags,
    contention: Contention,
    full_sync: bool,
    busy_timeout: Duration,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.name).finish()
    }
}

impl SqliteStore {
    /// Opens `sqlite://relative/path.db`, `sqlite:///absolute/path.db` or a plain path, making the
    /// file if it is missing (not with `?mode=rw`). `?synchronous=full` makes every commit wait for
    /// the disk; `?busy_timeout_ms=5000` is how long to wait for a lock another process holds.
    ///
    /// Blocks for some milliseconds, longer when other processes make the same file at this moment.
    /// Commits need a tokio runtime with timers.
    ///
    /// # Errors
    /// `Invalid` for a URL that cannot be understood; `Refused` for a directory, a missing
    /// directory, or a file that cannot be read and written; `Damaged` for a file that is not a
    /// database; `Unavailable` when it stays locked.
    pub fn open(url_or_path: &str) -> Result<Self> {
        let place = Place::parse(url_or_path)?;
        let name = place.describe();
        let (writer, write_requests) = mpsc::channel(QUEUE_MAX);
        let mut store = Self {
            name: name.clone(),
            writer,
            readers: Vec::with_capacity(READERS),
            next_reader: AtomicUsize::new(0),
            writing: None,
            reading: Vec::with_capacity(READERS),
            etags: Etags::new(random()),
            contention: Contention::new(random()),
            full_sync: place.full_sync,
            busy_timeout: place.busy_timeout,
        };
        let at_open = |fault: Fault| fault.at(&name, "open");
        // The writer's connection first: it makes the file.
        let damage = Damage::default();
        let opened = |read_only| Session::open(&place, read_only, damage.clone());
        let session = opened(false).map_err(Fault::from).map_err(at_open)?;
        let write = move || worker::write_loop(session, write_requests);
        store.writing = Some(thread("emmer-sqlite-w", write).map_err(at_open)?);
        for _ in 0..READERS {
            let session = opened(true).map_err(Fault::from).map_err(at_open)?;
            let (reader, requests) = mpsc::channel(QUEUE_MAX);
            let busy_timeout = place.busy_timeout;
            let read = move || worker::read_loop(session, requests, busy_timeout);
            store.reading.push(thread("emmer-sqlite-r", read).map_err(at_open)?);
            store.readers.push(reader);
        }
        Ok(store)
    }

    /// Closes the file, as dropping does.
    pub fn close(self) {
        drop(self);
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session) -> std::result::Result<T, Failed> + Send + 'static,
    ) -> Answered<T> {
        let (reply, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |session| {
            let done = session.follow().and_then(|()| work(session));
            if let Err(failed) = &done {
                session.note(failed);
            }
            // A caller that is gone needs no answer.
            let _ = reply.send(done);
        });
        let turn = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let sent = match self.readers.get(turn % READERS) {
            Some(reader) => reader.send(job).await.is_ok(),
            None => false,
        };
        let found = if sent { answer.await.ok() } else { None };
        found.ok_or_else(gone)?.map_err(Fault::from)
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Session) -> std::result::Result<T, Failed> + Send + 'static,
    ) -> Answered<T, Failure> {
        let (reply, answer) = oneshot::channel();
        let job = Job { work, deadline: Instant::now() + self.busy_timeout, found: None, reply };
        if self.writer.send(Box::new(job)).await.is_err() {
            return Err(Failure::Nothing(gone()));
        }
        answer.await.unwrap_or_else(|_| Err(Failure::Broken(gone())))
    }

    /// A request whose repetition does no harm: an unknown end is an error like any other.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Session) -> std::result::Result<T, Failed> + Send + 'static,
    ) -> Answered<T> {
        self.write(work).await.map_err(Failure::fault)
    }
}

fn gone() -> Fault {
    Fault::new(StoreErrorKind::Unavailable, "the store's thread has ended")
}

fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::result::Result<JoinHandle<()>, Fault> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map_err(|e| Fault::new(StoreErrorKind::Unavailable, format!("no thread: {e}")))
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The threads end when their queues have no sender. The writer last, alone: SQLite folds
        // the log into the file when a connection finds itself the only one, and of two that close
        // at once neither does. A thread that panicked is as closed as one that did not.
        self.readers.clear();
        self.reading.drain(..).for_each(|thread| drop(thread.join()));
        self.writer = mpsc::channel(1).0;
        self.writing.take().map(JoinHandle::join);
    }
}

impl Unchecked for SqliteStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn timeout(&self) -> Duration {
        self.busy_timeout
    }

    async fn ensure(&self, tables: &[&'static TableDecl]) -> Answered<()> {
        let (wanted, again) = (tables.to_vec(), tables.to_vec());
        if self.read(move |session| tables::is_all_there(&session.conn, &wanted)).await? {
            // The usual start: no other process waits for the write lock.
            return Ok(());
        }
        self.change(move |session| tables::ensure(&session.conn, &again)).await
    }

    async fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
    ) -> Answered<Vec<StoredRow>> {
        let partition = partition.to_owned();
        self.read(move |session| operations::read_partition(session, table, &partition)).await
    }

    async fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> Answered<Option<StoredRow>> {
        let (partition, row_key) = (partition.to_owned(), row_key.to_owned());
        self.read(move |session| operations::read_row(session, table, &partition, &row_key)).await
    }

    async fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        let (partition, from) = (partition.to_owned(), from.to_owned());
        self.read(move |session| operations::read_some(session, table, &partition, &from, limit))
            .await
    }

    async fn scan(
        &self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        self.read(move |session| operations::scan(session, table, column, &range, limit)).await
    }

    async fn commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Answered<CommitOutcome, Failure> {
        let (owned, mutations) = (partition.to_owned(), Arc::new(mutations));
        let (ours, etag, begun) = (mutations.clone(), self.etags.next(), Instant::now());
        let work =
            move |session: &mut Session| operations::commit(session, table, &owned, &ours, etag);
        let outcome = self.write(work).await?;
        let wait =
            self.contention.wait(table.name, partition, &mutations, &outcome, begun.elapsed());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        Ok(outcome)
    }

    async fn touch(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: Value,
    ) -> Answered<bool> {
        let (part, key) = (partition.to_owned(), row_key.to_owned());
        self.change(move |session| operations::touch(session, table, &part, &key, column, &value))
            .await
    }

    async fn append(
        &self,
        table: &'static TableDecl,
        partition: &str,
        rows: Vec<Row>,
    ) -> Answered<()> {
        let (owned, etag) = (partition.to_owned(), self.etags.next());
        self.change(move |session| operations::append(session, table, &owned, &rows, etag)).await
    }

    async fn delete_older_than(
        &self,
        table: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Answered<u64> {
        let owned = partition.to_owned();
        let work = move |session: &mut Session| {
            operations::delete_older_than(session, table, &owned, column, cutoff)
        };
        self.change(work).await
    }

    async fn examine(&self) -> Answered<Examination> {
        let mut found = Examination::of("SQLite", rusqlite::version());
        if !self.full_sync {
            found.add(
                FindingLevel::Note,
                FindingSubject::Durability,
                "commits that were answered survive every process; when the host loses its power \
                 the newest may be gone, unless the URL says synchronous=full",
            );
        }
        Ok(found)
    }
}
