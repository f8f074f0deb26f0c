//! A storm: 300,000 grains that were never called before are called at once, each by a task of its
//! own.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use emmer::placement::Strategy;
use emmer::{CallError, GrainFactory};
use emmer_report::Report;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::grains::{Cell, StoredCell};
use crate::job::{Calm, Job, Launcher, Serve, Server, What, runtime};
use crate::meter::Meter;
use crate::remote::{cpu_of, until_known};
use crate::report::{Compared, Rounds};
use crate::sample::{FENCE_SHUT, LATEST_PROBE, REFUSED, Sample, nanos};
use crate::{Result, Settings, silos};

/// The measurement.
const WHAT: &str = "activations at once";
/// No probe, nor the answer to one, may be later, in milliseconds.
const PROBE_MS_MAX: f64 = 200.0;
/// Number of silos of the cluster.
const SILOS: usize = 3;
/// Time for which a refused call waits before it is made again.
const AGAIN: Duration = Duration::from_millis(2);
/// Number of times a refused call is made again before the run fails.
const TRIES_MAX: u64 = 20_000;

/// Where the grains are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// On the calling silo.
    One,
    /// On three silo processes, the calling one among them.
    Three,
    /// On the calling silo, one of three: most of them are registered on another.
    Local,
    /// On three silo processes; each reads its state from a given store.
    Stored,
}

impl Contender {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "emmer, 1 silo",
            Self::Three => "emmer, 3 silos",
            Self::Local => "emmer, 3 silos, local",
            Self::Stored => "emmer, 3 silos, with state",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    contender: Contender,
    threads: usize,
    grains: u64,
    /// The URL of the store; none for a file.
    store: Option<String>,
}

/// Runs one contender.
///
/// # Errors
/// The first call that failed for another reason than too much work.
pub fn run(plan: &Plan, launcher: &Launcher) -> Result<Vec<Sample>> {
    let folder = tempfile::tempdir()?;
    let file = || format!("sqlite://{}", folder.path().join("cluster.db").display());
    let store = plan.store.clone().unwrap_or_else(file);
    let others = match plan.contender {
        Contender::One => 0,
        Contender::Three | Contender::Local | Contender::Stored => SILOS - 1,
    };
    let serve = Serve { threads: plan.threads, what: What::Silo(store.clone()) };
    let started: Result<Vec<Server>> = (0..others).map(|_| launcher.serve(serve.clone())).collect();
    let mut servers = started?;
    let plan = plan.clone();
    runtime(plan.threads)?.block_on(async move {
        let mut builder = silos::hosting(silos::builder(store.as_str())?);
        if plan.contender == Contender::Local {
            builder = builder.default_placement(Strategy::PreferLocal);
        }
        let silo = builder.start().await?;
        until_known(&silo, others + 1).await?;
        let sample = strike(&plan, &silo.grains(), &mut servers).await?;
        let mut calm = Calm::of(&silo);
        for server in &mut servers {
            calm = calm.or_worse(server.usage()?.calm);
        }
        silo.abort();
        let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
        Ok(vec![sample.with(FENCE_SHUT, ms(calm.fence_shut)).with(LATEST_PROBE, ms(calm.probe))])
    })
}

async fn strike(plan: &Plan, grains: &GrainFactory, servers: &mut [Server]) -> Result<Sample> {
    // Connections are made before the storm.
    for key in 0..64 {
        grains.grain::<dyn Cell>(u64::MAX - key).bump(0).await?;
    }
    let refused = Arc::new(AtomicU64::new(0));
    let (served, meter) = (cpu_of(servers)?, Meter::start());
    tokio::spawn(call_all(grains.clone(), plan.clone(), refused.clone())).await??;
    let (wall, cpu) = meter.read();
    let served = cpu_of(servers)?.saturating_sub(served);
    let refused = u32::try_from(refused.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
    let mut sample = Sample::new(WHAT, plan.contender.name(), plan.threads, plan.grains)
        .taking((wall, cpu + served))
        .with(REFUSED, f64::from(refused));
    sample.server_cpu_ns = nanos(served);
    Ok(sample)
}

/// Calls each grain once, in a task of its own. It runs in a task itself: the thread of the test
/// would be woken for every call that ends.
async fn call_all(grains: GrainFactory, plan: Plan, refused: Arc<AtomicU64>) -> Result<()> {
    let mut calls = JoinSet::new();
    for key in 0..plan.grains {
        let refused = refused.clone();
        if plan.contender == Contender::Stored {
            let grain = grains.grain::<dyn StoredCell>(key);
            calls.spawn(async move { call(key, &refused, || grain.bump(key)).await });
        } else {
            let grain = grains.grain::<dyn Cell>(key);
            calls.spawn(async move { call(key, &refused, || grain.bump(key)).await });
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended??;
    }
    Ok(())
}

/// Calls one grain, again while it is refused.
async fn call<F: IntoFuture<Output = std::result::Result<u64, CallError<Infallible>>>>(
    key: u64,
    refused: &AtomicU64,
    bump: impl Fn() -> F,
) -> Result<()> {
    for _ in 0..TRIES_MAX {
        match bump().await {
            Ok(answer) if answer == key + 1 => return Ok(()),
            Ok(_) => return Err(crate::Error::from("a wrong answer")),
            Err(CallError::Overloaded { .. }) => {
                refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err("refused again and again".into())
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let grains = settings.scaled(300_000, 100);
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            for contender in [Contender::One, Contender::Three, Contender::Local] {
                let plan = Plan { contender, threads: *threads, grains, store: None };
                rounds.add(contender.name(), || launcher.measure(&Job::run_of("storm", &plan)?))?;
            }
        }
    }
    Ok(rounds.compared(["emmer, 1 silo", "emmer, 1 silo"]))
}

/// Runs the grains with state on the store of a URL.
///
/// # Errors
/// The first run that failed.
pub fn measure_on(
    store: &str,
    settings: &Settings,
    launcher: &Launcher,
    say: &dyn Fn(&str),
) -> Result<Compared> {
    let (grains, contender) = (settings.scaled(300_000, 100), Contender::Stored);
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            let store = Some(store.to_owned());
            let plan = Plan { contender, threads: *threads, grains, store };
            rounds.add(contender.name(), || launcher.measure(&Job::run_of("storm", &plan)?))?;
        }
    }
    Ok(rounds.compared([contender.name(), contender.name()]))
}

/// The table.
pub fn report(compared: &Compared) -> Report {
    let title = "Grains called for the first time, all at once, a task for each call (emmer-lab bench storm).";
    let mut report = compared.report("bench-storm", title);
    let (one, three) = (Contender::One.name(), Contender::Three.name());
    let local = Contender::Local.name();
    report.goals.push(compared.goal_cpu(WHAT, 2, three, 8_000.0));
    report.goals.push(compared.goal_times(WHAT, 2, three, one, 1.5));
    for silos in [three, local, Contender::Stored.name()] {
        report.goals.push(compared.goal_worst(WHAT, silos, FENCE_SHUT, 0.0));
        report.goals.push(compared.goal_worst(WHAT, silos, LATEST_PROBE, PROBE_MS_MAX));
    }
    report.goals.retain(|goal| goal.reached.is_some());
    report
}
