//! What every part of a silo shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::{GrainId, GrainTypeId, Instant, SiloAddress, SiloStatus};
use emmer_directory::FailReason;
use emmer_membership::{TerminateReason, View};
use emmer_placement::{PlacementRequest, PlacementTable};
use emmer_store::state::StateTable;
use emmer_wire::{GoodbyeCode, PeerKind};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::fence::{Fence, Shut};
use super::outbox::Outboxes;
use crate::activation::{AnyClass, NumberMap, RunActivation};
use crate::catalog::Catalog;
use crate::clock::{Clock, CoarseInstant};
use crate::directory::DirectoryService;
use crate::grain::{CallError, Failure};
use crate::lanes::Lanes;
use crate::locations::Locations;
use crate::membership::{MembershipHandle, MembershipStatistics};
use crate::metrics::{GrainQueue, MethodStatistics, Metrics, SiloStatistics};
use crate::net::{Connection, DialError, Greeting, Lost, Pool};
use crate::options::SiloOptions;
use crate::waits::Waits;
use crate::world::{Spawner, Watched};

/// One-way calls of this process under way at once; one more is `Overloaded`.
const ONE_WAY_MAX: usize = 100_000;

/// Where a call goes.
pub(crate) enum Place {
    /// To an activation on this silo (which may still have to be activated).
    Here(Arc<dyn RunActivation>),
    /// To another silo. `placed`: the directory does not know the grain, this silo was chosen for it.
    There { peer: SiloAddress, placed: bool },
}

/// The silo as its parts see it.
pub(crate) struct SiloCore {
    pub(crate) address: SiloAddress,
    pub(crate) options: SiloOptions,
    pub(crate) clock: Clock,
    pub(crate) spawner: Spawner,
    pub(crate) catalog: Catalog,
    pub(crate) classes: NumberMap<GrainTypeId, Arc<dyn AnyClass>>,
    pub(crate) directory: DirectoryService,
    pub(crate) locations: Locations,
    pub(crate) membership: MembershipHandle,
    pub(crate) metrics: Metrics,
    pub(crate) pool: Arc<Pool>,
    pub(crate) states: StateTable,
    pub(crate) views: Watched<Arc<View>>,
    /// The Active silos of the view in `views`, in the order of their addresses: where new activations may go.
    pub(crate) candidates: RwLock<Arc<[SiloAddress]>>,
    /// The version of the view in `views`, for the hot path.
    pub(crate) view_version: AtomicU64,
    /// The silo's own status, as it last published it.
    pub(crate) status: Watched<SiloStatus>,
    /// When turns may run.
    pub(crate) fence: Fence,
    pub(crate) placement: Mutex<PlacementTable>,
    pub(crate) outboxes: Outboxes,
    /// Fires when the silo has ended; every task of the silo ends with it.
    pub(crate) stopped: CancellationToken,
    pub(crate) ended: Watched<Option<TerminateReason>>,
    pub(crate) one_ways: Arc<AtomicUsize>,
    /// Calls of others that are under way here.
    pub(crate) serving: AtomicUsize,
    /// Calls that nobody waits for, whose grains are looked for.
    pub(crate) lanes: Arc<Lanes>,
    /// Who waits for whom.
    pub(crate) waits: Arc<Waits>,
    /// Activations whose waiting turns have deadlines to be looked at: at most one entry for each.
    pub(crate) queues: Mutex<Vec<Arc<dyn RunActivation>>>,
    /// What the membership machine last said about itself.
    pub(crate) membership_statistics: Mutex<MembershipStatistics>,
}

/// One one-way call under way.
pub(crate) struct OneWayPermit(Arc<AtomicUsize>);

impl Drop for OneWayPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SiloCore {
    pub(crate) fn view(&self) -> Arc<View> {
        self.views.borrow().clone()
    }

    pub(crate) fn view_version(&self) -> u64 {
        self.view_version.load(Ordering::Acquire)
    }

    pub(crate) fn statistics(&self) -> SiloStatistics {
        let open = self.pool.open();
        SiloStatistics {
            activations: self.catalog.len() as u64,
            turns: self.classes.values().flat_map(|class| class.statistics()).map(|m| m.calls).sum(),
            calls_in_flight: open.iter().map(|c| u64::from(c.waiting())).sum(),
            calls_serving: self.serving.load(Ordering::Relaxed) as u64,
            ..self.metrics.snapshot()
        }
    }

    /// Whether no turn may begin or go on.
    pub(crate) fn is_fenced(&self) -> bool {
        self.fence.is_closed_at(self.clock.now())
    }

    pub(crate) fn set_fence(&self, on: bool) {
        if on && !self.fence.is_shut() {
            tracing::warn!(me = %self.address, "nobody confirms that this silo is alive: running no turns");
        }
        self.fence.set_closed(on);
    }

    /// Waits until turns may run, for one that has not begun: at its deadline whoever drives it is woken, looks at the
    /// clock and drops it.
    ///
    /// # Errors
    /// [`Shut`] when they never will.
    #[cold]
    pub(crate) async fn unfenced_until(&self, deadline: CoarseInstant) -> Result<(), Shut> {
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

    /// Looks at the queue of an activation at every tick, until nobody waits there any more.
    pub(crate) fn watch_queue(&self, activation: Arc<dyn RunActivation>) {
        self.queues.lock().push(activation);
        self.pool.greeting().ticking.begin();
        if self.stopped.is_cancelled() {
            // The last tick may have been before this one was in the list.
            self.wake_queues();
        }
    }

    /// What comes after the last tick of a silo that has ended: whoever waits for its turn is woken, and sees it. Nothing is
    /// kept: activations hold the silo.
    fn wake_queues(&self) {
        let waiting = std::mem::take(&mut *self.queues.lock());
        for activation in waiting {
            activation.tick(CoarseInstant::LAST);
        }
    }

    /// A tick of the clock for the turns that wait: those whose deadline has passed are woken.
    fn tick_queues(&self, now: CoarseInstant) {
        let mut watched = std::mem::take(&mut *self.queues.lock());
        watched.retain(|activation| activation.tick(now));
        if !watched.is_empty() {
            self.queues.lock().append(&mut watched);
        }
    }

    fn tell_blocking(&self, method: u32, held: Duration) {
        let method = self.classes.values().find_map(|class| class.method_name(method)).unwrap_or("?");
        tracing::warn!(
            method,
            ?held,
            "a turn holds its thread without an await: other tasks of the thread wait for it"
        );
    }

    /// The `n` grains of this silo for which most calls wait, most first. Looks at every activation.
    pub(crate) fn longest_queues(&self, n: usize) -> Vec<GrainQueue> {
        let mut found: Vec<GrainQueue> = Vec::new();
        for shard in 0..Catalog::shard_count() {
            let waiting = self.catalog.shard_activations(shard).into_iter();
            found.extend(
                waiting.filter(|a| a.waiting() > 0).map(|a| GrainQueue::new(a.id().clone(), a.waiting())),
            );
            found.sort_unstable_by(|a, b| b.waiting.cmp(&a.waiting).then_with(|| a.grain.cmp(&b.grain)));
            found.truncate(n);
        }
        found
    }

    /// What is counted for each method that this silo hosts.
    pub(crate) fn method_statistics(&self) -> Vec<MethodStatistics> {
        let mut all: Vec<_> = self.classes.values().flat_map(|class| class.statistics()).collect();
        all.sort_unstable_by(|a, b| (&a.grain_type, &a.method).cmp(&(&b.grain_type, &b.method)));
        all
    }

    /// Whether new activations may be made here.
    pub(crate) fn accepts_activations(&self) -> bool {
        *self.status.borrow() == SiloStatus::Active
    }

    /// Puts a new view in force, everywhere in this silo, in the order in which the parts depend on it.
    pub(crate) fn install(
        self: &Arc<Self>,
        view: Arc<View>,
        status: SiloStatus,
        fading: &[(SiloAddress, Instant)],
    ) {
        tracing::debug!(me = %self.address, version = view.version(), active = view.active_count(), %status, "new view");
        let dead = |silo: &SiloAddress| view.status_of(silo) == Some(SiloStatus::Dead);
        let before = self.view();
        let lived = |silo: &SiloAddress| before.status_of(silo).is_some_and(|s| s != SiloStatus::Dead);
        let named = view.members().iter().map(|m| m.address);
        let newly_dead: Vec<_> = named.clone().filter(|s| dead(s) && lived(s)).collect();
        self.pool.set_dead(named.filter(|s| dead(s)));
        self.announce_dead(&newly_dead);
        self.locations.forget_silos(|silo| dead(&silo) || view.status_of(&silo).is_none());
        self.membership.retain(&view);
        self.directory.install(self, &view, fading);
        // Whoever waits for the status acts on the view: it must be there first.
        *self.candidates.write() = view.active().map(|m| m.address).collect();
        self.view_version.store(view.version(), Ordering::Release);
        self.views.set(view);
        self.status.set(status);
    }

    /// Sends a message to another silo's runtime, in order, connecting if need be. Best effort.
    pub(crate) fn post<T: Serialize>(self: &Arc<Self>, to: SiloAddress, channel: u8, message: &T) {
        self.outboxes.post(self, to, channel, message);
    }

    /// The connection to `peer`, made if there is none.
    pub(crate) async fn connect(self: &Arc<Self>, peer: SiloAddress) -> Result<Arc<Connection>, DialError> {
        self.pool.connect(peer, self).await
    }

    /// How this silo introduces itself when it only asks who is there.
    pub(crate) fn probe_greeting(&self) -> Greeting {
        Greeting { me: PeerKind::Probe(self.address), options: 0, ..self.pool.greeting().clone() }
    }

    /// Finds a grain: on this silo, where it was last seen, where the directory says, or where placement puts it.
    pub(crate) async fn locate(
        self: &Arc<Self>,
        id: &GrainId,
        avoid: &[SiloAddress],
    ) -> Result<Place, Failure> {
        if self.stopped.is_cancelled() {
            return Err(CallError::ShuttingDown);
        }
        // A fence that was shut opens no more, but the call may go elsewhere.
        let shut = self.fence.opened(&self.clock).await.is_err();
        if let Some(activation) = self.catalog.get(id) {
            return if shut { Err(CallError::ShuttingDown) } else { Ok(Place::Here(activation)) };
        }
        let usable =
            |peer: &SiloAddress| *peer != self.address && !avoid.contains(peer) && !self.pool.is_dead(*peer);
        if let Some(peer) = self.locations.get(id).filter(usable) {
            return Ok(Place::There { peer, placed: false });
        }
        let found = self.directory.lookup(self, id).await.map_err(|why| self.unavailable(why))?;
        match found {
            Some(at) if at.silo != self.address => Ok(Place::There { peer: at.silo, placed: false }),
            _ => self.place(id, avoid),
        }
    }

    /// As [`locate`](Self::locate) for a grain that is not in the catalog, without a wait: the new activation, when nothing
    /// but this silo is needed to know that the grain is nowhere and to choose this silo for it.
    pub(crate) fn create_now(self: &Arc<Self>, id: &GrainId) -> Option<Arc<dyn RunActivation>> {
        if self.is_fenced() || self.locations.get(id).is_some() {
            return None;
        }
        let found = self.directory.lookup_now(id)?;
        if found.is_some_and(|at| at.silo != self.address) {
            return None;
        }
        match self.place(id, &[]) {
            Ok(Place::Here(activation)) => Some(activation),
            _ => None,
        }
    }

    fn unavailable(&self, why: FailReason) -> Failure {
        if self.stopped.is_cancelled() {
            return CallError::ShuttingDown;
        }
        if why == FailReason::TooManyPending {
            self.metrics.refused();
            return CallError::Overloaded(format!("{why} on this silo (the directory's pending_max)"));
        }
        CallError::Unreachable { silo: None, maybe_executed: false, detail: why.to_string() }
    }

    fn place(self: &Arc<Self>, id: &GrainId, avoid: &[SiloAddress]) -> Result<Place, Failure> {
        let class = self.class_of(id)?;
        let mut candidates = self.candidates.read().clone();
        if !avoid.is_empty() {
            candidates = candidates.iter().copied().filter(|s| !avoid.contains(s)).collect();
        }
        let request = PlacementRequest { local: self.address, grain: id, requesting: self.address };
        let chosen = self.placement.lock().place(class.placement().as_ref(), &request, &candidates);
        match chosen {
            Ok(silo) if silo == self.address => self.create_here(id).map(Place::Here),
            Ok(peer) => Ok(Place::There { peer, placed: true }),
            Err(e) => {
                Err(CallError::Unreachable { silo: None, maybe_executed: false, detail: e.to_string() })
            }
        }
    }

    /// The activation of `id` on this silo, made if there is none.
    pub(crate) fn create_here(self: &Arc<Self>, id: &GrainId) -> Result<Arc<dyn RunActivation>, Failure> {
        let class = self.class_of(id)?;
        self.catalog
            .get_or_create(self, class, id)
            .map_err(|_full| CallError::Overloaded("the silo holds as many activations as it may".to_owned()))
    }

    fn class_of(&self, id: &GrainId) -> Result<&Arc<dyn AnyClass>, Failure> {
        self.classes.get(&id.grain_type()).ok_or_else(|| {
            let mut known: Vec<_> = self.classes.values().map(|c| c.name()).collect();
            known.sort_unstable();
            CallError::Rejected(format!(
                "silo {} hosts no grain type with the number {} (it hosts: {})",
                self.address,
                id.grain_type(),
                known.join(", ")
            ))
        })
    }

    /// Room for one more one-way call of this process.
    pub(crate) fn one_way_permit(&self) -> Result<OneWayPermit, Failure> {
        if self.stopped.is_cancelled() {
            return Err(CallError::ShuttingDown);
        }
        if self.one_ways.fetch_add(1, Ordering::Relaxed) >= ONE_WAY_MAX {
            self.one_ways.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::Overloaded("too many one-way calls are under way".to_owned()));
        }
        Ok(OneWayPermit(self.one_ways.clone()))
    }

    /// Ends the silo as a crash would: every connection breaks without a word.
    pub(crate) fn crash(&self) {
        self.fence.shut();
        self.pool.open().iter().for_each(|c| c.lose(Lost::Closed));
        self.end(TerminateReason::Left);
    }

    /// Ends the silo now: no turn begins or goes on any more, every connection breaks, every task ends.
    pub(crate) fn end(&self, reason: TerminateReason) {
        self.fence.shut();
        self.stopped.cancel();
        self.ended.change(|ended| {
            ended.get_or_insert(reason);
        });
        // Never without a word: peers take a silent end for the end of the process, and this one may poll a turn for a
        // moment more.
        self.pool.goodbye(GoodbyeCode::Stopping, &reason.to_string());
        // Activations hold the silo, and the silo them: let go of both.
        self.catalog.clear();
    }

    pub(crate) async fn terminated(&self) -> TerminateReason {
        self.ended.until(|ended| *ended).await
    }

    /// Drives what goes by the clock: deadlines, idle activations.
    pub(crate) async fn tick(self: Arc<Self>) {
        let ticking = self.pool.greeting().ticking.clone();
        let shards = Catalog::shard_count();
        let per_shard = self.options.quantum() / u32::try_from(shards).unwrap_or(1);
        let mut next_shard = 0;
        let mut next_sweep = self.clock.now().after(per_shard);
        loop {
            let calm = ticking.is_calm() && self.queues.lock().is_empty();
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return self.wake_queues(),
                () = ticking.next(calm) => {}
            }
            let now = self.clock.now();
            ticking.tick(now);
            self.tick_queues(now);
            self.look_at_waits(now);
            self.metrics.watch.look(now, |method, held| self.tell_blocking(method, held));
            // One shard at a time, so that a million idle activations are never looked at in one go.
            while next_sweep <= now {
                for activation in self.catalog.shard_activations(next_shard) {
                    activation.collect_if_idle(now);
                }
                next_shard = (next_shard + 1) % shards;
                next_sweep = next_sweep.after(per_shard.max(Duration::from_millis(1)));
            }
        }
    }
}
