//! The machine: its parts, its inputs, its outputs, and the order between the parts.
//!
//! No part knows another. A part leaves a request to the others in [`Out`], as an event; the
//! machine hands it on before it does anything else (`acts.rs`). Work that takes several parts in
//! order is in the other files of this folder: messages in `hear.rs`, probes and confirmations in
//! `probes.rs`, requests to the table in `table.rs`, views in `views.rs`, the own life in
//! `life.rs`.

mod acts;
mod hear;
mod life;
mod probes;
#[cfg(test)]
mod seen;
mod table;
mod views;

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{ConnectionEvent, DialId, DialOutcome, Effect, HealthSample, OpId, TableOutcome};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::detect::Detect;
use crate::dice::Dice;
use crate::facts::Facts;
use crate::fence::{Fading, Fence};
use crate::join::Join;
use crate::message::Message;
use crate::out::Out;
use crate::table::Table;
use crate::timers::Timer;
use crate::view::View;
use crate::views::{Memo, Views};
use crate::votes::Votes;
use crate::wishes::Wishes;
use crate::write::Write;

/// The membership protocol of one silo, as a state machine without IO.
///
/// There are four kinds of methods.
///
/// * **Commands** of the embedding silo: [`join`](Self::join), [`leave`](Self::leave),
///   [`stop`](Self::stop), [`finish_leave`](Self::finish_leave). Each may be called at any time and
///   at most changes what the machine strives for.
/// * **Inputs**: every `handle_*`. What is late, unknown, repeated or meant for somebody else is
///   ignored.
/// * **Outputs**: [`poll_effect`](Self::poll_effect) and [`poll_timeout`](Self::poll_timeout).
///   After every command and every input, first take effects until there are none and execute them
///   in that order, then ask for the timeout; it replaces the one before. When that time has come
///   call [`handle_timeout`](Self::handle_timeout). Calling it early is harmless.
/// * **Getters**, which change nothing.
///
/// The machine knows only the time that its inputs carry. `now.mono` must never go backwards from
/// one call to the next; `now.wall` may do what wall clocks do. Two machines made with the same
/// arguments and given the same inputs give the same outputs.
///
/// After [`Effect::Terminate`] nothing more comes out, whatever goes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    facts: Facts,
    out: Out,
    join: Join,
    detect: Detect,
    votes: Votes,
    wishes: Wishes,
    write: Write,
    table: Table,
    views: Views,
    fence: Fence,
    fading: Fading,
}

/// Longest time by which the initial IAmAliveTime lies before the start time.
const TWIN_MARK_MS: u64 = 1_000;

/// Time by which a timer may fire late before the machine concludes that its process had been
/// paused.
const PAUSE: Duration = Duration::from_millis(50);

impl Membership {
    /// A silo that has not begun to join. `me` is its row: identity, names and start time, status
    /// Created.
    ///
    /// # Errors
    /// When the options contradict one another.
    pub fn new(config: Config, me: SiloEntry, seed: u64, now: Now) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut me = me;
        let mut dice = Dice::new(seed);
        me.status = SiloStatus::Joining;
        me.votes.clear();
        me.i_am_alive_time = me.start_time - Duration::from_millis(1 + dice.below(TWIN_MARK_MS));
        Ok(Self {
            out: Out::new(me.address, dice),
            facts: Facts::new(config, me, now),
            join: Join::default(),
            detect: Detect::default(),
            votes: Votes::default(),
            wishes: Wishes::default(),
            write: Write::default(),
            table: Table::default(),
            views: Views::default(),
            fence: Fence::default(),
            fading: Fading::default(),
        })
    }

    /// Lets this machine share computed results with others of its process. It changes no result.
    pub fn share(&mut self, memo: Arc<Memo>) {
        self.facts.share_config(|config| memo.config(config));
        self.views.share(memo);
    }

    // ---- commands
    // -----------------------------------------------------------------------------------------

    /// Starts joining. Until then nothing is sent and nothing is read.
    pub fn join(&mut self, now: Now) {
        self.begin(now);
        self.join.start(&self.facts, &mut self.out);
        self.finish();
    }

    /// Starts leaving in good order: writes ShuttingDown, and stops probing and voting. The
    /// application drains; then call [`finish_leave`](Self::finish_leave).
    pub fn leave(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(SiloStatus::ShuttingDown);
        self.finish();
    }

    /// Starts leaving in haste: writes Stopping, also when a graceful leave takes too long.
    pub fn stop(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(SiloStatus::Stopping);
        self.finish();
    }

    /// Ends the leave: writes Dead, then comes `Terminate(Left)`, at the latest after
    /// `shutdown_grace_period`.
    pub fn finish_leave(&mut self, now: Now) {
        self.begin(now);
        self.start_finishing();
        self.finish();
    }

    // ---- inputs
    // -------------------------------------------------------------------------------------------

    /// The time given by [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.begin(now);
        let late = self.poll_timeout().map_or(Duration::ZERO, |at| now.mono.saturating_since(at));
        if late > PAUSE {
            self.detect.grace(&self.facts);
        }
        // Each timer at most once: one that is set again for this very moment waits for the next
        // call.
        let mut due = Vec::new();
        while let Some(timer) = self.out.timers().pop_due(now.mono) {
            due.push(timer);
        }
        for timer in due {
            self.on_timer(timer);
        }
        if !self.facts.is_over() {
            self.run_probes();
        }
        self.finish();
    }

    fn on_timer(&mut self, timer: Timer) {
        if self.facts.is_over() {
            return;
        }
        match timer {
            // The pump that follows every input does the work.
            Timer::Flush | Timer::TableRetry => {}
            Timer::TableTimeout => self.on_table_timeout(self.table.op()),
            Timer::TouchTimeout => self.on_table_timeout(self.table.touch_op()),
            Timer::Refresh => self.table.refresh(&self.facts, &mut self.out),
            Timer::Touch => self.table.touch(&self.facts, &mut self.out),
            Timer::JoinDeadline => self.join.on_deadline(&mut self.out),
            Timer::JoinStep => self.join.on_step(&self.facts, &mut self.out),
            Timer::Route => self.with_others(Wishes::route),
            Timer::Pull => self.on_pull_timeout(),
            Timer::Claim => self.views.check_claim(&self.facts, &mut self.out),
            Timer::Leave => self.terminate(crate::TerminateReason::Left),
            Timer::Fence => self.check_fence(),
            Timer::Stale => self.look_for_staleness(),
            Timer::Housekeeping => self.housekeep(),
        }
        self.drain();
    }

    /// A message arrived from `from`, from that very incarnation.
    pub fn handle_message(&mut self, now: Now, from: SiloAddress, message: Message) {
        self.begin(now);
        let is_new = self.facts.status() == SiloStatus::Created && self.join.is_idle();
        if !self.facts.is_over() && !is_new {
            self.hear(from, message);
        }
    }

    /// The table answered request `op`.
    pub fn handle_table(&mut self, now: Now, op: OpId, outcome: TableOutcome) {
        self.begin(now);
        if !self.facts.is_over() {
            self.on_table(op, outcome);
        }
        self.finish();
    }

    /// A process outside the cluster says that the table has changed: an operator's command, which
    /// has written there. Reads it soon, and at most twice a second, however often it is said.
    pub fn handle_news(&mut self, now: Now) {
        self.begin(now);
        if !self.facts.is_over() && self.facts.status() == SiloStatus::Active {
            self.table.hear_news(&self.facts, &mut self.out);
        }
        self.finish();
    }

    /// The dial `dial` ended.
    pub fn handle_dial(&mut self, now: Now, dial: DialId, outcome: DialOutcome) {
        self.begin(now);
        if !self.facts.is_over() {
            self.on_dial(dial, outcome);
        }
        self.finish();
    }

    /// The shell noticed something about the connection to `peer`.
    pub fn handle_connection(&mut self, now: Now, peer: SiloAddress, event: ConnectionEvent) {
        self.begin(now);
        if !self.facts.is_over() {
            self.detect.on_connection(&self.facts, &mut self.out, peer, event);
        }
        self.finish();
    }

    /// The shell measured how well this process runs.
    pub fn handle_health(&mut self, now: Now, sample: HealthSample) {
        self.begin(now);
        self.detect.on_health(&self.facts, sample);
        self.finish();
    }

    // ---- outputs
    // ------------------------------------------------------------------------------------------

    /// The next thing to do; none when everything has been handed out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.take_effect()
    }

    /// Time for the next call of [`handle_timeout`](Self::handle_timeout); none when nothing is
    /// waited for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.out.next_timer(), self.detect.due_at()].into_iter().flatten().min()
    }

    // ---- getters
    // ------------------------------------------------------------------------------------------

    /// Address of this silo.
    pub fn me(&self) -> SiloAddress {
        self.facts.me()
    }

    /// This silo's own status.
    pub const fn status(&self) -> SiloStatus {
        self.facts.status()
    }

    /// The view in force; empty until the table has been seen.
    pub const fn view(&self) -> &Arc<View> {
        self.facts.view()
    }

    /// The self-health score, 0 (well) to 8.
    pub fn health_score(&self) -> u32 {
        self.detect.score(&self.facts)
    }

    /// Counters.
    pub const fn counters(&self) -> &Counters {
        self.out.counters()
    }

    /// Returns true if the fence is closed: no turn may start.
    pub const fn is_fenced(&self) -> bool {
        self.fence.is_closed()
    }

    /// Time until which turns may start without a further confirmation; none when the fence does
    /// not apply. A shell whose process may have been frozen compares this with the clock before
    /// each turn.
    pub fn fence_deadline(&self) -> Option<Instant> {
        self.fence.closes_at(&self.facts, self.is_behind())
    }

    /// Silos that are Dead in the view in force and may still run turns, with the times until which
    /// they may by this silo's clock. No silo may be granted one of their grains before. None where
    /// there is no fence.
    pub fn fading(&self) -> Vec<(SiloAddress, Instant)> {
        self.fading.all()
    }

    /// The options in force.
    pub fn config(&self) -> &Config {
        self.facts.config()
    }

    // ---- the frame of every input
    // -----------------------------------------------------------------------------

    fn begin(&mut self, now: Now) {
        self.facts.pass(now);
        // First of all, also when this process was frozen: a join whose time is over no longer
        // writes anything (I3), and a silo without a recent confirmation starts no turn (I8).
        if self.out.timers().is_due(Timer::JoinDeadline, now.mono) {
            self.join.on_deadline(&mut self.out);
            self.drain();
        }
        if self.out.timers().is_due(Timer::Fence, now.mono) {
            self.check_fence();
        }
    }

    fn finish(&mut self) {
        self.drain();
        if self.facts.is_over() {
            return;
        }
        self.pump();
        self.assert_whole();
        self.detect.schedule();
    }

    /// Asserts the invariants between the parts after every input, in builds with debug assertions
    /// (tests, the simulator).
    fn assert_whole(&self) {
        let (view, standing) = (self.facts.view(), self.facts.standing());
        if standing.is_over() {
            return;
        }
        debug_assert!(
            !standing.is_in_table() || view.get(&self.facts.me()).is_some(),
            "a silo whose row is gone has ended"
        );
        debug_assert!(
            self.detect.is_idle() || standing.status() == SiloStatus::Active,
            "only Active silos probe"
        );
        debug_assert!(
            !standing.is_finishing() || !self.facts.has_fence() || self.fence.is_closed(),
            "a silo that asks for its own death starts no turn"
        );
        debug_assert!(
            self.facts.steps().lead_to(view.version()) && self.views.fits(&self.facts),
            "the steps end with the view in force"
        );
        debug_assert!(self.write.is_bounded(), "the writer's queue has a bound");
    }
}
