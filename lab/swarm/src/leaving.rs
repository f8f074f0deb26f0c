//! R17: a silo that is asked to leave has left within its time, and then all silos know it. An idle
//! silo leaves at once.

use std::time::Duration;

use emmer::test::{Cluster, World};
use emmer::{Client, secs};
use emmer_core::{SiloAddress, SiloStatus};

use crate::orders::{Order, Step, Subject};
use crate::{answers, death, ledger};

/// The default of `shutdown_timeout`.
const LEFT_WITHIN: Duration = secs(60);

/// Timers of the world are exact to a millisecond, and turns under way get one more wait of 50 ms.
const SLACK: Duration = Duration::from_millis(60);

/// It stops waiting for turns then: the rest is for its death.
const MET_ITS_LIMIT: Duration = secs(55);

/// Time after a silo has left by which every silo knows.
const KNOWN_WITHIN: Duration = secs(2);

/// Interval of the checks of views.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The longest time in which a silo leaves that has nothing to do.
const IDLE_LEFT_WITHIN: Duration = Duration::from_millis(100);

/// A turn that takes longer than any silo waits for it.
const STUBBORN_MS: u64 = 90_000;

/// Grains from this one on hold silos up, and are called by nothing else.
const STUBBORN: u64 = 3_000_000;

/// Makes turns that silos have to wait for when they leave; on some of them.
pub(crate) async fn hold_up(world: &World, cluster: &Cluster, client: &Client) {
    for _ in cluster.nodes() {
        let order = Order { steps: vec![Step::Wait(STUBBORN_MS)], ..Order::nothing() };
        let (number, grain) = (order.call, client.grain::<dyn Subject>(STUBBORN + order.call));
        answers::judge_send(number, grain.work(order).send());
    }
    // They have begun by then.
    world.advance(secs(1)).await;
}

/// A silo leaves in good order; how long it took.
pub(crate) async fn leave(world: &World, cluster: &Cluster, at: usize) -> Duration {
    let begun = world.elapsed();
    let silo = cluster.node(at).address();
    cluster.stop(at).await;
    let took = world.elapsed().saturating_sub(begun);
    if took > LEFT_WITHIN + SLACK {
        ledger::violate("R17", format!("{silo} took {took:?} to leave"));
    }
    if took >= MET_ITS_LIMIT {
        ledger::reach("a leave that met its limit");
    }
    // Another silo that has written it may have told this silo before the view came.
    let is_dead =
        |(named, status): (SiloAddress, SiloStatus)| named == silo && status == SiloStatus::Dead;
    if !cluster.nodes().iter().any(|node| node.view().into_iter().any(is_dead)) {
        ledger::violate(
            "R17",
            format!("{silo} has left within {took:?}, and nobody knows that it is dead"),
        );
    }
    let left = world.elapsed();
    // Where no other silo runs, there is none to know it.
    let others = || cluster.nodes().iter().any(|node| node.address() != silo && !node.has_ended());
    while others() && !death::is_known(cluster, silo) {
        if world.elapsed() > left + KNOWN_WITHIN {
            ledger::violate(
                "R17",
                format!("{silo} has left, and not everybody knows it {KNOWN_WITHIN:?} later"),
            );
            break;
        }
        world.advance(LOOK_EVERY).await;
    }
    took
}

/// When all is quiet: a silo leaves at once.
pub(crate) async fn when_quiet(world: &World, cluster: &Cluster) {
    let took = leave(world, cluster, 0).await;
    if took > IDLE_LEFT_WITHIN {
        ledger::violate("R17", format!("a silo that had nothing to do took {took:?} to leave"));
    }
}
