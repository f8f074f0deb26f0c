//! Runs a test in a world of its own.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use crate::world::World;

/// The environment variable that replays one seed: `EMMER_TEST_SEED=7 cargo test name_of_the_test`.
pub const SEED_VARIABLE: &str = "EMMER_TEST_SEED";

/// A test that has not ended after so much virtual time is stuck.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Runs `test` once for each of the seeds 1 to `seeds`, or only for the one in [`SEED_VARIABLE`].
///
/// # Panics
/// The test panics; before, the seed and how to replay it are printed. Or the variable holds no
/// number.
#[expect(clippy::panic, reason = "that is how a test fails")]
pub fn run<F, T>(name: &str, seeds: u64, test: F)
where
    F: Fn(World) -> T,
    T: Future<Output = ()>,
{
    let only = std::env::var(SEED_VARIABLE).ok().map(|text| {
        text.trim()
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{SEED_VARIABLE} is {text:?}, not a number"))
    });
    let all = 1..=seeds.max(1);
    let seeds = only.map_or(all, |seed| seed..=seed);
    for seed in seeds {
        let once = || in_virtual_time(async { test(World::new(seed)).await });
        if let Err(panic) = catch_unwind(AssertUnwindSafe(once)) {
            let name = name.rsplit("::").next().unwrap_or(name);
            eprintln!(
                "{name} failed with seed {seed}; to replay it: {SEED_VARIABLE}={seed} cargo test \
                 {name}"
            );
            resume_unwind(panic);
        }
    }
}

/// Runs `test` once, with one seed.
///
/// # Panics
/// The test panics.
pub fn run_seed(seed: u64, test: impl AsyncFnOnce(World)) {
    in_virtual_time(async { test(World::new(seed)).await });
}

/// One thread, and a clock that jumps to the next timer when nothing can run.
#[expect(clippy::panic, reason = "that is how a test fails")]
fn in_virtual_time(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|e| panic!("no runtime: {e}"));
    let ended = runtime.block_on(async { tokio::time::timeout(LONGEST, test).await });
    if ended.is_err() {
        panic!("the test did not end within {} days of virtual time", LONGEST.as_secs() / 86_400);
    }
}

/// Result of a test.
pub trait Ended {
    /// Fails the test if it did not end well.
    ///
    /// # Panics
    /// It did not.
    fn end(self);
}

impl Ended for () {
    fn end(self) {}
}

impl<E: std::fmt::Display> Ended for Result<(), E> {
    #[expect(clippy::panic, reason = "that is how a test fails")]
    fn end(self) {
        if let Err(e) = self {
            panic!("{e}");
        }
    }
}
