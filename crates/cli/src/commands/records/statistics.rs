//! `emmer statistics`: what silos have counted, report by report.

use std::fmt::Write;
use std::time::Duration;

use emmer::store::{Reported, StatisticsKind, StatisticsTable};
use serde::Serialize;

use super::super::output::show;
use super::{Common, Place, parse_span};
use crate::exit::Result;
use crate::process::now;
use crate::text;

/// The flags of `emmer statistics`.
#[derive(clap::Args)]
pub struct Args {
    /// Only those of one silo, by its name or address
    #[arg(long, value_name = "SILO")]
    silo: Option<String>,
    /// Only statistics whose name has this part, as in emmer_calls_total
    #[arg(long, value_name = "PART")]
    name: Option<String>,
    /// Length of the time to look back, at most 31d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_since)]
    since: Duration,
    /// Show those of clients, not of silos
    #[arg(long)]
    clients: bool,
    #[command(flatten)]
    common: Common,
}

/// Each hour is a read of its own.
fn parse_since(text: &str) -> std::result::Result<Duration, String> {
    parse_span(text, 31)
}

pub(crate) fn run(args: Args, log: Option<String>) -> Result<()> {
    let Args { silo, name, since, clients, common } = args;
    let kind = if clients { StatisticsKind::Clients } else { StatisticsKind::Silos };
    let (place, format, mut found) = super::read(common, log, |store, cluster| async move {
        let until = now();
        StatisticsTable::new(store, cluster, kind).between(until - since, until).await
    })?;
    found.retain(|one| {
        let is_silo = silo
            .as_ref()
            .is_none_or(|silo| **silo == *one.source.name || **silo == *one.source.address);
        is_silo && name.as_ref().is_none_or(|part| one.statistic.name.contains(part.as_str()))
    });
    show(format, || table(&place, &found), &Document::of(&place, &found))
}

fn table(place: &Place, found: &[Reported]) -> String {
    let Place { cluster, store } = place;
    let many = text::grouped(found.len() as u64);
    let mut out = format!("cluster {cluster} in {store}: {many} values, newest first\n");
    let header = ["TIME", "SILO", "STATISTIC", "VALUE"].map(str::to_owned).to_vec();
    let rows = found.iter().map(|one| {
        let Reported { source, statistic } = one;
        let sign = if statistic.is_delta { "+" } else { "" };
        vec![
            source.at.to_string(),
            source.name.to_string(),
            statistic.name.to_string(),
            format!("{sign}{}", statistic.value),
        ]
    });
    if !found.is_empty() {
        out.push('\n');
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        for line in text::columns(&rows) {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

#[derive(Serialize)]
struct Document {
    cluster_id: String,
    store: String,
    statistics: Vec<One>,
}

#[derive(Serialize)]
struct One {
    time: String,
    address: String,
    name: String,
    host_name: String,
    statistic: String,
    value: String,
    is_delta: bool,
}

impl Document {
    fn of(place: &Place, found: &[Reported]) -> Self {
        let one = |Reported { source, statistic }: &Reported| One {
            time: source.at.to_string(),
            address: source.address.to_string(),
            name: source.name.to_string(),
            host_name: source.host.to_string(),
            statistic: statistic.name.to_string(),
            value: statistic.value.to_string(),
            is_delta: statistic.is_delta,
        };
        Self {
            cluster_id: place.cluster.to_string(),
            store: place.store.clone(),
            statistics: found.iter().map(one).collect(),
        }
    }
}
