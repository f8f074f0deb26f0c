//! Use of the processors and of the memory that a silo runs on.

use std::time::Duration;

use emmer_core::Instant;
use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Over how long the use of the processors is averaged, about.
const AVERAGED_OVER: Duration = Duration::from_secs(5);

/// The least time between two looks at the processors: longer than `sysinfo` wants it, whose time
/// begins a little later.
const LEAST_INTERVAL: Duration = Duration::from_millis(500);

/// Reads the machine's counters.
pub(crate) struct Resources {
    system: System,
    process: Pid,
    /// Number of processors that the process may use.
    processors: f64,
    /// Time at which the counters were last read, and the processor time that the process had used
    /// by then.
    last: Option<(Instant, Duration)>,
    cpu: Option<f64>,
    /// Of the process.
    memory_bytes: Option<u64>,
}

/// In use, in percent; none where the system does not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    /// Of the machine's processors or of those that the process may use, whichever is more;
    /// averaged over some seconds.
    pub(crate) cpu: Option<u8>,
    /// Of the machine's memory, or of the container's limit.
    pub(crate) memory: Option<u8>,
}

impl Resources {
    /// None where the system tells nothing.
    pub(crate) fn new() -> Option<Self> {
        let processors = std::thread::available_parallelism().ok()?.get();
        Some(Self {
            system: System::new().ok()?,
            process: sysinfo::get_current_pid().ok()?,
            processors: f64::from(u32::try_from(processors).unwrap_or(u32::MAX)),
            last: None,
            cpu: None,
            memory_bytes: None,
        })
    }

    /// Use now. The first time, the use of the processors is unknown.
    pub(crate) fn read(&mut self, now: Instant) -> InUse {
        self.read_cpu(now);
        InUse { cpu: self.cpu.map(percent), memory: self.read_memory().map(percent) }
    }

    /// The memory of the process at the last measurement.
    pub(crate) const fn memory_bytes(&self) -> Option<u64> {
        self.memory_bytes
    }

    fn read_cpu(&mut self, now: Instant) {
        let passed = self.last.map(|(before, _)| now.saturating_since(before));
        // Processor time comes in ticks.
        if passed.is_some_and(|passed| passed < LEAST_INTERVAL) {
            return;
        }
        // Before the first interval is over it is the mean since the machine began: not used.
        self.system.refresh_cpu_usage();
        let what = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        let own = [self.process];
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&own), false, what);
        let Some(process) = self.system.process(self.process) else { return };
        let spent = Duration::from_millis(process.accumulated_cpu_time());
        self.memory_bytes = Some(process.memory()).filter(|bytes| *bytes > 0);
        let last = self.last.replace((now, spent));
        let (Some((_, spent_before)), Some(passed)) = (last, passed) else { return };
        let own = spent.saturating_sub(spent_before).as_secs_f64() / passed.as_secs_f64();
        let used = f64::from(self.system.global_cpu_usage()).max(100.0 * own / self.processors);
        self.cpu = Some(averaged(self.cpu, used.min(100.0), passed));
    }

    fn read_memory(&mut self) -> Option<f64> {
        self.system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let machine = self.system.total_memory();
        let (used, all) = match self.system.cgroup_limits() {
            Some(limits) if limits.total_memory < machine => (limits.rss, limits.total_memory),
            _ => (machine.saturating_sub(self.system.available_memory()), machine),
        };
        (all > 0).then(|| 100.0 * used as f64 / all as f64)
    }
}

/// A moving average: a step of [`AVERAGED_OVER`] takes it half way to the new value.
fn averaged(old: Option<f64>, new: f64, passed: Duration) -> f64 {
    let Some(old) = old else { return new };
    let part = passed.as_secs_f64() / (passed + AVERAGED_OVER).as_secs_f64();
    old + (new - old) * part
}

fn percent(value: f64) -> u8 {
    value.round().clamp(0.0, 100.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmer_net::clock::Clock;

    #[test]
    fn an_average_follows_what_is_measured() {
        let second = Duration::from_secs(1);
        assert_eq!(percent(averaged(None, 70.4, second)), 70);
        assert_eq!(percent(averaged(Some(20.0), 100.0, AVERAGED_OVER)), 60);
        let mut use_of = 0.0;
        for _ in 0..30 {
            use_of = averaged(Some(use_of), 100.0, second);
        }
        assert!(use_of > 99.0 && use_of < 100.0, "{use_of}");
        assert_eq!((percent(-3.0), percent(170.0)), (0, 100));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_is_seen_and_memory_is_some() {
        let mut resources = Resources::new().unwrap();
        let clock = Clock::new();
        let mut now = clock.mono();
        assert_eq!(resources.read(now).cpu, None, "nothing to compare with");
        // Computes until that is seen.
        loop {
            if clock.mono().saturating_since(now) < LEAST_INTERVAL {
                continue;
            }
            now = clock.mono();
            let found = resources.read(now);
            assert!(found.memory.is_some(), "{found:?}");
            if found.cpu.is_some_and(|cpu| cpu > 0) {
                return;
            }
            let passed = now.saturating_since(Instant::ZERO);
            assert!(passed < Duration::from_secs(60), "a minute of work was not seen");
        }
    }
}
