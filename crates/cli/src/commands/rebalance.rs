//! `emmer rebalance`: evens out the numbers of recently used grains now, or shows what that would
//! move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use emmer::Client;
use emmer::placement::{Transfer, even};
use emmer::store::{DutyChange, DutyError, SiloTable};
use emmer::tables::{Duty, SiloAddress, SiloEntry, SiloStatus};
use serde::Serialize;

use super::duty::{because, client, failed};
use super::output::{Format, show};
use super::store;
use crate::exit::{Failure, Result};
use crate::process::{now, runtime};
use crate::text;

/// Time between two looks at the silos that give.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The flags of `emmer rebalance`.
#[derive(clap::Args)]
pub struct Args {
    /// Moves grains at once. The setting `balance` moves them slowly, by itself
    #[arg(long)]
    now: bool,
    /// Shows what would move, and moves nothing
    #[arg(long)]
    dry_run: bool,
    /// The reason, written into the history of the membership
    #[arg(long, value_name = "TEXT")]
    because: Option<String>,
    /// Longest wait for the silos, which do their work to the end all the same
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = super::duty::duration)]
    within: Duration,
    #[command(flatten)]
    cluster: store::ClusterArgs,
    /// A table for people, or one JSON document (docs/operations.md describes its fields)
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Document {
    store: String,
    cluster_id: String,
    dry_run: bool,
    silos: Vec<Silo>,
    transfers: Vec<Move>,
    /// Silos that told no counts: they are no gateways, or did not answer.
    unknown: Vec<String>,
}

#[derive(Serialize)]
struct Silo {
    silo: String,
    name: String,
    role: String,
    /// Number of grains that were called within ten minutes, before the moves.
    used: u64,
    /// Number of these grains afterwards: planned in a dry run, else counted.
    after: u64,
}

#[derive(Serialize)]
struct Move {
    from: String,
    to: String,
    grains: u32,
}

/// The counts of the silos that share grains, by the silos.
type Counts = BTreeMap<SiloAddress, u64>;

pub(super) fn run(args: Args, log: Option<String>) -> Result<()> {
    if !args.now && !args.dry_run {
        return Err(Failure::usage(
            "expected --now, which moves grains at once, or --dry-run; the setting `balance` moves \
             them slowly, by itself",
        ));
    }
    let because = because(args.because.as_deref())?;
    let settings = args.cluster.settle(log)?;
    runtime()?.block_on(async {
        let (table, mut silos) = store::table_and_rows(&settings).await?;
        silos.retain(|silo| silo.status == SiloStatus::Active && silo.duty.takes_grains());
        let client = client(&settings, &table).await?;
        let client = client.ok_or_else(|| {
            Failure::other("no gateway answers: only silos know how many grains they have")
        })?;
        let (kinds, before) = look(&client, &silos).await;
        let transfers: Vec<Transfer> = kinds.iter().flat_map(|kind| even(kind)).collect();
        let after = if args.dry_run {
            planned(&before, &transfers)
        } else {
            give((&table, &client), &transfers, &because, args.within).await?;
            look(&client, &silos).await.1
        };
        client.close().await;
        let count = |counts: &Counts, silo: &SiloEntry| counts.get(&silo.address).copied();
        let shown = silos.iter().filter_map(|silo| {
            Some(Silo {
                silo: silo.address.to_string(),
                name: silo.instance_name.to_string(),
                role: silo.role_name.to_string(),
                used: count(&before, silo)?,
                after: count(&after, silo).unwrap_or_default(),
            })
        });
        let unknown = silos.iter().filter(|silo| !before.contains_key(&silo.address));
        let document = Document {
            store: table.store().describe(),
            cluster_id: table.cluster().to_string(),
            dry_run: args.dry_run,
            silos: shown.collect(),
            transfers: transfers.iter().map(moved).collect(),
            unknown: unknown.map(|silo| silo.address.to_string()).collect(),
        };
        show(args.format, || print(&document), &document)
    })
}

/// The counts of the silos: of each kind that shares grains, and of all.
async fn look(client: &Client, silos: &[SiloEntry]) -> (Vec<Vec<(SiloAddress, u32)>>, Counts) {
    let told = client.statistics().await;
    let mut kinds: BTreeMap<(&str, u64), Vec<(SiloAddress, u32)>> = BTreeMap::new();
    let mut counts = Counts::new();
    for (address, told) in told {
        let Some(silo) = silos.iter().find(|silo| silo.address == address) else { continue };
        let used = told.activations_busy;
        counts.insert(address, used);
        let kind = kinds.entry((&*silo.role_name, told.hosted)).or_default();
        kind.push((address, u32::try_from(used).unwrap_or(u32::MAX)));
    }
    (kinds.into_values().collect(), counts)
}

fn planned(before: &Counts, transfers: &[Transfer]) -> Counts {
    let mut after = before.clone();
    for Transfer { from, to, grains } in transfers {
        let grains = u64::from(*grains);
        after.entry(*from).and_modify(|count| *count = count.saturating_sub(grains));
        after.entry(*to).and_modify(|count| *count += grains);
    }
    after
}

/// Has the silos give, and waits until they have.
async fn give(
    (table, client): (&SiloTable, &Client),
    transfers: &[Transfer],
    because: &str,
    within: Duration,
) -> Result<()> {
    let givers: BTreeSet<_> = transfers.iter().map(|transfer| transfer.from).collect();
    for silo in &givers {
        let (duty, from) = (Duty::Giving, Some(Duty::Full));
        let writer = "emmer rebalance";
        let change = DutyChange { silo: *silo, duty, from, writer, because, at: now() };
        match table.change_duty(&change).await {
            // It leaves or is gone meanwhile, and its grains go elsewhere anyway.
            Err(DutyError::NoSilo(_) | DutyError::NotActive(..) | DutyError::Leaves(_)) => {}
            Err(error) => return Err(failed(error)),
            Ok((written, _)) => store::tell_unrecorded(&written),
        }
    }
    client.table_has_changed();
    let until = Instant::now() + within;
    loop {
        let (_, silos) = store::read_all(table).await?;
        let gives = |silo: &&SiloEntry| {
            silo.duty == Duty::Giving
                && silo.status == SiloStatus::Active
                && givers.contains(&silo.address)
        };
        let left = silos.iter().filter(gives).count();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(Failure::other(format!(
                "{left} silos still give grains after {}: they continue; `emmer members` shows them",
                text::span(within)
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn print(document: &Document) -> String {
    let Document { silos, transfers, unknown, dry_run, .. } = document;
    let after = if *dry_run { "WOULD HAVE" } else { "HAS" };
    let header = ["SILO", "NAME", "USED GRAINS", after].map(str::to_owned).to_vec();
    let row = |silo: &Silo| {
        let name = if silo.name.is_empty() { "-" } else { &silo.name };
        let counts = [silo.used, silo.after].map(text::grouped);
        [silo.silo.clone(), name.to_owned()].into_iter().chain(counts).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(silos.iter().map(row)).collect();
    let mut out: String = text::columns(&rows).iter().map(|line| format!("{line}\n")).collect();
    for Move { from, to, grains } in transfers {
        let gives = if *dry_run { "would give" } else { "was asked to give" };
        out += &format!("{from} {gives} {} grains to {to}\n", text::grouped(u64::from(*grains)));
    }
    if transfers.is_empty() {
        out += "no silo has much more than the others\n";
    }
    for silo in unknown {
        out += &format!("{silo} told no count: it is no gateway, or did not answer\n");
    }
    out
}

fn moved(transfer: &Transfer) -> Move {
    let Transfer { from, to, grains } = transfer;
    Move { from: from.to_string(), to: to.to_string(), grains: *grains }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_told_with_its_outcome() {
        let silo = |n: u8| format!("10.0.0.{n}:1:1").parse::<SiloAddress>().unwrap();
        let before: Counts = [(silo(1), 3_000), (silo(2), 0)].into();
        let transfers = even(&[(silo(1), 3_000), (silo(2), 0)]);
        let after = planned(&before, &transfers);
        assert_eq!(after.into_values().collect::<Vec<_>>(), [1_500, 1_500]);
        let document = Document {
            store: String::new(),
            cluster_id: String::new(),
            dry_run: true,
            silos: vec![Silo {
                silo: silo(1).to_string(),
                name: String::new(),
                role: String::new(),
                used: 3_000,
                after: 1_500,
            }],
            transfers: transfers.iter().map(moved).collect(),
            unknown: vec![silo(3).to_string()],
        };
        let expected = "\
SILO          NAME  USED GRAINS  WOULD HAVE
10.0.0.1:1:1  -     3,000        1,500
10.0.0.1:1:1 would give 1,500 grains to 10.0.0.2:1:1
10.0.0.3:1:1 told no count: it is no gateway, or did not answer
";
        assert_eq!(print(&document), expected);
    }
}
