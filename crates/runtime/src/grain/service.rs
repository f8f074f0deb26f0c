//! Services: what the application gives to a silo for its grains, each found by its type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::Ctx;
use crate::turn::ActivationError;

/// The services of a silo ([`SiloBuilder::service`](crate::SiloBuilder::service)).
#[derive(Default)]
pub struct Services(HashMap<TypeId, Service>);

struct Service {
    /// An `Arc<T>` for the type that it is found by.
    value: Box<dyn Any + Send + Sync>,
    type_name: &'static str,
}

impl Services {
    /// Adds a service, in the place of one of the same type.
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
    /// That of a field.
    pub const fn of<F: ServiceField>(field: &'static str) -> Self {
        Self { field, type_name: F::type_name, is_there: |services| F::find(services).is_some() }
    }
}

/// The service for a field of a grain that is being made.
///
/// # Errors
/// The silo has none, or is gone.
pub fn service<F: ServiceField>(ctx: &Ctx, field: &str) -> Result<F, ActivationError> {
    let found = ctx.services().and_then(|services| F::find(&services));
    found.ok_or_else(|| {
        ActivationError::new(format_args!(
            "the silo has no service of type {} for the field `{field}`",
            F::type_name()
        ))
    })
}

/// The type of any field of a grain.
#[diagnostic::on_unimplemented(
    message = "a grain cannot have a field of type `{Self}`",
    label = "`{Self}` cannot be used by several threads",
    note = "turns of a grain run on any thread: use `Arc` for `Rc`, `Mutex` for `RefCell`, an atomic \
        for `Cell`"
)]
pub trait Shareable: Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<T: ?Sized + Send + Sync + 'static> Shareable for T {}

/// Compiles where a field's type can be one.
pub const fn shareable<T: ?Sized + Shareable>() {}

/// The type of a field without an attribute.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` cannot be filled",
    label = "no attribute says what this field holds, and `{Self}` has no `Default`",
    note = "for what the application gives to all grains, write `#[service]` and `Arc<..>`, and \
        `.service(..)` where the silo is built",
    note = "for what is stored, write `#[state(\"name\")]` and `Persistent<..>`",
    note = "for what every activation makes anew, implement `Default`, or write \
        `#[grain(constructor)]` on the struct and host it by `.host_with(..)`"
)]
pub trait FieldDefault: Sized {
    /// The value of a new activation.
    fn make() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Default> FieldDefault for T {
    fn make() -> Self {
        Self::default()
    }
}
