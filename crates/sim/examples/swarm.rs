//! Runs seeds, replays one, or shrinks one.
//!
//! `cargo run --profile sim -p emmer-sim --example swarm -- 0 1000` runs a thousand seeds;
//! `... -- trace 17` replays seed 17 line by line; `... -- shrink 17` makes it smaller first.

use std::time::Instant;

use emmer_sim::shrink::{describe, shrink};
use emmer_sim::{Swarm, run, run_traced};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let swarm = Swarm::default();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok());
    match args.first().map(String::as_str) {
        Some("trace") => {
            let outcome = run_traced(&swarm.scenario(number(1).unwrap_or(0)));
            outcome.lines.iter().for_each(|line| println!("{line}"));
            println!(
                "{:?} whole after {:?} hash {:016x}",
                outcome.violation, outcome.whole_after, outcome.hash
            );
        }
        Some("shrink") => match shrink(&swarm.scenario(number(1).unwrap_or(0)), 400) {
            Some(shrunk) => {
                run_traced(&shrunk.scenario).lines.iter().for_each(|line| println!("{line}"));
                println!("{}{}\n({} runs)", describe(&shrunk.scenario), shrunk.violation, shrunk.runs);
            }
            None => println!("no violation"),
        },
        _ => many(&swarm, number(0).unwrap_or(0), number(1).unwrap_or(100)),
    }
}

fn many(swarm: &Swarm, from: u64, to: u64) {
    let started = Instant::now();
    let (mut events, mut failed) = (0, 0);
    for seed in from..to {
        let scenario = swarm.scenario(seed);
        let outcome = run(&scenario);
        events += outcome.events;
        if let Some(violation) = outcome.violation {
            failed += 1;
            println!("seed {seed} ({} hosts, {} steps): {violation}", scenario.hosts, scenario.steps.len());
        }
    }
    let secs = started.elapsed().as_secs_f64();
    println!(
        "{} seeds, {failed} failed, {events} events, {secs:.1} s, {:.0} events/s",
        to - from,
        events as f64 / secs
    );
}
