//! A new version of a state is rolled out under load: no call fails, and no write is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use emmer::prelude::*;
use emmer::test::{Cluster, World};

mod v1 {
    use emmer::prelude::*;

    #[grain_interface(key = String)]
    pub trait Cart {
        async fn touch(&mut self) -> emmer::Result<u64>;
    }

    #[derive(Grain)]
    #[grain(idle = "1s")]
    #[placement(random)]
    pub struct CartGrain {
        #[state("cart")]
        cart: Persistent<u64>,
    }

    #[grain]
    impl Cart for CartGrain {
        async fn touch(&mut self) -> emmer::Result<u64> {
            *self.cart += 1;
            self.cart.write().await?;
            Ok(*self.cart)
        }
    }
}

mod v2 {
    use emmer::prelude::*;
    use emmer::state::{Migrate, StoredState};
    use serde::{Deserialize, Serialize};

    use super::v1::Cart;

    #[derive(Default, Serialize, Deserialize)]
    pub struct Touches {
        count: u64,
        last: String,
    }

    impl Migrate for Touches {
        fn migrate(_from: u32, old: StoredState<'_>) -> emmer::Result<Self> {
            Ok(Self { count: old.decode()?, last: String::new() })
        }
    }

    #[derive(Grain)]
    #[grain(idle = "1s")]
    #[placement(random)]
    pub struct CartGrain {
        #[state("cart", version = 2)]
        cart: Persistent<Touches>,
    }

    #[grain]
    impl Cart for CartGrain {
        async fn touch(&mut self) -> emmer::Result<u64> {
            self.cart.count += 1;
            self.cart.last = "today".to_owned();
            self.cart.write().await?;
            Ok(self.cart.count)
        }
    }
}

const CARTS: u64 = 40;

fn older(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn v1::Cart, v1::CartGrain>()
        .configure(|o| o.collection_quantum = Some(millis(500)))
}

fn newer(silo: emmer::SiloBuilder) -> emmer::SiloBuilder {
    silo.host::<dyn v1::Cart, v2::CartGrain>()
        .configure(|o| o.collection_quantum = Some(millis(500)))
}

/// Touches all carts, again and again until `stop`. Returns the number of touches of each.
async fn touch_until(stop: Arc<AtomicBool>, client: Client, pause: u64) -> u64 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for n in 0..CARTS {
            let touched = client.grain::<dyn v1::Cart>(n.to_string()).touch().await;
            assert_eq!(touched.unwrap(), rounds + 1, "cart {n}");
        }
        rounds += 1;
        tokio::time::sleep(millis(pause)).await;
    }
    rounds
}

async fn under_load(
    cluster: &Cluster,
    pause: u64,
) -> (Arc<AtomicBool>, tokio::task::JoinHandle<u64>) {
    let (stop, client) = (Arc::new(AtomicBool::new(false)), cluster.client().await);
    (stop.clone(), tokio::spawn(touch_until(stop, client, pause)))
}

/// One silo after the other leaves and comes back with the new version.
#[emmer::test(seeds = 6)]
async fn a_new_version_of_a_state_is_rolled_out_without_a_failed_call(world: World) {
    let mut cluster = world.cluster(3, older).await;
    // Grains are idle in between, or never.
    let (stop, load) = under_load(&cluster, [2_500, 20][(world.seed() % 2) as usize]).await;
    world.advance(secs(5)).await;
    cluster.describe(newer);
    for n in 0..3 {
        cluster.stop(n).await;
        world.advance(secs(3)).await;
        cluster.restart(n).await;
        world.advance(secs(8)).await;
    }
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 5);
}

/// The versions run side by side for as long as one likes.
#[emmer::test(seeds = 6)]
async fn older_silos_activate_nothing_that_newer_ones_have_written(world: World) {
    let mut cluster = world.cluster(2, older).await;
    let (stop, load) = under_load(&cluster, 2_500).await;
    world.advance(secs(5)).await;
    cluster.describe(newer);
    cluster.add().await;
    world.advance(secs(40)).await;
    let on = |node: usize| cluster.node(node).statistics().activations;
    assert_eq!((on(0), on(1)), (0, 0));
    stop.store(true, Ordering::Relaxed);
    assert!(load.await.unwrap() > 10);
}

/// A state that is newer than every silo is refused, and the error says so.
#[emmer::test]
async fn a_state_that_no_silo_knows_is_refused_in_words(world: World) {
    let mut cluster = world.cluster(1, newer).await;
    let client = cluster.client().await;
    client.grain::<dyn v1::Cart>("a").touch().await.unwrap();
    cluster.stop(0).await;
    cluster.describe(older);
    cluster.add().await;
    let error = client.grain::<dyn v1::Cart>("a").touch().await.unwrap_err().to_string();
    let words = "was stored by version 2, and this program knows version 1: no silo of the cluster";
    assert!(error.contains(words), "{error}");
}
