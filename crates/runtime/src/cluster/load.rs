//! The shell of the load statistics. It tells every silo the load and the types of this one, and
//! keeps what the others report, for placement.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{GrainId, GrainTypeId, Instant, SiloAddress, SiloEntry};
use emmer_membership::View;
use emmer_net::clock::{Clock, wall};
use emmer_placement::hosted::{self, Hosted, Learner, Manifest};
use emmer_placement::load::{self, Gather, GatherConfig, LoadReport, Loads};
use emmer_wire::channel;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::Peers;
use super::choice::Choice;

/// Message between silos on the channel.
#[derive(Serialize, Deserialize)]
pub(crate) enum Message {
    /// Of a wave of load reports.
    #[serde(rename = "w")]
    Wave(load::Message),
    /// About a silo's types.
    #[serde(rename = "h")]
    Hosted(hosted::Message),
}

/// Load of this silo.
pub(crate) trait Measured: Send + Sync {
    /// As of `now`.
    fn load(&self, now: Instant) -> LoadReport;

    /// The memory of the process in bytes at the last measurement; none where it is not measured.
    fn memory_bytes(&self) -> Option<u64>;
}

/// Knowledge of one silo about the load of all.
pub(crate) struct LoadService {
    me: SiloAddress,
    /// A number that stands for the types that this silo hosts.
    manifest: u64,
    clock: Clock,
    peers: Arc<Peers>,
    measured: Arc<dyn Measured>,
    /// Time for which a vote counts.
    vote_lasts: Duration,
    state: Mutex<State>,
    /// The machine's next timeout may have changed.
    changed: Notify,
    choice: RwLock<Arc<Choice>>,
}

struct State {
    gather: Gather,
    learner: Learner,
    /// The Active silos of the view in force, in the order of their addresses.
    active: Vec<Arc<SiloEntry>>,
}

impl State {
    fn due(&self) -> Option<Instant> {
        self.gather.poll_timeout().into_iter().chain(self.learner.poll_timeout()).min()
    }
}

/// Period of the reports, and the time for which a vote counts.
pub(crate) struct LoadTimes {
    /// Time from one report to the next. The shortest time of a silo counts for all. A silo that
    /// becomes Active makes one at once.
    pub(crate) period: Duration,
    /// Time for which a vote counts.
    pub(crate) vote_lasts: Duration,
}

impl LoadService {
    /// Creates the service. It knows no other silo yet; this one hosts what `manifest` says.
    pub(crate) fn new(
        me: SiloAddress,
        manifest: Manifest,
        times: &LoadTimes,
        clock: Clock,
        peers: Arc<Peers>,
        measured: Arc<dyn Measured>,
    ) -> Arc<Self> {
        let config = GatherConfig { period: times.period, ..GatherConfig::default() };
        let number = manifest.number();
        let gather = Gather::new(me, number, config);
        let learner = Learner::new(me, Arc::new(manifest));
        let choice = Choice::of_nobody(Arc::new(learner.hosted()));
        Arc::new(Self {
            me,
            manifest: number,
            clock,
            peers,
            measured,
            vote_lasts: times.vote_lasts,
            state: Mutex::new(State { gather, learner, active: Vec::new() }),
            changed: Notify::new(),
            choice: RwLock::new(Arc::new(choice)),
        })
    }

    /// Silos that placement chooses from now.
    pub(super) fn choice(&self) -> Arc<Choice> {
        self.choice.read().clone()
    }

    /// Returns true if a silo can serve a call of a method of a grain type, as far as this silo
    /// knows.
    pub(crate) fn serves(&self, silo: &SiloAddress, grain_type: GrainTypeId, method: u32) -> bool {
        self.choice.read().hosted.serves(silo, grain_type, method)
    }

    /// Returns true if a silo serves the methods of a grain type that this silo serves, as far as
    /// this silo knows.
    pub(crate) fn serves_the_same(&self, silo: &SiloAddress, grain_type: GrainTypeId) -> bool {
        self.choice.read().hosted.serves_the_same(silo, grain_type)
    }

    /// An Active silo that reads newer data of a grain type than `version`, as far as this silo
    /// knows.
    pub(crate) fn with_newer_data(
        &self,
        grain_type: GrainTypeId,
        version: u32,
    ) -> Option<SiloAddress> {
        self.choice.read().hosted.with_newer_data(grain_type, version)
    }

    /// Returns true if there are Active silos with unknown types.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.choice.read().hosted.is_incomplete()
    }

    /// The name of the grain type that people call `name`, as far as this silo knows.
    pub(crate) fn type_called(&self, name: &str) -> Option<String> {
        self.choice.read().hosted.type_called(name)
    }

    /// A silo that hosts grains of a type, as far as this silo knows.
    pub(crate) fn host_of(&self, grain_type: GrainTypeId) -> Option<SiloAddress> {
        self.choice.read().hosted.host_of(grain_type)
    }

    /// Returns true if grains of a type are stateless workers, as far as this silo knows.
    pub(crate) fn is_worker(&self, grain_type: GrainTypeId) -> bool {
        self.choice.read().hosted.hosted_type(grain_type).is_some_and(|hosted| hosted.is_worker)
    }

    /// A grain as people read it, without the name of its type if no silo has told it.
    pub(crate) fn title(&self, grain: &GrainId) -> String {
        let choice = self.choice.read();
        let known = choice.hosted.hosted_type(grain.grain_type());
        format!("{}/{}", known.map_or("grain", |hosted| hosted.name.as_str()), grain.key())
    }

    /// The memory of the process in bytes; none where it is not measured.
    pub(crate) fn memory_bytes(&self) -> Option<u64> {
        self.measured.memory_bytes()
    }

    /// Last report of this silo. Before the first one, counts are 0 and the rest is unknown.
    pub(crate) fn reported(&self) -> LoadReport {
        let choice = self.choice();
        let own = choice.loads.of(&self.me).and_then(|known| known.report);
        own.map_or_else(LoadReport::default, |(report, _)| report)
    }

    /// A number that stands for the types that this silo hosts.
    pub(crate) const fn hosted_number(&self) -> u64 {
        self.manifest
    }

    /// The numbers of recently used activations of the Active silos that host the same types as
    /// this one and have its role; nothing as long as one of them has not reported.
    pub(crate) fn busy_of_kind(&self) -> Vec<(SiloAddress, u32)> {
        let choice = self.choice();
        let Some(own) = choice.loads.of(&self.me).and_then(|known| known.manifest) else {
            return Vec::new();
        };
        let kind = choice.loads.iter().filter(|known| {
            known.manifest == Some(own) && choice.share_grains(&self.me, &known.silo)
        });
        kind.map(|known| Some((known.silo, known.report?.0.busy)))
            .collect::<Option<_>>()
            .unwrap_or_default()
    }

    /// A new view is in force.
    pub(crate) fn install(&self, view: &View) {
        let active: Vec<Arc<SiloEntry>> = view.active().cloned().collect();
        let addresses: Vec<SiloAddress> = active.iter().map(|silo| silo.address).collect();
        self.step(|state, now| {
            state.active = active;
            state.gather.handle_view(now, view.version(), &addresses);
            true
        });
    }

    /// A message from another silo.
    pub(crate) fn receive(&self, from: SiloAddress, message: Message) {
        self.step(|state, now| {
            match message {
                Message::Wave(message) => {
                    let own = || self.measured.load(now);
                    state.gather.handle_message(now, from, &message, own);
                }
                Message::Hosted(message) => state.learner.handle_message(now, from, message),
            }
            false
        });
    }

    fn time_out(&self) {
        self.step(|state, now| {
            state.gather.handle_timeout(now, || self.measured.load(now));
            state.learner.handle_timeout(now);
            false
        });
    }

    /// `step` says whether there is something else to choose from, whatever the machines say.
    fn step(&self, step: impl FnOnce(&mut State, Instant) -> bool) {
        {
            let mut state = self.state.lock();
            let now = self.clock.mono();
            let is_new = step(&mut state, now);
            let loads = self.follow_gather(&mut state, now);
            let hosted = self.follow_learner(&mut state);
            if is_new || loads.is_some() || hosted.is_some() {
                let before = self.choice();
                let loads = loads.unwrap_or_else(|| before.loads.clone());
                let hosted = hosted.unwrap_or_else(|| before.hosted.clone());
                let votes_since = wall() - self.vote_lasts;
                let choice = Choice::of(loads, hosted, &state.active, votes_since);
                *self.choice.write() = Arc::new(choice);
            }
        }
        self.changed.notify_one();
    }

    /// Does what the load machine says, and returns the loads that it published.
    fn follow_gather(&self, state: &mut State, now: Instant) -> Option<Arc<Loads>> {
        let mut published = None;
        while let Some(effect) = state.gather.poll_effect() {
            match effect {
                load::Effect::Send { to, message } => {
                    self.peers.post(to, channel::LOAD, &Message::Wave(message));
                }
                load::Effect::Publish(loads) => {
                    state.learner.handle_loads(now, &loads);
                    published = Some(Arc::new(loads));
                }
            }
        }
        published
    }

    /// Executes the learner's wishes, and returns what it published.
    fn follow_learner(&self, state: &mut State) -> Option<Arc<Hosted>> {
        let mut published = None;
        while let Some(effect) = state.learner.poll_effect() {
            match effect {
                hosted::Effect::Send { to, message } => {
                    self.peers.post(to, channel::LOAD, &Message::Hosted(message));
                }
                hosted::Effect::Publish(hosted) => published = Some(Arc::new(hosted)),
            }
        }
        published
    }

    /// Drives the machine's timeouts; never ends.
    pub(crate) async fn drive(&self) {
        loop {
            let due = self.state.lock().due();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.clock.sleep_until(due) => self.time_out(),
            }
        }
    }
}
