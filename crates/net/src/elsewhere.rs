//! The virtual world of the code that runs now.

use std::sync::Arc;

pub use emmer_virtual::{CallFate, CallFault};
pub(crate) use emmer_virtual::{Listener, ReadHalf, Stream, WriteHalf};

/// A virtual host.
pub(crate) type Host = Arc<emmer_virtual::Host>;

/// The virtual host whose code runs now; none in the kernel's world.
#[inline]
pub(crate) fn host() -> Option<Host> {
    emmer_virtual::Host::current()
}
