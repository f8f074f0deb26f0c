//! From settings to a running silo.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use emmer_core::{ClusterId, SiloAddress, SiloEntry, SiloStatus};
use emmer_membership::{Membership, TerminateReason};
use emmer_net::clock::{self, Clock};
use emmer_net::transport::descriptors;
use emmer_net::warn_seldom;
use emmer_net::world::{self, OwnThread, Spawner};
use emmer_placement::{AsyncDirector, Director, Strategy};
use emmer_store::reminders::ReminderTable;
use emmer_store::silos::SiloTable;
use emmer_store::state::StateTable;
use emmer_store::{BoxFuture, SystemStore};
use emmer_stores::{CredentialError, CredentialSource, StoreCredentials};

use super::access::SiloAccess;
use super::classes::{HostedType, check_lacks, make_classes};
use super::core::SiloCore;
use super::directors::Directors;
use super::filters::SiloFilters;
use super::handle::Silo;
use super::ports::{advertised, leave_room, listen, open_ports};
use super::records::Records;
use super::security::{check_address, check_agreement, check_reach};
use super::start_error::StartError;
use super::tasks::{self, LeaveTask, StartTask};
use super::watch::{Observer, SiloWatch};
use super::wiring::{Given, wire};
use super::{identity, lifecycle};
use crate::cluster::membership::{self, Input, MembershipHandle};
use crate::grain::{Ctx, Error, Grain, GrainFactory, Hosted, Interface, Services, constructor};
use crate::hosting::States;
use crate::metrics::store::{Measured, StoreMetrics};
use crate::options::{Setting, SiloOptions, Wrong};
use crate::stores::{Apart, StoreSource};
use crate::turn::{ActivationError, contain};

type TerminateHook = Box<dyn FnOnce(TerminateReason) + Send>;

/// Describes a silo until it is started.
///
/// Addresses, names and times may be texts. One that stands for no value is an error of
/// [`start`](Self::start), and nothing is left behind.
///
/// ```no_run
/// use emmer::prelude::*;
/// # #[grain_interface(key = String)]
/// # pub trait Cart {
/// #     async fn put(&mut self, item: String) -> usize;
/// # }
/// # #[derive(Grain)]
/// # struct CartGrain {
/// #     items: Vec<String>,
/// # }
/// # #[grain]
/// # impl Cart for CartGrain {
/// #     async fn put(&mut self, item: String) -> usize {
/// #         self.items.push(item);
/// #         self.items.len()
/// #     }
/// # }
/// # async fn f() -> emmer::Result<()> {
/// let silo = Silo::builder()
///     .store("postgres://emmer:secret@db/emmer")
///     .cluster_id("shop")
///     .listen("10.0.0.7:11111")
///     .gateway("10.0.0.7:30000")
///     .host::<dyn Cart, CartGrain>()
///     .start()
///     .await?;
/// # drop(silo);
/// # Ok(())
/// # }
/// ```
pub struct SiloBuilder {
    pub(super) options: SiloOptions,
    wrong: Wrong,
    store: Option<StoreSource>,
    credentials: Option<CredentialSource>,
    hosted: Vec<HostedType>,
    services: Services,
    pub(super) filters: SiloFilters,
    pub(super) access: SiloAccess,
    state_stores: BTreeMap<String, StoreSource>,
    directors: Directors,
    on_terminate: Option<TerminateHook>,
    on_start: Vec<StartTask>,
    before_leave: Vec<LeaveTask>,
    observers: Vec<Box<dyn Observer>>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<emmer_net::tls::Tls>,
}

impl Silo {
    /// Begins to describe a silo.
    pub fn builder() -> SiloBuilder {
        SiloBuilder::new()
    }
}

impl SiloBuilder {
    pub(super) fn new() -> Self {
        Self {
            options: SiloOptions::default(),
            wrong: Wrong::default(),
            store: None,
            credentials: None,
            hosted: Vec::new(),
            services: Services::default(),
            filters: SiloFilters::default(),
            access: SiloAccess::default(),
            state_stores: BTreeMap::new(),
            directors: Directors::default(),
            on_terminate: None,
            on_start: Vec::new(),
            before_leave: Vec::new(),
            observers: Vec::new(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Takes all settings at once; call it before the single ones.
    #[must_use]
    pub fn options(mut self, options: SiloOptions) -> Self {
        self.options = options;
        self
    }

    /// Changes some settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut SiloOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// The system store: a URL or an opened store. Without it the environment's `EMMER_STORE` is
    /// used.
    #[must_use]
    pub fn store(mut self, store: impl Into<StoreSource>) -> Self {
        self.store = Some(store.into());
        self
    }

    /// Gives the credentials of the system store instead of those in its URL. The silo asks for
    /// them when it starts, when the server refuses, and before they expire, so they change without
    /// a restart (a file does the same: `?password_file=`). A store that the program opened keeps
    /// its own.
    #[must_use]
    pub fn store_credentials<F>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<StoreCredentials, CredentialError>> + Send + 'static,
    {
        self.credentials = Some(CredentialSource::new(ask));
        self
    }

    /// The cluster to join.
    #[must_use]
    pub fn cluster_id(mut self, cluster: impl Setting<ClusterId>) -> Self {
        if let Some(cluster) = self.wrong.read("cluster_id", cluster) {
            self.options.cluster_id = cluster;
        }
        self
    }

    /// Sets the address where other silos connect to, as in `"10.0.0.1:11111"`; port 0 takes a free
    /// one.
    #[must_use]
    pub fn listen(mut self, address: impl Setting<SocketAddr>) -> Self {
        if let Some(address) = self.wrong.read("listen", address) {
            self.options.listen = address;
        }
        self
    }

    /// Sets the address where clients connect to, as in `"10.0.0.1:30000"`; port 0 takes a free
    /// one. Without it the silo is no gateway.
    #[must_use]
    pub fn gateway(mut self, address: impl Setting<SocketAddr>) -> Self {
        self.options.gateway = self.wrong.read("gateway", address).or(self.options.gateway);
        self
    }

    /// The address that clients connect to, if it differs from the one listened on. Its host is the
    /// host that other silos connect to.
    #[must_use]
    pub fn advertise_gateway(mut self, address: impl Setting<SocketAddr>) -> Self {
        let told = self.wrong.read("advertise_gateway", address);
        self.options.advertise_gateway = told.or(self.options.advertise_gateway);
        self
    }

    /// Hosts the grains of interface `I` with class `G`, as in
    /// `.host::<dyn Counter, CounterGrain>()`. A class may host several interfaces that name the
    /// same grain type.
    #[must_use]
    pub fn host<I, G>(mut self) -> Self
    where
        I: Interface + Hosted<G> + ?Sized,
        G: Grain,
    {
        self.hosted.push(HostedType::of::<I, G>(None));
        self
    }

    /// Hosts the grains of interface `I` with class `G`. `make` makes its instances, from what the
    /// application has at hand and from services. Their states are bound and read before the first
    /// call; `Persistent::default()` is an unbound state.
    ///
    /// An error of `make` fails the activation and every call that waits for it.
    #[must_use]
    pub fn host_with<I, G>(
        mut self,
        make: impl Fn(&Ctx, &Services) -> Result<G, ActivationError> + Send + Sync + 'static,
    ) -> Self
    where
        I: Interface + Hosted<G> + ?Sized,
        G: Grain,
    {
        self.hosted.push(HostedType::of::<I, G>(Some(constructor(make))));
        self
    }

    /// A store for states outside the system store: those with `#[state("name", store = "..")]`,
    /// and as `"default"` those that name none. The last store of a name counts.
    #[must_use]
    pub fn state_store(mut self, name: impl Into<String>, store: impl Into<StoreSource>) -> Self {
        self.state_stores.insert(name.into(), store.into());
        self
    }

    /// Gives a service to all grains of this silo that have a field for it: `#[service]` on an
    /// `Arc<T>`. Services are found by type. The last one of a type counts, so a test can replace
    /// it.
    #[must_use]
    pub fn service<T: Send + Sync + 'static>(self, service: T) -> Self {
        self.shared_service(Arc::new(service))
    }

    /// As [`service`](Self::service), for one that is shared already, or known by a trait
    /// (`Arc<dyn Mailer>`).
    #[must_use]
    pub fn shared_service<T: ?Sized + Send + Sync + 'static>(mut self, service: Arc<T>) -> Self {
        self.services.add(service);
        self
    }

    /// Lets `director` place the grains of classes that say `#[placement("name")]`. The last one of
    /// a name counts. All silos that such grains are called from need it: a call is placed where it
    /// comes from.
    #[must_use]
    pub fn director(mut self, name: impl Into<String>, director: impl Director + 'static) -> Self {
        self.directors.add(name.into(), director);
        self
    }

    /// Like [`director`](Self::director), for a director that may have to wait: for a database,
    /// another service. A call waits for its answer until the call's deadline. Other calls
    /// continue.
    #[must_use]
    pub fn async_director(
        mut self,
        name: impl Into<String>,
        director: impl AsyncDirector + 'static,
    ) -> Self {
        self.directors.add_later(name.into(), director);
        self
    }

    /// Says something of the silo: classes may ask for it
    /// (`#[placement(require("disk" = "ssd"))]`), and directors see it. At most 32 entries, with
    /// keys of 1 to 64 bytes and values of at most 256. The last one of a key counts.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.metadata.insert(key.into(), value.into());
        self
    }

    /// The strategy of classes that name none; random placement without it.
    #[must_use]
    pub fn default_placement(mut self, strategy: Strategy) -> Self {
        self.directors.default = strategy;
        self
    }

    /// Hook for the end of a silo that the cluster has declared dead, whose row is gone, that has a
    /// later incarnation, or whose table lost a commit. No turn runs when the hook runs. Without a
    /// hook the silo just ends, and its process lives on: its calls fail with `ShuttingDown`. A
    /// process that is only a silo should wait with [`Silo::run_until_stopped`], end, and be
    /// started again.
    #[must_use]
    pub fn on_terminate(mut self, hook: impl FnOnce(TerminateReason) + Send + 'static) -> Self {
        self.on_terminate = Some(Box::new(hook));
        self
    }

    /// A task that runs once the silo is Active, before [`start`](Self::start) returns: it may call
    /// grains. If it fails the silo leaves again, and does not start
    /// ([`StartError::Startup`]). Several run in the order in which they were given.
    #[must_use]
    pub fn on_start<F>(mut self, task: impl FnOnce(GrainFactory) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        self.on_start.push(StartTask::new(task));
        self
    }

    /// A task that runs when the silo is asked to [`stop`](Silo::stop), before it leaves: grains
    /// are still called and hosted. It shares the silo's `shutdown_timeout`.
    #[must_use]
    pub fn before_leave<F>(mut self, task: impl FnOnce(GrainFactory) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.before_leave.push(LeaveTask::new(task));
        self
    }

    /// Watches the silo from before it joins: a way for its metrics out of the process, an endpoint
    /// for its health. As often as there are observers.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Opens the store, listens, joins the cluster, and returns once the silo is Active.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(self) -> Result<Silo, StartError> {
        self.started().await
    }

    /// In a box that is made here: what starts a silo is compiled in this crate, and not once for
    /// each program.
    fn started(self) -> BoxFuture<'static, Result<Silo, StartError>> {
        Box::pin(self.start_here())
    }

    async fn start_here(self) -> Result<Silo, StartError> {
        let security = self.security();
        let Self { mut options, wrong, store, hosted, services, state_stores, .. } = self;
        let Self { filters, access, directors, on_terminate, on_start, .. } = self;
        let Self { before_leave, observers, credentials, .. } = self;
        wrong.check()?;
        options.check()?;
        options.membership.validate()?;
        let security = security?;
        check_reach(&options, &security)?;
        let classes = make_classes(hosted, options.collection_age, &filters)?;
        directors.check(&classes)?;
        let source = StoreSource::or_environment(store).ok_or(StartError::NoStore)?;
        let thread = OwnThread::begin("emmer-pulse").map_err(StartError::Thread)?;
        let main = source.clone().open(credentials.clone());
        let reserve = source.clone().open_reserve(credentials, thread.spawner());
        let (opened, reserve) = tokio::try_join!(main, reserve)?;
        let described = opened.describe();
        let (clock, store_metrics) = (Clock::new(), Arc::new(StoreMetrics::default()));
        let (spawner, at_once) = (Spawner::current(), options.limits.store_requests_max);
        let in_use_by = |store: Arc<dyn SystemStore>, spawner: &Spawner| -> Arc<dyn SystemStore> {
            let measured = Measured::new(store, store_metrics.clone(), clock.clone());
            Arc::new(Apart::new(Arc::new(measured), spawner.clone(), at_once))
        };
        let in_use = |store| in_use_by(store, &spawner);
        // Membership opens the fence, so its requests never queue behind those of grains, and need
        // no thread that a turn can hold. The application's own store may need its runtime.
        let reserve = reserve.unwrap_or_else(|| opened.clone());
        let own = if source.is_opened() { &spawner } else { thread.spawner() };
        let (store, of_membership) = (in_use(opened), in_use_by(reserve, own));
        check_patience(&*store, options.membership.table_timeout)?;
        options.records.fit(store.keeps_in_memory());
        let descriptors = descriptors::raise();
        if options.gateway.is_some() {
            let clients = &mut options.limits.gateway_connections_max;
            *clients = leave_room(*clients, descriptors);
        }
        // Binds the port first: only the process that holds it may choose an epoch for this
        // address.
        let silo_socket = listen(options.listen, "silos").await?;
        let endpoint = advertised(&options, &silo_socket)?;
        check_address(&security, endpoint.ip())?;
        let gateway_socket = match options.gateway {
            Some(address) => Some(listen(address, "clients").await?),
            None => None,
        };
        let gateway = gateway_socket.as_ref().and_then(|s| s.local_addr().ok());
        let table = SiloTable::new(of_membership, options.cluster_id.clone())
            .with_rows_max(options.limits.membership_rows_max);
        let (service, cluster) = (options.service().clone(), options.cluster_id.clone());
        let bytes_max = options.limits.state_bytes_max;
        let table_of = |store: Arc<dyn SystemStore>| {
            StateTable::new(store, service.clone()).with_bytes_max(bytes_max)
        };
        let mut named = BTreeMap::new();
        for (name, source) in state_stores {
            let opened = source.open(None).await?;
            let states = table_of(in_use(opened));
            states.ensure().await?;
            named.insert(name, states);
        }
        let system = table_of(store.clone());
        system.ensure().await?;
        let states = States::new(system, named);
        check_lacks(&classes, &services, &states)?;
        let records = Records::new(&store, &cluster);
        let reminders = ReminderTable::new(store, service, cluster);
        table.ensure().await?;
        reminders.ensure().await?;
        records.ensure(&options.records).await?;

        let rows = table.incarnations(&SiloAddress::new(endpoint, 0)).await?;
        let address = identity::next(endpoint, clock::epoch_now(), &rows);
        let entry = identity::row(address, &options, gateway);
        if let Some(host) = identity::rival(&entry, &rows) {
            return Err(StartError::AddressShared { address: endpoint, host });
        }
        let holds = |row: &&SiloEntry| {
            row.address.same_endpoint(&address)
                && row.status == SiloStatus::Active
                && row.host_name != entry.host_name
        };
        if let Some(row) = rows.iter().find(holds) {
            tracing::warn!(
                silo = %row.address,
                host = %row.host_name,
                "a silo on another host has this silo's address, and is declared dead for it"
            );
        }
        let seed = address.stable_hash(address.epoch());
        let name: Arc<str> = entry.instance_name.as_ref().into();
        let machine = Membership::new(options.membership.clone(), entry, seed, clock.exact())?;
        let (membership, inputs) = MembershipHandle::new();
        let placement = directors.table(seed, options.activation_count_choices);
        let core = wire(Given {
            address,
            options,
            clock,
            classes,
            services: Arc::new(services),
            outgoing: filters.outgoing,
            states,
            reminders,
            membership,
            placement,
            name,
            store_metrics,
            records,
            table: table.clone(),
            before_leave,
            security: security.clone(),
            access,
            thread,
        });
        security.keep_current(core.stopped.clone());

        tell_start(&core, gateway, &described);
        for observer in observers {
            let watch = SiloWatch::new(&core);
            if let Err(panic) = contain(|| observer.begin(watch)) {
                warn_seldom!(panic, "an observer of the silo panicked");
            }
        }
        open_ports(&core, silo_socket, gateway_socket);
        world::spawn(core.clone().go_by_the_clock());
        let driven = core.clone();
        world::spawn(async move {
            tokio::select! {
                biased;
                () = driven.stopped.cancelled() => {}
                () = driven.cluster.directory.drive() => {}
                () = driven.cluster.placing.load.drive() => {}
                () = driven.reminders.drive() => {}
                () = driven.follow_duty() => {}
            }
        });
        if let Err(error) = check_agreement(&core, &table).await {
            core.end(TerminateReason::Left);
            return Err(error);
        }
        let running = core.clone();
        let main = Spawner::current();
        let begun = running.cluster.clone();
        begun.pulse.spawner().spawn(async move {
            run_membership(running, main, machine, table, inputs, on_terminate).await;
        });
        lifecycle::join(&core).await?;
        if let Err(error) = tasks::started(&core, on_start).await {
            lifecycle::stop(&core).await;
            return Err(error);
        }
        Ok(Silo::of(core, gateway))
    }
}

fn tell_start(core: &SiloCore, gateway: Option<SocketAddr>, store: &str) {
    let mut types: Vec<_> = core.host.classes.values().map(|class| class.name()).collect();
    types.sort_unstable();
    tracing::info!(
        me = %core.address,
        name = %core.name,
        version = env!("CARGO_PKG_VERSION"),
        cluster = %core.options.cluster_id,
        store,
        gateway = gateway.map(tracing::field::display),
        grains = types.join(" "),
        "a silo begins"
    );
}

/// The machine counts a commit as over after `table_timeout`: the store must not continue with one
/// for longer.
fn check_patience(store: &dyn SystemStore, table_timeout: Duration) -> Result<(), StartError> {
    match store.request_timeout().filter(|request| *request > table_timeout) {
        None => Ok(()),
        Some(request) => {
            Err(StartError::StorePatience { store: store.describe(), request, table_timeout })
        }
    }
}

async fn run_membership(
    core: Arc<SiloCore>,
    main: Spawner,
    machine: Membership,
    table: SiloTable,
    inputs: tokio::sync::mpsc::Receiver<Input>,
    hook: Option<TerminateHook>,
) {
    let cluster = core.cluster.clone();
    let reason = tokio::select! {
        biased;
        reason = membership::run(cluster, main.clone(), &*core, machine, table, inputs) => reason,
        () = core.stopped.cancelled() => return,
    };
    let joined = *core.cluster.status.borrow() >= SiloStatus::Active;
    main.within(|| core.end(reason));
    if reason != TerminateReason::Left && joined {
        // The application's own code runs where the application does.
        main.spawn(async move { tell_terminated(&core, reason, hook) });
    }
}

fn tell_terminated(core: &SiloCore, reason: TerminateReason, hook: Option<TerminateHook>) {
    match hook {
        Some(hook) => {
            tracing::error!(me = %core.address, %reason, "this silo ends");
            hook(reason);
        }
        None if core.end_awaited.load(Ordering::Relaxed) => {
            tracing::error!(me = %core.address, %reason, "this silo ends");
        }
        None => tracing::error!(
            me = %core.address, %reason,
            "this silo has ended and its process continues without it: wait for its end with \
             `run_until_stopped`"
        ),
    }
}
