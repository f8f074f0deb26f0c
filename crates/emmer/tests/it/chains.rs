//! Long chains of calls: one turn calls the next grain, whose turn calls the next.

use emmer::prelude::*;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// The calls that turns make in the longest chain: 64 turns wait, and one answers.
const LENGTH: u64 = 64;

#[grain_interface(key = u64)]
trait Link {
    /// Calls its neighbour until `left` is 0, and counts the calls.
    async fn pull(&mut self, left: u64) -> Result<u64, String>;
    /// Calls as `pull` does, but each turn holds its thread until the call is answered.
    async fn haul(&mut self, left: u64) -> Result<u64, String>;
}

#[derive(Grain)]
struct LinkGrain {
    #[context]
    ctx: Ctx,
}

#[grain]
impl Link for LinkGrain {
    async fn pull(&mut self, left: u64) -> Result<u64, String> {
        if left == 0 {
            return Ok(0);
        }
        let next = self.ctx.grains().grain::<dyn Link>(left);
        next.pull(left - 1).await.map(|below| below + 1).map_err(|error| error.to_string())
    }

    async fn haul(&mut self, left: u64) -> Result<u64, String> {
        if left == 0 {
            return Ok(0);
        }
        let next = self.ctx.grains().grain::<dyn Link>(left);
        let hauled =
            block_in_place(|| Handle::current().block_on(async { next.haul(left - 1).await }));
        hauled.map(|below| below + 1).map_err(|error| error.to_string())
    }
}

/// Runs a test of one silo on threads with half of the usual stack.
fn on_small_stacks<F: Future<Output = ()> + Send + 'static>(
    test: impl FnOnce(Silo) -> F + Send + 'static,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(1024 * 1024)
        .enable_all()
        .build()
        .unwrap();
    let ran = runtime.spawn(async {
        let silo = Silo::builder().store("memory://").host::<dyn Link, LinkGrain>();
        test(silo.start().await.unwrap()).await;
    });
    runtime.block_on(ran).unwrap();
}

/// Every turn would need its stack space on one stack, if each ran inside its caller.
#[test]
fn a_chain_as_long_as_chains_may_be_fits_on_a_small_stack() {
    on_small_stacks(|silo| async move {
        // Grains that are not there yet, then grains that are.
        for _ in 0..2 {
            let first = silo.grain::<dyn Link>(LENGTH + 1);
            assert_eq!(first.pull(LENGTH).await, Ok(LENGTH));
        }
        let longer = silo.grain::<dyn Link>(LENGTH + 2).pull(LENGTH + 1).await;
        assert!(
            matches!(longer, Err(CallError::App(text)) if text.contains("64")),
            "one more is rejected"
        );
        silo.stop().await.unwrap();
    });
}

/// A thread that waits for a call on the spot keeps the stack from unwinding.
#[test]
fn a_chain_of_turns_that_hold_their_thread_goes_on() {
    on_small_stacks(|silo| async move {
        assert_eq!(silo.grain::<dyn Link>(0).haul(12).await, Ok(12));
        silo.stop().await.unwrap();
    });
}

/// In virtual time.
#[cfg(feature = "test")]
mod searches {
    use std::future::IntoFuture;

    use emmer::metrics::MetricValue;
    use emmer::prelude::*;
    use emmer::test::{Cluster, World};

    /// The turns of a chain.
    const LENGTH: u64 = 60;

    #[grain_interface(key = u64)]
    trait Node {
        /// Calls the next grain. The last one takes its time.
        async fn hold(&mut self) -> u64;
        /// Calls a grain of the chain, and waits in front of it.
        async fn poke(&mut self, at: u64) -> u64;
    }

    #[derive(Grain)]
    #[placement(hash_based)]
    struct NodeGrain {
        #[context]
        ctx: Ctx,
    }

    #[grain]
    impl Node for NodeGrain {
        async fn hold(&mut self) -> u64 {
            let at: u64 = self.ctx.key().to_string().parse().unwrap();
            if at >= LENGTH {
                tokio::time::sleep(secs(4)).await;
                return at;
            }
            self.ctx.grains().grain::<dyn Node>(at + 1).hold().await.unwrap()
        }

        async fn poke(&mut self, at: u64) -> u64 {
            self.ctx.grains().grain::<dyn Node>(at).hold().await.unwrap()
        }
    }

    /// The bytes that silos have sent.
    fn sent(cluster: &Cluster) -> u64 {
        let samples = cluster.nodes().iter().flat_map(|node| node.watch().metrics());
        let sent = samples.filter_map(|sample| match sample.value {
            MetricValue::Count(bytes) if sample.metric.name == "emmer_bytes_total" => {
                (sample.labels == ["sent"]).then_some(bytes)
            }
            _ => None,
        });
        sent.sum()
    }

    /// Each search for circles goes through all that a call waits for. Here sixty of them would
    /// each go through most of the chain, twenty times in a second.
    #[emmer::test]
    async fn searches_for_circles_do_not_fill_the_connections(world: World) {
        let cluster = world.cluster(2, |silo| silo.host::<dyn Node, NodeGrain>()).await;
        let client = cluster.client().await;
        let node = |key: u64| client.grain::<dyn Node>(key);
        let first = tokio::spawn(node(1).hold().into_future());
        world.advance(millis(500)).await;
        let pokes: Vec<_> =
            (1..=LENGTH).map(|at| tokio::spawn(node(10_000 + at).poke(at).into_future())).collect();
        world.advance(millis(500)).await;
        let before = sent(&cluster);
        world.advance(secs(1)).await;
        let bytes = sent(&cluster) - before;
        assert!(bytes < 8_000_000, "{bytes} bytes in a second");
        drop((first, pokes));
    }
}
