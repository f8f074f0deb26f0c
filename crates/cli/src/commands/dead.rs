//! `emmer dead`: declares a silo dead on an operator's word.
//!
//! For a silo whose host is lost while too few silos are left to vote. Silos that take over its
//! grains wait as long as after a death with the least evidence (docs/at-most-one.md).

use std::io::IsTerminal as _;
use std::time::Duration;

use emmer::access::port_security;
use emmer::membership::Config;
use emmer::store::{HistoryTable, Recorded, SiloCommit, SiloTable, StoreErrorKind};
use emmer::tables::{SiloAddress, SiloEntry, SiloStatus, TableVersion};
use serde::Serialize;

use super::output::{Format, show};
use super::{named, store};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use crate::process::{now, runtime};
use emmer::config::{ConfigArgs, Settings};

/// Number of commits that are tried while silos write.
const TRIES: u32 = 5;
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
    /// The system store that all silos of the cluster share, as in sqlite://cluster.db
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The cluster of the silo
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// A line for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    config: ConfigArgs,
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
    let flags = vec![
        ("store", args.store, "--store"),
        ("cluster_id", args.cluster_id, "--cluster-id"),
        ("log", log, "--log"),
    ];
    let settings = Settings::of_process(&args.config, flags)?;
    logging::start(&settings)?;
    runtime()?.block_on(async {
        let table = store::table(&settings).await?;
        let (version, silos) = store::read_all(&table).await?;
        store::check_version(table.store(), table.cluster(), &version).await?;
        let row = named::find(&silos, &args.silo)?;
        let silo = row.address;
        let mut evidence = vec![format!("an operator: {reason}")];
        let (version, changed) = if row.status == SiloStatus::Dead {
            (version, false)
        } else {
            let signs = signs_of_life(&table, row, &silos).await?;
            if !signs.is_empty() && !args.force {
                let signs = signs.join(", and ");
                let hint = "nothing was written; end its process, or say --force";
                return Err(Failure::other(format!("{silo} seems to be alive: {signs}: {hint}")));
            }
            evidence.extend(signs.into_iter().map(|sign| format!("in spite of: {sign}")));
            declare(&table, silo, &evidence).await?
        };
        let document = Document {
            store: table.store().describe(),
            cluster_id: table.cluster().to_string(),
            silo: silo.to_string(),
            version: version.number,
            changed,
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

/// Writes the death of a silo, and its history. Returns the version that shows the death, and true
/// if this call wrote it.
async fn declare(
    table: &SiloTable,
    silo: SiloAddress,
    evidence: &[String],
) -> Result<(TableVersion, bool)> {
    // The end of a commit of this call is not known.
    let mut is_in_doubt = false;
    for _ in 0..TRIES {
        let (base, silos) = store::read_all(table).await?;
        let Some(mut row) = silos.into_iter().find(|row| row.address == silo) else {
            return Ok((base, false));
        };
        if row.status == SiloStatus::Dead {
            // Silos do not write a death without votes.
            let is_own = is_in_doubt && row.votes.is_empty();
            if is_own {
                record(table, &row, base.number, evidence).await;
            }
            return Ok((base, is_own));
        }
        row.status = SiloStatus::Dead;
        // Without a vote the row says that no silo has seen it end.
        row.votes.clear();
        match table.commit(&base, vec![row.clone()], vec![]).await.map_err(Failure::store)? {
            SiloCommit::Committed(version) => {
                record(table, &row, version.number, evidence).await;
                return Ok((version, true));
            }
            SiloCommit::Conflict => {}
            SiloCommit::Unknown(_) => is_in_doubt = true,
        }
    }
    let why = format!("silos write all the time: {silo} is not declared dead after {TRIES} tries");
    Err(Failure::new(Code::Store, why))
}

/// Adds a death to the history. A failure is printed: the death itself is written already.
async fn record(table: &SiloTable, row: &SiloEntry, version: u64, evidence: &[String]) {
    let history = HistoryTable::new(table.store().clone(), table.cluster().clone());
    let recorded = Recorded {
        version,
        number: 0,
        at: now(),
        writer: "emmer dead".into(),
        silo: row.address.to_string().into(),
        name: row.instance_name.clone(),
        host: row.host_name.clone(),
        change: "died".into(),
        evidence: evidence.iter().map(|line| line.as_str().into()).collect(),
    };
    match history.append(&[recorded]).await {
        Err(error) if error.kind != StoreErrorKind::NotFound => {
            eprintln!("the death is written, but not its history: {error}");
        }
        _ => {}
    }
}
