//! Calls that a test counts, delays and lets fail.

use std::sync::Arc;
use std::time::Duration;

use emmer_virtual::CallFault;

/// The calls of one name in a world, from all callers: see [`World::calls`](crate::World::calls).
#[derive(Clone, Debug)]
pub struct Calls {
    pub(crate) all: Arc<emmer_virtual::Calls>,
    pub(crate) name: String,
}

impl Calls {
    /// Number of calls that were made since the world began, failed ones included. A call that is
    /// tried again counts once.
    pub fn count(&self) -> u64 {
        self.all.count(&self.name)
    }

    /// From now on each of them sets off so much later. It counts against the call's own deadline.
    pub fn delay(&self, by: Duration) -> &Self {
        self.all.delay(&self.name, by);
        self
    }

    /// The next one fails. Asked twice, the next two do, in this order.
    pub fn fail_next(&self, how: CallFault) -> &Self {
        self.all.fail_next(&self.name, how);
        self
    }

    /// From now on all of them fail.
    pub fn fail(&self, how: CallFault) -> &Self {
        self.all.fail(&self.name, how);
        self
    }

    /// Lets calls run normally from now on: without delay, and without failures.
    pub fn recover(&self) -> &Self {
        self.all.recover(&self.name);
        self
    }
}
