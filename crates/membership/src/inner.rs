//! What one part of the machine asks of the others, without knowing them.

use crate::intent::Intent;

/// What may be read of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    /// Every row.
    All,
    /// The version row.
    Version,
    /// The version row and some Active rows (joining).
    Sample,
}

/// An event between parts. The machine hands it to the part that it concerns, in order, and depth
/// first: what an event leads to comes before the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Inner {
    /// A read is wanted as soon as no other request is on its way.
    Want(Read),
    /// This silo wants something written.
    Wish(Intent),
}
