//! `emmer clusters`: the clusters in a store.

use std::sync::Arc;

use emmer::store::{SiloTable, StoreErrorKind, SystemStore, clusters};
use emmer::tables::{ClusterId, SiloStatus, Timestamp};
use serde::Serialize;

use super::output::{Format, show};
use super::store;
use crate::exit::{Failure, Result};
use crate::process::{now, runtime};
use crate::{logging, text};
use emmer::config::{ConfigArgs, Settings};

/// The flags of `emmer clusters`.
#[derive(clap::Args)]
pub struct Args {
    /// The system store, as in sqlite://cluster.db
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Maximum clusters to show, by name; each takes a read of its table
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// A table for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    config: ConfigArgs,
}

#[derive(Serialize)]
struct Document {
    store: String,
    /// The number of clusters in the store, listed or not.
    total: usize,
    clusters: Vec<Cluster>,
}

#[derive(Serialize)]
struct Cluster {
    cluster_id: String,
    version: u64,
    active: usize,
    joining_or_leaving: usize,
    dead: usize,
    /// The latest that a silo of it said, as RFC 3339.
    last_alive: Option<String>,
    first_seen: String,
    #[serde(skip)]
    last_alive_at: Option<Timestamp>,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let flags = vec![("store", args.store, "--store"), ("log", log, "--log")];
    let settings = Settings::of_process(&args.config, flags)?;
    logging::start(&settings)?;
    let url = settings.required("store", "--store")?.text.clone();
    let rows_max = settings.limits()?.membership_rows_max;
    runtime()?.block_on(async {
        let store = store::open_existing(&url).await?;
        let known = known(store.as_ref()).await?;
        let total = known.len();
        let mut found = Vec::new();
        for (id, first_seen) in known.into_iter().take(args.limit) {
            found.push(look(&store, id, first_seen, rows_max).await?);
        }
        let document = Document { store: store.describe(), total, clusters: found };
        show(args.format, || table(&document), &document)
    })
}

/// The clusters in the list of the store; none if the list was never made.
pub(super) async fn known(store: &dyn SystemStore) -> Result<Vec<(ClusterId, Timestamp)>> {
    match clusters(store).await {
        Ok(all) => Ok(all),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Failure::store(error)),
    }
}

async fn look(
    store: &Arc<dyn SystemStore>,
    id: ClusterId,
    first_seen: Timestamp,
    rows_max: usize,
) -> Result<Cluster> {
    let table = SiloTable::new(Arc::clone(store), id.clone()).with_rows_max(rows_max);
    let (version, silos) = table.read_all().await.map_err(Failure::store)?;
    let count = |status| silos.iter().filter(|silo| silo.status == status).count();
    let (active, dead) = (count(SiloStatus::Active), count(SiloStatus::Dead));
    let last = silos.iter().map(|silo| silo.i_am_alive_time).max();
    Ok(Cluster {
        cluster_id: id.to_string(),
        version: version.number,
        active,
        joining_or_leaving: silos.len() - active - dead,
        dead,
        last_alive: last.map(|at| at.to_string()),
        first_seen: first_seen.to_string(),
        last_alive_at: last,
    })
}

fn table(Document { store, total, clusters }: &Document) -> String {
    let many = match (total, clusters.len()) {
        (0, _) => "no cluster has kept a history".to_owned(),
        (1, 1) => "1 cluster".to_owned(),
        (total, shown) if shown < *total => {
            format!("{shown} of {total} clusters (--limit)")
        }
        (total, _) => format!("{total} clusters"),
    };
    let mut out = format!("{store}: {many}\n");
    if clusters.is_empty() {
        return out;
    }
    let now = now();
    let head = ["CLUSTER", "VERSION", "ACTIVE", "JOINING, LEAVING", "DEAD", "LAST I AM ALIVE"];
    let row = |one: &Cluster| {
        let age = |at: Timestamp| format!("{} ago", text::span(now.saturating_since(at)));
        vec![
            one.cluster_id.clone(),
            one.version.to_string(),
            one.active.to_string(),
            one.joining_or_leaving.to_string(),
            one.dead.to_string(),
            one.last_alive_at.map_or_else(|| "-".to_owned(), age),
        ]
    };
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(clusters.iter().map(row));
    out.push('\n');
    out.extend(text::columns(&rows.collect::<Vec<_>>()).into_iter().map(|line| line + "\n"));
    out
}
