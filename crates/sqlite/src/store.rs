//! The store itself: requests into threads, answers out.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use emmer_core::Timestamp;
use emmer_store::validate::{self, Violation};
use emmer_store::{
    BoxFuture, CommitOutcome, Contention, Examination, FindingLevel, FindingSubject, Mutation,
    Result, Row, StoreError, StoreErrorKind, StoredRow, SystemStore, TableDecl, Value,
};
use emmer_store_relational::Etags;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::fault::Fault;
use crate::place::Place;
use crate::session::Session;
use crate::worker::{self, End, Job, QUEUE_MAX, ReadJob, WriteJob};
use crate::{operations, tables};

/// The threads that read.
const READERS: usize = 2;

/// A system store in a SQLite file.
///
/// Dropping it closes the file: it waits for the transaction that runs, at most as long as that
/// waits for a lock, and forgets requests that nobody waits for any more. When no other process has
/// the file open, its log is then folded into it, so that the one file is all there is to copy.
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
    /// directory, or a file that cannot be read and written; `Corrupt` for a file that is no
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
        let at_open = |fault: Fault| fault.at(&name, "open".to_owned());
        // The writer's connection first: it makes the file.
        let session = Session::open(&place, false).map_err(at_open)?;
        let write = move || worker::write_loop(session, write_requests);
        store.writing = Some(thread("emmer-sqlite-w", write).map_err(at_open)?);
        for _ in 0..READERS {
            let session = Session::open(&place, true).map_err(at_open)?;
            let (reader, requests) = mpsc::channel(QUEUE_MAX);
            let read = move || worker::read_loop(session, requests, place.busy_timeout);
            store.reading.push(thread("emmer-sqlite-r", read).map_err(at_open)?);
            store.readers.push(reader);
        }
        Ok(store)
    }

    /// The `CREATE` script of an empty file, for an administrator who wants to see it or run it.
    pub fn script(tables: &[&TableDecl]) -> String {
        tables::script(tables)
    }

    /// Closes the file, as dropping does.
    pub fn close(self) {
        drop(self);
    }

    async fn read<T: Send + 'static>(
        &self,
        operation: impl Fn() -> String,
        work: impl FnOnce(&mut Session) -> std::result::Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let job: ReadJob = Box::new(move |session| {
            // A caller that is gone needs no answer.
            let _ = reply.send(work(session));
        });
        let turn = self.next_reader.fetch_add(1, Ordering::Relaxed);
        let sent = match self.readers.get(turn % READERS) {
            Some(reader) => reader.send(job).await.is_ok(),
            None => false,
        };
        let found = if sent { answer.await.ok() } else { None };
        found.unwrap_or_else(|| Err(gone())).map_err(|fault| fault.at(&self.name, operation()))
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Session) -> std::result::Result<T, Fault> + Send + 'static,
    ) -> End<T> {
        let (reply, answer) = oneshot::channel();
        let job = Job { work, deadline: Instant::now() + self.busy_timeout, found: None, reply };
        if self.writer.send(Box::new(job)).await.is_err() {
            return End::Failed(gone());
        }
        answer.await.unwrap_or_else(|_| End::Unknown(gone()))
    }

    /// For requests whose repetition does no harm an unknown end is an error like any other.
    fn settled<T>(&self, end: End<T>, operation: impl Fn() -> String) -> Result<T> {
        match end {
            End::Done(found) => Ok(found),
            End::Failed(fault) | End::Unknown(fault) => Err(fault.at(&self.name, operation())),
        }
    }

    fn checked(
        &self,
        found: std::result::Result<(), Violation>,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        found.map_err(|violation| violation.at(self.name.as_str(), operation()))
    }
}

/// Every such hasher begins with random keys.
fn random() -> u64 {
    RandomState::new().hash_one(0)
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
        // The threads end when their queues have no sender any more. The writer last, alone: SQLite
        // folds the log into the file when a connection finds itself the only one, and of two that
        // close at once neither does. A thread that panicked is as closed as one that did not.
        self.readers.clear();
        self.reading.drain(..).for_each(|thread| drop(thread.join()));
        self.writer = mpsc::channel(1).0;
        self.writing.take().map(JoinHandle::join);
    }
}

impl SystemStore for SqliteStore {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(self.busy_timeout)
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let names = || tables.iter().map(|t| t.name).collect::<Vec<_>>().join(", ");
            let operation = || format!("ensure {}", names());
            for table in tables {
                self.checked(validate::table(table), operation)?;
            }
            let wanted = tables.to_vec();
            let is_all_there = self
                .read(operation, move |session| tables::is_all_there(&session.conn, &wanted))
                .await?;
            if is_all_there {
                // The usual start: nobody waits for the write lock.
                return Ok(());
            }
            let wanted = tables.to_vec();
            let end = self.write(move |session| tables::ensure(&session.conn, &wanted)).await;
            self.settled(end, operation)
        })
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            let partition = partition.to_owned();
            self.read(operation, move |session| {
                operations::read_partition(session, table, &partition)
            })
            .await
        })
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("read {}/{partition}/{row_key}", table.name);
            self.checked(validate::partition_key(partition), operation)?;
            self.checked(validate::row_key(row_key), operation)?;
            let (partition, row_key) = (partition.to_owned(), row_key.to_owned());
            let work = move |session: &mut Session| {
                operations::read_row(session, table, &partition, &row_key)
            };
            self.read(operation, work).await
        })
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("sample {}/{partition}", table.name);
            self.checked(validate::read_some(partition, from, limit), operation)?;
            let (partition, from) = (partition.to_owned(), from.to_owned());
            let work = move |session: &mut Session| {
                operations::read_some(session, table, &partition, &from, limit)
            };
            self.read(operation, work).await
        })
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(async move {
            let operation = || format!("scan {} by {column}", table.name);
            self.checked(validate::scan(table, column), operation)?;
            let work = move |session: &mut Session| {
                operations::scan(session, table, column, &range, limit)
            };
            self.read(operation, work).await
        })
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(async move {
            let operation = || format!("commit {}/{partition}", table.name);
            self.checked(validate::commit(table, partition, &mutations), operation)?;
            let (owned, mutations) = (partition.to_owned(), Arc::new(mutations));
            let (ours, etag, begun) = (mutations.clone(), self.etags.next(), Instant::now());
            let work = move |session: &mut Session| {
                operations::commit(session, table, &owned, &ours, etag)
            };
            let error = |fault: Fault| -> StoreError { fault.at(&self.name, operation()) };
            match self.write(work).await {
                End::Done(outcome) => {
                    let wait = self.contention.wait(
                        table.name,
                        partition,
                        &mutations,
                        &outcome,
                        begun.elapsed(),
                    );
                    if !wait.is_zero() {
                        sleep(wait).await;
                    }
                    Ok(outcome)
                }
                End::Failed(fault) => Err(error(fault)),
                End::Unknown(fault) => Ok(CommitOutcome::Unknown(error(fault))),
            }
        })
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("touch {column} of {}/{partition}/{row_key}", table.name);
            self.checked(validate::touch(table, partition, row_key, column, &value), operation)?;
            let (part, key) = (partition.to_owned(), row_key.to_owned());
            let work = move |session: &mut Session| {
                operations::touch(session, table, &part, &key, column, &value)
            };
            let end = self.write(work).await;
            if self.settled(end, operation)? {
                Ok(())
            } else {
                let detail = "the row is not there";
                Err(StoreError::new(
                    StoreErrorKind::NotFound,
                    self.name.as_str(),
                    operation(),
                    detail,
                ))
            }
        })
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let operation = || format!("append {}/{partition}", table.name);
            self.checked(validate::append(table, partition, &rows), operation)?;
            let (owned, etag) = (partition.to_owned(), self.etags.next());
            let work = move |session: &mut Session| {
                operations::append(session, table, &owned, &rows, etag)
            };
            let end = self.write(work).await;
            self.settled(end, operation)
        })
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let operation = || format!("clean up {}/{partition}", table.name);
            self.checked(validate::delete_older_than(table, partition, column), operation)?;
            let owned = partition.to_owned();
            let work = move |session: &mut Session| {
                operations::delete_older_than(session, table, &owned, column, cutoff)
            };
            let end = self.write(work).await;
            self.settled(end, operation)
        })
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(async move {
            let mut found = Examination::of("SQLite", rusqlite::version());
            if !self.full_sync {
                found.add(
                    FindingLevel::Note,
                    FindingSubject::Durability,
                    "commits that were answered survive every process; when the host loses its \
                     power the newest may be gone, unless the URL says synchronous=full",
                );
            }
            Ok(found)
        })
    }
}
