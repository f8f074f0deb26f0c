//! The silo's part in the cluster: the shells of its machines, when turns may run, what waits for peers.

pub(crate) mod directory;
mod fence;
pub(crate) mod locations;
pub(crate) mod membership;
mod outbox;

pub(crate) use self::fence::{Fence, Shut};
pub(crate) use self::outbox::Outboxes;
