//! The shell of the load statistics: tells every silo how loaded this one is, and keeps what the
//! others say, for placement to choose from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloEntry, Timestamp};
use emmer_membership::View;
use emmer_placement::load::{Effect, Gather, GatherConfig, LoadReport, Loads, Message};
use emmer_wire::channel;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::Peers;
use crate::clock::{Clock, wall};

/// How loaded this silo is.
pub(crate) trait Measured: Send + Sync {
    /// As of `now`.
    fn load(&self, now: Instant) -> LoadReport;
}

/// What one silo knows of the load of all.
pub(crate) struct LoadService {
    me: SiloAddress,
    clock: Clock,
    peers: Arc<Peers>,
    measured: Arc<dyn Measured>,
    /// How long a vote counts.
    vote_lasts: Duration,
    state: Mutex<State>,
    /// The machine's next timeout may have changed.
    changed: Notify,
    choice: RwLock<Arc<Choice>>,
}

struct State {
    machine: Gather,
    /// The Active silos of the view in force, in the order of their addresses.
    active: Vec<Arc<SiloEntry>>,
}

/// What placement chooses from. Silos that are full or suspected are passed over where others are
/// left.
#[derive(Default)]
pub(super) struct Choice {
    /// The Active silos, in the order of their addresses.
    pub(super) silos: Vec<SiloAddress>,
    /// Those of each role.
    by_role: BTreeMap<Arc<str>, Vec<SiloAddress>>,
    /// What is known of all of them.
    pub(super) loads: Arc<Loads>,
}

impl Choice {
    fn of(loads: Arc<Loads>, active: &[Arc<SiloEntry>], votes_since: Timestamp) -> Self {
        let will_do = |silo: &SiloEntry| {
            let is_active = |voter| active.binary_search_by_key(voter, |silo| silo.address).is_ok();
            let is_suspected =
                silo.votes.iter().any(|vote| vote.at > votes_since && is_active(&vote.voter));
            !is_suspected && !loads.is_overloaded(&silo.address)
        };
        let mut roles: BTreeMap<_, Vec<&SiloEntry>> = BTreeMap::new();
        for silo in active {
            roles.entry(silo.role_name.clone()).or_default().push(silo);
        }
        let best = |silos: Vec<&SiloEntry>| {
            let left = silos.iter().filter(|silo| will_do(silo)).map(|silo| silo.address);
            let left: Vec<_> = left.collect();
            if left.is_empty() { silos.iter().map(|silo| silo.address).collect() } else { left }
        };
        let silos = best(active.iter().map(AsRef::as_ref).collect());
        let by_role = roles.into_iter().map(|(role, silos)| (role, best(silos))).collect();
        Self { silos, by_role, loads }
    }

    /// The silos that have a role.
    pub(super) fn of_role(&self, role: &str) -> &[SiloAddress] {
        self.by_role.get(role).map_or(&[], Vec::as_slice)
    }
}

/// How often reports are made, and how long a vote counts.
pub(crate) struct LoadTimes {
    /// How long after one report the next one is due. The shortest time of a silo counts for all.
    /// A silo that becomes Active makes one at once.
    pub(crate) period: Duration,
    /// How long a vote counts.
    pub(crate) vote_lasts: Duration,
}

impl LoadService {
    /// Nobody is known yet.
    pub(crate) fn new(
        me: SiloAddress,
        times: &LoadTimes,
        clock: Clock,
        peers: Arc<Peers>,
        measured: Arc<dyn Measured>,
    ) -> Arc<Self> {
        let config = GatherConfig { period: times.period, ..GatherConfig::default() };
        let machine = Gather::new(me, config);
        Arc::new(Self {
            me,
            clock,
            peers,
            measured,
            vote_lasts: times.vote_lasts,
            state: Mutex::new(State { machine, active: Vec::new() }),
            changed: Notify::new(),
            choice: RwLock::default(),
        })
    }

    /// What placement chooses from now.
    pub(super) fn choice(&self) -> Arc<Choice> {
        self.choice.read().clone()
    }

    /// What this silo said of itself last; counts are 0 before that, and the rest is not known.
    pub(crate) fn reported(&self) -> LoadReport {
        let choice = self.choice();
        let own = choice.loads.of(&self.me).and_then(|known| known.report);
        own.map_or_else(LoadReport::default, |(report, _)| report)
    }

    /// A new view is in force.
    pub(crate) fn install(&self, view: &View) {
        let active: Vec<Arc<SiloEntry>> = view.active().cloned().collect();
        let addresses: Vec<SiloAddress> = active.iter().map(|silo| silo.address).collect();
        self.step(|state, now| {
            state.active = active;
            state.machine.handle_view(now, view.version(), &addresses);
            true
        });
    }

    /// A message from another silo.
    pub(crate) fn receive(&self, from: SiloAddress, message: &Message) {
        self.step(|state, now| {
            state.machine.handle_message(now, from, message, || self.measured.load(now));
            false
        });
    }

    fn time_out(&self) {
        self.step(|state, now| {
            state.machine.handle_timeout(now, || self.measured.load(now));
            false
        });
    }

    /// `step` says whether there is something else to choose from, whatever the machine says.
    fn step(&self, step: impl FnOnce(&mut State, Instant) -> bool) {
        {
            let mut state = self.state.lock();
            let mut is_new = step(&mut state, self.clock.mono());
            let mut loads = self.choice().loads.clone();
            while let Some(effect) = state.machine.poll_effect() {
                match effect {
                    Effect::Send { to, message } => self.peers.post(to, channel::LOAD, &message),
                    Effect::Publish(known) => {
                        loads = Arc::new(known);
                        is_new = true;
                    }
                }
            }
            if is_new {
                let votes_since = wall() - self.vote_lasts;
                let choice = Choice::of(loads, &state.active, votes_since);
                *self.choice.write() = Arc::new(choice);
            }
        }
        self.changed.notify_one();
    }

    /// Drives the machine's timeouts, for ever.
    pub(crate) async fn drive(&self) {
        loop {
            let due = self.state.lock().machine.poll_timeout();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.clock.sleep_until(due) => self.time_out(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use emmer_core::{SiloStatus, Vote};
    use emmer_placement::load::Known;

    use super::*;

    fn silo(n: u8, role: &str) -> SiloEntry {
        let address = format!("10.0.0.{n}:1:1").parse().unwrap();
        let mut entry = SiloEntry::new(address, SiloStatus::Active, Timestamp::from_millis(0));
        entry.role_name = role.into();
        entry
    }

    /// Who can be chosen among all, and among those of the role "front".
    fn chosen(silos: &[SiloEntry], full: &[SiloAddress]) -> (Vec<SiloAddress>, Vec<SiloAddress>) {
        let known = silos.iter().map(|silo| {
            let overloaded = full.contains(&silo.address);
            let report = LoadReport { overloaded, ..LoadReport::default() };
            Known {
                silo: silo.address,
                since: Instant::ZERO,
                report: Some((report, Instant::ZERO)),
            }
        });
        let active: Vec<_> = silos.iter().cloned().map(Arc::new).collect();
        let loads = Arc::new(Loads::new(known.collect()));
        let choice = Choice::of(loads, &active, Timestamp::from_millis(1_000));
        (choice.silos.clone(), choice.of_role("front").to_vec())
    }

    #[test]
    fn full_and_suspected_silos_are_passed_over_while_others_of_their_role_are_left() {
        let mut silos = [silo(1, "front"), silo(2, "back"), silo(3, "front"), silo(4, "back")];
        let [a, b, c, d] = silos.each_ref().map(|silo| silo.address);
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]));
        assert_eq!(chosen(&silos, &[a]), (vec![b, c, d], vec![c]));
        assert_eq!(chosen(&silos, &[a, c]), (vec![b, d], vec![a, c]));
        assert_eq!(chosen(&silos, &[a, b, c, d]), (vec![a, b, c, d], vec![a, c]));
        let vote = |at| Vote { voter: b, at: Timestamp::from_millis(at), gone: false };
        silos[2].votes = vec![vote(1_000)];
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]), "it is over");
        let stranger = "10.0.0.9:1:1".parse().unwrap();
        silos[2].votes.push(Vote { voter: stranger, ..vote(2_000) });
        assert_eq!(chosen(&silos, &[]), (vec![a, b, c, d], vec![a, c]), "its voter is not Active");
        silos[2].votes.push(vote(1_001));
        assert_eq!(chosen(&silos, &[]), (vec![a, b, d], vec![a]));
        assert_eq!(chosen(&silos, &[a]), (vec![b, d], vec![a, c]));
        assert_eq!(chosen(&silos[1..2], &[]).1, []);
    }
}
