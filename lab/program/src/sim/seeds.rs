//! Random scenarios by their seeds.
//!
//! A scenario follows from its seed and the bounds of its size, so a replay needs the same bounds:
//! each failing seed is printed with the whole command that replays it.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::builder::RangedU64ValueParser;
use emmer_sim::invariants::Violation;
use emmer_sim::shrink::{self, describe};
use emmer_sim::{Outcome, Profile, Scenario, Swarm};

use super::progress::Progress;
use emmer_cli::commands::output::write_out;
use emmer_cli::exit::{Code, Failure, Result};
use emmer_cli::text;

/// The most failing seeds that are printed; all are counted.
const FAILURES_SHOWN_MAX: usize = 100;

/// Bounds of the scenarios.
#[derive(clap::Args, Clone)]
struct Bounds {
    /// The smallest cluster
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<u32>::new().range(1..=5_000))]
    silos_min: u32,
    /// The largest cluster
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = RangedU64ValueParser::<u32>::new().range(1..=5_000))]
    silos_max: u32,
    /// The parameter set: default, classic, fast, orleans-2026 [default: drawn from the seed]
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
}

impl Bounds {
    fn swarm(&self) -> Result<Swarm> {
        let Self { silos_min, silos_max, profile } = *self;
        if silos_min > silos_max {
            let why = format!("--silos-min {silos_min} is above --silos-max {silos_max}");
            return Err(Failure::usage(why));
        }
        Ok(Swarm { hosts_min: silos_min, hosts_max: silos_max, profile, ..Swarm::default() })
    }

    /// The flags that are not at their defaults.
    fn flags(&self) -> String {
        let usual = Swarm::default();
        let mut flags = String::new();
        // Writing to a string cannot fail.
        if self.silos_min != usual.hosts_min {
            let _ = write!(flags, " --silos-min {}", self.silos_min);
        }
        if self.silos_max != usual.hosts_max {
            let _ = write!(flags, " --silos-max {}", self.silos_max);
        }
        if let Some(profile) = self.profile {
            let _ = write!(flags, " --profile {profile}");
        }
        flags
    }
}

#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// The seed
    #[arg(long, value_name = "N")]
    seed: u64,
    /// Print one line for each event first
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    bounds: Bounds,
}

pub(super) fn run(args: &RunArgs) -> Result<()> {
    let scenario = args.bounds.swarm()?.scenario(args.seed);
    let outcome =
        if args.trace { emmer_sim::run_traced(&scenario) } else { emmer_sim::run(&scenario) };
    if args.trace {
        // Line by line: there may be millions.
        for line in &outcome.lines {
            write_out(&format!("{line}\n"))?;
        }
    }
    write_out(&(describe(&scenario) + &summary(&outcome)))?;
    verdict(outcome.violation.as_ref())
}

/// Text about the end of a run, for people.
fn summary(outcome: &Outcome) -> String {
    let Outcome { hash, events, ended_at, version, .. } = outcome;
    let mut text = format!(
        "{} events, ended at {ended_at} s, table version {version}, trace hash {hash:016x}\n",
        text::grouped(*events)
    );
    if let Some(after) = outcome.whole_after {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "whole {} after the last fault", text::span(after));
    }
    if outcome.violation.is_none() {
        text.push_str("every invariant held\n");
    }
    text
}

fn verdict(violation: Option<&Violation>) -> Result<()> {
    violation.map_or(Ok(()), |violation| Err(Failure::new(Code::Violated, violation)))
}

#[derive(clap::Args)]
pub(super) struct ShrinkArgs {
    /// The seed
    #[arg(long, value_name = "N")]
    seed: u64,
    /// The most runs it may take
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print one line for each event of the smallest scenario first
    #[arg(long)]
    trace: bool,
    #[command(flatten)]
    bounds: Bounds,
}

pub(super) fn shrink(args: &ShrinkArgs) -> Result<()> {
    let scenario = args.bounds.swarm()?.scenario(args.seed);
    let seed = args.seed;
    let progress = Progress::start(move || format!("seed {seed} is being shrunk"));
    let shrunk = shrink::shrink(&scenario, args.runs);
    drop(progress);
    let Some(shrunk) = shrunk else {
        return write_out(&format!(
            "seed {seed} violates no invariant: there is nothing to shrink\n"
        ));
    };
    if args.trace {
        for line in &emmer_sim::run_traced(&shrunk.scenario).lines {
            write_out(&format!("{line}\n"))?;
        }
    }
    let (before, after) = (size(&scenario), size(&shrunk.scenario));
    let text = describe(&shrunk.scenario);
    write_out(&format!("{text}from {before} to {after} in {} runs\n", shrunk.runs))?;
    verdict(Some(&shrunk.violation))
}

fn size(scenario: &Scenario) -> String {
    format!("{} hosts and {} faults", scenario.hosts, scenario.steps.len())
}

#[derive(clap::Args)]
pub(super) struct SwarmArgs {
    /// Range of seeds: A..B for A up to B - 1, or N for 0..N
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Range<u64>,
    /// Number of seeds that run at once [default: as many as cores]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    threads: Option<usize>,
    #[command(flatten)]
    bounds: Bounds,
}

/// `A..B` or `N`.
fn seeds(text: &str) -> std::result::Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a seed"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => 0..number(text)?,
    };
    if range.is_empty() { Err(format!("{text} holds no seed")) } else { Ok(range) }
}

/// State that all threads share.
struct Tally {
    next: AtomicU64,
    done: AtomicU64,
    events: AtomicU64,
    failed: AtomicU64,
    /// The first failing seeds and their violations.
    failures: Mutex<Vec<(u64, Violation)>>,
}

pub(super) fn swarm(args: &SwarmArgs) -> Result<()> {
    let swarm = args.bounds.swarm()?;
    let seeds = args.seeds.clone();
    let total = seeds.end - seeds.start;
    let tally = Arc::new(Tally {
        next: AtomicU64::new(seeds.start),
        done: AtomicU64::new(0),
        events: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        failures: Mutex::default(),
    });
    let shown = tally.clone();
    let progress = Progress::start(move || {
        let (done, failed) = (shown.done.load(Relaxed), shown.failed.load(Relaxed));
        format!("{} of {} seeds, {failed} failed", text::grouped(done), text::grouped(total))
    });
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..args.threads.unwrap_or(cores) {
            scope.spawn(|| work(&swarm, seeds.end, &tally, &args.bounds.flags()));
        }
    });
    drop(progress);
    let (elapsed, events) = (started.elapsed(), tally.events.load(Relaxed));
    write_out(&format!(
        "{} seeds, {} events in {}, {} events/s\n",
        text::grouped(total),
        text::grouped(events),
        text::span(elapsed),
        text::grouped(text::rate(events, elapsed))
    ))?;
    match tally.failed.load(Relaxed) {
        0 => write_out("every invariant held\n"),
        failed => {
            let mut failures =
                std::mem::take(&mut *tally.failures.lock().unwrap_or_else(PoisonError::into_inner));
            failures.sort_by_key(|(seed, _)| *seed);
            let first = failures
                .first()
                .map_or(String::new(), |(seed, v)| format!(", the first is seed {seed}: {v}"));
            let message = format!("{failed} seeds violate an invariant{first}");
            Err(Failure::new(Code::Violated, message))
        }
    }
}

/// Runs seeds until there are none left.
fn work(swarm: &Swarm, end: u64, tally: &Tally, flags: &str) {
    loop {
        let seed = tally.next.fetch_add(1, Relaxed);
        if seed >= end {
            return;
        }
        let outcome = emmer_sim::run(&swarm.scenario(seed));
        tally.events.fetch_add(outcome.events, Relaxed);
        tally.done.fetch_add(1, Relaxed);
        let Some(violation) = outcome.violation else { continue };
        tally.failed.fetch_add(1, Relaxed);
        let mut failures = tally.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_SHOWN_MAX {
            // At once, for readers that wait; a missing reader is seen at the end.
            let _ = write_out(&format!(
                "seed {seed}: {violation}\n    emmer-lab sim run --seed {seed}{flags}\n"
            ));
            failures.push((seed, violation));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use emmer_sim::{Fault, VirtualTime};

    use super::*;

    #[test]
    fn reads_ranges_of_seeds() {
        assert_eq!((seeds("3..7"), seeds("5")), (Ok(3..7), Ok(0..5)));
        for wrong in ["", "7..3", "0", "a..b", "1..", "-1..4", "18446744073709551616"] {
            assert!(seeds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_replay_names_the_bounds_that_are_not_usual() {
        let mut bounds = Bounds { silos_min: 3, silos_max: 16, profile: None };
        assert_eq!(bounds.flags(), "");
        bounds = Bounds { silos_min: 4, silos_max: 64, profile: Some(Profile::Fast) };
        assert_eq!(bounds.flags(), " --silos-min 4 --silos-max 64 --profile fast");
        assert_eq!(bounds.swarm().unwrap().hosts_max, 64);
        bounds.silos_min = 65;
        assert_eq!(bounds.swarm().unwrap_err().code, Code::Usage);
    }

    #[test]
    fn a_violated_invariant_is_the_exit_code() {
        // A silo killed a moment before the end cannot have been buried by then.
        let calm_at = VirtualTime::ZERO + Duration::from_secs(60);
        let late = calm_at - Duration::from_millis(1);
        let scenario = Scenario::calm(Profile::Classic, 5, 1)
            .at(late, Fault::LoseHost(1))
            .calm_at(calm_at, Duration::from_secs(1));
        let outcome = emmer_sim::run(&scenario);
        let failure = verdict(outcome.violation.as_ref()).unwrap_err();
        assert!(failure.code == Code::Violated && failure.message.contains("I10"), "{failure}");
        assert!(!summary(&outcome).contains("every invariant held"));
        assert_eq!(verdict(None), Ok(()));
    }
}
