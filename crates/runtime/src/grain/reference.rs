//! References: how a caller names a grain. Making one contacts nobody.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, GrainKey, GrainTypeId, SiloAddress};

use parking_lot::Mutex;

use crate::calls::Calls;
use crate::calls::path::Hint;
use crate::cluster::locations::Locations;
use crate::filters::Filters;
use crate::gateways::ClientCore;
use crate::grain::{Call, Ctx, Interface, IntoKey, KeyType, Method};
use crate::hosting::{Activation, Held};
use crate::turn::Names;
use emmer_net::clock::Clock;
use emmer_net::transport::Connection;
use emmer_net::world::Spawner;

/// The way into a cluster: makes references to grains. Cheap to clone.
#[derive(Clone)]
pub struct ClusterClient(pub(crate) Node);

/// Whose calls: a silo's own, or an outside client's.
#[derive(Clone)]
pub(crate) enum Node {
    Silo(Arc<Calls>),
    Client(Arc<ClientCore>),
    /// Nobody's: the reference was decoded outside both. Its calls are refused before anything is
    /// asked of the node.
    Nowhere,
}

/// The clock of references that belong nowhere.
static NO_CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

impl Node {
    pub(crate) fn clock(&self) -> &Clock {
        match self {
            Self::Silo(silo) => &silo.clock,
            Self::Client(client) => &client.clock,
            Self::Nowhere => &NO_CLOCK,
        }
    }

    /// The runtime where its tasks, its connections and the turns of a silo belong.
    pub(crate) fn spawner(&self) -> Option<&Spawner> {
        match self {
            Self::Silo(silo) => Some(&silo.spawner),
            Self::Client(client) => Some(&client.spawner),
            Self::Nowhere => None,
        }
    }

    /// The filters around the calls that are made there; none where there are none.
    #[inline]
    pub(crate) fn filters(&self) -> Option<&Filters> {
        let filters = match self {
            Self::Silo(silo) => &silo.outgoing,
            Self::Client(client) => &client.filters,
            Self::Nowhere => return None,
        };
        (!filters.is_empty()).then_some(filters)
    }

    /// Where grains were last found.
    pub(crate) fn locations(&self) -> Option<&Locations> {
        match self {
            Self::Silo(silo) => Some(&silo.cluster.locations),
            Self::Client(client) => Some(&client.locations),
            Self::Nowhere => None,
        }
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        match self {
            Self::Silo(silo) => silo.response_timeout,
            Self::Client(client) => client.options.response_timeout,
            Self::Nowhere => Duration::ZERO,
        }
    }

    /// How many activations a silo may have of a stateless worker; none for other grains, and for a
    /// client, which knows no classes.
    #[cold]
    pub(crate) fn workers_max(&self, id: &GrainId) -> Option<usize> {
        match self {
            Self::Silo(silo) => silo.host.workers_max(id),
            Self::Client(_) | Self::Nowhere => None,
        }
    }

    /// The version of the view that calls name; 0 for a client, which has none.
    pub(crate) fn view_version(&self) -> u64 {
        match self {
            Self::Silo(silo) => silo.cluster.view_version(),
            Self::Client(_) | Self::Nowhere => 0,
        }
    }
}

impl ClusterClient {
    pub(crate) const fn of_silo(silo: Arc<Calls>) -> Self {
        Self(Node::Silo(silo))
    }

    pub(crate) const fn of_client(client: Arc<ClientCore>) -> Self {
        Self(Node::Client(client))
    }

    /// A reference to the grain `key` behind interface `I`, as in
    /// `client.grain::<dyn Counter>("home")`.
    ///
    /// A text key of more than [`GRAIN_KEY_BYTES_MAX`] bytes makes every call `Rejected`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        let id = GrainId::new(GrainTypeId::of(I::GRAIN_TYPE), key.into_key());
        RawRef::new(self.0.clone(), id, Cow::Borrowed(I::GRAIN_TYPE)).into()
    }

    /// The silo this client lives in; none outside a silo.
    pub fn silo(&self) -> Option<SiloAddress> {
        match &self.0 {
            Node::Silo(silo) => Some(silo.address),
            Node::Client(_) | Node::Nowhere => None,
        }
    }

    /// Decodes something whose references shall belong to this client: `decode` may be any code of
    /// serde's. In a turn, and in what arrives by calls, references belong to the silo or client
    /// without it.
    pub fn bind<T>(&self, decode: impl FnOnce() -> T) -> T {
        self.0.binds(decode)
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Silo(silo) => write!(f, "ClusterClient(silo {})", silo.address),
            Node::Client(_) | Node::Nowhere => f.write_str("ClusterClient(outside)"),
        }
    }
}

/// The way into the cluster for what a silo holds itself. It keeps nothing alive.
pub(crate) struct OwnClient(Weak<Calls>);

impl OwnClient {
    pub(crate) const fn new(silo: Weak<Calls>) -> Self {
        Self(silo)
    }

    /// None when the silo is gone.
    pub(crate) fn get(&self) -> Option<ClusterClient> {
        self.0.upgrade().map(ClusterClient::of_silo)
    }
}

/// Where a reference's last call found its grain: a hint, as all locations are, that spares the
/// next call the search.
pub(crate) enum Route {
    Unknown,
    /// On this silo.
    Here(Weak<Activation>),
    /// Behind a connection.
    There(Arc<Lane>),
}

/// A connection as one reference knows it: calls count their holds on this, and not on what all
/// references share.
pub(crate) struct Lane {
    pub(crate) connection: Arc<Connection>,
    /// The number of the client's list of gateways then; always 0 in a silo.
    listed: u64,
}

impl Lane {
    pub(crate) fn new(connection: Arc<Connection>, listed: u64) -> Arc<Self> {
        Arc::new(Self { connection, listed })
    }
}

/// A reference without its interface: what the generated reference types wrap. A clone starts with
/// what the original knows of the way and then learns for itself: whoever calls by a reference of
/// their own shares no memory with others that call the same grain, until they meet at the grain.
///
/// What it knows of the way changes, and is no part of what it is compared by. That stands behind a
/// trait, so that a map of references is no map of keys that change, to clippy too.
pub struct RawRef(Arc<dyn Hidden>);

trait Hidden: Send + Sync {
    fn target(&self) -> &Target;

    fn aim(self: Arc<Self>) -> Aim;
}

impl Hidden for Target {
    fn target(&self) -> &Target {
        self
    }

    fn aim(self: Arc<Self>) -> Aim {
        Aim(self)
    }
}

/// The grain of a call: this very reference, and what it knows of the way.
pub(crate) struct Aim(pub(crate) Arc<Target>);

impl Aim {
    /// That of a call of the runtime itself.
    pub(crate) fn of(client: &ClusterClient, id: GrainId, type_name: &'static str) -> Self {
        Self(Arc::new(Target::new(client.0.clone(), id, Cow::Borrowed(type_name))))
    }

    /// The same once more.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }

    /// Lets a reference that belongs nowhere belong to the silo of the current turn: it was decoded
    /// outside, and has come here by a call that encodes nothing.
    #[inline]
    pub(crate) fn bind(&mut self) {
        if matches!(self.0.node, Node::Nowhere) {
            self.bind_here();
        }
    }

    #[cold]
    fn bind_here(&mut self) {
        if let Some(ctx) = Ctx::current() {
            let (id, type_name) = (self.0.id.clone(), self.0.type_name.clone());
            self.0 = Arc::new(Target::new(ctx.client().0.clone(), id, type_name));
        }
    }
}

impl fmt::Debug for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

/// Who is called.
pub(crate) struct Target {
    pub(crate) node: Node,
    pub(crate) id: GrainId,
    pub(crate) type_name: Cow<'static, str>,
    /// Whether the node has filters around its calls.
    pub(crate) is_filtered: bool,
    route: Mutex<Route>,
}

/// A route that still leads somewhere.
pub(crate) enum Found {
    Here(Held),
    There(Arc<Lane>),
    Nothing,
}

impl Names for Target {
    fn type_name(&self) -> &Cow<'static, str> {
        &self.type_name
    }

    fn id(&self) -> &GrainId {
        &self.id
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.type_name, self.id.key())
    }
}

impl Target {
    fn new(node: Node, id: GrainId, type_name: Cow<'static, str>) -> Self {
        let is_filtered = node.filters().is_some();
        Self { node, id, type_name, is_filtered, route: Mutex::new(Route::Unknown) }
    }

    /// Where the last call went, if that place is still there.
    #[inline]
    pub(crate) fn route(&self, generation: u64) -> Found {
        match &*self.route.lock() {
            Route::Unknown => Found::Nothing,
            Route::Here(activation) => match activation.upgrade() {
                Some(activation) => Found::Here(activation.into()),
                None => Found::Nothing,
            },
            Route::There(lane) if lane.listed == generation => Found::There(lane.clone()),
            Route::There(..) => Found::Nothing,
        }
    }

    pub(crate) fn set_route(&self, route: Route) {
        // What was there may be the last hold on an activation's memory: not under the lock.
        let before = std::mem::replace(&mut *self.route.lock(), route);
        drop(before);
    }

    /// Notes that the last call went to this activation. Which worker takes a call is asked anew
    /// each time.
    pub(crate) fn note_here(&self, activation: &Held) {
        if !activation.is_worker() {
            self.set_route(Route::Here(Arc::downgrade(activation.activation())));
        }
    }

    /// Takes up where an answer said that the grain really is.
    #[cold]
    pub(crate) fn learn(&self, at: SiloAddress) {
        let elsewhere = match &self.node {
            Node::Silo(silo) => {
                silo.cluster.locations.set(&self.id, at);
                true
            }
            Node::Client(client) => client.learn(&self.id, at),
            Node::Nowhere => false,
        };
        if elsewhere {
            self.set_route(Route::Unknown);
        }
    }

    /// Takes up what a try in vain says of where the grain is.
    pub(crate) fn take_hint(&self, hint: Hint) {
        self.set_route(Route::Unknown);
        if let Some(locations) = self.node.locations() {
            hint.tell(locations, &self.id);
        }
    }

    /// Whether the key is short enough to travel.
    #[inline]
    pub(crate) fn key_fits(&self) -> bool {
        match self.id.key() {
            GrainKey::Text(text) => text.len() <= GRAIN_KEY_BYTES_MAX,
            _ => true,
        }
    }
}

impl Clone for RawRef {
    fn clone(&self) -> Self {
        let Target { node, id, type_name, is_filtered, route } = self.0.target();
        let route = match &*route.lock() {
            Route::Unknown => Route::Unknown,
            Route::Here(activation) => Route::Here(activation.clone()),
            Route::There(lane) => Route::There(Lane::new(lane.connection.clone(), lane.listed)),
        };
        let (node, id, type_name) = (node.clone(), id.clone(), type_name.clone());
        let (is_filtered, route) = (*is_filtered, Mutex::new(route));
        Self(Arc::new(Target { node, id, type_name, is_filtered, route }))
    }
}

impl RawRef {
    /// A reference to any grain.
    pub(crate) fn of(client: &ClusterClient, id: GrainId, type_name: &'static str) -> Self {
        Self::new(client.0.clone(), id, Cow::Borrowed(type_name))
    }

    pub(super) fn new(node: Node, id: GrainId, type_name: Cow<'static, str>) -> Self {
        Self(Arc::new(Target::new(node, id, type_name)))
    }

    /// The name of the grain's type.
    pub(super) fn type_name(&self) -> &str {
        &self.0.target().type_name
    }

    /// The grain's identity.
    pub fn id(&self) -> &GrainId {
        &self.0.target().id
    }

    /// The grain's key.
    pub fn key(&self) -> &GrainKey {
        self.id().key()
    }

    /// The grain's key as its interface has it.
    #[expect(clippy::expect_used, reason = "a reference is made of a key of this type alone")]
    pub fn typed_key<K: KeyType>(&self) -> K::View<'_> {
        K::view(self.key()).expect("the key of a reference is of its interface's type")
    }

    /// The grain of the same key and of the class `class`, one of several for the interface that is
    /// called `interface` where grains are named.
    #[must_use]
    pub fn of_class(&self, interface: &'static str, class: &str) -> Self {
        let name = class_name(interface, class);
        let id = GrainId::new(GrainTypeId::of(&name), self.key().clone());
        Self::new(self.0.target().node.clone(), id, Cow::Owned(name))
    }

    /// A call of method `M`, to be awaited or sent.
    pub fn call<M: Method>(&self, args: M) -> Call<M> {
        Call::new(self.0.clone().aim(), args)
    }
}

/// The grain type of a class that is one of several for an interface. No grain type that an
/// interface names has a colon.
pub(crate) fn class_name(interface: &str, class: &str) -> String {
    format!("{interface}:{class}")
}

impl PartialEq for RawRef {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for RawRef {}

impl PartialOrd for RawRef {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RawRef {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.id().cmp(other.id())
    }
}

impl std::hash::Hash for RawRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl fmt::Debug for RawRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.target(), f)
    }
}
