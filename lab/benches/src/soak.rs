//! Calls from silo to silo at a steady rate for minutes: does memory stay flat, do the slowest
//! calls stay near the usual ones?
//!
//! Calls are made by the clock, whether earlier ones were answered or not, so that every call
//! during a stall shows it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use emmer_report::{Cell, Goal, Report};
use tokio::sync::Semaphore;

use crate::grains::EchoRef;
use crate::histogram::Histogram;
use crate::job::{Launcher, Serve, Server, What, runtime};
use crate::meter::{self, resident};
use crate::remote::{grains_of, until_known};
use crate::sample::{nanos, ratio};
use crate::{Result, lock, silos};

/// The bytes of a body.
const BODY: usize = 100;
/// The most calls under way: the limit of one connection is above it.
const UNDER_WAY_MAX: usize = 50_000;
/// Interval at which calls are handed out.
const BEAT: Duration = Duration::from_millis(1);
/// Time at the beginning that is not measured.
const WARM: Duration = Duration::from_secs(5);

/// Parameters of the measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Calls in each second.
    pub rate: u64,
    /// Duration.
    pub time: Duration,
    /// Interval at which a row is written.
    pub every: Duration,
    /// Threads of either process.
    pub threads: usize,
}

/// Measurements of one interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// When it ended, in seconds.
    pub at_secs: f64,
    /// Calls answered in it.
    pub latency: Histogram,
    /// Calls that failed.
    pub failed: u64,
    /// The most that the clock's beat was late.
    pub late: Duration,
    /// Resident bytes of the calling and of the serving process.
    pub resident: [u64; 2],
    /// Processor time of both for each call, in nanoseconds.
    pub cpu_each: f64,
}

#[derive(Default)]
struct Seen {
    latency: Histogram,
    failed: u64,
    first_failure: Option<String>,
}

/// Runs it.
///
/// # Errors
/// When the silos do not start.
pub fn run(plan: &Plan, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Vec<Interval>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    let mut server =
        launcher.serve(Serve { threads: plan.threads, what: What::Silo(store.clone()) })?;
    runtime(plan.threads)?.block_on(async {
        let silo = silos::hosting(silos::builder(store.as_str())?).start().await?;
        until_known(&silo, 2).await?;
        let grains = grains_of(&silo, &server.address).await?;
        let mut intervals = Vec::new();
        let begun = Instant::now();
        interval(plan, WARM.min(plan.every), &grains, &mut server, begun).await?;
        let begun = Instant::now();
        while begun.elapsed() < plan.time {
            let one = interval(plan, plan.every, &grains, &mut server, begun).await?;
            if let (Some(told), failed) = (one.latency.quantiles(), one.failed) {
                say(&format!(
                    "{:>5.0} s: {} calls, {failed} failed, p50 {} us, p99.9 {} us, {} and {} KiB",
                    one.at_secs,
                    one.latency.count(),
                    told.p50 / 1_000,
                    told.p999 / 1_000,
                    one.resident[0] / 1_024,
                    one.resident[1] / 1_024,
                ));
            }
            intervals.push(one);
        }
        silo.abort();
        Ok(intervals)
    })
}

async fn interval(
    plan: &Plan,
    length: Duration,
    grains: &[EchoRef],
    server: &mut Server,
    since: Instant,
) -> Result<Interval> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let room = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let body = Bytes::from(vec![7u8; BODY]);
    let (cpu, served, begun) = (meter::cpu(), server.usage()?, Instant::now());
    let (mut made, mut late, mut refused) = (0u64, Duration::ZERO, 0u64);
    let mut beat = tokio::time::interval(BEAT);
    while begun.elapsed() < length {
        beat.tick().await;
        let due = u64::try_from(begun.elapsed().as_micros())? * plan.rate / 1_000_000;
        // The calls of a late beat belong to more than one beat.
        late = late.max(BEAT.saturating_mul(
            u32::try_from((due - made) * 1_000 / plan.rate.max(1)).unwrap_or(u32::MAX),
        ));
        for number in made..due {
            let Ok(permit) = room.clone().try_acquire_owned() else {
                refused += 1;
                continue;
            };
            let grain = grains[usize::try_from(number)? % grains.len()].clone();
            let (seen, body) = (seen.clone(), body.clone());
            tokio::spawn(async move {
                let called = Instant::now();
                let answer = grain.echo(body).await;
                let took = called.elapsed();
                let mut seen = lock(&seen);
                match answer {
                    Ok(_) => seen.latency.record(took),
                    Err(error) => {
                        seen.failed += 1;
                        seen.first_failure.get_or_insert_with(|| error.to_string());
                    }
                }
                drop(permit);
            });
        }
        made = due;
    }
    // Every call of the interval is answered, or has failed, before it is closed.
    let _all = room.acquire_many(u32::try_from(UNDER_WAY_MAX)?).await?;
    let usage = server.usage()?;
    let used = meter::cpu().saturating_sub(cpu) + usage.cpu.saturating_sub(served.cpu);
    let seen = std::mem::take(&mut *lock(&seen));
    if let Some(failure) = seen.first_failure {
        return Err(format!("a call failed: {failure}").into());
    }
    Ok(Interval {
        at_secs: since.elapsed().as_secs_f64(),
        cpu_each: ratio(nanos(used), seen.latency.count()),
        latency: seen.latency,
        failed: seen.failed + refused,
        late,
        resident: [resident()?, usage.resident],
    })
}

/// The table.
pub fn report(plan: &Plan, intervals: &[Interval]) -> Report {
    let title = format!(
        "Silo to silo at {} calls/s, bodies of 100 bytes, for {} s (emmer-lab bench soak)",
        plan.rate,
        plan.time.as_secs()
    );
    let columns = [
        "until s",
        "calls",
        "refused",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "longest us",
        "late beat ms",
        "caller KiB",
        "server KiB",
        "CPU ns each",
    ];
    let mut report = Report::new("bench-soak", title, &columns);
    let mut all = Histogram::default();
    for one in intervals {
        all.add(&one.latency);
        let told = one.latency.quantiles().unwrap_or_default();
        let us = |ns: u64| Cell::Number(ratio(ns, 1_000), 0);
        report.push(vec![
            Cell::Number(one.at_secs, 0),
            one.latency.count().into(),
            one.failed.into(),
            us(told.p50),
            us(told.p99),
            us(told.p999),
            us(told.most),
            Cell::Number(one.late.as_secs_f64() * 1e3, 0),
            (one.resident[0] / 1_024).into(),
            (one.resident[1] / 1_024).into(),
            Cell::Number(one.cpu_each, 0),
        ]);
    }
    let told = all.quantiles().unwrap_or_default();
    report.goals.push(Goal::at_most("p99.9, times p50", Some(ratio(told.p999, told.p50)), 10.0));
    let growth = |side: usize| {
        let first = intervals.first().map_or(0, |one| one.resident[side]);
        ratio(intervals.last().map_or(0, |one| one.resident[side]), first)
    };
    report.goals.push(Goal::at_most(
        "caller's memory at the end, times that after the first interval",
        growth(0),
        1.1,
    ));
    report.goals.push(Goal::at_most(
        "server's memory at the end, times that after the first interval",
        growth(1),
        1.1,
    ));
    let wanted = ratio(plan.rate * plan.time.as_secs(), 1);
    let missing = 1.0 - ratio(all.count(), 1) / wanted.max(1.0);
    report.goals.push(Goal::at_most("share of the calls that were not made", missing, 0.01));
    report
}
