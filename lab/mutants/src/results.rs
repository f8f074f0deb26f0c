//! Results of each mutant, kept below `target/mutants/results` under a hash of everything it
//! depends on: an interrupted run continues, and unchanged mutants are not hunted again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::hunt::Find;
use super::tree::{Tree, What};
use super::{Mutant, Options, SMOKE_CPU_SECS};

/// Result of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The swarm found it.
    Swarm { find: Find, cpu_ms: u64 },
    /// The swarm did not find it.
    Escaped { seeds: u64, cpu_ms: u64 },
    /// A unit test found it.
    Tests { test: String },
    /// No unit test found it either.
    Survived,
    /// It is no program.
    NotCompiled { why: String },
}

impl Finding {
    /// One line about it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Swarm { find, cpu_ms } => {
                format!(
                    "found by the swarm: {} with {} after {} CPU ms",
                    find.invariant, find.replay, cpu_ms
                )
            }
            Self::Escaped { seeds, cpu_ms } => {
                format!("not found by the swarm in {seeds} seeds, {cpu_ms} CPU ms")
            }
            Self::Tests { test } => format!("found by the unit test {test}"),
            Self::Survived => "SURVIVED".to_owned(),
            Self::NotCompiled { why } => format!("does not compile: {why}"),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Swarm { find, cpu_ms } => json!({
                "outcome": "swarm", "invariant": find.invariant, "class": find.class, "seed": find.seed,
                "what": find.what, "replay": find.replay, "cpu_ms": cpu_ms
            }),
            Self::Escaped { seeds, cpu_ms } => {
                json!({ "outcome": "escaped", "seeds": seeds, "cpu_ms": cpu_ms })
            }
            Self::Tests { test } => json!({ "outcome": "tests", "test": test }),
            Self::Survived => json!({ "outcome": "survived" }),
            Self::NotCompiled { why } => json!({ "outcome": "not-compiled", "why": why }),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| value[key].as_u64().unwrap_or_default();
        Some(match value["outcome"].as_str()? {
            "swarm" => Self::Swarm {
                find: Find {
                    class: text("class"),
                    seed: number("seed"),
                    invariant: text("invariant"),
                    what: text("what"),
                    replay: text("replay"),
                },
                cpu_ms: number("cpu_ms"),
            },
            "escaped" => Self::Escaped { seeds: number("seeds"), cpu_ms: number("cpu_ms") },
            "tests" => Self::Tests { test: text("test") },
            "survived" => Self::Survived,
            "not-compiled" => Self::NotCompiled { why: text("why") },
            _ => return None,
        })
    }
}

/// Violations that the swarm finds in the unmutated sources: none, one day.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Baseline {
    /// Class and seed of each that fails.
    pub(crate) failing: Vec<String>,
    /// Number of times each invariant was violated.
    pub(crate) violated: BTreeMap<String, u64>,
    pub(crate) seeds: u64,
}

/// Every result of these sources.
pub(crate) struct Results {
    folder: PathBuf,
    hunts: u128,
    tests: u128,
    cpu: u64,
    fresh: bool,
    by_swarm: BTreeMap<String, Finding>,
    by_tests: BTreeMap<String, Finding>,
    sound: BTreeSet<String>,
}

impl Results {
    pub(crate) fn open(tree: &Tree, options: &Options) -> Result<Self, String> {
        let folder = tree.results();
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let cpu = if options.smoke { options.cpu.min(SMOKE_CPU_SECS) } else { options.cpu };
        Ok(Self {
            folder,
            hunts: tree.fingerprint(What::Hunt)?,
            tests: tree.fingerprint(What::Tests)?,
            cpu,
            fresh: options.fresh,
            by_swarm: BTreeMap::new(),
            by_tests: BTreeMap::new(),
            sound: BTreeSet::new(),
        })
    }

    pub(crate) const fn cpu(&self) -> u64 {
        self.cpu
    }

    fn path(&self, kind: &str, sources: u128, mutant: &Mutant) -> PathBuf {
        let mut hash = Xxh3::new();
        for part in [
            mutant.name.as_str(),
            &mutant.file,
            &mutant.before,
            &mutant.after,
            &mutant.at.start.to_string(),
        ] {
            hash.update(part.as_bytes());
            hash.update(&[0]);
        }
        self.folder.join(format!("{kind}-{sources:032x}-{:032x}.json", hash.digest128()))
    }

    fn read(&self, path: &PathBuf) -> Option<Finding> {
        if self.fresh {
            return None;
        }
        Finding::from_json(&serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?)
    }

    /// Returns true if it is known what the swarm says, with at least this run's time.
    pub(crate) fn knows_swarm(&mut self, mutant: &Mutant) -> bool {
        if self.by_swarm.contains_key(&mutant.name) {
            return true;
        }
        let known = self.read(&self.path("swarm", self.hunts, mutant));
        let enough = self.cpu * 1_000;
        let known =
            known.filter(|f| !matches!(f, Finding::Escaped { cpu_ms, .. } if *cpu_ms < enough));
        known.is_some_and(|finding| {
            self.by_swarm.insert(mutant.name.clone(), finding);
            true
        })
    }

    pub(crate) fn knows_tests(&mut self, mutant: &Mutant) -> bool {
        if self.by_tests.contains_key(&mutant.name) {
            return true;
        }
        self.read(&self.path("tests", self.tests, mutant)).is_some_and(|finding| {
            self.by_tests.insert(mutant.name.clone(), finding);
            true
        })
    }

    /// Notes the result of the swarm.
    pub(crate) fn swarm(&mut self, mutant: &Mutant, finding: Finding) -> Result<(), String> {
        write(&self.path("swarm", self.hunts, mutant), &finding.to_json())?;
        self.by_swarm.insert(mutant.name.clone(), finding);
        Ok(())
    }

    /// Notes the result of the unit tests.
    pub(crate) fn tests(&mut self, mutant: &Mutant, finding: Finding) -> Result<(), String> {
        write(&self.path("tests", self.tests, mutant), &finding.to_json())?;
        self.by_tests.insert(mutant.name.clone(), finding);
        Ok(())
    }

    pub(crate) fn survived_swarm(&self, mutant: &Mutant) -> bool {
        matches!(self.by_swarm.get(&mutant.name), Some(Finding::Escaped { .. }))
    }

    /// Final result, of the swarm and of the tests; none before the run came to it.
    pub(crate) fn of(&self, mutant: &Mutant) -> Option<&Finding> {
        let swarm = self.by_swarm.get(&mutant.name)?;
        match swarm {
            Finding::Escaped { .. } => self.by_tests.get(&mutant.name),
            _ => Some(swarm),
        }
    }

    // ---- without any mutant
    // ---------------------------------------------------------------------------------

    fn baseline_path(&self) -> PathBuf {
        self.folder.join(format!("baseline-{:032x}-{}.json", self.hunts, self.cpu))
    }

    /// Violations of the unmutated sources, if they are known.
    pub(crate) fn baseline(&self) -> Option<Baseline> {
        serde_json::from_str(&std::fs::read_to_string(self.baseline_path()).ok()?).ok()
    }

    pub(crate) fn baseline_is(&self, baseline: &Baseline) -> Result<(), String> {
        write(&self.baseline_path(), &json!(baseline))
    }

    pub(crate) fn needs_tests_baseline(&self, krate: &str) -> bool {
        !self.sound.contains(krate)
    }

    pub(crate) fn tests_baseline_passed(&mut self, krate: &str) {
        self.sound.insert(krate.to_owned());
    }
}

fn write(path: &PathBuf, value: &Value) -> Result<(), String> {
    std::fs::write(path, format!("{value}\n")).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_comes_back_from_its_file_as_it_was() {
        let find = Find {
            class: "small".to_owned(),
            seed: 3,
            invariant: "I6".to_owned(),
            what: "w".to_owned(),
            replay: "r".to_owned(),
        };
        for finding in [
            Finding::Swarm { find, cpu_ms: 4 },
            Finding::Escaped { seeds: 1, cpu_ms: 2 },
            Finding::Tests { test: "a::b".to_owned() },
            Finding::Survived,
            Finding::NotCompiled { why: "x".to_owned() },
        ] {
            assert_eq!(Finding::from_json(&finding.to_json()), Some(finding));
        }
        assert_eq!(Finding::from_json(&json!({})), None);
    }
}
