//! The shell of the membership machine: one task owns it, executes its effects and reports their
//! results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};
use emmer_membership::{
    ConnectionEvent, Counters, DialId, DialOutcome, Effect, Event, HealthSample, Membership,
    Message, OpId, TableOutcome, TableRequest, TableSnapshot, TerminateReason, View,
};
use emmer_net::clock::{CoarseInstant, wall};
use emmer_net::transport::{dial_probe, keep_lifeline};
use emmer_net::warn_seldom;
use emmer_net::world::{self, Abort, Spawner};
use emmer_store::StoreErrorKind;
use emmer_store::silos::{SiloCommit, SiloTable, SiloTouch};
use emmer_wire::channel;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Cluster;
use super::history::changes_of;

/// Inputs waiting for the machine; one more is dropped (the protocol bears lost messages).
const INPUTS_MAX: usize = 16_384;

/// Number of inputs that are handled before the timers are checked.
const INPUTS_IN_A_ROW_MAX: u32 = 64;

/// A silo that has been joining for longer says in the log whom it waits for.
const JOIN_PATIENCE_MS: u64 = 10_000;

/// Received bytes are reported to the machine this often per peer, not for every read.
const HEARD_EVERY: Duration = Duration::from_millis(100);

/// Time between two looks if the silo's tasks run again.
const STUCK_LOOK: Duration = Duration::from_millis(50);

/// Time between two measurements of the process.
pub(super) const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// Input of the machine.
#[derive(Debug)]
pub(crate) enum Input {
    Message(SiloAddress, Message),
    Connection(SiloAddress, ConnectionEvent),
    Table(OpId, TableOutcome),
    Dial(DialId, DialOutcome),
    Health(HealthSample),
    Join,
    Leave,
    Stop,
    FinishLeave,
    /// The table has changed, a process outside says.
    News,
}

/// Counts of the membership protocol on one silo, for metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MembershipStatistics {
    /// The protocol's own counters.
    pub counters: Counters,
    /// The self-health score: 0 is healthy, 8 the worst.
    pub health_score: u32,
    /// True if the silo starts no turns because it hears from no other silo.
    pub fenced: bool,
    /// The version of the view in force.
    pub view_version: u64,
    /// The time of the membership table's last answer, on the silo's own clock.
    pub store_answered: Option<Instant>,
    /// The time of the last request that the membership table left unanswered.
    pub store_unanswered: Option<Instant>,
    /// Requests to the membership table that were answered.
    pub store_requests: u64,
    /// The sum of their durations.
    pub store_time: Duration,
    /// The longest of them.
    pub store_time_max: Duration,
    /// The longest time by which the protocol's own work was late on this silo: probes that were
    /// due, and everything else that waits for a moment.
    pub longest_lateness: Duration,
    /// The time for which the fence was shut.
    pub fence_shut: Duration,
}

/// The way to the machine's task.
pub(crate) struct MembershipHandle {
    inputs: mpsc::Sender<Input>,
    heard: Mutex<HashMap<SiloAddress, CoarseInstant>>,
    /// News waits for the machine.
    news: AtomicBool,
}

impl MembershipHandle {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Input>) {
        let (inputs, receiver) = mpsc::channel(INPUTS_MAX);
        (Self { inputs, heard: Mutex::default(), news: AtomicBool::new(false) }, receiver)
    }

    /// Tells the machine; dropped when it cannot keep up.
    pub(crate) fn send(&self, input: Input) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.inputs.try_send(input) {
            warn_seldom!("the membership task cannot keep up: an input was dropped");
        }
    }

    /// Hands the machine a message of a silo outside the view. Such messages fill at most half of
    /// the room, so they displace no message of a member.
    pub(crate) fn send_of_stranger(&self, input: Input) {
        if self.inputs.capacity() > INPUTS_MAX / 2 {
            self.send(input);
        }
    }

    /// Tells the machine, waiting for room: for what must not get lost.
    pub(crate) async fn send_surely(&self, input: Input) {
        let _ = self.inputs.send(input).await;
    }

    /// A process outside says that the table has changed. One such word waits at a time: a flood of
    /// them displaces no message.
    pub(crate) fn news(&self) {
        if !self.news.swap(true, Ordering::AcqRel) {
            self.send(Input::News);
        }
    }

    /// Bytes arrived from `silo`.
    pub(crate) fn heard(&self, silo: SiloAddress, now: CoarseInstant) {
        let mut heard = self.heard.lock();
        if heard.get(&silo).is_some_and(|last| now < last.after(HEARD_EVERY)) {
            return;
        }
        heard.insert(silo, now);
        drop(heard);
        self.send(Input::Connection(silo, ConnectionEvent::Heard));
    }

    /// Forgets peers that are gone.
    pub(crate) fn retain(&self, view: &View) {
        self.heard.lock().retain(|silo, _| view.get(silo).is_some());
    }
}

/// Decisions of the machine about the whole silo.
pub(crate) trait Seat: Send + Sync {
    /// Puts a new view in force, everywhere in the silo.
    fn install(&self, view: Arc<View>, status: SiloStatus, fading: &[(SiloAddress, Instant)]);

    /// Closes the fence, or opens it.
    fn set_fence(&self, closed: bool);

    /// Says until when turns may run without a further confirmation.
    fn set_fence_deadline(&self, at: Option<Instant>);
}

/// Runs the machine until it ends, on the thread of its own; `main` is the runtime of everything
/// else.
pub(crate) async fn run(
    cluster: Arc<Cluster>,
    main: Spawner,
    seat: &impl Seat,
    mut machine: Membership,
    table: SiloTable,
    mut inputs: mpsc::Receiver<Input>,
) -> TerminateReason {
    main.spawn(measure_health(cluster.clone()));
    let mut inputs_in_a_row = 0;
    let mut fence_deadline = None;
    let mut lifelines = Lifelines::default();
    loop {
        while let Some(effect) = machine.poll_effect() {
            if let Effect::Watch(silos) = effect {
                lifelines.keep_only(&cluster, &silos);
            } else if let Some(reason) =
                execute(&cluster, &main, seat, &table, &mut machine, effect)
            {
                return reason;
            }
        }
        while cluster.is_stuck() {
            warn_seldom!("the tasks of this silo do not run: it is silent until they do");
            tokio::time::sleep(STUCK_LOOK).await;
        }
        if fence_deadline != machine.fence_deadline() {
            fence_deadline = machine.fence_deadline();
            seat.set_fence_deadline(fence_deadline);
        }
        let due = machine.poll_timeout();
        // Messages first: an answer that is already here must not be judged late. But a flood of
        // them must not keep the machine from its timers.
        if inputs_in_a_row >= INPUTS_IN_A_ROW_MAX {
            inputs_in_a_row = 0;
            machine.handle_timeout(cluster.clock.exact());
            continue;
        }
        let input = tokio::select! {
            biased;
            input = inputs.recv() => input,
            () = cluster.clock.sleep_until(due) => {
                inputs_in_a_row = 0;
                let now = cluster.clock.exact();
                let late = due.map(|due| now.mono.saturating_since(due));
                note_lateness(&cluster, late.unwrap_or_default());
                machine.handle_timeout(now);
                continue;
            }
        };
        let Some(input) = input else { return TerminateReason::Left };
        inputs_in_a_row += 1;
        let now = cluster.clock.exact();
        match input {
            Input::Message(from, message) => machine.handle_message(now, from, message),
            Input::Connection(peer, event) => machine.handle_connection(now, peer, event),
            Input::Table(op, outcome) => machine.handle_table(now, op, outcome),
            Input::Dial(dial, outcome) => machine.handle_dial(now, dial, outcome),
            Input::Health(sample) => {
                machine.handle_health(now, sample);
                publish(&cluster, &machine);
            }
            Input::Join => machine.join(now),
            Input::Leave => machine.leave(now),
            Input::Stop => machine.stop(now),
            Input::FinishLeave => machine.finish_leave(now),
            Input::News => {
                cluster.membership.news.store(false, Ordering::Release);
                machine.handle_news(now);
            }
        }
    }
}

/// The lifelines to the silos that the machine watches, and the connections for its messages to
/// them, each kept by a task.
#[derive(Default)]
struct Lifelines(BTreeMap<SiloAddress, [Abort; 2]>);

impl Lifelines {
    fn keep_only(&mut self, cluster: &Arc<Cluster>, silos: &BTreeSet<SiloAddress>) {
        self.0.retain(|silo, _| silos.contains(silo));
        for silo in silos {
            self.0.entry(*silo).or_insert_with(|| {
                let silo = *silo;
                let (watching, talking) = (cluster.clone(), cluster.clone());
                let lifeline = async move {
                    let cluster = watching;
                    let greeting = cluster.watch_greeting();
                    let report = |event| cluster.membership.send(Input::Connection(silo, event));
                    keep_lifeline(silo, &greeting, report).await;
                };
                let talk = async move { talking.pulse.keep(silo).await };
                [world::spawn(lifeline).into(), world::spawn(talk).into()]
            });
        }
    }
}

fn execute(
    cluster: &Arc<Cluster>,
    main: &Spawner,
    seat: &impl Seat,
    table: &SiloTable,
    machine: &mut Membership,
    effect: Effect,
) -> Option<TerminateReason> {
    match effect {
        Effect::Table { op, request } => {
            let (cluster, table) = (cluster.clone(), table.clone());
            world::spawn(async move {
                let (asked, before) = (cluster.clock.mono(), cluster.view());
                let changes = changes_of(&request, &before);
                let outcome = ask_table(&table, request).await;
                if let TableOutcome::Committed(version) = &outcome {
                    let by = (cluster.me, wall());
                    cluster.history.committed(by, version.number, &changes);
                }
                let away = matches!(
                    outcome,
                    TableOutcome::Unavailable | TableOutcome::Unknown | TableOutcome::TableMissing
                );
                note_store_time(&cluster, asked, away);
                cluster.membership.send_surely(Input::Table(op, outcome)).await;
            });
        }
        Effect::Send { to, message } => {
            if !cluster.pulse.say(to, &message) {
                main.within(|| cluster.peers.post(to, channel::MEMBERSHIP, &message));
            }
        }
        Effect::Dial { dial, to, timeout } => {
            let cluster = cluster.clone();
            world::spawn(async move {
                let outcome = dial_probe(to, &cluster.probe_greeting(), timeout).await;
                cluster.membership.send_surely(Input::Dial(dial, outcome)).await;
            });
        }
        Effect::Renew(silo) => {
            cluster.pulse.renew(silo);
            main.within(|| cluster.peers.renew(silo));
        }
        // Kept by the caller.
        Effect::Watch(_) => {}
        Effect::Install(view) => {
            main.within(|| seat.install(view, machine.status(), &machine.fading()));
        }
        Effect::Fence(on) => main.within(|| seat.set_fence(on)),
        Effect::Event(event) => log(cluster, &event),
        Effect::Terminate(reason) => return Some(reason),
    }
    None
}

fn publish(cluster: &Cluster, machine: &Membership) {
    let mut statistics = cluster.membership_statistics.lock();
    statistics.counters = machine.counters().clone();
    statistics.health_score = machine.health_score();
    statistics.fenced = machine.is_fenced();
    statistics.view_version = machine.view().version();
}

fn note_lateness(cluster: &Cluster, late: Duration) {
    let mut statistics = cluster.membership_statistics.lock();
    statistics.longest_lateness = statistics.longest_lateness.max(late);
}

fn note_store_time(cluster: &Cluster, asked: Instant, away: bool) {
    let now = cluster.clock.mono();
    let took = now.saturating_since(asked);
    let mut statistics = cluster.membership_statistics.lock();
    if away {
        statistics.store_unanswered = Some(now);
    } else {
        statistics.store_answered = Some(now);
    }
    statistics.store_requests += 1;
    statistics.store_time += took;
    statistics.store_time_max = statistics.store_time_max.max(took);
}

async fn ask_table(table: &SiloTable, request: TableRequest) -> TableOutcome {
    let failed = |e: emmer_store::StoreError| {
        // No row of a damaged store can be trusted, so its table counts as gone.
        if matches!(e.kind, StoreErrorKind::NotFound | StoreErrorKind::Damaged) {
            warn_seldom!(error = %e, "the store answers, and the membership table is not there");
            return TableOutcome::TableMissing;
        }
        warn_seldom!(error = %e, "the membership table does not answer");
        TableOutcome::Unavailable
    };
    match request {
        TableRequest::ReadAll => match table.read_all().await {
            Ok((version, rows)) => TableOutcome::Snapshot(TableSnapshot { version, rows }),
            Err(e) => failed(e),
        },
        TableRequest::ReadSome { near, rows } => {
            match table.read_some(&near, rows as usize).await {
                Ok(rows) => TableOutcome::Sample(rows),
                Err(e) => failed(e),
            }
        }
        TableRequest::ReadVersion => match table.read_version().await {
            Ok(version) => TableOutcome::Version(version),
            Err(e) => failed(e),
        },
        TableRequest::Commit { base, rows, deletes } => {
            match table.commit(&base, rows, deletes).await {
                Ok(SiloCommit::Committed(version)) => TableOutcome::Committed(version),
                Ok(SiloCommit::Conflict) => TableOutcome::Conflict,
                Ok(SiloCommit::Unknown(e)) => {
                    warn_seldom!(error = %e, "a membership commit has an unknown outcome");
                    TableOutcome::Unknown
                }
                Err(e) => failed(e),
            }
        }
        TableRequest::Touch { silo, at } => match table.touch(&silo, at).await {
            Ok(SiloTouch::Touched) => TableOutcome::Touched,
            Ok(SiloTouch::RowMissing) => TableOutcome::RowMissing,
            Err(e) => failed(e),
        },
    }
}

fn log(cluster: &Cluster, event: &Event) {
    let me = cluster.me;
    match event {
        Event::ProbeMissed { peer, in_a_row } => {
            tracing::info!(%me, %peer, in_a_row, "a probe was not answered");
        }
        Event::VoteCast { peer } => tracing::debug!(%me, %peer, "the vote is in the table"),
        Event::DeclaredDead { peer } => tracing::info!(%me, %peer, "wrote that a silo is dead"),
        Event::NotReached { from } => {
            let advertised = me.endpoint();
            warn_seldom!(%me, %from, %advertised, "cannot join yet: a member dialled the \
                advertised address in vain");
        }
        Event::JoinWaitsFor { peer } => {
            // While many start together this is usual; when it lasts, an operator has to look.
            if cluster.clock.now().as_millis() > JOIN_PATIENCE_MS {
                warn_seldom!(%me, %peer, "cannot join yet: no connectivity to a member");
            } else {
                tracing::debug!(%me, %peer, "cannot join yet: no connectivity to a member");
            }
        }
        Event::TableMissing => warn_seldom!(%me, "the membership table is gone: this silo ends if \
            it does not come back within ten seconds"),
        Event::OwnRowDeleted => warn_seldom!(%me, "the row of this silo was deleted from the \
                                                   membership table although the silo lives: it \
                                                   writes the row again. Do not change rows of \
                                                   this table by hand"),
        Event::StoreUnavailable => warn_seldom!(%me, "the system store does not answer"),
        Event::StoreBack => tracing::info!(%me, "the system store answers again"),
        other => tracing::debug!(%me, event = ?other, "membership"),
    }
}

/// Measures how long a task waits for a worker, and how late a timer fires.
#[allow(clippy::disallowed_methods, reason = "the measure is a task of nobody")]
async fn measure_health(cluster: Arc<Cluster>) {
    loop {
        let due = tokio::time::Instant::now() + world::seldom(HEALTH_EVERY);
        tokio::select! {
            biased;
            () = cluster.peers.stopped.cancelled() => return,
            () = tokio::time::sleep_until(due) => {}
        }
        let fired = tokio::time::Instant::now();
        // On any host: the question is when a worker thread takes the task.
        let started = tokio::spawn(async { tokio::time::Instant::now() }).await.unwrap_or(fired);
        cluster.lateness.note(cluster.clock.now(), started.saturating_duration_since(due));
        cluster.membership.send(Input::Health(HealthSample {
            scheduler_delay: started.saturating_duration_since(fired),
            timer_delay: fired.saturating_duration_since(due),
        }));
    }
}
