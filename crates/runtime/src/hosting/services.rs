//! Services: what the application gives to a silo for its grains, each found by its type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The services of a silo ([`SiloBuilder::service`](crate::SiloBuilder::service)).
#[derive(Default)]
pub struct Services(HashMap<TypeId, Service>);

struct Service {
    /// An `Arc<T>` for the type that it is found by.
    value: Box<dyn Any + Send + Sync>,
    type_name: &'static str,
}

impl Services {
    /// Adds a service. It replaces one of the same type.
    pub(crate) fn add<T: ?Sized + Send + Sync + 'static>(&mut self, service: Arc<T>) {
        let service = Service { value: Box::new(service), type_name: type_name::<T>() };
        self.0.insert(TypeId::of::<T>(), service);
    }

    /// The service of type `T`; none if the silo was given none.
    pub fn get<T: ?Sized + Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>())?.value.downcast_ref::<Arc<T>>().cloned()
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.0.values().map(|service| service.type_name).collect();
        names.sort_unstable();
        f.debug_tuple("Services").field(&names).finish()
    }
}

/// The type of a field with `#[service]`.
#[diagnostic::on_unimplemented(
    message = "a service cannot be a `{Self}`",
    label = "write `Arc<..>` or `Option<Arc<..>>`",
    note = "grains share a service: its field is an `Arc<T>`, or an `Option<Arc<T>>` for one that \
        a silo may lack"
)]
pub trait ServiceField: Sized {
    /// The service; none if a silo without it must not start.
    fn find(services: &Services) -> Option<Self>;

    /// The name of its type.
    fn type_name() -> &'static str;
}

impl<T: ?Sized + Send + Sync + 'static> ServiceField for Arc<T> {
    fn find(services: &Services) -> Option<Self> {
        services.get()
    }

    fn type_name() -> &'static str {
        type_name::<T>()
    }
}

impl<T: ?Sized + Send + Sync + 'static> ServiceField for Option<Arc<T>> {
    fn find(services: &Services) -> Option<Self> {
        Some(services.get())
    }

    fn type_name() -> &'static str {
        type_name::<T>()
    }
}

/// A service that a class needs.
#[derive(Clone, Copy, Debug)]
pub struct ServiceNeed {
    pub(crate) field: &'static str,
    pub(crate) type_name: fn() -> &'static str,
    pub(crate) is_there: fn(&Services) -> bool,
}

impl ServiceNeed {
    /// The type of a field.
    pub const fn of<F: ServiceField>(field: &'static str) -> Self {
        Self { field, type_name: F::type_name, is_there: |services| F::find(services).is_some() }
    }
}
