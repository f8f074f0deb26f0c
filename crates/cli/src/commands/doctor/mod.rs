//! `emmer doctor`: what a system store is, what it would lose, how fast it answers, and whether it
//! does what a cluster needs.

mod json;
mod text;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use emmer::store::checkup::{self, Checkup, Trouble};
use emmer::store::{Examination, FindingLevel, StoreLimits};

use super::output::write_out;
use super::{now_us, runtime, store};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use emmer::config::{ConfigArgs, Settings};

/// The flags of `emmer doctor`.
#[derive(clap::Args)]
pub struct Args {
    /// The system store to look at, as in postgres://user@host/database
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// End with exit code 9 for warnings, too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
}

/// Everything found.
struct Diagnosis {
    /// The store without credentials.
    store: String,
    connected: Duration,
    limits: StoreLimits,
    examination: Examination,
    checkup: Checkup,
}

impl Diagnosis {
    /// The worst that was found; none when nothing was.
    fn worst(&self) -> Option<FindingLevel> {
        self.examination.findings.iter().map(|finding| finding.level).max()
    }

    /// Why a cluster should not be run on it, if it should not.
    fn unfit(&self, strict: bool) -> Option<Failure> {
        if let Some(trouble) = self.checkup.trouble() {
            let code = match trouble {
                Trouble::Store(_) => Code::Store,
                Trouble::Wrong(_) => Code::Unfit,
            };
            return Some(Failure::new(code, format!("the self-check failed: {trouble}")));
        }
        let from = if strict { FindingLevel::Warning } else { FindingLevel::Problem };
        let bad = self.examination.findings.iter().filter(|finding| finding.level >= from).count();
        (self.worst() >= Some(from)).then(|| {
            Failure::new(Code::Unfit, format!("{}: {bad} findings, listed above", self.store))
        })
    }
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let flags = vec![("store", args.store, "--store"), ("log", log, "--log")];
    let settings = Settings::of_process(&args.config, flags)?;
    // What a store warns of is among the findings.
    logging::start_at(&settings, "error")?;
    let url = settings.required("store", "--store")?.text.clone();
    let runtime = runtime()?;
    let found = runtime.block_on(diagnose(&url));
    runtime.shutdown_background();
    let found = found?;
    match args.format {
        Format::Text => write_out(&text::text(&found))?,
        Format::Json => write_out(&json::document(&found, args.strict)?)?,
    }
    found.unfit(args.strict).map_or(Ok(()), Err)
}

async fn diagnose(url: &str) -> Result<Diagnosis> {
    let begun = Instant::now();
    let store = store::open_to_check(url).await?;
    let connected = begun.elapsed();
    let examination = store.examine().await.map_err(Failure::store)?;
    let other = store::open_to_check(url).await?;
    let checkup = checkup::run(&store, &other, now_us()).await;
    let limits = store.limits();
    Ok(Diagnosis { store: store.describe(), connected, limits, examination, checkup })
}
