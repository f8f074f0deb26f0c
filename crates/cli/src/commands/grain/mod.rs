//! `emmer grain`: one grain, wherever it is: what runs there, who waits, its states and reminders.

mod name;
mod table;

use emmer::admin::GrainLook;
use emmer::console::GrainDocument;

pub(super) use self::name::{GrainArgs, find};
use super::output::{Format, show};
use super::reach::{ReachArgs, failed};
use crate::exit::Result;
use crate::process::runtime;

/// The flags of `emmer grain`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    grain: GrainArgs,
    #[command(flatten)]
    reach: ReachArgs,
    /// A page for people, or one JSON document (docs/admin.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// A grain as a page for people.
#[cfg(feature = "top")]
pub(super) fn page(look: &GrainLook) -> String {
    table::print(&GrainDocument::of(look, look.silo.to_string()))
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let way = args.reach.settle(log)?;
    runtime()?.block_on(async {
        let reached = way.reach().await?;
        let (grain, _) = find(&reached, &args.grain).await?;
        let look: GrainLook = reached.admin.grain(grain).await.map_err(failed)?;
        reached.client.close().await;
        let document = GrainDocument::of(&look, reached.name_of(&look.silo));
        show(args.format, || table::print(&document), &document)
    })
}
