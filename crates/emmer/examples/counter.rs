//! A silo that hosts counters, and a call to one of them.

use emmer::prelude::*;

/// A number that only grows.
#[grain_interface(key = String)] // may live in a crate of its own, shared with clients
pub trait Counter {
    /// Adds `n` and returns the new total.
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    /// The total. With `&self`: it may run during other reads.
    async fn total(&self) -> u64;
}

#[derive(Grain, Default)]
#[placement(prefer_local)]
struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        *self.total += n;
        self.total.write().await?; // etag-checked
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }
}

#[emmer::main] // exit code 86: declared dead, start it again
async fn main() -> emmer::Result<()> {
    let silo = Silo::builder()
        .store("sqlite://cluster.db")
        .host::<dyn Counter, CounterGrain>()
        .start()
        .await?;
    let home = silo.grain::<dyn Counter>("home");
    println!("total = {}", home.add(1).timeout(secs(2)).await?);
    silo.run_until_stopped().await?; // Ctrl-C, SIGTERM
    Ok(())
}
