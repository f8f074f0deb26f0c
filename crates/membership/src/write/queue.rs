//! The intents that a silo is to write, its own and others'.

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::limits::MEMBERSHIP_ROWS_PER_COMMIT_MAX;
use emmer_core::{Instant, SiloAddress};

use crate::facts::Facts;
use crate::intent::{INTENTS_MAX, Intent, Key};
use crate::out::Out;
use crate::timers::Timer;

/// The queue, in the order in which intents are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue(BTreeMap<Key, Queued>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queued {
    intent: Intent,
    /// Time at which it came in.
    since: Instant,
    /// Time at which its owner last repeated the intent.
    renewed: Instant,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the queue keeps within its bound.
    pub(super) fn is_bounded(&self) -> bool {
        self.0.len() <= INTENTS_MAX
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Intent> {
        self.0.get(key).map(|queued| &queued.intent)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Intent> {
        self.0.remove(key).map(|queued| queued.intent)
    }

    /// Writes `intent`. It replaces a waiting intent of the same key.
    pub(super) fn replace(&mut self, intent: Intent) {
        if let Some(queued) = self.0.get_mut(&intent.key()) {
            queued.intent = intent;
        }
    }

    /// The votes against `target` that wait, and since when.
    pub(super) fn votes_against(
        &self,
        target: SiloAddress,
    ) -> impl Iterator<Item = (Key, &Intent, Instant)> {
        self.0
            .range(Key::Vote(target, lowest())..)
            .take_while(move |(key, _)| matches!(key, Key::Vote(t, _) if *t == target))
            .map(|(key, queued)| (*key, &queued.intent, queued.since))
    }

    /// Returns true if any vote waits to be written.
    pub(super) fn has_votes(&self) -> bool {
        self.0.keys().next().is_some_and(|key| matches!(key, Key::Vote(..)))
    }

    /// The joins of others that do not fit into the next commit.
    pub(super) fn joins_beyond(&self, me: SiloAddress) -> Vec<Key> {
        let me = Key::Join(me);
        let joins = self.0.range(Key::Join(lowest())..).map(|(key, _)| *key);
        joins.filter(|key| *key != me).skip(MEMBERSHIP_ROWS_PER_COMMIT_MAX).collect()
    }

    /// Takes an intent to be written by this silo.
    pub(super) fn add(&mut self, facts: &Facts, out: &mut Out, intent: Intent) {
        let (key, now) = (intent.key(), facts.now().mono);
        if matches!(intent, Intent::Withdraw { .. }) {
            self.0.remove(&key);
            return;
        }
        if let Some(queued) = self.0.get_mut(&key) {
            // A copy that comes late must not take the place of a silo's last word about itself.
            let later = |intent: &Intent| match intent {
                Intent::Status { status, .. } => Some(*status),
                _ => None,
            };
            if later(&intent) >= later(&queued.intent) {
                queued.intent = intent;
            }
            queued.renewed = now;
        } else if self.0.len() < INTENTS_MAX {
            self.0.insert(key, Queued { intent, since: now, renewed: now });
        }
        self.collect(facts, out);
    }

    /// Waits for more intents, unless there are enough for a commit.
    pub(super) fn collect(&self, facts: &Facts, out: &mut Out) {
        if self.0.len() >= MEMBERSHIP_ROWS_PER_COMMIT_MAX {
            out.timers().clear(Timer::Flush);
        } else if !self.0.is_empty() {
            let until = facts.now().mono + facts.config().batch_window;
            out.timers().set_no_later(Timer::Flush, until);
        }
    }

    /// Forgets wishes of others that they no longer repeat: a vote that waited out an outage of the
    /// store would be old evidence (invariant I5). Wishes of `is_own` stay.
    pub(super) fn forget_stale(
        &mut self,
        now: Instant,
        keep: Duration,
        is_own: &dyn Fn(&Key) -> bool,
    ) {
        self.0.retain(|key, queued| is_own(key) || now.saturating_since(queued.renewed) < keep);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A key below every real address.
fn lowest() -> SiloAddress {
    SiloAddress::new(std::net::SocketAddr::from(([0, 0, 0, 0], 0)), 0)
}
