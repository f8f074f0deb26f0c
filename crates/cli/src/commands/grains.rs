//! `emmer grains`: how many grains of each type are on each silo, or a page of them.

use emmer::admin::{GrainRow, Question};
use emmer::console::merge_pages;
use emmer::tables::SiloAddress;
use serde::Serialize;

use super::named;
use super::output::{Format, show};
use super::reach::{ReachArgs, Reached, tell_silent};
use crate::exit::{Failure, Result};
use crate::process::runtime;
use crate::text::{self, plain};

/// The flags of `emmer grains`.
#[derive(clap::Args)]
pub struct Args {
    /// List the grains of this type; without it their numbers by type and silo
    #[arg(value_name = "TYPE")]
    grain_type: Option<String>,
    /// List the grains whose key has this text in it
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// List the grains that run a turn, or for which calls wait
    #[arg(long)]
    busy: bool,
    /// The grains of one silo alone: its ip:port:epoch, ip:port or name
    #[arg(long, value_name = "SILO")]
    silo: Option<String>,
    /// The length of a page
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// The page after this place: the last line of the page before says it
    #[arg(long, value_name = "PLACE", value_parser = place)]
    after: Option<u64>,
    #[command(flatten)]
    reach: ReachArgs,
    /// A table for people, or one JSON document (docs/admin.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn place(text: &str) -> std::result::Result<u64, String> {
    let place = (text.len() <= 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    place.ok_or_else(|| "expected a place as the page before shows it, up to 16 digits".to_owned())
}

#[derive(Serialize)]
struct Counts {
    types: Vec<Count>,
    /// The silos that have not answered.
    silent: Vec<String>,
}

#[derive(Serialize)]
struct Count {
    grain_type: String,
    silo: String,
    silo_name: String,
    activations: u64,
    busy: u64,
    /// Number of activations since the start of the silo.
    activated: u64,
    /// Number of activations that failed.
    failed: u64,
}

#[derive(Serialize)]
struct Page {
    grains: Vec<Row>,
    /// The place for `--after`; none if these are the last.
    next: Option<String>,
    /// The silos that have not answered.
    silent: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    grain_type: String,
    key: String,
    silo: String,
    silo_name: String,
    waiting: u32,
    is_running: bool,
    idle_ms: u64,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let Args { grain_type, key, busy, silo, limit, after, reach, format } = args;
    let way = reach.settle(log)?;
    runtime()?.block_on(async {
        let mut reached = way.reach().await?;
        if let Some(silo) = silo {
            let meant = named::find(&reached.members, &silo)?.address;
            reached.members.retain(|row| row.address == meant);
        }
        if grain_type.is_none() && key.is_none() && !busy && after.is_none() {
            let counts = count(&reached).await?;
            return show(format, || counts_table(&counts), &counts);
        }
        let question = Question::Grains { grain_type, key_has: key, busy, after, max: limit };
        let page = page(&reached, question, limit).await?;
        show(format, || page_table(&page), &page)
    })
}

async fn count(reached: &Reached) -> Result<Counts> {
    let asked = |admin: emmer::admin::Admin, silo| async move { admin.types(Some(silo)).await };
    let (answers, silent) = reached.ask_all(asked).await?;
    tell_silent(&silent);
    let mut types: Vec<Count> = answers
        .into_iter()
        .flat_map(|(silo, types)| types.into_iter().map(move |one| (silo, one)))
        .map(|(silo, one)| Count {
            silo: silo.to_string(),
            silo_name: reached.name_of(&silo),
            activations: one.activations,
            busy: one.busy,
            activated: one.activated,
            failed: one.failed,
            grain_type: one.grain_type,
        })
        .collect();
    types.sort_by(|a, b| (&a.grain_type, &a.silo_name).cmp(&(&b.grain_type, &b.silo_name)));
    let silent = silent.iter().map(|silent| silent.silo.to_string()).collect();
    Ok(Counts { types, silent })
}

/// The pages of all silos, merged by the places on the ring.
async fn page(reached: &Reached, question: Question, limit: u32) -> Result<Page> {
    let asked = |admin: emmer::admin::Admin, silo| {
        let question = question.clone();
        async move { admin.grains(Some(silo), &question).await }
    };
    let (answers, silent) = reached.ask_all(asked).await?;
    tell_silent(&silent);
    let limit = usize::try_from(limit).map_err(Failure::usage)?;
    let (rows, next) = merge_pages(answers, limit);
    let row = |(silo, row): (SiloAddress, GrainRow)| Row {
        grain_type: row.grain_type,
        key: row.key.to_string(),
        silo: silo.to_string(),
        silo_name: reached.name_of(&silo),
        waiting: row.waiting,
        is_running: row.is_running,
        idle_ms: row.idle_ms,
    };
    Ok(Page {
        grains: rows.into_iter().map(row).collect(),
        next: next.map(|next| format!("{next:016x}")),
        silent: silent.iter().map(|silent| silent.silo.to_string()).collect(),
    })
}

fn counts_table(counts: &Counts) -> String {
    let head = ["TYPE", "SILO", "ACTIVE", "BUSY", "ACTIVATED", "FAILED"];
    let row = |one: &Count| {
        let number = text::grouped;
        vec![
            one.grain_type.clone(),
            plain(&one.silo_name),
            number(one.activations),
            number(one.busy),
            number(one.activated),
            number(one.failed),
        ]
    };
    table(head.map(str::to_owned).to_vec(), counts.types.iter().map(row))
}

fn page_table(page: &Page) -> String {
    let head = ["TYPE", "KEY", "SILO", "WAITING", "TURN", "LAST CALL"];
    let row = |one: &Row| {
        let idle = text::span(std::time::Duration::from_millis(one.idle_ms));
        vec![
            one.grain_type.clone(),
            plain(&one.key),
            plain(&one.silo_name),
            one.waiting.to_string(),
            if one.is_running { "runs" } else { "-" }.to_owned(),
            format!("{idle} ago"),
        ]
    };
    let mut out = table(head.map(str::to_owned).to_vec(), page.grains.iter().map(row));
    if let Some(next) = &page.next {
        out += &format!("more: --after {next}\n");
    }
    out
}

fn table(head: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if rows.len() == 1 {
        return "no grains\n".to_owned();
    }
    text::columns(&rows).into_iter().map(|line| line + "\n").collect()
}
