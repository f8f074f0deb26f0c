//! The table of a mutation run, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::list::{self, Kind, Survivor};
use super::results::{Finding, Results};
use super::{About, Mutant};

/// Results of a run.
pub(crate) struct Report<'a> {
    rows: Vec<Row<'a>>,
    stale: &'a [String],
    /// Explanations of mutants that were found all the same.
    idle: Vec<String>,
}

struct Row<'a> {
    mutant: &'a Mutant,
    finding: Option<&'a Finding>,
    survivor: Option<&'a Survivor>,
}

/// Number of mutants with each result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    swarm: usize,
    tests: usize,
    explained: usize,
    unexplained: usize,
    gaps: usize,
    not_compiled: usize,
    open: usize,
}

impl Counts {
    const fn hunted(self) -> usize {
        self.swarm + self.tests + self.explained + self.unexplained
    }

    fn percent(self, of: usize) -> f64 {
        let hunted = u32::try_from(self.hunted().max(1)).unwrap_or(u32::MAX);
        f64::from(u32::try_from(of).unwrap_or(u32::MAX)) * 100.0 / f64::from(hunted)
    }

    fn add(&mut self, row: &Row<'_>) {
        match row.finding {
            None => self.open += 1,
            Some(Finding::NotCompiled { .. }) => self.not_compiled += 1,
            Some(Finding::Swarm { .. }) => self.swarm += 1,
            Some(Finding::Tests { .. }) => self.tests += 1,
            Some(Finding::Escaped { .. } | Finding::Survived) => {
                let explained = row.survivor.is_some();
                self.explained += usize::from(explained);
                self.unexplained += usize::from(!explained);
                self.gaps += usize::from(row.survivor.is_some_and(|s| s.kind == Kind::Gap));
            }
        }
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        mutants: &'a [Mutant],
        results: &'a Results,
        survivors: &'a [Survivor],
        stale: &'a [String],
    ) -> Self {
        let row = |mutant: &'a Mutant| Row {
            mutant,
            finding: results.of(mutant),
            survivor: list::explanation(survivors, mutant),
        };
        let rows: Vec<Row<'a>> = mutants.iter().map(row).collect();
        let found = |row: &&Row<'_>| {
            matches!(row.finding, Some(Finding::Swarm { .. } | Finding::Tests { .. }))
        };
        let idle = rows.iter().filter(found).filter(|row| row.survivor.is_some());
        let idle = idle.map(|row| row.mutant.name.clone()).collect();
        Self { rows, stale, idle }
    }

    fn counts(&self, which: impl Fn(&Mutant) -> bool) -> Counts {
        let mut counts = Counts::default();
        self.rows.iter().filter(|row| which(row.mutant)).for_each(|row| counts.add(row));
        counts
    }

    /// Returns true if every mutant applies, and was found or is explained.
    pub(crate) fn passed(&self) -> bool {
        let counts = self.counts(|_| true);
        counts.unexplained == 0 && counts.open == 0 && self.stale.is_empty()
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|row| row.mutant.name.len()).max().unwrap_or(0);
        for row in &self.rows {
            let _ = writeln!(text, "{:<width$}  {}", row.mutant.name, row.text());
        }
        for row in self.rows.iter().filter(|row| row.is_unexplained()) {
            let Mutant { name, file, line, before, after, .. } = row.mutant;
            let _ = writeln!(
                text,
                "\nUNEXPLAINED: {name}\n  {file}:{line}\n  - {}\n  + {}",
                flat(before),
                flat(after)
            );
        }
        for why in self.stale {
            let _ = writeln!(text, "\nDOES NOT APPLY: {why}");
        }
        for name in &self.idle {
            let _ = writeln!(text, "\nfound, although its list explains why it is not: {name}");
        }
        text.push('\n');
        text += &line("safety", self.counts(|m| m.about == About::Safety));
        text += &line("liveness", self.counts(|m| m.about == About::Liveness));
        text += &line("all", self.counts(|_| true));
        text
    }

    pub(crate) fn json(&self) -> String {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let summary = |counts: Counts| {
            json!({
                "hunted": counts.hunted(), "swarm": counts.swarm, "tests": counts.tests,
                "explained": counts.explained, "gaps": counts.gaps, "unexplained": counts.unexplained,
                "not_compiled": counts.not_compiled, "open": counts.open,
                "swarm_percent": counts.percent(counts.swarm),
            })
        };
        let value = json!({
            "mutants": rows,
            "does_not_apply": self.stale,
            "safety": summary(self.counts(|m| m.about == About::Safety)),
            "liveness": summary(self.counts(|m| m.about == About::Liveness)),
            "all": summary(self.counts(|_| true)),
        });
        format!("{value:#}")
    }
}

fn line(name: &str, counts: Counts) -> String {
    format!(
        "{name:<18} {:>4} hunted: swarm {} ({:.0} %), unit tests {} ({:.0} %), explained {}, of \
         which gaps {}, unexplained {}; not compiled {}, not reached {}\n",
        counts.hunted(),
        counts.swarm,
        counts.percent(counts.swarm),
        counts.tests,
        counts.percent(counts.tests),
        counts.explained,
        counts.gaps,
        counts.unexplained,
        counts.not_compiled,
        counts.open
    )
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Row<'_> {
    fn is_unexplained(&self) -> bool {
        self.survivor.is_none()
            && matches!(self.finding, Some(Finding::Survived | Finding::Escaped { .. }))
    }

    fn text(&self) -> String {
        match (self.finding, self.survivor) {
            (None, _) => "not reached".to_owned(),
            (Some(Finding::Swarm { find, cpu_ms }), _) => {
                let secs = std::time::Duration::from_millis(*cpu_ms).as_secs_f64();
                format!("swarm  {:<6} {secs:>5.1} s  {}:{}", find.invariant, find.class, find.seed)
            }
            (Some(Finding::Tests { test }), _) => format!("tests  {test}"),
            (Some(Finding::NotCompiled { why }), _) => format!("does not compile: {}", flat(why)),
            (Some(_), Some(survivor)) => {
                format!("lives  ({}) {}", survivor.kind.word(), flat(&survivor.why))
            }
            (Some(_), None) => "LIVES, without an explanation".to_owned(),
        }
    }

    fn json(&self) -> Value {
        let Mutant { name, file, line, before, after, breaks, .. } = self.mutant;
        json!({
            "name": name, "file": file, "line": line, "before": before, "after": after, "breaks": breaks,
            "result": self.finding.map(Finding::text),
            "explained": self.survivor.map(|s| json!({ "kind": s.kind.word(), "why": flat(&s.why) })),
        })
    }
}

/// The mutants themselves.
pub(crate) fn list(mutants: &[Mutant]) -> String {
    let mut text = String::new();
    for mutant in mutants {
        let Mutant { name, file, line, before, after, .. } = mutant;
        let _ =
            writeln!(text, "{name}  {file}:{line}\n    - {}\n    + {}", flat(before), flat(after));
        let _ = writeln!(text, "    {} Breaks {}.", flat(&mutant.mistake), mutant.breaks);
    }
    text
}
