//! Calls in a cluster of three silo processes: 64 and 1,024 callers, each call to one of 1,000
//! grains at random, so that two of three calls go to another silo than the caller's or its
//! gateway's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use emmer_report::Report;
use serde::{Deserialize, Serialize};

use crate::drive::{Dice, Exchange};
use crate::grains::{Echo, EchoRef};
use crate::job::{Job, Launcher, Serve, Server, What, runtime};
use crate::remote::{self, exchange, until_known};
use crate::report::{Compared, Rounds};
use crate::sample::Sample;
use crate::{Result, Settings, silos};

/// Number of silos.
const SILOS: usize = 3;
/// Number of grains that are called.
const GRAINS: u64 = 1_000;
/// Number of callers.
const CALLERS: [usize; 2] = [64, 1_024];

/// Implementation that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// A client outside, through the gateways of all three.
    Client,
    /// One of the three silos.
    Silo,
}

impl Contender {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "emmer, client to 3 silos",
            Self::Silo => "emmer, one of 3 silos",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    contender: Contender,
    threads: usize,
    time: Duration,
}

/// Grains of which each call chooses one.
#[derive(Clone)]
struct Anyone(Arc<Vec<EchoRef>>);

impl Exchange for Anyone {
    async fn exchange(&self, body: &Bytes, call: u64) -> Result<usize> {
        let chosen = Dice::of(call).below(self.0.len());
        Ok(self.0[chosen].echo(body.clone()).await?.len())
    }
}

/// Runs one contender: starts the silos, then the callers.
///
/// # Errors
/// The first call that failed.
pub fn run(plan: &Plan, launcher: &Launcher) -> Result<Vec<Sample>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    let others = match plan.contender {
        Contender::Client => SILOS,
        Contender::Silo => SILOS - 1,
    };
    let serve = Serve { threads: plan.threads, what: What::Silo(store.clone()) };
    let started: Result<Vec<Server>> = (0..others).map(|_| launcher.serve(serve.clone())).collect();
    let mut servers = started?;
    runtime(plan.threads)?.block_on(async {
        match plan.contender {
            Contender::Client => {
                let client = silos::client(store.as_str()).await?;
                let refs = (0..GRAINS).map(|key| client.grain::<dyn Echo>(key)).collect();
                let samples = measured(plan, refs, &mut servers).await;
                client.close().await;
                samples
            }
            Contender::Silo => {
                let silo = silos::hosting(silos::builder(store.as_str())?).start().await?;
                until_known(&silo, SILOS).await?;
                let grains = silo.grains();
                let refs = (0..GRAINS).map(|key| grains.grain::<dyn Echo>(key)).collect();
                let samples = measured(plan, refs, &mut servers).await;
                silo.abort();
                samples
            }
        }
    })
}

async fn measured(plan: &Plan, refs: Vec<EchoRef>, servers: &mut [Server]) -> Result<Vec<Sample>> {
    let body = Bytes::new();
    for grain in &refs {
        // Activated, and found, before anything is measured.
        grain.echo(body.clone()).await?;
    }
    let anyone = Anyone(Arc::new(refs));
    let as_remote = remote::Plan::quiet(plan.threads, plan.time);
    let mut samples = Vec::new();
    for callers in CALLERS {
        let targets = vec![anyone.clone(); callers];
        samples.push(exchange(&as_remote, plan.contender.name(), targets, servers).await?);
    }
    Ok(samples)
}

/// Runs every contender in every round: the floors and two processes as in [`remote`], then three
/// silos.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let time = Duration::from_millis(settings.scaled(1_500, 20));
    let two = {
        use remote::Contender::{EmmerClient, EmmerSilo, Mux, Tight};
        [Mux, Tight, EmmerClient, EmmerSilo]
    };
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            for contender in two {
                let plan =
                    remote::Plan { contender, threads: *threads, callers: CALLERS.to_vec(), time };
                rounds
                    .add(contender.name(), || launcher.measure(&Job::run_of("remote", &plan)?))?;
            }
            for contender in [Contender::Client, Contender::Silo] {
                let plan = Plan { contender, threads: *threads, time };
                rounds
                    .add(contender.name(), || launcher.measure(&Job::run_of("cluster", &plan)?))?;
            }
        }
    }
    Ok(rounds.compared(["floor-mux", "tight"]))
}

/// The table.
pub fn report(compared: &Compared) -> Report {
    let title = "Calls in a cluster, bodies of 100 bytes; with 3 silos each call to one of 1,000 \
                 grains at random (emmer-lab bench cluster).";
    compared.report("bench-cluster", title)
}
