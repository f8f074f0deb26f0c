//! Messages, and the part that each of them concerns.

use std::time::Duration;

use emmer_core::SiloAddress;

use super::Membership;
use crate::intent::Intent;
use crate::join;
use crate::message::Message;
use crate::views::strangers::{is_from_the_dead, is_stranger, on_obituary, own_intents};
use crate::write;

impl Membership {
    /// A message arrived.
    pub(super) fn hear(&mut self, from: SiloAddress, message: Message) {
        if is_from_the_dead(&self.facts, &mut self.out, from, &message) {
            return;
        }
        if is_stranger(&self.facts, &from) {
            self.hear_stranger(from, message);
            self.finish();
            return;
        }
        let (facts, out) = (&self.facts, &mut self.out);
        match message {
            Message::Probe { seq, version, misses, echo } => {
                self.on_probe(from, seq, misses, echo);
                self.note_version(from, version);
                self.drain();
                // The most frequent message. It changes nothing about this silo's own probes.
                if !self.facts.is_over() {
                    self.pump();
                }
                return;
            }
            Message::Ack { seq, version, stamp } => {
                self.on_ack(from, seq, stamp);
                self.note_version(from, version);
            }
            Message::Seen { stamp } => self.heard_by(&from, 0, stamp),
            Message::Superseded { by } => self.on_superseded(from, by),
            Message::Yielded => self.write.on_yielded(facts, out, from),
            Message::Hush { target, by, .. } if target == facts.me() => {
                self.on_superseded(from, by);
            }
            Message::Hush { target, by, stamp } => {
                write::on_hush(facts, out, from, target, by, stamp);
            }
            Message::Hushed { target, stamp } => {
                self.write.on_hushed(facts, out, from, target, stamp);
            }
            Message::ProbeFor { seq, target, wait_ms } => {
                let wait = Duration::from_millis(wait_ms);
                self.detect.on_probe_for(facts, out, from, seq, target, wait);
            }
            Message::ProbedFor { seq, answered, score, .. } => {
                self.detect.on_probed_for(facts, out, from, seq, answered, score);
            }
            Message::Write { version, intents, hops } => {
                self.note_version(from, version);
                self.on_write(intents, hops);
            }
            Message::Noted { version } => {
                if facts.standing().is_in_table() {
                    self.note_version(from, version);
                } else {
                    // The view with its row may have been lost on the way.
                    self.views.on_hint(facts, out, from, version);
                }
                self.on_noted(from);
            }
            Message::Reach => join::on_reach(facts, out, from),
            Message::Reached { through } => self.join.on_reached(facts, out, from, through),
            Message::Recheck { version } => {
                self.note_version(from, version);
                self.join.on_recheck(&self.facts, &mut self.out, version);
            }
            Message::Tree { root, delta } => self.on_tree(from, root, &delta),
            Message::Pull { have } => self.on_pull(from, have),
            Message::Hint { version } => self.views.on_hint(facts, out, from, version),
            Message::Deltas(deltas) => self.on_deltas(from, &deltas),
            Message::Snapshot { view, fading } => self.on_view(from, view, fading),
            Message::Obituary { version } => on_obituary(facts, out, version),
        }
        self.finish();
    }

    /// Takes from a stranger what a join needs, and nothing else.
    fn hear_stranger(&mut self, from: SiloAddress, message: Message) {
        self.views.note_claim(&self.facts, &mut self.out, &message);
        match message {
            Message::Probe { seq, .. } => self.answer_stranger(from, seq),
            Message::Pull { have } => self.on_pull(from, have),
            Message::Reach => join::on_reach(&self.facts, &mut self.out, from),
            Message::Write { intents, hops, .. } => {
                let own = own_intents(intents, &from);
                if !own.is_empty() {
                    self.on_write(own, hops);
                }
            }
            _ => self.out.count().refused += 1,
        }
    }

    /// A writer has taken this silo's wishes.
    fn on_noted(&mut self, from: SiloAddress) {
        self.join.on_noted(&self.facts, &mut self.out);
        self.with_others(|wishes, facts, out, others| wishes.on_noted(facts, out, from, others));
    }

    /// Another silo wants something written.
    fn on_write(&mut self, intents: Vec<Intent>, hops: u8) {
        // Without the table this silo is no use as a writer; silence lets its clients ask another
        // one.
        let standing = self.facts.standing();
        let may = standing.knows_table() && !standing.is_leaving() && !standing.is_over();
        if may && !self.table.is_down() {
            self.with_others(|wishes, facts, out, others| {
                wishes.on_write(facts, out, intents, hops, others);
            });
        }
    }
}
