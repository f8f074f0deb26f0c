//! Storms in virtual time: kills, cuts, pauses, restarts.
use std::sync::Arc;

use emmer::prelude::*;
use emmer::test::World;

use super::imp::*;

#[emmer::test(seeds = 5)]
async fn a_storm_of_kills_and_cuts(world: World) {
    quiet();
    let log = Log::default();
    let prefix = format!("q{}-{}-", world.seed(), id());
    let mut cluster = world.cluster(4, |silo| silo.host::<dyn Imp, ImpGrain>()).await;
    let client = cluster.client().await;
    let mut dice = Dice(world.seed());
    let mut work = Vec::new();
    for task in 0..12u64 {
        let (client, log, prefix) = (client.grains(), Arc::clone(&log), prefix.clone());
        let mut dice = Dice(world.seed() * 100 + task);
        work.push(tokio::spawn(async move {
            for _ in 0..60 {
                let g = client.grain::<dyn Imp>(format!("{prefix}{}", dice.roll(6)));
                super::storm::one(g, &mut dice, &log).await;
                tokio::time::sleep(millis(dice.roll(300))).await;
            }
        }));
    }
    let mut down = None;
    for _ in 0..8 {
        world.advance(millis(dice.roll(4000))).await;
        let n = 1 + dice.roll(3) as usize;
        match dice.roll(7) {
            0 | 1 if down.is_none() => {
                cluster.kill(n);
                down = Some(n);
            }
            2 if down.is_none() => {
                cluster.stop(n).await;
                down = Some(n);
            }
            3 if down.is_none() => {
                cluster.pause(n);
                world.advance(millis(dice.roll(9000))).await;
                cluster.resume(n);
            }
            4 if down.is_none() => {
                cluster.isolate(n);
                world.advance(millis(dice.roll(9000))).await;
                cluster.heal();
            }
            5 if down.is_none() => {
                cluster.cut_from_store(n);
                world.advance(millis(dice.roll(3000))).await;
                cluster.heal();
            }
            _ => {
                if let Some(n) = down.take() {
                    world.advance(secs(1)).await;
                    cluster.restart(n).await;
                }
            }
        }
        for n in 0..4 {
            if down != Some(n) && cluster.node(n).has_ended() {
                world.advance(secs(1)).await;
                cluster.kill(n);
                cluster.restart(n).await;
            }
        }
    }
    for task in work {
        task.await.unwrap();
    }
    cluster.heal();
    world.advance(secs(30)).await;
    for key in 0..6 {
        let end =
            client.grain::<dyn Imp>(format!("{prefix}{key}")).slow(id(), 0).timeout(secs(20)).await;
        assert!(end.is_ok(), "{prefix}{key} cannot be reached any more: {end:?}");
    }
    judge(&log, &prefix, true);
}
