//! A silo as a whole: what concerns all its parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use emmer_core::{Duty, Instant, SiloAddress, SiloStatus};
use emmer_membership::{TerminateReason, View};
use emmer_net::clock::COARSE_TICK;
use emmer_net::transport::{Lost, Pool, Quiet};
use emmer_net::warn_seldom;
use emmer_net::world::Watched;
use emmer_store::SiloTable;
use emmer_wire::GoodbyeCode;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::admin::Desk;
use super::clients::ToldByClients;
use super::log;
use super::records::Records;
use super::tasks::LeaveTask;
use crate::calls::Calls;
use crate::cluster::Cluster;
use crate::cluster::membership::Seat;
use crate::hosting::{Collection, Host};
use crate::metrics::SiloStatistics;
use crate::metrics::store::StoreMetrics;
use crate::options::SiloOptions;
use crate::reminders::ReminderService;
use crate::streams::Place;

/// Period of looks at peers that were answered. A peer that says nothing is asked for a word after
/// one period at least and two at most, and is silent three seconds later.
const ANSWERS_LOOK: Duration = Duration::from_millis(500);

/// Interval of the checks for load shedding.
const LOAD_LOOK: Duration = Duration::from_secs(1);

/// Time between two lines about the silo's work.
const WORK_EVERY: Duration = Duration::from_secs(60);

/// The whole silo. Its parts do not know it.
pub(crate) struct SiloCore {
    pub(crate) address: SiloAddress,
    pub(super) options: SiloOptions,
    /// Grains in memory.
    pub(super) host: Arc<Host>,
    /// View of the other silos, and the ways to them.
    pub(super) cluster: Arc<Cluster>,
    /// Calls on their way.
    pub(super) calls: Arc<Calls>,
    pub(super) reminders: Arc<ReminderService>,
    /// Connections.
    pub(super) pool: Arc<Pool>,
    /// Fires when the silo has ended; every task of the silo ends with it.
    pub(super) stopped: CancellationToken,
    pub(super) ended: Watched<Option<TerminateReason>>,
    /// True once the program waits for the end of the silo.
    pub(super) end_awaited: AtomicBool,
    /// Its name for people.
    pub(super) name: Arc<str>,
    /// The counts of its requests to the store.
    pub(super) store_metrics: Arc<StoreMetrics>,
    /// Its records in the store.
    pub(super) records: Records,
    pub(super) told: ToldByClients,
    /// Questions and orders of operators.
    pub(super) desk: Desk,
    /// The membership table, in which its duty stands.
    pub(super) table: SiloTable,
    /// Number of grains that drains have moved away.
    pub(super) drained: AtomicU64,
    pub(super) fence_shut: Mutex<FenceTimes>,
    /// It was asked to stop.
    pub(super) leaving: AtomicBool,
    /// The tasks of the application before it leaves.
    pub(super) before_leave: Mutex<Vec<LeaveTask>>,
}

/// The times that the fence was shut, and for how long.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FenceTimes {
    since: Option<Instant>,
    pub(super) times: u64,
    pub(super) time: Duration,
    pub(super) is_shut: bool,
}

impl FenceTimes {
    /// The fence is shut, or open, from now on. Returns for how long it was shut if it opens.
    fn set(&mut self, shut: bool, now: Instant) -> Option<Duration> {
        match (shut, self.since) {
            (true, None) => {
                self.since = Some(now);
                self.times += 1;
                None
            }
            (false, Some(since)) => {
                let time = now.saturating_since(since);
                (self.since, self.time) = (None, self.time + time);
                Some(time)
            }
            _ => None,
        }
    }

    /// The time since which the fence is shut, if it is.
    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The numbers as of `now`.
    pub(super) fn told(mut self, now: Instant) -> Self {
        self.is_shut = self.since.is_some();
        let open = self.since.map_or(Duration::ZERO, |since| now.saturating_since(since));
        self.time += open;
        self
    }
}

impl SiloCore {
    pub(super) fn statistics(&self) -> SiloStatistics {
        let host = &self.host;
        let load = self.cluster.placing.load.reported();
        let reminders = self.reminders.statistics();
        let lives = host.classes.values().map(|class| class.lives());
        let mut told = SiloStatistics::default();
        for lives in lives {
            told.activated += lives.activated;
            told.deactivated += lives.deactivated;
            told.arrived += lives.arrived;
            told.left += lives.left;
        }
        let SiloStatistics { activated, deactivated, arrived, left, .. } = told;
        SiloStatistics {
            activated,
            deactivated,
            arrived,
            left,
            activations: host.catalog.len() as u64,
            activations_busy: u64::from(load.busy),
            hosted: self.cluster.placing.load.hosted_number(),
            cpu_percent: load.cpu,
            memory_percent: load.memory,
            registrations: self.cluster.directory.registrations(),
            turns: host.turns(),
            calls_in_flight: self.pool.calls_in_flight(),
            calls_serving: self.calls.serving(),
            client_bytes: self.pool.greeting().held.total() as u64,
            timers: host.timers.len() as u64,
            reminders: reminders.in_memory,
            reminders_fired: reminders.delivered,
            reminders_failed: reminders.failed,
            reminders_missed: reminders.missed,
            ..host.metrics.snapshot()
        }
    }

    /// The amount of work that an operator wants it to have, in the view in force.
    pub(super) fn duty(&self) -> Duty {
        self.duty_in(&self.cluster.view())
    }

    pub(super) fn duty_in(&self, view: &View) -> Duty {
        view.get(&self.address).map_or(Duty::Full, |row| row.duty)
    }

    /// Returns true once it was asked to stop.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// The memory of the process in bytes; none where it is not measured.
    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.cluster.placing.load.memory_bytes()
    }

    /// Ends the silo as a crash would: every connection breaks without a word.
    pub(super) fn crash(&self) {
        self.host.fence.shut();
        self.pool.open().iter().for_each(|c| c.lose(Lost::Closed));
        self.cluster.pulse.crash();
        self.end(TerminateReason::Left);
    }

    /// Logs the silo's work in its life.
    fn tell_end(&self, reason: TerminateReason) {
        let told = self.statistics();
        let lived = self.host.clock.mono().saturating_since(Instant::ZERO);
        tracing::info!(
            me = %self.address,
            name = %self.name,
            %reason,
            lived_secs = lived.as_secs(),
            turns = told.turns,
            activations = told.activated,
            calls_received = told.calls_received,
            reminders_fired = told.reminders_fired,
            "the silo has ended"
        );
    }

    /// Logs the silo's work in the last minute, if there was any.
    async fn tell_work(&self) {
        let mut before = self.statistics();
        loop {
            self.next_of(WORK_EVERY).await;
            let now = self.statistics();
            let turns = now.turns.saturating_sub(before.turns);
            let activated = now.activated.saturating_sub(before.activated);
            let deactivated = now.deactivated.saturating_sub(before.deactivated);
            if turns > 0 || activated > 0 || deactivated > 0 {
                tracing::info!(
                    me = %self.address,
                    activations = now.activations,
                    activated,
                    deactivated,
                    turns,
                    calls_in_flight = now.calls_in_flight,
                    "a minute's work"
                );
            }
            before = now;
        }
    }

    /// Ends the silo now: no turn begins or continues, every connection breaks, every task ends.
    pub(super) fn end(&self, reason: TerminateReason) {
        self.host.fence.shut();
        self.stopped.cancel();
        if self.ended.borrow().is_none() {
            self.tell_end(reason);
        }
        self.ended.change(|ended| {
            ended.get_or_insert(reason);
        });
        // Never without a word: peers take a silent end for the end of the process, and this one
        // may poll a turn for a moment more.
        self.pool.goodbye(GoodbyeCode::Stopping, &reason.to_string());
        self.cluster.pulse.goodbye(&reason.to_string());
        // Activations and their host hold each other. Both let go here.
        self.host.catalog.clear();
        self.host.departures.clear();
    }

    /// As [`terminated`](Self::terminated), for the program.
    pub(super) async fn terminated_for_program(&self) -> TerminateReason {
        self.end_awaited.store(true, Ordering::Relaxed);
        self.terminated().await
    }

    pub(super) async fn terminated(&self) -> TerminateReason {
        self.ended.until(|ended| *ended).await
    }

    /// Drives what depends on the clock until the silo ends: the wheel, and the tasks that wait in
    /// it all the time.
    pub(super) async fn go_by_the_clock(self: Arc<Self>) {
        let Self { host, options, .. } = &*self;
        tokio::select! {
            biased;
            () = self.rounds() => {}
            () = host.wheel.drive() => {}
            () = Collection::run(host, options.quantum()) => {}
            () = host.relieve(|| self.cluster.placing.load.reported().memory) => {}
            () = self.balance() => {}
            () = self.repartition() => {}
            () = host.watch_threads() => {}
            () = self.record() => {}
            () = self.tell_work() => {}
            () = self.look_at_load() => {}
            () = self.look_at_answers() => {}
        }
    }

    /// Asks peers for a word that were answered and say nothing more, until the silo ends.
    async fn look_at_answers(&self) {
        loop {
            self.host.wheel.sleep(ANSWERS_LOOK).await;
            self.pool.open().iter().for_each(|connection| connection.look_at_answers());
        }
    }

    /// Looks if calls of clients are to be refused; never ends.
    async fn look_at_load(&self) {
        if !self.options.load_shedding.enabled {
            return std::future::pending().await;
        }
        loop {
            self.host.wheel.sleep(LOAD_LOOK).await;
            let load = self.cluster.placing.load.reported();
            self.calls.shedding.look(load.cpu, load.memory);
        }
    }

    /// Looks for deadlines that have passed, as long as anything waits that has one.
    async fn rounds(&self) {
        let Self { host, calls, stopped, .. } = self;
        let connections = &self.pool.greeting().ticking;
        loop {
            let calm = connections.is_calm() && host.is_calm();
            tokio::select! {
                biased;
                () = stopped.cancelled() => return host.wake_queues(),
                () = async {
                    if calm {
                        connections.begun().await;
                    }
                    host.wheel.sleep(COARSE_TICK).await;
                } => {}
            }
            let now = host.clock.now();
            for quiet in connections.tick(now) {
                if let Quiet::Silent(silent) = quiet {
                    self.cluster.peers.fell_silent(silent, self.cluster.probe_greeting());
                }
            }
            host.tick_queues(now);
            calls.look_at_waits(now);
        }
    }
}

impl Seat for SiloCore {
    fn install(&self, view: Arc<View>, status: SiloStatus, fading: &[(SiloAddress, Instant)]) {
        tracing::debug!(me = %self.address, version = view.version(), active = view.active_count(), %status, "new view");
        let dead = |silo: &SiloAddress| view.status_of(silo) == Some(SiloStatus::Dead);
        let before = self.cluster.view();
        let lived =
            |silo: &SiloAddress| before.status_of(silo).is_some_and(|s| s != SiloStatus::Dead);
        let named = view.members().iter().map(|m| m.address);
        let newly_dead: Vec<_> = named.clone().filter(|s| dead(s) && lived(s)).collect();
        self.pool.set_dead(named.clone().filter(|s| dead(s)));
        self.cluster.pulse.pool().set_dead(named.filter(|s| dead(s)));
        self.announce_dead(&newly_dead);
        if !newly_dead.is_empty() {
            let is_dead =
                |place: Option<Place>| place.is_some_and(|p| newly_dead.contains(&p.silo));
            self.calls.streams.lost(|other, _| is_dead(other));
        }
        log::tell_view(self.address, &before, &view);
        self.host.shortage.set_cordoned(!self.duty_in(&view).takes_grains());
        self.cluster.install(view.clone(), status, fading);
        self.reminders.install(&view);
    }

    fn set_fence(&self, closed: bool) {
        let shut_for = self.fence_shut.lock().set(closed, self.host.clock.mono());
        if closed && !self.host.fence.is_shut() {
            let me = self.address;
            if let Some(late) = self.cluster.busy() {
                warn_seldom!(%me, ?late, "this silo is too busy to hear the others in time: \
                    running no turns");
            } else {
                warn_seldom!(%me, "no silo confirms that this one is alive: running no turns");
            }
        }
        if let Some(shut_for) = shut_for {
            tracing::info!(me = %self.address, ?shut_for, "running turns again");
        }
        self.host.fence.set_closed(closed);
    }

    fn set_fence_deadline(&self, at: Option<Instant>) {
        self.host.fence.set_deadline(at);
    }
}
