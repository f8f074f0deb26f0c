//! Models of what threads of one silo do to each other without a lock, tried in every order by
//! loom, with every value that a relaxed load may see. Each comes with planted bugs that it has to
//! find.
//!
//! They are models: the same steps with the same orderings on loom's atomics, written apart from
//! the code, which uses parking_lot's locks and std's atomics. Who changes an ordering there
//! changes it here.
//!
//! | model | of | what must hold |
//! |---|---|---|
//! | `gate` | `hosting/gate`: the lock that is only tried, the count of those who wait, the queue | nobody is inside beside a turn that is alone, nobody sleeps for ever |
//! | `counters` | `metrics/threads.rs`: cells with an owner, numbers that go from thread to thread | nothing is lost |
//! | `budget` | `net/pending.rs`: room for calls that all connections share | the limit holds, and all room comes back |
//!
//! Not modelled, because nothing in it is lock-free: the slab of pending calls itself and the
//! buffer that callers and driver share lie under one mutex (`Connection::shared`), the driver's
//! sleep and its waker too. The flags next to it only repeat what is under it, or are hints
//! (`active`, `roomy`, `rest`, `answered`).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(test)]
mod budget;
#[cfg(test)]
mod counters;
#[cfg(test)]
mod gate;
