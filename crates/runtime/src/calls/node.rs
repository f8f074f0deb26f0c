//! The silo or the client that calls are made from.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::Clock;
use emmer_net::world::Spawner;
use emmer_wire::CodecError;

use super::Calls;
use crate::cluster::locations::Locations;
use crate::filters::Filters;
use crate::gateways::ClientCore;
use crate::hosting::{Activation, Slot, TurnContext, arriving_at};
use crate::streams::{Hub, Place, encoding};

/// Silo or client that a call is made from.
#[derive(Clone)]
pub(crate) enum Node {
    Silo(Arc<Calls>),
    Client(Arc<ClientCore>),
    /// Neither: the reference was decoded outside both. Its calls are refused before anything is
    /// asked of the node.
    Nowhere,
}

/// The clock of references that belong nowhere.
static NO_CLOCK: LazyLock<Clock> = LazyLock::new(Clock::new);

impl Node {
    /// Returns the silo of an activation, or None if it was dropped.
    pub(crate) fn of(activation: &Activation) -> Option<Self> {
        let calls = activation.host().calls.get()?.upgrade()?;
        calls.downcast().ok().map(Self::Silo)
    }

    /// Returns the silo of the turn that this thread polls, or None outside a turn.
    pub(crate) fn of_turn() -> Option<Self> {
        TurnContext::with(|turn| turn?.activation(|held| Self::of(held))?)
    }

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

    /// The filters around calls of this node, if any.
    #[inline]
    pub(crate) fn filters(&self) -> Option<&Filters> {
        let filters = match self {
            Self::Silo(silo) => &silo.outgoing,
            Self::Client(client) => &client.filters,
            Self::Nowhere => return None,
        };
        (!filters.is_empty()).then_some(filters)
    }

    /// The cache of grain locations.
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

    /// The ends of streams in this process.
    pub(crate) fn streams(&self) -> Option<&Arc<Hub>> {
        match self {
            Self::Silo(silo) => Some(&silo.streams),
            Self::Client(client) => Some(&client.streams),
            Self::Nowhere => None,
        }
    }

    /// The place of this process as others know it. They reach a client by `gateway`.
    pub(crate) fn place(&self, gateway: Option<SiloAddress>) -> Option<Place> {
        match self {
            Self::Silo(silo) => Some(Place::silo(silo.address)),
            Self::Client(client) => Some(Place { silo: gateway?, client: client.number() }),
            Self::Nowhere => None,
        }
    }

    /// The place at which observers of this process are reached now. None: no gateway is connected.
    pub(crate) fn home(&self) -> Option<Place> {
        match self {
            Self::Silo(_) | Self::Nowhere => self.place(None),
            Self::Client(client) => self.place(client.home()),
        }
    }

    /// Asks the gateway of this place for a word, after something expected has not come by it.
    pub(crate) fn doubt(&self, place: Place) {
        if let Self::Client(client) = self {
            client.doubt_gateway(place.silo);
        }
    }

    /// Returns true if the silo or the client has ended.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Silo(silo) => silo.stopped.is_cancelled(),
            Self::Client(client) => client.closed.is_cancelled(),
            Self::Nowhere => true,
        }
    }

    /// Encodes the arguments of a call that has a stream. `via` is the silo at the other end of the
    /// connection.
    #[cold]
    pub(crate) fn encode_streams(
        &self,
        via: Option<SiloAddress>,
        slot: &dyn Slot,
        out: &mut BytesMut,
    ) -> Result<(), CodecError> {
        match self.streams().zip(self.place(via)) {
            Some((hub, here)) => encoding(hub, here, || slot.encode_args(out)),
            None => slot.encode_args(out),
        }
    }

    /// Maximum activations of a stateless worker on this silo. None for other grains, and for a
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

scoped_tls::scoped_thread_local! {
    /// The silo or client for which something is decoded on this thread.
    static DECODING: Node
}

impl Node {
    /// Runs `decode`, whose references belong to this node.
    #[inline]
    pub(crate) fn binds<T>(&self, decode: impl FnOnce() -> T) -> T {
        DECODING.set(self, decode)
    }

    /// The node for which a value is being decoded: the given one, or the silo of the turn.
    pub(crate) fn of_decoding() -> Self {
        if DECODING.is_set() {
            return DECODING.with(Self::clone);
        }
        let own = arriving_at(|grain| Self::of(grain)).unwrap_or_else(Self::of_turn);
        own.unwrap_or(Self::Nowhere)
    }
}
