//! The fields of a grain that are no state.

use super::Ctx;
use crate::hosting::ServiceField;
use crate::turn::ActivationError;

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
    note = "for a stored value, write `#[state(\"name\")]` and `Persistent<..>`",
    note = "for a value that every activation makes, implement `Default`, or write \
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
