//! The answers to questions of operators.

use bytes::Bytes;
use emmer_core::{Duty, GrainKey, SiloAddress, SiloStatus};
use serde::{Deserialize, Serialize};

use crate::metrics::SiloStatistics;

/// A silo as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SiloLook {
    /// The silo.
    pub silo: SiloAddress,
    /// The id of its cluster.
    #[serde(default)]
    pub cluster: String,
    /// Its name for people.
    pub name: String,
    /// Version of Emmer that it runs.
    pub emmer: String,
    /// Its status, as it last published it.
    pub status: SiloStatus,
    /// The amount of work that an operator wants it to have.
    pub duty: Duty,
    /// Readiness for work, in words.
    pub readiness: String,
    /// Version of the membership view in force.
    pub view: u64,
    /// Time since it started, in milliseconds.
    pub up_ms: u64,
    /// Memory of its process, in bytes.
    pub memory_bytes: Option<u64>,
    /// Number of turns that have begun and wait.
    pub turns_suspended: u64,
    /// Number of threads that turns hold without an await.
    pub held_threads: u32,
    /// The silos that it probes.
    #[serde(default)]
    pub probes: Vec<SiloAddress>,
    /// Its counters.
    pub statistics: SiloStatistics,
}

/// A grain type that a silo hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TypeLook {
    /// Its name.
    pub grain_type: String,
    /// Kind of its keys: `text`, `uint`, `int` or `uuid`.
    pub key: String,
    /// Number of activations on the silo.
    pub activations: u64,
    /// Number of activations that run a turn, or for which calls wait.
    pub busy: u64,
    /// Number of activations since the start of the silo.
    pub activated: u64,
    /// Number of activations that failed.
    pub failed: u64,
    /// Bytes of one activation, without what its fields hold elsewhere.
    pub bytes_each: u64,
    /// True for stateless workers.
    pub is_worker: bool,
    /// True if it has states.
    pub has_state: bool,
    /// Its methods.
    pub methods: Vec<MethodLook>,
}

/// A method of a grain type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodLook {
    /// Name of its interface.
    pub interface: String,
    /// Its name.
    pub name: String,
    /// Its number on the wire.
    pub id: u32,
    /// Its arguments, in order.
    pub arguments: Vec<ArgumentLook>,
    /// Its return type, as the source has it.
    pub returns: String,
    /// True if it takes `&mut self`.
    pub is_exclusive: bool,
    /// True if clients may not call it.
    pub is_internal: bool,
    /// True if an argument or the answer is a stream.
    pub is_stream: bool,
}

/// An argument of a method.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ArgumentLook {
    /// Its name.
    pub name: String,
    /// Its type, as the source has it.
    pub r#type: String,
}

/// A page of the grains in the memory of a silo, in the order of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GrainPage {
    /// The grains.
    pub grains: Vec<GrainRow>,
    /// Place to continue after; none if these are the last.
    pub next: Option<u64>,
}

/// A grain in the memory of a silo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GrainRow {
    /// The name of its type.
    pub grain_type: String,
    /// Its key.
    pub key: GrainKey,
    /// Its place on the ring.
    pub place: u64,
    /// Number of calls that wait for it.
    pub waiting: u32,
    /// True if a turn is inside.
    pub is_running: bool,
    /// Time since its last call, in milliseconds; exact to some seconds.
    pub idle_ms: u64,
}

/// One grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GrainLook {
    /// The grain's type.
    pub grain_type: String,
    /// Its key.
    pub key: GrainKey,
    /// The silo that answered: that of the activation, if there is one.
    pub silo: SiloAddress,
    /// Its activations on that silo: one, or none, or several of a stateless worker.
    pub activations: Vec<ActivationLook>,
    /// The states that it has in stores.
    pub states: Vec<StateLook>,
    /// Its reminders.
    pub reminders: Vec<ReminderLook>,
    /// The last failures of its turns on that silo, latest first.
    pub failures: Vec<FailureLook>,
    /// Things that could not be read, in words.
    pub unread: Vec<String>,
}

/// One activation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ActivationLook {
    /// Its number on the silo.
    pub number: u64,
    /// Age in milliseconds; exact to a second, and to more of old ones.
    pub age_ms: Option<u64>,
    /// Time since its last call, in milliseconds; exact to some seconds.
    pub idle_ms: u64,
    /// True if the directory has it.
    pub is_registered: bool,
    /// True if a turn is inside.
    pub is_running: bool,
    /// True if the next turn ends the activation.
    pub is_ending: bool,
    /// Number of calls that wait for it.
    pub waiting: u32,
    /// Turns inside that are suspended, the oldest first.
    pub turns: Vec<TurnLook>,
    /// Callers of calls that wait, first come first, some of many.
    pub waits: Vec<WaitLook>,
    /// Threads that a turn of its class holds without an await, if it may be this grain's.
    pub threads: Vec<HeldThread>,
    /// Number of timers that run.
    pub timers: u32,
}

/// A call that waits for a grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitLook {
    /// The grain that made the call; none for a client, or a call outside of a turn.
    pub caller: Option<String>,
    /// The number of the turn that made the call; 0 without one.
    pub turn: u64,
    /// Time that it has waited, in milliseconds; none where it is not known.
    pub waited_ms: Option<u64>,
    /// True if it takes `&mut self`.
    pub is_exclusive: bool,
}

/// A turn that has begun and is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnLook {
    /// The grain's type.
    pub grain_type: String,
    /// The grain's key.
    pub key: GrainKey,
    /// `Interface.method`; `a timer` for a tick of a timer.
    pub method: String,
    /// Time since it was first suspended, in milliseconds.
    pub age_ms: u64,
    /// The grain that made the call; none for a client, or a call outside of a turn.
    pub caller: Option<String>,
    /// The calls that led to the turn, the first one first, as far as they are known.
    pub chain: Vec<String>,
    /// The number of the turn, by which its own calls are known elsewhere; 0 if it made none.
    pub turn: u64,
    /// The grains of this silo that it waits for, and the silos that have calls of it.
    pub waits_for: Vec<String>,
}

/// A thread that a turn holds without an await.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeldThread {
    /// The thread, as `name (id)`.
    pub thread: String,
    /// `Interface.method` of the turn.
    pub method: String,
    /// The grain, where only one can be meant.
    pub grain: Option<String>,
    /// Time that it has held the thread, in milliseconds.
    pub held_ms: u64,
}

/// A state of a grain as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StateLook {
    /// Name of the state.
    pub name: String,
    /// Name of the store; none for the usual one.
    pub store: Option<String>,
    /// Format of the payload.
    pub format: String,
    /// The etag.
    pub etag: String,
    /// The last write, as RFC 3339.
    pub modified: String,
    /// Length of the payload in bytes.
    pub bytes: u64,
    /// The payload; none if it is larger than an answer has room for.
    pub payload: Option<Bytes>,
}

/// A reminder of a grain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReminderLook {
    /// Its name.
    pub name: String,
    /// The next tick, as RFC 3339; none if there is none.
    pub next: Option<String>,
    /// Time until the next tick in milliseconds; negative if it is late.
    pub in_ms: Option<i64>,
    /// Number of ticks that were settled.
    pub fired: u64,
    /// Number of ticks that were missed.
    pub missed: u64,
}

/// A turn that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureLook {
    /// Time since then, in milliseconds.
    pub ago_ms: u64,
    /// `Interface.method`.
    pub method: String,
    /// The failure, in words.
    pub words: String,
}

/// The end of an activation on an operator's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deactivated {
    /// The silo that answered.
    pub silo: SiloAddress,
    /// Number of activations that ended.
    pub ended: u32,
    /// Number of turns that were dropped.
    pub dropped: u32,
    /// Number of activations that have not ended yet: they do once their turns do.
    pub left: u32,
    /// Turns that stand in the way.
    pub turns: Vec<TurnLook>,
    /// Threads that a turn which may be the grain's holds without an await.
    pub threads: Vec<HeldThread>,
}

/// A grain that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Moved {
    /// The silo that it was on.
    pub from: SiloAddress,
    /// The silo that it is on.
    pub to: SiloAddress,
}

/// Grains that are called most, and grains whose turns take most time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HotLook {
    /// Time that the samples cover, in milliseconds.
    pub over_ms: u64,
    /// Number of calls in the samples, scaled to all calls.
    pub calls: u64,
    /// Grains that are called most, most first.
    pub called: Vec<HotGrain>,
    /// Grains whose turns take most time, most first.
    pub busy: Vec<HotGrain>,
}

/// A grain in the samples. The numbers are scaled to all calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HotGrain {
    /// The grain's type.
    pub grain_type: String,
    /// Its key.
    pub key: GrainKey,
    /// Its calls; in the list by time, nanoseconds of its turns.
    pub count: u64,
    /// The most by which `count` may be too large.
    pub error: u64,
}
