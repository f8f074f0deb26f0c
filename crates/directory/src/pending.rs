//! The requester's side: commands that wait, their attempts, retries and deadlines.

use std::collections::BTreeSet;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::api::{Effect, FailReason, Outcome, Token};
use crate::directory::{Directory, outcome_of};
use crate::message::{Answer, Message, Operation};
use crate::ranges::RangeSet;

/// What is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The attempt with this number: send again, or give up.
    Op(u64),
    /// The recovery with this number: ask again who has not answered.
    Recovery(u64),
    /// What the view of this version lost is not collected yet: ask who has not told.
    Collection(u64),
    /// Whoever gained something by the view of this version has taken it, or does not come any
    /// more.
    Snapshots(u64),
    /// The receiver of the list with this number has been silent for long.
    Stream(u64),
    /// A silo that is Dead cannot run turns any more.
    Fading,
}

/// A command that waits for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) token: Option<Token>,
    pub(crate) grain: GrainId,
    pub(crate) operation: Operation,
    /// The owner it waits for; this silo itself while the range is locked.
    target: SiloAddress,
    /// Whether any attempt ever left this silo: then a registration may exist and has to be
    /// withdrawn.
    sent: bool,
    /// How many attempts nobody has answered: each may still arrive somewhere.
    unanswered: u32,
    /// How often in a row the owner said "not now".
    refusals: u32,
    /// The owner has a newer view: worth another attempt as soon as a view arrives.
    wrong_view: bool,
    /// The latest attempt was made because the way to the owner had broken.
    hurried: bool,
    deadline: Instant,
    due: Instant,
}

impl Op {
    /// Notes an attempt, which is due again at `resend`. Returns the request that it sends; none
    /// if the command waits for `me`.
    fn attempted(&mut self, me: SiloAddress, resend: Instant) -> Option<(Operation, GrainId)> {
        if self.target == me {
            self.due = self.deadline;
            return None;
        }
        self.sent = true;
        self.unanswered = self.unanswered.saturating_add(1);
        self.wrong_view = false;
        self.hurried = false;
        self.due = resend.min(self.deadline);
        Some((self.operation, self.grain.clone()))
    }
}

impl Directory {
    /// Takes a command that cannot be answered at once. The ring is not empty.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        token: Option<Token>,
        grain: &GrainId,
        operation: Operation,
    ) {
        let target = self.owner_of(grain).unwrap_or(self.me);
        let deadline = now + self.patience(operation);
        let id = self.next_number();
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
        self.set_off(now, id, op);
    }

    /// Enters a command, and makes its first attempt. Its timer is set once.
    fn set_off(&mut self, now: Instant, id: u64, mut op: Op) {
        let request = op.attempted(self.me, now + self.config.resend_interval);
        let target = op.target;
        self.enter(id, op);
        self.send_request(target, id, request);
    }

    const fn patience(&self, operation: Operation) -> std::time::Duration {
        match operation {
            Operation::Lookup | Operation::Register(_) => self.config.op_timeout,
            Operation::Unregister(_) => self.config.unregister_timeout,
        }
    }

    fn enter(&mut self, id: u64, op: Op) {
        if let Some(token) = op.token {
            self.tokens.insert(token, id);
        }
        self.timers.insert((op.due, Timer::Op(id)));
        self.ops.insert(id, op);
    }

    fn take(&mut self, id: u64) -> Option<Op> {
        let op = self.ops.remove(&id)?;
        self.timers.remove(&(op.due, Timer::Op(id)));
        if let Some(token) = op.token {
            self.tokens.remove(&token);
        }
        Some(op)
    }

    fn set_due(&mut self, id: u64, due: Instant) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        self.timers.remove(&(op.due, Timer::Op(id)));
        op.due = due.min(op.deadline);
        self.timers.insert((op.due, Timer::Op(id)));
    }

    /// Sends the attempt to its target; one that waits for this silo itself waits for the
    /// unlocking.
    fn attempt(&mut self, now: Instant, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        self.timers.remove(&(op.due, Timer::Op(id)));
        let request = op.attempted(self.me, now + self.config.resend_interval);
        let target = op.target;
        self.timers.insert((op.due, Timer::Op(id)));
        self.send_request(target, id, request);
    }

    fn send_request(&mut self, to: SiloAddress, id: u64, request: Option<(Operation, GrainId)>) {
        if let Some((operation, grain)) = request {
            self.send(to, Message::Request { id, view: self.version, operation, grain });
        }
    }

    /// Gives the command a new number and sends it to the owner of now: answers to older attempts
    /// count no more.
    fn reissue(&mut self, now: Instant, id: u64) {
        let Some(mut op) = self.take(id) else { return };
        let Some(target) = self.ring.owner(op.grain.stable_hash()) else {
            self.complete(op.token, Outcome::Failed(FailReason::NoActiveSilo));
            return;
        };
        op.target = target;
        op.refusals = 0;
        let id = self.next_number();
        self.set_off(now, id, op);
    }

    /// The way to `silo` has broken, or another one has taken its place: what was sent to it may be
    /// lost, and its answers too. Each command that waits for it is sent again now, but not twice
    /// in a row: then its time has to come.
    pub fn handle_broken_way(&mut self, now: Instant, silo: SiloAddress) {
        let waits = |op: &Op| op.target == silo && op.unanswered > 0 && !op.hurried;
        let ids: Vec<u64> =
            self.ops.iter().filter(|(_, op)| waits(op)).map(|(id, _)| *id).collect();
        for id in ids {
            self.attempt(now, id);
            if let Some(op) = self.ops.get_mut(&id) {
                op.hurried = true;
            }
        }
    }

    /// A view was installed: commands follow their grains to the new owners, in the order they were
    /// given.
    pub(crate) fn follow_view(&mut self, now: Instant) {
        let ids: Vec<u64> = self.ops.keys().copied().collect();
        for id in ids {
            let Some(op) = self.ops.get(&id) else { continue };
            if self.ring.owner(op.grain.stable_hash()) != Some(op.target) {
                self.reissue(now, id);
            } else if op.wrong_view {
                self.attempt(now, id);
            }
        }
        self.settle_own();
    }

    /// This silo is about to report what it has in `ranges`: grants on their way there must not
    /// count.
    pub(crate) fn disown_grants(&mut self, now: Instant, ranges: &RangeSet) {
        let ids: Vec<u64> =
            self.ops.iter().filter(|(_, op)| ranges.covers(&op.grain)).map(|(id, _)| *id).collect();
        for id in ids {
            self.reissue(now, id);
        }
    }

    /// Serves this silo's own commands that waited for an unlocking, in the order they were given.
    pub(crate) fn settle_own(&mut self) {
        let me = self.me;
        let ids: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.target == me && self.may_serve(&op.grain, op.operation))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            let Some(op) = self.take(id) else { continue };
            let answer = self.serve(me, &op.grain, op.operation);
            if let Some(outcome) = outcome_of(answer) {
                self.complete(op.token, outcome);
            }
        }
    }

    fn complete(&mut self, token: Option<Token>, outcome: Outcome) {
        if let Some(token) = token {
            self.effects.push_back(Effect::Complete { token, outcome });
        }
    }

    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        from: SiloAddress,
        id: u64,
        answer: Answer,
    ) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.target == from) else { return };
        op.unanswered = op.unanswered.saturating_sub(1);
        if let Answer::Taken(held) = answer
            && held.silo == self.me
        {
            // Our own earlier activation, whose removal was refused for the moment and will be sent
            // again.
            let (grain, held) = (op.grain.clone(), held.activation);
            if self.is_being_removed(&grain, held) {
                self.refused(now, id, false);
                return;
            }
        }
        match outcome_of(answer) {
            Some(outcome) => self.conclude(now, id, outcome),
            None => self.refused(now, id, answer == Answer::WrongView),
        }
    }

    /// The command's outcome is there. A registration that was refused is withdrawn all the same
    /// when another attempt of it is still on its way: by the time that one arrives the grain may
    /// be free.
    fn conclude(&mut self, now: Instant, id: u64, outcome: Outcome) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        let token = op.token.take();
        if let Some(token) = token {
            self.tokens.remove(&token);
        }
        let withdraws = outcome != Outcome::Registered && op.unanswered > 0;
        self.complete(token, outcome);
        if withdraws {
            self.give_up(now, id);
        } else {
            self.take(id);
        }
    }

    fn is_being_removed(&self, grain: &GrainId, activation: u64) -> bool {
        self.ops
            .values()
            .any(|op| op.operation == Operation::Unregister(activation) && op.grain == *grain)
    }

    /// Every (grain, activation) that this silo is removing.
    pub(crate) fn being_removed(&self) -> BTreeSet<(&GrainId, u64)> {
        self.ops
            .values()
            .filter_map(|op| match op.operation {
                Operation::Unregister(activation) => Some((&op.grain, activation)),
                Operation::Lookup | Operation::Register(_) => None,
            })
            .collect()
    }

    fn refused(&mut self, now: Instant, id: u64, wrong_view: bool) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        op.wrong_view = wrong_view;
        let delay = self.config.retry_min.saturating_mul(2u32.saturating_pow(op.refusals));
        op.refusals = op.refusals.saturating_add(1);
        self.set_due(id, now + delay.min(self.config.retry_max));
    }

    /// The attempt's time has come: another one, or the end.
    pub(crate) fn op_due(&mut self, now: Instant, id: u64) {
        let Some(op) = self.ops.get_mut(&id) else { return };
        if now < op.deadline {
            self.attempt(now, id);
            return;
        }
        let token = op.token.take();
        if let Some(token) = token {
            self.tokens.remove(&token);
        }
        self.complete(token, Outcome::Failed(FailReason::TimedOut));
        self.give_up(now, id);
    }

    /// Ends a command nobody waits for: a registration that may have been granted is withdrawn.
    pub(crate) fn give_up(&mut self, now: Instant, id: u64) {
        let Some(mut op) = self.take(id) else { return };
        if let Operation::Register(activation) = op.operation
            && op.sent
        {
            op.operation = Operation::Unregister(activation);
            op.deadline = now + self.config.unregister_timeout;
            op.refusals = 0;
            let id = self.next_number();
            self.set_off(now, id, op);
        }
    }

    /// This silo is out: every command fails.
    pub(crate) fn fail_all(&mut self, reason: FailReason) {
        let ops = std::mem::take(&mut self.ops);
        self.tokens.clear();
        for op in ops.into_values() {
            self.complete(op.token, Outcome::Failed(reason));
        }
    }
}
