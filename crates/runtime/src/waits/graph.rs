//! One silo's part of the graph of waits at one moment, and the search through it. Without IO.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

/// The longest way that is followed, in turns.
pub(super) const PATH_MAX: usize = 64;

/// Number of turns that one search reaches in one silo.
pub(crate) const REACHED_MAX: usize = 256;

/// One turn on the way, and the wait that leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// The turn.
    #[serde(rename = "t")]
    pub(super) turn: u64,
    /// The place in the turn's grain where a call of the turn before waits; 0 when it is the first
    /// turn, or when this turn answers a call of the turn before.
    #[serde(rename = "c")]
    pub(super) call: u64,
    /// The turn's grain, for people.
    #[serde(rename = "g")]
    pub(super) grain: String,
}

/// From a turn inside a grain to one that it waits for.
pub(crate) type Path = Vec<Step>;

/// Waits of turns for each other.
#[derive(Default)]
pub(super) struct Graph {
    /// By turn: its calls that wait, with the place and the gate.
    calls: BTreeMap<u64, Vec<(u64, u64)>>,
    /// By turn: the turns that answer its calls.
    answers: BTreeMap<u64, Vec<u64>>,
    /// By gate: the turns inside.
    inside: BTreeMap<u64, Vec<u64>>,
    /// By turn: its grain.
    grains: BTreeMap<u64, String>,
}

impl Graph {
    /// A call of the turn `caller` waits at place `ticket` of `gate`.
    pub(super) fn add_call(&mut self, caller: u64, ticket: u64, gate: u64) {
        self.calls.entry(caller).or_default().push((ticket, gate));
    }

    /// `turn` waits; `caller` waits for it, and it is inside `gate`.
    pub(super) fn add_turn(
        &mut self,
        turn: u64,
        caller: Option<u64>,
        gate: Option<u64>,
        grain: String,
    ) {
        if let Some(caller) = caller {
            self.answers.entry(caller).or_default().push(turn);
        }
        if let Some(gate) = gate {
            self.inside.entry(gate).or_default().push(turn);
        }
        self.grains.insert(turn, grain);
    }

    /// Puts everything in an order of its own, so that two searches of one graph go the same way.
    pub(super) fn sort(&mut self) {
        self.calls.values_mut().for_each(|calls| calls.sort_unstable());
        self.answers
            .values_mut()
            .chain(self.inside.values_mut())
            .for_each(|turns| turns.sort_unstable());
    }

    /// The turns inside `gate`, each as the beginning of a path.
    pub(super) fn starts(&self, gate: u64) -> Vec<Path> {
        self.inside.get(&gate).into_iter().flatten().map(|turn| vec![self.step(*turn, 0)]).collect()
    }

    fn step(&self, turn: u64, call: u64) -> Step {
        Step { turn, call, grain: self.grains.get(&turn).cloned().unwrap_or_default() }
    }

    fn next(&self, turn: u64) -> Vec<Step> {
        let answers = self.answers.get(&turn).into_iter().flatten().map(|next| self.step(*next, 0));
        let calls = self.calls.get(&turn).into_iter().flatten();
        let held_up = calls.flat_map(|(ticket, gate)| {
            self.inside.get(gate).into_iter().flatten().map(|next| self.step(*next, *ticket))
        });
        answers.chain(held_up).collect()
    }

    /// Every turn that the last turns of `starts` wait for here, and those themselves; each at the
    /// end of a shortest path. No path comes to a turn twice: a circle that does not lead back to
    /// where the search began would else be followed between silos until the path is full.
    pub(super) fn reach(&self, starts: Vec<Path>) -> Vec<Path> {
        let mut known: BTreeSet<u64> =
            starts.iter().filter_map(|path| path.last()).map(|s| s.turn).collect();
        let (mut open, mut reached) = (VecDeque::from(starts), Vec::new());
        while let Some(path) = open.pop_front() {
            if reached.len() >= REACHED_MAX {
                break;
            }
            let last = path.last().filter(|_| path.len() < PATH_MAX);
            for step in last.map(|last| self.next(last.turn)).unwrap_or_default() {
                let is_new = path.iter().all(|before| before.turn != step.turn);
                if is_new && known.insert(step.turn) {
                    open.push_back(path.iter().cloned().chain([step]).collect());
                }
            }
            reached.push(path);
        }
        reached
    }
}

/// The circle in words. `path` leads from the turns inside the grain of a call to the turn that
/// made the call.
pub(super) fn in_words(path: &[Step]) -> String {
    let mut words = path.last().map(|last| last.grain.clone()).unwrap_or_default();
    for (at, step) in path.iter().enumerate() {
        words.push_str(if at == 0 { " waits for " } else { ", which waits for " });
        words.push_str(&step.grain);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(path: &Path) -> Vec<u64> {
        path.iter().map(|step| step.turn).collect()
    }

    fn graph() -> Graph {
        let mut graph = Graph::default();
        // Turn 1 is inside gate 10, turn 2 inside gate 20; each has a call in front of the other's
        // gate.
        graph.add_turn(1, None, Some(10), "a".to_owned());
        graph.add_turn(2, None, Some(20), "b".to_owned());
        graph.add_call(1, 101, 20);
        graph.add_call(2, 102, 10);
        graph.sort();
        graph
    }

    #[test]
    fn crossing_calls_lead_back_to_their_turns() {
        let graph = graph();
        let reached = graph.reach(graph.starts(20));
        assert_eq!(reached.iter().map(turns).collect::<Vec<_>>(), [vec![2], vec![2, 1]]);
        assert_eq!(reached[1][1].call, 102);
        assert_eq!(in_words(&reached[1]), "a waits for b, which waits for a");
    }

    #[test]
    fn a_turn_waits_for_the_turn_that_answers_it_while_that_is_known() {
        for known in [true, false] {
            let mut graph = Graph::default();
            graph.add_turn(1, None, Some(10), "a".to_owned());
            graph.add_turn(2, known.then_some(1), Some(20), "b".to_owned());
            let reached = graph.reach(graph.starts(10));
            assert_eq!(reached.len(), 1 + usize::from(known));
        }
    }

    #[test]
    fn no_way_comes_to_a_turn_twice() {
        let graph = graph();
        let step = |turn, call| Step { turn, call, grain: String::new() };
        // Another silo has followed a call of turn 1 to turn 3, and that one's call came here.
        let asked = vec![step(1, 0), step(3, 0), step(2, 0)];
        let reached = graph.reach(vec![asked]);
        assert_eq!(reached.iter().map(turns).collect::<Vec<_>>(), [vec![1, 3, 2]]);
    }

    #[test]
    fn a_search_has_bounds() {
        let mut graph = Graph::default();
        for turn in 1..1_000 {
            graph.add_turn(turn, Some(turn - 1), None, String::new());
        }
        let start = vec![Step { turn: 0, call: 0, grain: String::new() }];
        let longest = graph.reach(vec![start.clone()]).into_iter().map(|path| path.len()).max();
        assert_eq!(longest, Some(PATH_MAX));
        for turn in 1_000..3_000 {
            graph.add_turn(turn, Some(0), None, String::new());
        }
        assert_eq!(graph.reach(vec![start]).len(), REACHED_MAX);
    }
}
