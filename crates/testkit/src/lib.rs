//! Tests of grains without waiting: real silos, real clients, in one thread, in virtual time, from
//! a seed.
//!
//! Nothing of Emmer is replaced. The silos run the membership protocol, the directory, activations,
//! turns and the wire as in production. Only clocks, sockets, tasks, chance and the store are
//! virtual. So a test can let a day pass, kill a silo, cut the network or take the store away, and
//! does the same things each time.
//!
//! Applications use it as `emmer::test`, with the feature `test` of `emmer`.

mod alone;
mod calls;
mod cluster;
mod pace;
mod run;
mod store;
mod world;

pub use emmer_virtual::{CallFault, HostClock, NetModel};

pub use self::alone::Alone;
pub use self::calls::Calls;
pub use self::cluster::{Cluster, Node};
pub use self::pace::at_rest;
pub use self::run::{Ended, SEED_VARIABLE, run, run_seed};
pub use self::store::{Failure, TestStore};
pub use self::world::World;

/// `n` hours, for time that passes: `world.advance(hours(24))`.
pub const fn hours(n: u64) -> std::time::Duration {
    std::time::Duration::from_secs(n * 3_600)
}
