//! The connections of one store: a few, opened when they are needed.
//!
//! A session may be slow at first: a server that has just started reads its catalogues and makes
//! its plans again. So connections are opened apart from the operations that want them, and are
//! given out only after they have answered a read. An operation whose time is over meanwhile is
//! `Unavailable`. The connection is still opened to the end, within bounds, for the next operation.
//! Otherwise a slow server would never be reached.
//!
//! A server may have no room for one more connection. An operation then waits for one that the pool
//! has: whichever comes first, a new connection or one that another operation gives back.
//!
//! The pools of crates (bb8, deadpool, mobc) do neither: an operation that gives up drops its
//! half-opened connection, and an operation that waits for a new connection does not see returned
//! ones.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use emmer_store::away::{AWAY_PAUSE, is_worth_waiting};
use emmer_store::{Fault, StoreErrorKind, TableDecl};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::driver::{Driver, Request};

/// Maximum connections that are still being opened without a request that waits, in addition to
/// those of the pool. A host that vanished must not keep the pool from reaching another.
const SLOW_MAX: usize = 4;
/// Time that each of them is given.
const SLOW_TIMEOUT: Duration = Duration::from_secs(60);
/// The row that a new connection reads first. None is called so.
const WARM_UP: Request<'static> = Request::ReadRow { partition: "emmer-warm-up", row_key: "none" };

/// Connections, at most [`Limits::pool_max`](crate::Limits::pool_max), and [`SLOW_MAX`] that are
/// slow to open.
///
/// Dropping it ends its work.
pub(crate) struct Pool<D: Driver> {
    permits: Semaphore,
    core: Arc<Core<D>>,
    opening: Mutex<JoinSet<()>>,
}

/// State that the tasks that open connections share with the pool.
struct Core<D: Driver> {
    driver: Arc<D>,
    shared: Mutex<Shared<D::Connection>>,
    slow: Arc<Semaphore>,
    /// A table that was asked for: what a new connection reads from.
    table: OnceLock<&'static TableDecl>,
    /// Number of connections in use.
    lent: AtomicUsize,
    /// Signal that a connection in use came back, or that the last one ended.
    returned: Notify,
}

struct Shared<C> {
    /// Unused connections, the most recently used on top.
    idle: Vec<C>,
    /// Counts the changes of the list of gateways: a choice of an earlier number is made again.
    not_before: Option<Instant>,
}

impl<D: Driver> Core<D> {
    fn lock(&self) -> MutexGuard<'_, Shared<D::Connection>> {
        // Nothing here panics half-way.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection for the next operation that wants one, if it is usable and there are not
    /// enough.
    fn keep(&self, connection: D::Connection) {
        let mut shared = self.lock();
        let have = shared.idle.len() + self.lent.load(Ordering::Acquire);
        if self.driver.is_usable(&connection) && have < self.driver.limits().pool_max {
            shared.idle.push(connection);
        }
        drop(shared);
        self.returned.notify_one();
    }
}

/// Connects, and has the session answer once.
async fn open<D: Driver>(
    driver: &D,
    table: Option<&'static TableDecl>,
) -> Result<D::Connection, Fault> {
    let mut connection = driver.open().await?;
    if let Some(table) = table {
        // The answer does not matter (the table may be gone): a session that ended is found to be
        // unusable.
        let _ = driver.run(&mut connection, table, &WARM_UP, &mut false).await;
        if !driver.is_usable(&connection) {
            return Err(Fault::unavailable("the new connection ended"));
        }
    }
    Ok(connection)
}

/// Opens a connection for the request that waits for `reply`; for the pool, if none does and there
/// is room.
async fn open_for<D: Driver>(
    driver: Arc<D>,
    table: Option<&'static TableDecl>,
    core: Weak<Core<D>>,
    slow: Arc<Semaphore>,
    mut reply: oneshot::Sender<Result<D::Connection, Fault>>,
) {
    let mut opening = std::pin::pin!(open(&*driver, table));
    let opened = tokio::select! {
        opened = &mut opening => match reply.send(opened) {
            Ok(()) => return,
            Err(unheard) => unheard,
        },
        () = reply.closed() => {
            let Ok(_one): Result<OwnedSemaphorePermit, _> = slow.try_acquire_owned() else { return };
            let Ok(opened) = timeout(SLOW_TIMEOUT, opening).await else { return };
            opened
        }
    };
    if let (Ok(connection), Some(core)) = (opened, core.upgrade()) {
        core.keep(connection);
    }
}

impl<D: Driver> Pool<D> {
    pub(crate) fn new(driver: Arc<D>) -> Self {
        let permits = Semaphore::new(driver.limits().pool_max);
        let shared = Mutex::new(Shared { idle: Vec::new(), not_before: None });
        let slow = Arc::new(Semaphore::new(SLOW_MAX));
        let (table, lent, returned) = (OnceLock::new(), AtomicUsize::new(0), Notify::new());
        let core = Arc::new(Core { driver, shared, slow, table, lent, returned });
        Self { permits, core, opening: Mutex::default() }
    }

    /// Notes a table that is asked for.
    pub(crate) fn knows(&self, table: &'static TableDecl) {
        self.core.table.get_or_init(|| table);
    }

    /// Connects before anything is asked for.
    pub(crate) async fn warm_up(&self, deadline: Instant) -> Result<(), Fault> {
        let connection = self.connect(Instant::now(), deadline).await?;
        self.core.keep(connection);
        Ok(())
    }

    /// A connection for one operation: waits for a place until `deadline`, then as long for a
    /// connection, and for a server that is away as long as every store does.
    pub(crate) async fn acquire(&self, deadline: Instant) -> Result<Lease<'_, D>, Fault> {
        let begun = Instant::now();
        let pool_max = self.core.driver.limits().pool_max;
        let busy = || Fault::unavailable(format!("all {pool_max} connections are busy (pool_max)"));
        let permit = timeout_at(deadline, self.permits.acquire()).await.map_err(|_| busy())?;
        let permit = permit.map_err(|_| busy())?;
        // The time in the queue is not taken from the work: a slow store would answer none of those
        // that had to wait.
        let (queued, begun) = (begun.elapsed(), Instant::now());
        let deadline = deadline + queued;
        let connection = match self.pop() {
            Some(connection) => connection,
            None => self.connect_or_wait(begun, deadline).await?,
        };
        self.core.lent.fetch_add(1, Ordering::AcqRel);
        Ok(Lease { pool: self, connection: Some(connection), queued, permit })
    }

    /// A new connection, or one that another operation gives back before the new one is there.
    async fn connect_or_wait(
        &self,
        begun: Instant,
        deadline: Instant,
    ) -> Result<D::Connection, Fault> {
        let mut connecting = std::pin::pin!(self.connect(begun, deadline));
        let mut failed = None;
        loop {
            let returned = self.core.returned.notified();
            if let Some(connection) = self.pop() {
                return Ok(connection);
            }
            if let Some(fault) = failed.take_if(|_| self.core.lent.load(Ordering::Acquire) == 0) {
                return Err(fault);
            }
            tokio::select! {
                biased;
                () = returned => {}
                connected = &mut connecting, if failed.is_none() => match connected {
                    Err(fault) if fault.kind == StoreErrorKind::Unavailable => failed = Some(fault),
                    ended => return ended,
                },
                () = sleep_until(deadline), if failed.is_some() => {
                    return Err(failed.unwrap_or_else(|| Fault::unavailable("no connection")));
                }
            }
        }
    }

    /// Connects, again while the server is away.
    async fn connect(&self, begun: Instant, deadline: Instant) -> Result<D::Connection, Fault> {
        loop {
            let not_before = self.core.lock().not_before;
            if let Some(moment) = not_before {
                sleep_until(moment.min(deadline)).await;
            }
            match self.attempt(deadline).await {
                Err(fault) => {
                    self.core.lock().not_before = Some(Instant::now() + AWAY_PAUSE);
                    let left = deadline.saturating_duration_since(Instant::now());
                    if !is_worth_waiting(fault.kind, begun.elapsed(), left) {
                        return Err(fault);
                    }
                }
                connected => return connected,
            }
        }
    }

    async fn attempt(&self, deadline: Instant) -> Result<D::Connection, Fault> {
        let (reply, answer) = oneshot::channel();
        let core = &self.core;
        let (driver, slow, table) =
            (core.driver.clone(), core.slow.clone(), core.table.get().copied());
        {
            let mut tasks = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(open_for(driver, table, Arc::downgrade(core), slow, reply));
        }
        let silent = || Fault::unavailable("the server does not answer");
        let opened = timeout_at(deadline, answer).await.map_err(|_| silent())?;
        let opened = opened.map_err(|_| silent())??;
        core.lock().not_before = None;
        Ok(opened)
    }

    /// Closes all idle connections. They lead to a server whose address another server has taken.
    pub(crate) fn forget_idle(&self) {
        // Dropped after the lock: closing may take a while.
        let idle = std::mem::take(&mut self.core.lock().idle);
        drop(idle);
    }

    /// Takes a usable idle connection, if there is one.
    fn pop(&self) -> Option<D::Connection> {
        loop {
            let connection = self.core.lock().idle.pop()?;
            if self.core.driver.is_usable(&connection) {
                return Some(connection);
            }
        }
    }
}

/// The use of one connection. Dropped, it gives it back, unless a request was left in the middle:
/// then the connection is closed.
pub(crate) struct Lease<'a, D: Driver> {
    pool: &'a Pool<D>,
    connection: Option<D::Connection>,
    /// The time until the pool had a place.
    queued: Duration,
    #[allow(dead_code, reason = "held until the connection is back, so that there are never more")]
    permit: SemaphorePermit<'a>,
}

impl<D: Driver> Lease<'_, D> {
    /// The time until the pool had a place, which is not part of the operation's time.
    pub(crate) const fn queued(&self) -> Duration {
        self.queued
    }

    /// Closes the connection, which takes no further requests.
    pub(crate) fn discard(&mut self) {
        drop(self.connection.take());
    }

    pub(crate) fn connection(&mut self) -> Result<&mut D::Connection, Fault> {
        self.connection.as_mut().ok_or_else(|| Fault::unavailable("the connection is gone"))
    }
}

impl<D: Driver> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        let core = &self.pool.core;
        let is_last = core.lent.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some(connection) = self.connection.take() {
            core.keep(connection);
        }
        if is_last {
            // Operations that could not connect have none to wait for any longer.
            core.returned.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use emmer_store::silos::SILO_INSTANCES;

    use super::*;
    use crate::driver::Answer;
    use crate::fault::Failure;
    use crate::limits::Limits;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// A server whose sessions take these times to open, and for their first request.
    #[derive(Default)]
    struct Slow {
        /// Number of sessions it has room for; 0: any.
        sessions_max: usize,
        sessions: Arc<AtomicUsize>,
        opens_in: Duration,
        warms_in: Duration,
        opened: AtomicUsize,
    }

    struct Session {
        is_warm: bool,
        in_flight: bool,
        sessions: Arc<AtomicUsize>,
    }

    impl Drop for Session {
        fn drop(&mut self) {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl Driver for Slow {
        type Connection = Session;

        const REQUEST_BYTES_MAX: usize = 1;

        fn new(_: &str) -> emmer_store::Result<Self> {
            Ok(Self::default())
        }

        fn name(&self) -> &str {
            "slow"
        }

        fn limits(&self) -> Limits {
            Limits { pool_max: 8, timeout: TIMEOUT }
        }

        async fn open(&self) -> Result<Session, Fault> {
            self.opened.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.opens_in).await;
            let before = self.sessions.fetch_add(1, Ordering::Relaxed);
            let sessions = self.sessions.clone();
            let session = Session { is_warm: false, in_flight: false, sessions };
            if self.sessions_max > 0 && before >= self.sessions_max {
                return Err(Fault::unavailable("too many connections"));
            }
            Ok(session)
        }

        fn is_usable(&self, session: &Session) -> bool {
            !session.in_flight
        }

        async fn run(
            &self,
            session: &mut Session,
            _: &'static TableDecl,
            _: &Request<'_>,
            _: &mut bool,
        ) -> Result<Answer, Failure> {
            session.in_flight = true;
            if !session.is_warm {
                tokio::time::sleep(self.warms_in).await;
            }
            (session.is_warm, session.in_flight) = (true, false);
            Ok(Answer::Changed(0))
        }

        async fn ensure(&self, _: &mut Session, _: &[&'static TableDecl]) -> Result<(), Fault> {
            Ok(())
        }
    }

    /// One operation. Returns true if it ended in its time.
    async fn operation(pool: &Pool<Slow>) -> bool {
        pool.knows(&SILO_INSTANCES);
        let deadline = Instant::now() + TIMEOUT;
        let Ok(mut lease) = pool.acquire(deadline).await else { return false };
        let session = lease.connection().unwrap();
        timeout_at(deadline, pool.core.driver.run(session, &SILO_INSTANCES, &WARM_UP, &mut false))
            .await
            .is_ok()
    }

    /// Others use up all but two of a server's sessions.
    #[tokio::test(start_paused = true)]
    async fn operations_wait_for_a_connection_where_the_server_has_no_room_for_more() {
        let warms_in = Duration::from_millis(100);
        let driver = Arc::new(Slow { sessions_max: 2, warms_in, ..Slow::default() });
        let pool = Arc::new(Pool::new(driver.clone()));
        let mut users = JoinSet::new();
        for _ in 0..8 {
            let pool = pool.clone();
            users.spawn(async move {
                for n in 0..20 {
                    assert!(operation(&pool).await, "operation {n}");
                }
            });
        }
        users.join_all().await;
    }

    /// A server that was started again, to which each session is slower at first than an operation
    /// may be.
    #[tokio::test(start_paused = true)]
    async fn sessions_that_are_slow_at_first_are_had_in_the_end() {
        let slow = Duration::from_secs(5);
        for (opens_in, warms_in) in [(slow, Duration::ZERO), (Duration::ZERO, slow), (slow, slow)] {
            let driver = Arc::new(Slow { opens_in, warms_in, ..Slow::default() });
            let pool = Arc::new(Pool::new(driver.clone()));
            let begun = Instant::now();
            // Many at once, who do not give up.
            let mut users = JoinSet::new();
            for _ in 0..20 {
                let pool = pool.clone();
                users.spawn(async move { while !operation(&pool).await {} });
            }
            users.join_all().await;
            assert!(begun.elapsed() <= opens_in + warms_in + TIMEOUT * 2, "{:?}", begun.elapsed());
        }
    }

    /// A server that opens no session at all: openings without a request are bounded, and end with
    /// the pool.
    #[tokio::test(start_paused = true)]
    async fn openings_that_nobody_waits_for_are_few_and_end_with_the_pool() {
        let driver = Arc::new(Slow { opens_in: Duration::from_secs(3_600), ..Slow::default() });
        let pool = Pool::new(driver.clone());
        let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        for _ in 0..50 {
            assert!(!operation(&pool).await);
            tokio::task::yield_now().await;
            assert!(alive() <= SLOW_MAX, "{}", alive());
        }
        assert!(driver.opened.load(Ordering::Relaxed) >= 50, "each operation tries by itself");
        drop(pool);
        while alive() > 0 {
            tokio::task::yield_now().await;
        }
    }
}
