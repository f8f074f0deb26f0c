//! `cargo xtask mutants`: small bugs put into the protocol's sources or the runtime's, and whether
//! the simulator, the swarm or a unit test finds them.
//!
//! Nothing is edited in the real tree. A copy below `target/mutants` is compiled once with every
//! mutant in it (`weave.rs`); a number in the environment chooses one. The simulator's swarm hunts
//! each for a minute of CPU time. Survivors go through the unit tests of their crate. A mutant that
//! nothing finds has to be explained in the list. `cargo-mutants` makes mechanical mutants, in the
//! nightly tier.

mod ground;
mod hunt;
mod list;
mod report;
mod results;
mod sites;
mod tree;
mod weave;
mod workspace;

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use serde::Deserialize;

use self::ground::Ground;
use self::hunt::{Find, Hunt};
use self::results::{Baseline, Finding, Results};
use self::tree::{Program, Tree, What};

/// CPU seconds for each mutant of the smoke set.
const SMOKE_CPU_SECS: u64 = 15;

/// Put small bugs into the protocol's sources (in a copy) and see whether the simulator or a unit
/// test finds each
///
/// A survivor without an explanation is a failure: see docs/proof.md. Exit codes: 0 every mutant
/// was found or is explained; 1 one was not; 2 the command line is wrong; 3 nothing could be run.
#[derive(Clone, Debug, Parser, PartialEq, Eq)]
#[command(name = "cargo xtask mutants", bin_name = "cargo xtask mutants")]
struct Options {
    /// Mutants of the runtime, hunted by its swarm, instead of the protocol's
    #[arg(long)]
    runtime: bool,
    /// Mutants of the reminders, found by the worlds of their tests
    #[arg(long, conflicts_with = "runtime")]
    reminders: bool,
    /// Mutants of streams, found by the worlds of their tests
    #[arg(long, conflicts_with_all = ["runtime", "reminders"])]
    streams: bool,
    /// Mutants of connections, found by the world of their tests
    #[arg(long, conflicts_with_all = ["runtime", "reminders", "streams"])]
    link: bool,
    /// Mutants whose name begins so (may be given more than once)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// All but those (may be given more than once)
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// The small set of `cargo xtask nightly`, 15 CPU seconds for each
    #[arg(long)]
    smoke: bool,
    /// CPU seconds of the swarm for each mutant; by default what the project promises
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    cpu: u64,
    /// Number of mutants that the swarm hunts at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    jobs: usize,
    /// Only say which mutants there are
    #[arg(long)]
    list: bool,
    /// Compile, and look whether the unmutated sources pass, but hunt nothing
    #[arg(long = "build")]
    build_only: bool,
    /// Hunt again, although a result is known
    #[arg(long)]
    fresh: bool,
    /// Format of the output
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Options {
    const fn ground(&self) -> Ground {
        match self {
            Self { runtime: true, .. } => Ground::Runtime,
            Self { reminders: true, .. } => Ground::Reminders,
            Self { streams: true, .. } => Ground::Streams,
            Self { link: true, .. } => Ground::Link,
            _ => Ground::Protocol,
        }
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::from(3)
        }
    }
}

/// Subject of a mutant.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum About {
    /// Something happens that never may.
    Safety,
    /// Something does not happen that must, or not in time.
    Liveness,
}

/// One small edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// Relative to the root.
    pub(crate) file: String,
    /// Where in the file, in bytes.
    pub(crate) at: Range<usize>,
    pub(crate) line: usize,
    pub(crate) before: String,
    pub(crate) after: String,
    pub(crate) smoke: bool,
    /// Kind of the promise, the promise that it breaks, and the mistaken thought behind it.
    pub(crate) about: About,
    pub(crate) breaks: String,
    pub(crate) mistake: String,
}

impl Mutant {
    /// A mutant about which nothing is said yet.
    pub(crate) fn new(
        name: String,
        file: &str,
        at: Range<usize>,
        text: &str,
        after: String,
    ) -> Self {
        Self {
            name,
            file: file.to_owned(),
            line: text[..at.start].matches('\n').count() + 1,
            before: text[at.clone()].to_owned(),
            after,
            at,
            smoke: false,
            about: About::Safety,
            breaks: String::new(),
            mistake: String::new(),
        }
    }
}

/// Runs what `options` ask for; whether every mutant was found or is explained.
fn run(options: &Options) -> Result<bool, String> {
    let root = workspace::root()?;
    let list::List { mutants, stale, survivors } = list::read(&root, options.ground())?;
    let (mutants, stale) = wanted(&root, options, mutants, stale)?;
    for why in &stale {
        eprintln!("DOES NOT APPLY: {why}");
    }
    let outdated = list::outdated(&survivors, &mutants);
    for name in &outdated {
        eprintln!("DOES NOT EXPLAIN: what is said of {name} was said of another edit");
    }
    if options.list {
        print!("{}", report::list(&mutants));
        return Ok(stale.is_empty() && outdated.is_empty());
    }
    let tree = Tree::new(&root, options.ground());
    let numbered: Vec<(u32, &Mutant)> = (1..).zip(&mutants).collect();
    let mut results = Results::open(&tree, options)?;
    compile_and_hunt(&tree, options, &numbered, &mut results)?;
    let report = report::Report::new(&mutants, &results, &survivors, &stale);
    println!("{}", if options.format == Format::Json { report.json() } else { report.text() });
    Ok(options.build_only || report.passed())
}

/// The wanted mutants, and the mistakes in the lists.
fn wanted(
    root: &Path,
    options: &Options,
    mut mutants: Vec<Mutant>,
    mut stale: Vec<String>,
) -> Result<(Vec<Mutant>, Vec<String>), String> {
    let begins = |mutant: &Mutant, names: &[String]| {
        names.iter().any(|n| mutant.name.starts_with(n.as_str()))
    };
    let asked = |mutant: &Mutant| {
        (options.only.is_empty() || begins(mutant, &options.only))
            && !begins(mutant, &options.skip)
            && (!options.smoke || mutant.smoke)
    };
    mutants.retain(asked);
    for mutant in &mutants {
        let path = root.join(&mutant.file);
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let functions = sites::functions(&text).map_err(|e| format!("{}: {e}", mutant.file))?;
        if let Some(why) = weave::obstacle(mutant, &functions) {
            stale.push(format!("{}: {why}", mutant.name));
        }
    }
    mutants
        .retain(|mutant| !stale.iter().any(|why| why.starts_with(&format!("{}: ", mutant.name))));
    // The most important comes first: a run may be ended.
    mutants.sort_by_key(|mutant| mutant.about != About::Safety);
    Ok((mutants, stale))
}

/// Two passes: the swarm for all, where there is one; then the unit tests for its survivors.
fn compile_and_hunt(
    tree: &Tree,
    options: &Options,
    mutants: &[(u32, &Mutant)],
    results: &mut Results,
) -> Result<(), String> {
    if options.ground().hunter().is_none() {
        for (_, mutant) in mutants {
            results.swarm(mutant, Finding::Escaped { seeds: 0, cpu_ms: 0 })?;
        }
    }
    let open: Vec<(u32, &Mutant)> =
        mutants.iter().filter(|(_, m)| !results.knows_swarm(m)).copied().collect();
    if !open.is_empty() {
        eprintln!("compiling {} mutants, {} of them to be hunted", mutants.len(), open.len());
        let built = tree.compile(mutants, What::Hunt)?;
        let program = built
            .programs
            .iter()
            .find(|p| p.name == "hunt")
            .ok_or("cargo built no `hunt`")?
            .clone();
        for (number, mutant) in &open {
            if let Some(why) = built.rejected.get(number) {
                results.swarm(mutant, Finding::NotCompiled { why: why.clone() })?;
            }
        }
        let swarm = Swarm::new(program, results)?;
        let hunted = open.iter().filter(|(number, _)| !built.rejected.contains_key(number));
        let hunted: Vec<_> = hunted.filter(|_| !options.build_only).copied().collect();
        swarm.hunt_all(options.jobs, &hunted, |mutant, finding| {
            eprintln!("{}: {}", mutant.name, finding.text());
            results.swarm(mutant, finding)
        })?;
    }
    let left: Vec<(u32, &Mutant)> = mutants
        .iter()
        .filter(|(_, m)| results.survived_swarm(m) && !results.knows_tests(m))
        .copied()
        .collect();
    if left.is_empty() || options.build_only {
        return Ok(());
    }
    eprintln!("compiling the unit tests, for {} mutants", left.len());
    let built = tree.compile(mutants, What::Tests)?;
    for (number, mutant) in left {
        let krate = mutant.file.split("/src/").next().unwrap_or_default();
        let programs: Vec<&Program> =
            built.programs.iter().filter(|p| p.folder.ends_with(krate)).collect();
        if results.needs_tests_baseline(krate) {
            if let Some(test) = hunt::tests(&programs, 0)? {
                return Err(format!("{krate}: {test} fails without any mutant"));
            }
            results.tests_baseline_passed(krate);
        }
        let finding = match (built.rejected.get(&number), hunt::tests(&programs, number)?) {
            (Some(why), _) => Finding::NotCompiled { why: why.clone() },
            (None, Some(test)) => Finding::Tests { test },
            (None, None) => Finding::Survived,
        };
        eprintln!("{}: {}", mutant.name, finding.text());
        results.tests(mutant, finding)?;
    }
    Ok(())
}

/// The swarm, and its findings without any mutant.
struct Swarm {
    program: Program,
    baseline: Mutex<Baseline>,
    cpu: u64,
}

impl Swarm {
    /// Lets the swarm run over the unmutated sources for as long as over a mutant, unless that is
    /// known.
    fn new(program: Program, results: &Results) -> Result<Self, String> {
        let cpu = results.cpu();
        if let Some(baseline) = results.baseline() {
            return Ok(Self { program, baseline: Mutex::new(baseline), cpu });
        }
        let arguments = vec![format!("cpu={cpu}"), "all=yes".to_owned()];
        let hunt = hunt::swarm(&program.path, 0, cpu, &arguments)?;
        let mut baseline = Baseline { seeds: hunt.seeds, ..Baseline::default() };
        for find in &hunt.found {
            eprintln!("WITHOUT A MUTANT: {} fails: {}", find.replay, find.what);
            baseline.failing.push(format!("{}:{}", find.class, find.seed));
            *baseline.violated.entry(find.invariant.clone()).or_default() += 1;
        }
        eprintln!("the unmutated sources: {} seeds in {} CPU ms", hunt.seeds, hunt.cpu_ms);
        results.baseline_is(&baseline)?;
        Ok(Self { program, baseline: Mutex::new(baseline), cpu })
    }

    /// Hunts mutants, `jobs` at a time, and reports each result as soon as it is known.
    fn hunt_all(
        &self,
        jobs: usize,
        mutants: &[(u32, &Mutant)],
        mut told: impl FnMut(&Mutant, Finding) -> Result<(), String>,
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let (tell, findings) = mpsc::sync_channel(jobs);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                let (tell, next) = (tell.clone(), &next);
                scope.spawn(move || {
                    while let Some((number, mutant)) =
                        mutants.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        // The receiver is gone after a failure.
                        if tell.send((*mutant, self.hunt(*number, mutant))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(tell);
            for (mutant, finding) in findings {
                told(mutant, finding?)?;
            }
            Ok(())
        })
    }

    fn baseline(&self) -> MutexGuard<'_, Baseline> {
        self.baseline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hunts one mutant. A seed that fails without it as well is left out from then on.
    fn hunt(&self, number: u32, mutant: &Mutant) -> Result<Finding, String> {
        loop {
            let mut arguments = vec![format!("cpu={}", self.cpu)];
            {
                let baseline = self.baseline();
                let known: Vec<String> = (baseline.violated.iter())
                    .map(|(invariant, count)| format!("{invariant}:{count}/{}", baseline.seeds))
                    .collect();
                arguments.push(format!("skip={}", baseline.failing.join(",")));
                arguments.push(format!("known={}", known.join(",")));
            }
            if mutant.file.starts_with("crates/directory/") {
                // Without grains the directory has nothing to do.
                arguments.push("grains=yes".to_owned());
            }
            let Hunt { found, seeds, cpu_ms } =
                hunt::swarm(&self.program.path, number, self.cpu, &arguments)?;
            let Some(find) = found.into_iter().next() else {
                return Ok(Finding::Escaped { seeds, cpu_ms });
            };
            if !find.class.is_empty() && self.fails_anyway(&find)? {
                eprintln!("WITHOUT A MUTANT: {} fails as well", find.replay);
                self.baseline().failing.push(format!("{}:{}", find.class, find.seed));
                continue;
            }
            return Ok(Finding::Swarm { find, cpu_ms });
        }
    }

    fn fails_anyway(&self, find: &Find) -> Result<bool, String> {
        let one = [format!("class={}", find.class), format!("seed={}", find.seed)];
        Ok(!hunt::swarm(&self.program.path, 0, self.cpu, &one)?.found.is_empty())
    }
}
