//! A look at a silo from beside it: what it counts, and if it is ready.

use std::fmt;
use std::sync::{Arc, Weak};

use emmer_core::{SiloAddress, SiloStatus};
use emmer_membership::TerminateReason;

use super::SiloCore;
use crate::metrics::Sample;

/// Watches a silo from its first moment: it is told before the silo joins the cluster, and runs on
/// the silo's runtime.
pub trait Observer: Send {
    /// The silo begins. This must not wait.
    fn begin(self: Box<Self>, silo: SiloWatch);
}

/// A silo that can be looked at. It does not keep the silo alive. Cheap to clone.
#[derive(Clone)]
pub struct SiloWatch {
    address: SiloAddress,
    core: Weak<SiloCore>,
}

impl fmt::Debug for SiloWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiloWatch").field("address", &self.address).finish_non_exhaustive()
    }
}

impl SiloWatch {
    pub(super) fn new(core: &Arc<SiloCore>) -> Self {
        Self { address: core.address, core: Arc::downgrade(core) }
    }

    /// The silo's identity.
    pub const fn address(&self) -> SiloAddress {
        self.address
    }

    /// Every metric as it is now; none when the silo is gone.
    pub fn metrics(&self) -> Vec<Sample> {
        self.core.upgrade().map_or_else(Vec::new, |core| core.metrics())
    }

    /// Tells if the silo is ready for work.
    pub fn readiness(&self) -> Readiness {
        let gone = Readiness::Ended(TerminateReason::Left);
        self.core.upgrade().map_or(gone, |core| core.readiness())
    }

    /// Waits until the silo has ended.
    pub async fn ended(&self) -> TerminateReason {
        match self.core.upgrade() {
            Some(core) => core.terminated().await,
            None => TerminateReason::Left,
        }
    }
}

/// Tells if a silo is ready for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// It is Active and runs turns.
    Ready,
    /// It has not joined the cluster yet.
    Joining,
    /// It runs no turns, because nobody confirms that it is alive.
    Fenced,
    /// It was asked to stop.
    Leaving,
    /// It has ended.
    Ended(TerminateReason),
}

impl Readiness {
    /// Returns true if new work should be sent to the silo.
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Joining => f.write_str("the silo has not joined the cluster yet"),
            Self::Fenced => f.write_str("the silo runs no turns: nobody confirms that it is alive"),
            Self::Leaving => f.write_str("the silo leaves the cluster"),
            Self::Ended(reason) => write!(f, "ended: {reason}"),
        }
    }
}

impl SiloCore {
    pub(super) fn readiness(&self) -> Readiness {
        if let Some(reason) = *self.ended.borrow() {
            return Readiness::Ended(reason);
        }
        let status = *self.cluster.status.borrow();
        if self.is_leaving() || status > SiloStatus::Active {
            Readiness::Leaving
        } else if status < SiloStatus::Active {
            Readiness::Joining
        } else if self.host.fence.is_closed_at(self.host.clock.now()) {
            Readiness::Fenced
        } else {
            Readiness::Ready
        }
    }
}
