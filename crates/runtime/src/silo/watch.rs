//! A look at a silo from outside: its counters, and if it is ready.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use emmer_core::{Duty, Instant, SiloAddress, SiloStatus};
use emmer_membership::TerminateReason;
use emmer_store::operator::{DutyError, Written};

use super::admin::Inside;
use super::core::SiloCore;
use crate::admin::Admin;
use crate::metrics::Sample;

/// Watches a silo from its first moment: it gets the silo's watch before the silo joins the
/// cluster, and runs on the silo's runtime.
pub trait Observer: Send {
    /// The silo begins. This must not wait.
    fn begin(self: Box<Self>, silo: SiloWatch);
}

/// A view of a silo that does not keep it alive. Cheap to clone.
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

    /// The duty of the silo in the view in force; `Leaving` when it is gone.
    pub fn duty(&self) -> Duty {
        self.core.upgrade().map_or(Duty::Leaving, |core| core.duty())
    }

    /// Writes a duty of the silo into the membership table, as an operator does. `because` says who
    /// asked, for the history. The silo does its duty afterwards.
    ///
    /// # Errors
    /// The table could not be written, and nothing has changed; or the silo leaves or has ended.
    pub async fn give_duty(&self, duty: Duty, because: &str) -> Result<Written, DutyError> {
        match self.core.upgrade() {
            Some(core) => core.change_duty(duty, None, because).await,
            None => Err(DutyError::NotActive(self.address, SiloStatus::Dead)),
        }
    }

    /// Questions about the cluster, and orders to it. They need no right.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::new(Inside(self.core.clone())))
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
    /// The silo runs no turns, because no other silo confirms that it is alive.
    Fenced,
    /// It has run no turns for `liveness_timeout`, although calls wait and the store answers: its
    /// process should be restarted.
    Stuck,
    /// It was asked to stop.
    Leaving,
    /// It has ended.
    Ended(TerminateReason),
}

impl Readiness {
    /// Returns true if the silo works or can still recover: a supervisor leaves its process alone.
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::Stuck | Self::Ended(_))
    }

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
            Self::Fenced => {
                f.write_str("the silo runs no turns: no silo confirms that it is alive")
            }
            Self::Stuck => f.write_str(
                "the silo has run no turns for liveness_timeout, although calls wait and the \
                 store answers: restart it",
            ),
            Self::Leaving => f.write_str("the silo leaves the cluster"),
            Self::Ended(reason) => write!(f, "ended: {reason}"),
        }
    }
}

/// The times that tell if a silo is stuck.
#[derive(Clone, Copy, Debug)]
struct Standstill {
    now: Instant,
    /// Time since when no turns run.
    shut: Instant,
    /// The last answer of the store.
    answered: Option<Instant>,
    /// The last request that the store left unanswered.
    unanswered: Option<Instant>,
}

impl Standstill {
    /// Returns true if no turns ran for `timeout`, and the store answered all that time.
    fn lasts(&self, timeout: Duration) -> bool {
        let Self { now, shut, answered, unanswered } = *self;
        let since = |moment: Instant| now.saturating_since(moment);
        since(shut) >= timeout
            && answered.is_some_and(|at| since(at) < timeout)
            && unanswered.is_none_or(|at| since(at) >= timeout)
    }
}

impl SiloCore {
    /// Returns true if only a restart is likely to help.
    fn is_stuck(&self) -> bool {
        let Some(shut) = self.fence_shut.lock().since() else { return false };
        let (answered, unanswered) = {
            let statistics = self.cluster.membership_statistics.lock();
            (statistics.store_answered, statistics.store_unanswered)
        };
        let standstill = Standstill { now: self.host.clock.mono(), shut, answered, unanswered };
        self.host.fence.is_waited_for() && standstill.lasts(self.options.liveness_timeout)
    }

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
            if self.is_stuck() { Readiness::Stuck } else { Readiness::Fenced }
        } else {
            Readiness::Ready
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silo_is_stuck_only_while_its_store_answers() {
        let at = |secs: u64| Instant::from_millis(secs * 1_000);
        let lasts = |shut, answered: Option<u64>, unanswered: Option<u64>| {
            let (answered, unanswered) = (answered.map(at), unanswered.map(at));
            let standstill = Standstill { now: at(100), shut: at(shut), answered, unanswered };
            standstill.lasts(Duration::from_secs(30))
        };
        assert!(lasts(70, Some(95), None) && lasts(10, Some(95), Some(70)));
        assert!(!lasts(71, Some(95), None), "not for long enough");
        assert!(!lasts(10, None, None) && !lasts(10, Some(70), None), "no answers");
        assert!(!lasts(10, Some(99), Some(71)), "the store is just back");
    }
}
