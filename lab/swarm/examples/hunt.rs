//! Runs seeds until a rule is broken or the CPU time is spent: what `cargo xtask mutants --runtime`
//! asks of each mutant.
//!
//! `hunt cpu=60`, or `hunt seed=17` for one of them; `skip=runtime:17` leaves one out, `all=yes`
//! continues after a violation. Each finding is one JSON object on a line. Only the protocol's
//! `hunt` understands other words.
#![allow(clippy::print_stdout, reason = "a program")]

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_swarm::{Plan, run};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// Name of a seed in front of its number.
const CLASS: &str = "runtime";

fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.cast_unsigned(), u32::try_from(spent.tv_nsec).unwrap_or(0))
}

fn main() {
    let words: BTreeMap<String, String> = std::env::args()
        .skip(1)
        .filter_map(|word| {
            word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        })
        .collect();
    let number = |key: &str| words.get(key).and_then(|value| value.parse::<u64>().ok());
    let limit = Duration::from_secs(number("cpu").unwrap_or(60));
    let skipped: Vec<&str> = words.get("skip").map(|s| s.split(',').collect()).unwrap_or_default();
    let goes_on = words.get("all").is_some_and(|all| all == "yes");
    let (mut seed, mut seeds) = (number("seed").unwrap_or(0), 0);
    while seeds == 0 || (number("seed").is_none() && cpu() < limit) {
        if !skipped.contains(&format!("{CLASS}:{seed}").as_str()) {
            let report = run(&Plan::new(seed));
            if let Some(violation) = report.violation {
                let replay = format!("class={CLASS} seed={seed}");
                let told = json!({
                    "kind": "found", "class": CLASS, "seed": seed, "invariant": violation.rule,
                    "what": violation.what, "replay": replay, "cpu_ms": millis(cpu()),
                });
                println!("{told}");
                if !goes_on {
                    return;
                }
            }
        }
        (seed, seeds) = (seed + 1, seeds + 1);
    }
    println!("{}", json!({ "kind": "end", "seeds": seeds, "cpu_ms": millis(cpu()) }));
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
