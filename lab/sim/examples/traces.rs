//! The traces of many seeds as one number: two builds of the protocols that print the same have
//! done the same things at the same times.
//!
//! `traces FROM TO` runs these seeds, and before them each seed that ever failed. With `each=yes`
//! one line for each seed comes first, which shows the first seed that differs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::sync::{Mutex, PoisonError};

use emmer_sim::trace::mix;
use emmer_sim::{Scenario, Swarm, run};

/// The seeds that ever violated an invariant.
const FAILED: &str = include_str!("../seeds/failed.txt");

/// A scenario, and the name of its line.
type Named = (String, Scenario);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [from, to] = numbers[..] else {
        eprintln!("expected FROM TO, two numbers, and each=yes for a line of each seed");
        std::process::exit(2);
    };
    let each = words.iter().any(|word| word == "each=yes");
    let swarm = Swarm::default();
    let seeds = (from..to).map(|seed| (seed.to_string(), swarm.scenario(seed)));
    let all: Vec<Named> = kept().chain(seeds).collect();
    let digests = digests(&all);
    let mut whole = 0;
    for ((name, _), digest) in all.iter().zip(&digests) {
        whole = mix(whole, *digest);
        if each {
            println!("{digest:016x} {name}");
        }
    }
    println!("{whole:016x} {} seeds", all.len());
}

/// A number of the list of seeds, which is part of this repository.
fn number<N: std::str::FromStr + Default>(word: &str) -> N {
    word.parse().unwrap_or_default()
}

/// The seeds that ever failed, with the meaning that they had then.
fn kept() -> impl Iterator<Item = Named> {
    let lines = FAILED.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| {
        let mut swarm = Swarm { version: 1, ..Swarm::default() };
        let mut seed = None;
        for word in line.split_whitespace() {
            match (word.split_once('='), seed) {
                (Some(("min", hosts)), _) => swarm.hosts_min = number(hosts),
                (Some(("max", hosts)), _) => swarm.hosts_max = number(hosts),
                (None, None) if word.starts_with('v') => swarm.version = number(&word[1..]),
                (None, None) => seed = word.parse().ok(),
                _ => {}
            }
        }
        (format!("kept {line}"), swarm.scenario(seed.unwrap_or(0)))
    })
}

/// The digest of each run, computed on all cores.
fn digests(all: &[Named]) -> Vec<u64> {
    let left = Mutex::new(all.iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let own = std::iter::from_fn(next);
        own.map(|(at, (_, scenario))| (at, digest(scenario))).collect::<Vec<_>>()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(usize, u64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    found.sort_unstable();
    found.into_iter().map(|(_, digest)| digest).collect()
}

/// Everything that a run says of itself, in one number.
fn digest(scenario: &Scenario) -> u64 {
    let outcome = run(scenario);
    let told = format!("{:?} {:?} {:?}", outcome.violation, outcome.store, outcome.measures);
    let mut digest = mix(outcome.hash, outcome.events);
    for number in [outcome.version, outcome.turns, emmer_core::hash::stable64(told.as_bytes())] {
        digest = mix(digest, number);
    }
    digest
}
