//! The results of searches, and when they are believed. Without IO.
//!
//! A search takes a tick for each step to another silo, and the next one begins before a long one
//! is over, so several are under way. A circle counts when a search finds it that began after
//! another search had found it: each wait in it has a number that never comes back, so all waits
//! stood at one moment between the two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use emmer_core::SiloAddress;
use emmer_net::clock::CoarseInstant;

use super::graph::{Path, in_words};
use super::wait::Wait;

/// Circles of one gate that are remembered from one search to the next.
const CIRCLES_MAX: usize = 64;

/// The searches of one gate that are under way at once. One step to another silo takes a tick at
/// most at each of the two, so this is enough for a circle of [`PATH_MAX`](super::graph::PATH_MAX)
/// steps.
const UNDER_WAY_MAX: usize = 32;

/// The most questions of others that are answered between two looks.
const ANSWERED_MAX: usize = 4_096;

/// An answered question is known for this time at least, if there are not too many. By then the
/// search that asked it is over.
const REMEMBERED: Duration = Duration::from_secs(1);

/// A circle: the call that waits at this place, and the way from the turns inside its grain to the
/// turn that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Circle {
    ticket: u64,
    path: Path,
}

/// The searches from one gate, one after the other.
struct Search {
    /// Searches under way, the last one at the end.
    rounds: VecDeque<u64>,
    /// Time at which the last one began.
    begun: CoarseInstant,
    /// The calls that wait at the gate: the turn that made each, and its place.
    waits: Vec<(u64, u64)>,
    /// Circles that were found, each with the last search that had begun by then.
    found: Vec<(Circle, u64)>,
}

/// The searches of one silo.
#[derive(Default)]
pub(super) struct Searches {
    round: u64,
    gates: BTreeMap<u64, Search>,
}

impl Searches {
    /// A search begins at `gate`, where these calls wait. Once there are [`UNDER_WAY_MAX`], the
    /// oldest one is ignored.
    pub(super) fn begin(&mut self, gate: u64, waits: &[Wait], now: CoarseInstant) -> u64 {
        self.round += 1;
        let search = self.gates.entry(gate).or_insert_with(|| Search {
            rounds: VecDeque::new(),
            begun: now,
            waits: Vec::new(),
            found: Vec::new(),
        });
        search.begun = now;
        search.rounds.push_back(self.round);
        if search.rounds.len() > UNDER_WAY_MAX {
            search.rounds.pop_front();
        }
        let oldest = search.rounds.front().copied().unwrap_or(self.round);
        search.found.retain(|(_, at)| *at >= oldest);
        search.waits = waits.iter().map(|wait| (wait.caller, wait.ticket)).collect();
        self.round
    }

    /// The search that began as `round` at `gate` has reached the turn at the end of `path`. The
    /// calls that wait in a circle for certain, and shall end: their places, each with the circle
    /// in words.
    pub(super) fn reached(&mut self, gate: u64, round: u64, path: &Path) -> Vec<(u64, String)> {
        let Some(search) =
            self.gates.get_mut(&gate).filter(|search| search.rounds.contains(&round))
        else {
            return Vec::new();
        };
        let Some(last_begun) = search.rounds.back().copied() else { return Vec::new() };
        let Some(last) = path.last() else { return Vec::new() };
        // Of all calls in the circle one ends: that of the turn with the highest number. The others
        // would find the same circle, and end although it no longer stands.
        let is_highest = path.windows(2).all(|two| two[1].call == 0 || two[0].turn <= last.turn);
        if !is_highest {
            return Vec::new();
        }
        let mut certain = Vec::new();
        for (_, ticket) in search.waits.iter().filter(|(caller, _)| *caller == last.turn) {
            let circle = Circle { ticket: *ticket, path: path.clone() };
            match search.found.iter().position(|(known, _)| *known == circle) {
                Some(at) if search.found[at].1 < round => {
                    // It ends, and makes room for another one.
                    search.found.swap_remove(at);
                    certain.push((*ticket, in_words(path)));
                }
                Some(_) => {}
                None if search.found.len() < CIRCLES_MAX => search.found.push((circle, last_begun)),
                None => {}
            }
        }
        certain
    }

    /// Forgets every gate but these.
    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        self.gates.retain(|gate, _| keep(*gate));
    }

    /// Time at which the last search at `gate` began.
    pub(super) fn last_begun(&self, gate: u64) -> Option<CoarseInstant> {
        self.gates.get(&gate).map(|search| search.begun)
    }
}

/// A question of a search: the silo that began it, its gate, its round, and the turn that was
/// reached.
type Question = (SiloAddress, u64, u64, u64);

/// The questions of searches that were answered lately. A search that comes to a turn again, by
/// another way and perhaps much later, learns nothing new.
pub(super) struct Answered {
    now: BTreeSet<Question>,
    before: BTreeSet<Question>,
    /// The number of those that were answered since the last look.
    since_look: usize,
    begun: CoarseInstant,
}

impl Answered {
    pub(super) const fn new() -> Self {
        Self {
            now: BTreeSet::new(),
            before: BTreeSet::new(),
            since_look: 0,
            begun: CoarseInstant::from_millis(0),
        }
    }

    /// A look begins.
    pub(super) fn look(&mut self, now: CoarseInstant) {
        self.since_look = 0;
        if self.begun.after(REMEMBERED) <= now {
            self.turn_over(now);
        }
    }

    fn turn_over(&mut self, now: CoarseInstant) {
        self.before = std::mem::take(&mut self.now);
        self.begun = now;
    }

    /// Returns true if a question is to be answered: it is a new one, and not one too many.
    pub(super) fn takes(&mut self, question: Question, now: CoarseInstant) -> bool {
        if self.since_look >= ANSWERED_MAX || self.before.contains(&question) {
            return false;
        }
        if self.now.len() >= ANSWERED_MAX {
            self.turn_over(now);
        }
        let is_new = self.now.insert(question);
        self.since_look += usize::from(is_new);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::Step;
    use super::*;
    use emmer_net::clock::CoarseInstant;

    const GATE: u64 = 10;

    fn wait(caller: u64, ticket: u64) -> Wait {
        Wait { ticket, caller, since: CoarseInstant::from_millis(0), suspect: false }
    }

    fn begin(searches: &mut Searches, waits: &[Wait]) -> u64 {
        searches.begin(GATE, waits, CoarseInstant::from_millis(0))
    }

    fn path(steps: &[(u64, u64)]) -> Path {
        steps
            .iter()
            .map(|(turn, call)| Step { turn: *turn, call: *call, grain: format!("g/{turn}") })
            .collect()
    }

    #[test]
    fn a_circle_is_believed_when_a_later_search_finds_it_again() {
        let mut searches = Searches::default();
        let found = path(&[(1, 0), (2, 55)]);
        let words = || "g/2 waits for g/1, which waits for g/2".to_owned();
        let first = begin(&mut searches, &[wait(2, 7)]);
        let second = begin(&mut searches, &[wait(2, 7)]);
        assert_eq!(searches.reached(GATE, first, &found), []);
        assert_eq!(searches.reached(GATE, first, &found), [], "twice by one search is once");
        assert_eq!(
            searches.reached(GATE, second, &found),
            [],
            "the second had begun before the first found it"
        );
        let third = begin(&mut searches, &[wait(2, 7)]);
        assert_eq!(searches.reached(GATE, third, &found), [(7, words())]);
    }

    #[test]
    fn circles_that_end_make_room_for_others() {
        let mut searches = Searches::default();
        for crowd in 0..4 {
            let callers = |n: usize| 1_000 + crowd * CIRCLES_MAX as u64 + n as u64;
            let waits: Vec<Wait> = (0..CIRCLES_MAX).map(|n| wait(callers(n), callers(n))).collect();
            let mut ended = 0;
            for _ in 0..2 {
                let round = begin(&mut searches, &waits);
                let found =
                    |n| searches.reached(GATE, round, &path(&[(1, 0), (callers(n), 55)])).len();
                ended += (0..CIRCLES_MAX).map(found).sum::<usize>();
            }
            assert_eq!(ended, CIRCLES_MAX, "crowd {crowd}");
        }
    }

    #[test]
    fn what_was_found_long_ago_is_forgotten() {
        let mut searches = Searches::default();
        let found = path(&[(1, 0), (2, 55)]);
        let first = begin(&mut searches, &[wait(2, 7)]);
        assert_eq!(searches.reached(GATE, first, &found), []);
        let mut last = 0;
        for _ in 0..UNDER_WAY_MAX {
            last = begin(&mut searches, &[wait(2, 7)]);
        }
        assert_eq!(searches.reached(GATE, first, &found), [], "it is not under way any more");
        assert_eq!(searches.reached(GATE, last, &found), [], "found anew");
    }

    fn question(round: u64) -> Question {
        (SiloAddress::new(([10, 0, 0, 1], 11_111).into(), 1), GATE, round, 5)
    }

    #[test]
    fn a_search_that_comes_back_is_not_answered_again() {
        let at = CoarseInstant::from_millis;
        let mut answered = Answered::new();
        answered.look(at(1_000));
        assert!(answered.takes(question(1), at(1_000)));
        for ms in (1_000..2_000).step_by(50) {
            answered.look(at(ms));
            assert!(!answered.takes(question(1), at(ms)), "at {ms}");
        }
        // Long after it is over it is forgotten.
        for ms in [2_000, 3_000, 4_000] {
            answered.look(at(ms));
        }
        assert!(answered.takes(question(1), at(4_000)));
    }

    #[test]
    fn so_many_questions_are_answered_between_two_looks() {
        let now = CoarseInstant::from_millis(1_000);
        let mut answered = Answered::new();
        let most = ANSWERED_MAX as u64;
        for turn in 0..2 {
            answered.look(now);
            let taken =
                (0..2 * most).filter(|n| answered.takes(question(turn * 2 * most + n), now));
            assert_eq!(taken.count(), ANSWERED_MAX);
        }
        assert!(answered.now.len() + answered.before.len() <= 2 * ANSWERED_MAX);
    }

    #[test]
    fn another_wait_between_the_same_turns_is_another_circle() {
        for (steps, ticket) in
            [([(1, 0), (2, 56)], 7), ([(3, 0), (2, 55)], 7), ([(1, 0), (2, 55)], 8)]
        {
            let mut searches = Searches::default();
            let first = begin(&mut searches, &[wait(2, 7)]);
            searches.reached(GATE, first, &path(&[(1, 0), (2, 55)]));
            let second = begin(&mut searches, &[wait(2, ticket)]);
            assert_eq!(searches.reached(GATE, second, &path(&steps)), []);
        }
    }

    #[test]
    fn one_call_of_a_circle_ends_and_no_other() {
        // Turns 1, 2 and 3 wait for each other; each of their calls is checked.
        let circles = [
            (1, path(&[(2, 0), (3, 53), (1, 51)])),
            (2, path(&[(3, 0), (1, 51), (2, 52)])),
            (3, path(&[(1, 0), (2, 52), (3, 53)])),
        ];
        let ended = circles.iter().filter(|(caller, circle)| {
            let mut searches = Searches::default();
            let first = begin(&mut searches, &[wait(*caller, 7)]);
            searches.reached(GATE, first, circle);
            let second = begin(&mut searches, &[wait(*caller, 7)]);
            !searches.reached(GATE, second, circle).is_empty()
        });
        assert_eq!(ended.map(|(caller, _)| *caller).collect::<Vec<_>>(), [3]);
    }
}
