//! The gateways of a client: the known ones, the connected ones, and the choice for a call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::backoff::Backoff;
use emmer_core::rng::SeededRng;
use emmer_core::{GrainId, SiloAddress, SiloStatus};
use emmer_net::clock::{COARSE_TICK, Clock};
use emmer_net::credentials::TokenSource;
use emmer_net::transport::{
    Budget, Connection, Greeting, HeldBytes, Lost, Quiet, Security, Traffic, dial, drive,
};
use emmer_net::warn_seldom;
use emmer_net::world::{self, Spawner, Watched};
use emmer_wire::{GoodbyeCode, PeerKind, channel};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::dialling::{Dials, Settled};
use super::error::ConnectError;
use super::listing::{Listed, Listing};
use super::message::GatewayMessage;
use super::records::Figures;
use super::state::ClientState;
use crate::admin::{Asked, OF_CLIENT_MAX};
use crate::cluster::locations::Locations;
use crate::filters::Filters;
use crate::metrics::SiloStatistics;
use crate::options::ClientOptions;
use crate::streams::Hub;
use crate::turn::Failure;
use crate::wheel::Wheel;

/// The shortest pause between two readings of the list of gateways.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause while no gateway is connected.
const REFRESH_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The word that a gateway is dead may overtake the last answers of one that stopped in good order:
/// they have this long to arrive.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The pauses between tries while no gateway is connected.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(REFRESH_PAUSE, REFRESH_PAUSE_MAX)
}

pub(super) struct Gateway {
    pub(super) silo: SiloAddress,
    /// The address that is dialled.
    endpoint: SocketAddr,
    pub(super) connection: Arc<Connection>,
    /// It said that it is stopping: no new calls.
    pub(super) stopping: bool,
    /// It is dead, and only its last answers are waited for.
    pub(super) dead: bool,
    /// It is silent, and is being dialled again.
    redialled: bool,
}

impl Gateway {
    fn is_usable(&self) -> bool {
        !self.stopping && self.connection.takes_calls()
    }

    /// Returns true if it is usable and its connection is not silent.
    pub(super) fn speaks(&self) -> bool {
        !self.stopping && self.connection.speaks()
    }
}

/// The client as its parts see it.
pub(crate) struct ClientCore {
    pub(crate) clock: Clock,
    pub(crate) options: ClientOptions,
    pub(crate) spawner: Spawner,
    /// The filters around its calls.
    pub(crate) filters: Filters,
    pub(super) listing: Listing,
    pub(crate) greeting: Greeting,
    /// Sorted by silo, so that a grain's calls keep to one gateway while the list stays the same:
    /// per-grain order.
    pub(super) gateways: RwLock<Vec<Gateway>>,
    /// The dials of others that are under way.
    pub(super) dials: Mutex<Dials>,
    /// Counts changes of `gateways` and of `dials`.
    pub(super) changed: Watched<u64>,
    /// Counts them as well, for the hot path.
    generation: AtomicU64,
    /// Locations of grains that answers have told.
    pub(crate) locations: Locations,
    pub(super) wake: Notify,
    pub(crate) closed: CancellationToken,
    /// Calls that wait for a gateway.
    waiting: AtomicUsize,
    pub(super) statistics: Mutex<HashMap<SiloAddress, SiloStatistics>>,
    pub(super) statistics_changed: Notify,
    pub(super) figures: Figures,
    /// Questions of operators that wait for an answer.
    pub(super) asked: Arc<Asked>,
    /// Turns of questions of operators.
    pub(super) questions: Semaphore,
    /// Ends of streams in this process.
    pub(crate) streams: Arc<Hub>,
    pub(super) wheel: Arc<Wheel>,
}

/// The introduction of a client to gateways.
pub(crate) fn greeting(
    options: &ClientOptions,
    security: Security,
    token: Option<TokenSource>,
) -> Greeting {
    Greeting {
        cluster: options.cluster_id.clone(),
        me: PeerKind::Client(world::random_bits()),
        limits: options.limits.clone(),
        budget: Arc::new(Budget::new(options.limits.silo_calls_in_flight_max)),
        ticking: Arc::default(),
        gone: Arc::default(),
        frame_rooms: Arc::default(),
        // A client is called by no peer.
        held: HeldBytes::new(0),
        timeout: options.connect_timeout,
        options: 0,
        security,
        admit: None,
        token,
        pulse: None,
    }
}

impl ClientCore {
    pub(crate) fn new(
        options: ClientOptions,
        filters: Filters,
        listing: Listing,
        security: Security,
        token: Option<TokenSource>,
    ) -> Self {
        let greeting = greeting(&options, security, token);
        let clock = Clock::new();
        let wheel = Arc::new(Wheel::new(clock.clone()));
        let streams = Hub::new(clock.clone(), wheel.clone(), options.limits.streams_max);
        Self {
            clock,
            streams,
            wheel,
            spawner: Spawner::current(),
            locations: Locations::new(options.limits.location_cache_max),
            options,
            filters,
            listing,
            greeting,
            gateways: RwLock::default(),
            dials: Mutex::default(),
            changed: Watched::new(0),
            generation: AtomicU64::new(1),
            wake: Notify::new(),
            closed: CancellationToken::new(),
            waiting: AtomicUsize::new(0),
            statistics: Mutex::default(),
            statistics_changed: Notify::new(),
            figures: Figures::default(),
            asked: Arc::default(),
            questions: Semaphore::new(OF_CLIENT_MAX as usize),
        }
    }

    /// Counts the changes of the list of gateways: a choice of an earlier number is made again.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The list of gateways has changed.
    pub(super) fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.changed.change(|n| *n += 1);
    }

    /// The connections to gateways, and what went over all of them.
    pub(super) fn traffic(&self) -> (Vec<Arc<Connection>>, Traffic) {
        let open: Vec<_> = self.gateways.read().iter().map(|g| g.connection.clone()).collect();
        let traffic = Traffic::of(&open, &self.greeting.gone);
        (open, traffic)
    }

    pub(crate) fn connected(&self) -> Vec<SiloAddress> {
        self.gateways.read().iter().map(|g| g.silo).collect()
    }

    /// Reads the list, and begins to dial as many gateways of it as are wanted.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), ConnectError> {
        let listed = self.listing.read().await?;
        if listed.is_empty() {
            let cluster = self.options.cluster_id.clone();
            let found = self.listing.found_instead(&cluster).await;
            return Err(ConnectError::NoGateway { cluster, found });
        }
        self.gateways.write().retain_mut(|g| {
            // A gateway that leaves still answers calls under way.
            let listed = listed.iter().any(|listed| listed.is(g.silo, g.endpoint));
            g.stopping |= !listed;
            listed
                || !g
                    .connection
                    .goodbye_if_idle(GoodbyeCode::Idle, "this gateway is no longer listed")
        });
        self.gateways.write().retain(|g| !g.connection.is_lost());
        self.look_for_the_dead().await;
        if let Some(connection) = self.gateways.read().first().map(|g| g.connection.clone()) {
            self.ask_for_others(&connection);
        }
        self.dial_others(listed);
        self.note_change();
        Ok(())
    }

    /// Returns true if fewer gateways take calls than shall.
    pub(super) fn wants_more(&self) -> bool {
        let gateways = self.gateways.read();
        gateways.iter().filter(|g| g.is_usable()).count() < self.options.gateways_max
    }

    pub(super) fn is_connected(&self) -> bool {
        !self.gateways.read().is_empty()
    }

    /// Returns true if this gateway is connected.
    pub(super) fn has(&self, listed: &Listed) -> bool {
        self.gateways.read().iter().any(|g| listed.is(g.silo, g.endpoint))
    }

    /// Asks the table about gateways that are no longer listed and still owe answers: a silo that
    /// would report a death may never have had this client.
    async fn look_for_the_dead(&self) {
        let Some(table) = self.listing.table() else { return };
        let unlisted = |g: &Gateway| (g.stopping && !g.dead).then_some(g.silo);
        let unlisted: Vec<_> = self.gateways.read().iter().filter_map(unlisted).collect();
        for silo in unlisted {
            if let Ok(row) = table.read_silo(&silo).await
                && row.is_none_or(|row| row.status == SiloStatus::Dead)
            {
                self.is_dead(silo);
            }
        }
    }

    /// A silo is dead: its calls no longer wait for it. One that may have left in good order has
    /// sent its last answers.
    pub(super) fn is_dead(&self, silo: SiloAddress) {
        self.streams.lost(|other, _| other.is_some_and(|place| place.silo == silo));
        let mut gone = Vec::new();
        for gateway in self.gateways.write().iter_mut().filter(|g| g.silo == silo && !g.dead) {
            gateway.dead = true;
            gone.push((gateway.connection.clone(), gateway.stopping));
        }
        for (connection, may_have_left) in gone {
            if !may_have_left {
                connection.lose(Lost::PeerDead);
                continue;
            }
            world::spawn(async move {
                tokio::time::sleep(LAST_ANSWERS).await;
                connection.lose(Lost::PeerDead);
            });
        }
    }

    /// Asks a gateway which others there are, if that is wanted.
    fn ask_for_others(&self, gateway: &Connection) {
        if self.listing.asks() {
            let _ = gateway.system(channel::GATEWAY, &GatewayMessage::GatewaysQuery);
        }
    }

    pub(super) fn take_in(
        self: &Arc<Self>,
        silo: SiloAddress,
        endpoint: SocketAddr,
        connection: Arc<Connection>,
        input: BytesMut,
    ) {
        let mut gateways = self.gateways.write();
        let at = gateways.partition_point(|g| g.silo < silo);
        let (stopping, dead, redialled) = (false, false, false);
        let gateway =
            Gateway { silo, endpoint, connection: connection.clone(), stopping, dead, redialled };
        gateways.insert(at, gateway);
        drop(gateways);
        self.ask_for_others(&connection);
        world::spawn(drive(connection, self.clone(), input));
    }

    /// A connection is silent. If a firewall has forgotten it, it may have forgotten the others
    /// too.
    fn doubt_others(&self, quiet: &Arc<Connection>) {
        let gateways = self.gateways.read();
        let others = gateways.iter().filter(|g| !Arc::ptr_eq(&g.connection, quiet));
        others.filter(|g| !g.connection.is_silent()).for_each(|g| g.connection.doubt());
    }

    /// Calls wait on a connection that is silent. Other gateways are called first from now on, and
    /// its gateway is dialled again. If the gateway answers, the silent connection ends.
    fn fell_silent(self: &Arc<Self>, connection: Arc<Connection>) {
        let dialled = {
            let mut gateways = self.gateways.write();
            let silent = gateways.iter_mut().find(|g| Arc::ptr_eq(&g.connection, &connection));
            silent.and_then(|g| {
                let under_way = std::mem::replace(&mut g.redialled, true);
                (!under_way).then_some((g.silo, g.endpoint))
            })
        };
        let Some((silo, endpoint)) = dialled else { return };
        self.note_change();
        let core = self.clone();
        world::spawn(async move {
            let dialled = dial(endpoint, Some(silo), &core.greeting).await;
            // It may have spoken meanwhile.
            let is_silent = connection.is_silent();
            if let Ok((fresh, silo, input)) = dialled {
                if is_silent && !core.closed.is_cancelled() {
                    warn_seldom!(%silo, "a gateway is silent on its connection and answers a new \
                                         one: the new one is used");
                    core.take_in(silo, endpoint, Arc::new(fresh), input);
                    connection.reset(Lost::Silent);
                } else {
                    fresh.goodbye(GoodbyeCode::Idle, "the connection before it works");
                }
            }
            let mut gateways = core.gateways.write();
            let same = gateways.iter_mut().find(|g| Arc::ptr_eq(&g.connection, &connection));
            same.into_iter().for_each(|g| g.redialled = false);
            drop(gateways);
            core.note_change();
        });
    }

    /// Reads the list again every period, and soon after a connection is lost. Without a gateway it
    /// tries again and again, at growing and random intervals.
    pub(crate) async fn keep_connected(self: Arc<Self>) {
        let mut backoff = backoff();
        let mut rng = SeededRng::new(world::random_bits());
        loop {
            let pause = async {
                if !self.is_connected() && self.is_dialling() {
                    // It ends soon, or the list is read again.
                    if !matches!(self.settled().await, Settled::Failed(_)) {
                        return;
                    }
                }
                if !self.is_connected() {
                    return tokio::time::sleep(backoff.next_delay(&mut rng)).await;
                }
                backoff.reset();
                tokio::select! {
                    biased;
                    () = self.wake.notified() => tokio::time::sleep(REFRESH_PAUSE).await,
                    () = tokio::time::sleep(self.options.gateway_list_refresh_period) => {}
                }
            };
            tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                () = pause => {}
            }
            if let Err(e) = self.refresh().await {
                tracing::debug!(error = %e, "the gateways could not be refreshed");
            }
        }
    }

    /// Ends calls whose deadline has passed.
    pub(crate) async fn tick(self: Arc<Self>) {
        let ticking = &self.greeting.ticking;
        loop {
            tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                () = async {
                    if ticking.is_calm() {
                        ticking.begun().await;
                    }
                    tokio::time::sleep(COARSE_TICK).await;
                } => {}
            }
            for quiet in ticking.tick(self.clock.now()) {
                match quiet {
                    Quiet::Asked(connection) => self.doubt_others(&connection),
                    Quiet::Silent(connection) => self.fell_silent(connection),
                }
            }
        }
    }

    /// Takes up where an answer said that `grain` is; true when calls to it can now go straight
    /// there.
    pub(crate) fn learn(&self, grain: &GrainId, silo: SiloAddress) -> bool {
        self.locations.set(grain, silo);
        self.gateways.read().iter().any(|g| g.silo == silo && g.is_usable())
    }

    /// Gateway where a grain was last seen; else one by the grain's hash.
    fn choose(&self, grain: &GrainId) -> Option<Arc<Connection>> {
        let at = self.locations.get(grain);
        let gateways = self.gateways.read();
        if let Some(there) = gateways.iter().find(|g| at == Some(g.silo) && g.speaks()) {
            return Some(there.connection.clone());
        }
        // A silent gateway may be frozen, and continue later: it is better than none.
        let any_speaks = gateways.iter().any(Gateway::speaks);
        let usable =
            || gateways.iter().filter(move |g| if any_speaks { g.speaks() } else { g.is_usable() });
        let n = usable().count();
        let at = usize::try_from(grain.stable_hash() >> 16).unwrap_or(0).checked_rem(n)?;
        usable().nth(at).map(|g| g.connection.clone())
    }

    /// The gateway for calls to `grain`, waiting for one if none is connected. The number of calls
    /// that wait is bounded.
    pub(crate) async fn gateway_for(&self, grain: &GrainId) -> Result<Arc<Connection>, Failure> {
        let mut waits = None;
        loop {
            let seen = *self.changed.borrow();
            if self.closed.is_cancelled() {
                return Err(Failure::shutting_down());
            }
            if let Some(connection) = self.choose(grain) {
                return Ok(connection);
            }
            if waits.is_none() {
                waits = Some(self.wait_for_gateway()?);
            }
            self.wake.notify_one();
            tokio::select! {
                biased;
                () = self.closed.cancelled() => {}
                () = self.changed.until(|n| (*n != seen).then_some(())) => {}
            }
        }
    }

    /// Room for one more call that waits for a gateway.
    fn wait_for_gateway(&self) -> Result<Waits<'_>, Failure> {
        let max = self.options.calls_waiting_max;
        let waits = Waits(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) < max {
            return Ok(waits);
        }
        Err(Failure::overloaded(format!(
            "{max} calls of this client wait for a gateway already (calls_waiting_max)"
        )))
    }

    /// The gateways that take calls now.
    pub(super) fn state(&self) -> ClientState {
        let mut gateways: Vec<_> =
            self.gateways.read().iter().filter(|g| g.is_usable()).map(|g| g.silo).collect();
        gateways.dedup();
        ClientState { gateways, closed: self.closed.is_cancelled() }
    }

    /// Waits for another state than this one.
    pub(super) async fn state_after(&self, seen: &ClientState) -> ClientState {
        let other = |_: &u64| Some(self.state()).filter(|now| now != seen);
        self.changed.until(other).await
    }

    /// The gateway for calls to `grain`, if one is connected.
    pub(crate) fn gateway_now(&self, grain: &GrainId) -> Result<Arc<Connection>, Failure> {
        self.choose(grain)
            .ok_or_else(|| Failure::unreachable(None, false, "no gateway is connected".to_owned()))
    }

    /// Tells every gateway that the membership table has changed.
    pub(crate) fn table_has_changed(&self) {
        for gateway in self.gateways.read().iter() {
            let _ = gateway.connection.system(channel::GATEWAY, &GatewayMessage::TableChanged);
        }
    }

    pub(crate) async fn statistics(
        &self,
        patience: Duration,
    ) -> Vec<(SiloAddress, SiloStatistics)> {
        self.statistics.lock().clear();
        let asked: Vec<_> = self.gateways.read().iter().map(|g| g.connection.clone()).collect();
        for connection in &asked {
            let _ = connection.system(channel::GATEWAY, &GatewayMessage::StatisticsQuery);
        }
        let all = async {
            loop {
                let answered = self.statistics_changed.notified();
                if self.statistics.lock().len() >= asked.iter().filter(|c| !c.is_lost()).count() {
                    return;
                }
                answered.await;
            }
        };
        let _ = tokio::time::timeout(patience, all).await;
        let mut found: Vec<_> = self.statistics.lock().iter().map(|(s, n)| (*s, *n)).collect();
        found.sort_unstable_by_key(|(silo, _)| *silo);
        found
    }

    pub(crate) fn close(&self) {
        self.closed.cancel();
        for gateway in self.gateways.write().drain(..) {
            gateway.connection.goodbye(GoodbyeCode::Stopping, "the client closes");
        }
        self.note_change();
    }
}

/// A call that waits for a gateway.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
