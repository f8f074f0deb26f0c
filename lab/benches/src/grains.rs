//! The grains that are called.

use bytes::Bytes;
use emmer::{Ctx, Grain, Persistent, StateError, grain, grain_interface};

/// A grain with 16 bytes of state in memory.
#[grain_interface(key = u64, grain = "bench-cell")]
pub trait Cell {
    /// Counts a turn, and answers with one more than `n`.
    async fn bump(&mut self, n: u64) -> u64;
    /// Number of turns that were counted.
    async fn turns(&self) -> u64;
}

/// See [`Cell`].
#[derive(Grain, Debug)]
pub struct CellGrain {
    turns: u64,
    last: u64,
}

#[grain]
impl Cell for CellGrain {
    async fn bump(&mut self, n: u64) -> u64 {
        self.turns += 1;
        self.last = n;
        self.last + 1
    }

    async fn turns(&self) -> u64 {
        self.turns
    }
}

/// A grain whose 16 bytes of state are read from the system store when it is activated.
#[grain_interface(key = u64, grain = "bench-stored-cell")]
pub trait StoredCell {
    /// As [`Cell::bump`]; in memory only.
    async fn bump(&mut self, n: u64) -> u64;
}

/// See [`StoredCell`].
#[derive(Grain)]
pub struct StoredCellGrain {
    #[state("cell")]
    cell: Persistent<[u64; 2]>,
}

#[grain]
impl StoredCell for StoredCellGrain {
    async fn bump(&mut self, n: u64) -> u64 {
        self.cell.modify(|cell| *cell = [cell[0] + 1, n]);
        n + 1
    }
}

/// A grain that writes its state.
#[grain_interface(key = u64, grain = "bench-counter")]
pub trait Counter {
    /// Adds `n`, writes the sum, and answers with it.
    async fn add(&mut self, n: u64) -> Result<u64, StateError>;
    /// The sum.
    async fn total(&self) -> u64;
}

/// See [`Counter`].
#[derive(Grain)]
pub struct CounterGrain {
    #[state("total")]
    total: Persistent<u64>,
}

#[grain]
impl Counter for CounterGrain {
    async fn add(&mut self, n: u64) -> Result<u64, StateError> {
        *self.total += n;
        self.total.write().await?;
        Ok(*self.total)
    }

    async fn total(&self) -> u64 {
        *self.total
    }
}

/// A grain that returns its argument.
#[grain_interface(key = u64, grain = "bench-echo")]
pub trait Echo {
    /// The body.
    async fn echo(&mut self, body: Bytes) -> Bytes;
    /// The silo it is on.
    async fn place(&self) -> String;
}

/// See [`Echo`].
#[derive(Grain)]
pub struct EchoGrain {
    #[context]
    ctx: Ctx,
    turns: u64,
}

#[grain]
impl Echo for EchoGrain {
    async fn echo(&mut self, body: Bytes) -> Bytes {
        self.turns += 1;
        body
    }

    async fn place(&self) -> String {
        self.ctx.silo().map(|silo| silo.to_string()).unwrap_or_default()
    }
}
