//! The parts of the table: which of them is read next, and how.
//!
//! A leaf is a run of buckets that one read covers. A leaf whose read finds as many rows as it
//! asked for is cut in two. A leaf of one bucket asks only for rows that are due soon, and for more
//! of them. Nearly empty leaves grow together. A leaf may have buckets of other owners. So a table
//! of ten reminders costs one read, and of a million only what is due is read.

use std::time::Duration;

use emmer_core::Instant;
use emmer_core::backoff::Backoff;
use emmer_core::reminder::REMINDER_BUCKETS;
use emmer_core::rng::SeededRng;

use crate::api::ReadId;

/// No leaf asks for more rows than this: 268 million due in one window in all buckets.
const LIMIT_MAX: usize = 1 << 16;
/// Divisor of the row limit when a leaf is read as a whole, not by due time.
const WHOLE_SHARE: usize = 8;
/// One read in this many of a leaf with few due rows also checks whether the leaf has few rows at
/// all.
const WHOLE_AGAIN: u64 = 16;

/// The very first read covers this many buckets: it tells how dense the table is. A read of all
/// of a large table would make its server sort all of it.
const PROBE: u16 = 16;
/// The next read of a leaf that waits for the first one.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// True if only rows that are due soon are asked for.
    pub(crate) soon: bool,
    pub(crate) limit: usize,
    next_read: Instant,
    reading: Option<ReadId>,
    /// The number of rows that the last read found, all of them; none before.
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

/// The leaves of one silo, in the order of their buckets, without overlap.
#[derive(Debug)]
pub(crate) struct Leaves {
    all: Vec<Leaf>,
    /// The buckets that matter, in order.
    runs: Vec<(u16, u16)>,
    /// Time at which the next one is to be read.
    next: Option<Instant>,
    limit: usize,
    whole: usize,
    /// The number of buckets of a new leaf; none before the first read.
    width: Option<u16>,
    refresh: Duration,
}

impl Leaves {
    pub(crate) const fn new(limit: usize, refresh: Duration) -> Self {
        let whole = if limit > WHOLE_SHARE { limit / WHOLE_SHARE } else { 1 };
        Self { all: Vec::new(), runs: Vec::new(), next: None, limit, whole, width: None, refresh }
    }

    /// Covers these runs of buckets, and others between them that have few rows. New ones among
    /// them are read soon, at a time drawn from `spread`.
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
            if next < u32::from(leaf.from) {
                self.fill(now, (next, leaf.from - 1), spread, rng);
            }
            next = u32::from(leaf.to) + 1;
            if leaf.next_read != NEVER && gains(&before, runs, leaf.from, leaf.to) {
                leaf.next_read = leaf.next_read.min(now + rng.duration_below(spread));
            }
            self.all.push(leaf);
        }
        self.fill(now, (next, REMINDER_BUCKETS - 1), spread, rng);
        self.probe(now + rng.duration_below(spread));
        self.look_next();
    }

    /// A leaf for owned buckets in a span that has none.
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
        let Some((from, to)) = hull.filter(|(from, to)| from <= to) else { return };
        if self.width.is_some() {
            let pieces = self.pieces(from, to, |_| now + rng.duration_below(spread));
            self.all.extend(pieces);
            return;
        }
        self.all.push(Leaf::new(from, to, self.whole, NEVER));
    }

    /// Before anything is known of the table, the first few buckets are read and all others wait.
    fn probe(&mut self, soon: Instant) {
        if self.width.is_some() || self.all.iter().any(|leaf| leaf.next_read != NEVER) {
            return;
        }
        let Some(first) = self.all.first_mut() else { return };
        first.next_read = soon;
        // It begins with a bucket that matters.
        let run = self.runs.iter().find(|(_, last)| first.from <= *last);
        first.from = run.map_or(first.from, |(from, _)| first.from.max(*from));
        let last = first.from.saturating_add(PROBE - 1);
        if last < first.to {
            let rest = Leaf::new(last + 1, first.to, self.whole, NEVER);
            first.to = last;
            self.all.insert(1, rest);
            self.all.retain(|leaf| owns(&self.runs, leaf.from, leaf.to));
        }
    }

    /// The leaves of a span, each as wide as leaves are.
    fn pieces(&self, from: u16, to: u16, mut next: impl FnMut(u16) -> Instant) -> Vec<Leaf> {
        let width = self.width.unwrap_or(REMINDER_BUCKETS).max(1);
        let firsts = (from..=to).step_by(usize::from(width));
        let leaves = firsts.map(|first| {
            let last = first.saturating_add(width - 1).min(to);
            Leaf::new(first, last, self.whole, next(first))
        });
        leaves.filter(|leaf| owns(&self.runs, leaf.from, leaf.to)).collect()
    }

    /// The first leaf was read: now it is known how wide leaves should be, and the others are read.
    fn probed(&mut self, now: Instant, buckets: usize, rows: usize) {
        let width = (self.whole * buckets).checked_div(2 * rows).unwrap_or(usize::MAX);
        self.width = Some(u16::try_from(width).unwrap_or(u16::MAX).clamp(1, REMINDER_BUCKETS));
        for leaf in std::mem::take(&mut self.all) {
            if leaf.next_read == NEVER {
                let pieces = self.pieces(leaf.from, leaf.to, |_| now);
                self.all.extend(pieces);
            } else {
                self.all.push(leaf);
            }
        }
    }

    fn look_next(&mut self) {
        let waiting = self.all.iter().filter(|leaf| leaf.reading.is_none());
        self.next = waiting.map(|leaf| leaf.next_read).filter(|next| *next != NEVER).min();
    }

    /// The next leaf to be read, if its time has come. `read` ties the answer to it.
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

    /// Time at which the next leaf is to be read.
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

    /// The read found this many rows, and perhaps not all. Returns the buckets, and whether only
    /// due rows were asked for, when all of them were found.
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
        if self.width.is_none() {
            self.probed(now, usize::from(whole.1 - whole.0) + 1, rows);
        }
        let at = self.all.iter().position(|leaf| leaf.from == whole.0)?;
        let leaf = self.all.get_mut(at)?;
        if is_full {
            leaf.rows = None;
            if leaf.from < leaf.to {
                leaf.next_read = now;
                let middle = leaf.from + (leaf.to - leaf.from) / 2;
                let last = std::mem::replace(&mut leaf.to, middle);
                self.all.insert(at + 1, Leaf::new(middle + 1, last, self.whole, now));
                // A leaf without a bucket of this silo is not read at all.
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

    /// Reads until no read is due, in a table with rows in some buckets. Returns the number of
    /// reads and of rows.
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
        assert_eq!(read_all(&mut leaves, Instant::ZERO, |_, _| 0), (2, 0));
        let (reads, rows) = read_all(&mut leaves, Instant::ZERO + REFRESH, few);
        assert!(reads <= 2 && rows <= 20, "{reads} reads of {rows} rows");
        // As of a million, of which one of a hundred is due soon.
        let many = |_, soon| if soon { 2 } else { 244 };
        let later = Instant::ZERO + REFRESH * 2;
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
            if round % 20 < 5 {
                // Read in part, or not at all, before the next change.
                leaves = if round % 20 == 0 { Leaves::new(500, REFRESH) } else { leaves };
                covered(&mut leaves, &runs);
                for number in 0..rng.below(4) {
                    let read = ReadId(10_000 * round + number);
                    if leaves.begin(now, read).is_some() && rng.chance(0.7) {
                        leaves.done(now, read, (rng.index(62), rng.chance(0.3)), &mut rng);
                    }
                    check(&leaves);
                }
                assert!(wanted.is_empty() || leaves.all.iter().any(|leaf| leaf.next_read != NEVER));
                continue;
            }
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
        let reads = read_all(&mut leaves, Instant::ZERO, |_, _| 0).0;
        assert_eq!(reads, 2, "the first one tells how wide the other one is");
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
    fn a_dense_table_is_never_read_in_wide_leaves() {
        let mut leaves = Leaves::new(500, REFRESH);
        covered(&mut leaves, &[(100, 3_000)]);
        let mut widest = 0;
        let mut rng = SeededRng::new(1);
        let mut number = 0;
        while let Some((from, to, soon, limit)) = leaves.begin(Instant::ZERO, ReadId(number)) {
            widest = widest.max(to - from + 1);
            let rows = usize::from(to - from + 1) * if soon { 100 } else { 244 };
            let found = (rows.min(limit), rows >= limit);
            leaves.done(Instant::ZERO, ReadId(number), found, &mut rng);
            number += 1;
        }
        assert_eq!((widest, leaves.all.len()), (PROBE, 2_901));
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
