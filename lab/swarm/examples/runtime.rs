//! The swarm of the runtime from the command line: `runtime FROM TO`, or `runtime SEED` with parts
//! of its plan changed, as in `runtime 4711 calls=500 noisy=no`. A seed that fails is shrunk. Exit
//! code 1 when one failed, 2 for a mistake in the words.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use std::collections::BTreeMap;
use std::time::Instant;

use emmer_swarm::{Plan, Report, run, shrink};

/// The plans that were asked for.
fn plans(words: &[String]) -> Result<Vec<Plan>, String> {
    let (changes, numbers): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.contains('='));
    let number = |word: &String| word.parse::<u64>().map_err(|_| format!("`{word}` is no seed"));
    let numbers = numbers.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let seeds = match numbers[..] {
        [seed] => seed..seed + 1,
        [from, to] => from..to,
        _ => return Err("expected FROM TO, or SEED, and parts of a plan like calls=500".to_owned()),
    };
    let mut plans: Vec<Plan> = seeds.map(Plan::new).collect();
    for change in changes {
        let (key, value) = change.split_once('=').unwrap_or_default();
        plans.iter_mut().try_for_each(|plan| plan.set(key, value))?;
    }
    Ok(plans)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plans = plans(&words).unwrap_or_else(|mistake| {
        eprintln!("{mistake}");
        std::process::exit(2);
    });
    let start = Instant::now();
    let (mut failed, mut begun, mut passed, mut trace) = (0, 0, 0.0, 0u64);
    let mut sometimes = BTreeMap::new();
    for plan in &plans {
        let report = run(plan);
        begun += report.begun;
        passed += report.passed.as_secs_f64();
        trace = trace.rotate_left(1) ^ report.trace;
        for (what, times) in &report.sometimes {
            *sometimes.entry(*what).or_insert(0u64) += times;
        }
        failed += i32::from(tell(plan, &report));
    }
    for (what, times) in &sometimes {
        println!("{times:>9} {what}");
    }
    let took = start.elapsed().as_secs_f64();
    let per_minute = f64::from(u32::try_from(plans.len()).unwrap_or(0)) / took * 60.0;
    println!(
        "{} seeds, {failed} failed, {begun} calls ran, {:.0} virtual seconds per second, \
         {per_minute:.0} seeds per minute, trace {trace:016x}",
        plans.len(),
        passed / took,
    );
    std::process::exit(i32::from(failed > 0));
}

/// Prints a seed that failed, and how to replay its simplest form.
fn tell(plan: &Plan, report: &Report) -> bool {
    let Some(violation) = &report.violation else { return false };
    println!("seed {}: {}: {}", plan.seed, violation.rule, violation.what);
    let (simplest, violation) = shrink(plan, violation);
    println!("    simplest: {}", violation.what);
    println!("    replay: cargo run --profile sim -p emmer-swarm --example runtime -- {simplest}");
    true
}
