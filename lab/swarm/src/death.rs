//! R16: a call that waits for a turn of a silo that is dead gets its error as soon as the others
//! know.
//!
//! A silo that has lost its machine is silent: its connections stay open, and only the view says
//! that it is dead.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use emmer::test::{Cluster, World};
use emmer::{Client, millis};
use emmer_core::{SiloAddress, SiloStatus};

use crate::ledger;

/// Time after the last silo has learned of the death by which clients have heard of it as well,
/// plus half a second for the last answers of a silo that left in good order.
const TOLD_WITHIN: Duration = millis(1_500);

/// Share of leaves during which a silo loses its power, and the delay.
const LEAVES: f64 = 0.3;
const AFTER: Duration = millis(300);

/// Interval of the checks of views.
const LOOK_EVERY: Duration = millis(100);

/// A call that is awaited all the time.
#[derive(Default)]
struct Awaited {
    /// The silo of the caller; none for a client.
    from: Option<String>,
    /// Where its turn has begun.
    on: Option<String>,
}

thread_local! {
    static AWAITED: RefCell<BTreeMap<u64, Awaited>> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    AWAITED.take();
}

/// A caller that awaits its call, as long as this lives.
pub(crate) struct Waits(u64);

/// A caller, on this silo or outside the cluster, begins to await a call.
pub(crate) fn awaits(call: u64, from: Option<String>) -> Waits {
    AWAITED.with_borrow_mut(|awaited| awaited.insert(call, Awaited { from, on: None }));
    Waits(call)
}

impl Drop for Waits {
    fn drop(&mut self) {
        AWAITED.with_borrow_mut(|awaited| awaited.remove(&self.0));
    }
}

/// The turn of a call begins on this silo.
pub(crate) fn begins(call: u64, silo: &str) {
    AWAITED.with_borrow_mut(|awaited| {
        if let Some(call) = awaited.get_mut(&call) {
            call.on = Some(silo.to_owned());
        }
    });
}

/// The machine of a silo loses its power. Lets this time pass, and judges calls that still wait
/// when all silos know.
pub(crate) async fn unplug(
    world: &World,
    cluster: &Cluster,
    clients: &[Client],
    silo: usize,
    time: Duration,
) {
    let end = world.elapsed() + time;
    let dead = cluster.node(silo).address();
    // Only its other gateways can tell a client. Without one it reads the table every ten seconds.
    let is_told = |client: &Client| client.gateways().into_iter().any(|gateway| gateway != dead);
    let clients_too = clients.iter().all(is_told);
    if ledger::chance(LEAVES) {
        // It loses its power while it leaves.
        let power = async {
            world.advance(AFTER).await;
            if !cluster.node(silo).has_ended() {
                ledger::reach("a death while leaving");
            }
            cluster.unplug(silo);
        };
        tokio::join!(cluster.stop(silo), power);
    } else {
        cluster.unplug(silo);
    }
    while world.elapsed() + TOLD_WITHIN < end && ledger::violation().is_none() {
        world.advance(LOOK_EVERY).await;
        if is_known(cluster, dead) {
            world.advance(TOLD_WITHIN).await;
            judge(&dead.to_string(), clients_too);
            break;
        }
    }
    world.advance(end.saturating_sub(world.elapsed())).await;
}

/// Returns true if every other silo that runs, and there are some, knows that this one is dead.
pub(crate) fn is_known(cluster: &Cluster, dead: SiloAddress) -> bool {
    let mut others = cluster
        .nodes()
        .iter()
        .filter(|node| node.address() != dead && !node.has_ended())
        .peekable();
    let lives =
        |(silo, status): (SiloAddress, SiloStatus)| silo == dead && status != SiloStatus::Dead;
    others.peek().is_some() && !others.any(|node| node.view().into_iter().any(lives))
}

fn judge(dead: &str, clients_too: bool) {
    ledger::reach("a death of which everybody has heard");
    let is_lost = |call: &Awaited| {
        let from = call.from.as_deref();
        call.on.as_deref() == Some(dead) && from != Some(dead) && (clients_too || from.is_some())
    };
    let waits = AWAITED.with_borrow(|awaited| {
        let lost = awaited.iter().find(|(_, call)| is_lost(call));
        lost.map(|(number, call)| (*number, call.from.clone()))
    });
    if let Some((call, from)) = waits {
        let who = from.as_deref().unwrap_or("a client");
        let what = format!(
            "{who} waits for call {call} on {dead} {TOLD_WITHIN:?} after all know that it is dead"
        );
        ledger::violate("R16", what);
    }
}
