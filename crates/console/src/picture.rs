//! A cluster at one moment.

use emmer_core::{Duty, GrainKey, SiloAddress, SiloStatus};
use emmer_runtime::admin::{DueLook, HeldThread, TurnLook};
use serde::Serialize;

use crate::events::Event;

/// A cluster at one moment. Parts that were not [wanted](crate::Wants) are as they were when they
/// last were.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Picture {
    /// The cluster's members that are not dead, by address, and those that died of late.
    pub silos: Vec<SiloRow>,
    /// The id of the cluster; empty until a silo has said it.
    pub cluster: String,
    /// The newest version of the view that a silo has.
    pub view: u64,
    /// The grain types, by name, over all silos.
    pub types: Vec<TypeRow>,
    /// The methods, by type and name, over all silos.
    pub methods: Vec<MethodRow>,
    /// Grains that are called most.
    pub called: Vec<HotRow>,
    /// Grains whose turns take most time.
    pub busy: Vec<HotRow>,
    /// Turns that have been suspended for longest.
    pub turns: Vec<TurnRow>,
    /// Threads that turns hold without an await, each with the silo.
    pub threads: Vec<(SiloAddress, HeldThread)>,
    /// Grains for which most calls wait.
    pub queues: Vec<QueueRow>,
    /// Reminders that are due next, late ones first.
    pub reminders: Vec<ReminderRow>,
    /// Changes of the membership, latest first.
    pub events: Vec<Event>,
    /// Words about the last try, if the cluster could not be asked.
    pub trouble: Option<String>,
}

/// A silo.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SiloRow {
    /// The silo.
    pub silo: SiloAddress,
    /// Its name for people.
    pub name: String,
    /// Its role.
    pub role: String,
    /// Its status in the view of the gateway that was asked.
    pub status: SiloStatus,
    /// The amount of work that an operator wants it to have.
    pub duty: Duty,
    /// The silos that suspect it.
    pub suspected_by: Vec<SiloAddress>,
    /// Its own words; none if it has not answered.
    pub own: Option<SiloOwn>,
}

/// A silo as it says itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SiloOwn {
    /// Readiness for work, in words.
    pub readiness: String,
    /// Version of its view.
    pub view: u64,
    /// Version of Emmer.
    pub emmer: String,
    /// Time since it started, in milliseconds.
    pub up_ms: u64,
    /// Use of the processors in percent.
    pub cpu_percent: Option<u8>,
    /// Use of the memory in percent.
    pub memory_percent: Option<u8>,
    /// Memory of its process in bytes.
    pub memory_bytes: Option<u64>,
    /// Activations in memory.
    pub activations: u64,
    /// Turns started in a second.
    pub turns_per_second: f64,
    /// Calls refused in a second because a limit was reached.
    pub refused_per_second: f64,
    /// Turns that wait for their grain.
    pub waiting: u64,
    /// Turns that have begun and wait.
    pub suspended: u64,
    /// Threads that turns hold without an await.
    pub held_threads: u32,
    /// The silos that it probes.
    pub probes: Vec<SiloAddress>,
    /// Calls that it waits for.
    pub in_flight: u64,
    /// Timers that wait for their next tick.
    pub timers: u64,
    /// Reminders in memory.
    pub reminders: u64,
    /// Ticks of reminders that were missed, in a second.
    pub missed_per_second: f64,
}

/// A grain type over all silos.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TypeRow {
    /// Its name.
    pub grain_type: String,
    /// Number of silos that host it.
    pub silos: u32,
    /// Number of activations.
    pub activations: u64,
    /// The most on one silo.
    pub most: u64,
    /// Number of activations that run a turn, or for which calls wait.
    pub busy: u64,
    /// Activations in a second.
    pub activated_per_second: f64,
    /// Number of activations that failed.
    pub failed: u64,
    /// Bytes of its activations, without what their fields hold elsewhere.
    pub bytes: u64,
}

/// A method over all silos.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MethodRow {
    /// The grain type.
    pub grain_type: String,
    /// `Interface.method`.
    pub method: String,
    /// Calls in a second.
    pub calls_per_second: f64,
    /// Own errors in a second.
    pub own_errors_per_second: f64,
    /// Failures in a second.
    pub failures_per_second: f64,
    /// Calls since the start of the silos.
    pub calls: u64,
    /// Half of the calls since the picture before took at most this long, in nanoseconds; since the
    /// start where there were none.
    pub p50_ns: Option<u64>,
    /// 99 % took at most this long.
    pub p99_ns: Option<u64>,
    /// Calls by duration, of the same time: the end of each bucket in nanoseconds, and its samples.
    pub buckets: Vec<(u64, u64)>,
    /// Share of the time of all turns, 0 to 1, as far as samples tell.
    pub share: f64,
}

/// A grain that is hot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HotRow {
    /// The silo.
    pub silo: SiloAddress,
    /// The grain type.
    pub grain_type: String,
    /// The key, as text.
    pub key: String,
    /// The key itself.
    #[serde(skip)]
    pub id: GrainKey,
    /// Calls, or nanoseconds of turns, in a second.
    pub per_second: f64,
}

/// A turn that has begun and waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnRow {
    /// The silo.
    pub silo: SiloAddress,
    /// The turn.
    pub turn: TurnLook,
}

/// A grain for which calls wait.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueRow {
    /// The silo.
    pub silo: SiloAddress,
    /// The grain type.
    pub grain_type: String,
    /// The key, as text.
    pub key: String,
    /// The key itself.
    #[serde(skip)]
    pub id: GrainKey,
    /// Number of calls that wait.
    pub waiting: u32,
}

/// A reminder that is due soon, or late.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ReminderRow {
    /// The silo that fires it.
    pub silo: SiloAddress,
    /// The reminder.
    pub due: DueLook,
}
