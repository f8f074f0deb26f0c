//! `emmer dead`: declares a silo dead on an operator's word.
//!
//! For a silo whose host is lost while too few silos are left to vote. Silos that take over its
//! grains wait as long as after a death with the least evidence (docs/at-most-one.md).

use std::io::IsTerminal as _;
use std::time::Duration;

use emmer::access::port_security;
use emmer::membership::Config;
use emmer::store::{Death, SiloTable, Written};
use emmer::tables::{SiloAddress, SiloEntry, SiloStatus};
use serde::Serialize;

use super::output::{Format, show};
use super::{named, store};
use crate::exit::{Code, Failure, Result};
use crate::process::{now, runtime};

/// Time in which the port of the silo has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// The flags of `emmer dead`.
#[derive(clap::Args)]
pub struct Args {
    /// The silo: ip:port:epoch, ip:port, or its name
    #[arg(value_name = "SILO")]
    silo: String,
    /// Evidence that the process of the silo has ended; written into the history of the membership
    #[arg(long, value_name = "TEXT")]
    because: String,
    /// Declares it dead although its row moves or its port answers
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A line for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Document {
    store: String,
    cluster_id: String,
    silo: String,
    /// The version of the table in which it is dead.
    version: u64,
    /// True if this command wrote its death.
    changed: bool,
    evidence: Vec<String>,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let reason = args.because.trim();
    if reason.is_empty() || reason.len() > REASON_BYTES_MAX || reason.contains(char::is_control) {
        return Err(Failure::usage(format!(
            "--because: expected one line of text, at most {REASON_BYTES_MAX} bytes, that says how \
             you know that the process of the silo has ended"
        )));
    }
    let settings = args.cluster.settle(log)?;
    runtime()?.block_on(async {
        let (table, silos) = store::table_and_rows(&settings).await?;
        let row = named::find(&silos, &args.silo)?;
        let silo = row.address;
        let mut evidence = vec![format!("an operator: {reason}")];
        if row.status != SiloStatus::Dead {
            let signs = signs_of_life(&table, row, &silos).await?;
            if !signs.is_empty() && !args.force {
                let signs = signs.join(", and ");
                let hint = "nothing was written; end its process, or say --force";
                return Err(Failure::other(format!("{silo} seems to be alive: {signs}: {hint}")));
            }
            evidence.extend(signs.into_iter().map(|sign| format!("in spite of: {sign}")));
        }
        let Written { version, is_new, .. } = declare(&table, silo, &evidence).await?;
        let document = Document {
            store: table.store().describe(),
            cluster_id: table.cluster().to_string(),
            silo: silo.to_string(),
            version: version.number,
            changed: is_new,
            evidence,
        };
        show(args.format, || line(&document), &document)
    })
}

fn line(Document { silo, version, changed, .. }: &Document) -> String {
    if *changed {
        format!("{silo} is dead since version {version}\n")
    } else {
        format!("{silo} was dead already, in version {version}\n")
    }
}

/// Signs that a silo lives, found in the time that it needs to touch its row.
async fn signs_of_life(
    table: &SiloTable,
    row: &SiloEntry,
    silos: &[SiloEntry],
) -> Result<Vec<String>> {
    let silo = row.address;
    let active = silos.iter().filter(|row| row.status == SiloStatus::Active).count();
    let span = Config::default().overlooked_when_refused_after(active);
    if std::io::stderr().is_terminal() {
        eprintln!("looking at the row and the port of {silo} for {} s", span.as_secs());
    }
    let answers = port_security(silo.endpoint(), table.cluster(), PATIENCE);
    let (answers, ()) = tokio::join!(answers, tokio::time::sleep(span));
    let later = table.read_silo(&silo).await.map_err(Failure::store)?;
    let mut signs = Vec::new();
    if let Some(later) = later.filter(|later| later.i_am_alive_time != row.i_am_alive_time) {
        signs.push(format!("it touched its row at {}", later.i_am_alive_time));
    }
    if answers.is_some() {
        signs.push("its port answers".to_owned());
    }
    Ok(signs)
}

/// Writes the death of a silo, and its history.
async fn declare(table: &SiloTable, silo: SiloAddress, evidence: &[String]) -> Result<Written> {
    let death = Death { silo, writer: "emmer dead", evidence, at: now() };
    let written = table.declare_dead(&death).await.map_err(Failure::store)?;
    let written = written.ok_or_else(|| {
        let why = format!("silos write all the time: {silo} is not declared dead");
        Failure::new(Code::Store, why)
    })?;
    store::tell_unrecorded(&written);
    Ok(written)
}
