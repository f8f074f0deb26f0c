//! `emmer demo`: a year of flights on a real cluster that loses a silo half way, checked to the
//! last minute of delay.
//!
//! | module | subject |
//! |---|---|
//! | `input` | the file, read and checked before anything is started |
//! | `children` | the silo processes, none of which outlives the demo |
//! | `watch` | the membership table, watched while all this happens |
//! | `play` | the replay, the kill, the replacement |
//! | `verify` | every grain's totals against the file's |
//! | `report` | what is printed at the end |
//! | `shares` | which silo has how many grains, as bars |
//! | `console` | the cluster in a browser meanwhile, where that is asked for |
//! | `screen` | lines, and the bar on a terminal |

mod children;
#[cfg(feature = "console")]
mod console;
mod input;
mod play;
mod report;
mod screen;
mod shares;
mod verify;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use emmer::Client;
use emmer::options::{ClientBuilder, ClientOptions};
use emmer::placement::Strategy;
use emmer::store::SystemStore;
use emmer::tables::ClusterId;

use self::children::Cluster;
use self::screen::Screen;
use self::watch::Watcher;
use super::store;
use crate::exit::{Code, Failure, Result};
use crate::process::{now_us, runtime};
use crate::{logging, text};
use emmer::config::{ConfigArgs, Settings};

/// The cluster's name where the store is the demo's own, and the beginning of its name elsewhere.
const CLUSTER: &str = "demo";

/// Longest time for anything that should take a moment: a silo to join, a death to be declared.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most silos of a demo.
const SILOS_MAX: usize = 16;

/// The flags of `emmer demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of silos to start
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(2..=16))]
    silos: usize,
    /// Replay only the first ROWS departures
    #[arg(long, value_name = "ROWS", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    quick: Option<usize>,
    /// Drain one silo half way, and stop it in good order, instead of killing it
    #[arg(long)]
    drain: bool,
    /// Decides which silo is killed or drained
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the directory with the store and the silos' logs
    #[arg(long)]
    keep: bool,
    /// Departures to replay, as CSV, compressed with gzip or not [default: all of 2013 from New
    /// York]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The system store [default: a SQLite file in a temporary folder]; the demo is a cluster of
    /// its own in it
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The silos' membership options: default, classic, fast, orleans-2026
    #[arg(long, default_value = "default")]
    profile: String,
    /// Placement of grains: random, prefer_local, hash_based, activation_count or
    /// resource_optimized
    #[arg(long, value_name = "NAME", default_value = "random")]
    placement: String,
    /// Encrypt the connections between silos, and to them (TLS): with certificates that are made
    /// for this run
    #[arg(long)]
    tls: bool,
    /// Show the cluster in a browser meanwhile, and keep the silos until Enter
    #[cfg(feature = "console")]
    #[arg(long)]
    console: bool,
}

impl Args {
    #[cfg(feature = "tls")]
    fn certs(&self, dir: &Path, cluster: &str) -> Result<Option<PathBuf>> {
        let folder = dir.join("certs");
        let made = || super::certs::both(&folder, cluster).map(|()| folder.clone());
        self.tls.then(made).transpose()
    }

    #[cfg(not(feature = "tls"))]
    fn certs(&self, _: &Path, _: &str) -> Result<Option<PathBuf>> {
        if self.tls {
            let why = "--tls: this program was built without TLS: build it with --features tls";
            return Err(Failure::usage(why));
        }
        Ok(None)
    }
}

pub(super) fn run(args: &Args, log: Option<String>) -> Result<()> {
    let flags = vec![
        ("log", log, "--log"),
        ("membership.profile", Some(args.profile.clone()), "--profile"),
        ("placement", Some(args.placement.clone()), "--placement"),
    ];
    let settings = Settings::of_process(&ConfigArgs::default(), flags)?;
    logging::start(&settings)?;
    settings.membership()?;
    let placement = settings.placement()?;
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        tokio::select! {
            done = perform(args, placement) => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::new(Code::Interrupted, "interrupted; every \
                silo was ended")),
        }
    });
    runtime.shutdown_background();
    done
}

async fn perform(args: &Args, placement: Strategy) -> Result<()> {
    let input = input::load(args.data.as_deref(), args.quick)?;
    let screen = Screen::new(input.streams.deliveries());
    screen.line(&format!(
        "{} departures to {} airports and {} aircraft: {} deliveries",
        text::grouped(input.streams.departures().len() as u64),
        text::grouped(input.truth.airports.len() as u64),
        text::grouped(input.truth.aircraft.len() as u64),
        text::grouped(input.streams.deliveries()),
    ));
    let dir = tempfile::Builder::new().prefix("emmer-demo-").tempdir().map_err(Failure::other)?;
    screen.line(&format!("logs in {}", dir.path().display()));
    let done = on_cluster(args, placement, &input, &screen, dir.path()).await;
    screen.finish();
    if args.keep || done.as_ref().is_err_and(|failure| failure.code != Code::Interrupted) {
        let kept = dir.keep();
        screen.line(&format!("kept {}", kept.display()));
    }
    done
}

async fn on_cluster(
    args: &Args,
    placement: Strategy,
    input: &input::Input,
    screen: &Screen,
    dir: &Path,
) -> Result<()> {
    let (url, name) = match &args.store {
        // A cluster id of this run alone, so that grains of earlier runs do not count.
        Some(url) => {
            (url.clone(), format!("{CLUSTER}-{}-{}", std::process::id(), now_us() / 1_000))
        }
        None => (format!("sqlite://{}", dir.join("cluster.db").display()), CLUSTER.to_owned()),
    };
    let store = store::open(&url).await?;
    screen.line(&format!("cluster {name} in {}", store.describe()));
    let cluster_id = ClusterId::new(&name).map_err(Failure::other)?;
    let watcher = Watcher::start(store.clone(), cluster_id.clone(), screen.clone()).await?;
    let certs = args.certs(dir, &name)?;
    if certs.is_some() {
        screen.line("connections are encrypted, and checked by certificates of this run (TLS)");
    }
    let mut cluster = Cluster::new(
        dir.to_owned(),
        url,
        name,
        args.profile.clone(),
        placement.clone(),
        certs.clone(),
    );
    for _ in 0..args.silos {
        cluster.start()?;
    }
    for name in cluster.names() {
        cluster.wait_active(&name, &watcher).await?;
    }
    let connect = || connect(store.clone(), cluster_id.clone(), certs.as_deref());
    #[cfg(feature = "console")]
    let shown = if args.console {
        Some(console::Shown::begin(connect().await?, screen).await?)
    } else {
        None
    };
    let client = connect().await?;
    let told = play::Play { seed: args.seed, drains: args.drain, placement: placement.clone() };
    let played = play::play(input, &client, &mut cluster, &watcher, screen, &told).await?;
    screen.finish();
    let verdict = verify::verify(&input.streams, &Arc::new(client.clone())).await?;
    client.close().await;
    let client = connect().await?;
    let shares = shares::of(&client, &watcher).await;
    client.close().await;
    #[cfg(feature = "console")]
    if let Some(shown) = shown {
        shown.until_enter(screen).await;
    }
    let stopped = cluster.stop().await;
    watcher.refresh().await;
    report::print(screen, input, &played, &verdict, &watcher.history(), &told);
    for line in shares::chart(&placement, &shares) {
        screen.line(&line);
    }
    stopped?;
    let differing = verdict.differing(&input.truth);
    if differing.is_empty() {
        return Ok(());
    }
    let count = differing.len();
    let some: Vec<_> = differing.into_iter().take(5).collect();
    let message = format!("{count} grains do not hold the file's totals: {}", some.join("; "));
    Err(Failure::new(Code::Mismatch, message))
}

async fn connect(
    store: Arc<dyn SystemStore>,
    cluster: ClusterId,
    certs: Option<&Path>,
) -> Result<Client> {
    let mut options = ClientOptions::default();
    // It asks each silo for its counts.
    options.gateways_max = SILOS_MAX;
    let client = Client::builder().options(options).store(store).cluster_id(cluster);
    let connected = secured(client, certs).connect().await;
    connected.map_err(|error| Failure::other(format!("the client cannot connect: {error}")))
}

#[cfg(feature = "tls")]
fn secured(client: ClientBuilder, certs: Option<&Path>) -> ClientBuilder {
    let Some(folder) = certs else { return client };
    let [authority, certificate, key] =
        ["authority.pem", "client.pem", "client.key"].map(|file| folder.join(file));
    client.tls(emmer::tls::Tls::new(authority, certificate, key))
}

#[cfg(not(feature = "tls"))]
fn secured(client: ClientBuilder, _: Option<&Path>) -> ClientBuilder {
    client
}
