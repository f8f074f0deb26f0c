//! Calls that must succeed when all is quiet and no grain makes trouble: every call (R9), in its
//! order (R10).

use emmer::test::{Cluster, NetModel, World};
use emmer::{Client, millis, secs};

use crate::ledger;
use crate::orders::{Order, Step, Subject};
use crate::plan::Plan;
use crate::subject::{send, send_by};

/// Grains that each silo and each client calls.
const CALLED: u64 = 12;

/// Grains that each silo calls while they move.
const MOVED: u64 = 4;

/// Grains from this one on are called by nothing else.
const NOBODYS: u64 = 1_000_000;

/// Number of grains to which each silo sends that number of one-way calls.
const SENT_TO: u64 = 6;
const SENT: u64 = 4;

/// Number of grains that all silos call while they move.
const MOVERS: u64 = 2;

/// Number of one-way calls that each silo sends to a grain while it moves.
const SENT_TO_MOVER: u64 = 60;

/// Number of calls meanwhile that each silo awaits.
const ASKED_OF_MOVER: u64 = 12;

/// R9: from everywhere, grains that are new and grains that were there before.
pub(crate) async fn everybody_is_answered(
    world: &World,
    cluster: &Cluster,
    clients: &[Client],
    plan: &Plan,
) {
    for (n, node) in cluster.nodes().iter().enumerate() {
        let asked = async |client: emmer::GrainFactory| {
            for _ in 0..CALLED {
                let grain = client.grain::<dyn Subject>(ledger::below(2 * plan.grains));
                let answer = grain.look(Order::nothing()).timeout(secs(20)).await;
                expect(&format!("silo {n}"), &answer.map_err(|e| e.to_string()));
            }
            for _ in 0..MOVED {
                while_it_moves(&client, ledger::below(2 * plan.grains), plan).await;
            }
        };
        if node.run(asked).await.is_none() {
            ledger::violate("R9", format!("silo {n} does not run when all is quiet"));
        }
    }
    for client in clients {
        for _ in 0..CALLED {
            let grain = client.grain::<dyn Subject>(ledger::below(2 * plan.grains));
            let answer = grain.look(Order::nothing()).timeout(secs(20)).await;
            expect("a client", &answer.map_err(|e| e.to_string()));
        }
    }
    // Active grains make room, where there is little.
    world.advance(secs(130)).await;
}

/// R9: a grain moves, and is called meanwhile.
async fn while_it_moves(client: &emmer::GrainFactory, grain: u64, plan: &Plan) {
    let call = async |after_ms: u64, steps: Vec<Step>| {
        tokio::time::sleep(millis(after_ms)).await;
        let order = Order { steps, ..Order::nothing() };
        client.grain::<dyn Subject>(grain).look(order).timeout(secs(20)).await
    };
    let later = || ledger::below(6);
    let answers = tokio::join!(
        call(0, vec![Step::Move]),
        call(later(), Vec::new()),
        call(later(), Vec::new()),
        call(later(), Vec::new()),
    );
    for answer in <[_; 4]>::from(answers) {
        // Three calls and a timer's tick may be more than its queue takes.
        if !plan.is_tight {
            expect("a grain that moves", &answer.map_err(|e| e.to_string()));
        }
    }
}

fn expect(who: &str, answer: &Result<u64, String>) {
    if let Err(e) = answer {
        ledger::violate("R9", format!("a call of {who} fails when all is quiet: {e}"));
    }
}

/// R9: after every connection between two silos broke. All silos have heard of it, and nothing is
/// under way.
pub(crate) fn break_connections(world: &World, cluster: &Cluster) {
    let ips: Vec<_> = cluster.nodes().iter().map(|node| node.address().endpoint().ip()).collect();
    for (n, one) in ips.iter().enumerate() {
        ips[n + 1..].iter().for_each(|other| world.net().reset(*one, *other));
    }
}

/// R10: each silo makes calls that it does not await, to grains that are nowhere yet.
pub(crate) async fn in_order(world: &World, cluster: &Cluster, plan: &Plan) {
    for (n, node) in cluster.nodes().iter().enumerate() {
        let sending = async |client: emmer::GrainFactory| {
            for grain in 0..SENT_TO {
                let grain = NOBODYS + plan.grains + 100 * (n as u64 + 1) + grain;
                for _ in 0..SENT {
                    send(&client, &node.address().to_string(), grain, Order::nothing());
                    // The next one may come while the grain is looked for, or when it is there.
                    if ledger::chance(0.5) {
                        tokio::time::sleep(millis(ledger::below(4))).await;
                    }
                }
            }
        };
        let _ = node.run(sending).await;
    }
    world.advance(secs(5)).await;
}

/// R10: all silos send calls to a grain that moves, each by one reference or by a new one for each
/// call. Others of the silo ask the grain meanwhile, and learn where it is.
pub(crate) async fn in_order_while_it_moves(world: &World, cluster: &Cluster, plan: &Plan) {
    world.net().set_model(NetModel { delay_max: millis(3), ..NetModel::default() });
    for mover in 0..MOVERS {
        let grain = 2 * NOBODYS + plan.grains + mover;
        let calling = async |client: emmer::GrainFactory, silo: String, is_kept: bool| {
            let kept = client.grain::<dyn Subject>(grain);
            let sending = async {
                for _ in 0..SENT_TO_MOVER {
                    let fresh = client.grain::<dyn Subject>(grain);
                    send_by(if is_kept { &kept } else { &fresh }, &silo, Order::nothing());
                    if ledger::chance(0.3) {
                        tokio::time::sleep(millis(ledger::below(4))).await;
                    }
                }
            };
            let asking = async {
                for _ in 0..ASKED_OF_MOVER {
                    tokio::time::sleep(millis(ledger::below(4))).await;
                    let steps = if ledger::chance(0.2) { vec![Step::Move] } else { Vec::new() };
                    let order = Order { steps, ..Order::nothing() };
                    let fresh = client.grain::<dyn Subject>(grain);
                    let answer = fresh.look(order).timeout(secs(20)).await;
                    // Its queue is full of those that are not awaited.
                    if !plan.is_tight {
                        expect("a grain that moves on", &answer.map_err(|e| e.to_string()));
                    }
                }
            };
            tokio::join!(sending, asking);
        };
        let nodes = cluster.nodes().iter();
        let callers = nodes.map(|node| {
            let (silo, is_kept) = (node.address().to_string(), ledger::chance(0.6));
            node.run(move |client| calling(client, silo, is_kept))
        });
        let _ = futures_util::future::join_all(callers).await;
        world.advance(secs(3)).await;
    }
}
