//! The swarm of the runtime from the command line: `runtime FROM TO`, or `runtime SEED`.
#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeMap;
use std::time::Instant;

use emmer_swarm::{Plan, run};

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let (from, to) = match numbers[..] {
        [seed] => (seed, seed + 1),
        [from, to] => (from, to),
        _ => {
            println!("expected: runtime FROM TO, or runtime SEED");
            std::process::exit(2);
        }
    };
    let (start, mut failed, mut begun, mut passed) = (Instant::now(), 0, 0, 0.0);
    let mut sometimes = BTreeMap::new();
    let mut trace = 0u64;
    for seed in from..to {
        let plan = Plan::new(seed);
        let report = run(&plan);
        begun += report.begun;
        trace = trace.rotate_left(1) ^ report.trace;
        passed += report.passed.as_secs_f64();
        for (what, times) in report.sometimes {
            *sometimes.entry(what).or_insert(0u64) += times;
        }
        if let Some(violation) = report.violation {
            failed += 1;
            println!("seed {seed}: {}: {}", violation.rule, violation.what);
            println!("    {plan:?}");
        }
    }
    for (what, times) in &sometimes {
        println!("{times:>9} {what}");
    }
    let took = start.elapsed().as_secs_f64();
    println!(
        "{} seeds, {failed} failed, {begun} calls ran, {:.0} virtual seconds per second, {:.0} seeds per minute",
        to - from,
        passed / took,
        f64::from(u32::try_from(to - from).unwrap_or(0)) / took * 60.0
    );
    println!("trace {trace:016x}");
    std::process::exit(i32::from(failed > 0));
}
