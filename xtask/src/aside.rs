//! Steps that a build machine does beside the tests, at low priority: tests wait for servers most
//! of their time, and one processor is idle.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::process::Command;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::run::{self, Job, Ran};

/// What is done aside, if anything is.
#[derive(Default)]
pub(crate) struct Aside(RefCell<UnderWay>);

#[derive(Default)]
struct UnderWay {
    begun: bool,
    /// What is still to come, in order.
    names: VecDeque<String>,
    results: Option<Receiver<Result<Ran, String>>>,
    /// What came before it was asked for.
    early: Vec<(String, Result<Ran, String>)>,
}

impl Aside {
    /// Begins these jobs, one after the other. Only the first time.
    pub(crate) fn begin(&self, jobs: impl FnOnce() -> Vec<Job>) {
        let mut under_way = self.0.borrow_mut();
        if under_way.begun {
            return;
        }
        let jobs = jobs();
        let (sender, results) = sync_channel(jobs.len());
        *under_way = UnderWay {
            begun: true,
            names: jobs.iter().map(|job| job.name.clone()).collect(),
            results: Some(results),
            early: Vec::new(),
        };
        std::thread::spawn(move || {
            for mut job in jobs {
                job.command = at_low_priority(job.command);
                if sender.send(run::run(job, &mut |_| {})).is_err() {
                    return;
                }
            }
        });
    }

    /// How the job of this name went, if it was begun here and nobody has asked yet. Waits for it.
    pub(crate) fn take(&self, name: &str) -> Option<Result<Ran, String>> {
        let UnderWay { names, results, early, .. } = &mut *self.0.borrow_mut();
        if let Some(at) = early.iter().position(|(of, _)| of == name) {
            return Some(early.swap_remove(at).1);
        }
        if !names.iter().any(|of| of == name) {
            return None;
        }
        while let Some(next) = names.pop_front() {
            let result = results.as_ref().and_then(|results| results.recv().ok());
            let result = result.unwrap_or_else(|| Err(format!("{next}: its thread has ended")));
            if next == name {
                return Some(result);
            }
            early.push((next, result));
        }
        None
    }
}

/// The same command as one that gives way to others, where the system has a program for that.
fn at_low_priority(command: Command) -> Command {
    if !cfg!(unix) {
        return command;
    }
    let mut low = Command::new("nice");
    low.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        low.current_dir(folder);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => low.env(key, value),
            None => low.env_remove(key),
        };
    }
    low
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn job(name: &str, dir: &std::path::Path, program: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", program]).current_dir(dir).env("EMMER_WORD", "told");
        let (limit, grace) = (Duration::from_secs(60), run::GRACE);
        Job { name: name.to_owned(), command, log: dir.join(name), limit, grace }
    }

    #[test]
    #[cfg(unix)]
    fn jobs_are_done_once_with_their_surroundings_and_taken_in_any_order() {
        let name = format!("emmer-xtask-aside-{}", std::process::id());
        let dir = &std::env::temp_dir().join(name);
        std::fs::create_dir_all(dir).unwrap();
        let aside = Aside::default();
        assert!(aside.take("a").is_none(), "nothing was begun");
        aside.begin(|| {
            vec![
                job("a", dir, "test \"$EMMER_WORD\" = told && nice > priority"),
                job("b", dir, "exit 3"),
                job("c", dir, "touch here"),
            ]
        });
        aside.begin(|| vec![job("d", dir, "touch again")]);
        assert!(aside.take("c").unwrap().unwrap().success && dir.join("here").exists());
        assert_eq!(aside.take("b").unwrap().unwrap().ending, "exit code 3");
        assert!(aside.take("a").unwrap().unwrap().success);
        assert_eq!(std::fs::read_to_string(dir.join("priority")).unwrap().trim(), "19");
        assert!(["a", "b", "c", "d"].iter().all(|name| aside.take(name).is_none()));
        assert!(!dir.join("again").exists());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
