//! What a successor has to wait for before its predecessor on the same `ip:port` is written Dead
//! (invariants I4 and I8).
//!
//! A join declares earlier incarnations dead without anybody's patience. One that still runs must
//! not start turns for longer than its fence allows, so the writer of the join first makes sure
//! that nobody confirms it any more:
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

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{DialOutcome, TerminateReason};
use crate::dials::Purpose;
use crate::intent::Key;
use crate::membership::Membership;
use crate::message::Message;
use crate::timers::Timer;

/// The most predecessors a writer looks after at a time; further joins wait for their turn.
const EVICTIONS_MAX: usize = 256;

/// How long after it was asked for a monitor's word may be relied on by a commit that is sent.
const WORD_LASTS: Duration = Duration::from_secs(2);

/// The first tries follow each other after this time, ...
const TRY_EVERY: Duration = Duration::from_millis(25);

/// ... so many of them, ...
const QUICK_TRIES: u32 = 10;

/// ... and the later ones after this.
const TRY_LATER_EVERY: Duration = Duration::from_millis(250);

/// How long a dial that found a process gone counts.
const GONE_LASTS: Duration = Duration::from_secs(10);

/// The most dials in flight.
const DIALS_MAX: usize = 128;

/// The predecessors a writer looks after, and what it found out about them and their monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Evictions {
    by_silo: BTreeMap<SiloAddress, Eviction>,
    /// Whose host said that the process is gone, and when.
    gone: BTreeMap<SiloAddress, Instant>,
}

impl Evictions {
    /// Whether the host of `silo` said lately that its process is gone.
    pub(crate) fn knows_gone(&self, silo: &SiloAddress) -> bool {
        self.gone.contains_key(silo)
    }
}

/// One predecessor that may still run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Eviction {
    by: SiloAddress,
    tries: u32,
    next_at: Instant,
    /// The version of the view whose monitors these are.
    version: u64,
    /// The monitors, each with the moment at which it was asked for the last word it gave.
    monitors: BTreeMap<SiloAddress, Option<Instant>>,
    /// Since when no monitor confirms.
    silent_since: Option<Instant>,
    /// It said that it has ended.
    yielded: bool,
}

impl Membership {
    /// Whether `old` may be hosting turns, so that its death by succession needs preparation.
    fn needs_eviction(&self, old: &SiloAddress, status: SiloStatus) -> bool {
        matches!(status, SiloStatus::Active | SiloStatus::ShuttingDown | SiloStatus::Stopping)
            && !self.facts.config().fence_timeout.is_zero()
            && *old != self.facts.me()
    }

    /// Before a commit is drafted: does what is due for each predecessor of a silo that wants to
    /// join.
    pub(crate) fn press_evictions(&mut self, now: Now) {
        let mut wanted: BTreeMap<SiloAddress, SiloAddress> = BTreeMap::new();
        for key in self.writer.keys() {
            let Key::Join(by) = key else { continue };
            if self.facts.view().get(by).is_some() || self.facts.view().successor_of(by).is_some() {
                continue;
            }
            for old in self.facts.view().incarnations_of(by) {
                if self.needs_eviction(&old.address, old.status) {
                    let latest = wanted.entry(old.address).or_insert(*by);
                    *latest = (*latest).max(*by);
                }
            }
        }
        self.evictions.by_silo.retain(|old, _| wanted.contains_key(old));
        self.evictions.gone.retain(|_, at| now.mono.saturating_since(*at) < GONE_LASTS);
        for (old, by) in wanted {
            if self.evictions.by_silo.contains_key(&old)
                || self.evictions.by_silo.len() < EVICTIONS_MAX
            {
                self.press_one(now, old, by);
            }
        }
        if let Some(next) = self.evictions.by_silo.values().map(|eviction| eviction.next_at).min() {
            self.out.timers().set_no_later(Timer::Flush, next);
        }
    }

    fn press_one(&mut self, now: Now, old: SiloAddress, by: SiloAddress) {
        let me = self.facts.me();
        let version = self.facts.view().version();
        let mut eviction = self.evictions.by_silo.remove(&old).unwrap_or_else(|| Eviction {
            by,
            tries: 0,
            next_at: now.mono,
            version: 0,
            monitors: BTreeMap::new(),
            silent_since: None,
            yielded: false,
        });
        eviction.by = by;
        if eviction.version != version {
            let monitors = self.facts.monitors_of(&old);
            let words = std::mem::take(&mut eviction.monitors);
            eviction.monitors =
                monitors.into_iter().map(|m| (m, words.get(&m).copied().flatten())).collect();
            eviction.version = version;
        }
        if now.mono >= eviction.next_at {
            self.try_eviction(now, old, &mut eviction);
        }
        if eviction.monitors.contains_key(&me) {
            self.hold_word(now, old);
            eviction.monitors.insert(me, Some(now.mono));
        }
        self.note_silence(now, &mut eviction);
        self.evictions.by_silo.insert(old, eviction);
    }

    /// Tells the predecessor, asks those monitors whose word is missing or getting old, and dials
    /// whoever has not answered.
    fn try_eviction(&mut self, now: Now, old: SiloAddress, eviction: &mut Eviction) {
        let by = eviction.by;
        if !eviction.yielded {
            self.out.send(old, Message::Superseded { by });
            self.dial_for_eviction(old);
        }
        let stamp = now.mono.as_nanos();
        for (monitor, word) in &eviction.monitors {
            let fresh = word.is_some_and(|at| now.mono.saturating_since(at) < WORD_LASTS / 2);
            if fresh || *monitor == self.facts.me() || self.evictions.gone.contains_key(monitor) {
                continue;
            }
            self.out.send(*monitor, Message::Hush { target: old, by, stamp });
            if eviction.tries > 0 {
                self.dial_for_eviction(*monitor);
            }
        }
        eviction.tries = eviction.tries.saturating_add(1);
        let pause = if eviction.tries < QUICK_TRIES { TRY_EVERY } else { TRY_LATER_EVERY };
        eviction.next_at = now.mono + pause;
        if eviction.tries >= QUICK_TRIES {
            // In the end the row of a process that is gone is stale.
            self.read_for_staleness(now);
        }
    }

    fn dial_for_eviction(&mut self, silo: SiloAddress) {
        let known = self.evictions.gone.contains_key(&silo)
            || self.out.dials().is_under_way(Purpose::Eviction, &silo)
            || silo.same_endpoint(&self.facts.me());
        if known || self.out.dials().count(Purpose::Eviction) >= DIALS_MAX {
            return;
        }
        self.out.dial(
            silo,
            Purpose::Eviction,
            self.facts.config().hint_dial_timeout.max(TRY_EVERY),
        );
    }

    /// A dial of an eviction's ended.
    pub(crate) fn eviction_dialled(&mut self, now: Now, silo: SiloAddress, outcome: DialOutcome) {
        let gone = match outcome {
            DialOutcome::Refused => true,
            DialOutcome::OtherEpoch(other) => silo.is_succeeded_by(&other),
            DialOutcome::Answered | DialOutcome::NoAnswer => false,
        };
        if gone {
            self.out.count().dials_refused += 1;
            self.evictions.gone.insert(silo, now.mono);
            self.look_at_evictions(now);
        }
    }

    /// A monitor says that it confirms `target` no longer, since it was asked at `stamp`.
    pub(crate) fn on_hushed(
        &mut self,
        now: Now,
        from: SiloAddress,
        target: SiloAddress,
        stamp: u64,
    ) {
        let asked = Instant::from_nanos(stamp);
        if asked > now.mono {
            return;
        }
        if let Some(eviction) = self.evictions.by_silo.get_mut(&target)
            && let Some(word) = eviction.monitors.get_mut(&from)
        {
            *word = (*word).max(Some(asked));
            self.look_at_evictions(now);
        }
    }

    /// A predecessor says that it has ended.
    pub(crate) fn on_yielded(&mut self, now: Now, from: SiloAddress) {
        if let Some(eviction) = self.evictions.by_silo.get_mut(&from) {
            eviction.yielded = true;
            self.look_at_evictions(now);
        }
    }

    /// Something was learnt: drafts a commit soon if a join need not wait any more.
    fn look_at_evictions(&mut self, now: Now) {
        let ready = self.evictions.by_silo.keys().any(|old| self.may_supersede(now, old));
        if ready {
            self.out.timers().set_no_later(Timer::Flush, now.mono);
        }
    }

    fn note_silence(&self, now: Now, eviction: &mut Eviction) {
        let silent = eviction.monitors.keys().all(|m| self.is_silent(now, eviction, m));
        eviction.silent_since = silent.then(|| eviction.silent_since.unwrap_or(now.mono));
    }

    fn has_given_word(now: Now, eviction: &Eviction, monitor: &SiloAddress) -> bool {
        let word = eviction.monitors.get(monitor).copied().flatten();
        word.is_some_and(|at| now.mono.saturating_since(at) <= WORD_LASTS)
    }

    fn is_silent(&self, now: Now, eviction: &Eviction, monitor: &SiloAddress) -> bool {
        Self::has_given_word(now, eviction, monitor) || self.evictions.gone.contains_key(monitor)
    }

    /// Whether a commit may declare `old` dead because its successor joins.
    pub(crate) fn may_supersede(&self, now: Now, old: &SiloAddress) -> bool {
        let Some(status) = self.facts.view().get(old).map(|row| row.status) else { return true };
        if !self.needs_eviction(old, status) {
            return true;
        }
        let Some(eviction) = self.evictions.by_silo.get(old) else { return false };
        if eviction.yielded {
            return true;
        }
        if eviction.version != self.facts.view().version() {
            return false;
        }
        let mut monitors = eviction.monitors.keys();
        if self.facts.is_stale(old) {
            // A silo that cannot touch its row wants to be confirmed by all of its monitors: one is
            // enough to prevent it.
            let lost =
                |m: &SiloAddress| self.facts.is_stale(m) || self.evictions.gone.contains_key(m);
            return monitors.clone().any(|m| Self::has_given_word(now, eviction, m))
                || monitors.all(lost);
        }
        if !monitors.clone().all(|m| self.is_silent(now, eviction, m)) {
            return false;
        }
        let port_is_lost =
            self.evictions.gone.contains_key(old) || old.same_endpoint(&self.facts.me());
        // The word of living monitors is worth more than what a host says about ports.
        let all_gave_word = !eviction.monitors.is_empty()
            && monitors.all(|m| Self::has_given_word(now, eviction, m));
        let waited = eviction.silent_since.map(|since| now.mono.saturating_since(since));
        let fence_over = waited.is_some_and(|waited| waited >= self.facts.config().fence_timeout);
        (port_is_lost && (all_gave_word || eviction.tries >= QUICK_TRIES))
            || (all_gave_word && fence_over)
    }

    /// Whether `old`, the predecessor of `new` on its `ip:port`, is known to have ended: it said
    /// so, or the two run on one host, whose kernel gives a port to one process at a time. Hosts
    /// are told apart by their names.
    pub(crate) fn is_known_gone(&self, new: &SiloEntry, old: &SiloEntry) -> bool {
        let yielded =
            self.evictions.by_silo.get(&old.address).is_some_and(|eviction| eviction.yielded);
        yielded || (!new.host_name.is_empty() && new.host_name == old.host_name)
    }

    /// A successor of this silo is about to be written: nothing is served any more, and whoever
    /// writes may know.
    pub(crate) fn on_superseded(&mut self, from: SiloAddress, by: SiloAddress) {
        if self.facts.me().is_succeeded_by(&by) {
            self.fence.shut(&self.facts, &mut self.out);
            self.out.send(from, Message::Yielded);
            self.terminate(TerminateReason::Superseded(by));
        }
    }

    /// The writer of the join of `by` asks this silo not to confirm `target` any more.
    pub(crate) fn on_hush(
        &mut self,
        now: Now,
        from: SiloAddress,
        target: SiloAddress,
        by: SiloAddress,
        stamp: u64,
    ) {
        if target == self.facts.me() {
            self.on_superseded(from, by);
            return;
        }
        if !target.is_succeeded_by(&by) || self.facts.view().status_of(&target).is_none() {
            return;
        }
        self.hold_word(now, target);
        self.out.send(from, Message::Hushed { target, stamp });
    }

    /// Gives `target` no stamps back until a read of the table shows what became of a commit sent
    /// while this word was good.
    fn hold_word(&mut self, now: Now, target: SiloAddress) {
        let until = now.mono + WORD_LASTS + self.facts.config().table_timeout;
        self.votes.doubt(target, until);
    }
}
