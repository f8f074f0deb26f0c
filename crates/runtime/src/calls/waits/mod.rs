//! Who waits for whom, and how circles of waiting calls are found.
//!
//! A turn that has made a call and suspends is listed here; a call that waits for its grain stands
//! in the grain's queue with the number of the turn that made it; a call to another silo has that
//! number where it waits for its answer. Together they are this silo's part of the graph of waits.
//! Nobody looks at it while no call waits for long.
//!
//! A call that has waited for [`PATIENCE`] is looked at: from the turns inside its grain to the
//! calls that they wait for, and so on ([`graph`]), with a probe to each silo that such a call was
//! sent to ([`look`]); often while the call is a new one, and four times a second from then on. If
//! the search comes back to the turn that made the call, that is a circle. It is believed when the
//! next search finds the same one, edge for edge: no edge is ever made again, so all of them stood
//! at the moment between the two ([`searches`]).

mod graph;
mod look;
mod searches;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::SiloAddress;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use self::graph::Path;
use self::searches::{Answered, Searches};
use crate::hosting::Activation;
use crate::turn::Asker;
use emmer_net::clock::CoarseInstant;
use emmer_net::numbers::NumberMap;
use emmer_net::world;

/// A call that has waited for so long for its grain is looked at.
const PATIENCE: Duration = Duration::from_millis(200);

/// How often this silo looks at calls that have waited for long.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Two looks after its patience has ended a circle on one silo is known, and long before a second
/// if others have a part in it.
const _: () = assert!(PATIENCE.as_millis() + 3 * LOOK_EVERY.as_millis() <= 400);

/// Messages of other silos that wait for the next tick; more are dropped: a search is made again
/// and again.
const INBOX_MAX: usize = 1_024;

/// Locks that the list of turns is divided over.
const SHARDS: usize = 16;

/// A call that waits for its grain, behind turns that stand in its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Its place in the queue; no other one has it, ever.
    pub(crate) ticket: u64,
    /// The turn that made the call.
    pub(crate) caller: u64,
    pub(crate) since: CoarseInstant,
    /// One of the turns behind the call may stand in its way: it is looked at without patience.
    pub(crate) suspect: bool,
}

/// The number of a turn that makes a call, never 0. Each thread counts from a number of its own,
/// drawn at random from so many that no two threads of a cluster come near each other.
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
    id: u64,
    /// The turn that made the call that it answers; 0 when there is none.
    caller: u64,
    asker: Mutex<Option<Arc<Asker>>>,
    activation: Arc<Activation>,
    /// Whether it holds its grain.
    holds: bool,
}

/// A turn's place in the list. Dropping it takes the turn out.
pub(crate) struct Listing {
    waits: Arc<Waits>,
    turn: Arc<Listed>,
}

impl Listing {
    /// Notes who waits for the turn.
    pub(crate) fn asked_by(&self, asker: Arc<Asker>) {
        *self.turn.asker.lock() = Some(asker);
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let gone = self.waits.shard(self.turn.id).lock().remove(&self.turn.id);
        self.waits.listed.fetch_sub(1, Ordering::Relaxed);
        drop(gone);
    }
}

/// What silos say to each other about waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WaitsMessage {
    /// The last turn of `path` waits for a call that was sent to you: which turns does it wait for
    /// there? Tell `origin`.
    #[serde(rename = "p")]
    Probe { origin: SiloAddress, gate: u64, round: u64, path: Path },
    /// The turns that a search of yours has reached, each at the end of a path.
    #[serde(rename = "r")]
    Reached { gate: u64, round: u64, paths: Vec<Path> },
}

/// The waits of one silo.
pub(crate) struct Waits {
    turns: [Mutex<NumberMap<u64, Arc<Listed>>>; SHARDS],
    listed: AtomicUsize,
    inbox: Mutex<Vec<WaitsMessage>>,
    looks: Mutex<Looks>,
}

/// What only the silo's clock task uses.
struct Looks {
    next: CoarseInstant,
    searches: Searches,
    answered: Answered,
}

impl Waits {
    pub(crate) fn new() -> Arc<Self> {
        let looks = Looks {
            next: CoarseInstant::from_millis(0),
            searches: Searches::default(),
            answered: Answered::new(),
        };
        Arc::new(Self {
            turns: Default::default(),
            listed: AtomicUsize::new(0),
            inbox: Mutex::default(),
            looks: Mutex::new(looks),
        })
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
    const fn shard(&self, turn: u64) -> &Mutex<NumberMap<u64, Arc<Listed>>> {
        &self.turns[turn as usize % SHARDS]
    }

    /// Lists a turn of `activation` that has made a call and waits.
    pub(crate) fn list(
        self: &Arc<Self>,
        activation: Arc<Activation>,
        id: u64,
        caller: u64,
        asker: Option<Arc<Asker>>,
        holds: bool,
    ) -> Listing {
        let turn = Arc::new(Listed { id, caller, asker: Mutex::new(asker), activation, holds });
        self.shard(id).lock().insert(id, turn.clone());
        self.listed.fetch_add(1, Ordering::Relaxed);
        Listing { waits: self.clone(), turn }
    }

    /// A message of another silo.
    pub(crate) fn receive(&self, message: WaitsMessage) {
        let mut inbox = self.inbox.lock();
        if inbox.len() < INBOX_MAX {
            inbox.push(message);
        }
    }
}
