//! Which parts of the table are read next, and how.
//!
//! A leaf is a run of buckets that one read covers. Where a read finds as many rows as it asked
//! for, the leaf is cut in two; a leaf of one bucket asks only for what is due soon, and for more
//! rows.
//! Leaves that stay nearly empty grow together again. A leaf may have buckets of others, too. So a
//! table of ten reminders costs one read, and of a million only what is due is read.

use std::time::Duration;

use emmer_core::Instant;
use emmer_core::backoff::Backoff;
use emmer_core::reminder::REMINDER_BUCKETS;
use emmer_core::rng::SeededRng;

use crate::api::ReadId;

/// No leaf asks for more rows than this: 268 million due in one window in all buckets.
const LIMIT_MAX: usize = 1 << 16;
/// A leaf that is read as a whole asks for one in so many of the rows that others ask for.
const WHOLE_SHARE: usize = 8;
/// One read in so many of a leaf with little that is due soon looks whether it has little at all.
const WHOLE_AGAIN: u64 = 16;

#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Only what is due soon is asked for.
    pub(crate) soon: bool,
    pub(crate) limit: usize,
    next_read: Instant,
    reading: Option<ReadId>,
    /// How many rows the last read found, all of them; none before.
    rows: Option<usize>,
    backoff: Backoff,
}

impl Leaf {
    fn new(from: u16, to: u16, limit: usize, next_read: Instant) -> Self {
        let backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(20));
        let (soon, reading, rows) = (false, None, None);
        Self { from, to, soon, limit, next_read, reading, rows, backoff }
    }

    /// The rows of a leaf that was read as a whole, and is not being read.
    fn whole_rows(&self) -> Option<usize> {
        self.rows.filter(|_| !self.soon && self.reading.is_none())
    }
}

/// The leaves of one silo, in the order of their buckets; no two of them overlap.
#[derive(Debug)]
pub(crate) struct Leaves {
    all: Vec<Leaf>,
    /// The buckets that matter, in order.
    runs: Vec<(u16, u16)>,
    /// When the next one is to be read.
    next: Option<Instant>,
    limit: usize,
    whole: usize,
    refresh: Duration,
}

impl Leaves {
    pub(crate) const fn new(limit: usize, refresh: Duration) -> Self {
        let whole = if limit > WHOLE_SHARE { limit / WHOLE_SHARE } else { 1 };
        Self { all: Vec::new(), runs: Vec::new(), next: None, limit, whole, refresh }
    }

    /// Covers these runs of buckets, and others between them as long as these have few rows. What
    /// is new among them is read soon, at a time drawn from `spread`.
    pub(crate) fn cover(
        &mut self,
        now: Instant,
        runs: &[(u16, u16)],
        spread: Duration,
        rng: &mut SeededRng,
    ) {
        let before = std::mem::replace(&mut self.runs, runs.to_vec());
        let known = std::mem::take(&mut self.all);
        let mut next = 0;
        for mut leaf in known {
            if !owns(runs, leaf.from, leaf.to) {
                continue;
            }
            self.fill(now, (next, leaf.from.saturating_sub(1)), spread, rng);
            next = u32::from(leaf.to) + 1;
            if gains(&before, runs, leaf.from, leaf.to) {
                leaf.next_read = leaf.next_read.min(now + rng.duration_below(spread));
            }
            self.all.push(leaf);
        }
        self.fill(now, (next, REMINDER_BUCKETS - 1), spread, rng);
        self.look_next();
    }

    /// A leaf for what is owned in a span that has none.
    fn fill(
        &mut self,
        now: Instant,
        (first, last): (u32, u16),
        spread: Duration,
        rng: &mut SeededRng,
    ) {
        let Ok(first) = u16::try_from(first) else { return };
        let inside = self.runs.iter().filter(|(from, to)| *from <= last && first <= *to);
        let hull = inside.fold(None, |hull: Option<(u16, u16)>, (from, to)| {
            let from = hull.map_or(*from, |(from, _)| from);
            Some((from.max(first), (*to).min(last)))
        });
        if let Some((from, to)) = hull.filter(|(from, to)| from <= to) {
            let soon = now + rng.duration_below(spread);
            self.all.push(Leaf::new(from, to, self.whole, soon));
        }
    }

    fn look_next(&mut self) {
        let waiting = self.all.iter().filter(|leaf| leaf.reading.is_none());
        self.next = waiting.map(|leaf| leaf.next_read).min();
    }

    /// The next leaf to be read, if it is time; `read` ties its answer to it.
    pub(crate) fn begin(&mut self, now: Instant, read: ReadId) -> Option<(u16, u16, bool, usize)> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let waiting = self.all.iter_mut().filter(|leaf| leaf.reading.is_none());
        let leaf = waiting.min_by_key(|leaf| leaf.next_read)?;
        leaf.reading = Some(read);
        let begun = (leaf.from, leaf.to, leaf.soon, leaf.limit);
        self.look_next();
        Some(begun)
    }

    /// When the next leaf is to be read.
    pub(crate) const fn next_read(&self) -> Option<Instant> {
        self.next
    }

    /// The read failed: it is tried again a little later.
    pub(crate) fn failed(&mut self, now: Instant, read: ReadId, rng: &mut SeededRng) {
        if let Some(leaf) = self.all.iter_mut().find(|leaf| leaf.reading == Some(read)) {
            leaf.reading = None;
            leaf.next_read = now + leaf.backoff.next_delay(rng);
            self.look_next();
        }
    }

    /// The read found this many rows, and perhaps not all. Returns the buckets and if only what is
    /// due soon was asked for, when all of that was found.
    pub(crate) fn done(
        &mut self,
        now: Instant,
        read: ReadId,
        (rows, is_full): (usize, bool),
        rng: &mut SeededRng,
    ) -> Option<(u16, u16, bool)> {
        let at = self.all.iter().position(|leaf| leaf.reading == Some(read))?;
        let refresh = self.refresh / 2 + rng.duration_below(self.refresh / 2);
        let leaf = self.all.get_mut(at)?;
        leaf.reading = None;
        leaf.backoff.reset();
        leaf.next_read = now + refresh;
        let whole = (leaf.from, leaf.to, leaf.soon);
        if is_full {
            leaf.rows = None;
            if leaf.from < leaf.to {
                leaf.next_read = now;
                let middle = leaf.from + (leaf.to - leaf.from) / 2;
                let last = std::mem::replace(&mut leaf.to, middle);
                self.all.insert(at + 1, Leaf::new(middle + 1, last, self.whole, now));
                // What is nobody's business here is not read at all.
                let runs = &self.runs;
                self.all.retain(|leaf| owns(runs, leaf.from, leaf.to));
            } else if !leaf.soon {
                leaf.next_read = now;
                (leaf.soon, leaf.limit) = (true, self.limit);
            } else if leaf.limit < LIMIT_MAX {
                leaf.next_read = now;
                leaf.limit *= 2;
            }
        } else {
            leaf.rows = Some(rows);
            if leaf.soon && rows * 2 < self.whole && rng.below(WHOLE_AGAIN) == 0 {
                (leaf.soon, leaf.limit, leaf.rows) = (false, self.whole, None);
            }
            self.join(at);
        }
        self.look_next();
        (!is_full).then_some(whole)
    }

    /// Joins a leaf with the one behind it if both together have few rows.
    fn join(&mut self, at: usize) {
        let Some([one, two]) = self.all.get(at..at + 2) else { return };
        let (Some(here), Some(behind)) = (one.whole_rows(), two.whole_rows()) else { return };
        if one.to + 1 != two.from || (here + behind) * 2 > self.whole {
            return;
        }
        let (to, next_read) = (two.to, two.next_read.min(one.next_read));
        if let Some(one) = self.all.get_mut(at) {
            (one.to, one.rows, one.next_read) = (to, Some(here + behind), next_read);
        }
        self.all.remove(at + 1);
    }
}

/// Returns true if one of the buckets `from..=to` is in one of the runs.
fn owns(runs: &[(u16, u16)], from: u16, to: u16) -> bool {
    let after = runs.partition_point(|(_, last)| *last < from);
    runs.get(after).is_some_and(|(first, _)| *first <= to)
}

/// Returns true if one of the buckets `from..=to` is in one of the runs and was in none before.
fn gains(before: &[(u16, u16)], runs: &[(u16, u16)], from: u16, to: u16) -> bool {
    let inside = runs.iter().filter(|(first, last)| *first <= to && from <= *last);
    let mut buckets = inside.flat_map(|(first, last)| (*first).max(from)..=(*last).min(to));
    buckets.any(|bucket| !owns(before, bucket, bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads what is due to be read until nothing is, of a table with rows in some buckets. Returns
    /// how many reads it took, and how many rows they returned.
    fn read_all(
        leaves: &mut Leaves,
        now: Instant,
        rows: impl Fn(u16, bool) -> usize,
    ) -> (usize, usize) {
        let (mut rng, mut reads, mut returned) = (SeededRng::new(now.as_nanos()), 0, 0);
        while let Some((from, to, soon, limit)) = leaves.begin(now, ReadId(reads as u64)) {
            let found = (from..=to).map(|bucket| rows(bucket, soon)).sum::<usize>().min(limit);
            leaves.done(now, ReadId(reads as u64), (found, found == limit), &mut rng);
            (reads, returned) = (reads + 1, returned + found);
        }
        (reads, returned)
    }

    const REFRESH: Duration = Duration::from_secs(300);

    fn covered(leaves: &mut Leaves, runs: &[(u16, u16)]) {
        leaves.cover(Instant::ZERO, runs, Duration::ZERO, &mut SeededRng::new(1));
    }

    fn buckets(leaves: &Leaves) -> Vec<u16> {
        leaves.all.iter().flat_map(|leaf| leaf.from..=leaf.to).collect()
    }

    #[test]
    fn a_small_table_is_one_read_and_a_large_one_is_read_by_what_is_due() {
        let mut leaves = Leaves::new(500, REFRESH);
        covered(&mut leaves, &[(0, 999)]);
        let few = |bucket: u16, _| usize::from(bucket.is_multiple_of(100));
        assert_eq!(read_all(&mut leaves, Instant::ZERO, few), (1, 10));
        // As of a million, of which one of a hundred is due soon.
        let many = |_, soon| if soon { 2 } else { 244 };
        let later = Instant::ZERO + REFRESH;
        read_all(&mut leaves, later, many);
        let (reads, rows) = read_all(&mut leaves, later + REFRESH, many);
        assert!((1_000..1_150).contains(&reads) && rows < 8_000, "{reads} reads, {rows} rows");
        assert_eq!(buckets(&leaves), (0..1_000).collect::<Vec<_>>());
        // And it shrinks again.
        let mut now = later + REFRESH;
        let mut last = 0;
        for _ in 0..100 {
            now = now + REFRESH;
            (last, _) = read_all(&mut leaves, now, few);
        }
        assert!(last < 10, "{last} reads of a table that is small again");
        assert_eq!(buckets(&leaves), (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn leaves_cover_the_runs_and_no_leaf_covers_none_of_them() {
        let (mut leaves, mut rng) = (Leaves::new(500, REFRESH), SeededRng::new(7));
        for round in 0..200 {
            let mut edges: Vec<u16> = (0..6).map(|_| rng.below(4_096) as u16).collect();
            edges.sort_unstable();
            edges.dedup();
            let runs: Vec<_> = edges.chunks_exact(2).map(|run| (run[0], run[1])).collect();
            covered(&mut leaves, &runs);
            let wanted: Vec<u16> = runs.iter().flat_map(|(from, to)| *from..=*to).collect();
            let check = |leaves: &Leaves| {
                let covered = buckets(leaves);
                assert!(covered.is_sorted_by(|a, b| a < b), "two leaves overlap");
                assert!(wanted.iter().all(|bucket| covered.binary_search(bucket).is_ok()));
                assert!(leaves.all.iter().all(|leaf| owns(&runs, leaf.from, leaf.to)));
            };
            check(&leaves);
            let now = Instant::from_millis(1_000 * round);
            read_all(&mut leaves, now, |bucket, soon| {
                usize::from(bucket % 9) * if soon { 1 } else { 20 }
            });
            check(&leaves);
        }
    }

    #[test]
    fn a_gained_bucket_is_read_soon_and_a_kept_one_when_it_is_time() {
        let (mut leaves, mut rng) = (Leaves::new(500, REFRESH), SeededRng::new(7));
        covered(&mut leaves, &[(10, 20), (40, 50)]);
        assert_eq!(read_all(&mut leaves, Instant::ZERO, |_, _| 0).0, 1, "one read for both runs");
        let soon = Duration::from_secs(1);
        let mut next = |leaves: &mut Leaves, runs: &[(u16, u16)]| {
            leaves.cover(Instant::ZERO, runs, soon, &mut rng);
            leaves.next_read().unwrap() < Instant::ZERO + soon
        };
        assert!(!next(&mut leaves, &[(10, 20), (45, 50)]) && !next(&mut leaves, &[(10, 12)]));
        assert!(next(&mut leaves, &[(10, 13)]));
        read_all(&mut leaves, Instant::ZERO + soon, |_, _| 0);
        assert!(next(&mut leaves, &[(10, 13), (3_000, 3_001)]));
        assert_eq!(leaves.all.len(), 2);
    }

    #[test]
    fn a_failed_read_is_tried_again_later_and_later() {
        let (mut leaves, mut rng) = (Leaves::new(500, REFRESH), SeededRng::new(7));
        covered(&mut leaves, &[(0, 10)]);
        let mut now = Instant::ZERO;
        for try_ in 0..8 {
            assert!(leaves.begin(now, ReadId(try_)).is_some() && leaves.next_read().is_none());
            leaves.failed(now, ReadId(try_), &mut rng);
            let next = leaves.next_read().unwrap();
            assert!(next > now && next <= now + Duration::from_secs(20));
            now = next;
        }
    }
}
