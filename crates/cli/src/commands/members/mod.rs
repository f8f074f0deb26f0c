//! `emmer members`: the membership table as an operator wants to see it.

mod json;
mod table;

use std::io::IsTerminal;
use std::time::Duration;

use emmer::access::PortSecurity;
use emmer::store::SiloTable;
use emmer::tables::{SiloEntry, TableVersion, Timestamp};

use super::output::{Format, show, write_out};
use super::{ports, store};
use crate::exit::Result;
use crate::process::{now, runtime};

/// Time between two looks of `--watch`.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// The flags of `emmer members`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A table for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Ask each Active silo whether its port accepts plain connections, or encrypted ones only
    #[arg(long)]
    ports: bool,
    /// Go on: show the table again whenever it changes (on a terminal every second), until Ctrl-C
    #[arg(long)]
    watch: bool,
}

/// Content of the table, and the time at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reading {
    cluster: String,
    store: String,
    version: TableVersion,
    silos: Vec<SiloEntry>,
    /// For each silo, if that was asked for.
    ports: Option<Vec<Option<PortSecurity>>>,
    at: Timestamp,
}

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    let settings = args.cluster.settle(log)?;
    runtime()?.block_on(async {
        let table = store::table(&settings).await?;
        if args.watch {
            watch(&table, args.format, args.ports).await
        } else {
            let reading = read(&table, args.ports).await?;
            show(args.format, || table::print(&reading), &json::Document::of(&reading))?;
            store::check_version(table.store(), table.cluster(), &reading.version).await
        }
    })
}

async fn watch(table: &SiloTable, format: Format, ports: bool) -> Result<()> {
    let alive = format == Format::Table && std::io::stdout().is_terminal();
    let mut shown: Option<Reading> = None;
    loop {
        let reading = read(table, ports).await?;
        let changed = shown.as_ref().is_none_or(|s| {
            (&s.version, &s.silos, &s.ports) != (&reading.version, &reading.silos, &reading.ports)
        });
        if alive {
            // Home, then clear to the end: a screen that does not flicker.
            write_out("\x1b[H\x1b[J")?;
        }
        if alive || changed {
            show(format, || table::print(&reading), &json::Document::of(&reading))?;
        }
        shown = Some(reading);
        tokio::select! {
            () = tokio::time::sleep(WATCH_PERIOD) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

async fn read(table: &SiloTable, ports: bool) -> Result<Reading> {
    let (version, mut silos) = store::read_all(table).await?;
    // Living ones first, then the latest dead.
    silos.sort_by_key(|silo| {
        let leaving = silo.status.is_terminating();
        (leaving, if leaving { -silo.start_time.as_millis() } else { 0 }, silo.address)
    });
    let at = now();
    let ports = match ports {
        true => Some(ports::look(&silos, table.cluster()).await),
        false => None,
    };
    let cluster = table.cluster().to_string();
    Ok(Reading { cluster, store: table.store().describe(), version, silos, ports, at })
}

#[cfg(test)]
pub(super) mod fixture {
    //! A table with one silo of each kind.

    use std::net::SocketAddr;

    use emmer::tables::{SiloAddress, SiloStatus, Vote};

    use super::*;

    pub(super) fn address(port: u16, epoch: u64) -> SiloAddress {
        SiloAddress::new(SocketAddr::from(([127, 0, 0, 1], port)), epoch)
    }

    pub(super) fn reading() -> Reading {
        let at = Timestamp::from_millis(1_795_265_085_000);
        let mut active =
            SiloEntry::new(address(11111, 7), SiloStatus::Active, at - Duration::from_secs(90));
        active.instance_name = "left".into();
        active.proxy_port = 30000;
        active.i_am_alive_time = at - Duration::from_secs(5);
        let mut dead =
            SiloEntry::new(address(11112, 5), SiloStatus::Dead, at - Duration::from_secs(3_700));
        dead.votes = vec![Vote {
            voter: address(11111, 7),
            at: at - Duration::from_millis(61_500),
            gone: false,
        }];
        let version = TableVersion { number: 12, etag: "x".into(), ..TableVersion::default() };
        Reading {
            cluster: "dev".into(),
            store: "memory://".into(),
            version,
            silos: vec![active, dead],
            ports: None,
            at,
        }
    }
}
