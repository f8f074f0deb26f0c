//! Calls: their targets, and their ends there.

use emmer_core::{SiloAddress, SiloStatus};
use emmer_placement::{Placed, PlacementContext, PlacementTarget};

use super::super::World;
use crate::grains::{Activation, Call, FORWARDS_MAX, HELD_MAX, Packet, Phase, QUEUE_MAX, Waiting};

impl World {
    /// A caller on `number` calls a grain.
    pub(super) fn random_call(&mut self, number: u32) {
        if self.truth.ids.is_empty() || !self.processes[number as usize].hosted {
            return;
        }
        let grain = u32::try_from(self.grain_rng.index(self.truth.ids.len())).unwrap_or(0);
        self.trace.event(self.now, 22, u64::from(number), u64::from(grain));
        self.locate(number, Call { grain, origin: number, hops: 0, must: false });
    }

    pub(super) const fn call_failed(&mut self, call: Call) {
        self.measures.calls_failed += 1;
        self.truth.must.1 += call.must as u64;
    }

    /// Finds the grain of a call: on this silo, where it was last seen, where the directory says,
    /// or where placement puts it.
    pub(super) fn locate(&mut self, number: u32, call: Call) {
        if self.holds(number, call) || self.enqueue(number, call) {
            return;
        }
        let process = &self.processes[number as usize];
        let Some(shell) = process.shell.as_deref() else { return };
        // An answer that was on its way may name a silo that is Dead here by now.
        let seen = shell.locations.get(&call.grain).filter(|peer| **peer != number);
        let seen = seen.map(|peer| self.processes[*peer as usize].address);
        if let Some(to) = seen.filter(|silo| !self.knows_dead(number, silo)) {
            self.pass_on(number, &to, call);
            return;
        }
        let asked = self.asked(number, call.grain);
        let id = self.truth.ids[call.grain as usize].clone();
        let process = &mut self.processes[number as usize];
        let local = process.clock.now(self.now).mono;
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let token = shell.token();
        let waiting = Waiting::Lookup(call, asked);
        match shell.directory.lookup(local, token, &id) {
            Some(outcome) => self.concluded(number, waiting, outcome),
            None => {
                shell.waiting.insert(token, waiting);
            }
        }
        self.drain_directory(number);
    }

    /// Keeps the call until the fence opens, if it is closed.
    fn holds(&mut self, number: u32, call: Call) -> bool {
        let process = &mut self.processes[number as usize];
        if process.would_run_turns(self.now) {
            return false;
        }
        if let Some(shell) = process.shell.as_deref_mut()
            && shell.held.len() < HELD_MAX
        {
            shell.held.push(call);
        }
        true
    }

    /// Lets the call wait for its turn on an activation of this silo, if there is one.
    fn enqueue(&mut self, number: u32, call: Call) -> bool {
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else {
            return false;
        };
        let Some(activation) = shell.catalog.get_mut(&call.grain) else { return false };
        if activation.queue.len() >= QUEUE_MAX {
            self.call_failed(call);
            return true;
        }
        activation.queue.push_back(call);
        let (idle, activation) = (activation.phase == Phase::Idle, activation.number);
        if idle {
            self.next_turn(number, call.grain, activation);
        }
        true
    }

    /// The directory has said where the grain is.
    pub(super) fn looked_up(&mut self, number: u32, call: Call, found: Option<SiloAddress>) {
        let me = self.processes[number as usize].address;
        match found {
            Some(silo) if silo != me => self.pass_on(number, &silo, call),
            _ => self.place(number, call),
        }
    }

    fn place(&mut self, number: u32, call: Call) {
        let process = &mut self.processes[number as usize];
        let me = process.address;
        let Some(shell) = process.shell.as_deref_mut() else { return };
        let id = &self.truth.ids[call.grain as usize];
        let context = PlacementContext::new(me, &shell.candidates);
        let target = PlacementTarget::new(id, shell.placement.default_strategy(), me);
        match shell.placement.place(&target, &context) {
            Ok(Placed::At(silo)) if silo == me => self.create(number, call),
            Ok(Placed::At(silo)) => self.pass_on(number, &silo, call),
            // None of the directors here has to wait.
            Ok(Placed::Ask(_)) | Err(_) => self.call_failed(call),
        }
    }

    /// The activation of the call's grain on this silo, made if there is none.
    fn create(&mut self, number: u32, call: Call) {
        if self.enqueue(number, call) {
            return;
        }
        let at = self.now;
        let Some(shell) = self.processes[number as usize].shell.as_deref_mut() else { return };
        let activation = shell.activation_number();
        shell.catalog.insert(call.grain, Activation::new(activation, call, at));
        // The first turn asks the fence before it has the grain registered.
        self.wake(number, call.grain, activation, std::time::Duration::ZERO);
    }

    /// Hands the call to another silo, unless that one is Dead here, or the call was passed on too
    /// often.
    pub(super) fn pass_on(&mut self, number: u32, to: &SiloAddress, mut call: Call) {
        call.hops += 1;
        if call.hops > FORWARDS_MAX || self.knows_dead(number, to) {
            if let Some(shell) = self.processes[number as usize].shell.as_deref_mut() {
                shell.locations.remove(&call.grain);
            }
            self.call_failed(call);
            return;
        }
        self.send_packet(number, to, Packet::Call(call));
    }

    /// Returns true if `silo` is Dead in the view of `number`.
    pub(super) fn knows_dead(&self, number: u32, silo: &SiloAddress) -> bool {
        let machine = self.processes[number as usize].machine.as_deref();
        machine.is_some_and(|machine| machine.view().status_of(silo) == Some(SiloStatus::Dead))
    }

    /// A call arrived over a connection: its sender believes that the grain is, or shall be, here.
    pub(in crate::world) fn call_arrives(&mut self, number: u32, call: Call) {
        if self.enqueue(number, call) || self.holds(number, call) {
            return;
        }
        let process = &mut self.processes[number as usize];
        let accepts = process.machine.as_deref().is_some_and(|m| m.status() == SiloStatus::Active);
        if accepts {
            self.create(number, call);
            return;
        }
        // Leaving: the sender's memory is stale, and this silo's may be too.
        if let Some(shell) = process.shell.as_deref_mut() {
            shell.locations.remove(&call.grain);
        }
        self.locate(number, call);
    }

    /// The answer to a call says where the grain is.
    pub(in crate::world) fn found_arrives(&mut self, number: u32, grain: u32, at: u32) {
        if let Some(shell) = self.processes[number as usize].shell.as_deref_mut() {
            shell.locations.insert(grain, at);
        }
    }

    /// The connection to `peer` ended: calls that were sent over it failed, and the next ones ask
    /// the directory.
    pub(in crate::world) fn forget_locations(&mut self, number: u32, peer: u32) {
        if let Some(shell) = self.processes[number as usize].shell.as_deref_mut() {
            shell.locations.retain(|_, at| *at != peer);
        }
    }
}
