//! Runs seeds until something is violated or the CPU time is spent: what `cargo xtask mutants` asks
//! of each mutant.
//!
//! `hunt cpu=60` runs all classes of scenarios in turn: the swarm's, and those of `focus.rs`. `hunt
//! class=cut seed=17` runs one seed, with `trace=yes` line by line; `class=cut,votes` takes these
//! classes in turn. `all=yes` continues after a violation, `skip=small:17,large:3` leaves seeds
//! out, and `grains=yes` those without grains. A panic counts as a violation, and so does a seed
//! that does not end. Each finding is one JSON object on a line.
//!
//! `known=J:70/6600` says that the unmutated sources violate J in 70 of 6,600 seeds: then one
//! violation of J says nothing, and only a number that chance does not explain counts.

mod focus;
mod focus_calm;
mod focus_fence;
mod focus_grains;
mod focus_join;
mod focus_return;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use emmer_sim::{Scenario, Swarm, run, run_traced};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// A kind of scenarios.
struct Class {
    name: &'static str,
    scenario: fn(u64) -> Scenario,
    /// One in this many seeds of the class runs.
    every: u64,
    /// True if it is about the directory: hunts among grains run others less often.
    directory: bool,
}

/// Number of rounds after which scenarios that are not about the directory run once, where only
/// scenarios with grains are asked for.
const OTHERS_EVERY: u64 = 4;

fn classes() -> Vec<Class> {
    let mut classes = vec![
        Class {
            name: "small",
            scenario: |seed| swarm(3, 16, 300).scenario(seed),
            every: 3,
            directory: false,
        },
        Class {
            name: "tiny",
            scenario: |seed| swarm(1, 4, 120).scenario(seed),
            every: 3,
            directory: false,
        },
        // Clusters in which no silo probes all others.
        Class {
            name: "large",
            scenario: |seed| swarm(17, 80, 40).scenario(seed),
            every: 40,
            directory: false,
        },
    ];
    let of = |directory| move |(name, scenario)| Class { name, scenario, every: 1, directory };
    let focused = focus::ALL
        .into_iter()
        .chain(focus_fence::ALL)
        .chain(focus_join::ALL)
        .chain(focus_calm::ALL);
    let focused = focused.chain(focus_return::ALL);
    classes.extend(focused.map(of(false)));
    classes.extend(focus_grains::ALL.map(of(true)));
    classes
}

fn swarm(hosts_min: u32, hosts_max: u32, chaos_secs: u64) -> Swarm {
    Swarm { hosts_min, hosts_max, chaos_max: Duration::from_secs(chaos_secs), ..Swarm::default() }
}

/// CPU time after which a seed counts as endless.
const SEED_MAX: Duration = Duration::from_secs(40);

/// Interval at which the guard looks at the clock.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The class and seed that run now, and since when by the CPU clock, for the guard.
static CLASS: AtomicUsize = AtomicUsize::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
static SINCE_MS: AtomicU64 = AtomicU64::new(0);

fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let (secs, nanos) = (u64::try_from(spent.tv_sec), u32::try_from(spent.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Violation of a run of the seed, if any: the invariant and the observation.
fn violated(class: &Class, seed: u64) -> Option<(String, String)> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&(class.scenario)(seed))));
    match outcome {
        Ok(outcome) => outcome.violation.map(|v| (v.invariant.to_owned(), v.to_string())),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Some(("panic".to_owned(), text.chars().take(300).collect()))
        }
    }
}

fn tell(kind: &str, class: &str, seed: u64, invariant: &str, what: &str) {
    let replay = format!("hunt class={class} seed={seed} trace=yes");
    let cpu_ms = millis(cpu());
    let line = json!({
        "kind": kind, "class": class, "seed": seed, "invariant": invariant, "what": what,
        "replay": replay, "cpu_ms": cpu_ms
    });
    println!("{line}");
}

/// Ends the process when one seed never ends.
fn guard(classes: &[&'static str]) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let since = Duration::from_millis(SINCE_MS.load(Ordering::Relaxed));
        if cpu().saturating_sub(since) > SEED_MAX {
            let class = classes[CLASS.load(Ordering::Relaxed)];
            let what = format!("no end after {} s of CPU time", SEED_MAX.as_secs());
            tell("found", class, SEED.load(Ordering::Relaxed), "hang", &what);
            std::process::exit(1);
        }
    }
}

/// Below this probability the number of violations is no longer chance.
const CHANCE_MAX: f64 = 1e-5;

/// The probability of `count` events or more where `expected` are expected (Poisson).
fn chance(count: u64, expected: f64) -> f64 {
    let mut term = (-expected).exp();
    let mut below = 0.0;
    for n in 0..count {
        below += term;
        term *= expected / (n + 1) as f64;
    }
    (1.0 - below).max(0.0)
}

/// Numbers of violations of each invariant, here and where nothing is wrong.
#[derive(Default)]
struct Noise {
    /// Violations for each seed.
    rates: BTreeMap<String, f64>,
    counts: BTreeMap<String, u64>,
}

impl Noise {
    /// Notes a violation within `seeds` seeds; whether it, with those before, is more than noise.
    fn is_signal(&mut self, invariant: &str, seeds: u64) -> bool {
        let Some(rate) = self.rates.get(invariant) else { return true };
        let count = self.counts.entry(invariant.to_owned()).or_default();
        *count += 1;
        chance(*count, rate * seeds as f64) < CHANCE_MAX
    }
}

/// `J:70/6600` as the rate at the upper end of what that says.
fn rate(pair: &str) -> Option<(String, f64)> {
    let (invariant, share) = pair.split_once(':')?;
    let (count, seeds) = share.split_once('/')?;
    let (count, seeds) = (count.parse::<f64>().ok()?, seeds.parse::<f64>().ok()?);
    Some((invariant.to_owned(), (count + count.sqrt() + 1.0) / seeds.max(1.0)))
}

#[derive(Default)]
struct Wanted {
    cpu: Duration,
    class: Option<String>,
    seed: Option<u64>,
    all: bool,
    trace: bool,
    /// Only scenarios with grains.
    grains: bool,
    skip: BTreeSet<(String, u64)>,
    noise: Noise,
}

fn wanted() -> Wanted {
    let mut wanted = Wanted { cpu: Duration::from_secs(60), ..Wanted::default() };
    for arg in std::env::args().skip(1) {
        match arg.split_once('=') {
            Some(("cpu", secs)) => wanted.cpu = Duration::from_secs(secs.parse().unwrap_or(60)),
            Some(("class", name)) => wanted.class = Some(name.to_owned()),
            Some(("seed", seed)) => wanted.seed = seed.parse().ok(),
            Some(("trace", yes)) => wanted.trace = yes == "yes",
            Some(("grains", yes)) => wanted.grains = yes == "yes",
            Some(("all", yes)) => wanted.all = yes == "yes",
            Some(("skip", seeds)) => {
                let pairs = seeds.split(',').filter_map(|pair| pair.split_once(':'));
                wanted.skip = pairs
                    .filter_map(|(class, n)| Some((class.to_owned(), n.parse().ok()?)))
                    .collect();
            }
            Some(("known", rates)) => {
                wanted.noise.rates = rates.split(',').filter_map(rate).collect();
            }
            _ => eprintln!("not understood: {arg}"),
        }
    }
    wanted
}

fn main() {
    let mut wanted = wanted();
    std::panic::set_hook(Box::new(|_| {}));
    let classes = classes();
    let names: Vec<&'static str> = classes.iter().map(|class| class.name).collect();
    std::thread::spawn(move || guard(&names));
    let mut seeds = 0u64;
    let mut found = false;
    let first = wanted.seed.unwrap_or(0);
    'seeds: for n in first.. {
        for (at, class) in classes.iter().enumerate() {
            let asked = wanted
                .class
                .as_deref()
                .is_none_or(|names| names.split(',').any(|name| name == class.name));
            let every = if wanted.grains && !class.directory {
                class.every * OTHERS_EVERY
            } else {
                class.every
            };
            if !asked || (wanted.seed.is_none() && n % every != 0) {
                continue;
            }
            if wanted.skip.contains(&(class.name.to_owned(), n)) {
                continue;
            }
            if cpu() >= wanted.cpu {
                break 'seeds;
            }
            if wanted.grains && (class.scenario)(n).grains.is_none() {
                continue;
            }
            CLASS.store(at, Ordering::Relaxed);
            SEED.store(n, Ordering::Relaxed);
            SINCE_MS.store(millis(cpu()), Ordering::Relaxed);
            seeds += 1;
            if wanted.trace {
                let outcome = run_traced(&(class.scenario)(n));
                outcome.lines.iter().for_each(|line| println!("{line}"));
            }
            if let Some((invariant, what)) = violated(class, n) {
                let counts = wanted.noise.is_signal(&invariant, seeds);
                tell(if counts { "found" } else { "noise" }, class.name, n, &invariant, &what);
                found |= counts;
                if counts && !wanted.all {
                    break 'seeds;
                }
            }
        }
        if wanted.seed.is_some() {
            break;
        }
    }
    println!("{}", json!({ "kind": "end", "seeds": seeds, "cpu_ms": millis(cpu()) }));
    std::process::exit(i32::from(found));
}
