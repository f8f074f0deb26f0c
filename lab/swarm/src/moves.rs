//! R19 to R21: what a grain keeps and decides when it moves. Its timer ticks no sooner, a grain
//! that refuses stays, and its states are written on top of what is stored.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer::prelude::*;
use tokio::time::Instant;

use crate::ledger;

/// Period of the timer that each grain has.
pub(crate) const PERIOD: Duration = Duration::from_millis(1_500);

/// Shortest time between two ticks of one life: the steps of timers differ from silo to silo.
const LEAST: Duration = Duration::from_millis(1_480);

#[derive(Default)]
struct Book {
    /// The last tick of each life.
    ticked: BTreeMap<u64, Instant>,
    /// Activations that refused when they were asked last.
    refused: BTreeSet<u64>,
}

thread_local! {
    static BOOK: RefCell<Book> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    BOOK.take();
}

/// The timer of a grain ticks.
pub(crate) fn ticks(grain: u64, life: u64) {
    let now = Instant::now();
    let last = BOOK.with_borrow_mut(|book| book.ticked.insert(life, now));
    ledger::reach("a tick of a timer");
    if let Some(after) = last.map(|last| now - last).filter(|after| *after < LEAST) {
        let what = format!("the timer of grain {grain} ticks again after {after:?} of {PERIOD:?}");
        ledger::violate("R19", what);
    }
}

/// An activation is asked whether its grain may move.
pub(crate) fn answers(activation: u64, may: bool) {
    BOOK.with_borrow_mut(|book| {
        if may {
            book.refused.remove(&activation);
        } else {
            book.refused.insert(activation);
        }
    });
}

/// A grain has come from the activation `from`.
pub(crate) fn arrives(grain: u64, from: u64) {
    if BOOK.with_borrow(|book| book.refused.contains(&from)) {
        ledger::violate("R20", format!("grain {grain} has moved although it refused"));
    }
}

/// A write of a grain's state has ended. In a world without faults no other activation writes it.
pub(crate) fn writes(grain: u64, written: &Result<(), StateError>) {
    if let Err(error @ StateError::EtagMismatch { .. }) = written
        && ledger::is_whole()
    {
        ledger::violate("R21", format!("a write of grain {grain} met another: {error}"));
    }
}
