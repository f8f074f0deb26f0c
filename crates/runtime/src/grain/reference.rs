//! References: how a caller names a grain. Making one sends nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use emmer_core::{GrainId, GrainKey, GrainTypeId, SiloAddress};

use crate::calls::{Aim, Calls, Node, Target};
use crate::gateways::ClientCore;
use crate::hosting::Activation;
use crate::turn::KeyType;

/// The way into a cluster: makes references to grains. Cheap to clone.
#[derive(Clone)]
pub struct GrainFactory(pub(crate) Node);

impl GrainFactory {
    pub(crate) const fn of_silo(silo: Arc<Calls>) -> Self {
        Self(Node::Silo(silo))
    }

    pub(crate) const fn of_client(client: Arc<ClientCore>) -> Self {
        Self(Node::Client(client))
    }

    /// The factory of an activation; none when its silo is gone.
    pub(crate) fn of(activation: &Activation) -> Option<Self> {
        Node::of(activation).map(Self)
    }

    /// The silo this client lives in; none outside a silo.
    pub fn silo(&self) -> Option<SiloAddress> {
        match &self.0 {
            Node::Silo(silo) => Some(silo.address),
            Node::Client(_) | Node::Nowhere => None,
        }
    }

    /// The calls of the silo that this client lives in; none outside a silo.
    pub(crate) const fn calls(&self) -> Option<&Arc<Calls>> {
        match &self.0 {
            Node::Silo(silo) => Some(silo),
            Node::Client(_) | Node::Nowhere => None,
        }
    }

    /// Decodes something whose references shall belong to this client. `decode` may be any serde
    /// code. In a turn, and in arguments and answers, references belong to the silo or client
    /// without it.
    pub fn bind<T>(&self, decode: impl FnOnce() -> T) -> T {
        self.0.binds(decode)
    }
}

impl fmt::Debug for GrainFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Silo(silo) => write!(f, "GrainFactory(silo {})", silo.address),
            Node::Client(_) | Node::Nowhere => f.write_str("GrainFactory(outside)"),
        }
    }
}

/// The factory of objects that the silo itself holds. It keeps nothing alive.
#[derive(Clone, Default)]
pub(crate) struct OwnClient(Arc<OnceLock<Weak<Calls>>>);

impl OwnClient {
    /// Sets the silo, once.
    pub(crate) fn lead_to(&self, silo: &Arc<Calls>) {
        let _ = self.0.set(Arc::downgrade(silo));
    }

    /// Returns None before the silo is made, and after it was dropped.
    pub(crate) fn get(&self) -> Option<GrainFactory> {
        self.0.get()?.upgrade().map(GrainFactory::of_silo)
    }
}

/// A reference without its interface: generated reference types wrap it. A clone starts with the
/// original's knowledge of the way and then learns for itself. So callers with clones of their own
/// share no memory until they meet at the grain.
///
/// Knowledge of the way changes, and equality ignores it. It stands behind a trait, so that clippy
/// accepts references as keys of a map.
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

impl Clone for RawRef {
    fn clone(&self) -> Self {
        Self(Arc::new(self.0.target().fork()))
    }
}

impl RawRef {
    /// A reference to any grain.
    pub(crate) fn of(client: &GrainFactory, id: GrainId, type_name: &'static str) -> Self {
        Self::new(client.0.clone(), id, Cow::Borrowed(type_name))
    }

    /// Returns the target of a call by this reference.
    pub(super) fn aim(&self) -> Aim {
        self.0.clone().aim()
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
