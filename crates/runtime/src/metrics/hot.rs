//! The grains that are called most, and those whose turns take most time, while an operator looks.
//!
//! The calls that are timed anyway are counted in sketches of a fixed size, by the algorithm *space
//! saving* (Metwally and others, 2005): a key that is not in a full sketch takes the place of the
//! one with the smallest count, and inherits that count as its possible error. So a key with more
//! than one in [`KEYS`] of all counts is always there. Nothing is counted without a look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, Instant};
use emmer_net::numbers::NumberMap;
use parking_lot::Mutex;

use super::methods::SAMPLE_EVERY;
use super::threads;

/// Number of keys in a sketch.
const KEYS: usize = 256;

/// Number of sketches, so that threads seldom meet.
const SHARDS: usize = 8;

/// Time after the last look at which the counting ends.
const WATCHED_FOR: Duration = Duration::from_secs(60);

/// Time after which counts are halved: a key that was hot is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(30);

/// Counts by grain, of a fixed number of grains.
#[derive(Debug, Default)]
struct Sketch {
    /// By grain: the count, and the most by which it is too large.
    counts: NumberMap<GrainId, (u64, u64)>,
    total: u64,
}

impl Sketch {
    fn add(&mut self, grain: &GrainId, weight: u64) {
        self.total = self.total.saturating_add(weight);
        if let Some((count, _)) = self.counts.get_mut(grain) {
            *count = count.saturating_add(weight);
            return;
        }
        let mut error = 0;
        if self.counts.len() >= KEYS {
            let least = self.counts.iter().min_by_key(|(_, (count, _))| *count);
            let Some((least, (count, _))) = least.map(|(grain, of)| (grain.clone(), *of)) else {
                return;
            };
            self.counts.remove(&least);
            error = count;
        }
        self.counts.insert(grain.clone(), (error.saturating_add(weight), error));
    }

    fn halve(&mut self) {
        self.total /= 2;
        self.counts.retain(|_, (count, error)| {
            (*count, *error) = (*count / 2, *error / 2);
            *count > 0
        });
    }
}

#[derive(Debug, Default)]
struct Shard {
    calls: Sketch,
    nanos: Sketch,
}

/// A grain with its count, and the most by which it is too large.
pub(crate) type Counted = (GrainId, u64, u64);

/// The grains that are called most.
#[derive(Debug, Default)]
pub(crate) struct HotGrains {
    /// Time until which calls are counted, in nanoseconds of the silo's clock; 0 for never.
    until: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    /// Begin of the counting, and the last halving.
    since: Mutex<(Instant, Instant)>,
}

/// The counts at one moment, scaled to all calls.
#[derive(Debug, Default)]
pub(crate) struct Hottest {
    pub(crate) over: Duration,
    pub(crate) calls: u64,
    pub(crate) called: Vec<Counted>,
    pub(crate) busy: Vec<Counted>,
}

impl HotGrains {
    /// Returns true if calls are counted.
    pub(crate) fn is_watched(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// A call was timed.
    pub(crate) fn note(&self, grain: &GrainId, took: Duration) {
        let Some(shard) = self.shards.get(threads::current() % SHARDS) else { return };
        let mut shard = shard.lock();
        shard.calls.add(grain, 1);
        shard.nanos.add(grain, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Looks, and has calls counted for a while.
    pub(crate) fn look(&self, now: Instant, max: usize) -> Hottest {
        let mut since = self.since.lock();
        if !self.is_watched() {
            *since = (now, now);
        }
        self.until.store((now + WATCHED_FOR).as_nanos().max(1), Ordering::Relaxed);
        let mut hottest = Hottest {
            over: now.saturating_since(since.0).min(2 * HALF_LIFE),
            ..Hottest::default()
        };
        let (mut calls, mut nanos) = (NumberMap::default(), NumberMap::default());
        for shard in &self.shards {
            let mut shard = shard.lock();
            hottest.calls += shard.calls.total * SAMPLE_EVERY;
            merge(&mut calls, &shard.calls);
            merge(&mut nanos, &shard.nanos);
            if now.saturating_since(since.1) >= HALF_LIFE {
                shard.calls.halve();
                shard.nanos.halve();
            }
        }
        if now.saturating_since(since.1) >= HALF_LIFE {
            since.1 = now;
        }
        hottest.called = first(calls, max);
        hottest.busy = first(nanos, max);
        hottest
    }

    /// Ends the counting [`WATCHED_FOR`] after the last look.
    pub(crate) fn rest(&self, now: Instant) {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 || now.as_nanos() < until {
            return;
        }
        self.until.store(0, Ordering::Relaxed);
        self.shards.iter().for_each(|shard| *shard.lock() = Shard::default());
    }
}

fn merge(all: &mut NumberMap<GrainId, (u64, u64)>, sketch: &Sketch) {
    for (grain, (count, error)) in &sketch.counts {
        let sum = all.entry(grain.clone()).or_default();
        *sum = (sum.0.saturating_add(*count), sum.1.saturating_add(*error));
    }
}

/// The `max` largest, scaled to all calls.
fn first(counts: NumberMap<GrainId, (u64, u64)>, max: usize) -> Vec<Counted> {
    let scaled = |count: u64| count.saturating_mul(SAMPLE_EVERY);
    let mut all: Vec<_> = counts.into_iter().map(|(grain, (n, e))| (grain, n, e)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(max);
    all.into_iter().map(|(grain, count, error)| (grain, scaled(count), scaled(error))).collect()
}

#[cfg(test)]
mod tests {
    use emmer_core::GrainTypeId;

    use super::*;

    fn grain(n: u64) -> GrainId {
        GrainId::new(GrainTypeId::of("t"), n)
    }

    #[test]
    fn a_hot_key_is_found_among_many_others() {
        let hot = HotGrains::default();
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        assert!(!hot.is_watched());
        hot.look(at(1), 10);
        assert!(hot.is_watched());
        // Grain 7 has one call in fifty, and the others one each; grain 9 takes long.
        for n in 0..50_000_u64 {
            let (key, took) = if n % 50 == 0 { (7, 10) } else { (1_000 + n, 10) };
            hot.note(&grain(key), Duration::from_nanos(took));
        }
        hot.note(&grain(9), Duration::from_secs(1));
        let seen = hot.look(at(11), 3);
        assert_eq!((seen.called[0].0.clone(), seen.busy[0].0.clone()), (grain(7), grain(9)));
        let (_, count, error) = &seen.called[0];
        assert!((count - error) / SAMPLE_EVERY <= 1_000 && count / SAMPLE_EVERY >= 1_000);
        assert_eq!((seen.calls, seen.over), (50_001 * SAMPLE_EVERY, Duration::from_secs(10)));
        hot.rest(at(70));
        assert!(hot.is_watched());
        hot.rest(at(71));
        assert!(!hot.is_watched() && hot.look(at(72), 3).called.is_empty());
    }
}
