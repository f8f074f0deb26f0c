//! A silo process leaves with thousands of grains, and it or another one is killed in the midst of
//! their moves. Does any grain run on two silos, and does each answer again?
//!
//! The last lines of a killed silo's log are lost. Grains that had come to it a moment before seem
//! to be activated early then, on the silo that has them next. So early activations count where no
//! silo is killed.

use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer_report::{Cell, Goal, Report};
use rustix::process::Signal;

use super::flow::{Flow, Load, Seen};
use super::ground::Ground;
use super::judge::Verdict;
use super::logs::Logs;
use super::processes::Processes;
use super::stage::Stage;
use super::{Measured, duration, spread};
use crate::grains::turn_log;
use emmer_cli::exit::{Failure, Result};

/// Time that a silo may take to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(70);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(3..=200))]
    silos: usize,
    /// Number of rounds: in odd ones the silo that leaves is killed, in even ones one of the others
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// Number of grains of each silo
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    grains: u64,
    /// Kill none: all that leave do it in good order
    #[arg(long)]
    spare: bool,
    /// Calls in a second
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=100_000))]
    rate: u64,
    /// Time for which the load runs before each round
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    rest: Duration,
}

/// One round.
struct Round {
    leaver: String,
    killed: String,
    /// Time from the request to leave to the kill.
    killed_after: Duration,
    /// Time from the kill to the death in the table.
    dead_after: Duration,
    verdict: Verdict,
    seen: Seen,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Measured> {
    let mut processes = Processes::logged(stage, "warn", Ground::loopback(stage));
    for _ in 0..args.silos {
        processes.start()?;
    }
    processes.wait_active().await?;
    let grains = args.grains * args.silos as u64;
    let flow = Flow::start(stage, grains, Load::Steady(args.rate)).await?;
    stage.say(&format!("{} silo processes are Active, with {grains} grains", args.silos));
    let mut logs = Logs::default();
    logs.open(&processes.running);
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let round = round(number, args, stage, &mut processes, &mut logs, &flow).await?;
        stage.say(&format!(
            "round {number}: {} leaves, {} is killed after {:.0} ms, Dead after {:.2} s; {} of {} \
             pieces stale, {} early; {} calls, {} failed",
            round.leaver,
            round.killed,
            round.killed_after.as_secs_f64() * 1e3,
            round.dead_after.as_secs_f64(),
            round.verdict.stale(),
            round.verdict.pieces,
            round.verdict.early,
            round.seen.answered,
            round.seen.failed,
        ));
        round.verdict.told.iter().for_each(|line| stage.say(line));
        round.seen.told.iter().for_each(|line| stage.say(line));
        rounds.push(round);
    }
    flow.stop().await;
    processes.stop().await?;
    logs.book.read()?;
    let rest = logs.book.judge(u64::MAX);
    Ok(report(args, stage, &rounds, &rest))
}

async fn round(
    number: usize,
    args: &Args,
    stage: &Stage,
    processes: &mut Processes<'_>,
    logs: &mut Logs,
    flow: &Flow,
) -> Result<Round> {
    let active = processes.wait_active().await?;
    tokio::time::sleep(args.rest).await;
    flow.take();
    // The oldest ones have most grains.
    let mut oldest = processes.running.iter().map(|process| process.name.clone());
    let mut next =
        || oldest.next().and_then(|name| active.iter().find(|s| *s.instance_name == *name));
    let (Some(leaver), Some(other)) = (next(), next()) else {
        return Err(Failure::other("no other silo is running"));
    };
    let (leaver_at, leaver) = (leaver.address, leaver.instance_name.to_string());
    let is_source = args.spare || !number.is_multiple_of(2);
    let (killed_at, killed) = match is_source {
        true => (leaver_at, leaver.clone()),
        false => (other.address, other.instance_name.to_string()),
    };
    let killed = if args.spare { "none".to_owned() } else { killed };
    let mut leaving = processes.take(&leaver)?;
    let asked = Instant::now();
    leaving.signal(Signal::TERM)?;
    // Another moment of the moves in each round.
    let moment = Duration::from_millis(40 + (number as u64 * 37) % 400);
    tokio::time::sleep(moment).await;
    let mut target = (!is_source).then(|| processes.take(&killed)).transpose()?;
    if !args.spare {
        let victim = target.as_mut().unwrap_or(&mut leaving);
        logs.book.silent(logs.of(victim)?, turn_log::now());
        victim.signal(Signal::KILL)?;
    }
    let (killed_after, begun) = (asked.elapsed(), Instant::now());
    let dead_after = stage.wait_dead(&killed_at, begun, Duration::from_millis(20)).await?;
    if leaving.ended(LEAVE_LIMIT).await?.is_none() {
        return Err(Failure::other(format!("silo {leaver} does not end")));
    }
    if !is_source {
        // Its grains are elsewhere. No hook says so.
        logs.book.silent(logs.of(&leaving)?, turn_log::now());
    }
    let gone = 1 + usize::from(target.is_some());
    for _ in 0..gone {
        processes.start()?;
    }
    processes.wait_active().await?;
    flow.settle().await?;
    let verdict = logs.judge().await?;
    logs.open(&processes.running);
    let seen = flow.take();
    Ok(Round { leaver, killed, killed_after, dead_after, verdict, seen })
}

fn report(args: &Args, stage: &Stage, rounds: &[Round], rest: &Verdict) -> Measured {
    let times: Vec<Duration> = rounds.iter().map(|round| round.dead_after).collect();
    let mut all = rest.clone();
    rounds.iter().for_each(|round| all.add(&round.verdict));
    let what = if args.spare {
        "none is killed"
    } else {
        "it (odd rounds) or another one (even rounds) is killed (SIGKILL) in the midst"
    };
    let title = format!(
        "{} silo processes on {} with {} grains each; one leaves, and {what}: Dead after {}",
        args.silos,
        stage.kind(),
        args.grains,
        spread(&times),
    );
    let columns = [
        "round",
        "leaves",
        "killed",
        "after ms",
        "Dead after s",
        "pieces",
        "stale",
        "early",
        "answered",
        "failed",
        "known not to have run",
    ];
    let mut report = Report::new("bench-membership-moves", title, &columns);
    for (at, round) in rounds.iter().enumerate() {
        report.push(vec![
            (at + 1).into(),
            round.leaver.clone().into(),
            round.killed.clone().into(),
            Cell::Number(round.killed_after.as_secs_f64() * 1e3, 0),
            Cell::Number(round.dead_after.as_secs_f64(), 2),
            round.verdict.pieces.into(),
            round.verdict.stale().into(),
            round.verdict.early.into(),
            round.seen.answered.into(),
            round.seen.failed.into(),
            round.seen.unrun.into(),
        ]);
    }
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let unrun: u64 = rounds.iter().map(|round| round.seen.unrun).sum();
    let goals = &mut report.goals;
    goals.push(Goal::at_most("stale turns and hooks", number(all.stale()), 0.0));
    if args.spare {
        goals.push(Goal::at_most("early activations", number(all.early), 0.0));
        let failed = rounds.iter().map(|round| round.seen.failed).sum();
        goals.push(Goal::at_most("failed calls", number(failed), 0.0));
    }
    goals.push(Goal::at_most("failed calls that are known not to have run", number(unrun), 0.0));
    let early = if args.spare { all.early } else { 0 };
    let violated = (all.stale() + early > 0)
        .then(|| format!("{} pieces stale, {} activations early", all.stale(), all.early));
    (report, violated)
}
