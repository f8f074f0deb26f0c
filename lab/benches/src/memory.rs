//! Weight of an idle grain: resident memory before and after a million were activated.

use std::sync::Arc;
use std::time::Duration;

use emmer_report::{Goal, Report};
use serde::{Deserialize, Serialize};

use crate::activate::Actors;
use crate::floors::local::{Inline, Mpsc};
use crate::grains::{Cell, StoredCell};
use crate::job::{Job, Launcher, runtime};
use crate::meter::{Meter, resident};
use crate::report::{Compared, Rounds};
use crate::sample::{BYTES_EACH, Sample, ratio};
use crate::{Result, Settings, silos};

/// Name of the measurement.
pub const IDLE: &str = "idle grains";
/// After how many activations others may run.
const BATCH: u64 = 256;
/// Time for which the silo is left alone before its memory is read.
const REST: Duration = Duration::from_millis(300);

/// Implementation that is weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// The floor `inline`, in a map.
    Inline,
    /// The floor `mpsc`, in a map.
    Mpsc,
    /// Emmer: an integer key, 16 bytes in memory.
    Emmer,
    /// Emmer: the same 16 bytes as state bound to the store.
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
    grains: u64,
}

/// Runs one contender. Only the numbers of a process that does nothing else mean anything.
///
/// # Errors
/// The first call that failed.
pub fn run(plan: &Plan) -> Result<Sample> {
    let plan = plan.clone();
    runtime(2)?.block_on(async move {
        tokio::spawn(async move {
            match plan.contender {
                Contender::Inline => {
                    let actors = Arc::new(Actors::new(Inline::start));
                    weigh(&plan, actors, |actors, key| async move { actors.ask(key).await }).await
                }
                Contender::Mpsc => {
                    let actors = Arc::new(Actors::new(Mpsc::start));
                    weigh(&plan, actors, |actors, key| async move { actors.ask(key).await }).await
                }
                Contender::Emmer => {
                    let call = |silo: Arc<emmer::Silo>, key| async move {
                        Ok(silo.grain::<dyn Cell>(key).bump(key).await?)
                    };
                    weigh(&plan, Arc::new(silos::alone().await?), call).await
                }
                Contender::EmmerStored => {
                    let call = |silo: Arc<emmer::Silo>, key| async move {
                        Ok(silo.grain::<dyn StoredCell>(key).bump(key).await?)
                    };
                    weigh(&plan, Arc::new(silos::alone().await?), call).await
                }
            }
        })
        .await?
    })
}

async fn weigh<S: Clone, F: Future<Output = Result<u64>>>(
    plan: &Plan,
    system: S,
    call: impl Fn(S, u64) -> F,
) -> Result<Sample> {
    // The parts that even one grain needs are there already: code pages, the first blocks of maps.
    call(system.clone(), u64::MAX - 1).await?;
    let before = resident()?;
    let meter = Meter::start();
    for key in 0..plan.grains {
        if call(system.clone(), key).await? != key + 1 {
            return Err("a wrong answer".into());
        }
        if key % BATCH == 0 {
            tokio::task::yield_now().await;
        }
    }
    let took = meter.read();
    tokio::time::sleep(REST).await;
    let each = ratio(resident()?.saturating_sub(before), plan.grains);
    Ok(Sample::new(IDLE, plan.contender.name(), 2, plan.grains).taking(took).with(BYTES_EACH, each))
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let grains = settings.scaled(1_000_000, 100);
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for contender in
            [Contender::Inline, Contender::Mpsc, Contender::Emmer, Contender::EmmerStored]
        {
            let plan = Plan { contender, grains };
            rounds.add(contender.name(), || launcher.measure(&Job::run_of("memory", &plan)?))?;
        }
    }
    Ok(rounds.compared(["mpsc", "inline"]))
}

/// The table with its goals.
pub fn report(compared: &Compared) -> Report {
    let title =
        "Resident memory of idle grains: integer key, 16 bytes of state (emmer-lab bench memory).";
    let mut report = compared.report("bench-memory", title);
    let of = |sample: &Sample| sample.more.get(BYTES_EACH).copied().unwrap_or(f64::INFINITY);
    let reached = compared.spread(IDLE, 2, Contender::Emmer.name(), of).map(|spread| spread.median);
    report.goals = vec![Goal::at_most("emmer, bytes for each idle grain", reached, 300.0)];
    report
}
