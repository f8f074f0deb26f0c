//! Calls between two processes on loopback, with bodies of 100 bytes both ways.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use emmer_report::Report;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::drive::{Exchange, Exchanging};
use crate::floors::mux::Mux;
use crate::floors::servers;
use crate::floors::tight::Tight;
use crate::grains::{Echo, EchoRef};
use crate::job::{self, Job, Launcher, Ready, Serve, Served, Server, What, runtime};
use crate::meter::Meter;
use crate::report::{Compared, Rounds};
use crate::sample::{Sample, nanos};
use crate::{Result, Settings, silos};

/// The bytes of a body.
const BODY: usize = 100;
/// Number of grains that are called.
const GRAINS: u64 = 16;
/// Time for which callers run before anything is counted.
const WARM: Duration = Duration::from_millis(300);
/// A window is kept open at most this long until a first call was counted.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// Interval of the checks until a cluster is complete.
const LOOK: Duration = Duration::from_millis(5);
/// Time that it may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of callers.
pub const CALLERS: [usize; 3] = [1, 64, 1_024];

/// Implementation that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Contender {
    /// The floor with a oneshot for each call.
    Mux,
    /// Multiplexed connections with an actor behind them.
    MuxActor,
    /// The floor without channels.
    Tight,
    /// Multiplexed connections with a turn of a grain behind them.
    Turn,
    /// Emmer: a client outside the cluster calls grains through the gateway of the silo that has
    /// them.
    EmmerClient,
    /// Emmer: a silo calls grains on another silo.
    EmmerSilo,
    /// Emmer over TLS.
    EmmerTls,
}

impl Contender {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Mux,
        Self::MuxActor,
        Self::Tight,
        Self::Turn,
        Self::EmmerClient,
        Self::EmmerSilo,
        Self::EmmerTls,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mux => "floor-mux",
            Self::MuxActor => "floor-actor",
            Self::Tight => "tight",
            Self::Turn => "turn",
            Self::EmmerClient => "emmer, client to silo",
            Self::EmmerSilo => "emmer, silo to silo",
            Self::EmmerTls => "emmer, silo to silo, TLS",
        }
    }

    fn served(self, store: &str, folder: &Path) -> What {
        match self {
            Self::Mux | Self::Tight => What::Floor(Served::Echo),
            Self::MuxActor => What::Floor(Served::Actors),
            Self::Turn => What::Floor(Served::Turns),
            Self::EmmerClient | Self::EmmerSilo => What::Silo(store.to_owned()),
            Self::EmmerTls => What::SecuredSilo(store.to_owned(), folder.to_owned()),
        }
    }
}

/// One contender's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Implementation that is called.
    pub contender: Contender,
    /// Threads of either process.
    pub threads: usize,
    /// Numbers of callers, one after the other.
    pub callers: Vec<usize>,
    /// Time for which each is measured.
    pub time: Duration,
}

impl Plan {
    /// For callers that are measured like those of this scenario.
    pub(crate) const fn quiet(threads: usize, time: Duration) -> Self {
        Self { contender: Contender::EmmerSilo, threads, callers: Vec::new(), time }
    }
}

/// Serves until `stop` fires.
///
/// # Errors
/// What went wrong before it was ready.
pub fn serve(serve: &Serve, ready: Ready, stop: oneshot::Receiver<()>) -> Result<()> {
    runtime(serve.threads)?.block_on(async {
        match &serve.what {
            What::Floor(served) => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
                ready(listener.local_addr()?.to_string());
                let serving = tokio::spawn(servers::accept(listener, *served));
                // Dropped or fired, both mean the end.
                let _ = stop.await;
                serving.abort();
            }
            What::Silo(store) | What::SecuredSilo(store, _) => {
                let mut builder = silos::builder(store.as_str())?.gateway("127.0.0.1:0");
                if let What::SecuredSilo(_, folder) = &serve.what {
                    builder = builder.tls(silos::tls(folder));
                }
                let silo = Arc::new(silos::hosting(builder).start().await?);
                let told = silo.clone();
                job::tell_calm(move || job::Calm::of(&told));
                ready(silo.address().to_string());
                let _ = stop.await;
                silo.abort();
            }
        }
        Ok(())
    })
}

impl Exchange for EchoRef {
    async fn exchange(&self, body: &Bytes, _: u64) -> Result<usize> {
        Ok(self.echo(body.clone()).await?.len())
    }
}

/// Runs one contender: starts its server, then the callers.
///
/// # Errors
/// The first call that failed.
pub fn run(plan: &Plan, launcher: &Launcher) -> Result<Vec<Sample>> {
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite://{}", folder.path().join("cluster.db").display());
    if plan.contender == Contender::EmmerTls {
        silos::make_certificates(folder.path())?;
    }
    let what = plan.contender.served(&store, folder.path());
    let server = launcher.serve(Serve { threads: plan.threads, what })?;
    let runtime = runtime(plan.threads)?;
    runtime.block_on(with_callers(plan, &mut [server], &store, folder.path()))
}

async fn with_callers(
    plan: &Plan,
    servers: &mut [Server; 1],
    store: &str,
    folder: &Path,
) -> Result<Vec<Sample>> {
    let (address, name) = (servers[0].address.clone(), plan.contender.name());
    let mut samples = Vec::new();
    match plan.contender {
        Contender::Mux | Contender::MuxActor => {
            for callers in &plan.callers {
                let mux = Mux::connect(&address).await?;
                samples.push(exchange(plan, name, vec![mux; *callers], servers).await?);
            }
        }
        Contender::Tight | Contender::Turn => {
            for callers in &plan.callers {
                let tight = Tight::connect(&address).await?;
                samples.push(exchange(plan, name, vec![tight; *callers], servers).await?);
            }
        }
        Contender::EmmerClient => {
            let client = silos::client(store).await?;
            for callers in &plan.callers {
                let refs =
                    (0..*callers as u64).map(|caller| client.grain::<dyn Echo>(caller % GRAINS));
                samples.push(exchange(plan, name, refs.collect(), servers).await?);
            }
            client.close().await;
        }
        Contender::EmmerSilo | Contender::EmmerTls => {
            let mut builder = silos::builder(store)?;
            if plan.contender == Contender::EmmerTls {
                builder = builder.tls(silos::tls(folder));
            }
            let silo = silos::hosting(builder).start().await?;
            until_known(&silo, 2).await?;
            let there = grains_of(&silo, &address).await?;
            for callers in &plan.callers {
                let refs = (0..*callers).map(|caller| there[caller % there.len()].clone());
                samples.push(exchange(plan, name, refs.collect(), servers).await?);
            }
            silo.abort();
        }
    }
    Ok(samples)
}

/// Some grains that were placed on the silo at `address`, by calling one after the other.
pub(crate) async fn grains_of(silo: &emmer::Silo, address: &str) -> Result<Vec<EchoRef>> {
    let mut there = Vec::new();
    for key in 0..GRAINS * 100 {
        let grain = silo.grain::<dyn Echo>(key);
        if grain.place().await? == address {
            there.push(grain);
        }
        if there.len() as u64 == GRAINS {
            return Ok(there);
        }
    }
    Err(format!("silo {address} is given no grains").into())
}

/// Waits until the silo sees a cluster of `silos`.
pub(crate) async fn until_known(silo: &emmer::Silo, silos: usize) -> Result<()> {
    let begun = Instant::now();
    while silo.view().active_count() < silos {
        if begun.elapsed() > PATIENCE {
            return Err("the silos do not find each other".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Lets the callers run, one on each of `targets`, and measures them and the servers.
pub(crate) async fn exchange<E: Exchange>(
    plan: &Plan,
    name: &str,
    targets: Vec<E>,
    servers: &mut [Server],
) -> Result<Sample> {
    let callers = targets.len();
    let body = Bytes::from(vec![7u8; BODY]);
    // Everything that the first call makes is made before the callers start together.
    for target in targets.iter().take(usize::try_from(GRAINS)?) {
        target.exchange(&body, 0).await?;
    }
    let exchanging = Exchanging::start(targets, BODY);
    tokio::time::sleep(WARM.min(plan.time)).await;
    let (served, meter) = (cpu_of(servers)?, Meter::start());
    exchanging.record(true);
    tokio::time::sleep(plan.time).await;
    exchanging.counted(FIRST_ANSWER).await;
    exchanging.record(false);
    let (wall, cpu) = meter.read();
    let served = cpu_of(servers)?.saturating_sub(served);
    let latency = exchanging.stop().await?;
    let what = match callers {
        1 => "1 caller".to_owned(),
        1_024 => "1,024 callers".to_owned(),
        other => format!("{other} callers"),
    };
    let mut sample = Sample::new(&what, name, plan.threads, latency.count());
    sample = sample.taking((wall, cpu + served));
    sample.server_cpu_ns = nanos(served);
    sample.latency = latency.quantiles();
    Ok(sample)
}

/// The processor time of all of them so far.
pub(crate) fn cpu_of(servers: &mut [Server]) -> Result<Duration> {
    servers.iter_mut().map(|server| Ok(server.usage()?.cpu)).sum()
}

/// Runs every contender in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let time = Duration::from_millis(settings.scaled(1_500, 20));
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for threads in &settings.threads {
            for contender in Contender::ALL {
                let plan = Plan { contender, threads: *threads, callers: CALLERS.to_vec(), time };
                rounds
                    .add(contender.name(), || launcher.measure(&Job::run_of("remote", &plan)?))?;
            }
        }
    }
    Ok(rounds.compared(["floor-mux", "tight"]))
}

/// The table with its goals.
pub fn report(compared: &Compared) -> Report {
    let title =
        "Calls between two processes on loopback, bodies of 100 bytes (emmer-lab bench remote).";
    let mut report = compared.report("bench-remote", title);
    for contender in [Contender::EmmerSilo, Contender::EmmerClient] {
        let emmer = contender.name();
        for callers in ["64 callers", "1,024 callers"] {
            report.goals.push(compared.goal_times(callers, 2, emmer, "floor-mux", 0.4));
            report.goals.push(compared.goal_times(callers, 2, emmer, "tight", 1.5));
        }
        report.goals.push(compared.goal_times("1 caller", 2, emmer, "floor-mux", 1.0));
        report.goals.push(compared.goal_p50("1 caller", 2, emmer, "floor-mux", 1.0));
        // Twice the calls in a second.
        report.goals.push(compared.goal_wall_times("1,024 callers", 2, emmer, "floor-mux", 0.5));
    }
    for (callers, at_most) in [("64 callers", 1.5), ("1,024 callers", 1.3)] {
        let (plain, tls) = (Contender::EmmerSilo.name(), Contender::EmmerTls.name());
        report.goals.push(compared.goal_times(callers, 2, tls, plain, at_most));
    }
    report.goals.retain(|goal| goal.reached.is_some());
    report
}
