//! Cold activations: the first call to grains that were never called before, from 64 callers, until
//! each was answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use emmer_report::Report;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::drive::Ask;
use crate::floors::local::{Inline, Mpsc};
use crate::grains::{Cell, StoredCell};
use crate::job::{Job, Launcher, runtime};
use crate::meter::Meter;
use crate::report::{Compared, Rounds};
use crate::sample::Sample;
use crate::{Result, Settings, lock, silos};

/// Number of callers that share the work.
const CALLERS: u64 = 64;
/// Number of locks that the floors' maps are divided over.
const SHARDS: u64 = 64;

/// Name of the measurement.
pub const FIRST_CALL: &str = "activation and first call";

/// Implementation whose activation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// The floor `inline`, found in a map.
    Inline,
    /// The floor `mpsc`, found in a map.
    Mpsc,
    /// Emmer, without state in the store.
    Emmer,
    /// Emmer, with state read from a store in memory (which has none yet).
    EmmerStored,
}

impl Contender {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Mpsc => "mpsc",
            Self::Emmer => "emmer",
            Self::EmmerStored => "emmer, with state",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    contender: Contender,
    threads: usize,
    grains: u64,
}

/// Actors by key, made when they are first asked for.
pub(crate) struct Actors<A> {
    shards: Vec<Mutex<HashMap<u64, A>>>,
    start: fn() -> A,
}

impl<A: Ask> Actors<A> {
    pub(crate) fn new(start: fn() -> A) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), start }
    }

    pub(crate) async fn ask(&self, key: u64) -> Result<u64> {
        let actor = {
            let mut shard = lock(&self.shards[usize::try_from(key % SHARDS)?]);
            shard.entry(key).or_insert_with(self.start).clone()
        };
        actor.ask(key).await
    }
}

/// Runs one contender.
///
/// # Errors
/// The first call that failed.
pub fn run(plan: &Plan) -> Result<Vec<Sample>> {
    let plan = plan.clone();
    runtime(plan.threads)?.block_on(async move {
        tokio::spawn(async move {
            let sample = match plan.contender {
                Contender::Inline => {
                    let actors = Arc::new(Actors::new(Inline::start));
                    first_calls(&plan, actors, |actors, key| async move { actors.ask(key).await })
                        .await
                }
                Contender::Mpsc => {
                    let actors = Arc::new(Actors::new(Mpsc::start));
                    first_calls(&plan, actors, |actors, key| async move { actors.ask(key).await })
                        .await
                }
                Contender::Emmer => {
                    let silo = Arc::new(silos::alone().await?);
                    let call = |silo: Arc<emmer::Silo>, key| async move {
                        Ok(silo.grain::<dyn Cell>(key).bump(key).await?)
                    };
                    first_calls(&plan, silo, call).await
                }
                Contender::EmmerStored => {
                    let silo = Arc::new(silos::alone().await?);
                    let call = |silo: Arc<emmer::Silo>, key| async move {
                        Ok(silo.grain::<dyn StoredCell>(key).bump(key).await?)
                    };
                    first_calls(&plan, silo, call).await
                }
            };
            Ok(vec![sample?])
        })
        .await?
    })
}

/// Every caller calls the grains of its own range, one after the other.
async fn first_calls<S, F>(
    plan: &Plan,
    system: S,
    call: impl Fn(S, u64) -> F + Copy + Send + Sync + 'static,
) -> Result<Sample>
where
    S: Clone + Send + Sync + 'static,
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let each = (plan.grains / CALLERS).max(1);
    let mut callers = JoinSet::new();
    // Not measured: the first activation of all.
    call(system.clone(), u64::MAX - 1).await?;
    let meter = Meter::start();
    for caller in 0..CALLERS {
        let system = system.clone();
        callers.spawn(async move {
            for key in caller * each..(caller + 1) * each {
                if call(system.clone(), key).await? != key + 1 {
                    return Err(crate::Error::from("a wrong answer"));
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    let took = meter.read();
    Ok(Sample::new(FIRST_CALL, plan.contender.name(), plan.threads, each * CALLERS).taking(took))
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let grains = settings.scaled(300_000, CALLERS);
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            for contender in
                [Contender::Inline, Contender::Mpsc, Contender::Emmer, Contender::EmmerStored]
            {
                let plan = Plan { contender, threads: *threads, grains };
                rounds
                    .add(contender.name(), || launcher.measure(&Job::run_of("activate", &plan)?))?;
            }
        }
    }
    Ok(rounds.compared(["mpsc", "inline"]))
}

/// The table with its goals.
pub fn report(compared: &Compared) -> Report {
    let title = "Cold activations with their first call, 64 callers (emmer-lab bench activate).";
    let mut report = compared.report("bench-activate", title);
    let emmer = Contender::Emmer.name();
    report.goals = vec![
        compared.goal_cpu(FIRST_CALL, 1, emmer, 1_500.0),
        compared.goal_cpu(FIRST_CALL, 2, emmer, 1_500.0),
    ];
    report.goals.retain(|goal| goal.reached.is_some());
    report
}
