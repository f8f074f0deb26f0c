//! Calls within one process: what a call to a warm grain costs.

use std::sync::Arc;

use emmer::Silo;
use emmer_report::Report;
use serde::{Deserialize, Serialize};

use crate::drive::{self, Ask, Tell};
use crate::floors::local::{Inline, Mpsc};
use crate::grains::{Cell, CellRef};
use crate::job::{Job, Launcher, runtime};
use crate::report::{Compared, Rounds};
use crate::sample::Sample;
use crate::{Result, Settings, silos};

/// The names of the measurements.
pub const ONE: &str = "1 caller, 1 grain";
/// See [`ONE`].
pub const HOT: &str = "64 callers, 1 grain";
/// See [`ONE`].
pub const SPREAD: &str = "64 callers, 1,000 grains";
/// See [`ONE`].
pub const ONE_WAY: &str = "one way";

/// Implementation that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// The floor `inline`.
    Inline,
    /// The floor `mpsc`.
    Mpsc,
    /// Emmer, with references that are kept.
    Emmer,
    /// Emmer, with a new reference for each call.
    EmmerFresh,
}

impl Contender {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Mpsc => "mpsc",
            Self::Emmer => "emmer",
            Self::EmmerFresh => "emmer, new refs",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    contender: Contender,
    threads: usize,
    calls: u64,
}

/// A kept reference.
impl Ask for CellRef {
    async fn ask(&self, n: u64) -> Result<u64> {
        Ok(self.bump(n).await?)
    }
}

impl Tell for CellRef {
    async fn tell(&self) -> Result<()> {
        loop {
            match self.bump(0).send() {
                Ok(()) => return Ok(()),
                Err(emmer::CallError::Overloaded { .. }) => tokio::task::yield_now().await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn told(&self) -> Result<u64> {
        Ok(self.turns().await?)
    }
}

/// Makes a reference for each call, as code does that gets keys from somewhere.
#[derive(Clone)]
struct Fresh {
    silo: Arc<Silo>,
    key: u64,
}

impl Ask for Fresh {
    async fn ask(&self, n: u64) -> Result<u64> {
        Ok(self.silo.grain::<dyn Cell>(self.key).bump(n).await?)
    }
}

/// Runs one contender.
///
/// # Errors
/// The first call that failed.
pub fn run(plan: &Plan) -> Result<Vec<Sample>> {
    let plan = plan.clone();
    runtime(plan.threads)?.block_on(async move {
        // On a worker, not on the thread that waits: that is where applications call from.
        tokio::spawn(async move {
            match plan.contender {
                Contender::Inline => scenarios(&plan, |_| Inline::start()).await,
                Contender::Mpsc => {
                    let mut samples = scenarios(&plan, |_| Mpsc::start()).await?;
                    samples.push(one_way(&plan, &Mpsc::start()).await?);
                    Ok(samples)
                }
                Contender::Emmer => {
                    let silo = silos::alone().await?;
                    let grains = silo.grains();
                    let mut samples = scenarios(&plan, |key| grains.grain::<dyn Cell>(key)).await?;
                    samples.push(one_way(&plan, &grains.grain::<dyn Cell>(7u64)).await?);
                    Ok(samples)
                }
                Contender::EmmerFresh => {
                    let silo = Arc::new(silos::alone().await?);
                    scenarios(&plan, |key| Fresh { silo: silo.clone(), key }).await
                }
            }
        })
        .await?
    })
}

async fn scenarios<A: Ask>(plan: &Plan, target: impl Fn(u64) -> A) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for (what, callers, grains) in [(ONE, 1, 1), (HOT, 64, 1), (SPREAD, 64, 1_000)] {
        let targets: Arc<Vec<A>> = Arc::new((0..grains).map(&target).collect());
        for target in targets.iter() {
            target.ask(0).await?;
        }
        drive::ask(&targets, callers, plan.calls / 10, false).await?;
        let run = drive::ask(&targets, callers, plan.calls, false).await?;
        let timed = drive::ask(&targets, callers, plan.calls / 4, true).await?;
        let mut sample =
            Sample::new(what, plan.contender.name(), plan.threads, run.calls).taking(run.took);
        sample.latency = timed.latency.quantiles();
        samples.push(sample);
    }
    Ok(samples)
}

async fn one_way<T: Tell>(plan: &Plan, target: &T) -> Result<Sample> {
    drive::tell(target, plan.calls / 10).await?;
    let run = drive::tell(target, plan.calls).await?;
    Ok(Sample::new(ONE_WAY, plan.contender.name(), plan.threads, run.calls).taking(run.took))
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let calls = settings.scaled(1_000_000, 100);
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            for contender in
                [Contender::Inline, Contender::Mpsc, Contender::Emmer, Contender::EmmerFresh]
            {
                let plan = Plan { contender, threads: *threads, calls };
                rounds.add(contender.name(), || launcher.measure(&Job::run_of("local", &plan)?))?;
            }
        }
    }
    Ok(rounds.compared(["mpsc", "inline"]))
}

/// The table with its goals.
pub fn report(compared: &Compared) -> Report {
    let title =
        "Calls within one process (emmer-lab bench local). 1 thread: a runtime without others.";
    let mut report = compared.report("bench-local", title);
    let emmer = Contender::Emmer.name();
    report.goals = vec![
        compared.goal_cpu(ONE, 1, emmer, 200.0),
        compared.goal_times(ONE, 1, emmer, "mpsc", 0.55),
        compared.goal_cpu(HOT, 1, emmer, 320.0),
        compared.goal_times(HOT, 1, emmer, "mpsc", 1.2),
        compared.goal_cpu(SPREAD, 1, emmer, 320.0),
        compared.goal_times(SPREAD, 1, emmer, "mpsc", 0.7),
        // 4,000,000 messages for each second of a core.
        compared.goal_cpu(ONE_WAY, 1, emmer, 250.0),
    ];
    report.goals.retain(|goal| goal.reached.is_some());
    report
}
