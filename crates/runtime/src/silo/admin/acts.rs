//! Orders of operators. Each is in the log and in the history of the cluster, with the person that
//! gave it.

use std::sync::Arc;
use std::time::Duration;

use emmer_core::{Duty, GrainId, SiloAddress};
use emmer_net::clock::wall;
use emmer_net::log::Plain;
use emmer_net::world;
use emmer_store::history::Recorded;
use futures_util::future::join_all;

use super::id_of;
use crate::admin::{self, AdminError, Deactivated, GrainName, LogBook, Moved, WITHIN_MS_MAX};
use crate::hosting::Activation;
use crate::silo::core::SiloCore;
use crate::turn::DeactivationReason;

/// Turns that are dropped have this long to go.
const DROPPED_MAX: Duration = Duration::from_secs(1);

/// Characters of the words of an operator.
const WORDS_MAX: usize = 200;

/// Number of turns of one grain that are dropped at once.
const TURNS_MAX: usize = 100_000;

/// Time that a grain is tried to move.
const MOVE_MAX: Duration = Duration::from_secs(3);

/// The longest trace, in milliseconds.
const TRACE_MS_MAX: u64 = 3_600_000;

/// The longest time of another filter of the log, in milliseconds.
const LOG_MS_MAX: u64 = 86_400_000;

/// The least number of an act among the changes of a version, in the history.
const NUMBER_MIN: u64 = 100_000;
const NUMBERS: u64 = 900_000;

/// Order about a reminder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReminderAct {
    Remove,
    Fire,
}

/// The person that gives an order, and the reason, in one line.
fn words(who: &str, because: Option<&str>) -> String {
    let line = because.map_or_else(|| who.to_owned(), |because| format!("{who}: {because}"));
    Plain(&line).to_string().chars().take(WORDS_MAX).collect()
}

impl SiloCore {
    /// Ends the activations of a grain.
    pub(super) async fn deactivate_grain(
        self: &Arc<Self>,
        grain: &GrainName,
        (drop_turns, within_ms): (bool, u64),
        who: &str,
        because: Option<&str>,
    ) -> Result<Deactivated, AdminError> {
        let (id, words) = (id_of(grain), words(who, because));
        let title = self.cluster.placing.load.title(&id);
        let found = self.host.catalog.of_grain(&id);
        let within = Duration::from_millis(within_ms.min(WITHIN_MS_MAX));
        self.wait_for_ends(&found, within).await;
        let mut dropped = 0;
        if drop_turns && !self.left_of(&id, &found).is_empty() {
            let why = format!("{words} had the turn dropped");
            let turns = self.host.turns_of(&id, TURNS_MAX);
            dropped = turns.iter().filter(|turn| turn.drop_turn(&why)).count();
            self.wait_for_ends(&found, DROPPED_MAX).await;
        }
        let left = self.left_of(&id, &found);
        let looks = if left.is_empty() { Vec::new() } else { self.activations_of(&id) };
        let outcome = Deactivated {
            silo: self.address,
            ended: count(found.len() - left.len()),
            dropped: count(dropped),
            left: count(left.len()),
            turns: looks.iter().flat_map(|look| look.turns.clone()).collect(),
            threads: looks.iter().flat_map(|look| look.threads.clone()).collect(),
        };
        let (ended, left) = (outcome.ended, outcome.left);
        tracing::info!(grain = %Plain(&title), by = words, ended, dropped, left, "an operator ends a grain");
        if !found.is_empty() {
            let told = format!("{title}: {ended} ended, {dropped} turns dropped, {left} left");
            self.record_act("deactivated", &[told, words]);
        }
        Ok(outcome)
    }

    /// Waits until these activations have ended, for this time.
    async fn wait_for_ends(&self, found: &[Arc<Activation>], within: Duration) {
        let ends = found
            .iter()
            .map(|activation| activation.clone().close_and_wait(DeactivationReason::Operator));
        let _ = tokio::time::timeout(within, join_all(ends)).await;
    }

    /// Those of the activations that are still there.
    fn left_of(&self, id: &GrainId, found: &[Arc<Activation>]) -> Vec<Arc<Activation>> {
        let there = self.host.catalog.of_grain(id);
        let is_left =
            |activation: &Arc<Activation>| there.iter().any(|other| Arc::ptr_eq(other, activation));
        found.iter().filter(|activation| is_left(activation)).cloned().collect()
    }

    /// Moves a grain to another silo.
    pub(super) async fn move_grain(
        self: &Arc<Self>,
        grain: &GrainName,
        to: Option<SiloAddress>,
        who: &str,
        because: Option<&str>,
    ) -> Result<Moved, AdminError> {
        let (id, words) = (id_of(grain), words(who, because));
        let title = self.cluster.placing.load.title(&id);
        let found = self.host.catalog.of_grain(&id);
        let not = |why: &str| AdminError::Failed(format!("{title} was not moved: {why}"));
        let [activation] = &found[..] else {
            return Err(not("it is not active, or is a stateless worker"));
        };
        let to = match to {
            Some(to) if to == self.address => return Err(not("it is on that silo")),
            Some(to) if self.cluster.knows(to) => to,
            Some(to) => return Err(AdminError::NoSilo(to)),
            None => match self.calls.place_again(activation).await {
                Ok(to) if to != self.address => to,
                Ok(_) => return Err(not("placement leaves it on its silo")),
                Err(why) => return Err(not(&why.to_string())),
            },
        };
        activation.move_within(to, MOVE_MAX).await.map_err(|why| not(&why.to_string()))?;
        tracing::info!(grain = %Plain(&title), by = words, %to, "an operator moves a grain");
        self.record_act("moved", &[format!("{title} to {to}"), words]);
        Ok(Moved { from: self.address, to })
    }

    /// Removes a reminder of a grain, or delivers its next tick now. Returns false if there is
    /// none.
    pub(super) async fn act_on_reminder(
        &self,
        act: ReminderAct,
        (grain, name): (&GrainName, &str),
        who: &str,
        because: Option<&str>,
    ) -> Result<bool, AdminError> {
        let (id, grain_type) = (id_of(grain), &grain.grain_type);
        let (done, act) = match act {
            ReminderAct::Remove => {
                (self.reminders.remove_by_hand(&id, grain_type, name).await, "removed")
            }
            ReminderAct::Fire => {
                (self.reminders.fire_by_hand(&id, grain_type, name).await, "fired")
            }
        };
        let done = done.map_err(AdminError::Failed)?;
        if done {
            let (title, words) =
                (format!("{grain_type}/{} {name}", grain.key), words(who, because));
            tracing::info!(
                reminder = %Plain(&title), by = words, act, "an operator acts on a reminder"
            );
            self.record_act(&format!("reminder-{act}"), &[title, words]);
        }
        Ok(done)
    }

    /// Gives this silo another duty. Returns the version of the table that says so.
    pub(super) async fn give_duty(
        &self,
        duty: Duty,
        who: &str,
        because: Option<&str>,
    ) -> Result<u64, AdminError> {
        let written = self.change_duty(duty, None, &words(who, because)).await;
        written
            .map(|written| written.version.number)
            .map_err(|error| AdminError::Failed(error.to_string()))
    }

    /// Traces a grain on this silo. Returns the time in milliseconds.
    pub(super) fn trace_grain(
        &self,
        grain: &GrainName,
        for_ms: u64,
        who: &str,
        because: Option<&str>,
    ) -> Result<u64, AdminError> {
        let (id, words) = (id_of(grain), words(who, because));
        if !self.host.classes.contains_key(&id.grain_type()) {
            return Err(AdminError::NoType(grain.grain_type.clone()));
        }
        let for_ms = for_ms.min(TRACE_MS_MAX);
        if !self.host.trace(&id, Duration::from_millis(for_ms)) {
            let why = "the silo traces as many grains as it may; a trace ends by itself";
            return Err(AdminError::Failed(why.to_owned()));
        }
        let title = self.cluster.placing.load.title(&id);
        tracing::info!(grain = %Plain(&title), by = words, for_ms, "an operator traces a grain");
        self.record_act("traced", &[title, words]);
        Ok(for_ms)
    }

    /// Has the log written by another filter for a time. Returns the filter before.
    pub(super) fn set_log(
        &self,
        filter: Option<&str>,
        for_ms: u64,
        who: &str,
        because: Option<&str>,
    ) -> Result<String, AdminError> {
        let (words, for_ms) = (words(who, because), for_ms.min(LOG_MS_MAX));
        let before = log()?.set_filter(filter, Duration::from_millis(for_ms));
        let before = before.map_err(AdminError::Failed)?;
        let told = filter.unwrap_or("as at the start");
        tracing::info!(filter = %Plain(told), by = words, for_ms, "an operator changes the log");
        self.record_act("log-changed", &[format!("{}", Plain(told)), words]);
        Ok(before)
    }

    /// Has an act written into the history, behind the changes of the version in force.
    fn record_act(&self, change: &str, evidence: &[String]) {
        if self.options.records.history_retention.is_zero() {
            return;
        }
        let view = self.cluster.view();
        let host = view.get(&self.address).map(|row| row.host_name.clone());
        self.cluster.history.acted(Recorded {
            version: view.version(),
            number: NUMBER_MIN + world::random_bits() % NUMBERS,
            at: wall(),
            writer: self.address.to_string().into(),
            silo: self.address.to_string().into(),
            name: self.name.clone(),
            host: host.unwrap_or_else(|| "".into()),
            change: change.into(),
            evidence: evidence.iter().map(|line| line.as_str().into()).collect(),
        });
    }
}

/// The log of this process.
pub(super) fn log() -> Result<&'static dyn LogBook, AdminError> {
    admin::log().ok_or_else(|| {
        let why = "this program writes its log by itself, and shows it to no operator \
            (emmer::admin::show_log)";
        AdminError::Failed(why.to_owned())
    })
}

fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}
