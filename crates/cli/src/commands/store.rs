//! Opening the system store.

use std::sync::Arc;

use emmer::config::{ConfigArgs, Settings};
use emmer::store::{self, SiloTable, StoreErrorKind, SystemStore, Written};
use emmer::tables::{ClusterId, SiloEntry, TableVersion};

use crate::exit::{Code, Failure, Result};
use crate::logging;

/// The flags that name a service and the store that it writes to.
#[derive(clap::Args)]
pub(super) struct ServiceArgs {
    /// The system store that all silos of the cluster share, as in sqlite://cluster.db
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The cluster of the service, where the service has no name of its own
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// The service to look at; the cluster id when absent
    #[arg(long, value_name = "ID")]
    service_id: Option<String>,
}

impl ServiceArgs {
    /// Reads the settings of the process and starts its log. Returns the store's URL and the
    /// service.
    pub(super) fn settle(
        self,
        config: &ConfigArgs,
        log: Option<String>,
    ) -> Result<(String, ClusterId)> {
        let flags = vec![
            ("store", self.store, "--store"),
            ("cluster_id", self.cluster_id, "--cluster-id"),
            ("service_id", self.service_id, "--service-id"),
            ("log", log, "--log"),
        ];
        let settings = Settings::of_process(config, flags)?;
        logging::start(&settings)?;
        let url = settings.required("store", "--store")?.text.clone();
        let service = match settings.service()? {
            Some(service) => service,
            None => settings.cluster()?,
        };
        Ok((url, service))
    }
}

/// The flags that name a cluster and the store that its silos share.
#[derive(clap::Args)]
pub(super) struct ClusterArgs {
    /// The system store that all silos of the cluster share, as in sqlite://cluster.db
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The cluster
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

impl ClusterArgs {
    /// Reads the settings of the process and starts its log.
    pub(super) fn settle(self, log: Option<String>) -> Result<Settings> {
        let flags = vec![
            ("store", self.store, "--store"),
            ("cluster_id", self.cluster_id, "--cluster-id"),
            ("log", log, "--log"),
        ];
        let settings = Settings::of_process(&self.config, flags)?;
        logging::start(&settings)?;
        Ok(settings)
    }
}

/// Opens the store at `url`, and makes missing tables.
pub async fn open(url: &str) -> Result<Arc<dyn SystemStore>> {
    store::open(url).await.map_err(Failure::store)
}

/// Opens the store at `url` to look at it: a file that is missing is an error and stays missing,
/// because the likeliest reason is a typing mistake.
pub async fn open_existing(url: &str) -> Result<Arc<dyn SystemStore>> {
    if is_memory(url) {
        let why = "is the memory of one process, into which no other can look: give the store that \
            the silos share, as in sqlite://cluster.db";
        return Err(Failure::store(format!("memory:// {why}")));
    }
    store::open_to_read(url).await.map_err(|error| {
        let hint = match error.kind {
            StoreErrorKind::NotFound if is_file(url) => {
                "; this command only looks and makes nothing: is the path right?"
            }
            _ => "",
        };
        Failure::store(format!("{error}{hint}"))
    })
}

/// As [`open_existing`], for a command that writes: a URL with `mode=rwc` has the file made.
pub(super) async fn open_to_check(url: &str) -> Result<Arc<dyn SystemStore>> {
    if is_file(url) && url.contains("mode=rwc") {
        open(url).await
    } else {
        open_existing(url).await
    }
}

/// Returns true if the store is gone with this process.
pub fn is_memory(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("memory"))
}

/// The membership table of the cluster and store that the settings name, to look at it.
pub(super) async fn table(settings: &Settings) -> Result<SiloTable> {
    let url = &settings.required("store", "--store")?.text;
    let (cluster, limits) = (settings.cluster()?, settings.limits()?);
    let table = SiloTable::new(open_existing(url).await?, cluster);
    Ok(table.with_rows_max(limits.membership_rows_max))
}

/// The version and the rows of a table; none if no silo has ever used its store.
pub(super) async fn read_all(table: &SiloTable) -> Result<(TableVersion, Vec<SiloEntry>)> {
    match table.read_all().await {
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(Default::default()),
        read => read.map_err(Failure::store),
    }
}

/// The membership table that the settings name, and its rows. Refuses a cluster that never had a
/// silo.
pub(super) async fn table_and_rows(settings: &Settings) -> Result<(SiloTable, Vec<SiloEntry>)> {
    let table = table(settings).await?;
    let (version, silos) = read_all(&table).await?;
    check_version(table.store(), table.cluster(), &version).await?;
    Ok((table, silos))
}

/// Tells that an operator's change is in the table, and not in the history.
pub(super) fn tell_unrecorded(written: &Written) {
    if let Some(error) = &written.unrecorded {
        eprintln!("the table has the change, but the history does not: {error}");
    }
}

/// Refuses a cluster that never had a silo: the likeliest reason is a typing mistake.
pub(super) async fn check_cluster(store: &Arc<dyn SystemStore>, cluster: &ClusterId) -> Result<()> {
    let table = SiloTable::new(Arc::clone(store), cluster.clone());
    match table.read_version().await {
        Ok(version) => check_version(store, cluster, &version).await,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            check_version(store, cluster, &TableVersion::default()).await
        }
        Err(error) => Err(Failure::store(error)),
    }
}

/// As [`check_cluster`], for a version that was read.
pub(super) async fn check_version(
    store: &Arc<dyn SystemStore>,
    cluster: &ClusterId,
    version: &TableVersion,
) -> Result<()> {
    if version.number > 0 {
        return Ok(());
    }
    let known = super::clusters::known(store.as_ref()).await?;
    let known: Vec<_> = known.iter().take(20).map(|(id, _)| id.as_str()).collect();
    let hint = match known.as_slice() {
        [] => "no silo has ever joined it; is the name right?".to_owned(),
        known => format!("there is {}", known.join(", ")),
    };
    let why = format!("{} has no cluster {cluster}: {hint}", store.describe());
    Err(Failure::new(Code::NoCluster, why))
}

fn is_file(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("sqlite"))
}
