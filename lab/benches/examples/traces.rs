//! The instructions and the time of traces: calls of a client to a silo, and calls within a silo,
//! without a trace, with one call in a hundred recorded, and with every call recorded.
//!
//! `cargo run --release -p emmer-benches --features traces --example traces` prints the processor
//! time of each, in processes of their own, in turns.

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use std::process::Command;
use std::time::{Duration, Instant};

use emmer_benches::Result;
use emmer_benches::parts::{Local, Remote, record_traces};
use emmer_report::Goal;
use emmer_report::numbers::record;

/// The share of calls that begin a trace; none: nothing is switched on.
const SHARES: [Option<f64>; 4] = [None, Some(0.0), Some(0.01), Some(1.0)];
/// Rounds, each of which measures everything once.
const ROUNDS: usize = 11;
const CALLS: u64 = 20_000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    if let (Some(what), Some(share)) = (arguments.next(), arguments.next()) {
        let _recording = share.parse().ok().map(record_traces).transpose()?;
        let took = if what == "local" { local()? } else { remote()? };
        println!("{}", took.as_nanos());
        return Ok(());
    }
    let own = std::env::current_exe()?;
    let mut goals = Vec::new();
    for what in ["local", "remote"] {
        let mut rounds: [Vec<f64>; SHARES.len()] = Default::default();
        for _ in 0..ROUNDS {
            for (share, taken) in SHARES.iter().zip(&mut rounds) {
                let share = share.map_or_else(|| "off".to_owned(), |share| share.to_string());
                let output = Command::new(&own).args([what, &share]).output()?;
                let nanos: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
                taken.push(nanos);
            }
        }
        let off = rounds[0].clone();
        for (share, taken) in SHARES.iter().zip(&rounds) {
            let share = share.map_or_else(|| "off".to_owned(), |share| format!("{share}"));
            let mut ratios: Vec<f64> = taken.iter().zip(&off).map(|(on, off)| on / off).collect();
            let mut nanos = taken.clone();
            ratios.sort_by(f64::total_cmp);
            nanos.sort_by(f64::total_cmp);
            let (ratio, nanos) = (ratios[ROUNDS / 2], nanos[ROUNDS / 2]);
            let (least, most) = (ratios[0], ratios[ROUNDS - 1]);
            println!(
                "{what}, traces {share}: {nanos:.0} ns, {ratio:.3} x ({least:.3} to {most:.3})"
            );
            if share == "0.01" {
                let what =
                    format!("a call, {what}, of which 1 in 100 is recorded: times one without");
                goals.push(Goal::at_most(what, ratio, 1.03));
            }
        }
    }
    record("traces", &goals)?;
    Ok(())
}

/// The time of a call within a silo.
fn local() -> Result<Duration> {
    let local = Local::start()?;
    local.calls(CALLS)?;
    let begun = Instant::now();
    for _ in 0..20 {
        local.calls(CALLS)?;
    }
    Ok(begun.elapsed() / u32::try_from(20 * CALLS)?)
}

/// The time of a call over a connection, of both ends.
fn remote() -> Result<Duration> {
    let remote = Remote::start()?;
    remote.calls(CALLS)?;
    let begun = Instant::now();
    remote.calls(5 * CALLS)?;
    Ok(begun.elapsed() / u32::try_from(5 * CALLS)?)
}
