//! Moves of grains: the memory goes from shell to shell, the registration follows.

use std::time::Duration;

use emmer_core::{GrainId, SiloAddress};
use emmer_directory::{
    Departure, DepartureEffect, DepartureEnd, Outcome, Registration, Token, Word,
};

use super::shell::{Kind, Local};
use super::{Event, Tamper, World};

/// The longest silence of a target.
const PATIENCE: Duration = Duration::from_millis(120);

/// The registration that is replaced, and the view in which the memory was sent.
pub(crate) type From = (Registration, u64);

/// Memory of a grain: the life in which it grew, and the number of its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) life: u64,
    pub(crate) turns: u64,
}

/// A message about a move.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Arrive { grain: GrainId, memory: Memory, instead: From },
    Word { grain: GrainId, instead: From, word: Word },
}

impl World {
    /// A confirmed activation runs a turn, if its silo may.
    pub(crate) fn turn(&mut self, silo: SiloAddress, grain: &GrainId) -> Result<(), String> {
        if !self.can_run(&silo) {
            return Ok(());
        }
        let Some(local) = self.nodes.get_mut(&silo).unwrap().local.get_mut(grain) else {
            return Ok(());
        };
        let before = local.memory;
        local.memory.turns += 1;
        let after = local.memory;
        let last = self.memories.insert(grain.clone(), after);
        self.stats.turns += 1;
        if last != Some(before) {
            return Err(format!("{silo} runs {grain} with {before:?}, and {last:?} was the last"));
        }
        Ok(())
    }

    /// The memory with which an activation is confirmed must be the last one, or that of a new
    /// life.
    pub(crate) fn check_memory(
        &mut self,
        silo: SiloAddress,
        grain: &GrainId,
        memory: Memory,
    ) -> Result<(), String> {
        if !self.can_run(&silo) {
            return Ok(());
        }
        match self.memories.get(grain) {
            Some(last) if memory.turns > 0 && *last != memory => {
                Err(format!("{grain} comes to {silo} with {memory:?}, and {last:?} was the last"))
            }
            _ => {
                self.memories.insert(grain.clone(), memory);
                Ok(())
            }
        }
    }

    pub(crate) fn new_life(&mut self) -> Memory {
        self.last_life += 1;
        Memory { life: self.last_life, turns: 0 }
    }

    fn other_silo(&mut self, silo: SiloAddress) -> Option<SiloAddress> {
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| *other != silo).collect();
        (!others.is_empty()).then(|| others[self.rng.index(others.len())])
    }

    /// The source sends the memory.
    pub(crate) fn depart(&mut self, silo: SiloAddress, grain: &GrainId) -> Result<(), String> {
        let Some(to) = self.other_silo(silo) else { return Ok(()) };
        let (now, tamper) = (self.now, self.options.tamper);
        let node = self.nodes.get_mut(&silo).unwrap();
        let Some(local) = node.local.get_mut(grain) else { return Ok(()) };
        if !node.dir.may_move(grain, local.activation) {
            return Ok(());
        }
        let view = if tamper == Tamper::OldViews { 0 } else { node.dir.view_version() };
        let from = (Registration { silo, activation: local.activation }, view);
        let fresh = if tamper == Tamper::OldNumbers {
            local.activation
        } else {
            node.next_activation += 1;
            node.next_activation
        };
        local.departure = Some(Departure::new(now, to, from, fresh, PATIENCE));
        local.confirmed = tamper == Tamper::ReportedDepartures;
        let memory = local.memory;
        if self.truth.get(grain).is_some_and(|(held, _)| *held == from.0) {
            self.truth.remove(grain);
        }
        self.schedule(now + PATIENCE, Event::Patience { silo, grain: grain.clone() });
        self.say(silo, to, Said::Arrive { grain: grain.clone(), memory, instead: from });
        Ok(())
    }

    fn say(&mut self, from: SiloAddress, to: SiloAddress, said: Said) {
        if self.rng.chance(self.options.loss * 3.0) {
            return;
        }
        let slow = if self.rng.chance(0.1) { 200_000 } else { 15_000 };
        let at = self.now + Duration::from_micros(1 + self.rng.below(slow));
        self.schedule(at, Event::Move { from, to, said });
    }

    /// A message about a move arrives.
    pub(crate) fn hear_of_move(
        &mut self,
        from: SiloAddress,
        to: SiloAddress,
        said: Said,
    ) -> Result<(), String> {
        let is_cut = self.cut.contains(&from) || self.cut.contains(&to);
        if is_cut || !self.nodes[&to].running || self.nodes[&to].dir.is_closed() {
            return Ok(());
        }
        match said {
            Said::Arrive { grain, memory, instead } => self.arrive(to, &grain, memory, instead),
            Said::Word { grain, instead, word } => self.with_departure(to, &grain, |departure| {
                if departure.from() == instead {
                    departure.handle_word(word);
                }
            }),
        }
    }

    /// The target takes the grain, if it has none of it, and asks the owner.
    fn arrive(
        &mut self,
        silo: SiloAddress,
        grain: &GrainId,
        memory: Memory,
        instead: From,
    ) -> Result<(), String> {
        let refuses = !self.thinks_active(&silo) || self.rng.chance(0.1);
        if refuses || self.nodes[&silo].local.contains_key(grain) {
            let word = Word::Refused;
            self.say(silo, instead.0.silo, Said::Word { grain: grain.clone(), instead, word });
            return Ok(());
        }
        let now = self.now;
        let node = self.nodes.get_mut(&silo).unwrap();
        node.next_activation += 1;
        let activation = node.next_activation;
        let token = self.call(silo, grain, Kind::Replace(activation, instead));
        let local = Local { token, memory, ..Local::new(activation, now) };
        let node = self.nodes.get_mut(&silo).unwrap();
        node.local.insert(grain.clone(), local);
        let done = if self.options.tamper == Tamper::FreshArrivals {
            node.dir.register(now, Token(token), grain, activation)
        } else {
            node.dir.replace(now, Token(token), grain, activation, instead)
        };
        self.finish(silo, token, done)
    }

    /// An outcome of the target's or the source's `replace`, or of its end without one.
    pub(crate) fn replaced(
        &mut self,
        silo: SiloAddress,
        grain: &GrainId,
        instead: From,
        outcome: Outcome,
    ) -> Result<(), String> {
        if instead.0.silo == silo {
            return self.with_departure(silo, grain, |departure| departure.handle_outcome(outcome));
        }
        let is_there = outcome == Outcome::Registered;
        self.stats.arrived += usize::from(is_there);
        let word = if is_there { Word::Arrived } else { Word::Failed };
        if !is_there {
            self.nodes.get_mut(&silo).unwrap().local.remove(grain);
        }
        self.say(silo, instead.0.silo, Said::Word { grain: grain.clone(), instead, word });
        Ok(())
    }

    /// The target is silent.
    pub(crate) fn lose_patience(
        &mut self,
        silo: SiloAddress,
        grain: &GrainId,
    ) -> Result<(), String> {
        let (now, tamper) = (self.now, self.options.tamper);
        self.with_departure(silo, grain, |departure| {
            if tamper == Tamper::UnaskedReturns && departure.poll_timeout() == Some(now) {
                departure.handle_word(Word::Failed);
                departure.poll_effect();
                departure.handle_outcome(Outcome::Registered);
            }
            departure.handle_timeout(now);
        })
    }

    /// Feeds a departure and executes its effects.
    fn with_departure(
        &mut self,
        silo: SiloAddress,
        grain: &GrainId,
        feed: impl FnOnce(&mut Departure),
    ) -> Result<(), String> {
        let (now, tamper) = (self.now, self.options.tamper);
        let Some(node) = self.nodes.get_mut(&silo).filter(|node| node.running) else {
            return Ok(());
        };
        let Some(local) = node.local.get_mut(grain) else { return Ok(()) };
        let Some(departure) = local.departure.as_mut() else { return Ok(()) };
        feed(departure);
        let instead = departure.from();
        match departure.poll_effect() {
            None => Ok(()),
            Some(DepartureEffect::Reclaim { activation }) => {
                let token = self.call(silo, grain, Kind::Replace(activation, instead));
                let node = self.nodes.get_mut(&silo).unwrap();
                let done = node.dir.replace(now, Token(token), grain, activation, instead);
                self.finish(silo, token, done)
            }
            Some(DepartureEffect::End(DepartureEnd::Here(number))) => {
                self.stats.returned += 1;
                let memory = local.memory;
                (local.departure, local.confirmed, local.since) = (None, true, now);
                local.activation = number;
                self.check_memory(silo, grain, memory)?;
                if tamper == Tamper::UnaskedReturns {
                    return self.check_alone(grain, Registration { silo, activation: number });
                }
                Ok(())
            }
            Some(DepartureEffect::End(end)) => {
                self.stats.moved += usize::from(matches!(end, DepartureEnd::There(_)));
                self.stats.nowhere += usize::from(end == DepartureEnd::Nowhere);
                node.local.remove(grain);
                Ok(())
            }
        }
    }
}
