//! The processes that call slow grains, as seen by the measurement that started them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::ground::Ground;
use super::stage::{PATIENCE, Stage};
use emmer_cli::commands::child;
use emmer_cli::exit::{Failure, Result};

/// Interval of the checks of the sums while one is awaited.
const POLL: Duration = Duration::from_millis(20);
/// Time that a process may take to end when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Counts of callers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) answered: u64,
    pub(super) failed: u64,
}

impl Sums {
    /// Reads a line of the process.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let answered = words.next()?.parse().ok()?;
        Some(Self { answered, failed: words.next()?.parse().ok()? })
    }

    /// Difference to `before`.
    pub(super) const fn since(self, before: Self) -> Self {
        Self {
            answered: self.answered.saturating_sub(before.answered),
            failed: self.failed.saturating_sub(before.failed),
        }
    }
}

/// One process.
struct Caller {
    child: Child,
    sums: Arc<Mutex<Sums>>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        // Fails only for a process that has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All callers: one next to each silo, and one outside.
pub(super) struct Crowd(Vec<Caller>);

impl Crowd {
    /// Starts them and waits until each has had answers.
    pub(super) async fn start(
        stage: &Stage,
        ground: &Ground,
        silos: usize,
        rate: u64,
    ) -> Result<Self> {
        let mut callers = Vec::new();
        for slot in (0..silos).map(Some).chain([None]) {
            callers.push(start(stage, ground, slot, callers.len(), rate)?);
        }
        let mut crowd = Self(callers);
        let begun = Instant::now();
        while crowd.0.iter().any(|caller| caller.sums().answered == 0) {
            if let Some(at) =
                crowd.0.iter_mut().position(|caller| !matches!(caller.child.try_wait(), Ok(None)))
            {
                let said = child::said(&log(stage, at));
                return Err(Failure::other(format!("a process of callers ended{said}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::other("callers get no answers"));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(crowd)
    }

    /// Counts of all of them so far.
    pub(super) fn sums(&self) -> Sums {
        self.0.iter().map(Caller::sums).fold(Sums::default(), |sum, one| Sums {
            answered: sum.answered + one.answered,
            failed: sum.failed + one.failed,
        })
    }

    /// Ends them.
    pub(super) async fn stop(mut self) {
        for caller in &mut self.0 {
            drop(caller.child.stdin.take());
        }
        let begun = Instant::now();
        while self.0.iter_mut().any(|caller| matches!(caller.child.try_wait(), Ok(None))) {
            if begun.elapsed() > END_LIMIT {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Caller {
    fn sums(&self) -> Sums {
        *self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(stage: &Stage, number: usize) -> std::path::PathBuf {
    stage.dir().join(format!("callers-{number}.log"))
}

fn start(
    stage: &Stage,
    ground: &Ground,
    slot: Option<usize>,
    number: usize,
    rate: u64,
) -> Result<Caller> {
    let failed =
        |error: std::io::Error| Failure::other(format!("callers cannot be started: {error}"));
    let mut command = ground.callers(slot).program().map_err(failed)?;
    command.args(["bench", "callers", "--cluster-id", stage.cluster.as_str()]);
    command.args(["--seed", &(number + 1).to_string(), "--rate", &rate.to_string()]);
    command.env("EMMER_STORE", ground.store());
    let errors = File::create(log(stage, number)).map_err(failed)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut child = command.spawn().map_err(failed)?;
    let sums = Arc::new(Mutex::new(Sums::default()));
    if let Some(out) = child.stdout.take() {
        let sums = sums.clone();
        let read = move || {
            for line in BufReader::new(out).lines().map_while(std::io::Result::ok) {
                if let Some(read) = Sums::parse(&line) {
                    *sums.lock().unwrap_or_else(PoisonError::into_inner) = read;
                }
            }
        };
        std::thread::Builder::new().name("emmer-callers".to_owned()).spawn(read).map_err(failed)?;
    }
    Ok(Caller { child, sums })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_read_back() {
        let sums = Sums::parse("12 3 4567").unwrap();
        assert_eq!(sums, Sums { answered: 12, failed: 3 });
        assert_eq!(sums.since(Sums { answered: 2, failed: 3 }), Sums { answered: 10, failed: 0 });
        assert_eq!((Sums::parse(""), Sums::parse("12"), Sums::parse("a b c")), (None, None, None));
    }
}
