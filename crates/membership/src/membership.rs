//! The machine itself: its state, its inputs, its outputs.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus, TableVersion};

use crate::api::{
    ConnectionEvent, DialId, DialOutcome, Effect, Event, HealthSample, OpId, TableOutcome,
    TerminateReason,
};
use crate::config::{Config, ConfigError};
use crate::counters::Counters;
use crate::detect::{self, Detect};
use crate::dials::Purpose;
use crate::dice::Dice;
use crate::facts::Facts;
use crate::fence::{Fading, Fence, Word};
use crate::inner::{Inner, Read};
use crate::intent::{Evidence, Intent, Key};
use crate::join::{self, Join};
use crate::memo::{Memo, Shared};
use crate::message::Message;
use crate::out::{Act, Out};
use crate::rules::intent_lifetime;
use crate::snapshot::TableSnapshot;
use crate::table::{Table, Told};
use crate::timers::Timer;
use crate::view::View;
use crate::views::Dissemination;
use crate::votes::Votes;
use crate::wishes::{Others, Wishes, leave};
use crate::write::{self, Committed, Draft, Said, Write};

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
/// The machine knows only the time that it is told. `now.mono` must never go backwards from one
/// call to the next; `now.wall` may do what wall clocks do. Two machines made with the same
/// arguments and given the same inputs give the same outputs.
///
/// After [`Effect::Terminate`] nothing more comes out, whatever goes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    pub(crate) facts: Facts,
    pub(crate) out: Out,
    pub(crate) join: Join,
    pub(crate) detect: Detect,
    pub(crate) votes: Votes,
    pub(crate) wishes: Wishes,
    pub(crate) write: Write,
    pub(crate) table: Table,
    pub(crate) gossip: Dissemination,
    pub(crate) fence: Fence,
    pub(crate) fading: Fading,
    pub(crate) shared: Shared,
}

/// How far before the start time the initial IAmAliveTime lies at most.
const TWIN_MARK_MS: u64 = 1_000;

/// How often, at least, there is something to look after.
const HOUSEKEEPING_MAX: Duration = Duration::from_secs(10);

/// How late a timer may fire before the machine concludes that its process had been paused.
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
            gossip: Dissemination::default(),
            fence: Fence::default(),
            fading: Fading::default(),
            shared: Shared::default(),
        })
    }

    /// Lets this machine share what it computes with others of its process. It changes no result.
    pub fn share(&mut self, memo: Arc<Memo>) {
        self.facts.share_config(|config| memo.config(config));
        self.shared = Shared::with(memo);
    }

    // ---- commands
    // -----------------------------------------------------------------------------------------

    /// Starts joining. Until then nothing is sent and nothing is read.
    pub fn join(&mut self, now: Now) {
        self.begin(now);
        self.join.start(&self.facts, &mut self.out);
        self.drain();
        self.finish(now);
    }

    /// Starts leaving in good order: writes ShuttingDown, and stops probing and voting. The
    /// application drains; then call [`finish_leave`](Self::finish_leave).
    pub fn leave(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(SiloStatus::ShuttingDown);
        self.finish(now);
    }

    /// Starts leaving in haste: writes Stopping, also when a graceful leave takes too long.
    pub fn stop(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(SiloStatus::Stopping);
        self.finish(now);
    }

    /// Ends the leave: writes Dead, then comes `Terminate(Left)`, at the latest after
    /// `shutdown_grace_period`.
    pub fn finish_leave(&mut self, now: Now) {
        self.begin(now);
        self.start_finishing();
        self.finish(now);
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
            self.on_timer(now, timer);
        }
        if !self.facts.standing().is_over() {
            self.run_probes();
        }
        self.finish(now);
    }

    /// A dial ended. One that was forgotten says nothing.
    fn on_dial(&mut self, dial: DialId, outcome: DialOutcome) {
        let Some((purpose, silo)) = self.out.dials().end(dial) else { return };
        match purpose {
            Purpose::Hint => {
                self.detect.on_dialled(&self.facts, &mut self.out, silo, outcome);
                self.drain();
            }
            Purpose::Join => {
                self.join.on_dialled(&self.facts, &mut self.out, silo, outcome);
                self.drain();
            }
            Purpose::Eviction => self.write.on_dialled(&self.facts, &mut self.out, silo, outcome),
            Purpose::Reach => join::reach_dialled(&mut self.out, silo, outcome),
        }
    }

    fn on_timer(&mut self, now: Now, timer: Timer) {
        if self.facts.standing().is_over() {
            return;
        }
        match timer {
            // The pump that follows every input does the work.
            Timer::Flush | Timer::TableRetry => {}
            Timer::TableTimeout => self.on_table_timeout(self.table.op()),
            Timer::TouchTimeout => self.on_table_timeout(self.table.touch_op()),
            Timer::Refresh => self.table.refresh(&self.facts, &mut self.out),
            Timer::Touch => self.table.touch(&self.facts, &mut self.out),
            Timer::JoinDeadline => self.on_join_deadline(),
            Timer::JoinStep => {
                self.join.on_step(&self.facts, &mut self.out);
                self.drain();
            }
            Timer::Route => self.route(),
            Timer::Pull => self.on_pull_timeout(now),
            Timer::Claim => self.check_claim(),
            Timer::Leave => self.terminate(TerminateReason::Left),
            Timer::Fence => self.check_fence(),
            Timer::Stale => self.look_for_staleness(),
            Timer::Housekeeping => self.housekeep(),
        }
    }

    /// A message arrived from `from`, from that very incarnation.
    pub fn handle_message(&mut self, now: Now, from: SiloAddress, message: Message) {
        self.begin(now);
        if self.facts.standing().is_over()
            || self.facts.standing().status() == SiloStatus::Created && self.join.is_idle()
        {
            return;
        }
        if self.is_from_the_dead(now, from, &message) {
            return;
        }
        if self.is_stranger(&from) {
            self.hear_stranger(now, from, message);
            self.finish(now);
            return;
        }
        match message {
            Message::Probe { seq, version, misses, echo } => {
                self.on_probe(from, seq, misses, echo);
                self.note_version(now, from, version);
                // The most frequent message: it changes nothing about what this silo probes itself.
                if !self.facts.standing().is_over() {
                    self.pump();
                }
                return;
            }
            Message::Ack { seq, version, stamp } => {
                self.on_ack(from, seq, stamp);
                self.note_version(now, from, version);
            }
            Message::Seen { stamp } => self.fence_heard(&from, 0, stamp),
            Message::Superseded { by } => self.on_superseded(from, by),
            Message::Yielded => self.write.on_yielded(&self.facts, &mut self.out, from),
            Message::Hush { target, by, .. } if target == self.facts.me() => {
                self.on_superseded(from, by);
            }
            Message::Hush { target, by, stamp } => {
                write::on_hush(&self.facts, &mut self.out, from, target, by, stamp);
                self.drain();
            }
            Message::Hushed { target, stamp } => {
                self.write.on_hushed(&self.facts, &mut self.out, from, target, stamp);
            }
            Message::ProbeFor { seq, target, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                self.detect.on_probe_for(&self.facts, &mut self.out, from, seq, target, wait);
            }
            Message::ProbedFor { seq, answered, score, .. } => {
                let (facts, out) = (&self.facts, &mut self.out);
                self.detect.on_probed_for(facts, out, from, seq, answered, score);
                self.drain();
            }
            Message::Write { version, intents, hops } => {
                self.note_version(now, from, version);
                self.on_write(intents, hops);
            }
            Message::Noted { version } => {
                if self.facts.standing().is_in_table() {
                    self.note_version(now, from, version);
                } else {
                    // The view with its row may have been lost on the way.
                    self.on_hint(now, from, version);
                }
                self.on_noted(from);
            }
            Message::Reach => join::on_reach(&self.facts, &mut self.out, from),
            Message::Reached { through } => {
                self.join.on_reached(&self.facts, &mut self.out, from, through);
                self.drain();
            }
            Message::Recheck { version } => {
                self.note_version(now, from, version);
                self.on_recheck(version);
            }
            Message::Tree { root, delta } => self.on_tree(now, from, root, &delta),
            Message::Pull { have } => self.on_pull(from, have),
            Message::Hint { version } => self.on_hint(now, from, version),
            Message::Deltas(deltas) => self.on_deltas(now, from, &deltas),
            Message::Snapshot { view, fading } => self.on_view(now, from, view, fading),
            Message::Obituary { version } => self.on_obituary(version),
        }
        self.finish(now);
    }

    /// The table answered request `op`.
    pub fn handle_table(&mut self, now: Now, op: OpId, outcome: TableOutcome) {
        self.begin(now);
        if !self.facts.standing().is_over() {
            self.on_table(op, outcome);
        }
        self.finish(now);
    }

    /// The dial `dial` ended.
    pub fn handle_dial(&mut self, now: Now, dial: DialId, outcome: DialOutcome) {
        self.begin(now);
        if !self.facts.standing().is_over() {
            self.on_dial(dial, outcome);
        }
        self.finish(now);
    }

    /// The shell noticed something about the connection to `peer`.
    pub fn handle_connection(&mut self, now: Now, peer: SiloAddress, event: ConnectionEvent) {
        self.begin(now);
        if !self.facts.standing().is_over() {
            self.detect.on_connection(&self.facts, &mut self.out, peer, event);
            self.drain();
        }
        self.finish(now);
    }

    /// The shell measured how well this process runs.
    pub fn handle_health(&mut self, now: Now, sample: HealthSample) {
        self.begin(now);
        self.detect.on_health(&self.facts, sample);
        self.finish(now);
    }

    // ---- outputs
    // ------------------------------------------------------------------------------------------

    /// The next thing to do; none when everything has been handed out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.take_effect()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); none when nothing is waited for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.out.next_timer(), self.detect.due_at()].into_iter().flatten().min()
    }

    // ---- getters
    // ------------------------------------------------------------------------------------------

    /// Who this silo is.
    pub fn me(&self) -> SiloAddress {
        self.facts.me()
    }

    /// This silo's own status.
    pub const fn status(&self) -> SiloStatus {
        self.facts.standing().status()
    }

    /// The view in force; empty until the table has been seen.
    pub const fn view(&self) -> &Arc<View> {
        self.facts.view()
    }

    /// The self-health score, 0 (well) to 8.
    pub fn health_score(&self) -> u32 {
        self.detect.score(&self.facts)
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        self.out.counters()
    }

    /// Whether the fence is closed: no turn may start.
    pub const fn is_fenced(&self) -> bool {
        self.fence.is_closed()
    }

    /// Until when turns may start without a further confirmation; none when the fence does not
    /// apply. A shell whose process may have been frozen compares this with the clock before each
    /// turn.
    pub fn fence_deadline(&self) -> Option<Instant> {
        self.fence.closes_at(&self.facts, self.is_behind())
    }

    /// Which silos are Dead in the view in force and may still run turns, and until when by this
    /// silo's clock. No silo may be granted one of their grains before. None where there is no
    /// fence.
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
        // Before anything else, also when this process was frozen and another input comes first: a
        // join whose time is over writes nothing any more (I3), and a silo without a recent
        // confirmation starts no turn (I8).
        if self.out.timers().is_due(Timer::JoinDeadline, now.mono) {
            self.on_join_deadline();
        }
        if self.out.timers().is_due(Timer::Fence, now.mono) {
            self.check_fence();
        }
    }

    fn finish(&mut self, now: Now) {
        if self.facts.standing().is_over() {
            return;
        }
        self.pump();
        self.assert_whole();
        self.detect.schedule();
    }

    /// What holds between the parts after every input, in builds with debug assertions (tests, the
    /// simulator).
    fn assert_whole(&self) {
        if self.facts.standing().is_over() {
            return;
        }
        debug_assert!(
            !self.facts.standing().is_in_table()
                || self.facts.view().get(&self.facts.me()).is_some(),
            "a silo whose row is gone has ended"
        );
        debug_assert!(
            self.detect.is_idle() || self.facts.standing().status() == SiloStatus::Active,
            "only Active silos probe"
        );
        debug_assert!(
            !self.facts.standing().is_finishing()
                || self.facts.config().fence_timeout.is_zero()
                || self.fence.is_closed(),
            "a silo that asks for its own death starts no turn"
        );
        debug_assert!(
            self.facts.steps().lead_to(self.facts.view().version())
                && self.gossip.fits(self.facts.view().version()),
            "the steps end with the view in force"
        );
        debug_assert!(self.write.is_bounded(), "the writer's queue has a bound");
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.facts.standing().is_over()
    }

    /// Ends the machine. What it still had to say stays in the queue before the end.
    pub(crate) fn terminate(&mut self, reason: TerminateReason) {
        if self.facts.standing().is_over() {
            return;
        }
        self.facts.standing_mut().end(reason != TerminateReason::JoinTimedOut);
        self.out.timers().clear_all();
        self.detect.end();
        self.wishes = Wishes::default();
        self.write = Write::default();
        self.out.effect(Effect::Terminate(reason));
    }

    /// The own row, in a new view, has this status.
    pub(crate) fn own_status_is(&mut self, now: Now, status: SiloStatus) {
        let before = self.facts.standing().status();
        self.facts.standing_mut().rise_to(status);
        if before < SiloStatus::Active && self.facts.standing().status() == SiloStatus::Active {
            self.detect.became_active(&self.facts);
            self.table.start_touching(self.fence.wished().unwrap_or(now.mono));
            let touch = self.out.dice().duration_below(self.facts.publish_period());
            self.out.timers().set(Timer::Touch, now.mono + touch);
            let refresh = self.out.dice().duration_below(self.facts.config().table_refresh_timeout);
            self.out.timers().set(Timer::Refresh, now.mono + refresh);
            self.schedule_housekeeping();
        }
        if self.facts.standing().status() >= SiloStatus::Active
            && self.out.timers().is_set(Timer::Touch)
        {
            // In a cluster that has become smaller rows are touched more often.
            self.out.timers().set_no_later(Timer::Touch, now.mono + self.facts.publish_period());
        }
    }

    // ---- between the parts
    // -------------------------------------------------------------------------------------

    /// Has the parts do what they asked of each other.
    pub(crate) fn drain(&mut self) {
        for act in self.out.take_pending().into_iter().flatten() {
            match act {
                Act::Effect(effect) => self.out.effect(effect),
                Act::Inner(inner) => {
                    self.act(inner);
                    self.drain();
                }
            }
        }
    }

    fn act(&mut self, inner: Inner) {
        match inner {
            Inner::Probe(silo) => self.probe(silo),
            Inner::Suspect { target, evidence } => self.suspect(target, evidence),
            Inner::Answered { silo, directly } => self.answered(silo, directly),
            Inner::Want(read) => self.table.want(read),
            Inner::ReadRows => self.table.want_rows(&self.facts, &mut self.out),
            Inner::ForgiveRows => self.facts.forgive_rows(),
            Inner::Confirmed(sent) => self.confirm_by_table(sent),
            Inner::CatchUp(version) => self.catch_up(self.facts.now(), version),
            Inner::Unwish(key) => self.wishes.unwish(&self.facts, &mut self.out, key),
            Inner::WantOnlyASample => self.table.want_only_a_sample(),
            Inner::Wish(intent) => {
                if matches!(intent, Intent::Activate { .. }) {
                    self.fence.note_wish(&self.facts);
                }
                self.with_others(|wishes, facts, out, others| {
                    wishes.wish(facts, out, intent, others);
                });
            }
            Inner::Reroute(key) => self.wishes.reroute(&self.facts, &mut self.out, &key),
            Inner::Rewrite(intent) => self.write.replace(intent),
            Inner::Write(intents) => {
                for intent in intents {
                    self.write.add(&self.facts, &mut self.out, intent);
                }
            }
            Inner::Forget(key) => self.wishes.forget(&key),
            Inner::Unwrite(key) => self.write.forget(&key),
            Inner::Recheck(owner) => self.ask_to_recheck(owner),
            Inner::Doubt { silo, until } => self.votes.doubt(silo, until),
            Inner::End(reason) => self.terminate(reason),
        }
    }

    /// Adjusts the probed set to the view in force.
    pub(crate) fn choose_peers(&mut self) {
        self.votes.forget_doubts_about_the_dead(&self.facts);
        self.detect.choose(&self.facts, &mut self.out);
        self.drain();
    }

    /// Sends the probes that are due, and counts those that were missed.
    fn run_probes(&mut self) {
        for silo in self.detect.due(&self.facts) {
            self.detect.run(&self.facts, &mut self.out, silo);
            self.drain();
        }
        self.detect.run_help(&self.facts, &mut self.out);
    }

    /// Probes `silo`, and confirms to it that it was heard if this silo may.
    fn probe(&mut self, silo: SiloAddress) {
        self.votes.press_doubt(&self.facts, &mut self.out, &silo);
        self.drain();
        let confirms = self.may_confirm(&silo);
        self.detect.probe(&self.facts, &mut self.out, silo, confirms);
    }

    fn on_probe(&mut self, from: SiloAddress, seq: u64, misses: u32, echo: u64) {
        self.detect.on_probed(&self.facts, &mut self.out);
        self.fence_heard(&from, misses, echo);
        detect::acknowledge(&self.facts, &mut self.out, from, seq);
    }

    /// A silo in no view asks whether this one lives.
    pub(crate) fn answer_stranger(&mut self, from: SiloAddress, seq: u64) {
        self.out.count().probes_received += 1;
        let is_behind = self.is_behind();
        self.fence.probed_by_stranger(&self.facts, &mut self.out, is_behind);
        self.drain();
        detect::acknowledge(&self.facts, &mut self.out, from, seq);
    }

    fn on_ack(&mut self, from: SiloAddress, seq: u64, stamp: u64) {
        self.join.answered(&self.facts, &mut self.out, &from);
        self.drain();
        if self.detect.help_answered(&self.facts, &mut self.out, &from, seq) {
            return;
        }
        let is_seen = detect::is_fence_short(&self.facts) && self.may_confirm(&from);
        self.detect.on_ack(&self.facts, &mut self.out, from, seq, stamp, is_seen);
        self.drain();
    }

    /// Has the wishes do something that depends on which silos could write.
    fn with_others<R>(
        &mut self,
        act: impl FnOnce(&mut Wishes, &Facts, &mut Out, &Others<'_>) -> R,
    ) -> R {
        let (detect, join, write) = (&self.detect, &self.join, &self.write);
        let others = Others {
            winner: join.winner(&self.facts),
            is_usable: &|silo| {
                !detect.is_doubted(silo) && !join.doubts(silo) && !write.knows_gone(silo)
            },
        };
        act(&mut self.wishes, &self.facts, &mut self.out, &others)
    }

    /// Sends the own wishes that are due to their writers.
    fn route(&mut self) {
        self.with_others(Wishes::route);
        self.drain();
    }

    /// The silo that is to write in the view in force; none when it is this one.
    pub(crate) fn writer_to_ask(&mut self) -> Option<SiloAddress> {
        self.with_others(|wishes, facts, _, others| wishes.writers(facts, others)).first().copied()
    }

    /// A writer has taken this silo's wishes.
    fn on_noted(&mut self, from: SiloAddress) {
        self.join.on_noted(&self.facts, &mut self.out);
        self.with_others(|wishes, facts, out, others| wishes.on_noted(facts, out, from, others));
        self.drain();
    }

    /// Another silo wants something written.
    pub(crate) fn on_write(&mut self, intents: Vec<Intent>, hops: u8) {
        // Without the table this silo is no use as a writer; silence lets its clients ask another
        // one.
        let standing = self.facts.standing();
        if standing.is_over()
            || !standing.knows_table()
            || self.table.is_down()
            || standing.is_leaving()
        {
            return;
        }
        self.with_others(|wishes, facts, out, others| {
            wishes.on_write(facts, out, intents, hops, others);
        });
        self.drain();
    }

    /// `leave` and `stop`.
    fn start_leaving(&mut self, status: SiloStatus) {
        let standing = self.facts.standing();
        if standing.is_over() || standing.is_finishing() || standing.status() >= status {
            return;
        }
        if standing.status() < SiloStatus::Active {
            // It never was a full member, and will host nothing.
            self.fence.shut(&self.facts, &mut self.out);
        }
        self.facts.standing_mut().leave(status);
        self.join.abandon(&mut self.out);
        self.detect.stop(&self.facts, &mut self.out);
        self.out.dials().forget_all(Purpose::Hint);
        leave::leave(&mut self.wishes, &self.facts, &mut self.out, status);
        self.drain();
    }

    fn start_finishing(&mut self) {
        if self.facts.is_over() || self.facts.standing().is_finishing() {
            return;
        }
        self.start_leaving(SiloStatus::Stopping);
        if !self.facts.standing().is_in_table() && !self.table.is_asking() {
            self.terminate(TerminateReason::Left);
            return;
        }
        self.facts.standing_mut().finish_leave();
        // A silo that sees it Dead by its own word takes its grains over at once (I8).
        self.fence.shut(&self.facts, &mut self.out);
        let until = self.facts.now().mono + self.facts.config().shutdown_grace_period;
        self.out.timers().set(Timer::Leave, until);
        leave::finish(&mut self.wishes, &self.facts, &mut self.out);
        self.drain();
    }

    /// Tells the owner of an activation that cannot be judged.
    fn ask_to_recheck(&mut self, owner: SiloAddress) {
        let version = self.facts.view().version();
        if owner == self.facts.me() {
            self.on_recheck(version);
        } else {
            self.out.send(owner, Message::Recheck { version });
        }
    }

    /// Drafts the next commit; none when nothing is to be written.
    fn draft(&mut self) -> Option<Draft> {
        let (wishes, join, facts) = (&self.wishes, &self.join, &self.facts);
        let said = Said {
            quorum: self.votes.quorum(),
            is_own: &|key| wishes.has(key),
            is_blocked: &|| join.is_blocked(facts),
        };
        let draft = self.write.draft(facts, &mut self.out, &said);
        self.drain();
        draft
    }

    /// The commit happened: the draft is the next view.
    fn on_committed(&mut self, now: Now, draft: Draft, version: TableVersion) {
        let base = self.facts.view().version();
        if base != draft.base_number() || version.number != draft.base_number() + 1 {
            // Another silo handed us an even newer view meanwhile (it contains this commit).
            self.catch_up(now, version.number);
            return;
        }
        let committed = write::committed(&self.facts, &mut self.out, draft, version);
        let Committed { delta, view, inserted } = committed;
        self.shared.note(self.facts.view(), &view);
        // First the others: nothing comes out of this silo after a view that shows it Dead by its
        // own wish.
        self.broadcast(&delta, &view);
        if self.facts.config().use_liveness_gossip && self.facts.config().delta_views {
            // A silo just inserted may hang below one in the tree that died with its whole cluster.
            for silo in inserted {
                self.out.send(silo, Message::Hint { version: delta.version() });
            }
        }
        self.install(now, view, Some(&delta));
    }

    /// The view in force is new: hands on what another silo is to write in it.
    pub(crate) fn hand_on_joins(&mut self) {
        if !self.write.has_joins_beyond(&self.facts) || self.facts.is_over() {
            return;
        }
        if let Some(to) = self.writer_to_ask() {
            self.write.hand_on_joins(&self.facts, &mut self.out, to);
        }
    }

    /// A successor of this silo is about to be written: nothing is served any more, and the silo
    /// that writes may know.
    fn on_superseded(&mut self, from: SiloAddress, by: SiloAddress) {
        if self.facts.me().is_succeeded_by(&by) {
            self.fence.shut(&self.facts, &mut self.out);
            self.out.send(from, Message::Yielded);
            self.terminate(TerminateReason::Superseded(by));
        }
    }

    // ---- the table
    // ----------------------------------------------------------------------------------------------

    /// Starts the next request, if one is due and none is in flight.
    fn pump(&mut self) {
        if !self.table.pump(&self.facts, &mut self.out) {
            return;
        }
        // A commit says as much about this silo as a read of the version, and must not wait for
        // those that the fence wants one after the other.
        if self.facts.standing().knows_table() && !self.out.timers().is_set(Timer::Flush) {
            self.commit();
        }
        self.table.pump_version(&self.facts, &mut self.out);
    }

    fn commit(&mut self) {
        if self.write.is_idle() && !self.table.is_unsettled() {
            return;
        }
        // Membership description, step 8: "S first reads the latest table state". With ordered
        // views the view in force is as good as a read: if it is not the latest, the conditional
        // commit fails.
        if !self.facts.config().batch_writes && !self.table.is_fresh() {
            if self.draft().is_some() {
                self.table.want_before_commit();
                self.pump();
            }
            return;
        }
        // Votes are counted with staleness as it is now, not as it was when the rows were last read
        // (I6).
        if self.write.has_votes() && self.facts.rows().is_dated(self.facts.now()) {
            self.table.want(Read::All);
            self.pump();
            return;
        }
        let drafted = self.draft();
        let settling = self.table.settle() && self.facts.standing().is_in_table();
        let nothing = || settling.then(|| write::draft_nothing(&self.facts)).flatten();
        let Some(draft) = drafted.or_else(nothing) else { return };
        self.table.use_up();
        let superseded = draft.superseded();
        if let Some((_, by)) = superseded.iter().find(|(old, _)| *old == self.facts.me()) {
            // The successor's wish is proof enough; it will find another writer, or write itself.
            self.terminate(TerminateReason::Superseded(*by));
            return;
        }
        self.out.count().commits += 1;
        // A silo that is about to be declared dead by its successor's arrival is told first: it may
        // be alive and serving.
        for (old, by) in superseded {
            self.out.send(old, Message::Superseded { by });
        }
        self.table.commit(&self.facts, &mut self.out, |base| draft.request(base));
        self.write.sent(draft);
    }

    /// The request has no outcome: forgets it, as unknown.
    fn on_table_timeout(&mut self, op: Option<OpId>) {
        if let Some(op) = op {
            self.on_table(op, TableOutcome::Unknown);
        }
    }

    /// Reports what became of a request to the table.
    fn on_table(&mut self, op: OpId, outcome: TableOutcome) {
        let rests = self.fence.rests_on_touches(&self.facts);
        if self.table.touch_ended(&self.facts, &mut self.out, op, &outcome, rests) {
            self.drain();
            return;
        }
        let Some(sent) = self.table.sent(op) else { return };
        if outcome.is_answer() {
            self.facts.hear_table(sent);
            if self.table.answered() {
                self.facts.forgive_rows();
                // Otherwise the next touch may be seconds away.
                if rests {
                    self.table.touch(&self.facts, &mut self.out);
                }
                self.out.event(Event::StoreBack);
            }
        }
        let draft = self.write.take_sent();
        let told = self.table.ended(&self.facts, &mut self.out, outcome);
        self.drain();
        match (told, draft) {
            (Some(Told::Rows(snapshot)), _) => self.on_rows(&snapshot, sent),
            (Some(Told::Sample(rows)), _) => {
                self.join.on_sample(&self.facts, &mut self.out, &rows);
                self.drain();
            }
            (Some(Told::Committed { base, version }), Some(draft)) => {
                // It was the latest view that the commit was based on.
                if base == self.facts.view().version() {
                    self.confirm_by_table(sent);
                }
                self.on_committed(self.facts.now(), draft, version);
                self.confirm_by_table(sent);
            }
            (Some(Told::Conflict(base)), _) => {
                // Another silo may have handed it over meanwhile: of a later one nothing is known.
                self.catch_up(self.facts.now(), base + 1);
                self.join.on_conflict(&self.facts, &mut self.out);
                self.drain();
            }
            (Some(Told::Committed { .. }) | None, _) => {}
        }
    }

    /// Every row was read, by a request sent at `sent`.
    fn on_rows(&mut self, snapshot: &TableSnapshot, sent: Instant) {
        self.facts.standing_mut().saw_table();
        self.facts.observe_rows(sent, &snapshot.rows);
        let lived = self.table.take_earlier_read(snapshot.version.number);
        self.install_read(self.facts.now(), snapshot);
        if let Some(sent) = lived {
            self.confirm_by_table(sent);
        }
        self.detect.consider_stale(&self.facts, &mut self.out);
        self.drain();
        self.join.on_read(&self.facts, &mut self.out);
        self.drain();
    }

    /// Reads the table now and then while votes do not suffice: perhaps those who could vote are
    /// stale.
    fn look_for_staleness(&mut self) {
        if self.detect.suspects_any(&self.facts) || self.write.has_votes() {
            self.table.want_rows(&self.facts, &mut self.out);
        }
    }

    fn schedule_housekeeping(&mut self) {
        let pause = HOUSEKEEPING_MAX / 2 + self.out.dice().duration_below(HOUSEKEEPING_MAX / 2);
        self.out.timers().set(Timer::Housekeeping, self.facts.now().mono + pause);
    }

    /// Looks after what comes up now and then.
    fn housekeep(&mut self) {
        self.schedule_housekeeping();
        self.choose_peers();
        self.detect.suspect_stuck_joiners(&self.facts, &mut self.out);
        self.drain();
        self.write.clean_up(&self.facts);
        self.look_for_staleness();
    }

    fn on_join_deadline(&mut self) {
        self.join.on_deadline(&mut self.out);
        self.drain();
    }

    /// A writer could not tell whether this silo has checked enough.
    pub(crate) fn on_recheck(&mut self, version: u64) {
        self.join.on_recheck(&self.facts, &mut self.out, version);
        self.drain();
    }

    /// This silo has evidence that `target` is dead: votes.
    fn suspect(&mut self, target: SiloAddress, evidence: Evidence) {
        let retracts = self.wishes.retracts(&Key::Vote(target, self.facts.me()));
        self.votes.vote(&self.facts, &mut self.out, target, evidence, retracts);
    }

    /// The suspect lives: takes the own vote back, and `directly`: out of the table too.
    fn answered(&mut self, silo: SiloAddress, directly: bool) {
        let key = Key::Vote(silo, self.facts.me());
        if !self.wishes.retracts(&key) {
            self.wishes.unwish(&self.facts, &mut self.out, key);
            self.drain();
        }
        if directly {
            let is_wished = self.wishes.has(&key);
            self.votes.retract(&self.facts, &mut self.out, silo, is_wished);
        }
    }

    /// Returns true if this silo has reason to think that `silo` will not answer.
    pub(crate) fn is_doubted(&self, silo: &SiloAddress) -> bool {
        self.detect.is_doubted(silo) || self.join.doubts(silo)
    }

    /// Returns true if this silo may confirm that `silo` is alive.
    pub(crate) fn may_confirm(&self, silo: &SiloAddress) -> bool {
        self.votes.may_confirm(&self.facts, silo, self.fence.may_speak(&self.facts))
    }

    /// Opens or closes the fence, as the time and the confirmations have it.
    pub(crate) fn check_fence(&mut self) {
        let is_behind = self.is_behind();
        self.fence.check(&self.facts, &mut self.out, is_behind);
        self.drain();
    }

    /// A probe, or the answer to one, gives back a stamp of ours.
    pub(crate) fn fence_heard(&mut self, from: &SiloAddress, misses: u32, echo: u64) {
        if !self.fence.heard_by(&self.facts, from, misses, echo) {
            return;
        }
        let (now, config) = (self.facts.now(), self.facts.config());
        let rests = intent_lifetime(config) + config.table_timeout;
        let fresh_for = config.word_counts_for(self.facts.view().active_count());
        let behind_for = self.behind_for(now);
        let word = Word {
            is_gone: &|monitor| {
                let since = self.detect.gone_since(monitor);
                since.is_some_and(|since| now.mono.saturating_since(since) > rests)
            },
            is_row_fresh: self.table.is_row_fresh(&self.facts, fresh_for),
            behind_for,
            is_behind: self.is_behind(),
        };
        self.fence.confirm_by_monitors(&self.facts, &mut self.out, &word);
        self.drain();
    }

    /// The table showed the view in force to be the latest when it was asked at `sent`.
    pub(crate) fn confirm_by_table(&mut self, sent: Instant) {
        if self.is_behind() {
            // A read that lags: it hides what this silo already knows to exist.
            return;
        }
        self.votes.settle_doubts(sent);
        self.deny_claims(sent);
        self.fence.confirm_by_table(&self.facts, &mut self.out, sent, self.table.touched());
        self.drain();
    }

    /// Returns true if nothing but the table confirms this silo, or will soon.
    pub(crate) fn rests_on_table(&self) -> bool {
        self.fence.rests_on_table(&self.facts, self.is_behind())
    }
}

/// What tests see of a machine beside its outputs.
#[cfg(test)]
impl Membership {
    pub(crate) fn pass(&mut self, span: Duration) {
        let Now { mono, wall } = self.facts.now();
        self.facts.pass(Now { mono: mono + span, wall });
    }

    pub(crate) fn would_write(&self, key: &Key) -> bool {
        self.write.would_write(key)
    }

    /// Takes `intents` to be written, and hands on what another silo is to write. Returns how many
    /// are left.
    pub(crate) fn enqueue_and_hand_on(&mut self, intents: Vec<Intent>) -> [usize; 2] {
        self.act(Inner::Write(intents));
        let before = self.write.len();
        self.hand_on_joins();
        [before, self.write.len()]
    }

    pub(crate) fn wishes_to_be_active(&self) -> bool {
        self.wishes.has(&Key::Activate(self.me()))
    }

    pub(crate) fn waits_with_a_later_view(&self) -> bool {
        self.join.is_checking() && self.wishes_to_be_active() && self.join.lags(&self.facts)
    }

    pub(crate) const fn claimed(&self) -> u64 {
        self.join.claimed()
    }

    pub(crate) fn forget_steps(&mut self) {
        let view = self.view().clone();
        self.facts.install(view, None);
        self.join.forget_later_views();
    }

    pub(crate) fn probes(&self, silo: &SiloAddress) -> bool {
        self.detect.silos().any(|probed| probed == silo)
    }

    pub(crate) const fn heard_table_at(&self) -> Option<Instant> {
        self.facts.table_answered()
    }

    pub(crate) fn votes_required(&self, target: &SiloAddress) -> usize {
        self.votes.quorum().votes_required(&self.facts, target, false)
    }
}
