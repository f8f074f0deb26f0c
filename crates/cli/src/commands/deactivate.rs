//! `emmer deactivate`: ends the activation of a grain, also one whose turn hangs.

use std::fmt::Write;
use std::time::Duration;

use emmer::admin::{Deactivated, Question};
use serde::Serialize;

use super::grain::{GrainArgs, find};
use super::output::{Format, show};
use super::reach::{ReachArgs, failed};
use crate::exit::{Failure, Result};
use crate::process::runtime;
use crate::text::{self, plain};

/// The flags of `emmer deactivate`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    grain: GrainArgs,
    /// Drops turns that have not ended within the time: their callers get an error, the others'
    /// calls run on a new activation
    #[arg(long)]
    drop_turns: bool,
    /// Time for the turns to end, at most a minute
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = super::duty::duration)]
    within: Duration,
    /// The reason, for the log and the history
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,
    #[command(flatten)]
    reach: ReachArgs,
    /// Lines for people, or one JSON document (docs/admin.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Document {
    grain_type: String,
    key: String,
    #[serde(flatten)]
    outcome: Deactivated,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let because = super::duty::because(args.because.as_deref())?;
    let way = args.reach.settle(log)?;
    let within_ms = u64::try_from(args.within.as_millis()).unwrap_or(u64::MAX);
    runtime()?.block_on(async {
        let reached = way.reach().await?;
        let (grain, _) = find(&reached, &args.grain).await?;
        let (drop_turns, because) = (args.drop_turns, Some(because));
        let order = Question::Deactivate { grain: grain.clone(), drop_turns, within_ms, because };
        let outcome = reached.admin.deactivate(&order).await.map_err(failed)?;
        reached.client.close().await;
        let document =
            Document { grain_type: grain.grain_type, key: grain.key.to_string(), outcome };
        show(args.format, || lines(&document), &document)?;
        match document.outcome.left {
            0 => Ok(()),
            left => Err(Failure::other(format!(
                "{left} activations have not ended; they do once their turns do{}",
                if drop_turns { "" } else { ", or with --drop-turns" }
            ))),
        }
    })
}

fn lines(document: &Document) -> String {
    let Document { grain_type, key, outcome } = document;
    let title = format!("{grain_type}/{}", plain(key));
    let Deactivated { silo, ended, dropped, left, turns, threads, .. } = outcome;
    if *ended == 0 && *left == 0 {
        return format!("{title} was not active\n");
    }
    let mut out = format!("{title} on silo {silo}: {ended} ended");
    if *dropped > 0 {
        let _ = write!(out, ", {dropped} turns dropped");
    }
    if *left > 0 {
        let _ = write!(out, ", {left} left");
    }
    out.push('\n');
    let span = |ms: u64| text::span(Duration::from_millis(ms));
    for turn in turns {
        let _ = writeln!(out, "  {} has run for {}", turn.method, span(turn.age_ms));
    }
    for held in threads {
        let (method, held_for, thread) = (&held.method, span(held.held_ms), plain(&held.thread));
        let _ =
            writeln!(out, "  {method} has held thread {thread} for {held_for}, without an await");
    }
    out
}
