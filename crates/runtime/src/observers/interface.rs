//! An observer's interface as the runtime sees it. Implemented by `#[observer]` only.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::mailbox::Gap;

/// An interface of observers, implemented for `dyn Trait` by `#[observer]`.
///
/// For `dyn Trait + 'a` with any lifetime, or no future that keeps a [`Watch`](super::Watch) over
/// an `await` would be `Send`: the compiler asks that with lifetimes that it does not know.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an interface of observers",
    label = "not the `dyn Trait` of an #[observer]",
    note = "name the interface as `dyn Trait`, and write `#[observer]` on the trait"
)]
pub trait ObserverInterface: Send + Sync {
    /// The generated enum, with one variant for each method.
    type Event: Serialize + DeserializeOwned + Clone + Send + Sync + 'static;
    /// The generated type with a method for each event.
    type Tell: Default;
    /// The trait's name.
    const NAME: &'static str;

    /// Calls the method of an event.
    fn deliver(&self, event: Self::Event);

    /// Tells that events may be missing here.
    fn deliver_gap(&self, gap: Gap);
}
