//! Runs seeds, replays one, or shrinks one.
//!
//! `cargo run --profile sim -p emmer-sim --example swarm -- 0 1000` runs a thousand seeds;
//! `... -- trace 17` replays seed 17 line by line; `... -- shrink 17` makes it smaller first.
//! `min=3 max=64 chaos=300 liveness=yes` bound the clusters (silos) and the time with faults
//! (seconds); a scenario follows from its seed *and* these.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use emmer_sim::shrink::{describe, shrink};
use emmer_sim::sometimes::Sometimes;
use emmer_sim::{Swarm, run, run_traced};

fn main() {
    let mut swarm = Swarm::default();
    let mut args = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            Some(("min", n)) => swarm.hosts_min = n.parse().unwrap_or(swarm.hosts_min),
            Some(("max", n)) => swarm.hosts_max = n.parse().unwrap_or(swarm.hosts_max),
            Some(("chaos", n)) => swarm.chaos_max = Duration::from_secs(n.parse().unwrap_or(300)),
            Some(("version", n)) => swarm.version = n.parse().unwrap_or(swarm.version),
            Some(("liveness", yes)) => swarm.liveness = yes == "yes",
            _ => args.push(arg),
        }
    }
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
                println!(
                    "{}{}\n({} runs)",
                    describe(&shrunk.scenario),
                    shrunk.violation,
                    shrunk.runs
                );
            }
            None => println!("no violation"),
        },
        _ => many(&swarm, number(0).unwrap_or(0), number(1).unwrap_or(100)),
    }
}

fn many(swarm: &Swarm, from: u64, to: u64) {
    let started = Instant::now();
    let (mut events, mut silos) = (0, 0u64);
    let (mut turns, mut calls) = (0, 0);
    let mut sometimes = Sometimes::default();
    let mut broken: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in from..to {
        let scenario = swarm.scenario(seed);
        let outcome = run(&scenario);
        events += outcome.events;
        silos += u64::from(scenario.hosts);
        turns += outcome.turns;
        calls += outcome.measures.calls_done;
        sometimes.add(&outcome.sometimes);
        if let Some(violation) = outcome.violation {
            *broken.entry(violation.invariant).or_default() += 1;
            println!(
                "seed {seed} ({} hosts, {} steps): {violation}",
                scenario.hosts,
                scenario.steps.len()
            );
        }
    }
    let secs = started.elapsed().as_secs_f64();
    let seeds = to - from;
    println!(
        "{from}..{to}: {seeds} seeds of {} to {} silos ({:.1} on average), {events} events",
        swarm.hosts_min,
        swarm.hosts_max,
        silos as f64 / seeds.max(1) as f64,
    );
    println!("{calls} calls of grains in {turns} stretches of their code");
    for (what, times) in sometimes.iter() {
        println!("  {times:>9} {what}");
    }
    println!("violations: {broken:?}");
    println!(
        "{secs:.1} s, {} CPU seconds, {:.0} seeds/minute, {:.0} events/s",
        cpu_seconds().map_or_else(|| "?".to_owned(), |cpu| format!("{cpu:.1}")),
        seeds as f64 * 60.0 / secs,
        events as f64 / secs
    );
    if !broken.is_empty() {
        std::process::exit(1);
    }
}

/// How long this process has used the processor; none where the system does not say so in `/proc`.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    // User and system time, in hundredths of a second.
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
