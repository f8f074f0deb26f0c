//! The machine itself: its state, its inputs, its outputs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloEntry, SiloStatus};

use crate::api::{
    ConnectionEvent, DialId, DialOutcome, Effect, HealthSample, OpId, TableOutcome, TerminateReason,
};
use crate::config::{Config, ConfigError};
use crate::connect::Check;
use crate::counters::Counters;
use crate::dials::Dials;
use crate::dice::Dice;
use crate::fading::Fading;
use crate::fence::Fence;
use crate::health::Health;
use crate::housekeeping::Cleaning;
use crate::indirect::Indirect;
use crate::intent::Wishes;
use crate::join::Join;
use crate::lost::Loss;
use crate::memo::{Memo, Shared};
use crate::message::Message;
use crate::monitor::Probing;
use crate::stale::Staleness;
use crate::standing::Standing;
use crate::supersede::Evictions;
use crate::suspicion::Voting;
use crate::table::TableLane;
use crate::timers::{Timer, Timers};
use crate::view::View;
use crate::views::Dissemination;
use crate::writer::Writer;

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
    pub(crate) config: Arc<Config>,
    /// The row this silo inserts. Its IAmAliveTime lies before its start time by a distance drawn
    /// from the seed: two processes with the same identity can tell whose row it is.
    pub(crate) me: Arc<SiloEntry>,
    pub(crate) standing: Standing,
    pub(crate) view: Arc<View>,
    pub(crate) dice: Dice,
    pub(crate) timers: Timers,
    pub(crate) effects: VecDeque<Effect>,
    pub(crate) counters: Counters,
    pub(crate) join: Join,
    pub(crate) check: Check,
    pub(crate) probing: Probing,
    pub(crate) indirect: Indirect,
    pub(crate) dials: Dials,
    pub(crate) voting: Voting,
    pub(crate) wishes: Wishes,
    pub(crate) writer: Writer,
    pub(crate) evictions: Evictions,
    pub(crate) table: TableLane,
    pub(crate) loss: Loss,
    pub(crate) gossip: Dissemination,
    pub(crate) staleness: Staleness,
    pub(crate) health: Health,
    pub(crate) fence: Fence,
    pub(crate) fading: Fading,
    pub(crate) cleaning: Cleaning,
    /// The latest time this machine was told, and the wall clock at the last input.
    pub(crate) latest: Now,
    pub(crate) shared: Shared,
}

/// How far before the start time the initial IAmAliveTime lies at most.
const TWIN_MARK_MS: u64 = 1_000;

/// Room for how many effects is kept when all have been handed out.
const EFFECTS_KEPT: usize = 64;

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
            config: Arc::new(config),
            me: Arc::new(me),
            standing: Standing::created(),
            view: Arc::new(View::empty()),
            dice,
            timers: Timers::default(),
            effects: VecDeque::new(),
            counters: Counters::default(),
            join: Join::default(),
            check: Check::default(),
            probing: Probing::default(),
            indirect: Indirect::default(),
            dials: Dials::default(),
            voting: Voting::default(),
            wishes: Wishes::default(),
            writer: Writer::default(),
            evictions: Evictions::default(),
            table: TableLane::default(),
            loss: Loss::default(),
            gossip: Dissemination::default(),
            staleness: Staleness::default(),
            health: Health::default(),
            fence: Fence::default(),
            fading: Fading::default(),
            cleaning: Cleaning::default(),
            latest: now,
            shared: Shared::default(),
        })
    }

    /// Lets this machine share what it computes with others of its process. It changes no result.
    pub fn share(&mut self, memo: Arc<Memo>) {
        self.config = memo.config(self.config.clone());
        self.shared = Shared::with(memo);
    }

    // ---- commands
    // -----------------------------------------------------------------------------------------

    /// Starts joining. Until then nothing is sent and nothing is read.
    pub fn join(&mut self, now: Now) {
        self.begin(now);
        self.start_join(now);
        self.finish(now);
    }

    /// Starts leaving in good order: writes ShuttingDown, and stops probing and voting. The
    /// application drains; then call [`finish_leave`](Self::finish_leave).
    pub fn leave(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(now, SiloStatus::ShuttingDown);
        self.finish(now);
    }

    /// Starts leaving in haste: writes Stopping, also when a graceful leave takes too long.
    pub fn stop(&mut self, now: Now) {
        self.begin(now);
        self.start_leaving(now, SiloStatus::Stopping);
        self.finish(now);
    }

    /// Ends the leave: writes Dead, then comes `Terminate(Left)`, at the latest after
    /// `shutdown_grace_period`.
    pub fn finish_leave(&mut self, now: Now) {
        self.begin(now);
        self.start_finishing(now);
        self.finish(now);
    }

    // ---- inputs
    // -------------------------------------------------------------------------------------------

    /// The time given by [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Now) {
        self.begin(now);
        let late = self.poll_timeout().map_or(Duration::ZERO, |at| now.mono.saturating_since(at));
        if late > PAUSE {
            self.grace_probes(now);
        }
        // Each timer at most once: one that is set again for this very moment waits for the next
        // call.
        let mut due = Vec::new();
        while let Some(timer) = self.timers.pop_due(now.mono) {
            due.push(timer);
        }
        for timer in due {
            self.on_timer(now, timer);
        }
        if !self.standing.is_over() {
            self.run_probes(now);
            self.run_help(now);
        }
        self.finish(now);
    }

    fn on_timer(&mut self, now: Now, timer: Timer) {
        if self.standing.is_over() {
            return;
        }
        match timer {
            // The pump that follows every input does the work.
            Timer::Flush | Timer::TableRetry => {}
            Timer::TableTimeout => self.on_table_timeout(now),
            Timer::TouchTimeout => self.on_touch_timeout(now),
            Timer::Refresh => self.refresh(now),
            Timer::Touch => self.touch(now),
            Timer::JoinDeadline => self.on_join_deadline(),
            Timer::JoinStep => self.on_join_step(now),
            Timer::Route => self.route_own(now),
            Timer::Pull => self.on_pull_timeout(now),
            Timer::Claim => self.check_claim(),
            Timer::Leave => self.on_leave_timeout(),
            Timer::Fence => self.check_fence(now),
            Timer::Stale => self.look_for_staleness(now),
            Timer::Housekeeping => self.housekeep(now),
        }
    }

    /// A message arrived from `from`, from that very incarnation.
    pub fn handle_message(&mut self, now: Now, from: SiloAddress, message: Message) {
        self.begin(now);
        if self.standing.is_over()
            || self.standing.status() == SiloStatus::Created && self.join.is_idle()
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
                self.on_probe(now, from, seq, misses, echo);
                self.note_version(now, from, version);
                // The most frequent message: it changes nothing about what this silo probes itself.
                if !self.standing.is_over() {
                    self.pump_table(now);
                }
                return;
            }
            Message::Ack { seq, version, stamp } => {
                self.on_ack(now, from, seq, stamp);
                self.note_version(now, from, version);
            }
            Message::Seen { stamp } => self.fence_heard(now, &from, 0, stamp),
            Message::Superseded { by } => self.on_superseded(from, by),
            Message::Yielded => self.on_yielded(now, from),
            Message::Hush { target, by, stamp } => self.on_hush(now, from, target, by, stamp),
            Message::Hushed { target, stamp } => self.on_hushed(now, from, target, stamp),
            Message::ProbeFor { seq, target, wait_ms } => {
                self.on_probe_for(now, from, seq, target, Duration::from_millis(wait_ms));
            }
            Message::ProbedFor { seq, answered, score, .. } => {
                self.on_probed_for(now, from, seq, answered, score);
            }
            Message::Write { version, intents, hops } => {
                self.note_version(now, from, version);
                self.on_write(now, intents, hops);
            }
            Message::Noted { version } => {
                if self.standing.is_in_table() {
                    self.note_version(now, from, version);
                } else {
                    // The view with its row may have been lost on the way.
                    self.on_hint(now, from, version);
                }
                self.on_noted(now, from);
            }
            Message::Reach => self.on_reach(from),
            Message::Reached { through } => self.on_reached(now, from, through),
            Message::Recheck { version } => {
                self.note_version(now, from, version);
                self.on_recheck(now, version);
            }
            Message::Tree { root, delta } => self.on_tree(now, from, root, &delta),
            Message::Pull { have } => self.on_pull(now, from, have),
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
        if !self.standing.is_over() {
            self.on_table(now, op, outcome);
        }
        self.finish(now);
    }

    /// The dial `dial` ended.
    pub fn handle_dial(&mut self, now: Now, dial: DialId, outcome: DialOutcome) {
        self.begin(now);
        if !self.standing.is_over() {
            self.on_dial(now, dial, outcome);
        }
        self.finish(now);
    }

    /// The shell noticed something about the connection to `peer`.
    pub fn handle_connection(&mut self, now: Now, peer: SiloAddress, event: ConnectionEvent) {
        self.begin(now);
        if !self.standing.is_over() {
            self.on_connection(now, peer, event);
        }
        self.finish(now);
    }

    /// The shell measured how well this process runs.
    pub fn handle_health(&mut self, now: Now, sample: HealthSample) {
        self.begin(now);
        self.on_health(now, sample);
        self.finish(now);
    }

    // ---- outputs
    // ------------------------------------------------------------------------------------------

    /// The next thing to do; none when everything has been handed out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.effects.pop_front();
        if effect.is_none() {
            if self.effects.capacity() > EFFECTS_KEPT {
                // A silo that joins thousands has thousands of effects, once.
                self.effects = VecDeque::new();
            } else {
                // The next ones use the same memory again.
                self.effects.clear();
            }
        }
        effect
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); none when nothing is waited for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.timers.next(), self.probing.due_at()].into_iter().flatten().min()
    }

    // ---- getters
    // ------------------------------------------------------------------------------------------

    /// Who this silo is.
    pub fn me(&self) -> SiloAddress {
        self.me.address
    }

    /// This silo's own status.
    pub const fn status(&self) -> SiloStatus {
        self.standing.status()
    }

    /// The view in force; empty until the table has been seen.
    pub const fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The self-health score, 0 (well) to 8.
    pub fn health_score(&self) -> u32 {
        self.score()
    }

    /// What was counted.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether the fence is closed: no turn may start.
    pub const fn is_fenced(&self) -> bool {
        self.fence.is_closed()
    }

    /// Until when turns may start without a further confirmation; none when the fence does not
    /// apply. A shell whose process may have been frozen compares this with the clock before each
    /// turn.
    pub fn fence_deadline(&self) -> Option<Instant> {
        self.fence_closes_at()
    }

    /// The options in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    // ---- the frame of every input
    // -----------------------------------------------------------------------------

    fn begin(&mut self, now: Now) {
        self.latest.mono = self.latest.mono.max(now.mono);
        self.latest.wall = now.wall;
        // Before anything else, also when this process was frozen and another input comes first: a
        // join whose time is over writes nothing any more (I3), and a silo without a recent
        // confirmation starts no turn (I8).
        if self.timers.is_due(Timer::JoinDeadline, now.mono) {
            self.on_join_deadline();
        }
        if self.timers.is_due(Timer::Fence, now.mono) {
            self.check_fence(now);
        }
    }

    fn finish(&mut self, now: Now) {
        if self.standing.is_over() {
            return;
        }
        self.pump_table(now);
        self.assert_whole();
        self.probing.due_next(self.next_probe().into_iter().chain(self.next_help()).min());
    }

    /// What holds between the parts after every input, in builds with debug assertions (tests, the
    /// simulator).
    fn assert_whole(&self) {
        if self.standing.is_over() {
            return;
        }
        debug_assert!(
            !self.standing.is_in_table() || self.view.get(&self.me.address).is_some(),
            "a silo whose row is gone has ended"
        );
        debug_assert!(
            self.probing.len() == 0 || self.standing.status() == SiloStatus::Active,
            "only Active silos probe"
        );
        debug_assert!(
            !self.standing.is_finishing()
                || self.config.fence_timeout.is_zero()
                || self.fence.is_closed(),
            "a silo that asks for its own death starts no turn"
        );
        debug_assert!(self.gossip.fits(self.view.version()), "the log ends with the view in force");
        debug_assert!(self.writer.is_bounded(), "the writer's queue has a bound");
    }

    pub(crate) fn send(&mut self, to: SiloAddress, message: Message) {
        if to != self.me.address {
            self.effects.push_back(Effect::Send { to, message });
        }
    }

    pub(crate) const fn is_done(&self) -> bool {
        self.standing.is_over()
    }

    /// Ends the machine. What it still had to say stays in the queue before the end.
    pub(crate) fn terminate(&mut self, reason: TerminateReason) {
        if self.standing.is_over() {
            return;
        }
        self.standing.end(reason != TerminateReason::JoinTimedOut);
        self.timers.clear_all();
        self.probing.stop();
        self.indirect = Indirect::default();
        self.wishes = Wishes::default();
        self.writer = Writer::default();
        self.evictions = Evictions::default();
        self.effects.push_back(Effect::Terminate(reason));
    }

    /// The own row, in a new view, has this status.
    pub(crate) fn own_status_is(&mut self, now: Now, status: SiloStatus) {
        let before = self.standing.status();
        self.standing.rise_to(status);
        if before < SiloStatus::Active && self.standing.status() == SiloStatus::Active {
            self.health.became_active(now);
            self.table.start_touching(self.fence.wished().unwrap_or(now.mono));
            let touch = self.dice.duration_below(self.publish_period());
            self.timers.set(Timer::Touch, now.mono + touch);
            let refresh = self.dice.duration_below(self.config.table_refresh_timeout);
            self.timers.set(Timer::Refresh, now.mono + refresh);
            self.schedule_housekeeping(now);
        }
        if self.standing.status() >= SiloStatus::Active && self.timers.is_set(Timer::Touch) {
            // In a cluster that has become smaller rows are touched more often.
            self.timers.set_no_later(Timer::Touch, now.mono + self.publish_period());
        }
    }
}
