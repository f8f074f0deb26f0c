//! The turns of a silo that have made a call and wait.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmer_core::GrainId;
use emmer_net::numbers::NumberMap;
use emmer_net::world;
use parking_lot::Mutex;

use super::graph::Graph;
use crate::turn::Asker;

/// Locks that the list of turns is divided over.
const SHARDS: usize = 16;

/// The number of a turn that makes a call, never 0. Each thread counts from a random number, from a
/// range so large that no two threads of a cluster meet.
#[inline]
pub(crate) fn next_turn() -> u64 {
    if let Some(number) = world::number_of_host() {
        return number.max(1);
    }
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    let next = match NEXT.get() {
        0 => first_turn(),
        next => next,
    };
    NEXT.set(next.wrapping_add(1));
    next
}

#[cold]
fn first_turn() -> u64 {
    world::random_bits().max(1)
}

/// A turn that has made a call and waits.
pub(crate) struct Listed {
    /// Its number.
    pub(crate) id: u64,
    /// The turn that made the call that it answers; 0 without one.
    pub(crate) caller: u64,
    /// The number of the activation that it runs on.
    pub(crate) gate: u64,
    /// True if it holds its grain.
    pub(crate) holds: bool,
    pub(crate) type_name: &'static str,
    pub(crate) grain: GrainId,
}

impl Listed {
    /// The grain's type and key, for people.
    pub(super) fn title(&self) -> String {
        format!("{}/{}", self.type_name, self.grain.key())
    }
}

/// A turn in the list, and the caller that waits for it where one is known.
type Entry = Arc<(Listed, Mutex<Option<Arc<Asker>>>)>;

/// List of these turns.
#[derive(Default)]
pub(super) struct Turns {
    shards: [Mutex<NumberMap<u64, Entry>>; SHARDS],
    listed: AtomicUsize,
}

impl Turns {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    const fn shard(&self, turn: u64) -> &Mutex<NumberMap<u64, Entry>> {
        &self.shards[turn as usize % SHARDS]
    }

    /// Lists a turn, whose call `asker` waits for.
    pub(super) fn list(self: &Arc<Self>, turn: Listed, asker: Option<Arc<Asker>>) -> Listing {
        let id = turn.id;
        let turn = Arc::new((turn, Mutex::new(asker)));
        self.shard(id).lock().insert(id, turn.clone());
        self.listed.fetch_add(1, Ordering::Relaxed);
        Listing { turns: self.clone(), turn }
    }

    /// Returns true if the list is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.listed.load(Ordering::Relaxed) == 0
    }

    /// The things that `take` takes from the listed turns.
    pub(super) fn find<T>(&self, take: impl Fn(&Listed) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().values().filter_map(|turn| take(&turn.0)));
        }
        found
    }

    /// Adds every listed turn to `graph`.
    pub(super) fn add_to(&self, graph: &mut Graph) {
        for shard in &self.shards {
            for turn in shard.lock().values() {
                let (turn, asker) = &**turn;
                let asked = asker.lock().as_ref().is_some_and(|asker| asker.waits());
                let caller = (asked && turn.caller != 0).then_some(turn.caller);
                let gate = turn.holds.then_some(turn.gate);
                graph.add_turn(turn.id, caller, gate, turn.title());
            }
        }
    }
}

/// A turn's place in the list. Dropping it takes the turn out.
pub(crate) struct Listing {
    turns: Arc<Turns>,
    turn: Entry,
}

impl Listing {
    /// Records the caller that waits for the turn.
    pub(crate) fn asked_by(&self, asker: Arc<Asker>) {
        *self.turn.1.lock() = Some(asker);
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let id = self.turn.0.id;
        let gone = self.turns.shard(id).lock().remove(&id);
        self.turns.listed.fetch_sub(1, Ordering::Relaxed);
        drop(gone);
    }
}
