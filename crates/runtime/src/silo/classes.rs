//! The classes that a silo hosts, from what its builder was told.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::GrainTypeId;
use parking_lot::Mutex;

use super::filters::SiloFilters;
use super::start_error::StartError;
use crate::grain::{Grain, Hosted, Interface, Services, class_name};
use crate::hosting::{
    Class, ClassInfo, Classes, Constructor, Lack, MethodCollision, MethodEntry, States,
};

/// A class that a silo is to host.
pub(super) struct HostedType {
    info: &'static ClassInfo,
    /// The name of the grain type.
    name: &'static str,
    version: u32,
    methods: fn() -> Vec<MethodEntry>,
    constructor: Option<Constructor>,
}

impl HostedType {
    /// The class `G` behind the interface `I`.
    pub(super) fn of<I, G>(constructor: Option<Constructor>) -> Self
    where
        I: Interface + Hosted<G> + ?Sized,
        G: Grain,
    {
        let info = ClassInfo::of::<G>();
        let (name, version, methods) = (I::GRAIN_TYPE, I::VERSION, I::methods);
        Self { info, name, version, methods, constructor }.named()
    }

    /// Names the type after its class if the interface has several.
    fn named(mut self) -> Self {
        if let Some(class) = self.info.name {
            self.name = interned(class_name(self.name, class));
        }
        self
    }

    fn make(self, idle: Duration, filters: &SiloFilters) -> Result<Class, StartError> {
        let class = Class::new(self.info, self.name, self.version, (self.methods)(), idle)?;
        let placement = (self.info.placement)()
            .map_err(|why| StartError::PlacementData { class: (self.info.type_name)(), why })?;
        let filters = filters.of((self.info.type_id)());
        Ok(class.made_by(self.constructor).filtered_by(filters).placed(placement))
    }
}

/// A name that lives as long as the process. Their number is bounded by the program's classes.
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

impl From<MethodCollision> for StartError {
    fn from(collision: MethodCollision) -> Self {
        Self::MethodCollision(collision.first, collision.second)
    }
}

pub(super) fn check_lacks(
    classes: &Classes,
    services: &Services,
    states: &States,
) -> Result<(), StartError> {
    let lacks = classes.values().filter_map(|class| class.lacks(services, states));
    let lacks = lacks.min_by_key(|lack| match lack {
        Lack::Constructor(class) | Lack::Service { class, .. } | Lack::Store { class, .. } => {
            *class
        }
    });
    match lacks {
        None => Ok(()),
        Some(Lack::Constructor(class)) => Err(StartError::NoConstructor(class)),
        Some(Lack::Store { class, store }) => Err(StartError::NoStateStore { class, store }),
        Some(Lack::Service { class, need }) => {
            Err(StartError::NoService { class, field: need.field, service: (need.type_name)() })
        }
    }
}

pub(super) fn make_classes(
    hosted: Vec<HostedType>,
    idle: Duration,
    filters: &SiloFilters,
) -> Result<Classes, StartError> {
    let mut classes: HashMap<GrainTypeId, (&'static ClassInfo, Class)> = HashMap::new();
    for hosted in hosted {
        let (name, class) = (hosted.name, hosted.info);
        let made = hosted.make(idle, filters)?;
        match classes.get(&GrainTypeId::of(name)) {
            Some((_, other)) if other.name() != name => {
                return Err(StartError::TypeCollision(other.name(), name));
            }
            Some((first, _)) if (first.type_id)() != (class.type_id)() => {
                let (first, second) = ((first.type_name)(), (class.type_name)());
                return Err(StartError::HostedTwice { grain_type: name, first, second });
            }
            Some((_, other)) => {
                let both = other.merged(&made)?;
                classes.insert(GrainTypeId::of(name), (class, both));
            }
            None => {
                classes.insert(GrainTypeId::of(name), (class, made));
            }
        }
    }
    Ok(classes.into_iter().map(|(id, (_, class))| (id, Arc::new(class))).collect())
}
