//! Costs of the directory: of the machine by itself, and of a call by a silo that does not know yet
//! where the grain is.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use emmer::tables::{GrainId, SiloAddress, SiloStatus};
use emmer_core::{GrainTypeId, Instant};
use emmer_directory::{Config, Directory, Effect, Outcome, Token};
use emmer_report::Report;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::grains::{Echo, EchoRef};
use crate::job::{Job, Launcher, Serve, What, runtime};
use crate::meter::Meter;
use crate::remote::{cpu_of, until_known};
use crate::report::{Compared, Rounds};
use crate::sample::{Sample, nanos};
use crate::{Result, Settings, silos};

/// Number of callers that share the work between processes.
const CALLERS: usize = 64;

/// Implementation that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// The floor: a plain map.
    Map,
    /// The machine of the only silo, which owns everything.
    Machine,
    /// Two silos: grains that a client's calls have placed are called by a silo that never heard of
    /// them.
    Silos,
}

impl Contender {
    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Machine => "directory",
            Self::Silos => "emmer, 2 silos",
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    contender: Contender,
    grains: u64,
}

/// The address of silo `number` in made-up clusters.
pub(crate) fn silo_address(number: usize) -> SiloAddress {
    let port = u16::try_from(1_000 + number % 60_000).unwrap_or(1);
    let host = u8::try_from(number / 60_000).unwrap_or(u8::MAX);
    SiloAddress::new(SocketAddr::from(([10, 0, host, 1], port)), 1)
}

/// The identities of `count` grains.
pub(crate) fn grain_ids(count: u64) -> Vec<GrainId> {
    let grain_type = GrainTypeId::of("bench-cell");
    (0..count).map(|key| GrainId::new(grain_type, key)).collect()
}

/// The directory of the only silo of a cluster.
pub fn sole_owner() -> (Directory, Instant) {
    let (me, now) = (silo_address(0), Instant::from_millis(1));
    let mut directory = Directory::new(me, Config::default(), now);
    directory.handle_view(now, 1, &[(me, SiloStatus::Active)], &[]);
    while let Some(effect) = directory.poll_effect() {
        // It first asks itself for its activations: none.
        if let Effect::ReportLocal { report, .. } = effect {
            directory.handle_local_report(now, report, Vec::new());
        }
    }
    (directory, now)
}

/// Runs one contender.
///
/// # Errors
/// A wrong outcome, or the first call that failed.
pub fn run(plan: &Plan, launcher: &Launcher) -> Result<Vec<Sample>> {
    match plan.contender {
        Contender::Map => map(plan),
        Contender::Machine => machine(plan),
        Contender::Silos => two_silos(plan, launcher),
    }
}

fn map(plan: &Plan) -> Result<Vec<Sample>> {
    let (ids, silo) = (grain_ids(plan.grains), silo_address(0));
    let mut map = HashMap::new();
    let mut samples = Vec::new();
    let meter = Meter::start();
    for (number, id) in (0..).zip(&ids) {
        map.insert(id.clone(), (silo, number as u64));
    }
    samples.push(sample(plan, "register").taking(meter.read()));
    let meter = Meter::start();
    for id in &ids {
        black_box(map.get(id).ok_or("not found")?);
    }
    samples.push(sample(plan, "look up").taking(meter.read()));
    let meter = Meter::start();
    for id in &ids {
        map.remove(id).ok_or("not found")?;
    }
    samples.push(sample(plan, "unregister").taking(meter.read()));
    Ok(samples)
}

fn machine(plan: &Plan) -> Result<Vec<Sample>> {
    let ids = grain_ids(plan.grains);
    let (mut directory, now) = sole_owner();
    let mut samples = Vec::new();
    let meter = Meter::start();
    for (number, id) in (1..).zip(&ids) {
        if !matches!(directory.register(now, Token(number), id, number), Some(Outcome::Registered))
        {
            return Err("not registered".into());
        }
    }
    samples.push(sample(plan, "register").taking(meter.read()));
    let meter = Meter::start();
    for (number, id) in (1..).zip(&ids) {
        if directory.lookup(now, Token(number), id).is_none() {
            return Err("not found".into());
        }
    }
    samples.push(sample(plan, "look up").taking(meter.read()));
    let meter = Meter::start();
    for (number, id) in (1..).zip(&ids) {
        directory.unregister(now, None, id, number);
    }
    samples.push(sample(plan, "unregister").taking(meter.read()));
    if directory.entries_count() > 0 {
        return Err("registrations were left".into());
    }
    Ok(samples)
}

fn sample(plan: &Plan, what: &str) -> Sample {
    Sample::new(what, plan.contender.name(), 1, plan.grains)
}

fn two_silos(plan: &Plan, launcher: &Launcher) -> Result<Vec<Sample>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    let server = launcher.serve(Serve { threads: 2, what: What::Silo(store.clone()) })?;
    let mut servers = [server];
    let plan = plan.clone();
    runtime(2)?.block_on(async move {
        let silo = silos::hosting(silos::builder(store.as_str())?).start().await?;
        until_known(&silo, 2).await?;
        // Only the serving silo is a gateway: the calls place grains on both silos, and this one
        // does not see those that go there.
        let client = silos::client(store.as_str()).await?;
        call_all(&client.grains(), plan.grains).await?;
        let mut samples = Vec::new();
        for what in ["call, place unknown", "call, place known"] {
            let (served, meter) = (cpu_of(&mut servers)?, Meter::start());
            call_all(&silo.grains(), plan.grains).await?;
            let (wall, cpu) = meter.read();
            let served = cpu_of(&mut servers)?.saturating_sub(served);
            let mut sample = Sample::new(what, plan.contender.name(), 2, plan.grains)
                .taking((wall, cpu + served));
            sample.server_cpu_ns = nanos(served);
            samples.push(sample);
        }
        client.close().await;
        silo.abort();
        Ok(samples)
    })
}

/// Calls every grain once, 64 at a time.
async fn call_all(grains: &emmer::GrainFactory, count: u64) -> Result<()> {
    let refs: Arc<Vec<EchoRef>> =
        Arc::new((0..count).map(|key| grains.grain::<dyn Echo>(key)).collect());
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let refs = refs.clone();
        callers.spawn(async move {
            for grain in refs.iter().skip(caller).step_by(CALLERS) {
                grain.echo(Bytes::new()).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for (contender, grains) in
            [(Contender::Map, 200_000), (Contender::Machine, 200_000), (Contender::Silos, 50_000)]
        {
            let plan = Plan { contender, grains: settings.scaled(grains, 100) };
            rounds.add(contender.name(), || launcher.measure(&Job::run_of("directory", &plan)?))?;
        }
    }
    Ok(rounds.compared(["map", "map"]))
}

/// The table.
pub fn report(compared: &Compared) -> Report {
    let title = "The directory: the machine beside a plain map, and calls between silos (emmer \
        bench directory).";
    compared.report("bench-directory", title)
}
