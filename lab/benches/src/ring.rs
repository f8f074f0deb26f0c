//! Costs of a change of view for a silo, by the size of the cluster: the view itself, the ring, the
//! directory's ranges; and the cost of a look-up on the ring.

use std::hint::black_box;
use std::sync::Arc;

use emmer::membership::View;
use emmer::tables::{SiloEntry, SiloStatus, TableVersion, Timestamp};
use emmer_core::Instant;
use emmer_core::ring::Ring;
use emmer_directory::{Config, Directory};
use emmer_report::Report;
use serde::{Deserialize, Serialize};

use crate::directory::{grain_ids, silo_address};
use crate::job::{Job, Launcher};
use crate::meter::Meter;
use crate::report::{Compared, Rounds};
use crate::sample::Sample;
use crate::{Result, Settings};

/// Sizes of the clusters, in silos.
pub const SIZES: [usize; 3] = [10, 100, 1_000];

/// One size's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    silos: usize,
    changes: u64,
    lookups: u64,
}

/// The rows of a cluster of this number of Active silos.
pub fn rows(silos: usize) -> Vec<Arc<SiloEntry>> {
    let row = |number| {
        SiloEntry::new(silo_address(number), SiloStatus::Active, Timestamp::from_millis(1))
    };
    (0..silos).map(|number| Arc::new(row(number))).collect()
}

/// The view of `rows`, as version `number`.
pub fn view(number: u64, rows: &[Arc<SiloEntry>]) -> View {
    View::new(
        TableVersion { number, etag: Arc::from("etag"), ..TableVersion::default() },
        rows.to_vec(),
    )
}

/// Runs one size.
///
/// # Errors
/// An empty ring.
pub fn run(plan: &Plan) -> Result<Vec<Sample>> {
    let name = format!("{} silos", plan.silos);
    let all = rows(plan.silos);
    let without_last = &all[..plan.silos - 1];
    // Every change takes the last silo out or brings it back.
    let rows_at = |number: u64| if number.is_multiple_of(2) { &all[..] } else { without_last };
    let mut samples = Vec::new();

    let meter = Meter::start();
    for number in 1..=plan.changes {
        black_box(view(number, rows_at(number)));
    }
    samples.push(Sample::new("make a view", &name, 1, plan.changes).taking(meter.read()));

    let points = Config::default().points_per_silo;
    let meter = Meter::start();
    for number in 1..=plan.changes {
        black_box(Ring::with_points(rows_at(number).iter().map(|row| row.address), 0, points));
    }
    samples.push(Sample::new("make a ring", &name, 1, plan.changes).taking(meter.read()));

    let mut directory = Directory::new(silo_address(0), Config::default(), Instant::from_millis(1));
    let meter = Meter::start();
    for number in 1..=plan.changes {
        let silos: Vec<_> = rows_at(number).iter().map(|row| (row.address, row.status)).collect();
        directory.handle_view(Instant::from_millis(number), number, &silos, &[]);
        while directory.poll_effect().is_some() {}
    }
    samples.push(Sample::new("directory: new view", &name, 1, plan.changes).taking(meter.read()));

    let ring = Ring::with_points(all.iter().map(|row| row.address), 0, points);
    let ids = grain_ids(1_024);
    let meter = Meter::start();
    for number in 0..plan.lookups {
        let id = &ids[usize::try_from(number % 1_024)?];
        black_box(ring.owner(id.stable_hash()).ok_or("an empty ring")?);
    }
    samples.push(Sample::new("owner on the ring", &name, 1, plan.lookups).taking(meter.read()));
    Ok(samples)
}

/// Runs every size in every round.
///
/// # Errors
/// The first run that failed.
pub fn measure(settings: &Settings, launcher: &Launcher, say: &dyn Fn(&str)) -> Result<Compared> {
    let mut rounds = Rounds::new(settings.rounds, say);
    while rounds.begin() {
        for silos in SIZES {
            let (changes, lookups) = (settings.scaled(50, 2), settings.scaled(1_000_000, 10));
            let plan = Plan { silos, changes, lookups };
            rounds.add(&format!("{silos} silos"), || {
                launcher.measure(&Job::run_of("ring", &plan)?)
            })?;
        }
    }
    Ok(rounds.compared(["10 silos", "100 silos"]))
}

/// The table.
pub fn report(compared: &Compared) -> Report {
    let title = "Changes of view and look-ups on the ring, by the size of the cluster (emmer-lab bench ring).";
    compared.report("bench-ring", title)
}
