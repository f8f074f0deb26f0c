//! The machine: its parts, the shell's commands, its getters.
//!
//! No part knows another. A part leaves a request to the others in [`Out`], as an event; the
//! machine hands it on before it does anything else (`acts.rs`). `views.rs` has the consequences of
//! a view in all parts, in order.

mod acts;
mod views;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::api::{Config, Effect, FailReason, Outcome, ReportId, Token};
use crate::facts::Facts;
use crate::handover::Handover;
use crate::lists::Lists;
use crate::message::{Message, Operation};
use crate::out::{Out, Timer};
use crate::owner::Owner;
use crate::ranges::RangeSet;
use crate::recovery::Recoveries;
use crate::recovery::answering::Answering;
use crate::recovery::collecting::Collecting;
use crate::registration::Registration;
use crate::requester::{Requester, outcome_of};

/// One silo's part of the grain directory: owner of its ranges, and requester to the other owners.
///
/// See the [crate's page](crate) for the rules and why they are safe. Feed it commands, views,
/// messages and time; after each, drain [`poll_effect`](Self::poll_effect) and look at
/// [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Directory {
    facts: Facts,
    out: Out,
    owner: Owner,
    requester: Requester,
    recoveries: Recoveries,
    answering: Answering,
    collecting: Collecting,
    handover: Handover,
    lists: Lists,
    closed: bool,
}

impl Directory {
    /// The directory of the silo `me`, with no view yet: every command fails with
    /// [`NoActiveSilo`](FailReason::NoActiveSilo) until the first
    /// [`handle_view`](Self::handle_view).
    pub fn new(me: SiloAddress, config: Config, now: Instant) -> Self {
        Self {
            facts: Facts::new(me, config, now),
            out: Out::default(),
            owner: Owner::default(),
            requester: Requester::default(),
            recoveries: Recoveries::default(),
            answering: Answering::default(),
            collecting: Collecting::default(),
            handover: Handover::default(),
            lists: Lists::default(),
            closed: false,
        }
    }

    // ---- commands
    // ---------------------------------------------------------------------------------------------------

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

    /// Asks that this silo's `activation` be the one activation of `grain` in the place of exactly
    /// the registration `instead`: the step that moves a grain. Answered like
    /// [`register`](Self::register), or `Absent`.
    ///
    /// Before the call the silo of `instead` has run the last turn of that activation, and no
    /// longer reports it as confirmed; and it [`may_move`](Self::may_move). `view` is the version
    /// of that silo's view at that moment.
    pub fn replace(
        &mut self,
        now: Instant,
        token: Token,
        grain: &GrainId,
        activation: u64,
        (instead, view): (Registration, u64),
    ) -> Option<Outcome> {
        self.command(now, Some(token), grain, Operation::Replace { activation, instead, view })
    }

    /// Removes the registration of `grain` if it is exactly this silo's `activation`. Before the
    /// call the activation has run its last turn and is no longer confirmed. Retried for
    /// `unregister_timeout`; without a `token` the machine reports nothing.
    pub fn unregister(
        &mut self,
        now: Instant,
        token: Option<Token>,
        grain: &GrainId,
        activation: u64,
    ) -> Option<Outcome> {
        self.requester.forget_echo(grain, activation);
        self.command(now, token, grain, Operation::Unregister(activation))
    }

    /// The caller of `token` gave up. A registration on its way is withdrawn; a removal continues.
    ///
    /// True: no `Complete` with this token will follow. False: the command is done, and its
    /// `Complete` may still be in the queue (the shell unregisters a `Registered` in it).
    pub fn forget(&mut self, now: Instant, token: Token) -> bool {
        self.facts.pass(now);
        self.requester.forget(&self.facts, &mut self.out, token)
    }

    fn command(
        &mut self,
        now: Instant,
        token: Option<Token>,
        grain: &GrainId,
        operation: Operation,
    ) -> Option<Outcome> {
        self.facts.pass(now);
        if self.closed {
            return Some(Outcome::Failed(FailReason::Closed));
        }
        let me = self.facts.me();
        if self.may_serve(grain, operation) {
            return outcome_of(self.owner.serve(&self.facts, me, grain, operation));
        }
        if self.facts.ring().is_empty() {
            return Some(Outcome::Failed(FailReason::NoActiveSilo));
        }
        if self.requester.len() >= self.facts.config().pending_max {
            return Some(Outcome::Failed(FailReason::TooManyPending));
        }
        self.requester.begin(&self.facts, &mut self.out, token, grain, operation);
        None
    }

    // ---- inputs
    // -----------------------------------------------------------------------------------------------------

    /// Takes what another silo's directory sent.
    pub fn handle_message(&mut self, now: Instant, from: SiloAddress, message: Message) {
        self.facts.pass(now);
        if !self.closed {
            self.hear(from, message);
            self.drain();
        }
    }

    /// The shell's answer to [`Effect::ReportLocal`]: the confirmed local activations in its
    /// ranges. Activations that are being unregistered are left out. A report that nothing waits
    /// for is ignored.
    pub fn handle_local_report(
        &mut self,
        now: Instant,
        report: ReportId,
        entries: Vec<(GrainId, u64)>,
    ) {
        self.facts.pass(now);
        let removed = self.requester.being_removed();
        self.answering.on_local_report(&self.facts, &mut self.out, report, entries, &removed);
        self.drain();
    }

    /// The connection to `silo` broke or was replaced: messages and answers on it may be lost. Each
    /// command that waits for the silo is sent again now, but not twice in a row; then its retry
    /// time has to come.
    pub fn handle_broken_way(&mut self, now: Instant, silo: SiloAddress) {
        self.facts.pass(now);
        self.requester.on_broken_way(&self.facts, &mut self.out, silo);
    }

    /// Runs due work.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.facts.pass(now);
        while let Some(timer) = self.out.pop_due(now) {
            let (facts, out) = (&self.facts, &mut self.out);
            match timer {
                Timer::Op(id) => self.requester.on_due(facts, out, id),
                Timer::Recovery(id) => {
                    let collects = |view| self.collecting.collects(view);
                    self.recoveries.on_due(facts, out, id, collects);
                }
                Timer::Collection(view) => self.collecting.on_due(facts, out, view),
                Timer::Snapshots(view) => self.handover.on_due(view),
                Timer::Stream(series) => self.lists.on_due(series),
                Timer::Fading => self.fading_due(),
            }
            self.drain();
        }
    }

    // ---- outputs
    // ----------------------------------------------------------------------------------------------------

    /// The next thing to do, in order.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.take_effect()
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.out.next_timer()
    }

    // ---- getters
    // ----------------------------------------------------------------------------------------------------

    /// Returns true if this silo answers for `grain` right now: owned by the installed view, not
    /// locked, and not registered for a silo that is [fading](Self::is_fading).
    pub fn serves(&self, grain: &GrainId) -> bool {
        self.may_serve(grain, Operation::Lookup)
    }

    /// A removal says that the activation has run its last turn: it need not wait for fading silos.
    fn may_serve(&self, grain: &GrainId, operation: Operation) -> bool {
        let removal = operation.removes().is_some();
        self.facts.owned().covers(grain)
            && operation.view() <= self.facts.version()
            && !self.is_locked(grain)
            && (removal || !self.is_fading(grain))
    }

    /// Returns true if the memory of this silo's confirmed `activation` may be sent to another
    /// silo: no attempt to register it is left that could do so again.
    pub fn may_move(&self, grain: &GrainId, activation: u64) -> bool {
        !self.closed && !self.requester.has_echo(grain, activation)
    }

    /// Returns true if `grain`'s range is this silo's and is being recovered.
    pub fn is_locked(&self, grain: &GrainId) -> bool {
        self.recoveries.locks(grain)
    }

    /// Returns true if `grain` is registered here for a silo that is Dead and may still run turns.
    /// Nothing but a removal is served for it until that is over.
    pub fn is_fading(&self, grain: &GrainId) -> bool {
        self.owner.is_fading(&self.facts, grain)
    }

    /// Returns true if any of this silo's ranges is being recovered.
    pub fn is_recovering(&self) -> bool {
        !self.recoveries.is_empty()
    }

    /// Returns true if another silo has yet to take what this one gave up: a silo that leaves may
    /// wait for that.
    pub fn is_handing_over(&self) -> bool {
        !self.handover.is_empty() || self.lists.hands_over()
    }

    /// The owner of `grain` by the installed view; none when no silo is Active.
    pub fn owner_of(&self, grain: &GrainId) -> Option<SiloAddress> {
        self.facts.owner_of(grain)
    }

    /// Ranges that this silo owns by the installed view, locked or not.
    pub const fn owned_ranges(&self) -> &RangeSet {
        self.facts.owned()
    }

    /// The version of the installed view; 0 before the first.
    pub const fn view_version(&self) -> u64 {
        self.facts.version()
    }

    /// Number of registrations that this silo holds as owner.
    pub fn entries_count(&self) -> usize {
        self.owner.len()
    }

    /// Every registration this silo holds as owner, in no particular but a repeatable order.
    pub fn entries(&self) -> impl Iterator<Item = (&GrainId, Registration)> + '_ {
        self.owner.iter()
    }

    /// Registration of `grain` that this silo holds as owner, served or not.
    pub fn entry(&self, grain: &GrainId) -> Option<Registration> {
        self.owner.get(grain)
    }

    /// Unfinished work, in words; none for a directory at rest, which only keeps registrations.
    pub fn unfinished(&self) -> Option<&'static str> {
        let kept = [
            (self.recoveries.is_empty(), "a range is locked"),
            (self.requester.len() == 0, "a command waits"),
            (self.answering.is_idle(), "a question is being answered"),
            (self.answering.has_no_deferred(), "a question waits for its view"),
            (self.collecting.is_empty(), "a loss is being collected"),
            (self.collecting.has_nothing_early(), "what was told waits for its view"),
            (!self.handover.has_takers(), "a new owner waits for its view"),
            (self.lists.is_empty(), "a list is being sent"),
            (self.handover.is_empty(), "a new owner has not taken what is kept for it"),
            (self.facts.fading().is_empty(), "a silo fades"),
        ];
        kept.into_iter().find(|(is_done, _)| !is_done).map(|(_, what)| what)
    }

    /// Number of commands that wait for an answer.
    pub fn pending_count(&self) -> usize {
        self.requester.len()
    }

    /// Returns true if this silo was found Dead or missing in a view: nothing is served or asked
    /// from then on.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }
}
