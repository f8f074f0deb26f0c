//! Long chains of calls: one turn calls the next grain, whose turn calls the next.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test fails by panicking")]

use emmer::prelude::*;

#[grain_interface(key = u64)]
trait Link {
    /// Calls its neighbour until `left` is 0, and counts the calls.
    async fn pull(&mut self, left: u64) -> Result<u64, String>;
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
        let next = self.ctx.client().grain::<dyn Link>(left);
        next.pull(left - 1).await.map(|below| below + 1).map_err(|error| error.to_string())
    }
}

/// The longest chain that a call may have. Every turn would need its room on one stack, if each was run inside the one
/// that calls it; a thread has a tenth of the usual room here.
#[test]
fn a_chain_as_long_as_chains_may_be_fits_on_a_small_stack() {
    const LENGTH: u64 = 63;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(1024 * 1024)
        .enable_all()
        .build()
        .unwrap();
    let walked = runtime.spawn(async {
        let silo = Silo::builder().store("memory://chains").host::<dyn Link, LinkGrain>();
        let silo = silo.start().await.unwrap();
        let mut walked = Vec::new();
        // Grains that are not there yet, then grains that are.
        for _ in 0..2 {
            walked.push(silo.client().grain::<dyn Link>(LENGTH + 1).pull(LENGTH).await.unwrap());
        }
        silo.stop().await.unwrap();
        walked
    });
    assert_eq!(runtime.block_on(walked).unwrap(), [LENGTH, LENGTH]);
}
