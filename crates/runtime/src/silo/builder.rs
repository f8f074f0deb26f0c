//! From settings to a running silo.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use emmer_core::{ClusterId, GrainTypeId, SiloAddress, SiloStatus};
use emmer_membership::{Membership, TerminateReason};
use emmer_placement::{Director, Strategy};
use emmer_store::reminders::ReminderTable;
use emmer_store::silos::SiloTable;
use emmer_store::state::StateTable;
use emmer_store::{StoreError, SystemStore};
use parking_lot::Mutex;

use super::directors::Directors;
use super::records::Records;
use super::watch::{Observer, SiloWatch};
use super::wiring::{Given, wire};
use super::{Silo, SiloCore, identity};
use crate::clock::{self, Clock};
use crate::cluster::membership::{self, Input, MembershipHandle};
use crate::grain::{ActivationError, Ctx, Grain, Hosted, Interface, Services, class_name};
use crate::hosting::{AnyClass, Class, Classes, Constructor, Lack, MethodCollision, contain};
use crate::log::warn_seldom;
use crate::metrics::store::{Measured, StoreMetrics};
use crate::net::{Callers, Listener, Port};
use crate::options::{OptionError, SiloOptions};
use crate::stores::{STORE_VARIABLE, StoreOpener, StoreSource};
use crate::world::{self, TcpListener};

/// Why a silo did not start. Nothing is left behind but, at most, a Joining row that others will
/// clear.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The system store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No store was given.
    #[error("no store is configured: call .store(...) or set {STORE_VARIABLE}")]
    NoStore,
    /// The store may go on with a request for longer than membership waits for it.
    #[error(
        "{store} gives a request up after {request:?} (timeout_ms), later than membership does \
         after {table_timeout:?} (table_timeout): shorten the first or lengthen the second"
    )]
    StorePatience {
        /// The store.
        store: String,
        /// How long it may go on with a request.
        request: Duration,
        /// The membership option `table_timeout`.
        table_timeout: Duration,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for {purpose}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `silos` or `clients`.
        purpose: &'static str,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// Other silos could not connect to a wildcard address.
    #[error("{0} is a wildcard: say with `advertise` which address other silos shall connect to")]
    Wildcard(SocketAddr),
    /// An option cannot be worked with.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A membership option is out of its range.
    #[error("membership: {0}")]
    Membership(#[from] emmer_membership::ConfigError),
    /// Two grain types cannot be told apart.
    #[error("the grain types {0:?} and {1:?} have the same number: rename one")]
    TypeCollision(&'static str, &'static str),
    /// Two methods of a class cannot be told apart.
    #[error("the methods {0} and {1} have the same number: rename one")]
    MethodCollision(&'static str, &'static str),
    /// One grain type is hosted by two classes.
    #[error("the grain type {0:?} is hosted twice, by different classes")]
    HostedTwice(&'static str),
    /// A class has a field with `#[service]`, and the silo has no service of its type.
    #[error(
        "the class {class} needs a service of type {service} for its field `{field}`: add it with \
         .service(...)"
    )]
    NoService {
        /// The class.
        class: &'static str,
        /// The field.
        field: &'static str,
        /// The type of the service.
        service: &'static str,
    },
    /// A class says `#[grain(constructor)]` and is hosted without one.
    #[error("the class {0} has a constructor: host it with .host_with(...)")]
    NoConstructor(&'static str),
    /// A class is placed by a strategy that this silo has no director for.
    #[error(
        "the grain type {grain_type:?} is placed by {strategy:?}, which is no strategy of this \
         silo: add its director with .director({strategy:?}, ...)"
    )]
    NoDirector {
        /// The grain type.
        grain_type: &'static str,
        /// The name of the strategy.
        strategy: String,
    },
    /// The cluster did not take the silo in.
    #[error("the silo {silo} did not become Active: {reason}")]
    Join {
        /// Who tried.
        silo: SiloAddress,
        /// Why not.
        reason: TerminateReason,
    },
}

/// The sentence, which a `main` or an `unwrap` shows.
impl fmt::Debug for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StartError {
    /// Returns the exit code of a process that is nothing but a silo, as `docs/operations.md` lists
    /// it: 3 for the store, 4 for an address, 5 for a join that did not succeed, 2 for what the
    /// program says.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Store(_) => 3,
            Self::Listen { .. } => 4,
            Self::Join { .. } => 5,
            _ => 2,
        }
    }
}

type MakeClass = Box<dyn FnOnce(Duration) -> Result<Arc<dyn AnyClass>, MethodCollision> + Send>;
type TerminateHook = Box<dyn FnOnce(TerminateReason) + Send>;

struct HostedType {
    name: &'static str,
    class: std::any::TypeId,
    make: MakeClass,
}

/// Describes a silo until it is started.
pub struct SiloBuilder<S: StoreOpener> {
    options: SiloOptions,
    store: Option<StoreSource>,
    hosted: Vec<HostedType>,
    services: Services,
    directors: Directors,
    on_terminate: Option<TerminateHook>,
    observers: Vec<Box<dyn Observer>>,
    stores: PhantomData<fn() -> S>,
}

impl<S: StoreOpener> SiloBuilder<S> {
    pub(super) fn new() -> Self {
        Self {
            options: SiloOptions::default(),
            store: None,
            hosted: Vec::new(),
            services: Services::default(),
            directors: Directors::default(),
            on_terminate: None,
            observers: Vec::new(),
            stores: PhantomData,
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

    /// The cluster to join.
    #[must_use]
    pub fn cluster_id(mut self, cluster: ClusterId) -> Self {
        self.options.cluster_id = cluster;
        self
    }

    /// Where other silos connect to; port 0 takes a free one.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.options.listen = address;
        self
    }

    /// Where clients connect to; port 0 takes a free one. Without it the silo is no gateway.
    #[must_use]
    pub const fn gateway(mut self, address: SocketAddr) -> Self {
        self.options.gateway = Some(address);
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
        self.hosted.push(hosted_type::<I, G>(None));
        self
    }

    /// Hosts the grains of interface `I` with class `G`, whose instances `make` makes: with what
    /// the application has at hand, and with services. What it makes gets its states bound and read
    /// before the first call; `Persistent::default()` is a state that is not bound yet.
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
        self.hosted.push(hosted_type::<I, G>(Some(Arc::new(make))));
        self
    }

    /// Gives a service to all grains of this silo that have a field for it: `#[service]` on an
    /// `Arc<T>`. It is found by its type; the last one of a type counts, so that a test can put its
    /// own in the place of another.
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
        self.directors.named.push((name.into(), Box::new(director)));
        self
    }

    /// The strategy of classes that name none; random placement without it.
    #[must_use]
    pub fn default_placement(mut self, strategy: Strategy) -> Self {
        self.directors.default = strategy;
        self
    }

    /// What to do when the cluster has declared this silo dead (or its row is gone, or a later
    /// incarnation took its place, or the table lost a commit). The silo runs no turn any more when
    /// the hook runs. Without one the silo just ends, and its process lives on: calls of this
    /// process fail with `ShuttingDown`. A process that is nothing but a silo waits best with
    /// [`Silo::run_until_stopped`], ends, and is started anew.
    #[must_use]
    pub fn on_terminate(mut self, hook: impl FnOnce(TerminateReason) + Send + 'static) -> Self {
        self.on_terminate = Some(Box::new(hook));
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
    pub async fn start(self) -> Result<Silo<S>, StartError> {
        let Self { options, store, hosted, services, .. } = self;
        let Self { directors, on_terminate, observers, .. } = self;
        options.check()?;
        options.membership.validate()?;
        let classes = make_classes(hosted, options.collection_age)?;
        check_services(&classes, &services)?;
        directors.check(&classes)?;
        let opened = StoreSource::or_environment(store).ok_or(StartError::NoStore)?;
        let opened = opened.open::<S>().await?;
        let described = opened.describe();
        let (clock, store_metrics) = (Clock::new(), Arc::new(StoreMetrics::default()));
        let store: Arc<dyn SystemStore> =
            Arc::new(Measured::new(opened, store_metrics.clone(), clock.clone()));
        check_patience(&*store, options.membership.table_timeout)?;
        // The port first: whoever holds it is the only process that can use this address, and only
        // then is it time to choose an epoch.
        let silo_socket = listen(options.listen, "silos").await?;
        let endpoint = advertised(&options, &silo_socket)?;
        let gateway_socket = match options.gateway {
            Some(address) => Some(listen(address, "clients").await?),
            None => None,
        };
        let gateway = gateway_socket.as_ref().and_then(|s| s.local_addr().ok());
        let table = SiloTable::new(store.clone(), options.cluster_id.clone())
            .with_rows_max(options.limits.membership_rows_max);
        let (service, cluster) = (options.service().clone(), options.cluster_id.clone());
        let states = StateTable::new(store.clone(), service.clone());
        let records = Records::new(&store, &cluster);
        let reminders = ReminderTable::new(store, service, cluster);
        table.ensure().await?;
        states.ensure().await?;
        reminders.ensure().await?;
        records.ensure(&options.records).await?;

        let rows = table.incarnations(&SiloAddress::new(endpoint, 0)).await?;
        let address = identity::next(endpoint, clock::epoch_now(), &rows);
        let entry = identity::row(address, &options, gateway);
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
            states,
            reminders,
            membership,
            placement,
            name,
            store_metrics,
            records,
        });

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
                () = driven.host.reminders.drive() => {}
            }
        });
        let running = core.clone();
        world::spawn(
            async move { run_membership(running, machine, table, inputs, on_terminate).await },
        );
        join(&core).await?;
        Ok(Silo { core, gateway, stores: PhantomData })
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

/// The machine counts a commit as over after `table_timeout`: the store must not go on with one for
/// longer.
fn check_patience(store: &dyn SystemStore, table_timeout: Duration) -> Result<(), StartError> {
    match store.request_timeout().filter(|request| *request > table_timeout) {
        None => Ok(()),
        Some(request) => {
            Err(StartError::StorePatience { store: store.describe(), request, table_timeout })
        }
    }
}

/// A class under the name of its grain type.
fn hosted_type<I, G>(constructor: Option<Constructor<G>>) -> HostedType
where
    I: Interface + Hosted<G> + ?Sized,
    G: Grain,
{
    let name = match G::CLASS {
        None => I::GRAIN_TYPE,
        Some(class) => interned(class_name(I::GRAIN_TYPE, class)),
    };
    let make: MakeClass = Box::new(move |idle| {
        let class = Class::<G>::new(name, I::VERSION, I::methods(), idle)?;
        Ok(Arc::new(class.made_by(constructor)) as Arc<dyn AnyClass>)
    });
    HostedType { name, class: std::any::TypeId::of::<G>(), make }
}

/// A name that lives as long as the process. There are as many as the program has classes.
fn interned(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let name: &'static str = name.leak();
    names.insert(name);
    name
}

fn check_services(classes: &Classes, services: &Services) -> Result<(), StartError> {
    let lacks: Option<Lack> =
        classes.values().filter_map(|class| class.lacks(services)).min_by_key(|lack| match lack {
            Lack::Constructor(class) | Lack::Service { class, .. } => *class,
        });
    match lacks {
        None => Ok(()),
        Some(Lack::Constructor(class)) => Err(StartError::NoConstructor(class)),
        Some(Lack::Service { class, need }) => {
            Err(StartError::NoService { class, field: need.field, service: (need.type_name)() })
        }
    }
}

fn make_classes(hosted: Vec<HostedType>, idle: Duration) -> Result<Classes, StartError> {
    let mut classes: HashMap<GrainTypeId, (std::any::TypeId, Arc<dyn AnyClass>)> = HashMap::new();
    for HostedType { name, class, make } in hosted {
        let made = make(idle).map_err(|c| StartError::MethodCollision(c.first, c.second))?;
        match classes.get(&GrainTypeId::of(name)) {
            Some((_, other)) if other.name() != name => {
                return Err(StartError::TypeCollision(other.name(), name));
            }
            Some((first, _)) if *first != class => return Err(StartError::HostedTwice(name)),
            Some((_, other)) => {
                let both = other
                    .clone()
                    .merged(made)
                    .map_err(|c| StartError::MethodCollision(c.first, c.second))?;
                classes.insert(GrainTypeId::of(name), (class, both));
            }
            None => {
                classes.insert(GrainTypeId::of(name), (class, made));
            }
        }
    }
    Ok(classes.into_iter().map(|(id, (_, class))| (id, class)).collect())
}

async fn listen(address: SocketAddr, purpose: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen {
        address,
        purpose,
        source,
    })
}

/// The address other silos are told: the advertised one, or the one listened on.
fn advertised(options: &SiloOptions, socket: &TcpListener) -> Result<SocketAddr, StartError> {
    let bound = socket.local_addr().map_err(|source| StartError::Listen {
        address: options.listen,
        purpose: "silos",
        source,
    })?;
    let mut endpoint = options.advertise.unwrap_or(bound);
    if endpoint.port() == 0 {
        endpoint.set_port(bound.port());
    }
    if endpoint.ip().is_unspecified() { Err(StartError::Wildcard(endpoint)) } else { Ok(endpoint) }
}

fn open_ports(core: &Arc<SiloCore>, silos: TcpListener, clients: Option<TcpListener>) {
    let ports = [Some((Port::Silo, silos)), clients.map(|socket| (Port::Gateway, socket))];
    for (port, socket) in ports.into_iter().flatten() {
        let listener = Listener {
            port,
            me: core.address,
            greeting: core.pool.greeting().clone(),
            handler: core.clone(),
            pool: core.pool.clone(),
            stop: core.stopped.clone(),
            open: AtomicUsize::new(0),
            callers: Callers::default(),
        };
        world::spawn(listener.run(socket));
    }
}

async fn run_membership(
    core: Arc<SiloCore>,
    machine: Membership,
    table: SiloTable,
    inputs: tokio::sync::mpsc::Receiver<Input>,
    hook: Option<TerminateHook>,
) {
    let reason = tokio::select! {
        biased;
        reason = membership::run(core.cluster.clone(), &*core, machine, table, inputs) => reason,
        () = core.stopped.cancelled() => return,
    };
    let joined = *core.cluster.status.borrow() >= SiloStatus::Active;
    core.end(reason);
    if reason == TerminateReason::Left || !joined {
        return;
    }
    match hook {
        Some(hook) => {
            tracing::error!(me = %core.address, %reason, "this silo ends");
            hook(reason);
        }
        None => tracing::error!(
            me = %core.address, %reason,
            "this silo has ended and its process goes on without it, unless it waits for that: \
             `run_until_stopped` does"
        ),
    }
}

/// Joins, and waits until the silo is Active in a view.
async fn join(core: &Arc<SiloCore>) -> Result<(), StartError> {
    core.cluster.membership.send_surely(Input::Join).await;
    let outcome = tokio::select! {
        biased;
        () = core.cluster.status.until(|s| (*s == SiloStatus::Active).then_some(())) => None,
        reason = core.terminated() => Some(reason),
    };
    match outcome {
        None => Ok(()),
        Some(reason) => Err(StartError::Join { silo: core.address, reason }),
    }
}
