//! Effects of each fault on callers: a silo process is killed, frozen and woken, asked to leave,
//! and all are replaced one after the other, while a client calls at a steady pace. Measured
//! numbers of other systems stand next to it.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use emmer::tables::{SiloAddress, SiloEntry};
use emmer_report::{Cell, Goal, Report};
use rustix::process::Signal;

use super::flow::{CALL_TIMEOUT, Flow, Load, Seen};
use super::ground::Ground;
use super::logs::Logs;
use super::processes::{Process, Processes, victim};
use super::stage::Stage;
use super::{Measured, duration};
use crate::grains::turn_log;
use emmer_cli::exit::{Failure, Result};

/// Interval at which the row of the frozen one is read.
const LOOK: Duration = Duration::from_millis(5);
/// Time that a silo may take to leave, or to end itself.
const END_LIMIT: Duration = Duration::from_secs(70);
/// Time for which the load continues between two replacements of a rolling restart.
const BETWEEN: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silo processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=60))]
    silos: usize,
    /// Number of grains that are called
    #[arg(long, value_name = "N", default_value_t = 3_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=1_000_000))]
    grains: u64,
    /// Calls in a second
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = RangedU64ValueParser::<u64>::new().range(1..=20_000))]
    rate: u64,
    /// Every call makes its grain call another one, and 64 callers go as fast as they can
    #[arg(long, conflicts_with = "rate")]
    between: bool,
    /// Time for which the calls of one fault are counted, beginning a quarter of it before the
    /// fault
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = duration)]
    window: Duration,
    /// Only this fault
    #[arg(long, value_enum)]
    only: Option<Fault>,
}

/// Fault of a silo process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// It is killed (SIGKILL)
    Kill,
    /// It is frozen (SIGSTOP), and woken (SIGCONT) after its death
    Freeze,
    /// It is asked to leave (SIGTERM)
    Leave,
    /// One process after the other is asked to leave, and replaced
    Rolling,
}

/// Measurements of others, with a client at the same pace over the same number of grains: by row,
/// Orleans and Pekko cluster sharding.
const OTHERS: [(&str, &str, &str); 5] = [
    ("kill -9", "3,715 and 5,257 of 80,000 failed", "first answer elsewhere after 46 to 48 s"),
    ("SIGSTOP", "69,553 of 200,000 failed", "first answer elsewhere after 46 to 48 s"),
    ("SIGCONT after its death", "8,533 stale turns", "21 to 1,283 stale turns"),
    ("SIGTERM", "2 to 3 of 80,000 failed", ""),
    ("rolling restart", "150 of 140,000 failed", ""),
];

/// One row.
struct Row {
    name: &'static str,
    fault_at: Instant,
    seen: Seen,
    dead_after: Option<Duration>,
    /// Turns and hooks that ran after their grain had become active elsewhere, and activations
    /// that began too early.
    stale: u64,
}

struct Cluster<'a> {
    stage: &'a Stage,
    processes: Processes<'a>,
    active: Vec<SiloEntry>,
    logs: Logs,
    flow: Flow,
    rows: Vec<Row>,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Measured> {
    let mut processes = Processes::logged(stage, "warn", Ground::loopback(stage));
    for _ in 0..args.silos {
        processes.start()?;
    }
    let active = processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", args.silos));
    let mut logs = Logs::default();
    logs.open(&processes.running);
    let load = if args.between { Load::Between } else { Load::Steady(args.rate) };
    let flow = Flow::start(stage, args.grains, load).await?;
    let mut cluster = Cluster { stage, processes, active, logs, flow, rows: Vec::new() };
    let asked = |fault: &&Fault| args.only.is_none_or(|only| only == **fault);
    for fault in Fault::value_variants().iter().filter(asked) {
        match fault {
            Fault::Kill => cluster.kill(args.window).await?,
            Fault::Freeze => cluster.freeze(args.window).await?,
            Fault::Leave => cluster.leave(args.window).await?,
            Fault::Rolling => cluster.rolling().await?,
        }
    }
    let Cluster { mut processes, mut logs, flow, rows, .. } = cluster;
    flow.stop().await;
    let rest = logs.judge().await?;
    processes.stop().await?;
    let stale = rows.iter().map(|row| row.stale).sum::<u64>() + rest.stale() + rest.early;
    let report = report(args, stage, &rows, stale);
    let violated = (stale > 0).then(|| {
        format!("{stale} turns, hooks or activations ran while their grain was active elsewhere")
    });
    Ok((report, violated))
}

impl Cluster<'_> {
    /// Lets the load run for a while, and takes a silo out. Its place in the list is that of
    /// `round`.
    async fn before(&mut self, window: Duration, round: usize) -> Result<(SiloAddress, Process)> {
        self.flow.take();
        tokio::time::sleep(window / 4).await;
        let (address, name) = victim(&self.active, round)?;
        Ok((address, self.processes.take(&name)?))
    }

    /// Waits until the window is over, and no call of the fault is under way.
    async fn after(&self, fault_at: Instant, window: Duration) {
        let rest = (window * 3 / 4).max(CALL_TIMEOUT);
        tokio::time::sleep(rest.saturating_sub(fault_at.elapsed())).await;
    }

    async fn note(
        &mut self,
        name: &'static str,
        fault_at: Instant,
        dead_after: Option<Duration>,
    ) -> Result<()> {
        let seen = self.flow.take();
        let verdict = self.logs.judge().await?;
        verdict.told.iter().for_each(|line| self.stage.say(line));
        self.stage.say(&format!(
            "{name}: {} calls answered, {} failed, {} of them known not to have run; at most {} ms \
             between two answers to one caller",
            seen.answered,
            seen.failed,
            seen.unrun,
            seen.gap.as_millis()
        ));
        seen.told.iter().for_each(|words| self.stage.say(&format!("a call that failed: {words}")));
        let stale = verdict.stale() + verdict.early;
        self.rows.push(Row { name, fault_at, seen, dead_after, stale });
        Ok(())
    }

    /// Starts another process instead of an ended one.
    async fn replace(&mut self) -> Result<()> {
        self.processes.start()?;
        self.active = self.processes.wait_active().await?;
        self.logs.open(&self.processes.running);
        Ok(())
    }

    async fn kill(&mut self, window: Duration) -> Result<()> {
        let (silo, process) = self.before(window, 1).await?;
        let log = self.logs.of(&process)?;
        let fault_at = Instant::now();
        self.logs.book.silent(log, turn_log::now());
        process.signal(Signal::KILL)?;
        let dead_after = self.stage.wait_dead(&silo, fault_at, LOOK).await?;
        self.replace().await?;
        self.after(fault_at, window).await;
        self.note(OTHERS[0].0, fault_at, Some(dead_after)).await
    }

    async fn freeze(&mut self, window: Duration) -> Result<()> {
        let (silo, mut process) = self.before(window, 2).await?;
        let log = self.logs.of(&process)?;
        let fault_at = Instant::now();
        self.logs.book.silent(log, turn_log::now());
        process.signal(Signal::STOP)?;
        let dead_after = self.stage.wait_dead(&silo, fault_at, LOOK).await?;
        self.after(fault_at, window).await;
        self.note(OTHERS[1].0, fault_at, Some(dead_after)).await?;
        let woken_at = Instant::now();
        self.logs.book.woken(log, turn_log::now());
        process.signal(Signal::CONT)?;
        if process.ended(END_LIMIT).await?.is_none() {
            return Err(Failure::other(format!("silo {} does not end itself", process.name)));
        }
        self.after(woken_at, Duration::ZERO).await;
        self.note(OTHERS[2].0, woken_at, None).await?;
        self.logs.check_whole(&process)?;
        self.replace().await
    }

    async fn end_one(&mut self, mut process: Process) -> Result<()> {
        process.signal(Signal::TERM)?;
        if process.ended(END_LIMIT).await?.is_none() {
            return Err(Failure::other(format!("silo {} does not leave", process.name)));
        }
        self.replace().await
    }

    async fn leave(&mut self, window: Duration) -> Result<()> {
        let (_, process) = self.before(window, 3).await?;
        let fault_at = Instant::now();
        self.end_one(process).await?;
        self.after(fault_at, window).await;
        self.note(OTHERS[3].0, fault_at, None).await
    }

    async fn rolling(&mut self) -> Result<()> {
        self.flow.take();
        let fault_at = Instant::now();
        for name in self.processes.running.iter().map(|p| p.name.clone()).collect::<Vec<_>>() {
            tokio::time::sleep(BETWEEN).await;
            let process = self.processes.take(&name)?;
            self.end_one(process).await?;
        }
        self.after(Instant::now(), Duration::ZERO).await;
        self.note(OTHERS[4].0, fault_at, None).await
    }
}

fn report(args: &Args, stage: &Stage, rows: &[Row], stale: u64) -> Report {
    let calls = if args.between {
        "calls as fast as 64 callers can, each of which makes its grain call another one,"
            .to_owned()
    } else {
        format!("{} calls a second", args.rate)
    };
    let title = format!(
        "What a client sees that makes {} to {} grains on {} silo processes over {}, profile {}, \
         when one of them fails or leaves. Orleans (three silos, its defaults) and \
         Pekko (three nodes, its defaults) were measured by us on such a machine",
        calls,
        args.grains,
        args.silos,
        stage.kind(),
        stage.profile
    );
    let columns = [
        "fault",
        "calls",
        "failed",
        "known not to have run",
        "left out",
        "slowest answer ms",
        "longest gap ms",
        "last failure after s",
        "Dead after s",
        "stale turns",
        "Orleans",
        "Pekko",
    ];
    let mut report = Report::new("bench-faults", title, &columns);
    let seconds = |time: Duration| Cell::Number(time.as_secs_f64(), 2);
    for row in rows {
        let Seen { answered, failed, unrun, left_out, slowest, gap, last_failure, .. } = &row.seen;
        let since = |at: &Instant| seconds(at.saturating_duration_since(row.fault_at));
        let (_, orleans, pekko) =
            OTHERS.iter().find(|(name, ..)| *name == row.name).copied().unwrap_or_default();
        report.push(vec![
            row.name.into(),
            (answered + failed).into(),
            (*failed).into(),
            (*unrun).into(),
            (*left_out).into(),
            Cell::Number(slowest.as_secs_f64() * 1_000.0, 1),
            Cell::Number(gap.as_secs_f64() * 1_000.0, 1),
            last_failure.as_ref().map_or(Cell::Nothing, since),
            row.dead_after.map_or(Cell::Nothing, seconds),
            row.stale.into(),
            orleans.into(),
            pekko.into(),
        ]);
    }
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let sum = |of: fn(&Row) -> u64| number(rows.iter().map(of).sum());
    report.goals.push(Goal::at_most(
        "failed calls that are known not to have run",
        sum(|row| row.seen.unrun),
        0.0,
    ));
    if args.between
        && let Some(killed) = rows.iter().find(|row| row.name == OTHERS[0].0)
    {
        let dead = killed.dead_after.map(|after| after.as_secs_f64());
        report.goals.push(Goal::at_most("killed at full speed: Dead after s", dead, 0.150));
        let gap = killed.seen.gap.as_secs_f64();
        report.goals.push(Goal::at_most("killed at full speed: longest gap s", gap, 1.0));
    }
    let is_planned = |row: &&Row| [OTHERS[3].0, OTHERS[4].0].contains(&row.name);
    let planned = rows.iter().filter(is_planned).map(|row| row.seen.failed).sum();
    report.goals.push(Goal::at_most(
        "failed calls when silos leave in good order",
        number(planned),
        0.0,
    ));
    report.goals.push(Goal::at_most("stale turns, hooks and activations", number(stale), 0.0));
    report
}
