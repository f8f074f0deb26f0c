//! A store that is opened again when its credentials change.
//!
//! The store in use serves every request. When its server refuses one, the credentials are read
//! again, the store is opened with them, and the request is repeated: a refused request did nothing
//! ([`StoreError`]). The same happens when a file has changed, and before the program's credentials
//! expire. The newest credentials are tried first, then earlier ones, so a rotation may begin on
//! either side.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use emmer_core::Timestamp;
use emmer_store::address::OPERATION_TIMEOUT_MS;
use emmer_store::url::StoreUrl;
use emmer_store::{
    BoxFuture, CommitOutcome, Examination, Mutation, Result, Row, StoreError, StoreErrorKind,
    StoreLimits, StoredRow, SystemStore, TableDecl, Value,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::credentials::{Origin, Way, with_parameter};

/// Pause between two looks at the files, which requests begin. It is also the least time between
/// two questions of a program whose credentials end.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Share of a request's time for other credentials after a refusal: a sixth. The store itself gets
/// the rest, so a repeated request ends when the first one would have.
const SPARE: u32 = 6;
/// Shortest time for a request of the store itself.
const LEAST: Duration = Duration::from_secs(1);
/// Longest time before their end at which credentials are renewed.
const BEFORE_END: Duration = Duration::from_secs(60);
/// Pause after a renewal in vain until a refusal has the files read again.
const READ_AFTER: Duration = Duration::from_millis(100);
/// Pause after a renewal in vain until a refusal has the program asked again.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// Number of refused ways that are remembered: those of a file, the way in use and the way before.
const REFUSED_MAX: usize = 8;

/// Opens a store by a URL that holds everything.
pub(crate) type Open =
    Arc<dyn Fn(String) -> BoxFuture<'static, Result<Arc<dyn SystemStore>>> + Send + Sync>;

/// A store whose credentials may change.
pub(crate) struct Renewed {
    shared: Arc<Shared>,
}

struct Shared {
    /// The URL as it was given, without secrets.
    name: String,
    origin: Origin,
    open: Open,
    /// The time that a request may take, and the part of it that the store has.
    time: Duration,
    inner: Duration,
    state: Mutex<State>,
    /// Number of renewals that have ended. Requests wait for it: a lock would be handed to a
    /// request that its caller no longer polls.
    ended: watch::Sender<u64>,
}

struct State {
    store: Arc<dyn SystemStore>,
    way: Way,
    /// Grows each time the store is opened again.
    generation: u64,
    /// A renewal is under way: there is one at a time.
    is_renewing: bool,
    /// The way before this one: the server may take it still, or again.
    before: Option<Way>,
    /// The ways that a server refused, and when.
    refused: Vec<(u64, Instant)>,
    next_look: Instant,
    /// The moment at which new credentials are due, for those that end.
    renew_at: Option<SystemTime>,
    /// The end of the last renewal after a refusal that led to nothing.
    in_vain: Option<Instant>,
    /// The last failure to read credentials, so that the log says it once.
    failing: Option<String>,
}

impl Renewed {
    /// Opens the store with the first credentials that its server takes.
    ///
    /// # Errors
    /// `Refused`: there are no credentials, or the server takes none of them. Or the store's own
    /// error.
    pub(crate) async fn open(url: &StoreUrl, origin: Origin, open: Open) -> Result<Self> {
        let name = url.to_string();
        let ways = origin.read().await.map_err(|why| refused(&name, why))?;
        let time = time_of(url);
        let inner = time - time / SPARE;
        let inner = if inner >= LEAST { inner } else { time };
        let mut last = None;
        for way in ways {
            match opened(&open, &way, inner).await {
                Ok(store) => {
                    let now = Instant::now();
                    let state = State {
                        store,
                        renew_at: renew_at(way.until),
                        way,
                        generation: 0,
                        is_renewing: false,
                        before: None,
                        refused: Vec::new(),
                        next_look: now + LOOK_EVERY,
                        in_vain: None,
                        failing: None,
                    };
                    let (state, ended) = (Mutex::new(state), watch::Sender::new(0));
                    let shared = Shared { name, origin, open, time, inner, state, ended };
                    return Ok(Self { shared: Arc::new(shared) });
                }
                Err(error) if error.kind == StoreErrorKind::Refused => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| refused(&name, "there are no credentials".to_owned())))
    }

    /// Makes a request, and repeats it with other credentials while the server refuses it and there
    /// are any.
    async fn ask<T, F>(&self, request: impl Fn(Arc<dyn SystemStore>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let begun = Instant::now();
        self.shared.look();
        loop {
            let (store, generation) = self.shared.current();
            let error = match request(store).await {
                Err(error) if error.kind == StoreErrorKind::Refused => error,
                other => return other,
            };
            // The store had less than the whole time only where some is spared.
            let until = begun + (self.shared.time - self.shared.inner);
            let renewed = self.shared.renewed(generation, begun);
            if !tokio::time::timeout_at(until, renewed).await.unwrap_or(false) {
                return Err(error);
            }
        }
    }

    fn store(&self) -> Arc<dyn SystemStore> {
        self.shared.current().0
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves a store that was opened.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> (Arc<dyn SystemStore>, u64) {
        let state = self.lock();
        (state.store.clone(), state.generation)
    }

    /// Looks for new credentials if it is time to, without waiting for them.
    fn look(self: &Arc<Self>) {
        let now = Instant::now();
        {
            let mut state = self.lock();
            if now < state.next_look {
                return;
            }
            state.next_look = now + LOOK_EVERY;
            let is_due = state.renew_at.is_some_and(|due| due <= SystemTime::now());
            if self.origin.asks_program() && !is_due {
                return;
            }
        }
        self.begin(None);
    }

    /// Begins a renewal in a task: it serves every request, and no request that is dropped ends it.
    /// Returns false if one is under way.
    fn begin(self: &Arc<Self>, refused: Option<(u64, Instant)>) -> bool {
        if std::mem::replace(&mut self.lock().is_renewing, true) {
            return false;
        }
        let renewal = Renewal(self.clone());
        tokio::spawn(async move { renewal.0.renew(refused).await });
        true
    }

    /// Waits until the store is no longer that of `generation`, which the server refused to a
    /// request that began then. Returns false if no other credentials are found.
    async fn renewed(self: &Arc<Self>, generation: u64, begun: Instant) -> bool {
        let mut ended = self.ended.subscribe();
        loop {
            ended.mark_unchanged();
            let is_own = self.begin(Some((generation, begun)));
            // The sender lives as long as this store.
            let _ = ended.changed().await;
            if self.current().1 != generation {
                return true;
            }
            if is_own {
                return false;
            }
        }
    }

    /// Opens the store with other credentials, if there are any: because the server refused those
    /// of a generation, or because it is time to.
    async fn renew(&self, refused: Option<(u64, Instant)>) {
        if let Some((generation, _)) = refused {
            let pause = if self.origin.asks_program() { ASK_AFTER } else { READ_AFTER };
            let mut state = self.lock();
            if state.generation != generation
                || state.in_vain.is_some_and(|end| end.elapsed() < pause)
            {
                return;
            }
            let mark = state.way.mark;
            state.remember_refused(mark);
        }
        let mut ways = self.ways().await;
        if refused.is_some() {
            ways.extend(self.lock().before.clone());
        } else {
            // The way in use is good enough unless there are better ones.
            let mark = self.lock().way.mark;
            let better = ways.iter().position(|way| way.mark == mark).unwrap_or(ways.len());
            ways.truncate(better);
        }
        let is_new = self.take_first(ways, refused.map(|(_, begun)| begun)).await;
        let end = (refused.is_some() && !is_new).then(Instant::now);
        self.lock().in_vain = end;
    }

    /// Opens the store the first way that its server takes, leaving out ways that it refused
    /// `since` then. Returns false if there is none.
    async fn take_first(&self, ways: Vec<Way>, since: Option<Instant>) -> bool {
        for way in ways {
            let refused = {
                let state = self.lock();
                if way.mark == state.way.mark {
                    continue;
                }
                state.refused_at(way.mark)
            };
            if refused.zip(since).is_some_and(|(refused, since)| refused >= since) {
                continue;
            }
            match opened(&self.open, &way, self.inner).await {
                Ok(store) => {
                    self.lock().take(way, store);
                    tracing::info!(store = self.name, "the store is open with other credentials");
                    return true;
                }
                Err(error) if error.kind == StoreErrorKind::Refused => {
                    self.lock().remember_refused(way.mark);
                    if refused.is_none() {
                        let error = error.detail;
                        let store = self.name.as_str();
                        tracing::warn!(store, error, "the server refuses other credentials");
                    }
                }
                // The server is away, or too busy: the next look tries again.
                Err(_) => return false,
            }
        }
        false
    }

    /// The ways that may be tried now, the best first. A failure to read them is logged once.
    async fn ways(&self) -> Vec<Way> {
        let read = self.origin.read().await;
        let mut state = self.lock();
        let ways = match read {
            Ok(ways) => {
                state.failing = None;
                ways
            }
            Err(why) => {
                if state.failing.as_ref() != Some(&why) {
                    tracing::warn!(store = self.name, why, "no new credentials of the store");
                    state.failing = Some(why);
                }
                Vec::new()
            }
        };
        // The program gave the same again: their end may be another.
        let (mark, first) = (state.way.mark, ways.first().map(|way| (way.mark, way.until)));
        if let Some((_, until)) = first.filter(|(first, _)| *first == mark) {
            state.renew_at = renew_at(until);
        }
        ways
    }
}

/// A renewal that is under way. Dropped, it has ended, also by a panic.
struct Renewal(Arc<Shared>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.lock().is_renewing = false;
        self.0.ended.send_modify(|ended| *ended += 1);
    }
}

impl State {
    /// Takes a store in use.
    fn take(&mut self, way: Way, store: Arc<dyn SystemStore>) {
        self.renew_at = renew_at(way.until);
        self.before = Some(std::mem::replace(&mut self.way, way));
        self.store = store;
        self.generation += 1;
    }

    fn remember_refused(&mut self, mark: u64) {
        self.refused.retain(|(known, _)| *known != mark);
        if self.refused.len() >= REFUSED_MAX {
            self.refused.remove(0);
        }
        self.refused.push((mark, Instant::now()));
    }

    fn refused_at(&self, mark: u64) -> Option<Instant> {
        self.refused.iter().find(|(known, _)| *known == mark).map(|(_, when)| *when)
    }
}

/// The moment to renew credentials that end: a fifth of their time before, at most a minute.
fn renew_at(until: Option<SystemTime>) -> Option<SystemTime> {
    let until = until?;
    let left = until.duration_since(SystemTime::now()).unwrap_or_default();
    Some(until - BEFORE_END.min(left / 5))
}

/// Opens a store one way, with its part of a request's time.
async fn opened(open: &Open, way: &Way, inner: Duration) -> Result<Arc<dyn SystemStore>> {
    open(with_parameter(&way.url, "timeout_ms", &inner.as_millis().to_string())).await
}

/// The time of a request: as the URL says, else as every store has it.
fn time_of(url: &StoreUrl) -> Duration {
    let said = url.parameters_behind_credentials().find(|(name, _)| *name == "timeout_ms");
    let said = said.and_then(|(_, value)| value.parse().ok());
    Duration::from_millis(said.unwrap_or(OPERATION_TIMEOUT_MS))
}

fn refused(name: &str, why: String) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, name, "open", why)
}

impl SystemStore for Renewed {
    fn describe(&self) -> String {
        self.shared.name.clone()
    }

    fn request_timeout(&self) -> Option<Duration> {
        Some(self.store().request_timeout()? + (self.shared.time - self.shared.inner))
    }

    fn limits(&self) -> StoreLimits {
        self.store().limits()
    }

    fn ensure_tables<'a>(&'a self, tables: &'a [&'static TableDecl]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(move |store| async move { store.ensure_tables(tables).await }))
    }

    fn read_partition<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(self.ask(move |store| async move { store.read_partition(table, partition).await }))
    }

    fn read_row<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredRow>>> {
        Box::pin(
            self.ask(move |store| async move { store.read_row(table, partition, row_key).await }),
        )
    }

    fn read_some<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        from: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(
            self.ask(
                move |store| async move { store.read_some(table, partition, from, limit).await },
            ),
        )
    }

    fn keeps_in_memory(&self) -> bool {
        self.store().keeps_in_memory()
    }

    fn keeps_order(&self) -> bool {
        self.store().keeps_order()
    }

    fn scan<'a>(
        &'a self,
        table: &'static TableDecl,
        column: &'static str,
        range: RangeInclusive<i64>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<StoredRow>>> {
        Box::pin(self.ask(move |store| {
            let range = range.clone();
            async move { store.scan(table, column, range, limit).await }
        }))
    }

    fn commit<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        mutations: Vec<Mutation>,
    ) -> BoxFuture<'a, Result<CommitOutcome>> {
        Box::pin(self.ask(move |store| {
            let mutations = mutations.clone();
            async move { store.commit(table, partition, mutations).await }
        }))
    }

    fn touch<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        row_key: &'a str,
        column: &'static str,
        value: Value,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(move |store| {
            let value = value.clone();
            async move { store.touch(table, partition, row_key, column, value).await }
        }))
    }

    fn append<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        rows: Vec<Row>,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.ask(move |store| {
            let rows = rows.clone();
            async move { store.append(table, partition, rows).await }
        }))
    }

    fn delete_older_than<'a>(
        &'a self,
        table: &'static TableDecl,
        partition: &'a str,
        column: &'static str,
        cutoff: Timestamp,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.ask(move |store| async move {
            store.delete_older_than(table, partition, column, cutoff).await
        }))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Examination>> {
        Box::pin(self.ask(|store| async move { store.examine().await }))
    }
}

#[cfg(test)]
#[path = "renewed_tests.rs"]
mod tests;
