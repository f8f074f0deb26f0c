//! A session's thread, and how the rest of the store talks to it.
//!
//! The driver blocks, and its waits cannot be cancelled: a silent server holds its thread until the
//! operating system gives the connection up. Callers leave at their deadline, and the thread ends
//! when it can. The number of a store's threads, such ones included, is bounded ([`Threads`]).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use emmer_store_relational::Fault;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::fault::Trouble;
use crate::place::Place;
use crate::session::Session;

/// Threads beyond those of the connections a store may have, for such as wait for a server that
/// went silent.
const SPARE_THREADS: usize = 32;

/// Job of a session.
type Job = Box<dyn FnOnce(&mut Session) + Send>;

/// Number of further threads that there may be.
pub(crate) struct Threads(Arc<Semaphore>);

impl Threads {
    /// For a store of this number of connections.
    pub(crate) fn new(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(connections + SPARE_THREADS)))
    }

    fn one(&self) -> Result<OwnedSemaphorePermit, Fault> {
        let full = |_| {
            Fault::unavailable("too many connections still wait for a server that does not answer")
        };
        self.0.clone().try_acquire_owned().map_err(full)
    }
}

/// A session on a thread of its own. Dropping it ends the session, and uncommitted work is rolled
/// back.
pub struct Connection {
    jobs: SyncSender<Job>,
    /// True if something was begun whose end was not seen: then this connection must not be used
    /// again.
    pub(crate) in_flight: bool,
}

impl Connection {
    /// Connects and makes the session ours.
    pub(crate) async fn open(place: &Place, threads: &Threads) -> Result<Self, Fault> {
        let permit = threads.one()?;
        // One at a time: the next job is given when the last one's answer was taken.
        let (jobs, work) = sync_channel(1);
        let (opened, answer) = oneshot::channel();
        let place = place.clone();
        let body = move || {
            work_off(&place, &work, opened);
            drop(permit);
        };
        let started = thread::Builder::new().name("emmer-oracle".to_owned()).spawn(body);
        started.map_err(|error| Fault::unavailable(format!("no thread: {error}")))?;
        let ended = answer.await.unwrap_or_else(|_| Err(given_up()));
        ended.map_err(|trouble| trouble.fault)?;
        Ok(Self { jobs, in_flight: false })
    }

    /// Runs `job` on the session. It runs to its end even if its caller is gone.
    pub(crate) async fn run<T: Send + 'static>(
        &mut self,
        job: impl FnOnce(&mut Session) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        self.in_flight = true;
        let (done, answer) = oneshot::channel();
        let job: Job = Box::new(move |session| {
            // No request waits for it: the connection is on its way out.
            let _ = done.send(job(session));
        });
        if self.jobs.try_send(job).is_err() {
            return Err(given_up());
        }
        let ended = answer.await.unwrap_or_else(|_| Err(given_up()));
        self.in_flight = matches!(&ended, Err(trouble) if trouble.is_gone);
        ended
    }
}

/// The driver panicked, and its thread ended.
fn given_up() -> Trouble {
    Trouble::gone("the driver gave up on what the server said")
}

/// The body of a session's thread.
fn work_off(place: &Place, work: &Receiver<Job>, opened: oneshot::Sender<Result<(), Trouble>>) {
    let mut session = match Session::open(place) {
        Ok(session) => session,
        Err(trouble) => {
            let _ = opened.send(Err(trouble));
            return;
        }
    };
    if opened.send(Ok(())).is_err() {
        return;
    }
    while let Ok(job) = work.recv() {
        job(&mut session);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn threads_that_wait_for_a_silent_server_are_counted() {
        // The kernel accepts; no process reads.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!(
            "oracle://bob:s3cret@127.0.0.1:{}/emmer",
            listener.local_addr().unwrap().port()
        );
        let place = Place::parse(&url, None).unwrap();
        let threads = Threads(Arc::new(Semaphore::new(1)));
        let first =
            tokio::time::timeout(Duration::from_millis(1), Connection::open(&place, &threads))
                .await;
        assert!(first.is_err());
        // The caller left, the thread is still there.
        let error = Connection::open(&place, &threads).await.map(|_| ()).unwrap_err();
        assert!(error.detail.contains("too many connections"), "{}", error.detail);
        // It ends when the server does.
        drop(listener);
        tokio::time::timeout(Duration::from_secs(60), threads.0.acquire())
            .await
            .unwrap()
            .unwrap()
            .forget();
    }
}
