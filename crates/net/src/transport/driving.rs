//! The connection that this thread drives.

use std::cell::Cell;
use std::ptr;

thread_local! {
    static DRIVEN: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Returns true if this thread drives the connection now: its driver writes the queue soon.
pub(super) fn is_driven_here<C>(connection: &C) -> bool {
    ptr::eq(DRIVEN.get(), ptr::from_ref(connection).cast())
}

/// A go of a connection's driver on this thread, until this is dropped.
pub(super) struct Driving(*const ());

impl Driving {
    pub(super) fn begin<C>(connection: &C) -> Self {
        Self(DRIVEN.replace(ptr::from_ref(connection).cast()))
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        DRIVEN.set(self.0);
    }
}
