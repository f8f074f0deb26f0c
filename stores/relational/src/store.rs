//! The store itself, for any driver: requests sent, repeated, limited in time.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::Timestamp;
use emmer_store::away::{AWAY_PAUSE, is_worth_waiting};
use emmer_store::{
    Answered, CommitOutcome, Contention, Examination, Fault, Mutation, Result, Row, StoreErrorKind,
    StoreLimits, StoredRow, TableDecl, Unchecked, Value,
};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::driver::{Answer, Driver, Each, EachAnswer, Request};
use crate::etags::{self, Etags, random};
use crate::fault::Failure;
use crate::pace::{Kind, Pace};
use crate::pool::Pool;
use crate::shared::{Grouped, Write, may_share};

/// Longest time to make tables once the server is reached: others may be making them.
const ENSURE_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of times that a request is sent that others made fail: many writers that lock crosswise
/// lose many times, and each time at once.
const ATTEMPTS_MAX: u32 = 64;
/// Number of times that a read is sent whose connection broke.
const BROKEN_MAX: u32 = 8;
/// The rows a clean-up deletes in one statement.
const CLEAN_UP_ROWS: u64 = 5_000;

/// A system store on a server that `D` talks to.
///
/// Dropping it closes its connections.
pub struct Relational<D: Driver>(Arc<Core<D>>);

/// The connections of a store, and the way of requests over them. Statements that requests share
/// hold it.
pub(crate) struct Core<D: Driver> {
    driver: Arc<D>,
    pool: Pool<D>,
    pub(crate) etags: Etags,
    contention: Contention,
    pace: Pace,
    pub(crate) grouped: Grouped,
}

impl<D: Driver> fmt::Debug for Relational<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relational").field(&self.0.driver.name()).finish()
    }
}

type Ended<T = Answer> = std::result::Result<T, Failure>;

/// One request, or many that share a statement.
#[derive(Clone, Copy)]
pub(crate) enum Work<'a> {
    One(&'a Request<'a>),
    Each(&'a Each<'a>),
}

pub(crate) enum Done {
    One(Answer),
    Each(EachAnswer),
}

impl Work<'_> {
    const fn kind(&self) -> Kind {
        match self {
            Self::One(request) => request.kind(),
            Self::Each(Each::Read { .. } | Each::ReadPartition(_)) => Kind::Read,
            Self::Each(Each::Replace(_) | Each::Insert(_)) => Kind::Write,
        }
    }
}

impl<D: Driver> Relational<D> {
    /// Connects to the server of a URL.
    ///
    /// Needs a tokio runtime, now and for every operation.
    ///
    /// # Errors
    /// Within five seconds, naming the store and never a password: `Invalid` for a URL that cannot
    /// be understood, `Unavailable` without an answer, `Refused` for wrong credentials, a missing
    /// database, TLS that cannot be had, or a server that is too old.
    pub async fn open(url: &str) -> Result<Self> {
        let begun = Instant::now();
        let driver = Arc::new(D::new(url)?);
        let pool = Pool::new(driver.clone());
        let deadline = begun + driver.limits().timeout;
        let looked = async {
            pool.warm_up(deadline).await?;
            let mut lease = pool.acquire(deadline).await?;
            let late = |_| Fault::unavailable("the server does not answer in time");
            timeout_at(deadline, driver.look(lease.connection()?)).await.map_err(late)?
        };
        let refused = |mut fault: Fault| {
            // A database that is missing now is a mistake in the URL. One that is missing later was
            // dropped, and its tables with it.
            if fault.kind == StoreErrorKind::NotFound {
                fault.kind = StoreErrorKind::Refused;
            }
            fault.at(driver.name(), "open")
        };
        looked.await.map_err(refused)?;
        let (etags, contention) = (Etags::new(random()), Contention::new(random()));
        let limits = driver.limits();
        let pace = Pace::new(limits.timeout, limits.pool_max);
        let grouped = Grouped::new(limits.pool_max);
        Ok(Self(Arc::new(Core { driver, pool, etags, contention, pace, grouped })))
    }
}

impl<D: Driver> Core<D> {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.driver.limits().timeout
    }

    /// Sends a request once. `Broken` only when the server may have it.
    async fn send(
        &self,
        table: &'static TableDecl,
        work: Work<'_>,
        deadline: Instant,
    ) -> Ended<Done> {
        self.pool.knows(table);
        let kind = work.kind();
        let waits = self.pace.enter(kind).map_err(Failure::Nothing)?;
        let mut lease = self.pool.acquire(deadline).await.map_err(Failure::Nothing)?;
        drop(waits);
        let mut sent = false;
        let deadline = deadline + lease.queued();
        let left = deadline.saturating_duration_since(Instant::now());
        let runs = self.pace.begin(kind, left).map_err(Failure::Nothing)?;
        let connection = lease.connection().map_err(Failure::Nothing)?;
        let (driver, told) = (&self.driver, &mut sent);
        let run = async {
            match work {
                Work::One(request) => {
                    driver.run(connection, table, request, told).await.map(Done::One)
                }
                Work::Each(each) => {
                    driver.run_each(connection, table, each, told).await.map(Done::Each)
                }
            }
        };
        let ended = timeout_at(deadline, run).await;
        runs.note(matches!(ended, Ok(Err(_))));
        let silent =
            |_| Err(Failure::Broken(Fault::unavailable("the server does not answer in time")));
        let ended = ended.unwrap_or_else(silent);
        match &ended {
            Err(Failure::Again(_)) => self.driver.forget_prepared(connection),
            Err(Failure::Elsewhere(_)) => {
                lease.discard();
                self.pool.forget_idle();
            }
            _ => {}
        }
        ended.map_err(|failure| match failure {
            // Lost before the statement was sent, which another connection may take.
            Failure::Broken(fault) if !sent => Failure::Again(fault),
            failure => failure,
        })
    }

    /// Sends a request until it is done or refused. A `repeatable` one is sent again when its
    /// outcome is not known.
    async fn run(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        repeatable: bool,
        deadline: Instant,
    ) -> Ended {
        match self.work(table, Work::One(request), repeatable, deadline).await? {
            Done::One(answer) => Ok(answer),
            Done::Each(_) => Err(Failure::Broken(strange())),
        }
    }

    pub(crate) async fn work(
        &self,
        table: &'static TableDecl,
        work: Work<'_>,
        repeatable: bool,
        deadline: Instant,
    ) -> Ended<Done> {
        let (begun, mut attempt) = (Instant::now(), 1);
        loop {
            match self.send(table, work, deadline).await {
                Err(Failure::Elsewhere(fault)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if !is_worth_waiting(fault.kind, begun.elapsed(), left) {
                        return Err(Failure::Nothing(fault));
                    }
                    sleep(AWAY_PAUSE).await;
                }
                Err(Failure::Broken(_))
                    if repeatable && attempt < BROKEN_MAX && Instant::now() < deadline => {}
                Err(Failure::Again(_)) if attempt < ATTEMPTS_MAX && Instant::now() < deadline => {}
                ended => return ended,
            }
            attempt += 1;
        }
    }

    pub(crate) async fn rows(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
        deadline: Instant,
    ) -> std::result::Result<Vec<StoredRow>, Fault> {
        match self.run(table, request, true, deadline).await {
            Ok(Answer::Rows(rows)) => Ok(rows),
            Ok(_) => Err(strange()),
            Err(failure) => Err(failure.fault()),
        }
    }

    pub(crate) async fn commit_alone(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mutations: Vec<Mutation>,
    ) -> Answered<CommitOutcome, emmer_store::Failure> {
        let (begun, deadline, etag) = (Instant::now(), self.deadline(), self.etags.next());
        let request = Request::Commit { partition, mutations: &mutations, etag };
        let outcome = match self.run(table, &request, false, deadline).await {
            Ok(Answer::Verdict(None)) => committed(&mutations, etag),
            Ok(Answer::Verdict(Some(at))) => CommitOutcome::Conflict(at),
            Ok(_) => return Err(emmer_store::Failure::Broken(strange())),
            Err(Failure::Broken(fault)) => return Err(emmer_store::Failure::Broken(fault)),
            Err(failure) => return Err(failure.fault().into()),
        };
        let wait =
            self.contention.wait(table.name, partition, &mutations, &outcome, begun.elapsed());
        if !wait.is_zero() {
            sleep_until(deadline.min(Instant::now() + wait)).await;
        }
        Ok(outcome)
    }

    /// Number of rows that a request found to change whose repetition does no harm.
    async fn changed(
        &self,
        table: &'static TableDecl,
        request: &Request<'_>,
    ) -> std::result::Result<u64, Fault> {
        match self.run(table, request, true, self.deadline()).await {
            Ok(Answer::Changed(count)) => Ok(count),
            Ok(_) => Err(strange()),
            Err(failure) => Err(failure.fault()),
        }
    }
}

fn small_enough<'r, D: Driver>(rows: impl Iterator<Item = &'r Row>) -> Answered<()> {
    let (bytes, most) = (rows.map(size).sum::<usize>(), D::REQUEST_BYTES_MAX);
    if bytes <= most {
        return Ok(());
    }
    let detail = format!("{bytes} bytes of values, at most {most} are allowed at once");
    Err(Fault::new(StoreErrorKind::Invalid, detail))
}

impl Request<'_> {
    const fn kind(&self) -> Kind {
        match self {
            Self::ReadPartition { .. }
            | Self::ReadRow { .. }
            | Self::ReadSome { .. }
            | Self::Scan { .. } => Kind::Read,
            Self::Commit { .. }
            | Self::Touch { .. }
            | Self::Append { .. }
            | Self::DeleteOlderThan { .. } => Kind::Write,
        }
    }
}

pub(crate) fn strange() -> Fault {
    Fault::corrupt("the server answered with something else")
}

/// The bytes the values of a row take, roughly.
pub(crate) fn size(row: &Row) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(|item| item.len() + 3).sum(),
        Value::Int(_) | Value::Time(_) => 8,
    };
    row.columns().iter().map(|(_, v)| value(v)).sum()
}

/// The row a mutation writes.
fn written(mutation: &Mutation) -> Option<&Row> {
    match mutation {
        Mutation::Insert { row } | Mutation::Replace { row, .. } | Mutation::Upsert { row } => {
            Some(row)
        }
        Mutation::Delete { .. } | Mutation::Check { .. } => None,
    }
}

/// The answer to a commit that happened.
fn committed(mutations: &[Mutation], etag: i64) -> CommitOutcome {
    let etag = etags::text(etag);
    CommitOutcome::Committed(mutations.iter().map(|m| written(m).map(|_| etag.clone())).collect())
}

impl<D: Driver> Unchecked for Relational<D> {
    fn name(&self) -> &str {
        self.0.driver.name()
    }

    fn timeout(&self) -> Duration {
        self.0.driver.limits().timeout
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits::of_commits(D::REQUEST_BYTES_MAX)
    }

    async fn ensure(&self, tables: &[&'static TableDecl]) -> Answered<()> {
        let mut lease = self.0.pool.acquire(self.0.deadline()).await?;
        let work = self.0.driver.ensure(lease.connection()?, tables);
        let made = timeout_at(Instant::now() + ENSURE_TIMEOUT, work).await;
        made.unwrap_or_else(|_| Err(Fault::unavailable("making tables takes too long")))
    }

    async fn read_partition(
        &self,
        table: &'static TableDecl,
        partition: &str,
    ) -> Answered<Vec<StoredRow>> {
        if may_share::<D>(table) {
            return self.0.read_with_others(table, partition, None).await;
        }
        self.0.rows(table, &Request::ReadPartition { partition }, self.0.deadline()).await
    }

    async fn read_row(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
    ) -> Answered<Option<StoredRow>> {
        if may_share::<D>(table) {
            let found = self.0.read_with_others(table, partition, Some(row_key)).await?;
            return Ok(found.into_iter().next());
        }
        let request = Request::ReadRow { partition, row_key };
        Ok(self.0.rows(table, &request, self.0.deadline()).await?.into_iter().next())
    }

    /// The rows from `from` on, and rows before it up to the limit.
    async fn read_some(
        &self,
        table: &'static TableDecl,
        partition: &str,
        from: &str,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        let (mut found, deadline) = (Vec::new(), self.0.deadline());
        for before in [false, true] {
            let at_most = i64::try_from(limit.saturating_sub(found.len())).unwrap_or(0);
            if at_most > 0 {
                let request = Request::ReadSome { partition, from, before, at_most };
                found.extend(self.0.rows(table, &request, deadline).await?);
            }
        }
        Ok(found)
    }

    async fn scan(
        &self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> Answered<Vec<StoredRow>> {
        let (start, end) = range.into_inner();
        let at_most = i64::try_from(limit).unwrap_or(i64::MAX);
        let request = Request::Scan { column, start, end, at_most };
        self.0.rows(table, &request, self.0.deadline()).await
    }

    async fn commit(
        &self,
        table: &'static TableDecl,
        partition: &str,
        mut mutations: Vec<Mutation>,
    ) -> Answered<CommitOutcome, emmer_store::Failure> {
        small_enough::<D>(mutations.iter().filter_map(written))?;
        if mutations.is_empty() {
            return Ok(CommitOutcome::Committed(Vec::new()));
        }
        if may_share::<D>(table) {
            mutations = match Write::of(table, partition, mutations) {
                Ok(write) => return self.0.write_with_others(write).await,
                Err(mutations) => mutations,
            };
        }
        self.0.commit_alone(table, partition, mutations).await
    }

    async fn touch(
        &self,
        table: &'static TableDecl,
        partition: &str,
        row_key: &str,
        column: &'static str,
        value: Value,
    ) -> Answered<bool> {
        let request = Request::Touch { partition, row_key, column, value: &value };
        Ok(self.0.changed(table, &request).await? > 0)
    }

    async fn append(
        &self,
        table: &'static TableDecl,
        partition: &str,
        rows: Vec<Row>,
    ) -> Answered<()> {
        small_enough::<D>(rows.iter())?;
        if rows.is_empty() {
            return Ok(());
        }
        let request = Request::Append { partition, rows: &rows, etag: self.0.etags.next() };
        self.0.changed(table, &request).await.map(drop)
    }

    async fn delete_older_than(
        &self,
        table: &'static TableDecl,
        partition: &str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> Answered<u64> {
        let (cutoff, at_most) = (&Value::Time(cutoff), CLEAN_UP_ROWS.cast_signed());
        let request = Request::DeleteOlderThan { partition, column, cutoff, at_most };
        let mut deleted = 0;
        // It ends: no rows as old as this are added now, and each round deletes some.
        loop {
            let round = self.0.changed(table, &request).await?;
            deleted += round;
            if round < CLEAN_UP_ROWS {
                return Ok(deleted);
            }
        }
    }

    async fn examine(&self) -> Answered<Examination> {
        let deadline = self.0.deadline();
        let mut lease = self.0.pool.acquire(deadline).await?;
        let found = timeout_at(deadline, self.0.driver.examine(lease.connection()?)).await;
        found.unwrap_or_else(|_| Err(Fault::unavailable("the server does not answer in time")))
    }
}
