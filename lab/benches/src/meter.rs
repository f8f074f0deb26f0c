//! Processor time and resident memory of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The processor time of this process so far: all threads, user and system, exact to nanoseconds.
pub fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let secs = u64::try_from(used.tv_sec).unwrap_or(0);
    Duration::from_secs(secs) + Duration::from_nanos(u64::try_from(used.tv_nsec).unwrap_or(0))
}

/// The bytes of this process that are in memory now, as Linux counts them (`VmRSS`).
///
/// # Errors
/// On systems without `/proc`.
pub fn resident() -> crate::Result<u64> {
    resident_of(std::process::id())
}

/// The bytes of the process of this number that are in memory now.
///
/// # Errors
/// On systems without `/proc`, and when there is no such process.
pub fn resident_of(process: u32) -> crate::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| "no VmRSS in the status of the process".into())
}

/// Wall and processor time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    wall: Instant,
    cpu: Duration,
}

impl Meter {
    /// From now on.
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: cpu() }
    }

    /// Wall time and processor time since then.
    pub fn read(&self) -> (Duration, Duration) {
        (self.wall.elapsed(), cpu().saturating_sub(self.cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time_and_memory_is_resident() {
        let meter = Meter::start();
        let mut sum = 0u64;
        while meter.read().1 < Duration::from_micros(50) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(meter.read().1 >= Duration::from_micros(50));
        #[cfg(target_os = "linux")]
        assert!(resident().unwrap() > 100_000);
    }
}
