//! One silo process is frozen under load, declared dead, and woken again.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer::EXIT_CODE_TERMINATED;
use emmer_sim::report::{Cell, Goal, Report};
use rustix::process::Signal;

use super::load::Load;
use super::processes::{Processes, victim};
use super::stage::Stage;
use super::{duration, spread};
use crate::exit::{Failure, Result};
use crate::grains::{LOG_TARGET, now_us};

/// How often the row of the frozen one is read.
const LOOK: Duration = Duration::from_millis(5);
/// How long the woken process may take to end itself.
const END_LIMIT: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(super) struct Args {
    /// How many silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=200))]
    silos: usize,
    /// How many are frozen, one after the other; each is replaced by a fresh process
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    rounds: usize,
    /// How long the cluster is under load before each freeze
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    rest: Duration,
    /// How long the process stays frozen after its death
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    hold: Duration,
}

/// One round.
struct Round {
    silo: String,
    dead_after: Duration,
    /// What it exited with, and how long after it was woken.
    exit: Option<(i32, Duration)>,
    /// Turns that its own log says it began, all in all.
    turns: u64,
    /// Those after its death.
    late_turns: u64,
    /// Whether an answer of it came after its death.
    late_answer: bool,
    failed: u64,
    slowest: Duration,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let log = format!("warn,{LOG_TARGET}=debug");
    let mut processes = Processes::new(stage, &log);
    for _ in 0..args.silos {
        processes.start()?;
    }
    processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", args.silos));
    let load = Load::start(stage).await?;
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let round = one(number, args, stage, &mut processes, &load).await?;
        stage.say(&format!(
            "round {number}: Dead after {:.2} s, exit {:?}, {} turns of which {} after its death",
            round.dead_after.as_secs_f64(),
            round.exit,
            round.turns,
            round.late_turns
        ));
        rounds.push(round);
    }
    for failure in load.failures() {
        stage.say(&format!("a call that failed: {failure}"));
    }
    load.stop().await;
    Ok(report(args, stage, &rounds))
}

async fn one(
    number: usize,
    args: &Args,
    stage: &Stage,
    processes: &mut Processes<'_>,
    load: &Load,
) -> Result<Round> {
    let active = processes.wait_active().await?;
    tokio::time::sleep(args.rest).await;
    let (address, name) = victim(&active, number)?;
    let mut process = processes.take(&name)?;
    let silo = address.to_string();
    let answered_before = load.answers(&silo).count;
    if answered_before == 0 {
        return Err(Failure::other(format!("silo {name} answered nothing before it was frozen")));
    }
    let failed = load.snapshot().failed;
    let frozen_at = Instant::now();
    process.signal(Signal::STOP)?;
    let dead_after = stage.wait_dead(&address, frozen_at, LOOK).await?;
    let dead_us = now_us();
    tokio::time::sleep(args.hold).await;
    let woken_at = Instant::now();
    process.signal(Signal::CONT)?;
    let ended = process.ended(END_LIMIT).await?;
    let exit = ended.map(|status| (status.code().unwrap_or(-1), woken_at.elapsed()));
    processes.start()?;
    processes.wait_active().await?;
    let snapshot = load.snapshot();
    let (turns, late_turns) = turns(&process.log, dead_us)?;
    if late_turns > 0 {
        stage.say(&format!(
            "{name} began {late_turns} turns after {dead_us} us, when its death had been read"
        ));
    }
    let answers = load.answers(&silo);
    Ok(Round {
        silo,
        dead_after,
        exit,
        turns,
        late_turns,
        late_answer: answers.last_came_us > dead_us || answers.last_turn_us > dead_us,
        failed: snapshot.failed - failed,
        slowest: snapshot.slowest,
    })
}

/// How many turns a silo's log tells of, and how many of them began after `dead_us`.
fn turns(log: &Path, dead_us: u64) -> Result<(u64, u64)> {
    let failed = |error: std::io::Error| Failure::other(format!("{}: {error}", log.display()));
    let (mut all, mut late) = (0, 0);
    for line in BufReader::new(File::open(log).map_err(failed)?).lines() {
        if let Some(at_us) = turn(&line.map_err(failed)?) {
            all += 1;
            late += u64::from(at_us > dead_us);
        }
    }
    Ok((all, late))
}

/// When the turn began that this line of a log tells of.
fn turn(line: &str) -> Option<u64> {
    let (_, fields) = line.split_once(LOG_TARGET)?;
    let (_, at) = fields.split_once("at_us=")?;
    at.split_whitespace().next()?.parse().ok()
}

fn report(args: &Args, stage: &Stage, rounds: &[Round]) -> Report {
    let times: Vec<Duration> = rounds.iter().map(|round| round.dead_after).collect();
    let title = format!(
        "{} silo processes on {}, profile {}, one frozen (SIGSTOP) at a time under load: Dead after {}\n\
         For comparison: three silos of the original, run by us: 60,000 to 64,000 ms",
        args.silos,
        stage.kind(),
        stage.profile,
        spread(&times)
    );
    let columns = [
        "round",
        "frozen",
        "Dead after s",
        "exit code",
        "ended ms after it woke",
        "turns",
        "turns after its death",
        "answered after its death",
        "failed calls",
        "slowest answer ms",
    ];
    let mut report = Report::new("bench-membership-freeze", title, &columns);
    for (at, round) in rounds.iter().enumerate() {
        let code = round.exit.map_or_else(|| "none".to_owned(), |(code, _)| code.to_string());
        let ms = |time: Duration| Cell::Number(time.as_secs_f64() * 1_000.0, 1);
        report.push(vec![
            (at + 1).into(),
            round.silo.clone().into(),
            Cell::Number(round.dead_after.as_secs_f64(), 2),
            code.into(),
            round.exit.map_or(Cell::Nothing, |(_, after)| ms(after)),
            round.turns.into(),
            round.late_turns.into(),
            if round.late_answer { "yes".into() } else { "no".into() },
            round.failed.into(),
            ms(round.slowest),
        ]);
    }
    let worst = times.iter().max().map(Duration::as_secs_f64);
    let count = |bad: fn(&Round) -> bool| {
        f64::from(u32::try_from(rounds.iter().filter(|r| bad(r)).count()).unwrap_or(u32::MAX))
    };
    report.goals.push(Goal::at_most("worst round: Dead after s", worst, 6.0));
    let wrong = count(|round| round.exit.is_none_or(|(code, _)| code != EXIT_CODE_TERMINATED));
    report.goals.push(Goal::at_most(
        format!("rounds with an exit code other than {EXIT_CODE_TERMINATED}"),
        wrong,
        0.0,
    ));
    let late = count(|round| round.late_turns > 0 || round.late_answer);
    report.goals.push(Goal::at_most("rounds with a turn or an answer after the silo's death", late, 0.0));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_turns_from_a_log() {
        let line = "2026-11-21T12:44:45.123456Z DEBUG emmer_probe: turn at_us=1795265085123456 key=7";
        assert_eq!(turn(line), Some(1_795_265_085_123_456));
        for other in ["", "2026-11-21T12:44:45Z WARN emmer_runtime: at_us=5", "emmer_probe: turn at_us=x"] {
            assert_eq!(turn(other), None, "{other}");
        }
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        std::fs::write(&log, format!("{line}\nsomething else\n{}\n", line.replace("3456 ", "3457 ")))
            .unwrap();
        assert_eq!(turns(&log, 1_795_265_085_123_456).unwrap(), (2, 1));
    }
}
