//! References: how a caller names a grain. Making one contacts nobody.

use std::fmt;
use std::sync::Arc;

use emmer_core::limits::GRAIN_KEY_BYTES_MAX;
use emmer_core::{GrainId, GrainKey, GrainTypeId, SiloAddress};

use crate::client::ClientCore;
use crate::grain::{Call, Interface, IntoKey, Method};
use crate::silo::SiloCore;

/// The way into a cluster: makes references to grains. Cheap to clone.
#[derive(Clone)]
pub struct ClusterClient(pub(crate) Node);

/// Whose calls: a silo's own, or an outside client's.
#[derive(Clone)]
pub(crate) enum Node {
    Silo(Arc<SiloCore>),
    Client(Arc<ClientCore>),
}

impl ClusterClient {
    pub(crate) const fn of_silo(silo: Arc<SiloCore>) -> Self {
        Self(Node::Silo(silo))
    }

    pub(crate) const fn of_client(client: Arc<ClientCore>) -> Self {
        Self(Node::Client(client))
    }

    /// A reference to the grain `key` behind interface `I`, as in `client.grain::<dyn Counter>("home")`.
    ///
    /// A text key of more than [`GRAIN_KEY_BYTES_MAX`] bytes makes every call `Rejected`.
    pub fn grain<I: Interface + ?Sized>(&self, key: impl IntoKey<I::Key>) -> I::Ref {
        let id = GrainId::new(GrainTypeId::of(I::GRAIN_TYPE), key.into_key());
        RawRef { node: self.0.clone(), id, type_name: I::GRAIN_TYPE }.into()
    }

    /// The silo this client lives in; none outside a silo.
    pub fn silo(&self) -> Option<SiloAddress> {
        match &self.0 {
            Node::Silo(silo) => Some(silo.address),
            Node::Client(_) => None,
        }
    }
}

impl fmt::Debug for ClusterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Silo(silo) => write!(f, "ClusterClient(silo {})", silo.address),
            Node::Client(_) => f.write_str("ClusterClient(outside)"),
        }
    }
}

/// A reference without its interface: what the generated reference types wrap.
#[derive(Clone)]
pub struct RawRef {
    pub(crate) node: Node,
    pub(crate) id: GrainId,
    pub(crate) type_name: &'static str,
}

impl RawRef {
    /// The grain's identity.
    pub const fn id(&self) -> &GrainId {
        &self.id
    }

    /// The grain's key.
    pub const fn key(&self) -> &GrainKey {
        self.id.key()
    }

    /// A call of method `M`, to be awaited or sent.
    pub fn call<M: Method>(&self, args: M) -> Call<M> {
        Call::new(self.clone(), args)
    }

    /// Whether the key is short enough to travel.
    pub(crate) fn key_fits(&self) -> bool {
        match self.id.key() {
            GrainKey::Text(text) => text.len() <= GRAIN_KEY_BYTES_MAX,
            _ => true,
        }
    }
}

impl PartialEq for RawRef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for RawRef {}

impl std::hash::Hash for RawRef {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for RawRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.type_name, self.id.key())
    }
}
