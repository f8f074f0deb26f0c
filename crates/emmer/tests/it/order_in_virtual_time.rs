//! Calls that nobody waits for arrive in the order in which they were made, also where the limits
//! are met.

use emmer::prelude::*;
use emmer::test::{NetModel, World};

const CALLS: u64 = 100;

#[grain_interface(key = u64)]
trait Parcels {
    async fn take(&mut self, what: u64, content: Vec<u8>);
    /// Lets the others wait.
    async fn weigh(&mut self, what: u64, content: Vec<u8>);
    async fn taken(&self) -> Vec<u64>;
}

#[derive(Grain)]
struct ParcelsGrain {
    taken: Vec<u64>,
}

#[grain]
impl Parcels for ParcelsGrain {
    async fn take(&mut self, what: u64, _content: Vec<u8>) {
        self.taken.push(what);
    }

    async fn weigh(&mut self, what: u64, content: Vec<u8>) {
        tokio::time::sleep(millis(content.len() as u64 / 10_000)).await;
        self.taken.push(what);
    }

    async fn taken(&self) -> Vec<u64> {
        self.taken.clone()
    }
}

/// Those that are refused are missing; the others arrive in order.
#[emmer::test(seeds = 8)]
async fn what_arrives_of_unawaited_calls_arrives_in_order(world: World) {
    let tight = world.seed().is_multiple_of(2);
    let describe = move |silo: emmer::SiloBuilder| {
        silo.host::<dyn Parcels, ParcelsGrain>().configure(move |o| {
            if tight {
                o.limits.outgoing_bytes_max = 64 << 10;
                o.limits.activation_queue_max = 40;
                o.limits.silo_calls_in_flight_max = 64;
            }
        })
    };
    let cluster = world.cluster(3, describe).await;
    world.net().set_model(NetModel { delay_max: millis(5), split: 0.2, ..NetModel::default() });
    let mut refused = 0;
    for key in 0..3 {
        let draws: Vec<u64> = (0..CALLS).map(|_| world.bits()).collect();
        let calls = async move |client: ClusterClient| {
            let parcels = client.grain::<dyn Parcels>(key);
            let mut sent = 0;
            for (what, draw) in (0..).zip(draws) {
                let content = vec![1; [70_000, 9_000, 3, 3, 3][usize::try_from(draw % 5).unwrap()]];
                let waits = draw & 64 == 0;
                let end = if waits {
                    parcels.weigh(what, content).send()
                } else {
                    parcels.take(what, content).send()
                };
                sent += u64::from(end.is_ok());
                if draw % 50 == 0 {
                    tokio::time::sleep(millis(draw % 7)).await;
                }
            }
            sent
        };
        let sent = cluster.node(0).run(calls).await.unwrap();
        world.advance(secs(60)).await;
        let ask = async move |client: ClusterClient| client.grain::<dyn Parcels>(key).taken().await;
        let taken = cluster.node(1).run(ask).await.unwrap().unwrap();
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]), "grain {key}: {taken:?}");
        assert!(
            tight || taken.len() as u64 == CALLS,
            "grain {key}: {} of {sent} sent",
            taken.len()
        );
        refused += CALLS - taken.len() as u64;
    }
    assert_eq!(refused > 0, tight, "{refused} calls were refused");
}
