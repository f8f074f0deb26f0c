//! One line in the log for each call.

use std::time::Instant;

use emmer::filters::{Filter, FilterCall, Next, Outcome};
use emmer_example_shop_api::CUSTOMER;

/// Logs each call: its grain, its method, its duration and its result.
#[derive(Clone, Copy, Debug)]
pub struct Log;

impl Filter for Log {
    async fn call(&self, call: FilterCall, next: Next<'_>) -> Outcome {
        let customer = call.get(&CUSTOMER).unwrap_or_default();
        let (interface, method, key) = (call.interface(), call.method(), call.key().clone());
        let begun = Instant::now();
        let outcome = next.run(call).await;
        let took = begun.elapsed();
        tracing::info!(target: "shop", "{interface}.{method} {key} for {customer:?}: {outcome}, {took:?}");
        outcome
    }
}
