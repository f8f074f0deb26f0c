//! Makes the plan of a seed that failed as simple as it can be and still fail.

use crate::ledger::Violation;
use crate::plan::Plan;
use crate::run::run;

/// The most plans that are tried.
const TRIES_MAX: u32 = 200;

/// A simpler plan that breaks the same rule, and how.
pub fn shrink(plan: &Plan, violation: &Violation) -> (Plan, Violation) {
    let (mut plan, mut violation, mut tries) = (plan.clone(), violation.clone(), 0);
    'simpler: loop {
        for simpler in plan.simpler() {
            tries += 1;
            if tries > TRIES_MAX {
                break 'simpler;
            }
            if let Some(found) =
                run(&simpler).violation.filter(|found| found.rule == violation.rule)
            {
                (plan, violation) = (simpler, found);
                continue 'simpler;
            }
        }
        break;
    }
    (plan, violation)
}
