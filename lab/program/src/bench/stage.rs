//! Where a measurement takes place: a store, a cluster of its own, a folder for logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer::membership;
use emmer::store::{SiloTable, SystemStore};
use emmer::tables::{ClusterId, SiloAddress, SiloEntry, SiloStatus};
#[cfg(feature = "postgres")]
use emmer_test_servers::PostgresServer;
use tempfile::TempDir;

use super::Common;
use emmer_cli::commands::store;
use emmer_cli::exit::{Failure, Result};
use emmer_cli::text;

/// Time that anything quick may take, with many processes on few cores.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Interval at which the table is read while something is waited for that is not measured.
const POLL: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Stage {
    pub(super) url: String,
    pub(super) store: Arc<dyn SystemStore>,
    pub(super) cluster: ClusterId,
    pub(super) table: SiloTable,
    pub(super) profile: String,
    pub(super) membership: membership::Config,
    dir: TempDir,
    keep: bool,
    started: Instant,
    #[cfg(feature = "postgres")]
    pub(super) server: Option<PostgresServer>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.keep {
            self.dir.disable_cleanup(true);
        }
    }
}

impl Stage {
    /// Opens the store, or starts its server.
    pub(super) async fn set(common: &Common, membership: membership::Config) -> Result<Self> {
        let dir =
            tempfile::Builder::new().prefix("emmer-bench-").tempdir().map_err(Failure::other)?;
        #[cfg(feature = "postgres")]
        let server = if common.own_postgres { Some(own_postgres().await?) } else { None };
        #[cfg(feature = "postgres")]
        // A few connections for each of many silos.
        let own_url =
            server.as_ref().map(|server| format!("{}?pool_max=4", server.url_of("postgres")));
        #[cfg(not(feature = "postgres"))]
        let own_url = if common.own_postgres {
            return Err(Failure::usage("--own-postgres needs a build with --features postgres"));
        } else {
            None
        };
        let url = common.store.clone().or(own_url);
        let url =
            url.unwrap_or_else(|| format!("sqlite://{}", dir.path().join("cluster.db").display()));
        let store = store::open(&url).await?;
        // Unlike any other run's, should the store be used again.
        let cluster =
            format!("bench-{}-{}", std::process::id(), emmer_cli::process::now_us() / 1_000);
        let cluster = ClusterId::new(&cluster).map_err(Failure::other)?;
        let table = SiloTable::new(store.clone(), cluster.clone());
        table.ensure().await.map_err(Failure::store)?;
        let profile = common.profile.clone();
        let started = Instant::now();
        Ok(Self {
            url,
            store,
            cluster,
            table,
            profile,
            membership,
            dir,
            keep: false,
            started,
            #[cfg(feature = "postgres")]
            server,
        })
    }

    /// The folder for logs.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Leaves the folder behind.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.keep = true;
        self.dir.path().to_owned()
    }

    /// The store, without credentials.
    pub(super) fn kind(&self) -> &str {
        self.url.split_once("://").map_or("store", |(scheme, _)| scheme)
    }

    /// One line on stderr, with the time since the start.
    pub(super) fn say(&self, line: &str) {
        let at = self.started.elapsed();
        eprintln!("{:>4}.{:03}s  {line}", at.as_secs(), at.subsec_millis());
    }

    /// Reads the table again and again until `look` finds something in it.
    pub(super) async fn wait_table<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&[SiloEntry]) -> Option<T>,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            // A store that does not answer is asked again.
            if let Ok((_, silos)) = self.table.read_all().await
                && let Some(found) = look(&silos)
            {
                return Ok(found);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::other(format!("{what}: not within {}", text::span(PATIENCE))));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Reads one row every `period` until it is Dead; how long that took since `since`.
    pub(super) async fn wait_dead(
        &self,
        silo: &SiloAddress,
        since: Instant,
        period: Duration,
    ) -> Result<Duration> {
        loop {
            let row = self.table.read_silo(silo).await.map_err(Failure::store)?;
            let after = since.elapsed();
            match row {
                Some(row) if row.status == SiloStatus::Dead => return Ok(after),
                Some(_) if after <= PATIENCE => tokio::time::sleep(period).await,
                Some(_) => {
                    let late = format!(
                        "silo {silo} was not declared dead within {}",
                        text::span(PATIENCE)
                    );
                    return Err(Failure::other(late));
                }
                None => return Err(Failure::other(format!("silo {silo} has no row"))),
            }
        }
    }
}

#[cfg(feature = "postgres")]
async fn own_postgres() -> Result<PostgresServer> {
    let started =
        tokio::task::spawn_blocking(PostgresServer::start).await.map_err(Failure::other)?;
    started.map_err(Failure::store)
}
