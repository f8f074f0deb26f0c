//! I8, membership's half: a silo whose death is in the table runs no turn once its fence bound has passed, on a
//! clock that drifts within the stated rate.
//!
//! The bound counts from the commit of the death: the fence timeout on the silo's own (perhaps slow) clock. A store whose reads
//! may be stale can confirm to a dead silo that it is alive: the bound then counts from the last answer to that silo that hid the
//! latest version.
//!
//! A silo that was alone has nobody to confirm it but the table, and so a longer bound: two thirds of the time after which its row
//! is stale. It can only die that soon because its successor took its `ip:port` while it still runs, which an operating system
//! does not allow and these worlds do.

use std::time::Duration;

use crate::invariants::{Facts, Violation};
use crate::scenario::Scenario;
use crate::time::VirtualTime;

/// How long after its death is committed a silo may still start turns; none when no fence is configured.
#[derive(Debug)]
pub(super) struct FenceBound {
    /// Among others.
    usual: Option<Duration>,
    /// Alone.
    alone: Duration,
}

impl FenceBound {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let timeout = scenario.config.fence_timeout;
        let drift = 1.0 + f64::from(scenario.clocks.drift_ppm_max) / 1e6;
        let bound = |span: Duration| span.mul_f64(drift) + Duration::from_millis(1);
        Self {
            usual: (!timeout.is_zero()).then(|| bound(timeout)),
            alone: bound(timeout.max(scenario.config.stale_after() * 2 / 3)),
        }
    }

    pub(super) fn due(&self, died_at: VirtualTime, alone: bool) -> Option<VirtualTime> {
        self.usual.map(|bound| died_at + if alone { self.alone } else { bound })
    }
}

/// Looks at a silo whose bound has passed.
pub(super) fn check(bound: &FenceBound, facts: &Facts<'_>, number: u32) -> Result<(), Violation> {
    let process = &facts.processes[number as usize];
    if process.leaving || !process.may_run_turns(facts.now) {
        return Ok(());
    }
    let misled = process.misled_at.and_then(|at| bound.due(at, process.died_alone));
    if misled.is_some_and(|due| facts.now < due) {
        return Ok(());
    }
    let what =
        format!("{} is dead in the table, its fence bound has passed, and it runs turns", process.address);
    Err(facts.violated("I8", what))
}
