//! R8: a turn that has begun on a silo that lives on runs to its end.
//!
//! A turn notes its beginning and its end. If it is dropped in between, that is noted with its
//! silo. The part that knows which silos live judges it, before anything happens to them. A panic
//! of the grain's own code counts as an end.

use std::cell::RefCell;
use std::collections::BTreeMap;

use emmer::test::Cluster;

use crate::idle::{self, Inside};
use crate::ledger;

/// The turns of one silo that have not ended, by call.
#[derive(Default)]
struct Turns {
    running: BTreeMap<u64, String>,
    dropped: BTreeMap<u64, String>,
}

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::default();
}

/// Forgets everything.
pub(crate) fn open() {
    TURNS.take();
}

/// A turn that has begun.
pub(crate) struct Turn {
    call: u64,
    has_ended: bool,
    _inside: Inside,
}

impl Turn {
    /// The turn of this call begins on this silo.
    pub(crate) fn begins(call: u64, grain: u64, silo: String) -> Self {
        TURNS.with_borrow_mut(|turns| turns.running.insert(call, silo));
        Self { call, has_ended: false, _inside: idle::enters(grain) }
    }

    /// Its last line is done.
    pub(crate) fn ends(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let was_dropped = !self.has_ended && !std::thread::panicking();
        TURNS.with_borrow_mut(|turns| {
            let silo = turns.running.remove(&self.call);
            if let Some(silo) = silo.filter(|_| was_dropped) {
                turns.dropped.insert(self.call, silo);
            }
        });
    }
}

/// Judges the dropped turns so far. Every silo runs now; ended ones are excused.
pub(crate) fn judge(cluster: &Cluster) {
    let dropped = TURNS.with_borrow_mut(|turns| std::mem::take(&mut turns.dropped));
    let living: Vec<String> = living(cluster).collect();
    for (call, silo) in dropped {
        if living.contains(&silo) {
            ledger::violate(
                "R8",
                format!("call {call} had begun on {silo}, and was dropped half way"),
            );
        }
    }
}

/// Judges turns that have not ended although all is quiet.
pub(crate) fn judge_rest(cluster: &Cluster) {
    let running = TURNS.with_borrow(|turns| turns.running.clone());
    let living: Vec<String> = living(cluster).collect();
    for (call, silo) in running {
        if living.contains(&silo) {
            ledger::violate("R8", format!("call {call} has begun on {silo}, and does not end"));
        }
    }
}

fn living(cluster: &Cluster) -> impl Iterator<Item = String> + '_ {
    cluster.nodes().iter().filter(|node| !node.has_ended()).map(|node| node.address().to_string())
}
