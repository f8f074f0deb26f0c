//! Rules that hold at every completion, and when the world has come to rest.

use std::collections::BTreeMap;

use emmer_core::{GrainId, SiloStatus};
use emmer_directory::Registration;

use super::World;
use super::shell::Call;

impl World {
    /// Invariant I9: a registration that was confirmed before the call began and still is must be
    /// what it found.
    pub(crate) fn check_known(
        &self,
        call: &Call,
        found: Option<Registration>,
    ) -> Result<(), String> {
        match self.truth.get(&call.grain) {
            Some((held, since)) if *since < call.since && found != Some(*held) => Err(format!(
                "{:?} of {} on {} found {found:?} while {held} was registered",
                call.kind, call.grain, call.silo
            )),
            _ => Ok(()),
        }
    }

    /// Invariant I8 when `mine` is confirmed: no other silo can run turns of the grain, not even a
    /// Dead one that does not know it.
    pub(crate) fn check_alone(
        &mut self,
        grain: &GrainId,
        mine: Registration,
    ) -> Result<(), String> {
        if !self.can_run(&mine.silo) {
            return Ok(());
        }
        self.stats.by_zombies += usize::from(self.deaths.contains_key(&mine.silo));
        let mut after_zombie = false;
        for (silo, node) in self.nodes.iter().filter(|(silo, _)| **silo != mine.silo) {
            let Some(local) = node.local.get(grain).filter(|local| local.confirmed) else {
                continue;
            };
            if self.can_run(silo) {
                let other = Registration { silo: *silo, activation: local.activation };
                return Err(format!("{mine} of {grain} is confirmed while {other} can run turns"));
            }
            after_zombie |= self.deaths.contains_key(silo);
        }
        self.stats.after_zombies += usize::from(after_zombie);
        Ok(())
    }

    pub(crate) fn check_the_end(&mut self) -> Result<(), String> {
        if let Some((token, call)) = self.tokens.first_key_value() {
            return Err(format!("command {token} never completed: {call:?}"));
        }
        let view = self.views.last().cloned().unwrap_or_default();
        let live: Vec<_> =
            view.iter().filter(|(_, s)| **s != SiloStatus::Dead).map(|(s, _)| *s).collect();
        for silo in &live {
            let dir = &self.nodes[silo].dir;
            if dir.view_version() != self.views.len() as u64
                || dir.is_recovering()
                || dir.pending_count() > 0
            {
                return Err(format!("{silo} is not at rest: {} pending", dir.pending_count()));
            }
        }
        for _ in 0..200 {
            let hash = self.rng.bits();
            let owners =
                live.iter().filter(|s| self.nodes[s].dir.owned_ranges().contains(hash)).count();
            if owners != 1 {
                return Err(format!("{owners} silos own {hash:016x}"));
            }
        }
        let truth: BTreeMap<GrainId, Registration> =
            self.truth.iter().map(|(grain, (held, _))| (grain.clone(), *held)).collect();
        let entries: BTreeMap<GrainId, Registration> = live
            .iter()
            .flat_map(|silo| self.nodes[silo].dir.entries())
            .map(|(grain, held)| (grain.clone(), held))
            .collect();
        if truth != entries {
            return Err(format!("at rest the directory says {entries:?} and the silos {truth:?}"));
        }
        Ok(())
    }
}
