//! A grain class as one silo hosts it: its methods by number, its name, its placement.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_placement::Strategy;

use super::{Activation, MethodEntry, RunActivation};
use crate::grain::Grain;
use crate::silo::SiloCore;

/// Method numbers are hashes already.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Spread over the high bits too: hash maps look at both ends.
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A class that does not know its grain by type.
pub(crate) trait AnyClass: Send + Sync {
    /// The grain type's name.
    fn name(&self) -> &'static str;

    /// Where its activations go; by the silo's default strategy when none.
    fn placement(&self) -> Option<Strategy>;

    /// The methods' numbers and names, and the class as itself: for putting two interfaces of one class together.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// This class with the methods of `other`, which is the same class under another interface.
    fn merged(self: Arc<Self>, other: Arc<dyn AnyClass>) -> Result<Arc<dyn AnyClass>, MethodCollision>;

    /// A new activation of `id`, not yet activated.
    fn create(self: Arc<Self>, silo: Arc<SiloCore>, id: GrainId, number: u64) -> Arc<dyn RunActivation>;
}

/// The class `G` under the name of its grain type.
pub(crate) struct Class<G: Grain> {
    pub(super) name: &'static str,
    pub(super) methods: NumberMap<u32, MethodEntry<G>>,
    pub(super) idle: Duration,
}

/// Two methods of one class have the same number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MethodCollision {
    pub(crate) first: &'static str,
    pub(crate) second: &'static str,
}

impl<G: Grain> Class<G> {
    /// The class with `methods`; `idle` is the silo's idle time, used when the class has none of its own.
    pub(crate) fn new(
        name: &'static str,
        methods: Vec<MethodEntry<G>>,
        idle: Duration,
    ) -> Result<Self, MethodCollision> {
        let mut by_number = NumberMap::default();
        for method in methods {
            let name = method.name;
            if let Some(MethodEntry { name: first, .. }) = by_number.insert(method.id, method)
                && first != name
            {
                return Err(MethodCollision { first, second: name });
            }
        }
        Ok(Self { name, methods: by_number, idle: G::IDLE.unwrap_or(idle) })
    }
}

impl<G: Grain> AnyClass for Class<G> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn placement(&self) -> Option<Strategy> {
        G::PLACEMENT
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn merged(self: Arc<Self>, other: Arc<dyn AnyClass>) -> Result<Arc<dyn AnyClass>, MethodCollision> {
        let Ok(other) = other.into_any().downcast::<Self>() else { return Ok(self) };
        let methods = self.methods.values().chain(other.methods.values()).map(MethodEntry::same).collect();
        Ok(Arc::new(Self::new(self.name, methods, self.idle)?))
    }

    fn create(self: Arc<Self>, silo: Arc<SiloCore>, id: GrainId, number: u64) -> Arc<dyn RunActivation> {
        Arc::new(Activation::new(silo, self, id, number))
    }
}
