//! The parts of a silo, each made of its ingredients.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use emmer_core::SiloAddress;
use emmer_net::clock::Clock;
use emmer_net::transport::{Budget, Greeting, HeldBytes, Pool, Security};
use emmer_net::world::{OwnThread, Spawner, Watched};
use emmer_placement::PlacementTable;
use emmer_placement::hosted::{HostedType, Manifest};
use emmer_placement::repartition::RepartitionConfig;
use emmer_store::SiloTable;
use emmer_store::reminders::ReminderTable;
use emmer_wire::PeerKind;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::access::SiloAccess;
use super::admin::Desk;
use super::clients::ToldByClients;
use super::core::SiloCore;
use super::meter::Meter;
use super::records::Records;
use super::tasks::LeaveTask;
use crate::access::Authenticate;
use crate::calls::shedding::Shedding;
use crate::calls::{Calls, Open, Rules};
use crate::cluster::directory::DirectoryService;
use crate::cluster::load::{LoadService, LoadTimes};
use crate::cluster::locations::Locations;
use crate::cluster::membership::MembershipHandle;
use crate::cluster::moves::Moves;
use crate::cluster::talks::Talks;
use crate::cluster::{Cluster, Fence, MembershipEar, Peers, Placing, Pulse};
use crate::filters::Filters;
use crate::grain::{OwnClient, Services};
use crate::hosting::Shortage;
use crate::hosting::catalog::Catalog;
use crate::hosting::{Classes, Departures, Host, Kept, States};
use crate::metrics::Metrics;
use crate::metrics::store::StoreMetrics;
use crate::options::SiloOptions;
use crate::reminders::{ReminderService, Surroundings};
use crate::streams::{Hub, Way};
use crate::waits::Waits;
use crate::wheel::Wheel;

/// Identity of a silo, and the things that it was given.
pub(super) struct Given {
    pub(super) address: SiloAddress,
    pub(super) options: SiloOptions,
    pub(super) clock: Clock,
    pub(super) classes: Classes,
    pub(super) services: Arc<Services>,
    pub(super) outgoing: Filters,
    pub(super) states: States,
    pub(super) reminders: ReminderTable,
    pub(super) membership: MembershipHandle,
    pub(super) placement: PlacementTable,
    pub(super) name: Arc<str>,
    pub(super) store_metrics: Arc<StoreMetrics>,
    pub(super) records: Records,
    pub(super) table: SiloTable,
    pub(super) before_leave: Vec<LeaveTask>,
    pub(super) security: Security,
    pub(super) access: SiloAccess,
    /// The thread of the membership.
    pub(super) thread: OwnThread,
}

/// Puts a silo together. Nothing runs yet.
pub(super) fn wire(given: Given) -> Arc<SiloCore> {
    let Given { address, options, clock, classes, services, states, reminders, .. } = given;
    let Given {
        outgoing,
        membership,
        placement,
        name,
        store_metrics,
        records,
        table,
        before_leave,
        security,
        access,
        thread,
        ..
    } = given;
    let SiloAccess { authenticate, authorize, admin } = access;
    let admin = admin.or_settings(&options.admin);
    let (spawner, stopped) = (Spawner::current(), CancellationToken::new());
    let mut greeting = greeting(address, &options, security, authenticate);
    greeting.pulse = Some(thread.spawner().clone());
    let pulse = Pulse::new(address, thread, &greeting, clock.clone(), stopped.clone());
    let pool = Arc::new(Pool::new(greeting));
    let peers = Peers::new(pool.clone(), stopped.clone());
    let catalog = Arc::new(Catalog::new());
    let directory = DirectoryService::new(
        address,
        options.directory_config(),
        clock.clone(),
        peers.clone(),
        catalog.clone(),
    );
    let full_at = options.limits.activations_max;
    let shedding = Arc::new(Shedding::new(options.load_shedding.clone()));
    let shortage = Arc::new(Shortage::default());
    let parts = (catalog.clone(), pool.clone(), shortage.clone());
    let meter = Meter::new(parts, full_at, shedding.clone(), &clock);
    let load = LoadService::new(
        address,
        manifest(&classes).with_metadata(options.metadata.clone()),
        &LoadTimes {
            period: options.load_period,
            vote_lasts: options.membership.death_vote_expiration_timeout,
        },
        clock.clone(),
        peers.clone(),
        Arc::new(meter),
    );
    let selector = options.version_selector;
    let placing = Placing::new(address, clock.clone(), placement, selector, load.clone());
    let locations = Arc::new(Locations::new(options.limits.location_cache_max));
    let cluster = Cluster::new(
        address,
        clock.clone(),
        membership,
        directory.clone(),
        locations.clone(),
        placing,
        (peers.clone(), pulse),
    );
    let cluster = Arc::new(cluster);
    cluster.pulse.heard_by(Arc::new(MembershipEar(Arc::downgrade(&cluster))));
    let rules = Rules::new(authorize, options.list_types_to_clients, &classes);
    let client = OwnClient::default();
    let waits = Waits::new();
    let wheel = Arc::new(Wheel::new(clock.clone()));
    let reminders = ReminderService::new(Surroundings {
        me: address,
        clock: clock.clone(),
        wheel: wheel.clone(),
        spawner: spawner.clone(),
        peers: peers.clone(),
        client: client.clone(),
        table: reminders,
        options: options.reminders.clone(),
    });
    let host = Host {
        address,
        clock: clock.clone(),
        spawner: spawner.clone(),
        fence: Fence::default(),
        catalog,
        classes,
        services,
        states,
        reminders: reminders.clone(),
        wheel: wheel.clone(),
        timers: Arc::default(),
        kept: Kept::default(),
        standing: Default::default(),
        failures: Default::default(),
        traces: Default::default(),
        ages: Default::default(),
        moves: Moves::new(peers, locations),
        directory,
        load,
        metrics: Metrics::default(),
        departures: Departures::default(),
        flushes: AtomicUsize::new(0),
        waits: waits.clone(),
        queues: Mutex::default(),
        ticking: pool.greeting().ticking.clone(),
        calls: OnceLock::new(),
        limits: options.limits.clone(),
        memory_max: options.memory_max,
        shortage,
        processors: processors(&clock),
        response_timeout: options.response_timeout,
        activation_timeout: options.activation_timeout,
        deactivation_timeout: options.deactivation_timeout,
        stopped: stopped.clone(),
    };
    let share_percent = u32::from(options.balance_share);
    let config = RepartitionConfig { share_percent, ..RepartitionConfig::default() };
    let talks = options.repartition.then(|| Talks::new(address, clock.clone(), config));
    let calls = Arc::new(Calls {
        address,
        clock: clock.clone(),
        spawner,
        host: Arc::new(host),
        cluster: cluster.clone(),
        lanes: Arc::default(),
        asked: Open::default(),
        outgoing,
        talks,
        waits,
        one_ways: Arc::new(AtomicUsize::new(0)),
        sends_one_way: AtomicBool::new(false),
        serving: AtomicUsize::new(0),
        streams: Hub::new(clock, wheel, options.limits.streams_max),
        response_timeout: options.response_timeout,
        limits: options.limits.clone(),
        rules,
        shedding,
        stopped: stopped.clone(),
    });
    client.lead_to(&calls);
    let silo: Arc<dyn Any + Send + Sync> = calls.clone();
    let _ = calls.host.calls.set(Arc::downgrade(&silo));
    let host = calls.host.clone();
    let ended = Watched::new(None);
    let core = Arc::new(SiloCore {
        address,
        options,
        host,
        cluster,
        calls,
        reminders,
        pool,
        stopped,
        ended,
        name,
        store_metrics,
        records,
        told: ToldByClients::default(),
        desk: Desk::new(admin),
        table,
        drained: AtomicU64::new(0),
        fence_shut: Mutex::default(),
        leaving: AtomicBool::new(false),
        end_awaited: AtomicBool::new(false),
        before_leave: Mutex::new(before_leave),
    });
    core.pool.handled_by(&core);
    let way: Arc<dyn Way> = core.clone();
    core.calls.streams.goes_by(Arc::downgrade(&way));
    core
}

/// Manifest of the types that a silo hosts.
fn manifest(classes: &Classes) -> Manifest {
    let types = classes.values().map(|class| HostedType {
        name: class.name().to_owned(),
        placement: class.placement().strategy.clone(),
        filters: class.placement().filters.clone(),
        is_worker: class.workers_max().is_some(),
        version: class.version(),
        data_version: class.data_version(),
        methods: class.method_numbers(),
    });
    Manifest::new(types.collect())
}

/// Number of processors that the process may use. A run in virtual time must not depend on the
/// machine.
fn processors(clock: &Clock) -> usize {
    const IN_VIRTUAL_TIME: usize = 4;
    if clock.is_virtual() {
        return IN_VIRTUAL_TIME;
    }
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Greeting of the silo to its peers.
fn greeting(
    address: SiloAddress,
    options: &SiloOptions,
    security: Security,
    authenticate: Authenticate,
) -> Greeting {
    Greeting {
        cluster: options.cluster_id.clone(),
        me: PeerKind::Silo(address),
        limits: options.limits.clone(),
        budget: Arc::new(Budget::new(options.limits.silo_calls_in_flight_max)),
        ticking: Arc::default(),
        gone: Arc::default(),
        frame_rooms: Arc::default(),
        held: HeldBytes::new(options.limits.client_bytes_max),
        timeout: options.connect_timeout,
        options: options.digest(),
        security,
        admit: Some(authenticate.admission()),
        token: None,
        pulse: None,
    }
}
