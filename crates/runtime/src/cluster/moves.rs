//! Messages about grains that move from silo to silo, and the room for their memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use emmer_core::limits::GRAIN_MEMORY_BYTES_MAX;
use emmer_core::{GrainId, SiloAddress};
use emmer_directory::Word;
use emmer_placement::repartition;
use emmer_wire::channel;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::Peers;
use super::followers::Followers;
use super::locations::Locations;

/// Memory of grains on their way from this silo, at most, in bytes; and as much on the way to it.
const UNDER_WAY_MAX: usize = 16 * GRAIN_MEMORY_BYTES_MAX;

/// Bytes that count for each grain besides its fields.
const GRAIN_BYTES: usize = 512;

/// The fields of a grain by name, as they travel.
pub(crate) type Fields = Vec<(String, Bytes)>;

/// Message between two silos about a grain that moves.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum MoveMessage {
    /// The grain's memory, for the silo that is to have it.
    #[serde(rename = "a")]
    Arrive(Arrival),
    /// The receiver's word.
    #[serde(rename = "w")]
    Word {
        /// The sender's number for the move.
        #[serde(rename = "i")]
        id: u64,
        /// Word.
        #[serde(rename = "w")]
        word: Word,
    },
    /// All calls that were with the grain are on their way after it, on this connection.
    #[serde(rename = "f")]
    Followed {
        /// The sender's number for the move.
        #[serde(rename = "i")]
        id: u64,
        #[serde(rename = "g")]
        grain: GrainId,
    },
    /// A silo asks whether all its calls to a grain have followed it to where it is.
    #[serde(rename = "q")]
    Flush(Flush),
    /// The answer to such a question.
    #[serde(rename = "o")]
    Flushed {
        /// The asker's number for the question.
        #[serde(rename = "i")]
        id: u64,
        /// True if the grain is on the silo that answers.
        #[serde(rename = "h")]
        here: bool,
    },
    /// A one-way call of the receiver was passed on: the grain is elsewhere.
    #[serde(rename = "m")]
    Moved {
        #[serde(rename = "g")]
        grain: GrainId,
        #[serde(rename = "t")]
        to: SiloAddress,
    },
    /// Grains that two silos exchange.
    #[serde(rename = "x")]
    Exchange(repartition::Message),
}

/// A question that follows a grain behind all calls that the silo that asks has sent before.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Flush {
    /// The asker's number for the question.
    #[serde(rename = "i")]
    pub(crate) id: u64,
    #[serde(rename = "a")]
    pub(crate) asker: SiloAddress,
    #[serde(rename = "g")]
    pub(crate) grain: GrainId,
    /// Number of times that silos may still pass it on.
    #[serde(rename = "p")]
    pub(crate) passes: u8,
}

/// Number of times that silos pass such a question on.
const PASSES_MAX: u8 = 4;

/// A grain on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// The sender's number for the move.
    #[serde(rename = "i")]
    pub(crate) id: u64,
    #[serde(rename = "g")]
    pub(crate) grain: GrainId,
    /// The sender's registration, which the receiver's replaces.
    #[serde(rename = "n")]
    pub(crate) number: u64,
    /// The version of the sender's view.
    #[serde(rename = "v")]
    pub(crate) view: u64,
    #[serde(rename = "m")]
    pub(crate) memory: Memory,
}

/// Everything of an activation that moves with its grain.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Version of the data of its states.
    #[serde(rename = "d")]
    pub(crate) data_version: u32,
    #[serde(rename = "f")]
    pub(crate) fields: Fields,
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) timers: Vec<TimerMemory>,
    /// Time in milliseconds for which the activation asked to be kept.
    #[serde(rename = "k", default)]
    pub(crate) kept_ms: u64,
    /// Time in milliseconds for which no balance of silos moves the grain again.
    #[serde(rename = "s", default)]
    pub(crate) settled_ms: u64,
}

/// A timer that moves with its grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimerMemory {
    /// The name of the method that it runs.
    #[serde(rename = "m")]
    pub(crate) method: String,
    /// Milliseconds to its next tick.
    #[serde(rename = "l")]
    pub(crate) left_ms: u64,
    /// Its period in milliseconds.
    #[serde(rename = "p")]
    pub(crate) period_ms: Option<u64>,
}

impl Memory {
    /// The bytes that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let fields = self.fields.iter().map(|(name, field)| name.len() + field.len());
        let timers = self.timers.iter().map(|timer| timer.method.len() + size_of::<TimerMemory>());
        fields.chain(timers).sum()
    }
}

/// The moves of one silo.
pub(crate) struct Moves {
    peers: Arc<Peers>,
    /// The moves whose grain was sent, by number: each waits for a word of a silo.
    waiting: Mutex<BTreeMap<u64, Waiting>>,
    /// The questions for calls that follow a grain, by number: each waits for its answer.
    flushes: Mutex<BTreeMap<u64, Question>>,
    next: AtomicU64,
    leaving: Arc<Semaphore>,
    arriving: Arc<Semaphore>,
    /// Grains that have come, to which calls may still be on their way elsewhere.
    pub(crate) followers: Arc<Followers>,
    /// The ways of calls. A grain that comes changes them.
    pub(crate) locations: Arc<Locations>,
}

struct Waiting {
    to: SiloAddress,
    word: oneshot::Sender<Word>,
}

/// A question of this silo for calls that follow a grain.
struct Question {
    via: SiloAddress,
    /// The silo where the grain is, if the answer says it.
    answer: oneshot::Sender<Option<SiloAddress>>,
}

/// Room for the memory of a grain that is on its way.
pub(crate) type UnderWay = OwnedSemaphorePermit;

/// Wait for the word of a grain's new silo.
pub(crate) struct Awaited<'a> {
    moves: &'a Moves,
    id: u64,
    word: oneshot::Receiver<Word>,
}

impl Awaited<'_> {
    /// The number of the move.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// The word. It may never come.
    pub(crate) async fn word(&mut self) -> Word {
        match (&mut self.word).await {
            Ok(word) => word,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.moves.waiting.lock().remove(&self.id);
    }
}

/// Wait for the answer to a question for calls that follow a grain.
pub(crate) struct Asked<'a> {
    moves: &'a Moves,
    id: u64,
    answer: oneshot::Receiver<Option<SiloAddress>>,
}

impl Asked<'_> {
    /// The silo where the grain is, and all calls; none if no silo says it.
    pub(crate) async fn answer(&mut self) -> Option<SiloAddress> {
        (&mut self.answer).await.ok().flatten()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.moves.flushes.lock().remove(&self.id);
    }
}

fn take(room: &Arc<Semaphore>, memory: &Memory) -> Option<UnderWay> {
    let bytes = u32::try_from(memory.bytes() + GRAIN_BYTES).unwrap_or(u32::MAX);
    room.clone().try_acquire_many_owned(bytes).ok()
}

impl Moves {
    pub(crate) fn new(peers: Arc<Peers>, locations: Arc<Locations>) -> Self {
        let room = || Arc::new(Semaphore::new(UNDER_WAY_MAX));
        Self {
            peers,
            waiting: Mutex::default(),
            flushes: Mutex::default(),
            next: AtomicU64::new(1),
            leaving: room(),
            arriving: room(),
            followers: Arc::default(),
            locations,
        }
    }

    /// Room for memory that leaves; none while too much is on its way.
    pub(crate) fn room_to_leave(&self, memory: &Memory) -> Option<UnderWay> {
        take(&self.leaving, memory)
    }

    /// Room for memory that arrives; none while too much is on its way.
    pub(crate) fn room_to_arrive(&self, memory: &Memory) -> Option<UnderWay> {
        take(&self.arriving, memory)
    }

    /// Sends a grain to `to`. Its number is set here.
    pub(crate) fn send(&self, to: SiloAddress, mut arrival: Arrival) -> Awaited<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        arrival.id = id;
        let (sender, word) = oneshot::channel();
        self.waiting.lock().insert(id, Waiting { to, word: sender });
        self.peers.post(to, channel::MOVES, &MoveMessage::Arrive(arrival));
        Awaited { moves: self, id, word }
    }

    /// Tells the silo that a grain came from what became of it.
    pub(crate) fn answer(&self, to: SiloAddress, id: u64, word: Word) {
        self.peers.post(to, channel::MOVES, &MoveMessage::Word { id, word });
    }

    /// Tells the silo that has a grain now that all calls are on their way after it.
    pub(crate) fn all_follow(&self, to: SiloAddress, id: u64, grain: GrainId) {
        self.peers.post(to, channel::MOVES, &MoveMessage::Followed { id, grain });
    }

    /// Another silo has sent all calls after a grain.
    pub(crate) fn followed(&self, from: SiloAddress, id: u64, grain: &GrainId) {
        self.followers.told(grain, (from, id));
    }

    /// Asks whether all calls of this silo to `grain` that went to `via` are where the grain is.
    pub(crate) fn flush(&self, me: SiloAddress, via: SiloAddress, grain: GrainId) -> Asked<'_> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.flushes.lock().insert(id, Question { via, answer: sender });
        self.pass(via, Flush { id, asker: me, grain, passes: PASSES_MAX });
        Asked { moves: self, id, answer }
    }

    /// Waits until all calls of this silo to a grain are here, which has come from the silo `from`:
    /// they may have gone where the grain was before that.
    pub(crate) async fn flush_way(&self, me: SiloAddress, from: SiloAddress, grain: &GrainId) {
        let way = self.locations.get(grain).filter(|via| *via != from && *via != me);
        if let Some(via) = way {
            self.flush(me, via, grain.clone()).answer().await;
        }
        self.locations.forget_grain(grain);
    }

    /// Passes a question on to `to`, behind the calls that went there.
    pub(crate) fn pass(&self, to: SiloAddress, flush: Flush) {
        self.peers.post(to, channel::MOVES, &MoveMessage::Flush(flush));
    }

    /// Tells a silo whose one-way call was passed on where its grain is.
    pub(crate) fn tell_moved(&self, asker: SiloAddress, grain: GrainId, to: SiloAddress) {
        self.peers.post(asker, channel::MOVES, &MoveMessage::Moved { grain, to });
    }

    /// Answers a question.
    pub(crate) fn tell_flushed(&self, flush: &Flush, here: bool) {
        let answer = MoveMessage::Flushed { id: flush.id, here };
        self.peers.post(flush.asker, channel::MOVES, &answer);
    }

    /// A question is answered: where the grain is.
    pub(crate) fn flushed(&self, id: u64, at: Option<SiloAddress>) {
        if let Some(question) = self.flushes.lock().remove(&id) {
            let _ = question.answer.send(at);
        }
    }

    /// The word of another silo. A move that is over needs none.
    pub(crate) fn heard(&self, id: u64, word: Word) {
        if let Some(waits) = self.waiting.lock().remove(&id) {
            let _ = waits.word.send(word);
        }
    }

    /// The connection to `silo` has ended. A word on it is lost: the moves to there have failed, as
    /// far as this silo knows.
    pub(crate) fn connection_lost(&self, silo: SiloAddress) {
        self.followers.lost(silo);
        self.flushes.lock().retain(|_, question| question.via != silo);
        for (_, waits) in self.waiting.lock().extract_if(.., |_, waits| waits.to == silo) {
            let _ = waits.word.send(Word::Failed);
        }
    }

    /// Returns true if there is a connection to `silo`, made if there is none.
    pub(crate) async fn reaches(&self, silo: SiloAddress) -> bool {
        self.peers.connect(silo).await.is_ok()
    }
}
