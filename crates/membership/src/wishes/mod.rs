//! This silo's own intents, and who is asked to write them (improvement 5).

pub(crate) mod leave;

use std::collections::BTreeMap;
use std::time::Duration;

use emmer_core::{Instant, SiloAddress, SiloStatus};

use crate::api::Event;
use crate::facts::Facts;
use crate::inner::Inner;
use crate::intent::{INTENTS_PER_MESSAGE_MAX, Intent, Key};
use crate::message::Message;
use crate::out::Out;
use crate::rules::is_shown;
use crate::timers::Timer;

/// An intent of this silo's own, until the view shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    intent: Intent,
    /// Number of writers that were asked since the last full round.
    attempt: u32,
    /// Time at which the next one is asked.
    next_at: Instant,
    /// Silo that it was sent to last; none when this silo writes itself.
    sent_to: Option<SiloAddress>,
}

/// This silo's own intents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wishes {
    own: BTreeMap<Key, Own>,
    /// Number of writers that were asked in all before this silo wrote itself.
    asked_in_vain: usize,
}

/// Words of the other parts about silos that could write.
pub(crate) struct Others<'a> {
    winner: Option<SiloAddress>,
    is_usable: &'a dyn Fn(&SiloAddress) -> bool,
}

impl<'a> Others<'a> {
    /// `winner` is the silo that this one has lost a race to on its way into the table; `is_usable`
    /// is true for a silo that will probably answer.
    pub(crate) const fn new(
        winner: Option<SiloAddress>,
        is_usable: &'a dyn Fn(&SiloAddress) -> bool,
    ) -> Self {
        Self { winner, is_usable }
    }
}

/// Longest time that a wish rests which a writer has acknowledged, before it is repeated (and
/// `writer_timeout` four times more): the writer may be gone.
const REPEAT_VOTES: Duration = Duration::from_millis(1_500);

/// Number of other silos that are asked before a silo writes itself.
const WRITERS_ASKED: usize = 2;

/// Number of silos that a silo outside the view asks after it has asked others in vain: perhaps
/// most are gone.
const WRITERS_ASKED_AGAIN: usize = 8;

impl Wishes {
    /// Returns true if this silo has a wish of this key.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.own.contains_key(key)
    }

    /// Returns true if a vote that stands in the table is to be taken back.
    pub(crate) fn retracts(&self, key: &Key) -> bool {
        self.own.get(key).is_some_and(|own| matches!(own.intent, Intent::Retract { .. }))
    }

    /// Gives a wish up, and tells no other silo.
    pub(crate) fn forget(&mut self, key: &Key) {
        self.own.remove(key);
    }

    /// Gives up every wish but those of a silo that leaves.
    fn keep_only_status(&mut self) {
        self.own.retain(|key, _| matches!(key, Key::Status(_)));
    }

    /// Wishes for `intent`, which replaces an earlier one with the same key. It is sent at once,
    /// unless an earlier one is on its way to a writer and only its evidence is refreshed.
    pub(crate) fn wish(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        intent: Intent,
        others: &Others<'_>,
    ) {
        let (key, now) = (intent.key(), facts.now().mono);
        match self.own.get_mut(&key) {
            Some(own) => {
                let evidence = |intent: &Intent| match intent {
                    Intent::Vote { evidence, .. } => Some(*evidence),
                    _ => None,
                };
                let stronger = evidence(&intent) > evidence(&own.intent);
                let same = own.intent == intent;
                own.intent = intent;
                if stronger || (!same && matches!(own.intent, Intent::Activate { .. })) {
                    own.next_at = now;
                    own.attempt = 0;
                }
                out.tell(Inner::Rewrite(own.intent.clone()));
            }
            None => {
                let own = Own { intent, attempt: 0, next_at: now, sent_to: None };
                self.own.insert(key, own);
            }
        }
        self.route(facts, out, others);
    }

    /// Gives a wish up; tells the writer when it was a vote, or to be Active.
    pub(crate) fn unwish(&mut self, facts: &Facts, out: &mut Out, key: Key) {
        let Some(own) = self.own.remove(&key) else { return };
        out.tell(Inner::Unwrite(key));
        let (target, voter) = match own.intent {
            Intent::Vote { target, voter, .. } => (target, voter),
            Intent::Activate { silo, .. } => (silo, silo),
            _ => return,
        };
        if let Some(to) = own.sent_to {
            let intents = vec![Intent::Withdraw { target, voter }];
            out.send(to, Message::Write { version: facts.view().version(), intents, hops: 1 });
        }
    }

    /// Sends due wishes to the writer whose turn it is: the first Active silo by ring order, then
    /// the second, then this one, then from the beginning. The writer is only an optimiser: safety
    /// rests on the conditional commit.
    pub(crate) fn route(&mut self, facts: &Facts, out: &mut Out, others: &Others<'_>) {
        if facts.is_over() {
            return;
        }
        let now = facts.now().mono;
        let due = self.own.iter().filter(|(_, own)| own.next_at <= now);
        let due: Vec<Key> = due.map(|(key, _)| *key).collect();
        if !due.is_empty() {
            let writers = self.writers(facts, others);
            for key in due {
                self.route_one(facts, out, key, &writers);
            }
        }
        match self.own.values().map(|own| own.next_at).min() {
            Some(at) => out.timers().set(Timer::Route, at),
            None => out.timers().clear(Timer::Route),
        }
    }

    fn route_one(&mut self, facts: &Facts, out: &mut Out, key: Key, writers: &[SiloAddress]) {
        let (now, me) = (facts.now().mono, facts.me());
        let (timeout, version) = (facts.config().writer_timeout, facts.view().version());
        let Some(own) = self.own.get_mut(&key) else { return };
        let writer = writers.get(own.attempt as usize).copied().filter(|w| *w != me);
        own.sent_to = writer;
        let intents = vec![own.intent.clone()];
        if let Some(to) = writer {
            own.attempt += 1;
            own.next_at = now + timeout;
            out.tell(Inner::Unwrite(key));
            out.send(to, Message::Write { version, intents, hops: 1 });
        } else {
            // Write it myself, and ask the others again when even that does not lead anywhere:
            // perhaps only this silo is cut off from the table.
            let asked = std::mem::take(&mut own.attempt) as usize;
            own.next_at = now + timeout * 8;
            self.asked_in_vain = self.asked_in_vain.wrapping_add(asked);
            out.tell(Inner::Write(intents));
        }
    }

    /// Lets the writer be chosen again for an own intent.
    pub(crate) fn reroute(&mut self, facts: &Facts, out: &mut Out, key: &Key) {
        if let Some(own) = self.own.get_mut(key) {
            own.attempt = 0;
            own.next_at = facts.now().mono;
            out.timers().set_no_later(Timer::Route, facts.now().mono);
        }
    }

    /// Whom to ask to write, in order: none when every silo writes for itself.
    pub(crate) fn writers(&self, facts: &Facts, others: &Others<'_>) -> Vec<SiloAddress> {
        if !facts.config().batch_writes {
            return Vec::new();
        }
        if let Some(winner) = others.winner {
            return vec![winner];
        }
        let (me, view) = (facts.me(), facts.view());
        let first = |status, skipped: usize| -> Vec<SiloAddress> {
            let ring = view.ring(0).iter().map(|(_, at)| &view.members()[*at as usize]);
            let all = ring.filter(|m| m.status == status).map(|m| m.address);
            let others_first = all.clone().skip(skipped).chain(all.take(skipped));
            let asked = if skipped == 0 { WRITERS_ASKED } else { WRITERS_ASKED_AGAIN };
            others_first.filter(|silo| (others.is_usable)(silo)).take(asked).collect()
        };
        // A silo in no view sends no probes, and does not know which silos are gone. It asks others
        // than those that did not answer.
        let active = view.active_count().max(1);
        let skipped = if facts.standing().is_in_table() { 0 } else { self.asked_in_vain % active };
        let mut writers = first(SiloStatus::Active, skipped);
        if writers.is_empty() {
            // While no silo is Active yet, or all that were seem to be gone, the first that is
            // Joining collects for the others.
            writers = first(SiloStatus::Joining, 0);
        }
        if let Some(at) = writers.iter().position(|w| *w == me) {
            writers.truncate(at);
        }
        writers
    }

    /// A writer has taken this silo's wishes: no need to ask another one soon.
    pub(crate) fn on_noted(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        from: SiloAddress,
        others: &Others<'_>,
    ) {
        let config = facts.config();
        let patience = config.vote_hold.min(REPEAT_VOTES) + config.writer_timeout * 4;
        for own in self.own.values_mut().filter(|own| own.sent_to == Some(from)) {
            own.attempt = 0;
            own.next_at = facts.now().mono + patience;
        }
        self.route(facts, out, others);
    }

    /// Another silo wants something written: takes it, or hands it on.
    pub(crate) fn on_write(
        &self,
        facts: &Facts,
        out: &mut Out,
        intents: Vec<Intent>,
        hops: u8,
        others: &Others<'_>,
    ) {
        let (me, version) = (facts.me(), facts.view().version());
        let mut owners: Vec<SiloAddress> = Vec::new();
        let writer = self.writers(facts, others).first().copied();
        let (mut forward, mut taken) = (Vec::new(), Vec::new());
        for mut intent in intents.into_iter().take(INTENTS_PER_MESSAGE_MAX) {
            out.count().intents_received += 1;
            if let Intent::Vote { at, .. } = &mut intent {
                // From a clock that is far off: the time of its arrival, not that of a commit that
                // the store delays.
                *at = facts.config().vote_window().sane_time(facts.now().wall, *at);
            }
            let owner = intent.owner();
            if owner == me {
                continue;
            }
            if hops == 0 && writer.is_some() {
                forward.push(intent);
                continue;
            }
            if !matches!(intent, Intent::Withdraw { .. }) && !owners.contains(&owner) {
                owners.push(owner);
            }
            taken.push(intent);
        }
        if !taken.is_empty() {
            out.tell(Inner::Write(taken));
        }
        for owner in owners {
            out.send(owner, Message::Noted { version });
        }
        if let (Some(to), false) = (writer, forward.is_empty()) {
            out.send(to, Message::Write { version, intents: forward, hops: 1 });
        }
    }

    /// Removes the own intents that the view in force already shows.
    pub(crate) fn reconcile(&mut self, facts: &Facts, out: &mut Out) {
        let done = self.own.iter().filter(|(_, own)| is_shown(facts.view(), &own.intent));
        let done: Vec<Key> = done.map(|(key, _)| *key).collect();
        for key in done {
            let own = self.own.remove(&key);
            out.tell(Inner::Unwrite(key));
            if let Some(Intent::Vote { target: peer, .. }) = own.map(|own| own.intent) {
                out.event(Event::VoteCast { peer });
            }
        }
    }
}
