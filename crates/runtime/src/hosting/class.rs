//! A grain class as one silo hosts it: its methods by number, its name, its placement.

use std::any::{Any, type_name};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_placement::Placement;

use super::{Activation, Host, Instant, MethodEntry, RunActivation, States};
use crate::filters::Filters;
use crate::grain::{ActivationError, Ctx, Grain, ServiceNeed, Services};
use crate::metrics::{LifeMetrics, LifeStatistics, MethodMetrics, MethodStatistics};

/// A class that does not know its grain by type.
pub(crate) trait AnyClass: Send + Sync {
    /// The grain type's name.
    fn name(&self) -> &'static str;

    /// Where its activations go; by the silo's default strategy when none.
    fn placement(&self) -> &Placement;

    /// For a stateless worker: how many activations of a grain a silo may have, 0 for as many as it
    /// has processors. None for grains that have one in the whole cluster.
    fn workers_max(&self) -> Option<usize>;

    /// The methods' numbers and names, and the class as itself: for putting two interfaces of one
    /// class together.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// This class with the methods of `other`, which is the same class under another interface.
    fn merged(
        self: Arc<Self>,
        other: Arc<dyn AnyClass>,
    ) -> Result<Arc<dyn AnyClass>, MethodCollision>;

    /// Something that the silo needs to make its grains and was not given.
    fn lacks(&self, services: &Services, states: &States) -> Option<Lack>;

    /// The newest version of its interfaces.
    fn version(&self) -> u32;

    /// The numbers of all its methods.
    fn method_numbers(&self) -> Vec<u32>;

    /// The name of the method of this number, if it has it.
    fn method_name(&self, number: u32) -> Option<&'static str>;

    /// Returns true if clients may not call the method of this number.
    fn is_internal(&self, number: u32) -> bool;

    /// What is counted for each of its methods.
    fn statistics(&self) -> Vec<MethodStatistics>;

    /// The counts of its activations.
    fn lives(&self) -> LifeStatistics;

    /// A new activation of `id`, not yet activated.
    fn create(self: Arc<Self>, host: Arc<Host>, id: GrainId, number: u64)
    -> Arc<dyn RunActivation>;
}

/// The class `G` under the name of its grain type.
pub(crate) struct Class<G: Grain> {
    pub(super) name: &'static str,
    /// The application's constructor, if there is one.
    constructor: Option<Constructor<G>>,
    /// The filters around each of its methods.
    pub(super) filters: Filters,
    /// There are some.
    pub(super) filtered: bool,
    placement: Placement,
    version: u32,
    methods: Box<[MethodEntry<G>]>,
    /// Open addressing by method number: the number, and the place in `methods` or [`FREE`].
    places: Box<[(u32, u16)]>,
    shift: u32,
    pub(super) metrics: MethodMetrics,
    pub(super) lives: LifeMetrics,
    pub(super) idle: Duration,
}

const FREE: u16 = u16::MAX;

/// A constructor of the application ([`host_with`](crate::SiloBuilder::host_with)).
pub(crate) type Constructor<G> =
    Arc<dyn Fn(&Ctx, &Services) -> Result<G, ActivationError> + Send + Sync>;

/// A class cannot be made into grains.
#[derive(Debug)]
pub(crate) enum Lack {
    /// This class has a constructor, and was hosted without.
    Constructor(&'static str),
    /// The class has states in a store that the silo has not.
    Store { class: &'static str, store: &'static str },
    /// The class has a field for a service that the silo has not.
    Service { class: &'static str, need: ServiceNeed },
}

/// Two methods of one class have the same number, or there are too many of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MethodCollision {
    pub(crate) first: &'static str,
    pub(crate) second: &'static str,
}

impl<G: Grain> Class<G> {
    /// The class with `methods` of an interface of this version; `idle` is the silo's idle time,
    /// used when the class has none of its own.
    pub(crate) fn new(
        name: &'static str,
        version: u32,
        methods: Vec<MethodEntry<G>>,
        idle: Duration,
    ) -> Result<Self, MethodCollision> {
        let mut by_number: Vec<MethodEntry<G>> = Vec::with_capacity(methods.len());
        for method in methods.into_iter().chain(G::ticks()) {
            let shares = |known: &MethodEntry<G>| known.numbers().any(|number| method.has(number));
            match by_number.iter_mut().find(|known| shares(known)) {
                None => by_number.push(method),
                Some(known) if known.name != method.name => {
                    return Err(MethodCollision { first: known.name, second: method.name });
                }
                // Of two versions the one that serves the callers of both.
                Some(known) if known.numbers().all(|number| method.has(number)) => *known = method,
                Some(known) if method.numbers().all(|number| known.has(number)) => {}
                Some(known) => {
                    return Err(MethodCollision { first: known.name, second: method.name });
                }
            }
        }
        // At most half full, so that a look-up seldom tries twice.
        let numbers: usize = by_number.iter().map(|method| 1 + method.also.len()).sum();
        let bits = (numbers * 2).next_power_of_two().trailing_zeros().clamp(1, 24);
        let mut class = Self {
            name,
            constructor: None,
            filters: Filters::default(),
            filtered: false,
            placement: Placement::default(),
            version,
            places: vec![(0, FREE); 1 << bits].into_boxed_slice(),
            shift: u32::BITS - bits,
            metrics: MethodMetrics::new(by_number.len()),
            lives: LifeMetrics::default(),
            methods: by_number.into_boxed_slice(),
            idle: G::IDLE.unwrap_or(idle),
        };
        class.index();
        Ok(class)
    }

    /// The same class, made by a constructor.
    pub(crate) fn made_by(mut self, constructor: Option<Constructor<G>>) -> Self {
        self.constructor = constructor;
        self
    }

    /// The same class, with this placement of its activations.
    pub(crate) fn placed(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The same class, with filters around its methods.
    pub(crate) fn filtered_by(mut self, filters: Filters) -> Self {
        if filters.wait() {
            self.methods.iter_mut().for_each(|method| method.instant = Instant::No);
        }
        self.filtered = !filters.is_empty();
        self.filters = filters;
        self
    }

    /// A new instance.
    ///
    /// # Errors
    /// A service is missing, or the constructor refuses.
    pub(super) fn make(&self, ctx: &Ctx, services: &Services) -> Result<G, ActivationError> {
        let Some(constructor) = &self.constructor else { return G::create(ctx) };
        let mut made = constructor(ctx, services)?;
        made.bind(ctx);
        Ok(made)
    }

    fn index(&mut self) {
        let mask = self.places.len() - 1;
        for (place, method) in self.methods.iter().enumerate() {
            for number in method.numbers() {
                let mut at = first_place(number, self.shift);
                while self.places[at & mask].1 != FREE {
                    at += 1;
                }
                self.places[at & mask] = (number, u16::try_from(place).unwrap_or(FREE));
            }
        }
    }

    /// The number of the method at `place`.
    pub(super) fn number_of(&self, place: u16) -> u32 {
        self.methods.get(usize::from(place)).map_or(0, |method| method.id)
    }

    /// The method of this number, and its place among the class's methods.
    #[inline]
    pub(super) fn method(&self, number: u32) -> Option<(u16, &MethodEntry<G>)> {
        let mask = self.places.len() - 1;
        let first = first_place(number, self.shift);
        for at in first..first + self.places.len() {
            let (known, place) = self.places[at & mask];
            let method = self.methods.get(usize::from(place))?;
            if known == number {
                return Some((place, method));
            }
        }
        None
    }
}

const fn first_place(number: u32, shift: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b9) >> shift) as usize
}

impl<G: Grain> AnyClass for Class<G> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn placement(&self) -> &Placement {
        &self.placement
    }

    fn workers_max(&self) -> Option<usize> {
        G::WORKERS_MAX
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn merged(
        self: Arc<Self>,
        other: Arc<dyn AnyClass>,
    ) -> Result<Arc<dyn AnyClass>, MethodCollision> {
        let Ok(other) = other.into_any().downcast::<Self>() else { return Ok(self) };
        let methods = self.methods.iter().chain(&other.methods).map(MethodEntry::same).collect();
        let version = self.version.max(other.version);
        let constructor = self.constructor.clone().or_else(|| other.constructor.clone());
        let merged = Self::new(self.name, version, methods, self.idle)?;
        Ok(Arc::new(merged.made_by(constructor).filtered_by(self.filters.clone())))
    }

    fn lacks(&self, services: &Services, states: &States) -> Option<Lack> {
        let class = type_name::<G>();
        if let Some(store) = G::STATE_STORES.iter().find(|name| states.of(Some(name)).is_none()) {
            return Some(Lack::Store { class, store });
        }
        if self.constructor.is_some() {
            return None;
        }
        if G::CONSTRUCTOR {
            return Some(Lack::Constructor(class));
        }
        let needs = G::services();
        let need = needs.into_iter().find(|need| !(need.is_there)(services))?;
        Some(Lack::Service { class, need })
    }

    fn create(
        self: Arc<Self>,
        host: Arc<Host>,
        id: GrainId,
        number: u64,
    ) -> Arc<dyn RunActivation> {
        Arc::new(Activation::new(host, self, id, number))
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn method_numbers(&self) -> Vec<u32> {
        self.methods.iter().flat_map(MethodEntry::numbers).collect()
    }

    fn method_name(&self, number: u32) -> Option<&'static str> {
        self.method(number).map(|(_, method)| method.name)
    }

    fn is_internal(&self, number: u32) -> bool {
        self.method(number).is_some_and(|(_, method)| method.internal)
    }

    fn lives(&self) -> LifeStatistics {
        self.lives.snapshot()
    }

    fn statistics(&self) -> Vec<MethodStatistics> {
        let methods = self.methods.iter().enumerate();
        methods
            .map(|(place, method)| self.metrics.snapshot(place, self.name, method.name))
            .collect()
    }
}
