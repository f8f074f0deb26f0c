//! Events, as the grains and the callers themselves tell them, and what must never happen.
//!
//! A world is one thread, so the ledger is a variable of the thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use emmer::tables::SiloAddress;
use emmer::test::{Failure, TestStore};
use emmer_core::rng::SeededRng;
use tokio::time::Instant;

use crate::plan::Plan;

/// Knowledge of a caller about a call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It ran.
    Ran,
    /// It may have run.
    Perhaps,
    /// It has not run.
    NotRun,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the rule.
    pub rule: &'static str,
    /// How.
    pub what: String,
}

/// Number of times of rare events: an event that never happens is not tested.
pub type Sometimes = BTreeMap<&'static str, u64>;

/// Everything that was told.
pub struct Ledger {
    rng: SeededRng,
    /// Probability of each kind of trouble in a grain's own code.
    trouble: f64,
    /// True if nothing in this world breaks connections.
    is_whole: bool,
    /// Returns true if nothing happens in this world but that silos leave in good order.
    is_calm: bool,
    store: Option<TestStore>,
    start: Instant,
    next_call: u64,
    next_activation: u64,
    /// Number of times each call has begun.
    begun: BTreeMap<u64, u32>,
    told: BTreeMap<u64, (Told, &'static str)>,
    /// Activation of a grain that ran last, and its silo.
    running: BTreeMap<u64, (u64, String)>,
    /// The activations that others have followed.
    followed: BTreeSet<u64>,
    /// Life and number of turns that each grain remembered last.
    remembered: BTreeMap<u64, (u64, u64)>,
    /// Lives of grains that others have followed.
    over: BTreeSet<u64>,
    /// The silos that have hosted a grain.
    silos: Vec<SiloAddress>,
    /// Amounts that each grain has stored for certain, and may have stored besides.
    stored: BTreeMap<u64, (u64, u64)>,
    sometimes: Sometimes,
    violation: Option<Violation>,
}

impl Ledger {
    fn new(seed: u64, trouble: f64, is_whole: bool, is_calm: bool) -> Self {
        Self {
            rng: SeededRng::new(seed),
            trouble,
            is_whole,
            is_calm,
            store: None,
            start: Instant::now(),
            next_call: 1,
            next_activation: 1,
            begun: BTreeMap::new(),
            told: BTreeMap::new(),
            running: BTreeMap::new(),
            followed: BTreeSet::new(),
            remembered: BTreeMap::new(),
            over: BTreeSet::new(),
            silos: Vec::new(),
            stored: BTreeMap::new(),
            sometimes: BTreeMap::new(),
            violation: None,
        }
    }

    fn violate(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    fn reach(&mut self, what: &'static str) {
        *self.sometimes.entry(what).or_default() += 1;
    }
}

thread_local! {
    static LEDGER: RefCell<Ledger> = RefCell::new(Ledger::new(0, 0.0, false, false));
}

fn with<T>(write: impl FnOnce(&mut Ledger) -> T) -> T {
    LEDGER.with_borrow_mut(write)
}

/// Begins an empty ledger, within a world.
pub(crate) fn open(plan: &Plan, store: &TestStore) {
    // Where the only silo leaves, no silo answers for a while.
    let is_calm = plan.is_whole() || (plan.is_gentle && plan.silos > 1);
    let ledger = Ledger::new(plan.seed, plan.trouble, plan.is_whole(), is_calm);
    LEDGER.set(Ledger { store: Some(store.clone()), ..ledger });
}

/// From now on the grains' own code makes no trouble, and nothing breaks.
pub(crate) fn calm_down() {
    with(|ledger| (ledger.trouble, ledger.is_whole, ledger.is_calm) = (0.0, true, true));
}

/// Returns true if nothing happens in this world but that silos leave in good order.
pub(crate) fn is_calm() -> bool {
    with(|ledger| ledger.is_calm)
}

/// Returns true if nothing in this world breaks connections.
pub(crate) fn is_whole() -> bool {
    with(|ledger| ledger.is_whole)
}

/// The next write of a grain's state is refused.
pub(crate) fn refuse_next_write(grain: u64) {
    with(|ledger| {
        if let Some(store) = &ledger.store {
            store.fail_next_write(&format!("u.{grain}/"), Failure::Refused);
        }
    });
}

/// Milliseconds since the world began.
pub(crate) fn now_ms() -> u64 {
    let elapsed = with(|ledger| ledger.start.elapsed());
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// The first rule that was broken.
pub fn violation() -> Option<Violation> {
    with(|ledger| ledger.violation.clone())
}

/// A rule was broken.
pub(crate) fn violate(rule: &'static str, what: String) {
    // A panic may come while the ledger is being written.
    LEDGER.with(|ledger| {
        if let Ok(mut ledger) = ledger.try_borrow_mut() {
            ledger.violate(rule, what);
        }
    });
}

/// Something rare happened.
pub(crate) fn reach(what: &'static str) {
    with(|ledger| ledger.reach(what));
}

/// Number of times rare things happened.
pub(crate) fn sometimes() -> Sometimes {
    with(|ledger| ledger.sometimes.clone())
}

/// Number of calls that have begun to run.
pub(crate) fn begun() -> u64 {
    with(|ledger| ledger.begun.values().map(|times| u64::from(*times)).sum())
}

/// A choice: a number below `bound`.
pub(crate) fn below(bound: u64) -> u64 {
    with(|ledger| ledger.rng.below(bound))
}

/// A choice: yes with this probability.
pub(crate) fn chance(probability: f64) -> bool {
    with(|ledger| ledger.rng.chance(probability))
}

/// Returns true if a grain's own code makes trouble here.
pub(crate) fn trouble(what: &'static str) -> bool {
    with(|ledger| {
        let trouble = ledger.trouble;
        let happens = trouble > 0.0 && ledger.rng.chance(trouble);
        if happens {
            ledger.reach(what);
        }
        happens
    })
}

/// The number of a new call.
pub(crate) fn new_call() -> u64 {
    with(|ledger| {
        ledger.next_call += 1;
        ledger.next_call
    })
}

/// The number of a new activation.
pub(crate) fn new_activation() -> u64 {
    with(|ledger| {
        ledger.next_activation += 1;
        ledger.next_activation
    })
}

/// A call begins to run.
pub(crate) fn begins(call: u64) {
    with(|ledger| {
        let times = ledger.begun.entry(call).or_default();
        *times += 1;
        if *times > 1 {
            let times = *times;
            ledger.violate("R2", format!("call {call} has run {times} times"));
        }
        if matches!(ledger.told.get(&call), Some((Told::NotRun, _))) {
            ledger.violate(
                "R3",
                format!("call {call} runs, and its caller was told that it has not"),
            );
        }
    });
}

/// Returns true if a call has begun to run.
pub(crate) fn has_begun(call: u64) -> bool {
    with(|ledger| ledger.begun.contains_key(&call))
}

/// A call has ended for its caller, who knows this.
pub(crate) fn ends(call: u64, told: Told, why: &'static str) {
    with(|ledger| {
        let begun = ledger.begun.get(&call).copied().unwrap_or(0);
        match told {
            Told::NotRun if begun > 0 => {
                ledger.violate(
                    "R3",
                    format!("call {call} has run, and its caller was told that it has not: {why}"),
                );
            }
            Told::Ran if begun == 0 => {
                ledger.violate(
                    "R3",
                    format!("call {call} has not run, and its caller was told that it has: {why}"),
                );
            }
            _ => {}
        }
        ledger.told.insert(call, (told, why));
    });
}

/// Outcome that the caller of a call knows.
pub(crate) fn told_why(call: u64) -> &'static str {
    with(|ledger| ledger.told.get(&call).map_or("nothing", |(_, why)| why))
}

/// A turn of an activation is polled.
pub(crate) fn polled(grain: u64, activation: u64, silo: &str) {
    with(|ledger| {
        match ledger.running.get(&grain) {
            Some((last, _)) if *last == activation => return,
            Some((last, there)) => {
                let (last, there) = (*last, there.clone());
                if ledger.followed.contains(&activation) {
                    let what = format!(
                        "grain {grain}: activation {activation} on {silo} runs after {last} on \
                         {there} has run"
                    );
                    ledger.violate("R1", what);
                }
                ledger.followed.insert(last);
                ledger.reach(if there == silo {
                    "a grain active again"
                } else {
                    "a grain active elsewhere"
                });
            }
            None => {}
        }
        ledger.running.insert(grain, (activation, silo.to_owned()));
    });
}

/// A silo hosts a grain.
pub(crate) fn note_silo(silo: SiloAddress) {
    with(|ledger| {
        if !ledger.silos.contains(&silo) {
            ledger.silos.push(silo);
        }
    });
}

/// One of the silos that have hosted a grain, dead or not.
pub(crate) fn a_silo() -> Option<SiloAddress> {
    with(|ledger| {
        let newest = ledger.silos.len().min(8);
        let skipped = ledger.silos.len() - newest;
        (newest > 0).then(|| ledger.silos[skipped + ledger.rng.index(newest)])
    })
}

/// An exclusive turn of a grain finds this memory: the life in which it grew, and the number of its
/// turns, this one included.
pub(crate) fn remembers(grain: u64, life: u64, turns: u64) {
    with(|ledger| {
        let last = ledger.remembered.insert(grain, (life, turns));
        match last {
            Some((before, count)) if before == life => {
                if count + 1 != turns {
                    let what = format!(
                        "grain {grain} remembers {} turns of life {life}, and {count} have run",
                        turns - 1
                    );
                    ledger.violate("R18", what);
                }
            }
            last => {
                if let Some((before, _)) = last {
                    ledger.over.insert(before);
                }
                if ledger.over.contains(&life) || turns != 1 {
                    let what = format!(
                        "grain {grain} remembers {turns} turns of life {life} after {last:?}"
                    );
                    ledger.violate("R18", what);
                }
            }
        }
    });
}

/// A grain has stored so much more, or may have.
pub(crate) fn stored(grain: u64, added: u64, certain: bool) {
    with(|ledger| {
        let (sure, perhaps) = ledger.stored.entry(grain).or_default();
        *(if certain { sure } else { perhaps }) += added;
    });
}

/// Amounts that a grain has stored for certain, and at most.
pub(crate) fn expected_of(grain: u64) -> (u64, u64) {
    with(|ledger| ledger.stored.get(&grain).map_or((0, 0), |(sure, more)| (*sure, sure + more)))
}

/// Amounts that each grain has stored for certain, and at most.
pub(crate) fn expected() -> BTreeMap<u64, (u64, u64)> {
    with(|ledger| {
        ledger.stored.iter().map(|(grain, (sure, more))| (*grain, (*sure, sure + more))).collect()
    })
}
