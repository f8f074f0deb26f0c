//! The part of a silo that hosts grains: what an activation needs, and who makes activations.

use std::any::Any;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use emmer_core::limits::Limits;
use emmer_core::{GrainId, GrainTypeId, SiloAddress};
use emmer_net::clock::{Clock, CoarseInstant};
use emmer_net::numbers::NumberMap;
use emmer_net::transport::Ticking;
use emmer_net::world::Spawner;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::activation::{Activation, Held};
use super::ages::Ages;
use super::catalog::{Catalog, Given, NotMade, Queued};
use super::class::Class;
use super::departures::Departures;
use super::ends::StartError;
use super::failures::Failures;
use super::kept::Kept;
use super::services::Services;
use super::shortage::Shortage;
use super::standing::Standing;
use super::states::States;
use super::timers::Timers;
use super::traced::Traces;
use super::workers::Place;
use crate::cluster::directory::DirectoryService;
use crate::cluster::load::LoadService;
use crate::cluster::moves::Moves;
use crate::cluster::{Fence, Shut};
use crate::metrics::{MethodStatistics, Metrics};
use crate::turn::{Failure, Rejection};
use crate::waits::Waits;
use crate::wheel::Wheel;

/// The classes that a silo hosts, by the number of their grain type.
pub(crate) type Classes = NumberMap<GrainTypeId, Arc<Class>>;

/// Host of the grains of one silo. Its activations hold it, and it holds them until the silo ends.
pub(crate) struct Host {
    pub(crate) address: SiloAddress,
    pub(crate) clock: Clock,
    /// Spawner of the tasks of activations.
    pub(crate) spawner: Spawner,
    /// Fence: the times when turns may run.
    pub(crate) fence: Fence,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) classes: Classes,
    /// Services that the application gave to the grains.
    pub(crate) services: Arc<Services>,
    /// Stores of the states of grains.
    pub(crate) states: States,
    /// Reminder service of the silo. Only `reminders/` knows the type.
    pub(crate) reminders: Arc<dyn Any + Send + Sync>,
    /// Everything of this silo that waits for a moment.
    pub(crate) wheel: Arc<Wheel>,
    /// The timers of its activations.
    pub(crate) timers: Arc<Timers>,
    /// The activations that asked to be kept.
    pub(crate) kept: Kept,
    /// Turns that have begun and wait.
    pub(crate) standing: Standing<Arc<Activation>>,
    /// The last failures of turns.
    pub(crate) failures: Failures,
    /// Turns of grains that operators trace.
    pub(crate) traces: Traces,
    /// Notes of which activation came when.
    pub(crate) ages: Ages,
    /// Grains on their way to other silos, and from them.
    pub(crate) moves: Moves,
    /// Directory where activations are registered.
    pub(crate) directory: Arc<DirectoryService>,
    /// Knows what other silos host.
    pub(crate) load: Arc<LoadService>,
    pub(crate) metrics: Metrics,
    /// Grains that went to other silos a moment ago.
    pub(crate) departures: Departures<Arc<Activation>>,
    /// Number of questions of other silos that wait for calls to a grain.
    pub(crate) flushes: AtomicUsize,
    /// List of turns that have made calls and wait.
    pub(crate) waits: Arc<Waits>,
    /// Activations whose waiting turns have deadlines to be checked: at most one entry for each.
    pub(crate) queues: Mutex<Vec<Arc<Activation>>>,
    /// Ticker that is started when such deadlines begin to matter.
    pub(crate) ticking: Arc<Ticking>,
    /// Weak reference to the silo's `Calls`. Only `calls/` knows the type.
    pub(crate) calls: OnceLock<Weak<dyn Any + Send + Sync>>,
    pub(crate) limits: Limits,
    /// Share of memory, in percent, from which on idle activations end; 0 for none.
    pub(crate) memory_max: u8,
    /// Shortage of memory that no idle activation relieves.
    pub(crate) shortage: Arc<Shortage>,
    /// Number of activations of a stateless worker whose class does not say it.
    pub(crate) processors: usize,
    /// A timer's turn waits this long for a call of its own that has no timeout.
    pub(crate) response_timeout: Duration,
    /// The longest an activation may take.
    pub(crate) activation_timeout: Duration,
    /// The longest a deactivate hook may take.
    pub(crate) deactivation_timeout: Duration,
    /// Fires when the silo has ended.
    pub(crate) stopped: CancellationToken,
}

impl Host {
    /// Returns true if the rest of the silo was dropped.
    pub(crate) fn is_alone(&self) -> bool {
        self.calls.get().is_none_or(|calls| calls.strong_count() == 0)
    }

    /// Returns true if no turn may begin or continue.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_closed_at(self.clock.now())
    }

    /// Waits until turns may run, for a turn that has not begun. At its deadline the task that
    /// drives it is woken, looks at the clock and drops it.
    ///
    /// # Errors
    /// [`Shut`] when they never will.
    #[cold]
    pub(super) async fn unfenced_until(&self, deadline: CoarseInstant) -> Result<(), Shut> {
        let deadline = tokio::time::sleep_until(self.clock.tokio_at_coarse(deadline));
        // In a box: turns that are not fenced carry no room for it.
        let waits = Box::pin(async {
            tokio::select! {
                biased;
                opened = self.fence.opened(&self.clock) => opened,
                () = deadline => std::future::pending().await,
            }
        });
        waits.await
    }

    /// The class of the grain `id`.
    ///
    /// # Errors
    /// `Rejected` when this silo does not host it.
    pub(crate) fn class_of(&self, id: &GrainId) -> Result<&Arc<Class>, Failure> {
        self.classes.get(&id.grain_type()).ok_or_else(|| {
            let mut known: Vec<_> = self.classes.values().map(|c| c.name()).collect();
            known.sort_unstable();
            Failure::rejected(Rejection::NoSuchGrainType(format!(
                "silo {} hosts no grain of this type (it hosts: {})",
                self.address,
                known.join(", ")
            )))
        })
    }

    /// Returns true if a call may wait for the turn whose own wait is being checked.
    pub(crate) fn serves(&self, id: &GrainId, method: u32) -> bool {
        let class = self.classes.get(&id.grain_type());
        class.is_some_and(|class| class.method_name(method).is_some())
    }

    /// Returns true if a call of this method may make a new activation of `id` here: no other silo
    /// is known to read newer data of its type.
    pub(crate) fn may_activate(&self, id: &GrainId, method: u32) -> bool {
        self.classes.get(&id.grain_type()).is_some_and(|class| {
            let newer = || self.load.with_newer_data(id.grain_type(), class.data_version());
            class.method_name(method).is_some() && newer().is_none()
        })
    }

    /// Number of activations that this silo may have of a stateless worker; none for other grains.
    pub(crate) fn workers_max(&self, id: &GrainId) -> Option<usize> {
        let max = self.classes.get(&id.grain_type())?.workers_max()?;
        Some(if max == 0 { self.processors } else { max })
    }

    /// The activation of `id` on this silo that takes a call; made, but not yet activated, if there
    /// is none. None when the call has to [wait for a worker](Self::await_worker).
    ///
    /// # Errors
    /// Why none can be made.
    pub(crate) fn create_here(self: &Arc<Self>, id: &GrainId) -> Result<Option<Held>, Failure> {
        self.create_in(id, None)
    }

    /// As [`create_here`](Self::create_here), for a call that was given the place of a worker.
    pub(crate) fn create_in(
        self: &Arc<Self>,
        id: &GrainId,
        place: Option<&mut Place>,
    ) -> Result<Option<Held>, Failure> {
        let class = self.class_of(id)?;
        let make = |number| class.clone().create(self.clone(), id.clone(), number);
        let max = if self.shortage.is_hard() { 0 } else { self.limits.activations_max };
        let found = match self.workers_max(id) {
            None => self.catalog.get_or_create(id, max, make).map(Some),
            Some(most) => self.catalog.get_or_create_worker(id, max, most, place, make),
        };
        found.map_err(|why| match why {
            NotMade::Full if self.shortage.is_hard() => {
                let max = self.memory_max;
                Failure::overloaded(format!("the silo uses {max} % of the memory (memory_max)"))
            }
            NotMade::Full => {
                Failure::overloaded("the silo has reached its limit of activations".to_owned())
            }
            NotMade::Closed => Failure::shutting_down(),
        })
    }

    /// Waits for a worker of `id`, or for the place of one. None when the call is to look again.
    ///
    /// # Errors
    /// `Overloaded` when too many wait.
    pub(crate) async fn await_worker(&self, id: &GrainId) -> Result<Option<Given>, Failure> {
        let max = self.limits.activation_queue_max;
        match self.catalog.queue_for_worker(id, usize::try_from(max).unwrap_or(usize::MAX)) {
            Queued::Seat(seat) => Ok(Some(Given::Seat(seat))),
            Queued::Wait(turn) => Ok(turn.await.ok()),
            Queued::Nobody => Ok(None),
            Queued::Full => {
                self.metrics.refused();
                Err(StartError::Overloaded(max).into_failure())
            }
        }
    }

    /// Number of turns that were started.
    pub(crate) fn turns(&self) -> u64 {
        self.classes.values().flat_map(|class| class.statistics()).map(|m| m.calls).sum()
    }

    /// Counts of each method that this silo hosts.
    pub(crate) fn method_statistics(&self) -> Vec<MethodStatistics> {
        let mut all: Vec<_> = self.classes.values().flat_map(|class| class.statistics()).collect();
        all.sort_unstable_by(|a, b| (&a.grain_type, &a.method).cmp(&(&b.grain_type, &b.method)));
        all
    }
}
