//! What every part of a silo shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_core::{GrainTypeId, Instant, SiloAddress, SiloStatus};
use emmer_membership::{TerminateReason, View};
use emmer_placement::PlacementTable;
use emmer_store::state::StateTable;
use emmer_wire::{GoodbyeCode, PeerKind};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::calls::lanes::Lanes;
use crate::calls::waits::Waits;
use crate::clock::{Clock, CoarseInstant};
use crate::cluster::directory::DirectoryService;
use crate::cluster::locations::Locations;
use crate::cluster::membership::{MembershipHandle, MembershipStatistics};
use crate::cluster::{Fence, Outboxes, Shut};
use crate::hosting::catalog::Catalog;
use crate::hosting::{AnyClass, RunActivation};
use crate::metrics::{MethodStatistics, Metrics, SiloStatistics};
use crate::net::{Connection, DialError, Greeting, Lost, Pool};
use crate::numbers::NumberMap;
use crate::options::SiloOptions;
use crate::world::{Spawner, Watched};

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
    pub(crate) placement: PlacementTable,
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
            registrations: self.directory.registrations(),
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

    /// What is counted for each method that this silo hosts.
    pub(crate) fn method_statistics(&self) -> Vec<MethodStatistics> {
        let mut all: Vec<_> = self.classes.values().flat_map(|class| class.statistics()).collect();
        all.sort_unstable_by(|a, b| (&a.grain_type, &a.method).cmp(&(&b.grain_type, &b.method)));
        all
    }

    /// Whether new activations may be made here.
    pub(crate) fn accepts_activations(&self) -> bool {
        *self.status.borrow() == SiloStatus::Active && !self.catalog.is_closed()
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
        self.pool.connect(peer).await
    }

    /// How this silo introduces itself when it only asks who is there.
    pub(crate) fn probe_greeting(&self) -> Greeting {
        Greeting { me: PeerKind::Probe(self.address), options: 0, ..self.pool.greeting().clone() }
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
