//! Models of lock-free code between threads of one silo. loom tries every order, with every value
//! that a relaxed load may see. Each model comes with planted bugs that it has to find.
//!
//! A model has the same steps with the same orderings on loom's atomics, apart from the code, which
//! uses parking_lot's locks and std's atomics. A change of an ordering there needs the same change
//! here.
//!
//! | model | of | what must hold |
//! |---|---|---|
//! | `gate` | `hosting/gate`: the lock that is only tried, the count of those who wait, the queue | nobody is inside beside a turn that is alone, nobody sleeps for ever |
//! | `counters` | `metrics/threads.rs`: cells with an owner, numbers that go from thread to thread | nothing is lost |
//! | `budget` | `net/pending.rs`: room for calls that all connections share | the limit holds, and all room comes back |
//!
//! Not modelled, because it is not lock-free: the slab of pending calls and the buffer that callers
//! and driver share lie under one mutex (`Connection::shared`), and so do the driver's sleep and
//! its waker. The flags next to it only repeat the state under it, or are hints (`active`, `roomy`,
//! `rest`, `answered`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(test)]
mod budget;
#[cfg(test)]
mod counters;
#[cfg(test)]
mod gate;
