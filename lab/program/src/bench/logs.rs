//! The turn logs of silo processes, and the book that they are read into.

use super::judge::{Book, ON_ITS_WAY, Verdict};
use super::processes::Process;
use crate::grains::turn_log;
use emmer_cli::exit::{Failure, Result};

/// See the module.
#[derive(Default)]
pub(super) struct Logs {
    pub(super) book: Book,
    /// The number of each process in the book.
    numbers: Vec<(String, usize)>,
}

impl Logs {
    /// Adds the logs of processes that are new.
    pub(super) fn open(&mut self, processes: &[Process]) {
        for process in processes {
            if self.numbers.iter().all(|(name, _)| *name != process.name) {
                let number = self.book.open(&process.name, process.turns.clone());
                self.numbers.push((process.name.clone(), number));
            }
        }
    }

    /// The number of a process.
    pub(super) fn of(&self, process: &Process) -> Result<usize> {
        let number = self.numbers.iter().find(|(name, _)| *name == process.name);
        let number = number.map(|(_, number)| *number);
        number.ok_or_else(|| Failure::other(format!("silo {} has no turn log", process.name)))
    }

    /// Judges what ran until now and was not judged before.
    pub(super) async fn judge(&mut self) -> Result<Verdict> {
        // Lines written before this moment are in the files in a moment.
        let cutoff = turn_log::now();
        tokio::time::sleep(ON_ITS_WAY).await;
        self.book.read()?;
        Ok(self.book.judge(cutoff))
    }

    /// A log that lost lines, or whose process did not end by itself, proves nothing.
    pub(super) fn check_whole(&self, process: &Process) -> Result<()> {
        let name = &process.name;
        match self.book.lost(self.of(process)?) {
            Some(0) => Ok(()),
            Some(lost) => {
                Err(Failure::other(format!("the turn log of silo {name} lost {lost} lines")))
            }
            None => Err(Failure::other(format!("the turn log of silo {name} has no end"))),
        }
    }
}
