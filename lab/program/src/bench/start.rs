//! Many silos of one process start together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;
use emmer::Silo;
use emmer::options::SiloOptions;
use emmer::store::SiloTable;
use emmer::tables::ClusterId;
use emmer_report::{Cell, Goal, Report};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use super::spread;
use super::stage::{PATIENCE, Stage};
use crate::grains::{Probe, ProbeGrain};
use emmer_cli::exit::{Failure, Result};

/// Interval at which the silos' views are compared.
const LOOK: Duration = Duration::from_millis(5);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of silos
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = RangedU64ValueParser::<usize>::new().range(1..=2_000))]
    silos: usize,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    rounds: usize,
}

/// One round.
struct Round {
    all_active: Duration,
    one_version: Duration,
    cpu: Duration,
    versions: u64,
}

pub(super) async fn measure(args: &Args, stage: &Stage) -> Result<Report> {
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let cluster = format!("{}-{number}", stage.cluster);
        let round =
            one(args.silos, &ClusterId::new(&cluster).map_err(Failure::other)?, stage).await?;
        stage.say(&format!(
            "round {number}: one version everywhere after {:.2} s, {:.2} CPU-s",
            round.one_version.as_secs_f64(),
            round.cpu.as_secs_f64()
        ));
        rounds.push(round);
    }
    let times: Vec<Duration> = rounds.iter().map(|round| round.one_version).collect();
    let title = format!(
        "{} silos in one process started together on {}, profile {}: all on one version after {}\n\
         For comparison: 100 silos of the original, run by us on two cores with PostgreSQL: 60 s, \
         83 CPU-s, 200 versions",
        args.silos,
        stage.kind(),
        stage.profile,
        spread(&times)
    );
    let columns = [
        "round",
        "silos",
        "start() returned for all, s",
        "one version everywhere, s",
        "CPU s",
        "versions",
    ];
    let mut report = Report::new("bench-membership-start", title, &columns);
    let seconds = |time: Duration| Cell::Number(time.as_secs_f64(), 2);
    for (number, round) in rounds.iter().enumerate() {
        report.push(vec![
            (number + 1).into(),
            args.silos.into(),
            seconds(round.all_active),
            seconds(round.one_version),
            seconds(round.cpu),
            round.versions.into(),
        ]);
    }
    if args.silos <= 100 {
        let worst =
            |of: fn(&Round) -> Duration| rounds.iter().map(of).max().map(|time| time.as_secs_f64());
        report.goals.push(Goal::at_most(
            "worst round: one version everywhere, s",
            worst(|r| r.one_version),
            5.0,
        ));
        report.goals.push(Goal::at_most("worst round: CPU s", worst(|r| r.cpu), 10.0));
    }
    Ok(report)
}

async fn one(count: usize, cluster: &ClusterId, stage: &Stage) -> Result<Round> {
    let (begun, cpu_before) = (Instant::now(), cpu());
    let mut starting = JoinSet::new();
    for _ in 0..count {
        let mut options = SiloOptions::default();
        options.cluster_id = cluster.clone();
        options.membership = stage.membership.clone();
        let silo = Silo::builder()
            .options(options)
            .store(stage.store.clone())
            .host::<dyn Probe, ProbeGrain>();
        starting.spawn(silo.on_terminate(|_| {}).start());
    }
    let mut silos = Vec::new();
    while let Some(started) = starting.join_next().await {
        silos.push(started.map_err(Failure::other)?.map_err(Failure::other)?);
    }
    let all_active = begun.elapsed();
    while !agree(&silos) {
        if begun.elapsed() > PATIENCE {
            return Err(Failure::other(format!("{count} silos do not agree after {PATIENCE:?}")));
        }
        tokio::time::sleep(LOOK).await;
    }
    let (one_version, cpu) = (begun.elapsed(), cpu().saturating_sub(cpu_before));
    let table = SiloTable::new(stage.store.clone(), cluster.clone());
    let versions = table.read_version().await.map_err(Failure::store)?.number;
    end(silos).await;
    Ok(Round { all_active, one_version, cpu, versions })
}

/// Returns true if every silo has the same view, with all of them Active.
fn agree(silos: &[Silo]) -> bool {
    let views: Vec<_> = silos.iter().map(Silo::view).collect();
    views
        .iter()
        .all(|view| view.version() == views[0].version() && view.active_count() == silos.len())
}

/// Everybody leaves in haste: their ports and tasks must not burden the next round.
async fn end(silos: Vec<Silo>) {
    let mut leaving = JoinSet::new();
    for silo in silos {
        let silo = Arc::new(silo);
        leaving.spawn(async move {
            // A silo that is not done by then is ended.
            let _ = tokio::time::timeout(Duration::from_secs(10), silo.stop_now()).await;
            silo.abort();
        });
    }
    while leaving.join_next().await.is_some() {}
}

/// The processor time of this process, all threads, user and system.
fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let secs = u64::try_from(used.tv_sec).unwrap_or(0);
    Duration::from_secs(secs) + Duration::from_nanos(u64::try_from(used.tv_nsec).unwrap_or(0))
}
