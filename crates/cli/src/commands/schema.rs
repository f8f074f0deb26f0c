//! `emmer schema`: the script that makes the tables, for administrators who let no application make
//! tables.

use super::output::write_out;
use crate::exit::{Failure, Result};
use emmer::config::{ConfigArgs, Settings};

/// The flags of `emmer schema`.
#[derive(clap::Args)]
pub struct Args {
    /// The system store, as in postgres://host/database; nothing is connected to
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let flags = vec![("store", args.store, "--store"), ("log", log, "--log")];
    let settings = Settings::of_process(&args.config, flags)?;
    let entry = settings.required("store", "--store")?;
    match emmer::store::schema(&entry.text).map_err(Failure::usage)? {
        Some(script) => write_out(&script),
        None => {
            let scheme = entry.text.split("://").next().unwrap_or_default();
            let why = "they need none: the first silo makes missing tables, as the store's page \
                       says";
            Err(Failure::usage(format!("there is no script for {scheme}:// stores: {why}")))
        }
    }
}
