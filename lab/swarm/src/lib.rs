//! The swarm of the runtime: whole clusters of real silos in virtual time, grains that do anything,
//! callers that give up, faults of every kind, all from one seed; and a [`ledger`] that judges the
//! results.
//!
//! | rule | what it says | where |
//! |---|---|---|
//! | R1 | once an activation of a grain has run, no earlier one of the same grain runs: every poll of every turn counts | `ledger.rs` |
//! | R2 | no call runs twice | `ledger.rs` |
//! | R3 | a call that its caller was told has not run has not run, and never runs | `ledger.rs` |
//! | R4 | a call ends by its deadline and a tick | `callers.rs` |
//! | R5 | what was stored is there, and nothing else | `quiet.rs` |
//! | R6 | when all is quiet, nothing is left behind: activations, tasks, connections | `quiet.rs` |
//! | R7 | the runtime's own code does not panic | `run.rs` |
//! | R8 | a turn that has begun on a silo that goes on living runs to its end | `turns.rs` |
//! | R9 | a call that certainly did not run is tried again until its deadline; all succeed when all is quiet | `patience.rs`, `peace.rs` |
//! | R10 | calls of one silo to one grain that nobody awaits begin in their order | `order.rs` |
//! | R11 | a circle of calls is told as a deadlock, within a second in which nothing is broken | `circles.rs` |
//! | R12 | when all is quiet, the directory names no activation that is gone | `quiet.rs` |
//! | R13 | no call runs out of time in front of a grain that is free | `idle.rs` |
//! | R14 | an activation that has asked to go lets nobody in who comes later | `idle.rs` |
//! | R15 | a grain's queue has its limit | `idle.rs` |
//! | R16 | whoever waits for a silo that is dead is told as soon as the others know | `death.rs` |
//! | R17 | a silo that leaves has left within its time | `leaving.rs` |
//! | R18 | a grain that moves remembers every turn that has run, and no other | `ledger.rs` |
//! | R19 | the timer of a grain ticks no sooner than its period, wherever the grain is | `moves.rs` |
//! | R20 | a grain that refuses to move stays | `moves.rs` |
//! | R21 | where nothing breaks, no write of a grain's state meets another | `moves.rs` |
//!
//! ```text
//! cargo run --profile sim -p emmer-swarm --example runtime -- 0 100
//! ```

mod answers;
mod callers;
mod circles;
mod death;
mod faults;
mod idle;
mod kinds;
mod leaving;
pub mod ledger;
mod moves;
mod order;
mod orders;
mod patience;
mod peace;
mod plan;
mod quiet;
mod run;
mod shrink;
mod subject;
mod turns;

pub use self::plan::Plan;
pub use self::run::{Report, run};
pub use self::shrink::shrink;
