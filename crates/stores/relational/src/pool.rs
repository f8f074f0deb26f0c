//! The connections of one store: a few, opened when they are needed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmer_store::away::{AWAY_PAUSE, is_worth_waiting};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::driver::Driver;
use crate::fault::Fault;

/// Connections, at most [`Limits::pool_max`](crate::Limits::pool_max).
pub(crate) struct Pool<D: Driver> {
    driver: Arc<D>,
    permits: Semaphore,
    shared: Mutex<Shared<D::Connection>>,
}

struct Shared<C> {
    /// Connections nobody uses, the one used last on top.
    idle: Vec<C>,
    /// No attempt before this moment: the last one found nobody.
    not_before: Option<Instant>,
}

impl<D: Driver> Pool<D> {
    pub(crate) fn new(driver: Arc<D>) -> Self {
        let permits = Semaphore::new(driver.limits().pool_max);
        let shared = Shared { idle: Vec::new(), not_before: None };
        Self { driver, permits, shared: Mutex::new(shared) }
    }

    /// Connects before anything is asked for.
    pub(crate) async fn warm_up(&self, deadline: Instant) -> Result<(), Fault> {
        let connection = self.connect(Instant::now(), deadline).await?;
        self.lock().idle.push(connection);
        Ok(())
    }

    /// A connection for one operation, waiting for a free one until `deadline` and for a server that is away as long as every
    /// store does.
    pub(crate) async fn acquire(&self, deadline: Instant) -> Result<Lease<'_, D>, Fault> {
        let begun = Instant::now();
        let pool_max = self.driver.limits().pool_max;
        let busy = || Fault::unavailable(format!("all {pool_max} connections are busy (pool_max)"));
        let permit = timeout_at(deadline, self.permits.acquire()).await.map_err(|_| busy())?;
        let permit = permit.map_err(|_| busy())?;
        while let Some(connection) = self.pop() {
            if self.driver.is_usable(&connection) {
                return Ok(Lease { pool: self, connection: Some(connection), permit });
            }
        }
        let connection = self.connect(begun, deadline).await?;
        Ok(Lease { pool: self, connection: Some(connection), permit })
    }

    /// Connects, again while the server is away.
    async fn connect(&self, begun: Instant, deadline: Instant) -> Result<D::Connection, Fault> {
        loop {
            let not_before = self.lock().not_before;
            if let Some(moment) = not_before {
                sleep_until(moment.min(deadline)).await;
            }
            match self.attempt(deadline).await {
                Err(fault) => {
                    self.lock().not_before = Some(Instant::now() + AWAY_PAUSE);
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
        let opened = timeout_at(deadline, self.driver.open()).await;
        let opened = opened.unwrap_or_else(|_| Err(Fault::unavailable("the server does not answer")))?;
        let mut shared = self.lock();
        shared.not_before = None;
        Ok(opened)
    }

    fn pop(&self) -> Option<D::Connection> {
        self.lock().idle.pop()
    }

    fn lock(&self) -> MutexGuard<'_, Shared<D::Connection>> {
        // Nothing here panics half-way.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use of one connection. Dropped, it gives it back, unless a request was left in the middle: then the connection is
/// closed.
pub(crate) struct Lease<'a, D: Driver> {
    pool: &'a Pool<D>,
    connection: Option<D::Connection>,
    #[allow(dead_code, reason = "held until the connection is back, so that there are never more")]
    permit: SemaphorePermit<'a>,
}

impl<D: Driver> Lease<'_, D> {
    pub(crate) fn connection(&mut self) -> Result<&mut D::Connection, Fault> {
        self.connection.as_mut().ok_or_else(|| Fault::unavailable("the connection is gone"))
    }
}

impl<D: Driver> Drop for Lease<'_, D> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|c| self.pool.driver.is_usable(c)) {
            self.pool.lock().idle.push(connection);
        }
    }
}
