//! Pictures of a cluster in virtual time.

use emmer::access::Access;
use emmer::console::{Gather, Wants};
use emmer::prelude::*;
use emmer::tables::SiloStatus;
use emmer::test::World;

#[grain_interface(key = u64)]
trait Bell {
    async fn ring(&mut self) -> u64;
    async fn jam(&mut self);
}

#[derive(Grain, Default)]
struct BellGrain {
    rung: u64,
}

#[grain]
impl Bell for BellGrain {
    async fn ring(&mut self) -> u64 {
        self.rung += 1;
        self.rung
    }

    async fn jam(&mut self) {
        std::future::pending::<()>().await;
    }
}

fn bells(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn Bell, BellGrain>().authorize_admin(|_| Access::Allow)
}

const ALL: Wants =
    Wants { types: true, methods: true, hot: true, turns: true, queues: true, reminders: true };

#[emmer::test(seeds = 4)]
async fn a_picture_shows_rates_and_what_hangs(world: World) {
    let cluster = world.cluster(3, bells).await;
    let client = cluster.client().await;
    let mut gather = Gather::new(client.admin());
    let first = gather.step(ALL).await;
    assert_eq!(first.silos.iter().filter(|row| row.own.is_some()).count(), 3);
    assert!(first.events.is_empty() && first.trouble.is_none());
    for n in 0..600 {
        client.grain::<dyn Bell>(n % 30).ring().await.unwrap();
    }
    let jammed = client.grain::<dyn Bell>(7_u64);
    for _ in 0..3 {
        let jammed = jammed.clone();
        tokio::spawn(async move { jammed.jam().timeout(secs(600)).await });
    }
    world.advance(secs(10)).await;
    let second = gather.step(ALL).await.clone();
    let bell = second.types.iter().find(|row| row.grain_type == "bell").unwrap();
    assert_eq!((bell.silos, bell.activations, bell.busy), (3, 30, 1));
    let ring = second.methods.iter().find(|row| row.method == "Bell.ring").unwrap();
    assert!((20.0..=60.0).contains(&ring.calls_per_second), "{ring:?}");
    assert!(ring.p99_ns.is_some() && ring.calls == 600);
    let turns: f64 =
        second.silos.iter().map(|row| row.own.as_ref().unwrap().turns_per_second).sum();
    assert!((20.0..=61.0).contains(&turns), "{turns}");
    let [jam] = &second.turns[..] else { panic!("{:?}", second.turns) };
    assert_eq!((jam.turn.method.as_str(), jam.turn.key.clone()), ("Bell.jam", 7_u64.into()));
    assert_eq!((second.queues.len(), second.queues[0].waiting), (1, 2));
    assert!(!second.called.is_empty());
}

#[emmer::test(seeds = 4)]
async fn a_death_is_an_event_and_the_picture_stays_whole(world: World) {
    let cluster = world.cluster(4, bells).await;
    let client = cluster.client().await;
    let mut gather = Gather::new(client.admin());
    gather.step(Wants::default()).await;
    let address = cluster.node(3).address();
    cluster.kill(3);
    let died = loop {
        world.advance(millis(500)).await;
        let picture = gather.step(Wants::default()).await;
        if picture.events.iter().any(|event| event.silo == address && event.words == "is dead") {
            break picture.clone();
        }
    };
    assert!(died.events.iter().any(|event| event.words.starts_with("is suspected by ")));
    let row = died.silos.iter().find(|row| row.silo == address).unwrap();
    assert!(row.status == SiloStatus::Dead && row.own.is_none() && !row.suspected_by.is_empty());
    assert_eq!(died.silos.iter().filter(|row| row.own.is_some()).count(), 3);
}
