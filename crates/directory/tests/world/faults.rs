//! What goes wrong: crashes, deaths by mistake, leaves, joins. Each is a change of the table, sooner or later.

use std::time::Duration;

use emmer_core::{SiloAddress, SiloStatus};

use super::{Event, World};

impl World {
    pub(crate) fn random_fault(&mut self) {
        let view = self.views.last().cloned().unwrap_or_default();
        let active: Vec<_> = view
            .iter()
            .filter(|(silo, status)| **status == SiloStatus::Active && self.nodes[silo].running)
            .map(|(silo, _)| *silo)
            .collect();
        let slow = if self.options.burst { 40_000 } else { 400_000 };
        let later = Duration::from_micros(self.rng.below(slow));
        let doomed = |event: &Event| matches!(event, Event::SetStatus { status: SiloStatus::Dead, .. });
        let spare = active.len() > 2 + self.queue.values().filter(|e| doomed(e)).count();
        let kind = self.rng.below(5);
        if !spare || kind == 0 {
            if self.nodes.len() < 12 {
                self.join(later);
            }
            return;
        }
        let silo = active[self.rng.index(active.len())];
        match kind {
            1 | 2 => {
                self.crash(silo);
                self.schedule(self.now + later, Event::SetStatus { silo, status: SiloStatus::Dead });
            }
            // Declared dead by mistake: it runs on until it hears of it.
            3 => self.set_status(silo, SiloStatus::Dead),
            _ => {
                self.set_status(silo, SiloStatus::ShuttingDown);
                self.schedule(self.now + later, Event::SetStatus { silo, status: SiloStatus::Stopping });
                self.schedule(self.now + later * 2, Event::SetStatus { silo, status: SiloStatus::Dead });
            }
        }
    }

    fn join(&mut self, later: Duration) {
        let silo = self.start_node();
        self.set_status(silo, SiloStatus::Joining);
        self.schedule(self.now + later, Event::SetStatus { silo, status: SiloStatus::Active });
    }

    /// The process ends. What it had confirmed counts until the table says that it is Dead.
    fn crash(&mut self, silo: SiloAddress) {
        self.nodes.get_mut(&silo).unwrap().running = false;
        self.tokens.retain(|_, call| call.silo != silo);
        self.truth.retain(|_, (held, _)| held.silo != silo);
    }

    pub(crate) fn set_status(&mut self, silo: SiloAddress, status: SiloStatus) {
        let mut view = self.views.last().cloned().unwrap_or_default();
        if view.get(&silo).is_some_and(|old| *old >= status) {
            return;
        }
        view.insert(silo, status);
        // Clean-up: the table forgets a silo that died long ago.
        if self.rng.chance(0.1)
            && let Some(old) = view.iter().find(|(s, st)| **st == SiloStatus::Dead && **s != silo)
        {
            let old = *old.0;
            self.nodes.get_mut(&old).unwrap().running = false;
            self.tokens.retain(|_, call| call.silo != old);
            view.remove(&old);
        }
        self.write_view(view);
    }

    /// A silo that sees itself leaving removes its activations.
    pub(crate) fn leave_if_told(&mut self, silo: SiloAddress) -> Result<(), String> {
        let node = &self.nodes[&silo];
        let version = node.dir.view_version() as usize;
        if !node.running || version == 0 || node.dir.is_closed() {
            return Ok(());
        }
        if self.views[version - 1].get(&silo) == Some(&SiloStatus::ShuttingDown) {
            let grains: Vec<_> =
                node.local.iter().filter(|(_, l)| l.confirmed).map(|(grain, _)| grain.clone()).collect();
            for grain in grains {
                self.unregister(silo, &grain)?;
            }
        }
        Ok(())
    }
}
