//! The machine: its state, the shell's commands, its getters.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use emmer_core::ring::Ring;
use emmer_core::{GrainId, Instant, SiloAddress};

use crate::answering::Question;
use crate::api::{Config, Effect, FailReason, Outcome, Registration, ReportId, Token};
use crate::collecting::{Collection, Early};
use crate::entries::Entries;
use crate::handover::Snapshot;
use crate::message::{Answer, Message, Operation};
use crate::pending::{Op, Timer};
use crate::ranges::RangeSet;
use crate::recovery::Recovery;
use crate::silos::Silos;
use crate::streams::Stream;

/// One silo's part of the grain directory: owner of its ranges, and requester to the other owners.
///
/// See the [crate's page](crate) for the rules and why they are safe. Feed it commands, views,
/// messages and time; after each, drain [`poll_effect`](Self::poll_effect) and look at
/// [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Directory {
    pub(crate) me: SiloAddress,
    pub(crate) config: Config,
    /// The version of the installed view; 0: none yet.
    pub(crate) version: u64,
    pub(crate) silos: Silos,
    pub(crate) ring: Ring,
    pub(crate) closed: bool,
    /// What this silo owns by the installed view.
    pub(crate) owned: RangeSet,
    pub(crate) entries: Entries,
    /// By this silo's number for the recovery. A hash in any of them is locked.
    pub(crate) recoveries: BTreeMap<u64, Recovery>,
    /// Commands that wait for an answer, by the number of their current attempt.
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) tokens: BTreeMap<Token, u64>,
    /// Recovery questions being answered: the shell collects activations.
    pub(crate) answering: BTreeMap<ReportId, Question>,
    /// Recovery questions that name a view this silo has not installed, by asker and its number.
    pub(crate) deferred: BTreeMap<(SiloAddress, u64), Question>,
    /// As a collector: what hosts tell of the losses of a view, by its version.
    pub(crate) collections: BTreeMap<u64, Collection>,
    /// What hosts told of losses of views that are not installed yet.
    pub(crate) early: Early,
    /// What this silo had as it lost ranges, by the version of the view and the new owner.
    pub(crate) snapshots: BTreeMap<(u64, SiloAddress), Snapshot>,
    /// New owners that have installed a view which this silo has not.
    pub(crate) takers: BTreeSet<(u64, SiloAddress)>,
    /// Lists being sent, by their number.
    pub(crate) streams: BTreeMap<u64, Stream>,
    /// Silos that are Dead and may still run turns, and until when.
    pub(crate) fading: BTreeMap<SiloAddress, Instant>,
    pub(crate) timers: BTreeSet<(Instant, Timer)>,
    pub(crate) effects: VecDeque<Effect>,
    /// The last number given to an attempt, a recovery or a report.
    pub(crate) last_number: u64,
}

impl Directory {
    /// The directory of the silo `me`, with no view yet: every command fails with
    /// [`NoActiveSilo`](FailReason::NoActiveSilo) until the first
    /// [`handle_view`](Self::handle_view).
    pub fn new(me: SiloAddress, config: Config, _now: Instant) -> Self {
        Self {
            me,
            version: 0,
            silos: Silos::default(),
            ring: Ring::with_points([], 0, config.points_per_silo),
            closed: false,
            owned: RangeSet::default(),
            entries: Entries::default(),
            recoveries: BTreeMap::new(),
            ops: BTreeMap::new(),
            tokens: BTreeMap::new(),
            answering: BTreeMap::new(),
            deferred: BTreeMap::new(),
            collections: BTreeMap::new(),
            early: Early::default(),
            snapshots: BTreeMap::new(),
            takers: BTreeSet::new(),
            streams: BTreeMap::new(),
            fading: BTreeMap::new(),
            timers: BTreeSet::new(),
            effects: VecDeque::new(),
            last_number: 0,
            config,
        }
    }

    /// Asks where `grain` is. Answered at once when this silo owns the grain's range and it is not
    /// locked, else by an [`Effect::Complete`] with `token`.
    pub fn lookup(&mut self, now: Instant, token: Token, grain: &GrainId) -> Option<Outcome> {
        self.command(now, Some(token), grain, Operation::Lookup)
    }

    /// Asks that this silo's `activation` be the one activation of `grain`. Answered like
    /// [`lookup`](Self::lookup). From the moment the shell sees `Registered` the activation is
    /// *confirmed*: it may run turns, and reports name it. The shell marks it confirmed before
    /// anything else can call the directory.
    ///
    /// Each activation number is registered once; a second call with the same number before any
    /// `unregister` or failure is answered alike.
    pub fn register(
        &mut self,
        now: Instant,
        token: Token,
        grain: &GrainId,
        activation: u64,
    ) -> Option<Outcome> {
        self.command(now, Some(token), grain, Operation::Register(activation))
    }

    /// Removes the registration of `grain` if it is exactly this silo's `activation`. Before the
    /// call the activation has run its last turn and is confirmed no more. Retried for
    /// `unregister_timeout`; without a `token` nobody is told.
    pub fn unregister(
        &mut self,
        now: Instant,
        token: Option<Token>,
        grain: &GrainId,
        activation: u64,
    ) -> Option<Outcome> {
        self.command(now, token, grain, Operation::Unregister(activation))
    }

    /// The caller of `token` gave up. A registration on its way is withdrawn; a removal goes on.
    ///
    /// True: no `Complete` with this token will follow. False: the command is done, and its
    /// `Complete`, if it has not been polled yet, is in the queue (a `Registered` in it is for the
    /// shell to unregister).
    pub fn forget(&mut self, now: Instant, token: Token) -> bool {
        let Some(id) = self.tokens.remove(&token) else { return false };
        let Some(op) = self.ops.get_mut(&id) else { return false };
        op.token = None;
        match op.operation {
            Operation::Unregister(_) => {}
            Operation::Lookup | Operation::Register(_) => self.give_up(now, id),
        }
        true
    }

    fn command(
        &mut self,
        now: Instant,
        token: Option<Token>,
        grain: &GrainId,
        operation: Operation,
    ) -> Option<Outcome> {
        if self.closed {
            return Some(Outcome::Failed(FailReason::Closed));
        }
        if self.may_serve(grain, operation) {
            return outcome_of(self.serve(self.me, grain, operation));
        }
        if self.ring.is_empty() {
            return Some(Outcome::Failed(FailReason::NoActiveSilo));
        }
        if self.ops.len() >= self.config.pending_max {
            return Some(Outcome::Failed(FailReason::TooManyPending));
        }
        self.begin(now, token, grain, operation);
        None
    }

    /// Takes what another silo's directory sent.
    pub fn handle_message(&mut self, now: Instant, from: SiloAddress, message: Message) {
        if self.closed {
            return;
        }
        match message {
            Message::Request { id, view, operation, grain } => {
                let answer = self.answer(from, view, &grain, operation);
                self.send(from, Message::Response { id, view: self.version, answer });
            }
            Message::Response { id, answer, .. } => self.handle_response(now, from, id, answer),
            Message::Recover { recovery, view, ranges } => {
                self.handle_recover(
                    now,
                    Question {
                        to: from,
                        recovery,
                        view,
                        ranges: RangeSet::from_ring_ranges(&ranges),
                    },
                );
            }
            Message::Report { recovery, view, series, batch, last, entries } => {
                self.handle_report(now, from, recovery, (view, series, batch, last), entries);
            }
            Message::Credit { series, batches } => self.advance_stream(now, from, series, batches),
            Message::Collected { view, at, series, batch, last, missing, entries } => {
                self.handle_collected(
                    now,
                    from,
                    (series, batch),
                    (view, at, last),
                    &missing,
                    entries,
                );
            }
            Message::Await { view } => self.handle_await(now, from, view),
            Message::Awaited { view, known } => self.handle_awaited(now, from, view, known),
            Message::Take { view } => self.handle_take(now, from, view),
            Message::Handed { view, series, batch, last, fading, entries } => {
                self.handle_handed(now, from, (series, batch), (view, last), &fading, entries);
            }
            Message::Unheld { view } => self.handle_unheld(now, from, view),
            Message::Evict { grain, activation } => {
                self.effects.push_back(Effect::Evict { grain, activation });
            }
        }
    }

    /// As the owner, to one request: the serving rule of the crate's page.
    fn answer(
        &mut self,
        from: SiloAddress,
        view: u64,
        grain: &GrainId,
        operation: Operation,
    ) -> Answer {
        if view > self.version {
            return Answer::Busy;
        }
        if !self.owned.covers(grain) {
            return Answer::WrongView;
        }
        if !self.may_serve(grain, operation) {
            return Answer::Busy;
        }
        if matches!(operation, Operation::Register(_)) && !self.is_host(&from) {
            return Answer::WrongView;
        }
        self.serve(from, grain, operation)
    }

    /// Executes `operation` of `from` on the entries. The caller has made sure that this silo
    /// serves `grain`.
    pub(crate) fn serve(
        &mut self,
        from: SiloAddress,
        grain: &GrainId,
        operation: Operation,
    ) -> Answer {
        let held = self.entries.get(grain);
        match operation {
            Operation::Lookup => Answer::Found(held),
            Operation::Register(activation) => {
                let wanted = Registration { silo: from, activation };
                match held {
                    Some(held) if held == wanted => Answer::Registered,
                    Some(held) => Answer::Taken(held),
                    None if self.entries.len() >= self.config.entries_max => Answer::Full,
                    None => {
                        self.entries.insert(grain, wanted);
                        Answer::Registered
                    }
                }
            }
            Operation::Unregister(activation) => {
                if held == Some(Registration { silo: from, activation }) {
                    self.entries.remove(grain);
                }
                Answer::Unregistered
            }
        }
    }

    /// Runs what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((due, timer)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.remove(&(due, timer));
            match timer {
                Timer::Op(id) => self.op_due(now, id),
                Timer::Recovery(id) => self.recovery_due(now, id),
                Timer::Collection(view) => self.collection_due(now, view),
                Timer::Snapshots(view) => self.snapshots_due(view),
                Timer::Stream(series) => self.stream_due(series),
                Timer::Fading => self.fading_due(now),
            }
        }
    }

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    pub(crate) fn send(&mut self, to: SiloAddress, message: Message) {
        self.effects.push_back(Effect::Send { to, message });
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether `silo` may host activations by the installed view: Active, or leaving and not yet
    /// Dead.
    pub(crate) fn is_host(&self, silo: &SiloAddress) -> bool {
        self.silos.is_host(silo)
    }

    /// Whether this silo answers for `grain` right now: owned by the installed view, not locked,
    /// and not registered for a silo that is [fading](Self::is_fading).
    pub fn serves(&self, grain: &GrainId) -> bool {
        self.may_serve(grain, Operation::Lookup)
    }

    /// A removal tells that the activation has run its last turn: it need not wait for what fades.
    pub(crate) fn may_serve(&self, grain: &GrainId, operation: Operation) -> bool {
        let removal = matches!(operation, Operation::Unregister(_));
        self.owned.covers(grain) && !self.is_locked(grain) && (removal || !self.is_fading(grain))
    }

    /// Whether `grain`'s range is this silo's and is being recovered.
    pub fn is_locked(&self, grain: &GrainId) -> bool {
        self.recoveries.values().any(|recovery| recovery.ranges.covers(grain))
    }

    /// Whether any of this silo's ranges is being recovered.
    pub fn is_recovering(&self) -> bool {
        !self.recoveries.is_empty()
    }

    /// The owner of `grain` by the installed view; none when no silo is Active.
    pub fn owner_of(&self, grain: &GrainId) -> Option<SiloAddress> {
        self.ring.owner(grain.stable_hash())
    }

    /// What this silo owns by the installed view, locked or not.
    pub const fn owned_ranges(&self) -> &RangeSet {
        &self.owned
    }

    /// The version of the installed view; 0 before the first.
    pub const fn view_version(&self) -> u64 {
        self.version
    }

    /// How many registrations this silo holds as owner.
    pub fn entries_count(&self) -> usize {
        self.entries.len()
    }

    /// Every registration this silo holds as owner, in no particular but a repeatable order.
    pub fn entries(&self) -> impl Iterator<Item = (&GrainId, Registration)> + '_ {
        self.entries.iter()
    }

    /// What this silo holds as owner for `grain`, served or not.
    pub fn entry(&self, grain: &GrainId) -> Option<Registration> {
        self.entries.get(grain)
    }

    /// What is not finished here, in words: none for a directory at rest, which keeps registrations
    /// and nothing else.
    pub fn unfinished(&self) -> Option<&'static str> {
        let kept = [
            (self.recoveries.is_empty(), "a range is locked"),
            (self.ops.is_empty(), "a command waits"),
            (self.answering.is_empty(), "a question is being answered"),
            (self.deferred.is_empty(), "a question waits for its view"),
            (self.collections.is_empty(), "a loss is being collected"),
            (self.early.is_empty(), "what was told waits for its view"),
            (self.takers.is_empty(), "a new owner waits for its view"),
            (self.streams.is_empty(), "a list is being sent"),
            (self.snapshots.is_empty(), "a new owner has not taken what is kept for it"),
            (self.fading.is_empty(), "a silo fades"),
        ];
        kept.into_iter().find(|(is_done, _)| !is_done).map(|(_, what)| what)
    }

    /// How many commands wait for an answer.
    pub fn pending_count(&self) -> usize {
        self.ops.len()
    }

    /// Whether this silo was found Dead or missing in a view: nothing is served or asked any more.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }
}

/// The command's outcome that an answer stands for; none for "try again".
pub(crate) const fn outcome_of(answer: Answer) -> Option<Outcome> {
    match answer {
        Answer::Found(registration) => Some(Outcome::Found(registration)),
        Answer::Registered => Some(Outcome::Registered),
        Answer::Taken(registration) => Some(Outcome::Taken(registration)),
        Answer::Unregistered => Some(Outcome::Unregistered),
        Answer::Full => Some(Outcome::Failed(FailReason::Full)),
        Answer::Busy | Answer::WrongView => None,
    }
}
