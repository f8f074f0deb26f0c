//! A planned switchover: another server takes the service's address. The earlier one keeps its
//! connections and refuses writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use emmer_store::{Mutation, SystemStore};

use super::rows::{NUMBERS, row};

/// Longest time until a store writes to the new server.
const WITHIN: Duration = Duration::from_secs(5);

/// Writes until the store has found the new server; `store` is connected to one that only reads, at
/// an address that leads to the new one now.
///
/// # Panics
/// No write succeeds within five seconds.
pub async fn finds_the_new_server(store: &Arc<dyn SystemStore>) {
    let begun = Instant::now();
    loop {
        let write = vec![Mutation::Upsert { row: row("switched", 1) }];
        match store.commit(&NUMBERS, "p", write).await {
            Ok(emmer_store::CommitOutcome::Committed(_)) => return,
            other => assert!(begun.elapsed() < WITHIN, "{other:?}"),
        }
    }
}
