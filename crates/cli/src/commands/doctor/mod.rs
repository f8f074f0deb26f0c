//! `emmer doctor`: the kind of a system store, what it would lose, its speed, and whether it does
//! what a cluster needs.

mod json;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use emmer::access::PortSecurity;
use emmer::store::checkup::{self, Checkup, Trouble};
use emmer::store::{
    Examination, Finding, FindingLevel, FindingSubject, SiloTable, StoreLimits, SystemStore,
};
use emmer::tables::{ClusterId, SiloAddress, SiloStatus};

use super::output::write_out;
use super::{ports, store};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::process::{now_us, runtime};
use emmer::config::{ConfigArgs, Settings};

/// The flags of `emmer doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// The system store to look at, as in postgres://user@host/database
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Look at the ports of this cluster's silos, too: are they encrypted?
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// End with exit code 9 for warnings, too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
}

/// Everything found.
struct Diagnosis {
    /// The store without credentials.
    store: String,
    connected: Duration,
    limits: StoreLimits,
    examination: Examination,
    checkup: Checkup,
    /// The Active silos of the cluster that was named, and their ports.
    silos: Vec<(SiloAddress, Option<PortSecurity>)>,
}

impl Diagnosis {
    /// The worst that was found; none when nothing was.
    fn worst(&self) -> Option<FindingLevel> {
        self.examination.findings.iter().map(|finding| finding.level).max()
    }

    /// Why a cluster should not be run on it, if it should not.
    fn unfit(&self, strict: bool) -> Option<Failure> {
        if let Some(trouble) = self.checkup.trouble() {
            let code = match trouble {
                Trouble::Store(_) => Code::Store,
                Trouble::Wrong(_) => Code::Unfit,
            };
            return Some(Failure::new(code, format!("the self-check failed: {trouble}")));
        }
        let from = if strict { FindingLevel::Warning } else { FindingLevel::Problem };
        let bad = self.examination.findings.iter().filter(|finding| finding.level >= from).count();
        (self.worst() >= Some(from)).then(|| {
            Failure::new(Code::Unfit, format!("{}: {bad} findings, listed above", self.store))
        })
    }
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let flags = vec![
        ("store", args.store, "--store"),
        ("cluster_id", args.cluster_id, "--cluster-id"),
        ("log", log, "--log"),
    ];
    let settings = Settings::of_process(&args.config, flags)?;
    let cluster = settings.get("cluster_id").map(|_| settings.cluster()).transpose()?;
    // Warnings of a store are among the findings.
    logging::start_at(&settings, "error")?;
    let url = settings.required("store", "--store")?.text.clone();
    let runtime = runtime()?;
    let found = runtime.block_on(diagnose(&url, cluster));
    runtime.shutdown_background();
    let found = found?;
    match args.format {
        Format::Text => write_out(&text::text(&found))?,
        Format::Json => write_out(&json::document(&found, args.strict)?)?,
    }
    found.unfit(args.strict).map_or(Ok(()), Err)
}

async fn diagnose(url: &str, cluster: Option<ClusterId>) -> Result<Diagnosis> {
    let begun = Instant::now();
    let store = store::open_to_check(url).await?;
    let connected = begun.elapsed();
    let mut examination = store.examine().await.map_err(Failure::store)?;
    let other = store::open_to_check(url).await?;
    let checkup = checkup::run(&store, &other, now_us()).await;
    let (limits, described) = (store.limits(), store.describe());
    let silos = match cluster {
        Some(cluster) => silos(store, cluster).await?,
        None => Vec::new(),
    };
    examination.findings.extend(open(&silos));
    examination.findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    Ok(Diagnosis { store: described, connected, limits, examination, checkup, silos })
}

/// The Active silos of a cluster, and how their ports are secured.
async fn silos(
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
) -> Result<Vec<(SiloAddress, Option<PortSecurity>)>> {
    let table = SiloTable::new(store, cluster.clone());
    let (_, mut silos) = table.read_all().await.map_err(Failure::store)?;
    silos.retain(|silo| silo.status == SiloStatus::Active);
    silos.sort_by_key(|silo| silo.address);
    let found = ports::look(&silos, &cluster).await;
    Ok(silos.iter().map(|silo| silo.address).zip(found).collect())
}

/// A warning, if ports accept plain connections from other hosts.
fn open(silos: &[(SiloAddress, Option<PortSecurity>)]) -> Option<Finding> {
    let is_open = |(silo, port): &&(SiloAddress, _)| {
        *port == Some(PortSecurity::Plain) && !silo.ip().to_canonical().is_loopback()
    };
    let open: Vec<_> = silos.iter().filter(is_open).collect();
    let (first, _) = open.first()?;
    let text = format!(
        "{} of {} silos, {first} the first, accept plain connections from other hosts: every \
         process that reaches them is believed. Set up TLS, or keep other processes out of their \
         network",
        open.len(),
        silos.len()
    );
    Some(Finding { level: FindingLevel::Warning, subject: FindingSubject::Security, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_ports_that_others_reach_are_a_warning() {
        let silo = |text: &str| text.parse::<SiloAddress>().unwrap();
        let (plain, encrypted) = (Some(PortSecurity::Plain), Some(PortSecurity::Encrypted));
        let own = [(silo("127.0.0.1:1:1"), plain), (silo("10.0.0.1:1:1"), encrypted)];
        assert_eq!(open(&own), None);
        let found = open(&[(silo("10.0.0.1:1:1"), None), (silo("10.0.0.2:1:1"), plain)]).unwrap();
        assert_eq!(found.level, FindingLevel::Warning);
        assert!(found.text.starts_with("1 of 2 silos, 10.0.0.2:1:1 the first"), "{}", found.text);
    }
}
