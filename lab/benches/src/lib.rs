//! Emmer measured against the floors: what a call, an activation and an idle grain cost.
//!
//! A *contender* is Emmer or a *floor*: the least that could do the same work, written by hand.
//! Every contender runs in a process of its own, one after the other, in several rounds, so that
//! all of them meet the same machine in the same minutes. The comparison is processor time for each
//! operation, user and system time of all processes together: wall time on a shared machine says
//! more about the neighbours.
//!
//! | module | subject |
//! |---|---|
//! | [`job`] | one contender's run as a value, and the processes that run it |
//! | [`sample`] | what a run measured |
//! | [`report`] | samples of several rounds as a table with ratios |
//! | [`floors`] | the floors |
//! | [`grains`] | the grains that are called |
//! | [`local`], [`activate`], [`memory`], [`remote`], [`cluster`], [`storm`], [`directory`], [`ring`], [`soak`] | the scenarios |
//! | [`connections`] | connections that do nothing, or stop half way |
//! | [`strangers`] | bytes that are no frames and no handshakes |
//! | [`parts`] | what the criterion benches and the guard of instruction counts call |
//! | [`counting`] | a store that counts its operations |
//! | [`meter`], [`histogram`] | processor time, resident memory, latencies |

pub mod activate;
pub mod cluster;
pub mod connections;
pub mod counting;
pub mod directory;
pub mod drive;
pub mod floors;
pub mod grains;
pub mod histogram;
pub mod job;
pub mod local;
pub mod memory;
pub mod meter;
pub mod parts;
pub mod remote;
pub mod report;
pub mod ring;
pub mod sample;
pub mod scenarios;
pub mod silos;
pub mod soak;
pub mod storm;
pub mod strangers;

/// Any error of a benchmark.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of one.
pub type Result<T> = std::result::Result<T, Error>;

/// Settings of a scenario.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of times every contender runs.
    pub rounds: usize,
    /// Amount of work, as a share of the usual: tests take very little.
    pub scale: f64,
    /// On how many threads the runtimes run; 1 means a runtime that has no other threads.
    pub threads: Vec<usize>,
}

impl Settings {
    /// `usual`, scaled, and never less than `least`.
    pub(crate) fn scaled(&self, usual: u64, least: u64) -> u64 {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts far below 2^52, and a share of one is no exact number"
        )]
        let scaled = (usual as f64 * self.scale) as u64;
        scaled.max(least)
    }
}

/// Takes a mutex; a floor whose holder panicked has failed the run anyway.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
