//! Faults: crashes, deaths by mistake, leaves, joins. Each is a change of the table, sooner or
//! later.

use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use super::{Death, Event, FADE, Tamper, World};

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
        let doomed =
            |event: &Event| matches!(event, Event::SetStatus { status: SiloStatus::Dead, .. });
        let spare = active.len() > 2 + self.queue.values().filter(|e| doomed(e)).count();
        self.break_a_way();
        let kind = self.rng.below(6);
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
                self.schedule(
                    self.now + later,
                    Event::SetStatus { silo, status: SiloStatus::Dead },
                );
            }
            // Declared dead by mistake: it continues until it hears of it.
            3 => self.set_status(silo, SiloStatus::Dead),
            // The silo neither hears nor is heard, long before it is declared dead.
            4 => {
                self.cut.insert(silo);
                // Often another silo is lost meanwhile: the silo that is cut off does not hear of
                // it.
                let other = active[self.rng.index(active.len())];
                if active.len() > 3 && other != silo && self.rng.chance(0.7) {
                    self.crash(other);
                    let at = self.now + later / 2;
                    self.schedule(at, Event::SetStatus { silo: other, status: SiloStatus::Dead });
                }
                self.schedule(
                    self.now + later,
                    Event::SetStatus { silo, status: SiloStatus::Dead },
                );
            }
            _ => {
                self.set_status(silo, SiloStatus::ShuttingDown);
                self.schedule(
                    self.now + later,
                    Event::SetStatus { silo, status: SiloStatus::Stopping },
                );
                self.schedule(
                    self.now + later * 2,
                    Event::SetStatus { silo, status: SiloStatus::Dead },
                );
            }
        }
    }

    /// Ends a connection between two living silos. Both learn of it. The world decides which bytes
    /// are lost.
    fn break_a_way(&mut self) {
        let silos: Vec<_> = self.nodes.keys().copied().collect();
        let (one, other) = (self.rng.index(silos.len()), self.rng.index(silos.len()));
        let (one, other) = (silos[one], silos[other]);
        for (silo, peer) in [(one, other), (other, one)] {
            self.schedule(self.now, Event::Broken { silo, peer });
        }
    }

    fn join(&mut self, later: Duration) {
        let silo = self.start_node();
        self.set_status(silo, SiloStatus::Joining);
        self.schedule(self.now + later, Event::SetStatus { silo, status: SiloStatus::Active });
    }

    /// The process ends. Others know that sometimes.
    fn crash(&mut self, silo: SiloAddress) {
        self.nodes.get_mut(&silo).unwrap().running = false;
        let fades = self.rng.chance(0.5);
        self.deaths.insert(silo, Death { lapsed: self.now, fades });
        self.tokens.retain(|_, call| call.silo != silo);
        self.truth.retain(|_, (held, _)| held.silo != silo);
    }

    pub(crate) fn set_status(&mut self, silo: SiloAddress, status: SiloStatus) {
        let mut view = self.views.last().cloned().unwrap_or_default();
        if view.get(&silo).is_some_and(|old| *old >= status) {
            return;
        }
        let old = view.insert(silo, status);
        if status == SiloStatus::Dead && old == Some(SiloStatus::Stopping) {
            // A silo that leaves runs its last turn before it asks for its death.
            self.deaths.entry(silo).or_insert(Death { lapsed: self.now, fades: false });
        }
        // Clean-up: the table forgets a silo that died long ago.
        if self.rng.chance(0.1)
            && let Some(old) = view.iter().find(|(s, _)| self.is_long_dead(s) && **s != silo)
        {
            let old = *old.0;
            self.nodes.get_mut(&old).unwrap().running = false;
            self.tokens.retain(|_, call| call.silo != old);
            view.remove(&old);
        }
        self.write_view(view);
    }

    fn is_long_dead(&self, silo: &SiloAddress) -> bool {
        let last = self.views.last().and_then(|view| view.get(silo));
        let lapsed = self.deaths.get(silo).is_some_and(|death| death.lapsed <= self.now);
        last == Some(&SiloStatus::Dead) && lapsed
    }

    /// Returns true if `silo` can run turns, in truth.
    pub(crate) fn can_run(&self, silo: &SiloAddress) -> bool {
        let node = &self.nodes[silo];
        let lapsed = self.deaths.get(silo).is_some_and(|death| death.lapsed <= self.now);
        node.running && !node.dir.is_closed() && !lapsed
    }

    /// Belief of `to` about the dead of `view` as it installs it.
    pub(crate) fn fading_for(
        &mut self,
        to: SiloAddress,
        view: &[(SiloAddress, SiloStatus)],
    ) -> Vec<(SiloAddress, Instant)> {
        let mut fading = Vec::new();
        for (silo, _) in view.iter().filter(|(_, status)| *status == SiloStatus::Dead) {
            if self.deaths.get(silo).is_some_and(|death| death.fades) {
                let until = *self.believed.entry((to, *silo)).or_insert(self.now + FADE);
                fading.push((*silo, until));
            }
        }
        let dir = &self.nodes[&to].dir;
        let named = |silo: &SiloAddress| dir.entries().any(|(_, held)| held.silo == *silo);
        match self.options.tamper {
            Tamper::NoFadingEntries => fading.retain(|(silo, _)| !named(silo)),
            Tamper::NoFadingRecoveries => fading.retain(|(silo, _)| named(silo)),
            _ => {}
        }
        fading
    }

    /// A silo that sees itself leaving removes its activations.
    pub(crate) fn leave_if_told(&mut self, silo: SiloAddress) -> Result<(), String> {
        let node = &self.nodes[&silo];
        let version = node.dir.view_version() as usize;
        if !node.running || version == 0 || node.dir.is_closed() {
            return Ok(());
        }
        if self.views[version - 1].get(&silo) == Some(&SiloStatus::ShuttingDown) {
            let grains: Vec<_> = node
                .local
                .iter()
                .filter(|(_, l)| l.confirmed)
                .map(|(grain, _)| grain.clone())
                .collect();
            for grain in grains {
                self.unregister(silo, &grain)?;
            }
        }
        Ok(())
    }
}
