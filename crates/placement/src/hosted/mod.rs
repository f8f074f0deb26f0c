//! Which grain types each silo hosts, as every silo knows it.
//!
//! Silos need not host the same types. Each has a [`Manifest`]: its grain types, their methods, and
//! how each is placed. The number of its manifest goes round with its load report. Whoever hears a
//! number that it does not know asks one of the silos that said it ([`Learner`]). So silos that
//! host the same ask nobody. Placement looks at the result ([`Hosted`]).

mod known;
mod learner;
mod manifest;
mod selector;

pub use known::Hosted;
pub use learner::{Effect, Learner, Message};
pub use manifest::{HostedType, Manifest};
pub use selector::{ParseSelectorError, VersionSelector};
