//! The grain of a call, and what its reference knows of the way.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};

use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, GrainKey, SiloAddress};
use emmer_net::transport::Connection;
use parking_lot::Mutex;

use super::Calls;
use super::node::Node;
use super::path::Hint;
use crate::hosting::{Activation, Held};
use crate::turn::Names;

/// Place where the last call of a reference found its grain. A hint, as all locations are: it
/// spares the next call the search.
pub(crate) enum Route {
    Unknown,
    /// On this silo.
    Here(Weak<Activation>),
    /// Behind a connection.
    There(Arc<Lane>),
}

/// A connection as one reference knows it. Calls count their holds here, and not on a counter that
/// all references share.
pub(crate) struct Lane {
    pub(crate) connection: Arc<Connection>,
    /// In a client, the number of its list of gateways then. In a silo, the number of changes of
    /// locations up to which the connection is the way of calls; 0 if it may not be.
    listed: u64,
    /// True if placement chose the silo for one call, and no silo says that the grain is there.
    pub(crate) placed: bool,
}

impl Lane {
    pub(crate) fn new(connection: Arc<Connection>, listed: u64) -> Arc<Self> {
        Arc::new(Self { connection, listed, placed: false })
    }

    /// The way of the first call of a grain, to the silo that placement chose.
    pub(crate) fn placed(connection: Arc<Connection>) -> Arc<Self> {
        Arc::new(Self { connection, listed: 0, placed: true })
    }
}

/// The grain of a call: this very reference, and its knowledge of the way.
pub(crate) struct Aim(pub(crate) Arc<Target>);

impl Aim {
    /// The target of a call of the runtime itself.
    pub(crate) fn of(node: Node, id: GrainId, type_name: &'static str) -> Self {
        Self(Arc::new(Target::new(node, id, Cow::Borrowed(type_name))))
    }

    /// Returns another hold on this target.
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
        if let Some(node) = Node::of_turn() {
            let (id, type_name) = (self.0.id.clone(), self.0.type_name.clone());
            self.0 = Arc::new(Target::new(node, id, type_name));
        }
    }
}

impl fmt::Debug for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

/// Grain that a call is for.
pub(crate) struct Target {
    pub(crate) node: Node,
    pub(crate) id: GrainId,
    pub(crate) type_name: Cow<'static, str>,
    /// True if the node filters outgoing calls.
    pub(crate) is_filtered: bool,
    route: Mutex<Route>,
}

/// A route that still leads somewhere.
pub(crate) enum Found {
    Here(Held),
    There(Arc<Lane>),
    Nothing,
    /// As `Nothing`, of a grain that is not on this silo and whose location is not known.
    Nowhere,
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
    pub(crate) fn new(node: Node, id: GrainId, type_name: Cow<'static, str>) -> Self {
        let is_filtered = node.filters().is_some();
        Self { node, id, type_name, is_filtered, route: Mutex::new(Route::Unknown) }
    }

    /// Returns a copy of the target that starts with the same route and learns its own.
    pub(crate) fn fork(&self) -> Self {
        let route = match &*self.route.lock() {
            Route::Unknown => Route::Unknown,
            Route::Here(activation) => Route::Here(activation.clone()),
            Route::There(lane) => Route::There(Lane::new(lane.connection.clone(), lane.listed)),
        };
        let (node, id, type_name) = (self.node.clone(), self.id.clone(), self.type_name.clone());
        Self { node, id, type_name, is_filtered: self.is_filtered, route: Mutex::new(route) }
    }

    /// Returns the destination of the last call, if it still exists.
    #[inline]
    pub(crate) fn any_route(&self) -> Found {
        self.route_if(|_| true)
    }

    /// As [`any_route`](Self::any_route), for the number that its connection is `listed` with.
    #[inline]
    pub(crate) fn route(&self, listed: u64) -> Found {
        self.route_if(|lane| lane.listed == listed)
    }

    #[inline(always)]
    fn route_if(&self, leads: impl FnOnce(&Lane) -> bool) -> Found {
        match &*self.route.lock() {
            Route::Unknown => Found::Nothing,
            Route::Here(activation) => match activation.upgrade() {
                Some(activation) => Found::Here(activation.into()),
                None => Found::Nothing,
            },
            Route::There(lane) if leads(lane) => Found::There(lane.clone()),
            Route::There(..) => Found::Nothing,
        }
    }

    /// Returns the way of a call of this silo, if it is known: where the call before it went,
    /// whatever reference made it. `route`: what [`any_route`](Self::any_route) found. `changes`:
    /// the number of changes of locations before.
    #[inline]
    pub(crate) fn way(&self, route: Found, silo: &Calls, method: u32, changes: u64) -> Found {
        match route {
            Found::Here(activation) => Found::Here(activation),
            Found::There(lane) if lane.listed == changes => Found::There(lane),
            _ => self.find_way(silo, method, changes),
        }
    }

    /// As [`way`](Self::way), for a reference that does not know it.
    #[inline(never)]
    fn find_way(&self, silo: &Calls, method: u32, changes: u64) -> Found {
        if silo.lanes.is_strict(&self.id) {
            return Found::Nothing;
        }
        if let Some(activation) = silo.host.catalog.get(&self.id) {
            // Earlier calls may be on their way after a grain that has just come.
            if silo.host.moves.followers.has(&self.id) {
                return Found::Nothing;
            }
            self.note_here(&activation);
            return Found::Here(activation);
        }
        if let Some(door) = silo.door(&self.id, method, None, &[]) {
            return Found::Here(door);
        }
        let Some(peer) = silo.cluster.locations.get(&self.id) else { return Found::Nowhere };
        let Some(connection) = silo.cluster.peers.pool.get(peer) else { return Found::Nothing };
        let lane = Lane::new(connection, changes);
        self.set_route(Route::There(lane.clone()));
        Found::There(lane)
    }

    pub(crate) fn set_route(&self, route: Route) {
        // The old route may be the last hold on an activation's memory: drop it without the lock.
        let before = std::mem::replace(&mut *self.route.lock(), route);
        drop(before);
    }

    /// Notes that the last call went to this activation. The worker that takes a call is chosen
    /// again each time.
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
                silo.learn(&self.id, at);
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

    /// Returns true if the key is within [`GRAIN_KEY_BYTES_MAX`].
    #[inline]
    pub(crate) fn key_fits(&self) -> bool {
        match self.id.key() {
            GrainKey::Text(text) => text.len() <= GRAIN_KEY_BYTES_MAX,
            _ => true,
        }
    }
}
