//! One silo of a cluster under load falls silent: it is frozen, or cut from the others. The cluster
//! declares it dead and activates its grains elsewhere. It must not run any of them from then on,
//! and must end itself.

use std::time::{Duration, Instant};

use emmer::errors::EXIT_CODE_TERMINATED;
use emmer_report::{Cell, Goal, Report, quantile};
use rustix::process::Signal;

use super::crowd::{Crowd, Sums};
use super::ground::Ground;
use super::judge::{ON_ITS_WAY, Verdict};
use super::logs::Logs;
use super::processes::{Processes, victim};
use super::pursuit::Pursuit;
use super::stage::Stage;
use super::{Measured, spread};
use crate::grains::turn_log;
use emmer_cli::exit::Result;

/// Interval at which the row of the silent one is read.
const LOOK: Duration = Duration::from_millis(5);
/// Time that the silent process may take to end itself.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Time within which a grain must have had a turn to count as active on a silo.
const RECENT: Duration = Duration::from_secs(2);
/// Time after the fault within which 99 of 100 grains must be active elsewhere, by profile.
const MOVED_GOALS: [(&str, f64); 2] = [("default", 5.5), ("fast", 2.0)];
/// Seconds after the fault within which the silo must be Dead.
const DEAD_GOAL: f64 = 6.0;

/// Fault by which a silo falls silent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its process is stopped (SIGSTOP) and woken after its death.
    Freeze,
    /// It is cut from the other silos.
    Cut,
}

/// Parameters of the measurement.
pub(super) struct Plan {
    pub(super) fault: Fault,
    pub(super) silos: usize,
    pub(super) rounds: usize,
    pub(super) rest: Duration,
    /// Time for which it stays silent after its death, or after its end.
    pub(super) hold: Duration,
    pub(super) rate: u64,
}

/// One round.
struct Round {
    silo: String,
    dead_after: Duration,
    /// Exit code, and the time since it was woken or was Dead in the table.
    exit: Option<(i32, Duration)>,
    /// Turns that it ran in its life, as far as the grains are remembered.
    turns: usize,
    /// Pieces of turns that began after its death had been read in the table, and after it was
    /// woken.
    late_turns: usize,
    verdict: Verdict,
    /// Times after the fault at which each of its grains was active elsewhere, in order.
    moved: Vec<Duration>,
    /// Silos that ended besides.
    others: usize,
    sums: Sums,
}

/// The processes, and the numbers of their logs in the book.
struct Cluster<'a> {
    processes: Processes<'a>,
    logs: Logs,
    crowd: Crowd,
}

pub(super) async fn measure(plan: &Plan, stage: &Stage, ground: Ground) -> Result<Measured> {
    let kind = ground.kind();
    let mut processes = Processes::logged(stage, "warn", ground);
    for slot in 0..plan.silos {
        processes.start_in(slot)?;
    }
    processes.wait_active().await?;
    stage.say(&format!("{} silo processes are Active", plan.silos));
    let crowd = Crowd::start(stage, processes.ground(), plan.silos, plan.rate).await?;
    let mut cluster = Cluster { processes, logs: Logs::default(), crowd };
    cluster.logs.open(&cluster.processes.running);
    let mut rounds = Vec::new();
    for number in 1..=plan.rounds {
        let round = cluster.round(number, plan, stage).await?;
        stage.say(&format!(
            "round {number}: {} Dead after {:.2} s, exit {:?}, {} pieces of turns after its death; \
             {} stale of {}, worst {:.1} ms",
            round.silo,
            round.dead_after.as_secs_f64(),
            round.exit,
            round.late_turns,
            round.verdict.stale(),
            round.verdict.pieces,
            round.verdict.worst.as_secs_f64() * 1_000.0,
        ));
        round.verdict.told.iter().for_each(|line| stage.say(line));
        rounds.push(round);
    }
    let rest = cluster.end().await?;
    rest.told.iter().for_each(|line| stage.say(line));
    Ok(report(plan, stage, kind, &rounds, &rest))
}

impl Cluster<'_> {
    async fn round(&mut self, number: usize, plan: &Plan, stage: &Stage) -> Result<Round> {
        let active = self.processes.wait_active().await?;
        tokio::time::sleep(plan.rest).await;
        let (address, name) = victim(&active, number)?;
        let mut process = self.processes.take(&name)?;
        let log = self.logs.of(&process)?;
        let before = self.crowd.sums();

        let (fault_at, fault_ns) = (Instant::now(), turn_log::now());
        match plan.fault {
            Fault::Freeze => process.signal(Signal::STOP)?,
            Fault::Cut => self.processes.ground().cut(process.slot)?,
        }
        self.logs.book.silent(log, fault_ns);
        tokio::time::sleep(ON_ITS_WAY).await;
        self.logs.book.read()?;
        let grains = self.logs.book.active(log, fault_ns, RECENT);
        let dead_after = stage.wait_dead(&address, fault_at, LOOK).await?;
        let (mut from, dead_ns) = (Instant::now(), turn_log::now());
        let pursuit = Pursuit::start(stage, &grains);
        let mut late_from = dead_ns;
        if plan.fault == Fault::Freeze {
            tokio::time::sleep(plan.hold).await;
            (from, late_from) = (Instant::now(), turn_log::now());
            self.logs.book.woken(log, late_from);
            process.signal(Signal::CONT)?;
        }
        let ended = process.ended(END_LIMIT).await?;
        let exit = ended.map(|status| (status.code().unwrap_or(-1), from.elapsed()));
        if plan.fault == Fault::Cut {
            tokio::time::sleep(plan.hold).await;
            self.processes.ground().heal()?;
        }
        let sums = self.crowd.sums().since(before);
        pursuit.end().await;
        let others = self.processes.take_ended();
        let slots = others.iter().map(|other| other.slot).chain([process.slot]);
        for slot in slots.collect::<Vec<_>>() {
            self.processes.start_in(slot)?;
        }
        self.processes.wait_active().await?;

        let verdict = self.logs.judge().await?;
        let silo = format!("{name} {address}");
        others.iter().chain([&process]).try_for_each(|ended| self.logs.check_whole(ended))?;
        let book = &self.logs.book;
        let round = Round {
            silo,
            dead_after,
            exit,
            turns: book.turns(log),
            late_turns: book.turns_since(log, late_from),
            moved: book.moved(log, fault_ns, &grains),
            verdict,
            others: others.len(),
            sums,
        };
        self.logs.open(&self.processes.running);
        Ok(round)
    }

    /// Stops everything in good order, and judges the rest.
    async fn end(mut self) -> Result<Verdict> {
        self.crowd.stop().await;
        self.processes.stop().await?;
        self.logs.book.read()?;
        let rest = self.logs.book.judge(u64::MAX);
        let running = &self.processes.running;
        running.iter().try_for_each(|process| self.logs.check_whole(process))?;
        Ok(rest)
    }
}

fn report(plan: &Plan, stage: &Stage, kind: &str, rounds: &[Round], rest: &Verdict) -> Measured {
    let times: Vec<Duration> = rounds.iter().map(|round| round.dead_after).collect();
    let mut all = rest.clone();
    rounds.iter().for_each(|round| all.add(&round.verdict));
    let (name, what, ended) = match plan.fault {
        Fault::Freeze => {
            ("bench-membership-freeze", "frozen (SIGSTOP)".to_owned(), "ended ms after it woke")
        }
        Fault::Cut => (
            "bench-membership-cut",
            format!("cut from the others by {kind}"),
            "ended ms after its death",
        ),
    };
    let title = format!(
        "{} silo processes on {}, profile {}, one {what} at a time under load: Dead after {}\n\
         Stale is what a silo ran of a grain after the grain had become active on another silo",
        plan.silos,
        stage.kind(),
        stage.profile,
        spread(&times)
    );
    let columns = [
        "round",
        "silo",
        "Dead after s",
        "exit code",
        ended,
        "turns",
        "turns after its death",
        "grains of all",
        "pieces of all",
        "stale turns",
        "stale hooks",
        "early activations",
        "worst late ms",
        "caught",
        "its grains active elsewhere",
        "p99 after s",
        "others ended",
        "answered",
        "failed calls",
    ];
    let mut report = Report::new(name, title, &columns);
    for (at, round) in rounds.iter().enumerate() {
        report.push(row(at + 1, round));
    }
    report.push(total(rounds, &all));
    goals(&mut report, plan, stage, rounds, &all);
    let violated = (all.stale() + all.early > 0).then(|| {
        format!(
            "{} turns and {} hooks ran after their grain had become active on another silo, up to \
             {:.1} ms late; {} activations began early",
            all.stale_turns,
            all.stale_hooks,
            all.worst.as_secs_f64() * 1_000.0,
            all.early
        )
    });
    (report, violated)
}

fn ms(time: Duration) -> Cell {
    Cell::Number(time.as_secs_f64() * 1_000.0, 1)
}

fn row(number: usize, round: &Round) -> Vec<Cell> {
    let code = round.exit.map_or_else(|| "none".to_owned(), |(code, _)| code.to_string());
    let verdict = &round.verdict;
    vec![
        number.into(),
        round.silo.clone().into(),
        Cell::Number(round.dead_after.as_secs_f64(), 2),
        code.into(),
        round.exit.map_or(Cell::Nothing, |(_, after)| ms(after)),
        round.turns.into(),
        round.late_turns.into(),
        verdict.grains.into(),
        verdict.pieces.into(),
        verdict.stale_turns.into(),
        verdict.stale_hooks.into(),
        verdict.early.into(),
        ms(verdict.worst),
        verdict.caught.into(),
        round.moved.len().into(),
        quantile(&round.moved, 0.99)
            .map_or(Cell::Nothing, |time| Cell::Number(time.as_secs_f64(), 2)),
        round.others.into(),
        round.sums.answered.into(),
        round.sums.failed.into(),
    ]
}

/// The sums; the worst of times. It includes the verdict after the last round.
fn total(rounds: &[Round], all: &Verdict) -> Vec<Cell> {
    let sum = |of: fn(&Round) -> usize| rounds.iter().map(of).sum::<usize>();
    let worst = |of: fn(&Round) -> Option<Duration>| rounds.iter().filter_map(of).max();
    let seconds = |time: Duration| Cell::Number(time.as_secs_f64(), 2);
    vec![
        "total".into(),
        Cell::Nothing,
        worst(|round| Some(round.dead_after)).map_or(Cell::Nothing, seconds),
        Cell::Nothing,
        worst(|round| round.exit.map(|(_, after)| after)).map_or(Cell::Nothing, ms),
        sum(|round| round.turns).into(),
        sum(|round| round.late_turns).into(),
        all.grains.into(),
        all.pieces.into(),
        all.stale_turns.into(),
        all.stale_hooks.into(),
        all.early.into(),
        ms(all.worst),
        all.caught.into(),
        sum(|round| round.moved.len()).into(),
        quantile(&pooled(rounds), 0.99).map_or(Cell::Nothing, seconds),
        sum(|round| round.others).into(),
        rounds.iter().map(|round| round.sums.answered).sum::<u64>().into(),
        rounds.iter().map(|round| round.sums.failed).sum::<u64>().into(),
    ]
}

fn goals(report: &mut Report, plan: &Plan, stage: &Stage, rounds: &[Round], all: &Verdict) {
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let count =
        |bad: fn(&Round) -> bool| number(rounds.iter().filter(|round| bad(round)).count() as u64);
    let worst = rounds.iter().map(|round| round.dead_after.as_secs_f64()).reduce(f64::max);
    let wrong = count(|round| round.exit.is_none_or(|(code, _)| code != EXIT_CODE_TERMINATED));
    let others = rounds.iter().map(|round| round.others as u64).sum();
    report.goals.push(Goal::at_most("stale turns and hooks", number(all.stale()), 0.0));
    report.goals.push(Goal::at_most("early activations", number(all.early), 0.0));
    report.goals.push(Goal::at_most("worst round: Dead after s", worst, DEAD_GOAL));
    let exits = format!("rounds with an exit code other than {EXIT_CODE_TERMINATED}");
    report.goals.push(Goal::at_most(exits, wrong, 0.0));
    report.goals.push(Goal::at_most("silos that ended besides", number(others), 0.0));
    if plan.fault == Fault::Freeze {
        // Each of its threads may have been stopped in a poll, or right before one.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let caught = rounds.iter().map(|round| round.verdict.caught).max().unwrap_or_default();
        report.goals.push(Goal::at_most(
            "pieces caught by the freeze, in the worst round",
            number(caught),
            number(2 * threads),
        ));
    }
    if let Some((_, goal)) = MOVED_GOALS.iter().find(|(profile, _)| *profile == stage.profile) {
        let reached = quantile(&pooled(rounds), 0.99).map(|time| time.as_secs_f64());
        report.goals.push(Goal::at_most(
            "from the fault to active elsewhere, p99, s",
            reached,
            *goal,
        ));
    }
}

/// The times of all rounds.
fn pooled(rounds: &[Round]) -> Vec<Duration> {
    rounds.iter().flat_map(|round| round.moved.iter().copied()).collect()
}
