//! The records of silos in the store: `emmer metrics`, `emmer statistics`, `emmer history`.
//! They read the tables only, so they work while no silo runs.

pub mod history;
pub mod metrics;
pub mod statistics;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use emmer::membership::humantime;
use emmer::store::{StoreError, StoreErrorKind, SystemStore};
use emmer::tables::ClusterId;

use super::output::Format;
use super::store;
use crate::exit::{Failure, Result};
use crate::process::runtime;

/// The flags of all three.
#[derive(clap::Args)]
pub struct Common {
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A table for people, or one JSON document (docs/records.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The cluster and the store that a command reads.
struct Place {
    cluster: ClusterId,
    store: String,
}

/// Reads something of a cluster's store; nothing where no silo ever wrote it.
fn read<T: Default, F: Future<Output = std::result::Result<T, StoreError>>>(
    common: Common,
    log: Option<String>,
    read: impl FnOnce(Arc<dyn SystemStore>, ClusterId) -> F,
) -> Result<(Place, Format, T)> {
    let settings = common.cluster.settle(log)?;
    let url = settings.required("store", "--store")?.text.clone();
    let cluster = settings.cluster()?;
    runtime()?.block_on(async {
        let opened = store::open_existing(&url).await?;
        store::check_cluster(&opened, &cluster).await?;
        let place = Place { cluster: cluster.clone(), store: opened.describe() };
        match read(opened, cluster).await {
            Ok(found) => Ok((place, common.format, found)),
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                Ok((place, common.format, T::default()))
            }
            Err(error) => Err(Failure::store(error)),
        }
    })
}

/// A span of at most `days_max` days, as flags have it: `1h`, `90s`.
fn parse_span(text: &str, days_max: u64) -> std::result::Result<Duration, String> {
    let span = humantime::parse(text).map_err(|error| error.to_string())?;
    if span > Duration::from_secs(days_max * 86_400) {
        return Err(format!("{text} is too long: at most {days_max}d"));
    }
    Ok(span)
}
