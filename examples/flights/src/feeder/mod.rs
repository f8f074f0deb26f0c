//! Replays the streams: many callers at once, each grain's stream by one of them at a time, in file
//! order.
//!
//! A caller repeats a failed batch, even if it may have run, and continues from the position in the
//! grain's answer. The protocol makes that exact. Failures are bounded by time, not by number: a
//! silo that was killed fails many calls within milliseconds.

mod progress;
mod queue;
mod sink;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::progress::{Progress, Snapshot};
use self::queue::{Cursor, Queue};
pub use self::sink::{ClusterSink, Failure, Sink};
use crate::streams::{Streams, Target};

/// How to feed.
#[derive(Clone, Debug)]
pub struct FeederOptions {
    /// How many calls are on their way at once. Default 64.
    pub callers: usize,
    /// The most departures in one call to an airport. Default 64.
    pub airport_batch: u64,
    /// The most departures in one call to an aircraft. Default 2.
    pub aircraft_batch: u64,
    /// The pause after a first failure; doubles with each further one. Default 10 ms.
    pub retry_min: Duration,
    /// The longest pause. Default 500 ms.
    pub retry_max: Duration,
    /// How long one batch is tried before the whole replay fails. Default 60 s.
    pub give_up_after: Duration,
}

impl Default for FeederOptions {
    fn default() -> Self {
        Self {
            callers: 64,
            airport_batch: 64,
            aircraft_batch: 2,
            retry_min: Duration::from_millis(10),
            retry_max: Duration::from_millis(500),
            give_up_after: Duration::from_secs(60),
        }
    }
}

/// The replay failed. Applied batches stay applied, and feeding the same file again continues from
/// there.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// One batch failed for too long.
    #[error(
        "{target} did not take a batch in {attempts} attempts within {waited:?}; the last one: \
         {last}"
    )]
    GaveUp {
        /// The grain.
        target: Target,
        /// How often the batch was sent.
        attempts: u32,
        /// How long it was tried.
        waited: Duration,
        /// The last failure.
        last: String,
    },
    /// A caller's task panicked.
    #[error("a caller failed: {0}")]
    Caller(String),
}

/// How a replay went, over all callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedReport {
    /// From the first call to the last answer.
    pub elapsed: Duration,
    /// The longest time between two successes of one caller.
    pub longest_gap: Duration,
    /// The longest time one batch took, its repetitions included.
    pub longest_call: Duration,
}

/// Feeds every stream to `sink` until all of it is applied.
///
/// # Errors
/// [`FeedError::GaveUp`] as soon as one batch failed for `give_up_after`.
pub async fn feed<S: Sink>(
    streams: Arc<Streams>,
    sink: Arc<S>,
    options: FeederOptions,
    progress: Arc<Progress>,
) -> Result<FeedReport, FeedError> {
    let started = Instant::now();
    let queue = Arc::new(Queue::new(&streams));
    let mut callers = JoinSet::new();
    for _ in 0..options.callers.max(1) {
        let caller = Caller {
            streams: streams.clone(),
            sink: sink.clone(),
            options: options.clone(),
            progress: progress.clone(),
            last_success: started,
            report: FeedReport::default(),
        };
        callers.spawn(caller.run(queue.clone()));
    }
    let mut report = FeedReport::default();
    while let Some(ended) = callers.join_next().await {
        let of_caller = ended.map_err(|error| FeedError::Caller(error.to_string()))??;
        report.longest_gap = report.longest_gap.max(of_caller.longest_gap);
        report.longest_call = report.longest_call.max(of_caller.longest_call);
    }
    report.elapsed = started.elapsed();
    Ok(report)
}

/// One of many: makes one call at a time.
struct Caller<S> {
    streams: Arc<Streams>,
    sink: Arc<S>,
    options: FeederOptions,
    progress: Arc<Progress>,
    last_success: Instant,
    report: FeedReport,
}

impl<S: Sink> Caller<S> {
    /// Ends when no stream is left. The streams other callers have in hand come back to the queue,
    /// but there are never more of those than callers to take them.
    async fn run(mut self, queue: Arc<Queue>) -> Result<FeedReport, FeedError> {
        while let Some(mut cursor) = queue.take() {
            self.batch(&mut cursor).await?;
            queue.give_back(cursor, &self.streams);
        }
        Ok(self.report)
    }

    /// One batch, repeated until the grain says that something of it is applied.
    async fn batch(&mut self, cursor: &mut Cursor) -> Result<(), FeedError> {
        let Some(stream) = self.streams.all().get(cursor.stream) else { return Ok(()) };
        let target = stream.target();
        let size = match target {
            Target::Airport(_) => self.options.airport_batch,
            Target::Aircraft(_) => self.options.aircraft_batch,
        };
        let begun = Instant::now();
        let mut pause = self.options.retry_min;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let from = cursor.next;
            let batch = self.streams.batch(stream, from..from.saturating_add(size.max(1)));
            let failure = match self.sink.apply(target, from, batch).await {
                Ok(answer) => {
                    self.progress.moved_on(from, answer.applied.min(stream.len()));
                    cursor.next = answer.applied.min(stream.len());
                    self.progress.answered(cursor, answer.silo);
                    self.note_success(begun);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if let Some(expected) = failure.expected {
                self.progress.moved_on(from, expected.min(stream.len()));
                cursor.next = expected.min(stream.len());
            }
            self.progress.failed();
            let waited = begun.elapsed();
            if waited >= self.options.give_up_after {
                let (target, last) = (target.clone(), failure.to_string());
                return Err(FeedError::GaveUp { target, attempts, waited, last });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.options.retry_max);
        }
    }

    fn note_success(&mut self, begun: Instant) {
        let now = Instant::now();
        self.report.longest_call = self.report.longest_call.max(now - begun);
        self.report.longest_gap = self.report.longest_gap.max(now - self.last_success);
        self.last_success = now;
    }
}
