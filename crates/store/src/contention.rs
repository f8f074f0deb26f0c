//! Races for one row: a writer that has just lost one comes back a little later, so that a crowd of
//! writers wastes few attempts.
//!
//! A server does a losing commit as quickly as a winning one, and every loser reads the row again.
//! So 20 writers that came back at once would keep it busy with 19 losers for each winner. A store
//! therefore waits a random time before it reports a lost commit. The window grows with losses and
//! shrinks with wins until about every third commit loses. A single loss costs almost nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::contract::{CommitOutcome, Mutation};

/// The window after the first loss, in parts of what the quickest of the lost attempts took (others
/// waited in the crowd).
const FIRST_WINDOW_PARTS: u32 = 4;
/// Weights of a loss and of a win.
const LOSS: u32 = 4;
const WIN: u32 = 1;
/// Weight of a win, in parts of the losses that widened the window: it counts for more the wider
/// the window is.
const COOLING_PARTS: u32 = 16;
/// Number of losses above which the window grows no further: it has doubled for each two of them.
const HEAT_MAX: u32 = 24;
/// Longest wait, unless a store sets another.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Share of waits that are zero for a writer that has lost for longer, until it wins. A winner that
/// continues to write reads before writers that come later, and only writers that read together
/// with it have a chance.
const AT_ONCE: f64 = 0.5;
/// A row without races in this time is like new.
const COLD_AFTER: Duration = Duration::from_secs(2);
/// The most rows that are remembered; all are forgotten when there would be more.
const ROWS_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug)]
struct Heat {
    level: u32,
    quickest: Duration,
    /// The last loss.
    since: Instant,
    /// The first loss after the last win.
    losing_since: Option<Instant>,
}

/// The rows that the users of one store race for.
#[derive(Debug)]
pub struct Contention {
    rows: Mutex<BTreeMap<String, Heat>>,
    random: AtomicU64,
    wait_max: Duration,
}

impl Contention {
    /// Creates the state without a race. `seed` must be random: stores that wait the same times
    /// meet again.
    pub fn new(seed: u64) -> Self {
        Self { rows: Mutex::default(), random: AtomicU64::new(seed), wait_max: WAIT_MAX }
    }

    /// Sets another longest wait, for a server to which a commit that loses is as much work as one
    /// that wins.
    #[must_use]
    pub const fn waiting_at_most(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// Time to wait before telling the outcome of a commit, by the time that it took. Only commits
    /// that replace a row count, lost or won: that is how a version row is raced for.
    pub fn wait(
        &self,
        table: &str,
        partition: &str,
        mutations: &[Mutation],
        outcome: &CommitOutcome,
        took: Duration,
    ) -> Duration {
        let Some(Mutation::Replace { row, .. }) = mutations.first() else { return Duration::ZERO };
        let name = || format!("{table}/{partition}/{}", row.key());
        match outcome {
            CommitOutcome::Committed(_) => {
                self.won(&name);
                Duration::ZERO
            }
            CommitOutcome::Conflict(0) => self.lost(name(), took),
            CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_) => Duration::ZERO,
        }
    }

    fn won(&self, name: &dyn Fn() -> String) {
        // A panic in between leaves the map as it was.
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        // As long as no writer loses there is nothing to look up.
        if rows.is_empty() {
            return;
        }
        let name = name();
        if let Some(heat) = rows.get_mut(&name) {
            heat.losing_since = None;
            heat.level = heat.level.saturating_sub(WIN + heat.level / COOLING_PARTS);
            if heat.level == 0 {
                rows.remove(&name);
            }
        }
    }

    fn lost(&self, name: String, took: Duration) -> Duration {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() >= ROWS_MAX {
            rows.clear();
        }
        let now = Instant::now();
        let heat = rows.entry(name).or_insert(Heat {
            level: 0,
            quickest: took,
            since: now,
            losing_since: None,
        });
        if now.duration_since(heat.since) > COLD_AFTER {
            (heat.level, heat.quickest, heat.losing_since) = (0, took, None);
        }
        heat.since = now;
        heat.quickest = heat.quickest.min(took);
        let window = (heat.quickest / FIRST_WINDOW_PARTS).saturating_mul(1 << (heat.level / 2));
        heat.level = (heat.level + LOSS).min(HEAT_MAX);
        let is_impatient =
            now.duration_since(*heat.losing_since.get_or_insert(now)) > self.wait_max;
        drop(rows);
        if is_impatient && self.fraction() < AT_ONCE {
            return Duration::ZERO;
        }
        window.min(self.wait_max).mul_f64(self.fraction())
    }

    /// A random number from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a random number needs no precision")]
    fn fraction(&self) -> f64 {
        let n = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        // The finalizer of splitmix64.
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((n ^ (n >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use crate::table::Row;

    use super::*;

    #[test]
    fn losses_widen_the_window_and_wins_narrow_it() {
        let contention = Contention::new(7);
        let replace = [Mutation::Replace { row: Row::new("r"), etag: "1".into() }];
        let took = Duration::from_millis(4);
        let wait = |outcome: &CommitOutcome| contention.wait("t", "p", &replace, outcome, took);
        let (won, lost) = (CommitOutcome::Committed(vec![None]), CommitOutcome::Conflict(0));
        assert_eq!(wait(&won), Duration::ZERO);
        assert!(wait(&lost) <= Duration::from_millis(1), "a single loss costs next to nothing");
        let longest = (0..200).map(|_| wait(&lost)).max().unwrap();
        assert!(longest > Duration::from_millis(20) && longest <= WAIT_MAX, "{longest:?}");
        let patient = Contention::new(7).waiting_at_most(WAIT_MAX * 4);
        let longest =
            (0..200).map(|_| patient.wait("t", "p", &replace, &lost, took)).max().unwrap();
        assert!(longest > WAIT_MAX && longest <= WAIT_MAX * 4, "{longest:?}");
        (0..40).for_each(|_| assert_eq!(wait(&won), Duration::ZERO));
        assert!(contention.rows.lock().unwrap().is_empty());
        assert!(wait(&lost) <= Duration::from_millis(1));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let contention = Contention::new(7);
        let name = || "r".to_owned();
        let lose = || contention.lost(name(), Duration::from_millis(4));
        let age = |age| {
            let mut rows = contention.rows.lock().unwrap();
            rows.get_mut("r").unwrap().losing_since = Instant::now().checked_sub(age);
        };
        (0..20).for_each(|_| assert!(!lose().is_zero()));
        assert!((0..100).all(|_| !lose().is_zero()));
        age(WAIT_MAX * 2);
        let at_once = (0..100).filter(|_| lose().is_zero()).count();
        assert!((25..75).contains(&at_once), "{at_once}");
        contention.won(&name);
        assert!((0..100).all(|_| !lose().is_zero()));
    }

    #[test]
    fn other_conflicts_are_no_races() {
        let contention = Contention::new(7);
        let insert = [Mutation::Insert { row: Row::new("r") }];
        let replace = [Mutation::Replace { row: Row::new("r"), etag: "1".into() }];
        for (mutations, at) in [(&insert, 0), (&replace, 1)] {
            let outcome = CommitOutcome::Conflict(at);
            assert_eq!(
                contention.wait("t", "p", mutations, &outcome, Duration::from_secs(9)),
                Duration::ZERO
            );
        }
        let spread: Vec<f64> = (0..1_000).map(|_| contention.fraction()).collect();
        assert!(spread.iter().all(|f| (0.0..1.0).contains(f)));
        assert!((0.4..0.6).contains(&(spread.iter().sum::<f64>() / 1_000.0)));
    }
}
