//! A grain class as one silo hosts it: its methods by number, its name, its placement.

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::GrainId;
use emmer_net::warn_seldom;
use emmer_placement::{DataError, Placement};
use emmer_wire::CodecError;

use super::activation::{Activation, AnyRoom, Exclusive, Parts, Shared};
use super::context::TurnContext;
use super::host::Host;
use super::services::{ServiceNeed, Services};
use super::slot::Slot;
use super::states::{StateKinds, States};
use super::turn::BoxTurn;
use crate::filters::Filters;
use crate::metrics::{LifeMetrics, LifeStatistics, MethodMetrics, MethodStatistics};
use crate::turn::{ActivationError, MethodInfo, contain};

/// Starts one method of a class: the arguments out of the slot, the turn around the method.
pub type StartMethod = fn(Arc<Activation>, &mut dyn Slot, TurnContext) -> Result<BoxTurn, String>;

/// Decodes the arguments in a request's body, and passes them on in a slot.
pub type ArriveMethod = fn(&[u8], &mut dyn FnMut(&mut dyn Slot)) -> Result<(), CodecError>;

/// One method of a class, as the generated code lists it.
#[derive(Clone, Copy)]
pub struct MethodEntry {
    /// The method.
    pub info: &'static MethodInfo,
    /// The numbers of the same method for callers of other versions of its interface.
    pub also: &'static [u32],
    /// `Interface.method`, for people.
    pub name: &'static str,
    /// Clients may not call it.
    pub internal: bool,
    /// Reads its arguments.
    pub arrive: ArriveMethod,
    /// Runs it in place, if it cannot suspend.
    pub instant: Instant,
    /// Starts it.
    pub start: StartMethod,
}

impl MethodEntry {
    /// All its numbers.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        [self.info.id].into_iter().chain(self.also.iter().copied())
    }

    /// Returns true if `number` is one of the method's numbers.
    fn has(&self, number: u32) -> bool {
        self.numbers().any(|own| own == number)
    }
}

/// Code that runs a method in place, if it cannot suspend. It takes the arguments from the slot and
/// puts the output there.
#[derive(Clone, Copy)]
pub enum Instant {
    /// It can suspend.
    No,
    /// It takes `&mut self`.
    Exclusive(fn(&mut Exclusive<'_>, &mut dyn Slot) -> Ran),
    /// It takes `&self`.
    Shared(fn(&Shared<'_>, &mut dyn Slot) -> Ran),
}

/// The result of one poll of a method.
#[derive(Debug)]
pub enum Ran {
    /// It returned, and not its own error.
    Done,
    /// It returned its own error.
    OwnError,
    /// It waits.
    Waits,
    /// The arguments are not its own, in these words.
    Refused(String),
}

/// A class, as code knows it that is compiled once for all of them. Its constants are those of
/// `Grain`.
pub(crate) struct ClassInfo {
    pub(crate) type_id: fn() -> TypeId,
    pub(crate) type_name: fn() -> &'static str,
    pub(crate) name: Option<&'static str>,
    pub(crate) workers_max: Option<usize>,
    pub(crate) idle: Option<Duration>,
    pub(crate) has_state: bool,
    pub(crate) has_hooks: bool,
    /// Size of an activation of the class.
    pub(crate) bytes: usize,
    pub(crate) stays: bool,
    pub(crate) active_max: Option<usize>,
    pub(crate) reentrant: bool,
    pub(crate) call_chain_reentrancy: bool,
    pub(crate) reminders: &'static [&'static str],
    pub(crate) has_constructor: bool,
    pub(crate) state_stores: &'static [&'static str],
    pub(crate) data_version: u32,
    pub(crate) services: fn() -> Vec<ServiceNeed>,
    pub(crate) placement: fn() -> Result<Placement, DataError>,
    pub(crate) ticks: fn() -> Option<MethodEntry>,
    /// Puts an activation around an empty room.
    pub(crate) activation: fn(Parts) -> Arc<Activation>,
}

/// A constructor of the application: it makes the grain into its room.
pub(crate) type Constructor = Arc<
    dyn Fn(&Arc<Activation>, &Services, &mut AnyRoom) -> Result<(), ActivationError> + Send + Sync,
>;

/// A class under the name of its grain type.
pub(crate) struct Class {
    pub(super) info: &'static ClassInfo,
    pub(super) name: &'static str,
    /// The application's constructor, if there is one.
    constructor: Option<Constructor>,
    /// The filters around each of its methods.
    pub(super) filters: Filters,
    /// There are some.
    pub(super) filtered: bool,
    placement: Placement,
    version: u32,
    methods: Box<[MethodEntry]>,
    /// Open addressing by method number: the number, and the place in `methods` or [`FREE`].
    places: Box<[(u32, u16)]>,
    shift: u32,
    pub(super) metrics: MethodMetrics,
    pub(super) lives: LifeMetrics,
    pub(super) idle: Duration,
    pub(super) states: StateKinds,
}

const FREE: u16 = u16::MAX;

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

impl Class {
    /// The class with `methods` of an interface of this version; `idle` is the silo's idle time,
    /// used when the class has none of its own.
    pub(crate) fn new(
        info: &'static ClassInfo,
        name: &'static str,
        version: u32,
        methods: Vec<MethodEntry>,
        idle: Duration,
    ) -> Result<Self, MethodCollision> {
        let mut by_number: Vec<MethodEntry> = Vec::with_capacity(methods.len());
        for method in methods.into_iter().chain((info.ticks)()) {
            let shares = |known: &MethodEntry| known.numbers().any(|number| method.has(number));
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
            info,
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
            states: StateKinds::default(),
            methods: by_number.into_boxed_slice(),
            idle: info.idle.unwrap_or(idle),
        };
        class.index();
        Ok(class)
    }

    /// Sets the constructor of the class.
    pub(crate) fn made_by(mut self, constructor: Option<Constructor>) -> Self {
        self.constructor = constructor;
        self
    }

    /// Sets the placement of its activations.
    pub(crate) fn placed(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets the filters around its methods.
    pub(crate) fn filtered_by(mut self, filters: Filters) -> Self {
        if filters.wait() {
            self.methods.iter_mut().for_each(|method| method.instant = Instant::No);
        }
        self.filtered = !filters.is_empty();
        self.filters = filters;
        self
    }

    /// Makes a new instance into its room.
    ///
    /// # Errors
    /// A service is missing, or the constructor refuses.
    pub(super) fn make(
        &self,
        at: &Arc<Activation>,
        services: &Services,
        room: &mut AnyRoom,
    ) -> Result<(), ActivationError> {
        match &self.constructor {
            None => room.create(at),
            Some(constructor) => constructor(at, services, room),
        }
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
        self.methods.get(usize::from(place)).map_or(0, |method| method.info.id)
    }

    /// The name of the method at `place`: `Interface.method`, or words for a tick of a timer.
    pub(super) fn name_of(&self, place: u16) -> &'static str {
        self.methods.get(usize::from(place)).map_or("a timer", |method| method.name)
    }

    /// The method of this number, and its place among the class's methods.
    #[inline]
    pub(super) fn method(&self, number: u32) -> Option<(u16, &MethodEntry)> {
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

    /// Drops the grain `id`, which may panic, by `drop`.
    pub(super) fn drop_grain(&self, id: &GrainId, drop: &mut dyn FnMut()) {
        if let Err(panic) = contain(drop) {
            let grain = self.title(id);
            warn_seldom!(grain, panic, "the grain panicked while it was dropped");
        }
    }

    /// The type and key of the grain `id`, for people.
    pub(super) fn title(&self, id: &GrainId) -> String {
        format!("{}/{}", self.name, id.key())
    }

    /// The grain type's name.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Placement of its activations; the silo's default strategy when none.
    pub(crate) const fn placement(&self) -> &Placement {
        &self.placement
    }

    /// For a stateless worker: the most activations of a grain on a silo, 0 for one per processor.
    /// None for grains that have one in the whole cluster.
    pub(crate) const fn workers_max(&self) -> Option<usize> {
        self.info.workers_max
    }

    /// This class with the methods of `other`, which is the same class under another interface.
    pub(crate) fn merged(&self, other: &Self) -> Result<Self, MethodCollision> {
        let methods = self.methods.iter().chain(&other.methods).copied().collect();
        let version = self.version.max(other.version);
        let constructor = self.constructor.clone().or_else(|| other.constructor.clone());
        let merged = Self::new(self.info, self.name, version, methods, self.idle)?;
        Ok(merged.made_by(constructor).filtered_by(self.filters.clone()))
    }

    /// Something that the silo needs to make its grains and was not given.
    pub(crate) fn lacks(&self, services: &Services, states: &States) -> Option<Lack> {
        let (info, class) = (self.info, (self.info.type_name)());
        let stores = info.state_stores;
        if let Some(store) = stores.iter().find(|name| states.of(Some(name)).is_none()) {
            return Some(Lack::Store { class, store });
        }
        if self.constructor.is_some() {
            return None;
        }
        if info.has_constructor {
            return Some(Lack::Constructor(class));
        }
        let needs = (info.services)();
        let need = needs.into_iter().find(|need| !(need.is_there)(services))?;
        Some(Lack::Service { class, need })
    }

    /// A new activation of `id`, not yet activated.
    pub(crate) fn create(
        self: Arc<Self>,
        host: Arc<Host>,
        id: GrainId,
        number: u64,
    ) -> Arc<Activation> {
        let last_used = host.clock.now().as_idle_ticks();
        (self.info.activation)(Parts { id, number, class: self, host, last_used })
    }

    /// The newest version of its interfaces.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Version of the data that its states write.
    pub(crate) const fn data_version(&self) -> u32 {
        self.info.data_version
    }

    /// The numbers of all its methods.
    pub(crate) fn method_numbers(&self) -> Vec<u32> {
        self.methods.iter().flat_map(MethodEntry::numbers).collect()
    }

    /// The name of the method of this number, if it has it.
    pub(crate) fn method_name(&self, number: u32) -> Option<&'static str> {
        self.method(number).map(|(_, method)| method.name)
    }

    /// Returns true if clients may not call the method of this number.
    pub(crate) fn is_internal(&self, number: u32) -> bool {
        self.method(number).is_some_and(|(_, method)| method.internal)
    }

    /// The names of the stores of its states that are not the usual one.
    pub(crate) const fn state_stores(&self) -> &'static [&'static str] {
        self.info.state_stores
    }

    /// Returns true if its grains have states.
    pub(crate) const fn has_state(&self) -> bool {
        self.info.has_state
    }

    /// Its methods.
    pub(super) const fn methods(&self) -> &[MethodEntry] {
        &self.methods
    }

    /// The counts of its activations.
    pub(crate) fn lives(&self) -> LifeStatistics {
        self.lives.snapshot()
    }

    /// Counts of each of its methods.
    pub(crate) fn statistics(&self) -> Vec<MethodStatistics> {
        let methods = self.methods.iter().enumerate();
        methods
            .map(|(place, method)| self.metrics.snapshot(place, self.name, method.name))
            .collect()
    }
}

const fn first_place(number: u32, shift: u32) -> usize {
    (number.wrapping_mul(0x9e37_79b9) >> shift) as usize
}
