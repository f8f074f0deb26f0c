//! `emmer history`: who joined, left and died, who suspected whom, and on what evidence.

use std::fmt::Write;
use std::time::Duration;

use emmer::store::{HistoryTable, Recorded};
use serde::Serialize;

use super::super::output::show;
use super::{Common, Place, parse_span};
use crate::exit::Result;
use crate::process::now;
use crate::text;

/// The flags of `emmer history`.
#[derive(clap::Args)]
pub struct Args {
    /// Length of the time to look back
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = parse_since)]
    since: Duration,
    /// Only what happened to one silo, by its name or address
    #[arg(long, value_name = "SILO")]
    silo: Option<String>,
    #[command(flatten)]
    common: Common,
}

fn parse_since(text: &str) -> std::result::Result<Duration, String> {
    parse_span(text, 10_000)
}

pub(crate) fn run(args: Args, log: Option<String>) -> Result<()> {
    let Args { since, silo, common } = args;
    let (place, format, mut found) = super::read(common, log, |store, cluster| async move {
        HistoryTable::new(store, cluster).read().await
    })?;
    let from = now() - since;
    found.retain(|one| {
        let is_silo = silo.as_ref().is_none_or(|silo| **silo == *one.name || **silo == *one.silo);
        one.at >= from && is_silo
    });
    found.sort_by_key(|one| (one.version, one.number));
    show(format, || table(&place, &found), &Document::of(&place, &found))
}

fn table(place: &Place, found: &[Recorded]) -> String {
    let Place { cluster, store } = place;
    let many = text::grouped(found.len() as u64);
    let mut out = format!("cluster {cluster} in {store}: {many} changes, oldest first\n");
    if found.is_empty() {
        return out;
    }
    let header = ["TIME", "VERSION", "CHANGE", "NAME", "SILO", "WRITTEN BY"];
    let rows = found.iter().map(|one| {
        vec![
            one.at.to_string(),
            one.version.to_string(),
            one.change.to_string(),
            one.name.to_string(),
            one.silo.to_string(),
            one.writer.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect();
    out.push('\n');
    for (at, line) in text::columns(&rows).into_iter().enumerate() {
        let _ = writeln!(out, "{line}");
        let evidence = at.checked_sub(1).and_then(|at| found.get(at)).map(|one| &one.evidence);
        for line in evidence.into_iter().flatten() {
            let _ = writeln!(out, "    {line}");
        }
    }
    out
}

#[derive(Serialize)]
struct Document {
    cluster_id: String,
    store: String,
    changes: Vec<One>,
}

#[derive(Serialize)]
struct One {
    time: String,
    version: u64,
    change: String,
    name: String,
    address: String,
    host_name: String,
    written_by: String,
    evidence: Vec<String>,
}

impl Document {
    fn of(place: &Place, found: &[Recorded]) -> Self {
        let one = |one: &Recorded| One {
            time: one.at.to_string(),
            version: one.version,
            change: one.change.to_string(),
            name: one.name.to_string(),
            address: one.silo.to_string(),
            host_name: one.host.to_string(),
            written_by: one.writer.to_string(),
            evidence: one.evidence.iter().map(ToString::to_string).collect(),
        };
        Self {
            cluster_id: place.cluster.to_string(),
            store: place.store.clone(),
            changes: found.iter().map(one).collect(),
        }
    }
}
