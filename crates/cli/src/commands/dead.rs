//! `emmer dead`: declares a silo dead on an operator's word.
//!
//! For a silo whose host is lost while too few silos are left to vote, or which others cannot
//! decide about. The silos that take over its grains wait for as long as after the death with the
//! least evidence (docs/at-most-one.md).

use std::io::IsTerminal as _;
use std::time::Duration;

use emmer::membership::Config;
use emmer::store::{HistoryTable, Recorded, SiloCommit, SiloTable, StoreErrorKind};
use emmer::{SiloAddress, SiloEntry, SiloStatus, TableVersion, port_security};
use serde::Serialize;

use super::output::{Format, show};
use super::{now, runtime, store};
use crate::exit::{Code, Failure, Result};
use crate::logging;
use emmer::config::{ConfigArgs, Settings};

/// How often the commit is tried while others write.
const TRIES: u32 = 5;
/// How long its port may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// The flags of `emmer dead`.
#[derive(clap::Args)]
pub struct Args {
    /// The silo: ip:port:epoch, ip:port, or its name
    #[arg(value_name = "SILO")]
    silo: String,
    /// How you know that its process has ended; written into the history of the membership
    #[arg(long, value_name = "TEXT")]
    because: String,
    /// Although its row moves, or its port answers
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
    /// Whether this command wrote that.
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
    let url = settings.required("store", "--store")?.text.clone();
    let cluster = settings.cluster()?;
    let rows_max = settings.limits()?.membership_rows_max;
    runtime()?.block_on(async {
        let table = SiloTable::new(store::open_existing(&url).await?, cluster);
        let table = table.with_rows_max(rows_max);
        let (version, silos) = read(&table).await?;
        store::check_version(table.store(), table.cluster(), &version).await?;
        let row = find(&silos, &args.silo)?;
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

async fn read(table: &SiloTable) -> Result<(TableVersion, Vec<SiloEntry>)> {
    match table.read_all().await {
        Ok(found) => Ok(found),
        // No silo ever used this store.
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(Default::default()),
        Err(error) => Err(Failure::store(error)),
    }
}

/// The row of the silo that is meant: of several incarnations the latest.
fn find<'a>(silos: &'a [SiloEntry], meant: &str) -> Result<&'a SiloEntry> {
    let by_address = |row: &&SiloEntry| match meant.parse::<SiloAddress>() {
        Ok(address) => row.address == address,
        Err(_) => row.address.endpoint().to_string() == meant,
    };
    let latest = silos.iter().filter(by_address).max_by_key(|row| row.address.epoch());
    if let Some(row) = latest {
        return Ok(row);
    }
    let named = silos.iter().filter(|row| &*row.instance_name == meant);
    let (dead, alive): (Vec<_>, Vec<_>) = named.partition(|row| row.status == SiloStatus::Dead);
    match (alive.as_slice(), dead.last()) {
        ([one], _) | ([], Some(one)) => Ok(one),
        ([], None) => Err(Failure::other(format!(
            "there is no silo {meant:?} in the table: expected ip:port:epoch, ip:port or a name, \
             as `emmer members` shows them"
        ))),
        (several, _) => {
            let several: Vec<_> = several.iter().map(|row| row.address.to_string()).collect();
            let several = several.join(", ");
            Err(Failure::other(format!("several silos are called {meant}: say which of {several}")))
        }
    }
}

/// What speaks for a silo, after a look for as long as a living one needs to touch its row.
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

/// Writes it, and the history of it. Returns the version that shows it, and whether this call
/// wrote it.
async fn declare(
    table: &SiloTable,
    silo: SiloAddress,
    evidence: &[String],
) -> Result<(TableVersion, bool)> {
    for _ in 0..TRIES {
        let (base, silos) = read(table).await?;
        let found = silos.into_iter().find(|row| row.address == silo);
        let Some(mut row) = found.filter(|row| row.status != SiloStatus::Dead) else {
            return Ok((base, false));
        };
        row.status = SiloStatus::Dead;
        // Without a vote the row says that no silo has seen it end.
        row.votes.clear();
        let (name, host) = (row.instance_name.clone(), row.host_name.clone());
        match table.commit(&base, vec![row], vec![]).await.map_err(Failure::store)? {
            SiloCommit::Committed(version) => {
                let recorded = Recorded {
                    version: version.number,
                    number: 0,
                    at: now(),
                    writer: "emmer dead".into(),
                    silo: silo.to_string().into(),
                    name,
                    host,
                    change: "died".into(),
                    evidence: evidence.iter().map(|line| line.as_str().into()).collect(),
                };
                record(table, recorded).await;
                return Ok((version, true));
            }
            // Others wrote, or the end is not known: the table as it is now decides.
            SiloCommit::Conflict | SiloCommit::Unknown(_) => {}
        }
    }
    let why = format!("others write all the time: {silo} is not declared dead after {TRIES} tries");
    Err(Failure::new(Code::Store, why))
}

/// The death is written already: what is missing is only its line in the history.
async fn record(table: &SiloTable, recorded: Recorded) {
    let history = HistoryTable::new(table.store().clone(), table.cluster().clone());
    match history.append(&[recorded]).await {
        Err(error) if error.kind != StoreErrorKind::NotFound => {
            eprintln!("the history does not have it: {error}");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use emmer::Timestamp;

    use super::*;

    fn silo(port: u16, epoch: u64, status: SiloStatus, name: &str) -> SiloEntry {
        let address = SiloAddress::new(SocketAddr::from(([127, 0, 0, 1], port)), epoch);
        let mut row = SiloEntry::new(address, status, Timestamp::from_millis(0));
        row.instance_name = name.into();
        row
    }

    #[test]
    fn a_silo_is_found_by_its_address_its_endpoint_and_its_name() {
        let silos = vec![
            silo(11111, 3, SiloStatus::Dead, "left"),
            silo(11111, 7, SiloStatus::Active, "left"),
            silo(11112, 5, SiloStatus::Dead, "right"),
        ];
        let found = |meant: &str| find(&silos, meant).map(|row| row.address.epoch());
        for (meant, epoch) in
            [("127.0.0.1:11111", 7), ("127.0.0.1:11111:3", 3), ("127.0.0.1:11112", 5), ("left", 7)]
        {
            assert_eq!(found(meant), Ok(epoch), "{meant}");
        }
        let error = found("127.0.0.1:1").unwrap_err();
        assert!(error.message.contains("ip:port:epoch"), "{error:?}");
        let mut two = silos.clone();
        two[0].status = SiloStatus::Active;
        let error = find(&two, "left").unwrap_err();
        assert!(error.message.contains("127.0.0.1:11111:3"), "{error:?}");
    }
}
