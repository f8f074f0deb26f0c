//! Experiments: each a function that runs worlds and returns a table with the numbers next to their
//! goals.
//!
//! | name | what is measured | file |
//! |---|---|---|
//! | `detect` | crash to Dead for four kinds of crash; probing load; how fast views spread | `detect.rs` |
//! | `loss` | wrong deaths and detection under message loss | `loss.rs` |
//! | `coldstart` | everybody starts at once | `coldstart.rs` |
//! | `mass-crash` | a tenth of the cluster crashes at once | `mass_crash.rs` |
//! | `isolate` | one silo cannot be reached, the store can: how long may it still run turns? | `isolate.rs` |

mod coldstart;
mod detect;
mod isolate;
mod loss;
mod mass_crash;

use std::time::Duration;

use crate::scenario::{Profile, Scenario};
use crate::time::VirtualTime;
use crate::world::World;
use emmer_report::{Cell, Report, quantile};

/// Options of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The parameter sets to compare; empty: those the experiment is usually shown with.
    pub profiles: Vec<Profile>,
    /// Number of seeds; 0: as many as usual.
    pub seeds: u32,
    /// Number of silos; 0: as many as usual.
    pub silos: u32,
    /// A small version that ends within seconds.
    pub quick: bool,
}

impl Options {
    /// The small version of everything.
    pub const fn quick() -> Self {
        Self { profiles: Vec::new(), seeds: 0, silos: 0, quick: true }
    }

    /// The usual size of everything.
    pub const fn usual() -> Self {
        Self { profiles: Vec::new(), seeds: 0, silos: 0, quick: false }
    }

    fn profiles_or(&self, usual: &[Profile]) -> Vec<Profile> {
        if self.profiles.is_empty() { usual.to_vec() } else { self.profiles.clone() }
    }

    const fn silos_or(&self, usual: u32, quick: u32) -> u32 {
        match (self.silos, self.quick) {
            (0, true) => quick,
            (0, false) => usual,
            (silos, _) => silos,
        }
    }

    const fn seeds_or(&self, usual: u32, quick: u32) -> u32 {
        match (self.seeds, self.quick) {
            (0, true) => quick,
            (0, false) => usual,
            (seeds, _) => seeds,
        }
    }
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Crash to Dead.
    Detect,
    /// Message loss.
    Loss,
    /// Everybody starts at once.
    ColdStart,
    /// A tenth of the cluster crashes at once.
    MassCrash,
    /// One silo cannot be reached.
    Isolate,
}

impl Experiment {
    /// Every experiment.
    pub const ALL: [Self; 5] =
        [Self::Detect, Self::Loss, Self::ColdStart, Self::MassCrash, Self::Isolate];

    /// The name on the command line and of the files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Detect => "detect",
            Self::Loss => "loss",
            Self::ColdStart => "coldstart",
            Self::MassCrash => "mass-crash",
            Self::Isolate => "isolate",
        }
    }

    /// The experiment with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|experiment| experiment.name() == name)
    }

    /// Runs it.
    pub fn run(self, options: &Options) -> Report {
        match self {
            Self::Detect => detect::run(options),
            Self::Loss => loss::run(options),
            Self::ColdStart => coldstart::run(options),
            Self::MassCrash => mass_crash::run(options),
            Self::Isolate => isolate::run(options),
        }
    }
}

/// A world that runs until the experiment says so: no liveness phase of its own.
fn world(mut scenario: Scenario) -> World {
    scenario.calm_at = VirtualTime::MAX;
    scenario.liveness_bound = Duration::ZERO;
    World::new(scenario, false)
}

/// Runs until the cluster is whole and has been for `settle`; false when it is not whole by
/// `limit`.
fn settle(world: &mut World, settle: Duration, limit: Duration) -> bool {
    let until = world.now() + limit;
    let whole = world.run_while(until, Duration::from_millis(100), World::is_whole).is_some();
    let now = world.now();
    world.run_until(now + settle);
    whole && world.violation().is_none()
}

/// Durations, sorted on reading.
#[derive(Clone, Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which the share `q` lies, in seconds.
    fn at(&self, q: f64) -> Option<f64> {
        quantile(&self.0, q).map(|d| d.as_secs_f64())
    }

    fn cell(&self, q: f64) -> Cell {
        Cell::number(self.at(q))
    }
}

/// The share `q` of view lags lies below, in milliseconds.
fn view_lag_ms(world: &World, q: f64) -> Option<f64> {
    quantile(&world.measures().view_lags_us, q).map(|us| f64::from(us) / 1_000.0)
}

/// A ratio of two counts.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
fn per(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}
