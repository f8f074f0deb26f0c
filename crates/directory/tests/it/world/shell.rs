//! Stand-in for the runtime's shell around a directory: activations, commands, outcomes.

use std::collections::BTreeMap;

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{Departure, Directory, FailReason, Outcome, Registration, Token};

use super::moves::{From, Memory};
use super::{Tamper, World, config};

/// One silo process.
pub(crate) struct Node {
    pub(crate) dir: Directory,
    pub(crate) running: bool,
    pub(crate) timer: Option<Instant>,
    pub(crate) next_activation: u64,
    pub(crate) local: BTreeMap<GrainId, Local>,
}

/// One local activation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    pub(crate) activation: u64,
    pub(crate) confirmed: bool,
    pub(crate) token: u64,
    pub(crate) since: Instant,
    pub(crate) memory: Memory,
    /// Move to another silo, once the memory was sent.
    pub(crate) departure: Option<Departure>,
}

impl Local {
    pub(crate) const fn new(activation: u64, since: Instant) -> Self {
        let memory = Memory { life: 0, turns: 0 };
        Self { activation, confirmed: false, token: 0, since, memory, departure: None }
    }
}

/// A command under way.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) silo: SiloAddress,
    pub(crate) grain: GrainId,
    pub(crate) kind: Kind,
    pub(crate) since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lookup,
    Register(u64),
    Replace(u64, From),
    Unregister,
}

impl Node {
    pub(crate) fn confirmed_in(
        &self,
        ranges: &[RingRange],
        before: Instant,
    ) -> Vec<(GrainId, u64)> {
        self.local
            .iter()
            .filter(|(grain, local)| {
                local.confirmed
                    && local.since <= before
                    && ranges.iter().any(|r| r.contains(grain.stable_hash()))
            })
            .map(|(grain, local)| (grain.clone(), local.activation))
            .collect()
    }
}

impl World {
    pub(crate) fn start_node(&mut self) -> SiloAddress {
        let n = self.nodes.len();
        let silo: SiloAddress = format!("10.0.0.{}:11111:{}", n % 5, 1000 + n).parse().unwrap();
        let dir = Directory::new(silo, config(), self.now);
        let node =
            Node { dir, running: true, timer: None, next_activation: 0, local: BTreeMap::new() };
        self.nodes.insert(silo, node);
        silo
    }

    /// A random silo that takes itself for Active does something with a random grain.
    pub(crate) fn random_command(&mut self) -> Result<(), String> {
        let ready: Vec<_> = self
            .nodes
            .iter()
            .filter(|(s, n)| n.running && self.thinks_active(s))
            .map(|(s, _)| *s)
            .collect();
        if ready.is_empty() {
            return Ok(());
        }
        let silo = ready[self.rng.index(ready.len())];
        let grain = self.grains[self.rng.index(self.grains.len())].clone();
        let local = self.nodes[&silo].local.get(&grain).copied();
        match local {
            Some(Local { confirmed: true, .. }) if self.rng.chance(0.5) => self.turn(silo, &grain),
            Some(local) if local.departure.is_some() => {
                if self.options.tamper == Tamper::TurnsAfterSending {
                    return self.turn(silo, &grain);
                }
                self.lookup(silo, &grain)
            }
            Some(local) if local.confirmed && self.rng.chance(0.5) => self.depart(silo, &grain),
            Some(local) if local.confirmed && self.rng.chance(0.6) => self.unregister(silo, &grain),
            Some(local) if !local.confirmed && self.rng.chance(0.3) => {
                let now = self.now;
                let node = self.nodes.get_mut(&silo).unwrap();
                node.local.remove(&grain);
                if !node.dir.forget(now, Token(local.token)) {
                    return Err(format!("{silo} forgot a command that was done"));
                }
                if let Some(Call { kind: Kind::Replace(_, instead), .. }) =
                    self.tokens.remove(&local.token)
                {
                    self.replaced(silo, &grain, instead, Outcome::Absent)?;
                }
                self.drain(silo)
            }
            None if self.rng.chance(0.6) => self.register(silo, &grain),
            _ => self.lookup(silo, &grain),
        }
    }

    pub(crate) fn thinks_active(&self, silo: &SiloAddress) -> bool {
        let dir = &self.nodes[silo].dir;
        let version = dir.view_version() as usize;
        !dir.is_closed()
            && version > 0
            && self.views[version - 1].get(silo) == Some(&SiloStatus::Active)
    }

    pub(crate) fn call(&mut self, silo: SiloAddress, grain: &GrainId, kind: Kind) -> u64 {
        self.next += 1;
        self.tokens.insert(self.next, Call { silo, grain: grain.clone(), kind, since: self.steps });
        self.next
    }

    pub(crate) fn lookup(&mut self, silo: SiloAddress, grain: &GrainId) -> Result<(), String> {
        let token = self.call(silo, grain, Kind::Lookup);
        let now = self.now;
        let done = self.nodes.get_mut(&silo).unwrap().dir.lookup(now, Token(token), grain);
        self.finish(silo, token, done)
    }

    fn register(&mut self, silo: SiloAddress, grain: &GrainId) -> Result<(), String> {
        let now = self.now;
        let node = self.nodes.get_mut(&silo).unwrap();
        node.next_activation += 1;
        let activation = node.next_activation;
        let token = self.call(silo, grain, Kind::Register(activation));
        let node = self.nodes.get_mut(&silo).unwrap();
        node.local.insert(grain.clone(), Local { token, ..Local::new(activation, now) });
        let done = node.dir.register(now, Token(token), grain, activation);
        self.finish(silo, token, done)
    }

    pub(crate) fn unregister(&mut self, silo: SiloAddress, grain: &GrainId) -> Result<(), String> {
        let now = self.now;
        let token = self.call(silo, grain, Kind::Unregister);
        let node = self.nodes.get_mut(&silo).unwrap();
        let Some(local) = node.local.remove(grain) else { return Ok(()) };
        if self.truth.get(grain).is_some_and(|(held, _)| held.silo == silo) {
            self.truth.remove(grain);
        }
        let node = self.nodes.get_mut(&silo).unwrap();
        let done = node.dir.unregister(now, Some(Token(token)), grain, local.activation);
        self.finish(silo, token, done)
    }

    pub(crate) fn finish(
        &mut self,
        silo: SiloAddress,
        token: u64,
        done: Option<Outcome>,
    ) -> Result<(), String> {
        if let Some(outcome) = done {
            self.completed(token, outcome)?;
        }
        self.drain(silo)
    }

    pub(crate) fn completed(&mut self, token: u64, outcome: Outcome) -> Result<(), String> {
        let Some(call) = self.tokens.remove(&token) else {
            return Err(format!("{token} completes twice, or after it was forgotten: {outcome:?}"));
        };
        let dead = self.dead().contains(&call.silo);
        match (call.kind, outcome) {
            (Kind::Lookup, Outcome::Found(found)) => {
                self.stats.found += usize::from(found.is_some());
                if !dead {
                    self.check_known(&call, found)?;
                }
            }
            (Kind::Register(activation), Outcome::Registered) => {
                let memory = self.new_life();
                let node = self.nodes.get_mut(&call.silo).unwrap();
                if let Some(local) = node.local.get_mut(&call.grain) {
                    local.memory = memory;
                }
                self.confirmed(&call, activation, dead)?;
            }
            (Kind::Replace(activation, instead), outcome) => {
                if outcome == Outcome::Registered {
                    let node = self.nodes.get_mut(&call.silo).unwrap();
                    if let Some(local) = node.local.get_mut(&call.grain) {
                        local.activation = activation;
                    }
                    self.confirmed(&call, activation, dead)?;
                }
                self.replaced(call.silo, &call.grain, instead, outcome)?;
            }
            (Kind::Register(_), Outcome::Taken(held)) => {
                self.stats.taken += 1;
                self.nodes.get_mut(&call.silo).unwrap().local.remove(&call.grain);
                if !dead {
                    self.check_known(&call, Some(held))?;
                }
                if held.silo == call.silo {
                    return Err(format!("{} is refused by its own activation {held}", call.silo));
                }
            }
            (Kind::Unregister, Outcome::Unregistered) => {}
            (kind, Outcome::Failed(reason)) => {
                if reason != FailReason::Closed {
                    return Err(format!(
                        "{kind:?} of {} on {} failed: {reason}",
                        call.grain, call.silo
                    ));
                }
                self.nodes.get_mut(&call.silo).unwrap().local.remove(&call.grain);
            }
            (kind, outcome) => return Err(format!("{kind:?} was answered {outcome:?}")),
        }
        Ok(())
    }

    fn confirmed(&mut self, call: &Call, activation: u64, dead: bool) -> Result<(), String> {
        self.stats.registered += 1;
        let now = self.now;
        let mine = Registration { silo: call.silo, activation };
        let node = self.nodes.get_mut(&call.silo).unwrap();
        match node.local.get_mut(&call.grain).filter(|local| local.activation == activation) {
            Some(local) => {
                local.confirmed = true;
                local.since = now;
            }
            None => return Err(format!("{mine} was confirmed and is not there")),
        }
        let memory = node.local[&call.grain].memory;
        self.check_alone(&call.grain, mine)?;
        self.check_memory(call.silo, &call.grain, memory)?;
        if dead {
            return Ok(());
        }
        if let Some((held, _)) = self.truth.get(&call.grain) {
            return Err(format!("two confirmed activations of {}: {held} and {mine}", call.grain));
        }
        self.truth.insert(call.grain.clone(), (mine, self.steps));
        Ok(())
    }
}
