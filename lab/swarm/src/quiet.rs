//! Rules that hold when all is quiet.

use emmer::test::{Cluster, World};
use emmer::{Client, secs};

use crate::orders::{Order, Subject};
use crate::plan::{CLIENTS, Plan};
use crate::{ledger, turns};

/// Tasks of an idle silo, besides one for each connection: the membership shell, its own measure
/// and the clock of its connections, the directory's, the clock's, one for each of two ports.
const TASKS_AT_REST: usize = 7;

/// R5: every grain returns its stored values.
pub(crate) async fn totals(world: &World, client: &Client, plan: &Plan) {
    for grain in ledger::expected().into_keys() {
        let order = Order::nothing();
        let mut total = client.grain::<dyn Subject>(grain).look(order).timeout(secs(60)).await;
        if let Err(emmer::CallError::Overloaded { .. }) = &total {
            // Where few grains may be active, others have to go first: a round of the collection
            // takes a minute.
            world.advance(secs(70)).await;
            let order = Order::nothing();
            total = client.grain::<dyn Subject>(grain).look(order).timeout(secs(60)).await;
        }
        // Its hook may have added something.
        let (least, most) = ledger::expected_of(grain);
        match total {
            Ok(total) if (least..=most).contains(&total) => {}
            Ok(total) => {
                let what = format!("grain {grain} has {total}, and stored {least} to {most}");
                ledger::violate("R5", what);
            }
            // Its own hooks may fail; then nothing is known.
            Err(emmer::CallError::Rejected { .. } | emmer::CallError::Panicked { .. })
                if plan.trouble > 0.0 => {}
            Err(e) => ledger::violate(
                "R5",
                format!("grain {grain} cannot be asked when all is quiet: {e}"),
            ),
        }
    }
}

/// R6: nothing is left behind.
pub(crate) async fn rest(world: &World, cluster: &Cluster) {
    // The idle time, a round of the collection, and the longest deactivate hook.
    world.advance(secs(180)).await;
    let activations = cluster.activations();
    if activations > 0 {
        ledger::violate(
            "R6",
            format!("{activations} activations are left when nobody has called for three minutes"),
        );
    }
    turns::judge(cluster);
    turns::judge_rest(cluster);
    leftovers(cluster);
    let open = world.net().connections();
    let connections = open.len();
    for (n, node) in cluster.nodes().iter().enumerate() {
        let tasks = node.tasks();
        // To each other silo one keeps the connection of the membership.
        let kept = cluster.nodes().len().saturating_sub(1);
        if tasks > TASKS_AT_REST + kept + connections {
            ledger::violate(
                "R6",
                format!(
                    "silo {n} has {tasks} tasks when all is quiet, with {connections} connections"
                ),
            );
        }
    }
    let silos = cluster.nodes().len();
    // One connection for each pair of silos, two where both dialled, and a lifeline in each
    // direction; and the clients'.
    let lifelines = silos * silos.saturating_sub(1);
    let most = silos * silos + lifelines + CLIENTS * silos;
    if connections > most {
        ledger::violate(
            "R6",
            format!(
                "{connections} connections when all is quiet, {most} at most are of use: {open:?}"
            ),
        );
    }
}

/// R12: the directory names no activation that is gone: all of them are.
fn leftovers(cluster: &Cluster) {
    for (n, node) in cluster.nodes().iter().enumerate() {
        let left = node.statistics().registrations;
        if left > 0 {
            ledger::violate(
                "R12",
                format!("the directory of silo {n} has {left} grains when none is active"),
            );
        }
    }
}
