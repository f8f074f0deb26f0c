//! R10: one-way calls of one silo to one grain begin in the order in which they were made, also
//! while the grain moves.
//!
//! As docs/calls.md says it: calls that waited in the queue of an activation that ends keep no
//! order. A grain tells when an activation of it ends; from then on its queue is emptied, for a
//! while that is not seen from here.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::ledger;

/// Time after an activation has dropped its grain for which it may still have a queue: it gives its
/// registration back. Without faults it takes far less.
const AFTER_ITS_END: Duration = Duration::from_secs(2);

/// A call that was made and has not begun.
struct Sent {
    silo: String,
    grain: u64,
    at: Instant,
    number: u64,
}

#[derive(Default)]
struct Orders {
    numbers: u64,
    sent: BTreeMap<u64, Sent>,
    /// The last one that has begun, by silo and grain.
    last: BTreeMap<(String, u64), u64>,
    /// The grain of each activation.
    grains: BTreeMap<u64, u64>,
    /// When an activation of a grain was last about to end.
    ended: BTreeMap<u64, Instant>,
}

thread_local! {
    static ORDERS: RefCell<Orders> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    ORDERS.take();
}

/// An activation of a grain begins.
pub(crate) fn activates(grain: u64, activation: u64) {
    ORDERS.with_borrow_mut(|orders| orders.grains.insert(activation, grain));
}

/// A grain has moved from one activation to another. Its queue moves with it, in order.
pub(crate) fn moves(grain: u64, from: u64, to: u64) {
    ORDERS.with_borrow_mut(|orders| {
        orders.grains.remove(&from);
        orders.grains.insert(to, grain);
    });
}

/// An activation is about to end, or has ended.
pub(crate) fn ends(activation: u64) {
    ORDERS.with_borrow_mut(|orders| {
        if let Some(grain) = orders.grains.get(&activation) {
            orders.ended.insert(*grain, Instant::now());
        }
    });
}

/// A grain on `silo` is about to send a call.
pub(crate) fn sends(call: u64, silo: String, grain: u64) {
    ORDERS.with_borrow_mut(|orders| {
        orders.numbers += 1;
        orders.sent.insert(call, Sent { silo, grain, at: Instant::now(), number: orders.numbers });
    });
}

/// A call begins. `is_judged`: nothing in this world breaks connections.
pub(crate) fn begins(call: u64, is_judged: bool) {
    let broken = ORDERS.with_borrow_mut(|orders| {
        let Sent { silo, grain, at, number } = orders.sent.remove(&call)?;
        let is_excused = orders.ended.get(&grain).is_some_and(|ended| at < *ended + AFTER_ITS_END);
        let last = orders.last.entry((silo.clone(), grain)).or_default();
        let is_late = *last > number;
        *last = number.max(*last);
        let what = || {
            format!("call {call} of {silo} to grain {grain} begins after one that was made later")
        };
        (is_judged && is_late && !is_excused).then(what)
    });
    if let Some(what) = broken {
        ledger::violate("R10", what);
    }
}
