//! The requester's side: commands that wait, their attempts, retries and deadlines.

mod waves;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use emmer_core::{GrainId, Instant, SiloAddress};

use self::waves::Waves;
use crate::api::{Config, FailReason, Outcome, Token};
use crate::facts::Facts;
use crate::message::{Answer, Ask, Operation};
use crate::out::{Out, Timer};
use crate::ranges::RangeSet;

/// The commands of this silo.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    /// Operations that wait for an answer, by the number of their current attempt.
    ops: BTreeMap<u64, Op>,
    tokens: BTreeMap<Token, u64>,
    /// The attempts on their way.
    waves: Waves,
    /// Registrations that were granted while another attempt was unanswered: the attempt may still
    /// arrive, and register the activation again.
    echoes: BTreeSet<(GrainId, u64)>,
}

/// A command that waits for an answer.
#[derive(Clone, Debug)]
struct Op {
    token: Option<Token>,
    grain: GrainId,
    operation: Operation,
    /// The owner it waits for; this silo itself while the range is locked.
    target: SiloAddress,
    /// True if any attempt ever left this silo: then a registration may exist and has to be
    /// withdrawn.
    sent: bool,
    /// Number of attempts without an answer: each may still arrive somewhere.
    unanswered: u32,
    /// Number of refusals of the owner in a row.
    refusals: u32,
    /// The owner has a newer view: worth another attempt as soon as a view arrives.
    wrong_view: bool,
    /// The latest attempt was made because the way to the owner had broken.
    hurried: bool,
    deadline: Instant,
    due: Instant,
}

impl Op {
    /// Notes an attempt, the command's number `id`, which is due again at `resend`. Returns the
    /// request that it sends; none if the command waits for `me`.
    fn attempted(&mut self, me: SiloAddress, id: u64, resend: Instant) -> Option<Ask> {
        if self.target == me {
            self.due = self.deadline;
            return None;
        }
        self.sent = true;
        self.unanswered = self.unanswered.saturating_add(1);
        self.wrong_view = false;
        self.hurried = false;
        self.due = resend.min(self.deadline);
        Some(Ask { id, operation: self.operation, grain: self.grain.clone() })
    }
}

impl Requester {
    /// Number of commands that wait for an answer.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Takes a command that cannot be answered at once. The ring is not empty.
    pub(crate) fn begin(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        token: Option<Token>,
        grain: &GrainId,
        operation: Operation,
    ) {
        let target = facts.owner_of(grain).unwrap_or_else(|| facts.me());
        let deadline = facts.now() + patience(facts.config(), operation);
        let id = out.next_number();
        let op = Op {
            token,
            grain: grain.clone(),
            operation,
            target,
            sent: false,
            unanswered: 0,
            refusals: 0,
            wrong_view: false,
            hurried: false,
            deadline,
            due: deadline,
        };
        self.set_off(facts, out, id, op);
    }

    /// The caller of `token` gave up. Returns false if the command is done.
    pub(crate) fn forget(&mut self, facts: &Facts, out: &mut Out, token: Token) -> bool {
        let Some(id) = self.tokens.remove(&token) else { return false };
        let Some(op) = self.ops.get_mut(&id) else { return false };
        op.token = None;
        if op.operation.removes().is_none() {
            self.give_up(facts, out, id);
        }
        true
    }

    /// Enters a command, and makes its first attempt. Its timer is set once.
    fn set_off(&mut self, facts: &Facts, out: &mut Out, id: u64, mut op: Op) {
        let ask = op.attempted(facts.me(), id, facts.now() + facts.config().resend_interval);
        let target = op.target;
        if let Some(token) = op.token {
            self.tokens.insert(token, id);
        }
        out.set(op.due, Timer::Op(id));
        self.ops.insert(id, op);
        if let Some(ask) = ask {
            self.waves.send(facts, out, target, ask);
        }
    }

    fn take(&mut self, out: &mut Out, id: u64) -> Option<Op> {
        let op = self.ops.remove(&id)?;
        out.clear(op.due, Timer::Op(id));
        if let Some(token) = op.token {
            self.tokens.remove(&token);
        }
        Some(op)
    }

    fn set_due(&mut self, out: &mut Out, id: u64, due: Instant) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        out.clear(op.due, Timer::Op(id));
        op.due = due.min(op.deadline);
        out.set(op.due, Timer::Op(id));
    }

    /// Sends the attempt to its target. An attempt at this silo itself waits for the unlocking.
    fn attempt(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        out.clear(op.due, Timer::Op(id));
        let ask = op.attempted(facts.me(), id, facts.now() + facts.config().resend_interval);
        let target = op.target;
        out.set(op.due, Timer::Op(id));
        if let Some(ask) = ask {
            self.waves.send(facts, out, target, ask);
        }
    }

    /// Gives the command a new number and sends it to the owner of now: answers to older attempts
    /// do not count.
    fn reissue(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(mut op) = self.take(out, id) else { return };
        let Some(target) = facts.owner_of(&op.grain) else {
            out.complete(op.token, Outcome::Failed(FailReason::NoActiveSilo));
            return;
        };
        op.target = target;
        op.refusals = 0;
        let id = out.next_number();
        self.set_off(facts, out, id, op);
    }

    /// The connection to `silo` broke or was replaced: messages and answers on it may be lost. Each
    /// command that waits for the silo is sent again now, but not twice in a row; then its retry
    /// time has to come.
    pub(crate) fn on_broken_way(&mut self, facts: &Facts, out: &mut Out, silo: SiloAddress) {
        self.waves.lost(facts, out, silo);
        let waits = |op: &Op| op.target == silo && op.unanswered > 0 && !op.hurried;
        let ids: Vec<u64> =
            self.ops.iter().filter(|(_, op)| waits(op)).map(|(id, _)| *id).collect();
        for id in ids {
            self.attempt(facts, out, id);
            if let Some(op) = self.ops.get_mut(&id) {
                op.hurried = true;
            }
        }
    }

    /// A view was installed: commands follow their grains to the new owners, in the order they were
    /// given.
    pub(crate) fn follow_view(&mut self, facts: &Facts, out: &mut Out) {
        let ids: Vec<u64> = self.ops.keys().copied().collect();
        for id in ids {
            let Some(op) = self.ops.get(&id) else { continue };
            if facts.owner_of(&op.grain) != Some(op.target) {
                self.reissue(facts, out, id);
            } else if op.wrong_view {
                self.attempt(facts, out, id);
            }
        }
    }

    /// This silo is about to report its activations in `ranges`: grants on their way there must not
    /// count.
    pub(crate) fn disown_grants(&mut self, facts: &Facts, out: &mut Out, ranges: &RangeSet) {
        let ids: Vec<u64> =
            self.ops.iter().filter(|(_, op)| ranges.covers(&op.grain)).map(|(id, _)| *id).collect();
        for id in ids {
            self.reissue(facts, out, id);
        }
    }

    /// This silo's own commands that wait for an unlocking and can be served by now, in the order
    /// they were given.
    pub(crate) fn served_here(
        &self,
        facts: &Facts,
        may_serve: impl Fn(&GrainId, Operation) -> bool,
    ) -> Vec<u64> {
        let own = self.ops.iter().filter(|(_, op)| op.target == facts.me());
        own.filter(|(_, op)| may_serve(&op.grain, op.operation)).map(|(id, _)| *id).collect()
    }

    /// Ends the command `id`, which waited for this silo, with what `serve` answers.
    pub(crate) fn settle(
        &mut self,
        out: &mut Out,
        id: u64,
        serve: impl FnOnce(&GrainId, Operation) -> Answer,
    ) {
        let Some(op) = self.take(out, id) else { return };
        if let Some(outcome) = outcome_of(serve(&op.grain, op.operation)) {
            self.note_echo(&op, outcome);
            out.complete(op.token, outcome);
        }
    }

    /// The view is about to end: what waits to be sent was asked in it.
    pub(crate) fn send_all(&mut self, facts: &Facts, out: &mut Out) {
        self.waves.send_all(facts, out);
    }

    /// The owner's answers to one message.
    pub(crate) fn on_responses(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        answers: Vec<(u64, Answer)>,
    ) {
        for (id, answer) in answers {
            self.on_response(facts, out, from, id, answer);
        }
        self.waves.answered(facts, out, from);
    }

    fn on_response(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        id: u64,
        answer: Answer,
    ) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.target == from) else { return };
        op.unanswered = op.unanswered.saturating_sub(1);
        if let Answer::Taken(held) = answer
            && held.silo == facts.me()
        {
            // Our own earlier activation, whose removal was refused for the moment and will be sent
            // again.
            let (grain, held) = (op.grain.clone(), held.activation);
            if self.is_being_removed(&grain, held) {
                self.refused(facts, out, id, false);
                return;
            }
        }
        match outcome_of(answer) {
            Some(outcome) => self.conclude(facts, out, id, outcome),
            None => self.refused(facts, out, id, answer == Answer::WrongView),
        }
    }

    /// The command's outcome is known. A refused registration is withdrawn if another attempt of it
    /// is still on its way: the grain may be free by then.
    fn conclude(&mut self, facts: &Facts, out: &mut Out, id: u64, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let token = op.token.take();
        if let Some(token) = token {
            self.tokens.remove(&token);
        }
        let withdraws = outcome != Outcome::Registered && op.unanswered > 0;
        out.complete(token, outcome);
        if withdraws {
            self.give_up(facts, out, id);
        } else if let Some(op) = self.take(out, id) {
            self.note_echo(&op, outcome);
        }
    }

    /// A command is done. Notes a registration of which another attempt may still arrive. A
    /// [`Replace`](Operation::Replace) that arrives late finds another registration.
    fn note_echo(&mut self, op: &Op, outcome: Outcome) {
        if let Operation::Register(activation) = op.operation
            && outcome == Outcome::Registered
            && op.unanswered > 0
        {
            self.echoes.insert((op.grain.clone(), activation));
        }
    }

    /// Returns true if an attempt to register `activation` may still arrive somewhere.
    pub(crate) fn has_echo(&self, grain: &GrainId, activation: u64) -> bool {
        !self.echoes.is_empty() && self.echoes.contains(&(grain.clone(), activation))
    }

    /// `activation` is being removed: its removal comes after whatever was sent before.
    pub(crate) fn forget_echo(&mut self, grain: &GrainId, activation: u64) {
        if !self.echoes.is_empty() {
            self.echoes.remove(&(grain.clone(), activation));
        }
    }

    fn is_being_removed(&self, grain: &GrainId, activation: u64) -> bool {
        self.ops
            .values()
            .any(|op| op.operation == Operation::Unregister(activation) && op.grain == *grain)
    }

    /// Every (grain, activation) that this silo is removing.
    pub(crate) fn being_removed(&self) -> BTreeSet<(&GrainId, u64)> {
        self.ops.values().filter_map(|op| Some((&op.grain, op.operation.removes()?))).collect()
    }

    fn refused(&mut self, facts: &Facts, out: &mut Out, id: u64, wrong_view: bool) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.wrong_view = wrong_view;
        let config = facts.config();
        let delay = config.retry_min.saturating_mul(2u32.saturating_pow(op.refusals));
        op.refusals = op.refusals.saturating_add(1);
        self.set_due(out, id, facts.now() + delay.min(config.retry_max));
    }

    /// The attempt's time has come: another one, or the end.
    pub(crate) fn on_due(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if facts.now() < op.deadline {
            if op.unanswered > 0 {
                let target = op.target;
                self.waves.lost(facts, out, target);
            }
            self.attempt(facts, out, id);
            return;
        }
        let token = op.token.take();
        if let Some(token) = token {
            self.tokens.remove(&token);
        }
        out.complete(token, Outcome::Failed(FailReason::TimedOut));
        self.give_up(facts, out, id);
    }

    /// Ends a command that no caller waits for: a registration that may have been granted is
    /// withdrawn.
    fn give_up(&mut self, facts: &Facts, out: &mut Out, id: u64) {
        let Some(mut op) = self.take(out, id) else { return };
        if let Some(activation) = op.operation.registers()
            && op.sent
        {
            op.operation = Operation::Unregister(activation);
            op.deadline = facts.now() + facts.config().unregister_timeout;
            op.refusals = 0;
            let id = out.next_number();
            self.set_off(facts, out, id, op);
        }
    }

    /// This silo is out: every command fails.
    pub(crate) fn fail_all(&mut self, out: &mut Out, reason: FailReason) {
        let ops = std::mem::take(&mut self.ops);
        self.tokens.clear();
        self.echoes.clear();
        self.waves = Waves::default();
        for op in ops.into_values() {
            out.complete(op.token, Outcome::Failed(reason));
        }
    }
}

const fn patience(config: &Config, operation: Operation) -> Duration {
    if operation.removes().is_some() { config.unregister_timeout } else { config.op_timeout }
}

/// The command's outcome that an answer stands for; none for "try again".
pub(crate) const fn outcome_of(answer: Answer) -> Option<Outcome> {
    match answer {
        Answer::Found(registration) => Some(Outcome::Found(registration)),
        Answer::Registered => Some(Outcome::Registered),
        Answer::Taken(registration) => Some(Outcome::Taken(registration)),
        Answer::Absent => Some(Outcome::Absent),
        Answer::Unregistered => Some(Outcome::Unregistered),
        Answer::Full => Some(Outcome::Failed(FailReason::Full)),
        Answer::Busy | Answer::WrongView => None,
    }
}
