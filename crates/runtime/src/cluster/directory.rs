//! The shell of the grain directory: executes the machine's effects, turns its outcomes into futures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{GrainId, Instant, SiloAddress, SiloStatus};
use emmer_directory::{Config, Directory, Effect, FailReason, Message, Outcome, Registration, Token};
use emmer_membership::View;
use emmer_wire::channel;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::grain::DeactivationReason;
use crate::hosting::RunActivation;
use crate::silo::SiloCore;

/// How often a registration is tried again over a left-behind one of this same silo.
const STALE_SELF_RETRIES: usize = 3;

/// How long a registration waits before it looks for room again.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// What a registration came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Registered {
    /// The activation is the grain's one activation.
    Here,
    /// Another silo hosts the grain.
    Elsewhere(SiloAddress),
    /// The directory cannot say.
    Failed(String),
}

/// One silo's directory.
pub(crate) struct DirectoryService {
    machine: Mutex<Machine>,
    /// The machine's next timeout may have changed.
    changed: Notify,
}

struct Machine {
    directory: Directory,
    waiting: HashMap<Token, Waiting>,
    next_token: u64,
}

struct Waiting {
    done: oneshot::Sender<Outcome>,
    /// For a registration: whose.
    registers: Option<(GrainId, u64)>,
}

impl DirectoryService {
    pub(crate) fn new(me: SiloAddress, config: Config, now: Instant) -> Self {
        let directory = Directory::new(me, config, now);
        let machine = Machine { directory, waiting: HashMap::new(), next_token: 1 };
        Self { machine: Mutex::new(machine), changed: Notify::new() }
    }

    /// How many registrations this silo holds as their owner.
    pub(crate) fn registrations(&self) -> u64 {
        self.machine.lock().directory.entries_count() as u64
    }

    /// Where `grain` is registered, if it is.
    pub(crate) async fn lookup(
        &self,
        silo: &Arc<SiloCore>,
        grain: &GrainId,
    ) -> Result<Option<Registration>, FailReason> {
        let outcome = self.run(silo, None, |directory, now, token| directory.lookup(now, token, grain)).await;
        match outcome {
            Outcome::Found(found) => Ok(found),
            Outcome::Failed(reason) => Err(reason),
            other => {
                tracing::error!(%grain, ?other, "the directory gave no answer to a lookup");
                Err(FailReason::TimedOut)
            }
        }
    }

    /// As [`lookup`](Self::lookup), when this silo answers for the grain itself; else none.
    pub(crate) fn lookup_now(&self, grain: &GrainId) -> Option<Option<Registration>> {
        let mut machine = self.machine.lock();
        if !machine.directory.serves(grain) {
            return None;
        }
        let token = machine.token();
        // Who serves a grain answers at once: no effect to execute, and no use for the time.
        match machine.directory.lookup(Instant::from_nanos(0), token, grain) {
            Some(Outcome::Found(found)) => Some(found),
            _ => None,
        }
    }

    /// Makes `activation` the grain's one activation, if there is no other.
    pub(crate) async fn register(
        &self,
        silo: &Arc<SiloCore>,
        activation: &Arc<dyn RunActivation>,
    ) -> Registered {
        let (grain, number) = (activation.id(), activation.number());
        for _ in 0..STALE_SELF_RETRIES {
            match self.register_number(silo, activation, number).await {
                Outcome::Registered => return Registered::Here,
                Outcome::Taken(other) if other.silo == silo.address => {
                    // Left behind by an activation that is not there any more.
                    self.unregister_number(silo, grain, other.activation).await;
                }
                Outcome::Taken(other) => return Registered::Elsewhere(other.silo),
                Outcome::Failed(reason) => return Registered::Failed(reason.to_string()),
                other => {
                    return Registered::Failed(format!("the directory answered {other:?} to a registration"));
                }
            }
        }
        Registered::Failed("an earlier activation on this silo keeps the registration".to_owned())
    }

    /// Registers, waiting while as many operations are under way as may be: nothing was sent then, and room comes as answers
    /// come. The activation's own timeout bounds the wait.
    async fn register_number(
        &self,
        silo: &Arc<SiloCore>,
        activation: &Arc<dyn RunActivation>,
        number: u64,
    ) -> Outcome {
        loop {
            let outcome = self
                .run(silo, Some(activation), |directory, now, token| {
                    directory.register(now, token, activation.id(), number)
                })
                .await;
            if outcome != Outcome::Failed(FailReason::TooManyPending) {
                return outcome;
            }
            tokio::time::sleep(FULL_PAUSE).await;
        }
    }

    /// Gives the activation's registration back, if it has one.
    pub(crate) async fn unregister(&self, silo: &Arc<SiloCore>, activation: &Arc<dyn RunActivation>) {
        {
            // Under the machine's lock, so that no report in between claims it.
            let _machine = self.machine.lock();
            if !activation.is_registered() {
                return;
            }
            activation.set_registered(false);
        }
        self.unregister_number(silo, activation.id(), activation.number()).await;
    }

    async fn unregister_number(&self, silo: &Arc<SiloCore>, grain: &GrainId, number: u64) {
        self.run(silo, None, |directory, now, token| directory.unregister(now, Some(token), grain, number))
            .await;
    }

    async fn run(
        &self,
        silo: &Arc<SiloCore>,
        registers: Option<&Arc<dyn RunActivation>>,
        command: impl FnOnce(&mut Directory, Instant, Token) -> Option<Outcome>,
    ) -> Outcome {
        let (token, done) = {
            let mut machine = self.machine.lock();
            let token = machine.token();
            if let Some(outcome) = command(&mut machine.directory, silo.clock.mono(), token) {
                if let (Outcome::Registered, Some(activation)) = (&outcome, registers) {
                    activation.set_registered(true);
                }
                return outcome;
            }
            let (sender, done) = oneshot::channel();
            let registers = registers.map(|a| (a.id().clone(), a.number()));
            machine.waiting.insert(token, Waiting { done: sender, registers });
            machine.execute(silo);
            (token, done)
        };
        self.changed.notify_one();
        let mut forget = Forget { service: self, silo, token: Some(token) };
        let outcome = done.await;
        forget.token = None;
        outcome.unwrap_or(Outcome::Failed(FailReason::Closed))
    }

    /// A new view is in force.
    pub(crate) fn install(&self, silo: &Arc<SiloCore>, view: &View, fading: &[(SiloAddress, Instant)]) {
        let members: Vec<(SiloAddress, SiloStatus)> =
            view.members().iter().map(|m| (m.address, m.status)).collect();
        self.step(silo, |directory, now| directory.handle_view(now, view.version(), &members, fading));
    }

    /// A message from another silo's directory.
    pub(crate) fn receive(&self, silo: &Arc<SiloCore>, from: SiloAddress, message: Message) {
        self.step(silo, |directory, now| directory.handle_message(now, from, message));
    }

    fn step(&self, silo: &Arc<SiloCore>, step: impl FnOnce(&mut Directory, Instant)) {
        {
            let mut machine = self.machine.lock();
            step(&mut machine.directory, silo.clock.mono());
            machine.execute(silo);
        }
        self.changed.notify_one();
    }

    /// Drives the machine's timeouts, for ever.
    pub(crate) async fn drive(&self, silo: Arc<SiloCore>) {
        loop {
            let due = self.machine.lock().directory.poll_timeout();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = silo.clock.sleep_until(due) => self.step(&silo, Directory::handle_timeout),
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

    /// Executes every effect, in order, under the machine's lock: a completed registration is noted before a
    /// later report reads the notes.
    fn execute(&mut self, silo: &Arc<SiloCore>) {
        while let Some(effect) = self.directory.poll_effect() {
            match effect {
                Effect::Send { to, message } => silo.post(to, channel::DIRECTORY, &message),
                Effect::Complete { token, outcome } => self.complete(silo, token, outcome),
                Effect::ReportLocal { report, ranges } => {
                    let entries = silo.catalog.registered_in(&ranges);
                    self.directory.handle_local_report(silo.clock.mono(), report, entries);
                }
                Effect::Evict { grain, activation } => {
                    if let Some(found) = silo.catalog.get(&grain).filter(|a| a.number() == activation) {
                        tracing::warn!(%grain, "another activation of the grain exists: this one goes");
                        found.set_registered(false);
                        found.as_any().deactivate(DeactivationReason::Duplicate);
                    }
                }
            }
        }
    }

    fn complete(&mut self, silo: &Arc<SiloCore>, token: Token, outcome: Outcome) {
        let Some(waiting) = self.waiting.remove(&token) else { return };
        if let (Outcome::Registered, Some((grain, number))) = (&outcome, &waiting.registers)
            && let Some(activation) = silo.catalog.get(grain).filter(|a| a.number() == *number)
        {
            activation.set_registered(true);
        }
        let _ = waiting.done.send(outcome);
    }
}

/// Tells the machine when nobody waits any more.
struct Forget<'a> {
    service: &'a DirectoryService,
    silo: &'a Arc<SiloCore>,
    token: Option<Token>,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            let mut machine = self.service.machine.lock();
            machine.waiting.remove(&token);
            machine.directory.forget(self.silo.clock.mono(), token);
            machine.execute(self.silo);
        }
    }
}
