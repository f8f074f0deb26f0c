//! The classes that a silo hosts, from what its builder was told.

use std::any::type_name;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::GrainTypeId;
use parking_lot::Mutex;

use super::StartError;
use super::filters::SiloFilters;
use crate::filters::Filters;
use crate::grain::{Grain, Hosted, Interface, Services, class_name};
use crate::hosting::{AnyClass, Class, Classes, Constructor, Lack, MethodCollision, States};

type MakeClass = Box<dyn FnOnce(Duration, Filters) -> Result<Arc<dyn AnyClass>, StartError> + Send>;

/// A class that a silo is to host.
pub(super) struct HostedType {
    name: &'static str,
    class: std::any::TypeId,
    make: MakeClass,
}

/// A class under the name of its grain type.
pub(super) fn hosted_type<I, G>(constructor: Option<Constructor<G>>) -> HostedType
where
    I: Interface + Hosted<G> + ?Sized,
    G: Grain,
{
    let name = match G::CLASS {
        None => I::GRAIN_TYPE,
        Some(class) => interned(class_name(I::GRAIN_TYPE, class)),
    };
    let make: MakeClass = Box::new(move |idle, filters| {
        let class = Class::<G>::new(name, I::VERSION, I::methods(), idle)?;
        let placement = G::placement()
            .map_err(|why| StartError::PlacementData { class: type_name::<G>(), why })?;
        let class = class.made_by(constructor).filtered_by(filters).placed(placement);
        Ok(Arc::new(class) as Arc<dyn AnyClass>)
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
    let mut classes: HashMap<GrainTypeId, (std::any::TypeId, Arc<dyn AnyClass>)> = HashMap::new();
    for HostedType { name, class, make } in hosted {
        let made = make(idle, filters.of(class))?;
        match classes.get(&GrainTypeId::of(name)) {
            Some((_, other)) if other.name() != name => {
                return Err(StartError::TypeCollision(other.name(), name));
            }
            Some((first, _)) if *first != class => return Err(StartError::HostedTwice(name)),
            Some((_, other)) => {
                let both = other.clone().merged(made)?;
                classes.insert(GrainTypeId::of(name), (class, both));
            }
            None => {
                classes.insert(GrainTypeId::of(name), (class, made));
            }
        }
    }
    Ok(classes.into_iter().map(|(id, (_, class))| (id, class)).collect())
}
