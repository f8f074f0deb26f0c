//! Faults of silos, network and store while calls are made.

use std::time::Duration;

use emmer::test::{Cluster, Failure, NetModel, World};
use emmer::{Client, millis, secs};

use crate::plan::Plan;
use crate::{circles, death, kinds, leaving, ledger, patience, turns};

/// One fault, from its beginning to its end.
pub(crate) async fn one(world: &World, cluster: &mut Cluster, clients: &[Client], plan: &Plan) {
    turns::judge(cluster);
    circles::breaks();
    let silos = cluster.nodes().len();
    let at = usize::try_from(ledger::below(silos as u64)).unwrap_or(0);
    let other = (at + 1) % silos;
    let a_while = millis(100 + ledger::below(9_000));
    let kind = ledger::below(14);
    match if plan.is_gentle { 5 } else { kind } {
        0 | 1 => {
            ledger::reach("kill");
            cluster.kill(at);
            world.advance(a_while).await;
            kinds::restart(cluster, plan, at).await;
        }
        2 => {
            ledger::reach("unplug");
            death::unplug(world, cluster, clients, at, secs(20)).await;
            kinds::restart(cluster, plan, at).await;
        }
        3 | 4 => {
            ledger::reach("pause");
            cluster.pause(at);
            world.advance(a_while).await;
            cluster.resume(at);
        }
        5 => {
            ledger::reach("leave");
            if ledger::chance(0.1) {
                leaving::hold_up(world, cluster, &clients[0]).await;
            }
            leave(world, cluster, at, a_while).await;
            kinds::restart(cluster, plan, at).await;
        }
        6 | 7 => {
            ledger::reach("cut off from its peers");
            cluster.isolate(at);
            world.advance(a_while).await;
            cluster.heal();
        }
        8 => {
            ledger::reach("cut one way");
            cluster.cut(at, other);
            world.advance(a_while).await;
            cluster.heal();
        }
        9 => {
            ledger::reach("store away");
            world.store().fail(if ledger::chance(0.5) {
                Failure::Unavailable
            } else {
                Failure::LostAnswer
            });
            world.advance(a_while).await;
            world.store().recover();
        }
        10 => {
            ledger::reach("store silent or slow");
            if ledger::chance(0.5) {
                world.store().be_silent();
            } else {
                world.store().be_slow(millis(400));
            }
            world.advance(a_while).await;
            world.store().recover();
        }
        11 | 12 => {
            ledger::reach("a broken connection between silos that live");
            let ip = |n: usize| cluster.node(n).address().endpoint().ip();
            world.net().reset(ip(at), ip(other));
            world.advance(a_while).await;
        }
        _ => {
            ledger::reach("cut off from the store");
            cluster.cut_from_store(at);
            world.advance(a_while).await;
            cluster.heal();
        }
    }
    // Only silos that live through it; those that were killed are gone.
    turns::judge(cluster);
    bring_back(cluster, plan).await;
}

/// A silo leaves in good order. Time passes until every other one knows.
async fn leave(world: &World, cluster: &Cluster, at: usize, a_while: Duration) {
    let took = leaving::leave(world, cluster, at).await;
    world.advance(a_while).await;
    patience::left(took);
}

/// Restarts silos that were declared dead meanwhile.
async fn bring_back(cluster: &mut Cluster, plan: &Plan) {
    for n in 0..cluster.nodes().len() {
        if cluster.node(n).has_ended() {
            ledger::reach("a silo that was declared dead");
            kinds::restart(cluster, plan, n).await;
        }
    }
}

/// Everything back to normal.
pub(crate) async fn end(world: &World, cluster: &mut Cluster, plan: &Plan) {
    world.net().set_model(NetModel::default());
    world.net().heal();
    world.store().recover();
    cluster.heal();
    // A silo that is dead without knowing it finds out.
    world.advance(secs(15)).await;
    bring_back(cluster, plan).await;
}
