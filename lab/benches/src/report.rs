//! Samples of several rounds as a table: medians, spreads, and ratios to the floors of the same
//! round.

use emmer_report::{Cell, Goal, Report};

use crate::Result;
use crate::sample::{BYTES_EACH, FENCE_SHUT, LATEST_PROBE, REFUSED, Sample, Spread};

/// The columns for numbers that only some scenarios have: their names in [`Sample::more`].
const MORE: [&str; 4] = [BYTES_EACH, REFUSED, FENCE_SHUT, LATEST_PROBE];

/// Gathers what the contenders measured, round by round.
pub struct Rounds<'a> {
    wanted: usize,
    rounds: Vec<Vec<Sample>>,
    say: &'a dyn Fn(&str),
}

impl<'a> Rounds<'a> {
    /// None yet, of `wanted`.
    pub fn new(wanted: usize, say: &'a dyn Fn(&str)) -> Self {
        Self { wanted, rounds: Vec::new(), say }
    }

    /// Begins the next round, if there is one.
    pub fn begin(&mut self) -> bool {
        if self.rounds.len() >= self.wanted {
            return false;
        }
        self.rounds.push(Vec::new());
        true
    }

    /// Runs one contender and keeps its results.
    ///
    /// # Errors
    /// Error of the run, with the contender's name.
    pub fn add(
        &mut self,
        contender: &str,
        run: impl FnOnce() -> Result<Vec<Sample>>,
    ) -> Result<()> {
        (self.say)(&format!("round {} of {}: {contender}", self.rounds.len(), self.wanted));
        let samples = run().map_err(|error| format!("{contender}: {error}"))?;
        if let Some(round) = self.rounds.last_mut() {
            round.extend(samples);
        }
        Ok(())
    }

    /// Everything, to be compared with these two floors.
    pub fn compared(self, floors: [&'static str; 2]) -> Compared {
        Compared { rounds: self.rounds, floors }
    }
}

/// The samples of all rounds, and the floors they are compared with.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The samples, by round.
    pub rounds: Vec<Vec<Sample>>,
    floors: [&'static str; 2],
}

impl Compared {
    /// Each measurement, contender and number of threads, in the order of the first round.
    pub fn lines(&self) -> Vec<(String, usize, String)> {
        let mut lines = Vec::new();
        for sample in self.rounds.iter().flatten() {
            let line = (sample.what.clone(), sample.threads, sample.contender.clone());
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        // Lines of one measurement stand together; the order of contenders stays.
        let order = lines.clone();
        lines.sort_by_key(|(what, threads, _)| {
            (*threads, order.iter().position(|line| line.0 == *what && line.1 == *threads))
        });
        lines
    }

    fn of<'a>(&'a self, line: &'a (String, usize, String)) -> impl Iterator<Item = &'a Sample> {
        self.rounds.iter().flatten().filter(|s| is(s, &line.0, line.1, &line.2))
    }

    /// One number of every round.
    pub fn spread(
        &self,
        what: &str,
        threads: usize,
        contender: &str,
        of: fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.rounds.iter().flatten().filter(|s| is(s, what, threads, contender)).map(of))
    }

    /// One number as a multiple of the floor's, round by round.
    pub fn times(
        &self,
        (what, threads, contender): (&str, usize, &str),
        floor: &str,
        of: fn(&Sample) -> f64,
    ) -> Option<Spread> {
        let find =
            |round: &[Sample], who: &str| round.iter().find(|s| is(s, what, threads, who)).map(of);
        Spread::of(self.rounds.iter().filter_map(|round| {
            let below = find(round, floor).filter(|below| *below > 0.0)?;
            Some(find(round, contender)? / below)
        }))
    }

    /// Latencies in the middle round, in nanoseconds.
    pub fn latency(
        &self,
        what: &str,
        threads: usize,
        contender: &str,
        of: fn(&Sample) -> Option<u64>,
    ) -> Option<f64> {
        let samples = self.rounds.iter().flatten().filter(|s| is(s, what, threads, contender));
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of one call")]
        Spread::of(samples.filter_map(of).map(|ns| ns as f64)).map(|spread| spread.median)
    }

    /// The table.
    pub fn report(&self, name: &str, title: &str) -> Report {
        let columns = [
            "what",
            "threads",
            "contender",
            "CPU ns",
            "CPU ns min to max",
            "x first floor",
            "min to max",
            "x second floor",
            "per second",
            "p50 us",
            "p99 us",
            "p99.9 us",
            MORE[0],
            MORE[1],
            MORE[2],
            MORE[3],
        ];
        let [first, second] = self.floors;
        let title = format!(
            "{title}\n{} rounds; CPU is user and system time of all processes for each operation; \
             medians of rounds.\n\
             First floor: {first}; second floor: {second}; ratios are those of CPU within one \
             round.",
            self.rounds.len()
        );
        let mut report = Report::new(name, title, &columns);
        for line in self.lines() {
            report.push(self.row(&line));
        }
        drop_empty_columns(&mut report);
        report
    }

    fn row(&self, line: &(String, usize, String)) -> Vec<Cell> {
        let (what, threads, contender) = line;
        let [first, second] = self.floors;
        let cpu = Spread::of(self.of(line).map(Sample::cpu_each));
        let times = |floor| self.times((what, *threads, contender), floor, Sample::cpu_each);
        let number = |value: Option<f64>, decimals| {
            value.map_or(Cell::Nothing, |v| Cell::Number(v, decimals))
        };
        let range = |spread: Option<Spread>, decimals: usize| {
            spread.map_or(Cell::Nothing, |s| {
                format!("{:.*} to {:.*}", decimals, s.least, decimals, s.most).into()
            })
        };
        let us = |of: fn(&Sample) -> Option<u64>| {
            number(self.latency(what, *threads, contender, of).map(|ns| ns / 1e3), 2)
        };
        let more = |name: &str| Spread::of(self.of(line).filter_map(|s| s.more.get(name).copied()));
        vec![
            what.clone().into(),
            (*threads).into(),
            contender.clone().into(),
            number(cpu.map(|s| s.median), 0),
            range(cpu, 0),
            number(times(first).map(|s| s.median), 2),
            range(times(first), 2),
            number(times(second).map(|s| s.median), 2),
            number(Spread::of(self.of(line).map(Sample::per_second)).map(|s| s.median), 0),
            us(|s| s.latency.map(|l| l.p50)),
            us(|s| s.latency.map(|l| l.p99)),
            us(|s| s.latency.map(|l| l.p999)),
            number(more(MORE[0]).map(|s| s.median), 0),
            number(more(MORE[1]).map(|s| s.median), 0),
            // The worst round counts.
            number(more(MORE[2]).map(|s| s.most), 1),
            number(more(MORE[3]).map(|s| s.most), 1),
        ]
    }

    /// A goal: at most so much CPU, in nanoseconds for each operation.
    pub fn goal_cpu(&self, what: &str, threads: usize, contender: &str, at_most: f64) -> Goal {
        let reached = self.spread(what, threads, contender, Sample::cpu_each).map(|s| s.median);
        let title = format!("{contender}, {what}, {threads} threads: CPU ns");
        Goal::at_most(title, reached, at_most)
    }

    /// A goal: the number `name` is at most `at_most` in the worst round.
    pub fn goal_worst(&self, what: &str, contender: &str, name: &str, at_most: f64) -> Goal {
        let of = self.rounds.iter().flatten();
        let of = of.filter(|one| one.what == what && one.contender == contender);
        let reached = of.filter_map(|one| one.more.get(name).copied()).reduce(f64::max);
        Goal::at_most(format!("{contender}, {what}: {name}"), reached, at_most)
    }

    /// A goal: at most `times` the CPU of a floor.
    pub fn goal_times(
        &self,
        what: &str,
        threads: usize,
        contender: &str,
        floor: &str,
        at_most: f64,
    ) -> Goal {
        let reached =
            self.times((what, threads, contender), floor, Sample::cpu_each).map(|s| s.median);
        let title = format!("{contender}, {what}, {threads} threads: CPU, times {floor}");
        Goal::at_most(title, reached, at_most)
    }

    /// A goal: at most `times` the wall time of a floor.
    pub fn goal_wall_times(
        &self,
        what: &str,
        threads: usize,
        contender: &str,
        floor: &str,
        at_most: f64,
    ) -> Goal {
        let reached =
            self.times((what, threads, contender), floor, Sample::wall_each).map(|s| s.median);
        let title =
            format!("{contender}, {what}, {threads} threads: wall time for each, times {floor}");
        Goal::at_most(title, reached, at_most)
    }

    /// A goal: at most `times` the median latency of a floor.
    pub fn goal_p50(
        &self,
        what: &str,
        threads: usize,
        contender: &str,
        floor: &str,
        at_most: f64,
    ) -> Goal {
        let reached = self.times((what, threads, contender), floor, Sample::p50).map(|s| s.median);
        let title = format!("{contender}, {what}, {threads} threads: p50, times {floor}");
        Goal::at_most(title, reached, at_most)
    }
}

/// A column that says nothing in any row is left out.
fn drop_empty_columns(report: &mut Report) {
    for at in (0..report.columns.len()).rev() {
        if report.rows.iter().all(|row| row[at] == Cell::Nothing) {
            report.columns.remove(at);
            for row in &mut report.rows {
                row.remove(at);
            }
        }
    }
}

/// Returns true if a sample belongs to a row. A sample without an operation does not: on a busy
/// machine a short run can pass without a single answer.
fn is(sample: &Sample, what: &str, threads: usize, contender: &str) -> bool {
    sample.operations > 0
        && sample.what == what
        && sample.threads == threads
        && sample.contender == contender
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(contender: &str, cpu_us: u64) -> Sample {
        let took = (Duration::from_millis(1), Duration::from_micros(cpu_us));
        Sample::new("call", contender, 2, 1_000).taking(took)
    }

    #[test]
    fn ratios_are_those_within_a_round() {
        let say = |_: &str| {};
        let mut rounds = Rounds::new(2, &say);
        for (floor, emmer) in [(100, 50), (200, 300)] {
            assert!(rounds.begin());
            rounds.add("mpsc", || Ok(vec![sample("mpsc", floor)])).unwrap();
            rounds.add("emmer", || Ok(vec![sample("emmer", emmer)])).unwrap();
        }
        assert!(!rounds.begin());
        let compared = rounds.compared(["mpsc", "inline"]);
        let times = compared.times(("call", 2, "emmer"), "mpsc", Sample::cpu_each).unwrap();
        assert_eq!((times.median, times.least, times.most), (1.0, 0.5, 1.5));
        assert_eq!(compared.times(("call", 2, "emmer"), "inline", Sample::cpu_each), None);
        let report = compared.report("x", "X");
        assert_eq!(report.rows.len(), 2);
        assert_eq!(report.rows[1][3].text(), "175");
        assert!(compared.goal_cpu("call", 2, "emmer", 175.0).is_met());
        assert!(!compared.goal_times("call", 2, "emmer", "mpsc", 0.9).is_met());
    }
}
