//! `emmer cordon`, `uncordon`, `drain` and `stop`: the duty of a silo, written into the membership
//! table.
//!
//! A process that may write the table may do this. The command tells the gateways that it reaches
//! that the table has changed. Without a gateway, silos see the change within a minute.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use emmer::Client;
use emmer::membership::humantime;
use emmer::options::{ClientBuilder, ClientOptions};
use emmer::store::{DutyChange, DutyError, SiloTable};
use emmer::tables::{Duty, SiloAddress, SiloEntry, SiloStatus};
use serde::Serialize;

use super::output::{Format, show};
use super::{named, store};
use crate::exit::{Code, Failure, Result};
use crate::process::{now, runtime};
use emmer::config::Settings;

/// Time in which a gateway has to take the connection of this command.
const GATEWAY_PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks at a silo that does its duty.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Maximum number of gateways that hear of a change.
const GATEWAYS_MAX: usize = 64;
/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// The flags that these commands share.
#[derive(clap::Args)]
pub struct Args {
    /// The silo: ip:port:epoch, ip:port, or its name
    #[arg(value_name = "SILO")]
    silo: String,
    /// The reason, written into the history of the membership
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A line for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// The flags of `emmer drain` and `emmer stop`.
#[derive(clap::Args)]
pub struct WaitArgs {
    #[command(flatten)]
    common: Args,
    /// Ends as soon as the table has the word, and does not wait for the silo
    #[arg(long)]
    no_wait: bool,
    /// Longest wait for the silo, which does its work to the end all the same
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    within: Duration,
}

pub(super) fn duration(text: &str) -> std::result::Result<Duration, String> {
    humantime::parse(text).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct Document {
    store: String,
    cluster_id: String,
    silo: String,
    name: String,
    /// The duty that was written: Full, Cordoned, Draining or Leaving.
    duty: &'static str,
    /// The version of the table that has it.
    version: u64,
    /// True if this command wrote it.
    changed: bool,
    /// True if a gateway was told. Else silos see it within a minute.
    told: bool,
    /// True if the silo has done it: it is drained, or has left. False if this command did not wait
    /// for that.
    done: bool,
    /// Time of the whole, in milliseconds.
    took_ms: u64,
}

pub(super) fn cordon(args: Args, log: Option<String>) -> Result<()> {
    run("emmer cordon", args, log, Duty::Cordoned, None)
}

pub(super) fn uncordon(args: Args, log: Option<String>) -> Result<()> {
    run("emmer uncordon", args, log, Duty::Full, None)
}

pub(super) fn drain(args: WaitArgs, log: Option<String>) -> Result<()> {
    let within = (!args.no_wait).then_some(args.within);
    run("emmer drain", args.common, log, Duty::Draining, within)
}

pub(super) fn stop(args: WaitArgs, log: Option<String>) -> Result<()> {
    let within = (!args.no_wait).then_some(args.within);
    run("emmer stop", args.common, log, Duty::Leaving, within)
}

fn run(
    command: &'static str,
    args: Args,
    log: Option<String>,
    duty: Duty,
    within: Option<Duration>,
) -> Result<()> {
    let because = because(args.because.as_deref())?;
    let settings = args.cluster.settle(log)?;
    runtime()?.block_on(async {
        let (table, silos) = store::table_and_rows(&settings).await?;
        let row = named::find(&silos, &args.silo)?;
        let (silo, name) = (row.address, row.instance_name.to_string());
        check_others(row, &silos, duty)?;
        let change =
            DutyChange { silo, duty, from: None, writer: command, because: &because, at: now() };
        let began = Instant::now();
        let (written, _) = table.change_duty(&change).await.map_err(failed)?;
        store::tell_unrecorded(&written);
        let client = client(&settings, &table).await?;
        let is_told = client.is_some();
        match &client {
            Some(client) => client.table_has_changed(),
            None => eprintln!("no gateway answers: silos see the change within a minute"),
        }
        if let Some(within) = within {
            let waits = Waits { table: &table, client: client.as_ref(), row, duty };
            waits.within(within).await?;
        }
        if let Some(client) = client {
            client.close().await;
        }
        let document = Document {
            store: table.store().describe(),
            cluster_id: table.cluster().to_string(),
            silo: silo.to_string(),
            name,
            duty: duty.name(),
            version: written.version.number,
            changed: written.is_new,
            told: is_told,
            done: within.is_some(),
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        show(args.format, || line(duty, &document), &document)
    })
}

/// The words for the history: the person, and the reason.
pub(super) fn because(reason: Option<&str>) -> Result<String> {
    let person = std::env::var("USER").ok().filter(|name| is_one_line(name));
    let operator =
        person.map_or_else(|| "an operator".to_owned(), |name| format!("operator {name}"));
    match reason.map(str::trim) {
        None => Ok(operator),
        Some(reason) if !reason.is_empty() && is_one_line(reason) => {
            Ok(format!("{operator}: {reason}"))
        }
        Some(_) => Err(Failure::usage(format!(
            "--because: expected one line of text, at most {REASON_BYTES_MAX} bytes"
        ))),
    }
}

fn is_one_line(text: &str) -> bool {
    text.len() <= REASON_BYTES_MAX && !text.contains(char::is_control)
}

/// Refuses to empty a silo whose grains have no other silo to go to: calls would bring them back.
fn check_others(row: &SiloEntry, silos: &[SiloEntry], duty: Duty) -> Result<()> {
    let takes = |other: &&SiloEntry| {
        other.status == SiloStatus::Active
            && other.duty.takes_grains()
            && other.address != row.address
            && other.role_name == row.role_name
    };
    if duty != Duty::Draining || row.duty == duty || silos.iter().any(|other| takes(&other)) {
        return Ok(());
    }
    let silo = row.address;
    Err(Failure::other(format!(
        "no other silo takes the grains of {silo}: nothing was written; start one of the same role, \
         or uncordon one"
    )))
}

pub(super) fn failed(error: DutyError) -> Failure {
    match error {
        DutyError::Store(error) => Failure::store(error),
        DutyError::Busy(_) => Failure::new(Code::Store, error),
        error => Failure::other(format!("{error}: nothing was written")),
    }
}

/// A client of the cluster; none if no gateway answers soon.
pub(super) async fn client(settings: &Settings, table: &SiloTable) -> Result<Option<Client>> {
    let mut options = ClientOptions::default();
    options.gateways_max = GATEWAYS_MAX;
    let client = Client::builder()
        .options(options)
        .store(table.store().clone())
        .cluster_id(table.cluster().clone());
    let connected = secured(client, settings)?.connect();
    let connected = tokio::time::timeout(GATEWAY_PATIENCE, connected).await;
    Ok(connected.ok().and_then(std::result::Result::ok))
}

#[cfg(feature = "tls")]
pub(super) fn secured(client: ClientBuilder, settings: &Settings) -> Result<ClientBuilder> {
    Ok(match settings.tls()? {
        Some(tls) => client.tls(tls),
        None => client,
    })
}

#[cfg(not(feature = "tls"))]
pub(super) fn secured(client: ClientBuilder, _: &Settings) -> Result<ClientBuilder> {
    Ok(client)
}

/// The wait for a silo that does its duty.
struct Waits<'a> {
    table: &'a SiloTable,
    client: Option<&'a Client>,
    row: &'a SiloEntry,
    duty: Duty,
}

impl Waits<'_> {
    async fn within(&self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        let mut progress = Progress::default();
        loop {
            let silo = self.row.address;
            let row = self.table.read_silo(&silo).await.map_err(Failure::store)?;
            if is_done(silo, self.duty, row.as_ref())? {
                progress.end();
                return Ok(());
            }
            let left = self.grains_left().await;
            if Instant::now() >= until {
                progress.end();
                let left =
                    left.map_or_else(String::new, |left| format!(", {left} grains are left"));
                let limit = humantime::print(limit);
                return Err(Failure::other(format!(
                    "{silo} is not done after {limit}{left}: it continues; `emmer members` shows it"
                )));
            }
            progress.show(self.row, left);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Number of grains that are left, if the silo is a gateway that can be reached.
    async fn grains_left(&self) -> Option<u64> {
        let told = self.client?.statistics().await;
        let own = told.into_iter().find(|(silo, _)| *silo == self.row.address);
        own.map(|(_, statistics)| statistics.activations)
    }
}

/// Returns true if the silo has done its duty.
fn is_done(silo: SiloAddress, duty: Duty, row: Option<&SiloEntry>) -> Result<bool> {
    let has_left = row.is_none_or(|row| row.status == SiloStatus::Dead);
    let is_own = |row: &SiloEntry| row.votes.iter().any(|vote| vote.voter == silo);
    if duty == Duty::Leaving {
        return match row {
            Some(row) if has_left && !is_own(row) => {
                Err(Failure::other(format!("{silo} did not leave: it was declared dead")))
            }
            _ => Ok(has_left),
        };
    }
    match row.map(|row| row.duty) {
        _ if has_left => Err(Failure::other(format!("{silo} has ended before it was drained"))),
        Some(Duty::Drained) => Ok(true),
        Some(Duty::Draining) | None => Ok(false),
        Some(other) => Err(Failure::other(format!("{silo} is not drained: it is {other} now"))),
    }
}

/// The lines about a wait, on stderr.
#[derive(Default)]
struct Progress {
    shown: Option<Instant>,
    is_open: bool,
}

impl Progress {
    /// Time between two lines where no terminal shows them.
    const EVERY: Duration = Duration::from_secs(5);

    fn show(&mut self, row: &SiloEntry, left: Option<u64>) {
        let name = if row.instance_name.is_empty() {
            row.address.to_string()
        } else {
            row.instance_name.to_string()
        };
        let text = match left {
            Some(left) => format!("{name}: {left} grains are left"),
            None => format!("waiting for {name}"),
        };
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text}");
            self.is_open = true;
        } else if self.shown.is_none_or(|at| at.elapsed() >= Self::EVERY) {
            eprintln!("{text}");
            self.shown = Some(Instant::now());
        }
    }

    /// Clears the line of a terminal.
    fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(duty: Duty, document: &Document) -> String {
    let Document { silo, name, version, changed, done, took_ms, .. } = document;
    let silo = if name.is_empty() { silo.clone() } else { format!("{name} ({silo})") };
    let took = humantime::print(Duration::from_millis(*took_ms));
    let asked = match duty {
        Duty::Full => "takes new grains",
        Duty::Cordoned => "takes no new grains",
        Duty::Draining => "is to be drained",
        _ => "is to leave",
    };
    match (done, changed) {
        (true, _) if duty == Duty::Draining => format!("{silo} is drained, after {took}\n"),
        (true, _) => format!("{silo} has left the cluster, after {took}\n"),
        (false, true) => format!("{silo} {asked}, since version {version}\n"),
        (false, false) => format!("{silo} {asked} already, as of version {version}\n"),
    }
}

#[cfg(test)]
mod tests {
    use emmer::tables::{Timestamp, Vote};

    use super::*;

    fn row(silo: &str, duty: Duty) -> SiloEntry {
        let at = Timestamp::from_millis(0);
        let mut row = SiloEntry::new(silo.parse().unwrap(), SiloStatus::Active, at);
        row.duty = duty;
        row
    }

    #[test]
    fn a_silo_is_drained_only_where_its_grains_can_go() {
        let (one, other) = ("10.0.0.1:1:1", "10.0.0.2:1:1");
        let own = row(one, Duty::Full);
        let check = |other: SiloEntry| check_others(&own, &[own.clone(), other], Duty::Draining);
        assert_eq!(check(row(other, Duty::Full)), Ok(()));
        let error = check(row(other, Duty::Cordoned)).unwrap_err();
        assert!(error.message.contains("no other silo takes the grains of 10.0.0.1:1:1"));
        let mut elsewhere = row(other, Duty::Full);
        elsewhere.role_name = "front".into();
        assert!(check(elsewhere).is_err());
        assert_eq!(check_others(&own, &[], Duty::Cordoned), Ok(()));
        // It drains already, and waiting for it is harmless.
        assert_eq!(check_others(&row(one, Duty::Draining), &[], Duty::Draining), Ok(()));
    }

    #[test]
    fn the_end_of_a_wait_is_in_the_row() {
        let silo: SiloAddress = "10.0.0.1:1:1".parse().unwrap();
        let drains = |row: Option<&SiloEntry>| is_done(silo, Duty::Draining, row);
        assert_eq!(drains(Some(&row("10.0.0.1:1:1", Duty::Draining))), Ok(false));
        assert_eq!(drains(Some(&row("10.0.0.1:1:1", Duty::Drained))), Ok(true));
        let back = drains(Some(&row("10.0.0.1:1:1", Duty::Cordoned))).unwrap_err();
        assert!(back.message.contains("it is Cordoned now"), "{back}");
        assert!(drains(None).unwrap_err().message.contains("has ended"));
        let mut dead = row("10.0.0.1:1:1", Duty::Leaving);
        dead.status = SiloStatus::Dead;
        let leaves = |row: Option<&SiloEntry>| is_done(silo, Duty::Leaving, row);
        assert!(leaves(Some(&dead)).unwrap_err().message.contains("declared dead"));
        dead.votes = vec![Vote { voter: silo, at: Timestamp::from_millis(0), gone: false }];
        assert_eq!((leaves(Some(&dead)), leaves(None)), (Ok(true), Ok(true)));
    }
}
