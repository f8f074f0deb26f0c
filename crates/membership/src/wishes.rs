//! This silo's own intents, and who is asked to write them (improvement 5).

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, Now, SiloAddress, SiloStatus};

use crate::api::Event;
use crate::intent::{INTENTS_PER_MESSAGE_MAX, Intent, Key};
use crate::membership::Membership;
use crate::message::Message;
use crate::rules::is_shown;
use crate::timers::Timer;

/// An intent of this silo's own, until the view shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    intent: Intent,
    /// How many writers were asked since the last full round.
    attempt: u32,
    /// When the next one is asked.
    next_at: Instant,
    /// Whom it was sent to last; none when this silo writes itself.
    sent_to: Option<SiloAddress>,
}

/// This silo's own intents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wishes {
    own: BTreeMap<Key, Own>,
    /// How many writers were asked in all before this silo wrote itself.
    asked_in_vain: usize,
}

impl Wishes {
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.own.contains_key(key)
    }

    /// Whether a vote that stands in the table is to be taken back.
    pub(crate) fn retracts(&self, key: &Key) -> bool {
        self.own.get(key).is_some_and(|own| matches!(own.intent, Intent::Retract { .. }))
    }

    /// Gives a wish up, and tells nobody.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.own.remove(key);
    }

    /// Who leaves wishes for nothing but that.
    pub(crate) fn keep_only_status(&mut self) {
        self.own.retain(|key, _| matches!(key, Key::Status(_)));
    }
}

/// How long a wish that a writer has acknowledged rests, at most, before it is repeated (and
/// `writer_timeout` four times more): the writer may be gone.
const REPEAT_VOTES: Duration = Duration::from_millis(1_500);

/// How many other silos are asked before a silo writes itself.
const WRITERS_ASKED: usize = 2;

/// The same for a silo in no view that has asked so many in vain: perhaps most are gone.
const WRITERS_ASKED_AGAIN: usize = 8;

impl Membership {
    /// Wishes for `intent`, in place of an earlier one with the same key. It is sent at once,
    /// unless an earlier one is on its way to a writer and only its evidence is refreshed.
    pub(crate) fn wish(&mut self, now: Now, intent: Intent) {
        let key = intent.key();
        let fresh = match self.wishes.own.get_mut(&key) {
            Some(own) => {
                let evidence = |intent: &Intent| match intent {
                    Intent::Vote { evidence, .. } => Some(*evidence),
                    _ => None,
                };
                let stronger = evidence(&intent) > evidence(&own.intent);
                let same = own.intent == intent;
                own.intent = intent;
                if stronger || (!same && matches!(own.intent, Intent::Activate { .. })) {
                    own.next_at = now.mono;
                    own.attempt = 0;
                }
                false
            }
            None => {
                self.wishes
                    .own
                    .insert(key, Own { intent, attempt: 0, next_at: now.mono, sent_to: None });
                true
            }
        };
        if !fresh && let Some(own) = self.wishes.own.get(&key) {
            self.writer.replace(&key, &own.intent);
        }
        self.route_own(now);
    }

    /// Gives a wish up; tells the writer when it was a vote, or to be Active.
    pub(crate) fn unwish(&mut self, key: &Key) {
        let Some(own) = self.wishes.own.remove(key) else { return };
        self.writer.forget(key);
        let (target, voter) = match own.intent {
            Intent::Vote { target, voter, .. } => (target, voter),
            Intent::Activate { silo, .. } => (silo, silo),
            _ => return,
        };
        if let Some(to) = own.sent_to {
            let intents = vec![Intent::Withdraw { target, voter }];
            self.out.send(
                to,
                Message::Write { version: self.facts.view().version(), intents, hops: 1 },
            );
        }
    }

    /// Sends what is due to the writer of its turn: the first Active silo by ring order, then the
    /// second, then this one, then from the beginning. The writer is only an optimiser: safety
    /// rests on the conditional commit.
    pub(crate) fn route_own(&mut self, now: Now) {
        if self.is_done() {
            return;
        }
        let due: Vec<Key> = self
            .wishes
            .own
            .iter()
            .filter(|(_, own)| own.next_at <= now.mono)
            .map(|(key, _)| *key)
            .collect();
        if !due.is_empty() {
            let writers = self.writers_to_ask();
            for key in due {
                self.route_one(now, key, &writers);
            }
        }
        match self.wishes.own.values().map(|own| own.next_at).min() {
            Some(at) => self.out.timers().set(Timer::Route, at),
            None => self.out.timers().clear(Timer::Route),
        }
    }

    fn route_one(&mut self, now: Now, key: Key, writers: &[SiloAddress]) {
        let me = self.facts.me();
        let (writer_timeout, version) =
            (self.facts.config().writer_timeout, self.facts.view().version());
        let Some(own) = self.wishes.own.get_mut(&key) else { return };
        let writer = writers.get(own.attempt as usize).copied().filter(|w| *w != me);
        own.sent_to = writer;
        let intent = own.intent.clone();
        if let Some(to) = writer {
            own.attempt += 1;
            own.next_at = now.mono + writer_timeout;
            self.writer.forget(&key);
            self.out.send(to, Message::Write { version, intents: vec![intent], hops: 1 });
        } else {
            // Write it myself, and ask the others again when even that does not lead anywhere:
            // perhaps only this silo is cut off from the table.
            let asked = std::mem::take(&mut own.attempt) as usize;
            own.next_at = now.mono + writer_timeout * 8;
            self.wishes.asked_in_vain = self.wishes.asked_in_vain.wrapping_add(asked);
            self.enqueue(now, intent);
        }
    }

    /// Lets the writer be chosen anew for an own intent.
    pub(crate) fn reroute(&mut self, now: Now, key: Key) {
        if let Some(own) = self.wishes.own.get_mut(&key) {
            own.attempt = 0;
            own.next_at = now.mono;
            self.out.timers().set_no_later(Timer::Route, now.mono);
        }
    }

    /// Whom to ask to write, in order: nobody when every silo writes for itself.
    pub(crate) fn writers_to_ask(&self) -> Vec<SiloAddress> {
        if !self.facts.config().batch_writes {
            return Vec::new();
        }
        if let Some(winner) = self.join.winner(&self.facts) {
            return vec![winner];
        }
        let me = self.facts.me();
        let usable =
            |silo: &SiloAddress| !self.is_doubted(silo) && !self.evictions.knows_gone(silo);
        let first = |status, skipped: usize| -> Vec<SiloAddress> {
            let ring = self
                .facts
                .view()
                .ring(0)
                .iter()
                .map(|(_, at)| &self.facts.view().members()[*at as usize]);
            let all = ring.filter(|m| m.status == status).map(|m| m.address);
            let others_first = all.clone().skip(skipped).chain(all.take(skipped));
            let asked = if skipped == 0 { WRITERS_ASKED } else { WRITERS_ASKED_AGAIN };
            others_first.filter(usable).take(asked).collect()
        };
        // A silo in no view probes nobody, and does not know who is gone. It asks others than those
        // it has asked in vain.
        let active = self.facts.view().active_count().max(1);
        let skipped = if self.facts.standing().is_in_table() {
            0
        } else {
            self.wishes.asked_in_vain % active
        };
        let mut writers = first(SiloStatus::Active, skipped);
        if writers.is_empty() {
            // While nobody is Active yet, or all who were seem to be gone, the first that is
            // Joining collects for the others.
            writers = first(SiloStatus::Joining, 0);
        }
        if let Some(at) = writers.iter().position(|w| *w == me) {
            writers.truncate(at);
        }
        writers
    }

    /// A writer has taken this silo's wishes: no need to ask another one soon.
    pub(crate) fn on_noted(&mut self, now: Now, from: SiloAddress) {
        let patience = self.facts.config().vote_hold.min(REPEAT_VOTES)
            + self.facts.config().writer_timeout * 4;
        for own in self.wishes.own.values_mut().filter(|own| own.sent_to == Some(from)) {
            own.attempt = 0;
            own.next_at = now.mono + patience;
        }
        self.join.on_noted(&self.facts, &mut self.out);
        self.route_own(now);
    }

    /// Somebody wants something written.
    pub(crate) fn on_write(&mut self, now: Now, intents: Vec<Intent>, hops: u8) {
        // Without the table this silo is no use as a writer; silence lets its clients ask another
        // one.
        if self.is_done()
            || !self.facts.standing().knows_table()
            || self.table.is_down()
            || self.facts.standing().is_leaving()
        {
            return;
        }
        let mut owners: Vec<SiloAddress> = Vec::new();
        let writer = self.writers_to_ask().first().copied();
        let mut forward = Vec::new();
        for mut intent in intents.into_iter().take(INTENTS_PER_MESSAGE_MAX) {
            self.out.count().intents_received += 1;
            if let Intent::Vote { at, .. } = &mut intent {
                // From a clock that is far off: the time of its arrival, not that of a commit that
                // the store delays.
                *at = self.facts.config().vote_window().sane_time(now.wall, *at);
            }
            if intent.owner() == self.facts.me() {
                continue;
            }
            if hops == 0 && writer.is_some() {
                forward.push(intent);
                continue;
            }
            let owner = intent.owner();
            if !matches!(intent, Intent::Withdraw { .. }) && !owners.contains(&owner) {
                owners.push(owner);
            }
            self.enqueue(now, intent);
        }
        for owner in owners {
            self.out.send(owner, Message::Noted { version: self.facts.view().version() });
        }
        if let (Some(to), false) = (writer, forward.is_empty()) {
            self.out.send(
                to,
                Message::Write { version: self.facts.view().version(), intents: forward, hops: 1 },
            );
        }
    }

    /// Removes the own intents that the view in force already shows.
    pub(crate) fn reconcile_own(&mut self) {
        let done: Vec<Key> = self
            .wishes
            .own
            .iter()
            .filter(|(_, own)| is_shown(self.facts.view(), &own.intent))
            .map(|(key, _)| *key)
            .collect();
        for key in done {
            let own = self.wishes.own.remove(&key);
            self.writer.forget(&key);
            if let Some(Intent::Vote { target: peer, .. }) = own.map(|own| own.intent) {
                self.out.event(Event::VoteCast { peer });
            }
        }
    }
}
