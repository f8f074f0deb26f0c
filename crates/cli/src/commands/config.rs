//! `emmer config`: the settings of a silo as they hold, and where each comes from.

use emmer::config::{Effective, SiloFlags};
use serde::Serialize;

use super::output::{Format, show};
use crate::exit::Result;
use crate::text::columns;

/// The flags of `emmer config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    silo: SiloFlags,
    /// Show only settings that are not the default
    #[arg(long)]
    changed: bool,
    /// The form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Document {
    settings: Vec<Setting>,
    /// The mistakes that keep a silo from starting.
    mistakes: Vec<String>,
}

#[derive(Serialize)]
struct Setting {
    key: String,
    value: Option<String>,
    source: String,
}

pub(super) fn run(args: Args) -> Result<()> {
    let settings = args.silo.settings(Vec::new())?;
    let setting = |Effective { key, value, place }: Effective| {
        let source = place.map_or_else(|| "default".to_owned(), |place| place.to_string());
        Setting { key, value, source }
    };
    let all = settings.effective()?.into_iter();
    let all = all.filter(|one| !args.changed || one.place.is_some()).map(setting).collect();
    let options = settings.silo_options();
    let mistakes = options.map_or_else(|error| error.mistakes().to_vec(), |_| Vec::new());
    let document = Document { settings: all, mistakes };
    show(args.format, || table(&document), &document)
}

fn table(document: &Document) -> String {
    let head = ["setting", "value", "from"].map(str::to_owned).to_vec();
    let row = |one: &Setting| {
        vec![
            one.key.clone(),
            one.value.clone().unwrap_or_else(|| "-".to_owned()),
            one.source.clone(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(document.settings.iter().map(row)).collect();
    let mut text: String = columns(&rows).into_iter().map(|line| line + "\n").collect();
    for mistake in &document.mistakes {
        text.push_str(&format!("\na silo does not start so: {mistake}"));
    }
    if !document.mistakes.is_empty() {
        text.push('\n');
    }
    text
}
