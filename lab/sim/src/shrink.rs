//! Shrinking: from a scenario that violates an invariant to a smaller one that still violates the
//! same.
//!
//! Faults are taken out in ever smaller groups; then the environment is made kinder property by
//! property, the cluster smaller and the run shorter. Each change stays only if the violation does.
//! Every part of the world has its own random numbers, so that taking one fault out leaves most of
//! the rest unchanged.

use std::time::Duration;

use crate::invariants::Violation;
use crate::net::NetworkModel;
use crate::run::run;
use crate::scenario::{ClockModel, Scenario};
use crate::store::StoreModel;
use crate::time::VirtualTime;

/// The result of a shrink.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest scenario found.
    pub scenario: Scenario,
    /// Violation of the scenario.
    pub violation: Violation,
    /// Number of runs that it took.
    pub runs: u32,
}

/// Shrinks `scenario` in at most `runs_max` runs. None when it violates nothing.
pub fn shrink(scenario: &Scenario, runs_max: u32) -> Option<Shrunk> {
    let violation = run(scenario).violation?;
    let mut shrinker = Shrinker { best: scenario.clone(), violation, runs: 1, runs_max };
    loop {
        let runs = shrinker.runs;
        let before = shrinker.best.clone();
        shrinker.cut_short();
        shrinker.drop_steps();
        shrinker.be_kinder();
        shrinker.fewer_hosts();
        if shrinker.best == before || shrinker.runs >= runs_max || shrinker.runs == runs {
            break;
        }
    }
    let Shrinker { best, violation, runs, .. } = shrinker;
    Some(Shrunk { scenario: best, violation, runs })
}

struct Shrinker {
    best: Scenario,
    violation: Violation,
    runs: u32,
    runs_max: u32,
}

impl Shrinker {
    /// Keeps `candidate` when it violates the same invariant.
    fn try_out(&mut self, candidate: Scenario) -> bool {
        if self.runs >= self.runs_max || candidate == self.best {
            return false;
        }
        self.runs += 1;
        match run(&candidate).violation {
            Some(violation) if violation.invariant == self.violation.invariant => {
                self.best = candidate;
                self.violation = violation;
                true
            }
            _ => false,
        }
    }

    /// A safety violation needs nothing after itself.
    fn cut_short(&mut self) {
        if self.violation.invariant == "I10" {
            return;
        }
        let mut shorter = self.best.clone();
        let end = self.violation.at + Duration::from_millis(1);
        if end < shorter.calm_at {
            shorter.calm_at = end;
        }
        shorter.liveness_bound = Duration::ZERO;
        shorter.steps.retain(|step| step.at <= end);
        self.try_out(shorter);
    }

    fn drop_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < self.best.steps.len() {
                let mut fewer = self.best.clone();
                let to = (from + size).min(fewer.steps.len());
                fewer.steps.drain(from..to);
                if !self.try_out(fewer) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    fn be_kinder(&mut self) {
        let kinder: [fn(&mut Scenario); 14] = [
            |s| s.network.loss = 0.0,
            |s| s.network.latency.tail = 0.0,
            |s| s.network = NetworkModel::default(),
            |s| s.store.unknown_applied = 0.0,
            |s| s.store.unknown_lost = 0.0,
            |s| s.store.unknown_late = 0.0,
            |s| s.store.unavailable = 0.0,
            |s| s.store.stale_reads = 0.0,
            |s| s.store.latency = StoreModel::default().latency,
            |s| s.clocks.offset_ms_max = 0,
            |s| s.clocks = ClockModel::default(),
            |s| s.restart_after = None,
            |s| s.health_period = None,
            |s| s.traffic_period = None,
        ];
        for make in kinder {
            let mut candidate = self.best.clone();
            make(&mut candidate);
            self.try_out(candidate);
        }
        for number in 0..self.best.steps.len() {
            let mut candidate = self.best.clone();
            let Some(step) = candidate.steps.get_mut(number) else { break };
            if step.fault.lasts() {
                step.until = VirtualTime::from_nanos(u64::midpoint(
                    step.at.as_nanos(),
                    step.until.as_nanos(),
                ));
                self.try_out(candidate);
            }
        }
    }

    fn fewer_hosts(&mut self) {
        while self.best.hosts > 1 {
            let mut candidate = self.best.clone();
            candidate.hosts -= 1;
            candidate.start_hosts = candidate.start_hosts.min(candidate.hosts);
            let hosts = candidate.hosts;
            candidate.steps.retain(|step| step.fault.host_max() < hosts);
            if !self.try_out(candidate) {
                break;
            }
        }
    }
}

/// A scenario as people read it.
pub fn describe(scenario: &Scenario) -> String {
    let mut text = format!(
        "seed {} with {} hosts ({} at the start, within {:?}), calm at {} s\n",
        scenario.seed,
        scenario.hosts,
        scenario.start_hosts,
        scenario.start_within,
        scenario.calm_at
    );
    text.push_str(&format!("network {:?}\nstore {:?}\n", scenario.network, scenario.store));
    text.push_str(&format!(
        "clocks {:?}, restart after {:?}, health every {:?}, traffic every {:?}\n",
        scenario.clocks, scenario.restart_after, scenario.health_period, scenario.traffic_period
    ));
    let mut steps: Vec<_> = scenario.steps.iter().collect();
    steps.sort_by_key(|step| step.at);
    for step in steps {
        text.push_str(&format!("  {step}\n"));
    }
    text
}
