//! The shell of the load statistics: tells every silo how loaded this one is, and keeps what the
//! others say.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress};
use emmer_membership::View;
use emmer_placement::load::{Effect, Gather, GatherConfig, LoadReport, Loads, Message};
use emmer_wire::channel;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::Peers;
use crate::clock::Clock;

/// How loaded this silo is.
pub(crate) trait Measured: Send + Sync {
    /// As of now.
    fn load(&self) -> LoadReport;
}

/// What one silo knows of the load of all.
pub(crate) struct LoadService {
    clock: Clock,
    peers: Arc<Peers>,
    measured: Arc<dyn Measured>,
    machine: Mutex<Gather>,
    /// The machine's next timeout may have changed.
    changed: Notify,
    choice: RwLock<Arc<Choice>>,
}

/// What placement chooses from.
#[derive(Default)]
pub(super) struct Choice {
    /// The Active silos, in the order of their addresses: those that are not full, or all where all
    /// are.
    pub(super) silos: Vec<SiloAddress>,
    /// What is known of all of them.
    pub(super) loads: Loads,
}

impl Choice {
    fn of(loads: Loads) -> Self {
        let has_room = |silo: &SiloAddress| !loads.is_overloaded(silo);
        let mut silos: Vec<_> = loads.iter().map(|known| known.silo).collect();
        if silos.iter().any(has_room) {
            silos.retain(has_room);
        }
        Self { silos, loads }
    }
}

impl LoadService {
    /// `period`: the least time between two reports.
    pub(crate) fn new(
        me: SiloAddress,
        period: Duration,
        clock: Clock,
        peers: Arc<Peers>,
        measured: Arc<dyn Measured>,
    ) -> Arc<Self> {
        let config = GatherConfig { period, ..GatherConfig::default() };
        Arc::new(Self {
            clock,
            peers,
            measured,
            machine: Mutex::new(Gather::new(me, config)),
            changed: Notify::new(),
            choice: RwLock::default(),
        })
    }

    /// What placement chooses from now.
    pub(super) fn choice(&self) -> Arc<Choice> {
        self.choice.read().clone()
    }

    /// A new view is in force.
    pub(crate) fn install(&self, view: &View) {
        let active: Vec<SiloAddress> = view.active().map(|member| member.address).collect();
        self.step(|machine, now| machine.handle_view(now, view.version(), &active));
    }

    /// A message from another silo.
    pub(crate) fn receive(&self, from: SiloAddress, message: &Message) {
        self.step(|machine, now| {
            machine.handle_message(now, from, message, || self.measured.load())
        });
    }

    fn step(&self, step: impl FnOnce(&mut Gather, Instant)) {
        {
            let mut machine = self.machine.lock();
            let now = self.clock.mono();
            step(&mut machine, now);
            while let Some(effect) = machine.poll_effect() {
                match effect {
                    Effect::Send { to, message } => self.peers.post(to, channel::LOAD, &message),
                    Effect::Publish(loads) => *self.choice.write() = Arc::new(Choice::of(loads)),
                }
            }
        }
        self.changed.notify_one();
    }

    /// Drives the machine's timeouts, for ever.
    pub(crate) async fn drive(&self) {
        loop {
            let due = self.machine.lock().poll_timeout();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.clock.sleep_until(due) => {
                    self.step(|machine, now| machine.handle_timeout(now, || self.measured.load()));
                }
            }
        }
    }
}
