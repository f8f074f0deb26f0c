//! A connection between two silos breaks while both live.

use std::future::IntoFuture;

use emmer::prelude::*;
use emmer::test::World;

#[grain_interface(key = u64)]
trait Asker {
    /// Calls others, and keeps how many answered, and after how many milliseconds all had ended.
    async fn ask(&mut self, from: u64, to: u64);
    async fn asked(&self) -> (u64, u64);
    async fn answer(&mut self);
}

#[derive(Grain, Default)]
struct AskerGrain {
    asked: (u64, u64),
    #[context]
    ctx: Option<Ctx>,
}

#[grain]
impl Asker for AskerGrain {
    async fn ask(&mut self, from: u64, to: u64) {
        let client = self.ctx.as_ref().unwrap().grains().clone();
        let begun = tokio::time::Instant::now();
        let calls = (from..to).map(|key| client.grain::<dyn Asker>(key).answer().into_future());
        let answers = futures_util::future::join_all(calls).await;
        let well = answers.iter().filter(|answer| answer.is_ok()).count();
        self.asked = (well as u64, begun.elapsed().as_millis() as u64);
    }

    async fn asked(&self) -> (u64, u64) {
        self.asked
    }

    async fn answer(&mut self) {}
}

/// Calls look for their grains while the connection to the owner breaks: they ask again over the
/// next connection, and not after a second.
#[emmer::test(seeds = 10)]
async fn a_connection_that_breaks_delays_no_search_for_a_grain(world: World) {
    let cluster = world.cluster(2, |silo| silo.host::<dyn Asker, AskerGrain>()).await;
    let client = cluster.client().await;
    let asker = client.grain::<dyn Asker>(0);
    asker.ask(0, 0).await.unwrap();
    asker.ask(1, 200).send().unwrap();
    world.advance(millis(3)).await;
    let ip = |n: usize| cluster.node(n).address().endpoint().ip();
    world.net().reset(ip(0), ip(1));
    let (well, took) = asker.asked().await.unwrap();
    // Calls that were sent to their grain may have been executed.
    assert!((1..200).contains(&well), "{well}");
    assert!(took < 500, "{took} ms");
}
