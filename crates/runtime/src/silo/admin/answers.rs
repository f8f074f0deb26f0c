//! Answers of a silo about itself and its grains.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmer_core::reminder::Reminder;
use emmer_core::{GrainId, GrainTypeId, SiloAddress, SiloEntry, Timestamp};
use emmer_membership::ring_targets;
use emmer_net::clock::wall;
use emmer_net::transport::Connection;
use emmer_store::history::Recorded;
use emmer_store::state::StoredState;

use super::acts::{ReminderAct, log};
use super::{Answer, Visit, encoded, id_of};
use crate::access::Known;
use crate::admin::{
    ActivationLook, AdminError, ChangeLook, ConnectionLook, DueLook, GrainLook, GrainName,
    MetricLook, Question, ReminderLook, SiloLook, StateLook, TurnLook,
};
use crate::hosting::{Wanted, millis};
use crate::metrics::{MetricValue, Sample};
use crate::silo::core::SiloCore;

/// Number of rows of a list, at most.
const LIST_MAX: usize = 1_000;

/// Bytes of payloads of states in one answer.
const PAYLOADS_MAX: usize = 512 << 10;

impl SiloCore {
    /// Answers a question that is for this silo.
    pub(super) async fn answer_here(self: &Arc<Self>, visit: &Visit) -> Answer {
        let most = |max: u32| usize::try_from(max).unwrap_or(LIST_MAX).min(LIST_MAX);
        match &visit.question {
            Question::Silo => encoded(&self.look()),
            Question::Members => {
                let view = self.cluster.view();
                let rows: Vec<&SiloEntry> = view.members().iter().map(|row| &**row).collect();
                encoded(&rows)
            }
            Question::Types => encoded(&self.host.types().await),
            Question::Methods => encoded(&self.host.method_statistics()),
            Question::Grains { grain_type, key_has, busy, after, max } => {
                let grain_type = grain_type.as_deref().map(GrainTypeId::of);
                let wanted = Wanted { grain_type, key_has: key_has.clone(), busy: *busy };
                encoded(&self.host.page(&wanted, *after, *max).await)
            }
            Question::Look(grain) => encoded(&self.grain_look(grain).await?),
            Question::Turns { max } => {
                let mut turns = self.host.oldest_turns(most(*max));
                self.name_silos(turns.iter_mut());
                encoded(&(turns, self.host.held_threads()))
            }
            Question::Queues { max } => encoded(&self.host.longest_queues(most(*max))),
            Question::Hot { max } => encoded(&self.host.hot(most(*max))),
            Question::Metrics => {
                encoded(&self.metrics().into_iter().map(metric_look).collect::<Vec<_>>())
            }
            Question::Connections { max } => encoded(&self.connection_looks(most(*max))),
            Question::Reminders { max } => {
                let (due, now) = (self.reminders.due(most(*max)), wall());
                encoded(&due.iter().map(|due| due_look(due, now)).collect::<Vec<_>>())
            }
            Question::Failures { max } => encoded(&self.host.last_failures(most(*max))),
            Question::History { max } => encoded(&self.changes(most(*max)).await?),
            Question::Settings => encoded(&self.options.all_settings()),
            Question::Log { level, after, max } => {
                let page = log()?.lines(level, *after, most(*max));
                encoded(&page.map_err(AdminError::Failed)?)
            }
            Question::Traced { grain } => encoded(&self.host.traced(&id_of(grain))),
            Question::Trace { grain, for_ms, because } => {
                encoded(&self.trace_grain(grain, *for_ms, &visit.who, because.as_deref())?)
            }
            Question::SetLog { filter, for_ms, because } => {
                let (filter, because) = (filter.as_deref(), because.as_deref());
                encoded(&self.set_log(filter, *for_ms, &visit.who, because)?)
            }
            Question::RemoveReminder { grain, name, because } => {
                let (act, because) = (ReminderAct::Remove, because.as_deref());
                encoded(&self.act_on_reminder(act, (grain, name), &visit.who, because).await?)
            }
            Question::FireReminder { grain, name, because } => {
                let (act, because) = (ReminderAct::Fire, because.as_deref());
                encoded(&self.act_on_reminder(act, (grain, name), &visit.who, because).await?)
            }
            Question::Deactivate { grain, drop_turns, within_ms, because } => {
                let because = because.as_deref();
                let order = (*drop_turns, *within_ms);
                encoded(&self.deactivate_grain(grain, order, &visit.who, because).await?)
            }
            Question::Move { grain, to, because } => {
                encoded(&self.move_grain(grain, *to, &visit.who, because.as_deref()).await?)
            }
            Question::GiveDuty { duty, because } => {
                encoded(&self.give_duty(*duty, &visit.who, because.as_deref()).await?)
            }
        }
    }

    /// The silo as a whole.
    fn look(&self) -> SiloLook {
        let host = &self.host;
        SiloLook {
            silo: self.address,
            cluster: self.options.cluster_id.to_string(),
            name: self.name.to_string(),
            emmer: env!("CARGO_PKG_VERSION").to_owned(),
            status: *self.cluster.status.borrow(),
            duty: self.duty(),
            readiness: self.readiness().to_string(),
            view: self.cluster.view_version(),
            up_ms: host.clock.mono().as_nanos() / 1_000_000,
            memory_bytes: self.memory_bytes(),
            turns_suspended: host.standing.len() as u64,
            held_threads: u32::try_from(host.held_count()).unwrap_or(u32::MAX),
            probes: self.probes(),
            statistics: self.statistics(),
        }
    }

    /// The silos that this silo probes.
    fn probes(&self) -> Vec<SiloAddress> {
        let (config, view) = (&self.options.membership, self.cluster.view());
        let (rings, wanted) = (config.num_probe_rings, config.num_probed_silos);
        ring_targets(&view, &self.address, rings, wanted).into_iter().collect()
    }

    /// The activations of a grain.
    pub(super) fn activations_of(&self, id: &GrainId) -> Vec<ActivationLook> {
        let mut looks = self.host.look_at(id);
        self.name_silos(looks.iter_mut().flat_map(|look| look.turns.iter_mut()));
        looks
    }

    /// Adds the silos that have calls of turns to what the turns wait for.
    fn name_silos<'a>(&self, turns: impl Iterator<Item = &'a mut TurnLook>) {
        let mut turns: BTreeMap<u64, &mut TurnLook> =
            turns.filter(|turn| turn.turn != 0).map(|turn| (turn.turn, turn)).collect();
        if turns.is_empty() {
            return;
        }
        for connection in self.pool.open() {
            let Some(silo) = connection.silo() else { continue };
            let words = format!("silo {silo}");
            for caller in connection.callers(|turn| turns.contains_key(&turn)) {
                if let Some(turn) = turns.get_mut(&caller)
                    && !turn.waits_for.contains(&words)
                {
                    turn.waits_for.push(words.clone());
                }
            }
        }
    }

    /// The connections, those with most bytes that wait first.
    fn connection_looks(&self, max: usize) -> Vec<ConnectionLook> {
        let open = self.pool.open();
        let mut looks: Vec<_> = open.iter().map(|connection| connection_look(connection)).collect();
        looks.sort_by_key(|look| std::cmp::Reverse((look.bytes_waiting, look.calls_waiting)));
        looks.truncate(max);
        looks
    }

    /// The latest changes in the history.
    async fn changes(&self, max: usize) -> Result<Vec<ChangeLook>, AdminError> {
        if self.options.records.history_retention.is_zero() {
            return Ok(Vec::new());
        }
        let read = self.records.history.read().await;
        let read = read.map_err(|error| AdminError::Failed(error.to_string()))?;
        let look = |one: &Recorded| ChangeLook {
            at_ms: one.at.as_millis(),
            version: one.version,
            silo: one.silo.to_string(),
            name: one.name.to_string(),
            host: one.host.to_string(),
            change: one.change.to_string(),
            writer: one.writer.to_string(),
            evidence: one.evidence.iter().map(|line| line.to_string()).collect(),
        };
        Ok(read.iter().take(max).map(look).collect())
    }

    /// One grain, without waking it.
    async fn grain_look(&self, grain: &GrainName) -> Result<GrainLook, AdminError> {
        let id = id_of(grain);
        let class = self.host.classes.get(&id.grain_type());
        let class = class.ok_or_else(|| AdminError::NoType(grain.grain_type.clone()))?;
        let (mut states, mut unread, mut room) = (Vec::new(), Vec::new(), PAYLOADS_MAX);
        let stores = [None].into_iter().chain(class.state_stores().iter().copied().map(Some));
        for store in stores.filter(|_| class.has_state()) {
            let Some(table) = self.host.states.of(store) else { continue };
            match table.of_grain(class.name(), &grain.key).await {
                Ok(found) => states.extend(
                    found
                        .into_iter()
                        .map(|(name, found)| state_look(name, store, &found, &mut room)),
                ),
                Err(error) => unread.push(format!("the states: {error}")),
            }
        }
        let reminders = match self.reminders.of_grain(&id).await {
            Ok(found) => {
                let now = wall();
                found.iter().map(|reminder| reminder_look(reminder, now)).collect()
            }
            Err(error) => {
                unread.push(format!("the reminders: {error}"));
                Vec::new()
            }
        };
        Ok(GrainLook {
            grain_type: grain.grain_type.clone(),
            key: grain.key.clone(),
            silo: self.address,
            activations: self.activations_of(&id),
            states,
            reminders,
            failures: self.host.failures_of(&id),
            unread,
        })
    }
}

fn state_look(
    name: String,
    store: Option<&str>,
    found: &StoredState,
    room: &mut usize,
) -> StateLook {
    let bytes = found.payload.len();
    let has_room = bytes <= *room;
    *room -= if has_room { bytes } else { 0 };
    StateLook {
        name,
        store: store.map(str::to_owned),
        format: found.format.to_string(),
        etag: found.etag.to_string(),
        modified: found.modified.to_string(),
        bytes: bytes as u64,
        payload: has_room.then(|| found.payload.to_vec().into()),
    }
}

fn connection_look(connection: &Connection) -> ConnectionLook {
    let traffic = connection.traffic();
    let admitted = connection.admitted.as_ref();
    let known = admitted.and_then(|admitted| admitted.proof.downcast_ref::<Known>());
    ConnectionLook {
        silo: connection.silo(),
        client: known.map(|known| known.identity.name().to_owned()),
        from: connection.from.map(|from| from.to_string()),
        bytes_waiting: traffic.bytes_waiting,
        messages_waiting: traffic.messages_waiting,
        calls_waiting: connection.waiting(),
        calls_serving: connection.serving(),
        bytes_sent: traffic.bytes_sent,
        bytes_received: traffic.bytes_received,
    }
}

fn metric_look(sample: Sample) -> MetricLook {
    let names = sample.metric.labels.iter().map(|name| (*name).to_owned());
    let labels = names.zip(sample.labels).collect();
    let (value, latency) = match sample.value {
        MetricValue::Count(count) => (share(count), None),
        MetricValue::Level(level) => (level, None),
        MetricValue::Durations(latency) => (share(latency.samples()), Some(latency)),
    };
    MetricLook { name: sample.metric.name.to_owned(), labels, value, latency }
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 lose their last digits")]
fn share(count: u64) -> f64 {
    count as f64
}

/// Milliseconds from `now` to `at`, negative if that has passed.
fn left(at: Timestamp, now: Timestamp) -> i64 {
    let ahead = i64::try_from(millis(at.saturating_since(now))).unwrap_or(i64::MAX);
    let late = i64::try_from(millis(now.saturating_since(at))).unwrap_or(i64::MAX);
    ahead - late
}

fn due_look((reminder, failed): &(Reminder, u32), now: Timestamp) -> DueLook {
    let next = reminder.next().map(|(_, at)| at);
    DueLook {
        grain_type: reminder.grain_type.to_string(),
        key: reminder.grain.key().clone(),
        name: reminder.name.to_string(),
        next: next.map(|at| at.to_string()),
        in_ms: next.map(|at| left(at, now)),
        failed: *failed,
        fired: reminder.fired,
        missed: reminder.missed_count,
    }
}

fn reminder_look(reminder: &Reminder, now: Timestamp) -> ReminderLook {
    let next = reminder.next().map(|(_, at)| at);
    ReminderLook {
        name: reminder.name.to_string(),
        next: next.map(|at| at.to_string()),
        in_ms: next.map(|at| left(at, now)),
        fired: reminder.fired,
        missed: reminder.missed_count,
    }
}
