//! The waits of a successor before its predecessor on the same `ip:port` is written Dead
//! (invariants I4 and I8).
//!
//! A join declares earlier incarnations dead without patience. An incarnation that still runs must
//! not start turns for longer than its fence allows, so the writer of the join first makes sure
//! that no silo confirms it:
//!
//! * it tells the predecessor, which closes its fence, says so and ends: nothing more is needed; or
//! * it asks every monitor of the predecessor to confirm it no longer. One whose host says that its
//!   process is gone counts as asked.
//!
//! From then on only the table can confirm the predecessor, and the table shows the death. Beyond
//! that the process itself has to be gone: its host refuses the connection or answers as another
//! incarnation, or the successor is this silo and listens there. Without such evidence the writer
//! waits out one fence more.
//!
//! Where there is no fence the join is written at once, as the original has it.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloEntry, SiloStatus};

use super::queue::Queue;
use crate::api::DialOutcome;
use crate::dials::Purpose;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::Key;
use crate::message::Message;
use crate::out::Out;
use crate::timers::Timer;

/// The most predecessors a writer looks after at a time; further joins wait for their turn.
const EVICTIONS_MAX: usize = 256;

/// Time after it was asked for, for which a commit that is sent may rely on a monitor's word.
const WORD_LASTS: Duration = Duration::from_secs(2);

/// Time between the first, quick tries.
const TRY_EVERY: Duration = Duration::from_millis(25);

/// Number of quick tries.
const QUICK_TRIES: u32 = 10;

/// Time between the later tries.
const TRY_LATER_EVERY: Duration = Duration::from_millis(250);

/// Time for which a dial that found a process gone counts.
const GONE_LASTS: Duration = Duration::from_secs(10);

/// The most dials in flight.
const DIALS_MAX: usize = 128;

/// The predecessors that this writer watches, and its knowledge of them and their monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Evictions {
    by_silo: BTreeMap<SiloAddress, Eviction>,
    /// Whose host said that the process is gone, and when.
    gone: BTreeMap<SiloAddress, Instant>,
}

/// One predecessor that may still run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Eviction {
    by: SiloAddress,
    tries: u32,
    next_at: Instant,
    /// The version of the view whose monitors these are.
    version: u64,
    /// The monitors, each with the time of the question to which it last gave its word.
    monitors: BTreeMap<SiloAddress, Option<Instant>>,
    /// Time since when no monitor confirms.
    silent_since: Option<Instant>,
    /// It said that it has ended.
    yielded: bool,
}

impl Eviction {
    fn new(by: SiloAddress, now: Instant) -> Self {
        Self {
            by,
            tries: 0,
            next_at: now,
            version: 0,
            monitors: BTreeMap::new(),
            silent_since: None,
            yielded: false,
        }
    }

    fn has_given_word(&self, now: Instant, monitor: &SiloAddress) -> bool {
        let word = self.monitors.get(monitor).copied().flatten();
        word.is_some_and(|at| now.saturating_since(at) <= WORD_LASTS)
    }
}

impl Evictions {
    /// Returns true if the host of `silo` said lately that its process is gone.
    pub(super) fn knows_gone(&self, silo: &SiloAddress) -> bool {
        self.gone.contains_key(silo)
    }

    /// Before a commit is drafted: does the due work for each predecessor of a joining silo.
    pub(super) fn press(&mut self, facts: &Facts, out: &mut Out, queue: &Queue) {
        let view = facts.view();
        let mut wanted: BTreeMap<SiloAddress, SiloAddress> = BTreeMap::new();
        for key in queue.keys() {
            let Key::Join(by) = key else { continue };
            if view.get(by).is_some() || view.successor_of(by).is_some() {
                continue;
            }
            for old in view.incarnations_of(by) {
                if needs_eviction(facts, &old.address, old.status) {
                    let latest = wanted.entry(old.address).or_insert(*by);
                    *latest = (*latest).max(*by);
                }
            }
        }
        let now = facts.now().mono;
        self.by_silo.retain(|old, _| wanted.contains_key(old));
        self.gone.retain(|_, at| now.saturating_since(*at) < GONE_LASTS);
        for (old, by) in wanted {
            if self.by_silo.contains_key(&old) || self.by_silo.len() < EVICTIONS_MAX {
                self.press_one(facts, out, old, by);
            }
        }
        if let Some(next) = self.by_silo.values().map(|eviction| eviction.next_at).min() {
            out.timers().set_no_later(Timer::Flush, next);
        }
    }

    fn press_one(&mut self, facts: &Facts, out: &mut Out, old: SiloAddress, by: SiloAddress) {
        let (me, now, version) = (facts.me(), facts.now().mono, facts.view().version());
        let mut eviction = self.by_silo.remove(&old).unwrap_or_else(|| Eviction::new(by, now));
        eviction.by = by;
        if eviction.version != version {
            let words = std::mem::take(&mut eviction.monitors);
            let word = |monitor: &SiloAddress| words.get(monitor).copied().flatten();
            eviction.monitors =
                facts.monitors_of(&old).into_iter().map(|m| (m, word(&m))).collect();
            eviction.version = version;
        }
        if now >= eviction.next_at {
            self.try_eviction(facts, out, old, &mut eviction);
        }
        if eviction.monitors.contains_key(&me) {
            hold_word(facts, out, old);
            eviction.monitors.insert(me, Some(now));
        }
        let silent = eviction.monitors.keys().all(|m| self.is_silent(now, &eviction, m));
        eviction.silent_since = silent.then(|| eviction.silent_since.unwrap_or(now));
        self.by_silo.insert(old, eviction);
    }

    /// Tells the predecessor, asks monitors whose word is missing or getting old, and dials those
    /// that have not answered.
    fn try_eviction(
        &self,
        facts: &Facts,
        out: &mut Out,
        old: SiloAddress,
        eviction: &mut Eviction,
    ) {
        let (me, now, by) = (facts.me(), facts.now().mono, eviction.by);
        if !eviction.yielded {
            out.send(old, Message::Superseded { by });
            self.dial(facts, out, old);
        }
        let stamp = now.as_nanos();
        for (monitor, word) in &eviction.monitors {
            let fresh = word.is_some_and(|at| now.saturating_since(at) < WORD_LASTS / 2);
            if fresh || *monitor == me || self.gone.contains_key(monitor) {
                continue;
            }
            out.send(*monitor, Message::Hush { target: old, by, stamp });
            if eviction.tries > 0 {
                self.dial(facts, out, *monitor);
            }
        }
        eviction.tries = eviction.tries.saturating_add(1);
        let pause = if eviction.tries < QUICK_TRIES { TRY_EVERY } else { TRY_LATER_EVERY };
        eviction.next_at = now + pause;
        if eviction.tries >= QUICK_TRIES {
            // In the end the row of a process that is gone is stale.
            out.tell(Inner::ReadRows);
        }
    }

    fn dial(&self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        let known = self.gone.contains_key(&silo)
            || out.dials().is_under_way(Purpose::Eviction, &silo)
            || silo.same_endpoint(&facts.me());
        if known || out.dials().count(Purpose::Eviction) >= DIALS_MAX {
            return;
        }
        out.dial(silo, Purpose::Eviction, facts.config().hint_dial_timeout.max(TRY_EVERY));
    }

    /// A dial of an eviction's ended.
    pub(super) fn on_dialled(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        silo: SiloAddress,
        outcome: DialOutcome,
    ) {
        let gone = match outcome {
            DialOutcome::Refused | DialOutcome::Vacant => true,
            DialOutcome::OtherEpoch(other) => silo.is_succeeded_by(&other),
            DialOutcome::Answered | DialOutcome::NoAnswer => false,
        };
        if gone {
            out.count().dials_refused += 1;
            self.gone.insert(silo, facts.now().mono);
            self.look(facts, out);
        }
    }

    /// A monitor says that it confirms `target` no longer, since it was asked at `stamp`.
    pub(super) fn on_hushed(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        target: SiloAddress,
        stamp: u64,
    ) {
        let asked = Instant::from_nanos(stamp);
        if asked > facts.now().mono {
            return;
        }
        if let Some(eviction) = self.by_silo.get_mut(&target)
            && let Some(word) = eviction.monitors.get_mut(&from)
        {
            *word = (*word).max(Some(asked));
            self.look(facts, out);
        }
    }

    /// A predecessor says that it has ended.
    pub(super) fn on_yielded(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress) {
        if let Some(eviction) = self.by_silo.get_mut(&from) {
            eviction.yielded = true;
            self.look(facts, out);
        }
    }

    /// Something was learnt: drafts a commit soon if a join need not wait longer.
    fn look(&self, facts: &Facts, out: &mut Out) {
        let ready = self.by_silo.keys().any(|old| self.may_supersede(facts, old));
        if ready {
            out.timers().set_no_later(Timer::Flush, facts.now().mono);
        }
    }

    fn is_silent(&self, now: Instant, eviction: &Eviction, monitor: &SiloAddress) -> bool {
        eviction.has_given_word(now, monitor) || self.gone.contains_key(monitor)
    }

    /// Returns true if a commit may declare `old` dead because its successor joins.
    pub(super) fn may_supersede(&self, facts: &Facts, old: &SiloAddress) -> bool {
        let (now, view) = (facts.now().mono, facts.view());
        let Some(status) = view.get(old).map(|row| row.status) else { return true };
        if !needs_eviction(facts, old, status) {
            return true;
        }
        let Some(eviction) = self.by_silo.get(old) else { return false };
        if eviction.yielded {
            return true;
        }
        if eviction.version != view.version() {
            return false;
        }
        let mut monitors = eviction.monitors.keys();
        if facts.is_stale(old) {
            // A silo that cannot touch its row needs the confirmation of all of its monitors: one
            // word prevents it.
            let lost = |m: &SiloAddress| facts.is_stale(m) || self.gone.contains_key(m);
            return monitors.clone().any(|m| eviction.has_given_word(now, m)) || monitors.all(lost);
        }
        if !monitors.clone().all(|m| self.is_silent(now, eviction, m)) {
            return false;
        }
        let port_is_lost = self.gone.contains_key(old) || old.same_endpoint(&facts.me());
        // The word of living monitors is worth more than what a host says about ports.
        let all_gave_word =
            !eviction.monitors.is_empty() && monitors.all(|m| eviction.has_given_word(now, m));
        let waited = eviction.silent_since.map(|since| now.saturating_since(since));
        let fence_over = waited.is_some_and(|waited| waited >= facts.config().fence_timeout);
        (port_is_lost && (all_gave_word || eviction.tries >= QUICK_TRIES))
            || (all_gave_word && fence_over)
    }

    /// Returns true if `old`, the predecessor of `new` on its `ip:port`, has certainly ended: it
    /// said so, or the two run on one host, whose kernel gives a port to one process at a time.
    /// Host names tell hosts apart.
    pub(super) fn is_known_gone(&self, new: &SiloEntry, old: &SiloEntry) -> bool {
        let yielded = self.by_silo.get(&old.address).is_some_and(|eviction| eviction.yielded);
        yielded || (!new.host_name.is_empty() && new.host_name == old.host_name)
    }
}

/// Returns true if `old` may be hosting turns, so that its death by succession needs preparation.
fn needs_eviction(facts: &Facts, old: &SiloAddress, status: SiloStatus) -> bool {
    matches!(status, SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping)
        && facts.has_fence()
        && *old != facts.me()
}

/// The writer of the join of `by` asks this silo to stop confirming `target`.
pub(crate) fn on_hush(
    facts: &Facts,
    out: &mut Out,
    from: SiloAddress,
    target: SiloAddress,
    by: SiloAddress,
    stamp: u64,
) {
    if target.is_succeeded_by(&by) && facts.view().status_of(&target).is_some() {
        hold_word(facts, out, target);
        out.send(from, Message::Hushed { target, stamp });
    }
}

/// Gives `target` no stamps back until a read of the table shows what became of a commit sent while
/// this word was good.
fn hold_word(facts: &Facts, out: &mut Out, silo: SiloAddress) {
    let until = facts.now().mono + WORD_LASTS + facts.config().table_timeout;
    out.tell(Inner::Doubt { silo, until });
}
