//! The shell of the grain directory: executes the machine's effects, turns its outcomes into
//! futures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer_core::ring::RingRange;
use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{
    Config, Directory, Effect, FailReason, Message, Outcome, Registration, Token,
};
use emmer_membership::View;
use emmer_net::clock::Clock;
use emmer_wire::channel;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::Peers;
use crate::metrics::threads::Counter;

/// Number of tries to register again over a left-behind registration of this same silo.
const STALE_SELF_RETRIES: usize = 3;

/// Pause of a registration before it looks for room again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Result of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// The activation is the grain's one activation.
    Here,
    /// Another silo hosts the grain.
    Elsewhere(SiloAddress),
    /// The directory cannot say.
    Failed(String),
}

/// Answer of this silo's directory that takes no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// This silo answers for the grain, which is registered on that silo.
    At(SiloAddress),
    /// This silo answers for the grain, which is registered nowhere.
    Nowhere,
    /// That silo answers for the grain, by the view in force.
    KnownBy(SiloAddress),
    /// The cluster is changing.
    Unsure,
}

/// An activation, as the directory sees it.
#[derive(Clone, Copy)]
pub(crate) struct Registrant<'a> {
    pub(crate) grain: &'a GrainId,
    pub(crate) number: u64,
    /// True if the directory holds a registration for it. Written only under the machine's lock.
    pub(crate) registered: &'a AtomicBool,
}

/// The activations of this silo, as the directory sees them. It asks under its machine's lock.
pub(crate) trait Activations: Send + Sync {
    /// Registered grains that lie in `ranges`.
    fn registered_in(&self, ranges: &[RingRange]) -> Vec<(GrainId, u64)>;

    /// Notes that activation `number` of `grain` is registered, if it is still there.
    fn note_registered(&self, grain: &GrainId, number: u64);

    /// Another activation of `grain` exists: `number` is no longer registered and goes, if it is
    /// still there.
    fn evict(&self, grain: &GrainId, number: u64);
}

/// One silo's directory.
pub(crate) struct DirectoryService {
    around: Around,
    machine: Mutex<Machine>,
    /// The machine's next timeout may have changed.
    changed: Notify,
    /// Registrations, lookups and their withdrawals, as this silo asked for them.
    asked: [Counter; REQUESTS.len()],
}

/// The requests to the directory, for metrics.
const REQUESTS: [&str; 3] = ["register", "lookup", "unregister"];

/// Surroundings that the machine's effects need.
struct Around {
    me: SiloAddress,
    clock: Clock,
    peers: Arc<Peers>,
    activations: Arc<dyn Activations>,
}

struct Machine {
    directory: Directory,
    waiting: HashMap<Token, Waiting>,
    next_token: u64,
    /// Time at which the task of the timeouts wakes up. None: it has not looked yet, or sleeps
    /// until it is woken.
    sleeps_until: Option<Instant>,
}

struct Waiting {
    done: oneshot::Sender<Outcome>,
    /// For a registration: whose.
    registers: Option<(GrainId, u64)>,
}

impl DirectoryService {
    pub(crate) fn new(
        me: SiloAddress,
        config: Config,
        clock: Clock,
        peers: Arc<Peers>,
        activations: Arc<dyn Activations>,
    ) -> Arc<Self> {
        let directory = Directory::new(me, config, clock.mono());
        let machine =
            Machine { directory, waiting: HashMap::new(), next_token: 1, sleeps_until: None };
        let around = Around { me, clock, peers, activations };
        Arc::new(Self {
            around,
            machine: Mutex::new(machine),
            changed: Notify::new(),
            asked: Default::default(),
        })
    }

    /// Number of registrations that this silo holds as their owner.
    pub(crate) fn registrations(&self) -> u64 {
        self.machine.lock().directory.entries_count() as u64
    }

    /// The numbers of requests that this silo has made, by their names.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REQUESTS.iter().zip(&self.asked).map(|(name, count)| (*name, count.get()))
    }

    /// Finds the silo where `grain` is registered, if it is.
    pub(crate) async fn lookup(&self, grain: &GrainId) -> Result<Option<Registration>, FailReason> {
        self.asked[1].add(1);
        let outcome =
            self.run(None, |directory, now, token| directory.lookup(now, token, grain)).await;
        match outcome {
            Outcome::Found(found) => Ok(found),
            Outcome::Failed(reason) => Err(reason),
            other => {
                tracing::error!(%grain, ?other, "the directory gave no answer to a lookup");
                Err(FailReason::TimedOut)
            }
        }
    }

    /// As [`lookup`](Self::lookup), without a message and a wait.
    pub(crate) fn lookup_now(&self, grain: &GrainId) -> Whereabouts {
        let mut machine = self.machine.lock();
        if !machine.directory.serves(grain) {
            let owner = machine.directory.owner_of(grain).filter(|owner| *owner != self.around.me);
            return owner.map_or(Whereabouts::Unsure, Whereabouts::KnownBy);
        }
        self.asked[1].add(1);
        let token = machine.token();
        // The silo that serves a grain answers at once: no effect to execute, and no use for the
        // time.
        match machine.directory.lookup(Instant::from_nanos(0), token, grain) {
            Some(Outcome::Found(Some(at))) => Whereabouts::At(at.silo),
            Some(Outcome::Found(None)) => Whereabouts::Nowhere,
            _ => Whereabouts::Unsure,
        }
    }

    /// Makes `activation` the grain's one activation, if there is no other.
    pub(crate) async fn register(&self, activation: Registrant<'_>) -> Registered {
        self.asked[0].add(1);
        for _ in 0..STALE_SELF_RETRIES {
            match self.register_number(activation).await {
                Outcome::Registered => return Registered::Here,
                Outcome::Taken(other) if other.silo == self.around.me => {
                    // Left behind by an activation that is gone.
                    self.unregister_number(activation.grain, other.activation).await;
                }
                Outcome::Taken(other) => return Registered::Elsewhere(other.silo),
                Outcome::Failed(reason) => return Registered::Failed(reason.to_string()),
                other => {
                    return Registered::Failed(format!(
                        "the directory answered {other:?} to a registration"
                    ));
                }
            }
        }
        Registered::Failed("an earlier activation on this silo keeps the registration".to_owned())
    }

    /// Registers, waiting while as many operations are under way as may be: nothing was sent then,
    /// and room comes as answers come. The activation's own timeout bounds the wait.
    async fn register_number(&self, activation: Registrant<'_>) -> Outcome {
        let Registrant { grain, number, .. } = activation;
        self.run_with_room(activation, |directory, now, token| {
            directory.register(now, token, grain, number)
        })
        .await
    }

    async fn run_with_room(
        &self,
        activation: Registrant<'_>,
        command: impl Fn(&mut Directory, Instant, Token) -> Option<Outcome>,
    ) -> Outcome {
        loop {
            let outcome = self.run(Some(activation), &command).await;
            if outcome != Outcome::Failed(FailReason::TooManyPending) {
                return outcome;
            }
            tokio::time::sleep(FULL_PAUSE).await;
        }
    }

    /// Gives the activation's registration back, if it has one.
    pub(crate) async fn unregister(&self, activation: Registrant<'_>) {
        {
            // Under the machine's lock, so that no report in between claims it.
            let _machine = self.machine.lock();
            if !activation.registered.swap(false, Ordering::AcqRel) {
                return;
            }
        }
        self.unregister_number(activation.grain, activation.number).await;
    }

    /// From now on no report claims the activation, whose grain's memory is sent to another silo.
    /// Returns the version of the directory's view; none when the activation is not registered, or
    /// may not move.
    pub(crate) fn withhold(&self, activation: Registrant<'_>) -> Option<u64> {
        let machine = self.machine.lock();
        if !machine.directory.may_move(activation.grain, activation.number) {
            return None;
        }
        let was_registered = activation.registered.swap(false, Ordering::AcqRel);
        was_registered.then(|| machine.directory.view_version())
    }

    /// Makes `activation` the grain's one activation in the place of `instead`. It waits for room
    /// as a registration does, and its caller bounds the wait.
    pub(crate) async fn replace(
        &self,
        activation: Registrant<'_>,
        instead: (Registration, u64),
    ) -> Outcome {
        self.asked[0].add(1);
        let Registrant { grain, number, .. } = activation;
        self.run_with_room(activation, |directory, now, token| {
            directory.replace(now, token, grain, number, instead)
        })
        .await
    }

    /// Gives the registration `number` of this silo back, which no activation has, without waiting.
    pub(crate) fn withdraw(&self, grain: &GrainId, number: u64) {
        self.asked[2].add(1);
        self.step(|directory, now| {
            directory.unregister(now, None, grain, number);
        });
    }

    async fn unregister_number(&self, grain: &GrainId, number: u64) {
        self.asked[2].add(1);
        self.run(None, |directory, now, token| {
            directory.unregister(now, Some(token), grain, number)
        })
        .await;
    }

    async fn run(
        &self,
        registers: Option<Registrant<'_>>,
        command: impl FnOnce(&mut Directory, Instant, Token) -> Option<Outcome>,
    ) -> Outcome {
        let (token, done, is_earlier) = {
            let mut machine = self.machine.lock();
            let token = machine.token();
            if let Some(outcome) = command(&mut machine.directory, self.around.clock.mono(), token)
            {
                if let (Outcome::Registered, Some(activation)) = (&outcome, registers) {
                    activation.registered.store(true, Ordering::Release);
                }
                return outcome;
            }
            let (sender, done) = oneshot::channel();
            let registers = registers.map(|a| (a.grain.clone(), a.number));
            machine.waiting.insert(token, Waiting { done: sender, registers });
            machine.execute(&self.around);
            (token, done, machine.has_earlier_timeout())
        };
        if is_earlier {
            self.changed.notify_one();
        }
        let mut forget = Forget { service: self, token: Some(token) };
        let outcome = done.await;
        forget.token = None;
        outcome.unwrap_or(Outcome::Failed(FailReason::Closed))
    }

    /// A new view is in force.
    pub(crate) fn install(&self, view: &View, fading: &[(SiloAddress, Instant)]) {
        let members: Vec<(SiloAddress, SiloStatus)> =
            view.members().iter().map(|m| (m.address, m.status)).collect();
        self.step(|directory, now| directory.handle_view(now, view.version(), &members, fading));
    }

    /// A message from another silo's directory.
    pub(crate) fn receive(&self, from: SiloAddress, message: Message) {
        self.step(|directory, now| directory.handle_message(now, from, message));
    }

    /// The connection to `silo` has ended, or the silo has put another one in its place.
    pub(crate) fn way_broke(&self, silo: SiloAddress) {
        self.step(|directory, now| directory.handle_broken_way(now, silo));
    }

    fn step(&self, step: impl FnOnce(&mut Directory, Instant)) {
        let is_earlier = {
            let mut machine = self.machine.lock();
            step(&mut machine.directory, self.around.clock.mono());
            machine.execute(&self.around);
            machine.has_earlier_timeout()
        };
        if is_earlier {
            self.changed.notify_one();
        }
    }

    /// Drives the machine's timeouts; never ends.
    pub(crate) async fn drive(&self) {
        loop {
            let due = self.machine.lock().next_timeout();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.around.clock.sleep_until(due) => self.step(Directory::handle_timeout),
            }
        }
    }
}

impl Machine {
    const fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    /// The machine's next timeout, until which its driver sleeps.
    fn next_timeout(&mut self) -> Option<Instant> {
        self.sleeps_until = self.directory.poll_timeout();
        self.sleeps_until
    }

    /// Returns true if the driver sleeps for too long. Most steps move the next timeout back, if at
    /// all: then the driver finds nothing to do once, and sleeps on.
    fn has_earlier_timeout(&self) -> bool {
        let due = self.directory.poll_timeout();
        due.is_some_and(|due| self.sleeps_until.is_none_or(|until| due < until))
    }

    /// Executes every effect, in order, under the machine's lock: a completed registration is noted
    /// before a later report reads the notes.
    fn execute(&mut self, around: &Around) {
        while let Some(effect) = self.directory.poll_effect() {
            match effect {
                Effect::Send { to, message } => around.peers.post(to, channel::DIRECTORY, &message),
                Effect::Complete { token, outcome } => self.complete(around, token, outcome),
                Effect::ReportLocal { report, ranges } => {
                    let entries = around.activations.registered_in(&ranges);
                    self.directory.handle_local_report(around.clock.mono(), report, entries);
                }
                Effect::Evict { grain, activation } => around.activations.evict(&grain, activation),
            }
        }
    }

    fn complete(&mut self, around: &Around, token: Token, outcome: Outcome) {
        let Some(waiting) = self.waiting.remove(&token) else { return };
        if let (Outcome::Registered, Some((grain, number))) = (&outcome, &waiting.registers) {
            around.activations.note_registered(grain, *number);
        }
        let _ = waiting.done.send(outcome);
    }
}

/// Tells the machine when no call waits.
struct Forget<'a> {
    service: &'a DirectoryService,
    token: Option<Token>,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            let DirectoryService { around, machine, .. } = self.service;
            let mut machine = machine.lock();
            machine.waiting.remove(&token);
            machine.directory.forget(around.clock.mono(), token);
            machine.execute(around);
        }
    }
}
