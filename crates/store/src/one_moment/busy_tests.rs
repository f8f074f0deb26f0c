//! Reads while writers never rest, of a partition whose version row names the written rows.

use std::convert::Infallible;
use std::sync::Mutex;

use emmer_core::rng::SeededRng;
use futures_util::FutureExt as _;

use super::tests::MOMENT;
use super::*;
use crate::contract::Mutation;
use crate::recent::Room;
use crate::table::Row;

/// A partition whose version row names the written rows: each commit writes it and the next rows.
/// Other writers commit before requests as the dice say.
struct Busy<const TOGETHER: usize> {
    state: Mutex<BusyState>,
}

struct BusyState {
    rng: SeededRng,
    /// In a thousand requests.
    commits: u64,
    requests: usize,
    number: u64,
    next: usize,
    recent: Recent,
    rows: BTreeMap<String, u64>,
    /// The partition after each commit.
    moments: Vec<BTreeMap<String, u64>>,
}

/// A row that every other commit makes, and the next deletes.
const GOES: &str = "r20b";

fn stored((key, number): (&String, &u64)) -> StoredRow {
    StoredRow { row: Row::new(key.as_str()), etag: number.to_string().into() }
}

impl BusyState {
    fn version(&self) -> Version {
        let row = self.rows.get_key_value(VERSION_ROW).map(stored);
        let etag = self.number.to_string().into();
        Version { etag, row, recent: self.recent.clone() }
    }

    fn commit(&mut self) {
        // One row comes and goes.
        let gone = self.rows.remove(GOES).is_some();
        let keys: Vec<String> = self.rows.keys().cloned().collect();
        let count = 1 + usize::try_from(self.rng.below(3)).unwrap();
        let written: Vec<_> =
            (0..count).map(|n| keys[(self.next + n) % keys.len()].clone()).collect();
        self.next += count;
        let mutations: Vec<_> = std::iter::once(VERSION_ROW.to_owned())
            .chain(written)
            .chain([GOES.to_owned()])
            .map(|key| Mutation::Upsert { row: Row::new(key) })
            .collect();
        self.recent =
            self.recent.then(&self.number.to_string().into(), &mutations, Room::default());
        self.number += 1;
        for mutation in &mutations {
            self.rows.insert(mutation.row_key().to_owned(), self.number);
        }
        if gone {
            self.rows.remove(GOES);
        }
        self.moments.push(self.rows.clone());
    }
}

impl<const TOGETHER: usize> Busy<TOGETHER> {
    fn new(seed: u64, commits: u64) -> Self {
        let rows = (0..40).map(|n| (format!("r{n:02}"), 0));
        let rows: BTreeMap<_, _> = rows.chain([(VERSION_ROW.to_owned(), 0)]).collect();
        let (rng, recent, moments) = (SeededRng::new(seed), Recent::default(), vec![rows.clone()]);
        let (requests, number, next) = (0, 0, 0);
        let state = BusyState { rng, commits, requests, number, next, recent, rows, moments };
        Self { state: Mutex::new(state) }
    }

    fn request(&self) -> std::sync::MutexGuard<'_, BusyState> {
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        if state.rng.below(1_000) < state.commits {
            state.commit();
        }
        state
    }
}

impl<const TOGETHER: usize> Pages for Busy<TOGETHER> {
    type Token = String;
    type Error = Infallible;
    const TOGETHER_MAX: usize = TOGETHER;

    async fn page(&self, from: Option<String>) -> Result<Page<String>, Infallible> {
        let state = self.request();
        let behind = |row: &(&String, &u64)| from.as_ref().is_none_or(|from| row.0 > from);
        let mut rows = state.rows.iter().filter(behind);
        let page: Vec<_> = rows.by_ref().take(4).map(stored).collect();
        let last = page.last().map(|row| row.row.key().to_owned());
        let next = last.filter(|_| rows.next().is_some());
        Ok(Page { rows: page, next })
    }

    async fn version(&self) -> Result<Option<Version>, Infallible> {
        Ok(Some(self.request().version()))
    }

    async fn rows(
        &self,
        keys: &BTreeSet<String>,
    ) -> Result<(Vec<StoredRow>, Option<Version>), Infallible> {
        if TOGETHER > 0 {
            let state = self.request();
            let found = state.rows.iter().filter(|(key, _)| keys.contains(*key));
            return Ok((found.map(stored).collect(), Some(state.version())));
        }
        // Each at another moment.
        let mut rows = Vec::new();
        for key in keys {
            let state = self.request();
            rows.extend(state.rows.get_key_value(key).map(stored));
        }
        Ok((rows, None))
    }
}

const SEEDS: u64 = 60;

/// Reads during `commits` commits in a thousand requests, with each of many seeds; returns how many
/// reads ended, and the requests of all.
fn busy<const TOGETHER: usize>(commits: u64) -> (usize, usize) {
    let (mut ended, mut requests) = (0, 0);
    for seed in 0..SEEDS {
        let server = Busy::<TOGETHER>::new(seed, commits);
        let found = read(&MOMENT, &server).now_or_never().unwrap();
        let state = server.state.into_inner().unwrap();
        requests += state.requests;
        let Ok(rows) = found else { continue };
        let rows: BTreeMap<_, _> =
            rows.iter().map(|row| (row.row.key().to_owned(), row.etag.parse().unwrap())).collect();
        assert!(state.moments.contains(&rows), "seed {seed}: a torn read");
        ended += 1;
    }
    (ended, requests)
}

#[test]
fn a_read_beside_writers_that_never_rest_ends_and_is_one_moment() {
    // Eleven pages: without the list of written rows a read would hardly ever end.
    for commits in [100, 500, 800] {
        let (ended, _) = busy::<60>(commits);
        assert_eq!(ended, SEEDS as usize, "{commits} commits in a thousand requests");
    }
    // Row by row it takes longer, until the same rows are not written.
    assert_eq!(busy::<0>(100).0, SEEDS as usize);
    // A commit before every request: only a look at rows and version at once can help.
    let (ended, requests) = busy::<60>(1_000);
    let seeds = SEEDS as usize;
    assert!(ended == seeds && requests < seeds * 60, "{ended} reads, {requests} requests");
}
