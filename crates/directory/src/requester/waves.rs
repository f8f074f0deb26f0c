//! Requests on their way to the owners, in waves: what comes up while an owner is busy with earlier
//! requests goes to it as one message, and is answered as one.
//!
//! The answers are the clock. A lone request leaves at once. A request waits only for an answer
//! that is due anyway, so that a silo without a storm does not notice.

use std::collections::BTreeMap;

use emmer_core::SiloAddress;

use crate::facts::Facts;
use crate::message::{Ask, Message};
use crate::out::Out;

/// Unanswered messages with requests from which on an owner gets a further message only when that
/// is full.
const UNANSWERED_MAX: u32 = 2;
/// Most requests in one message.
const ASKS_MAX: usize = 256;

/// The requests for all owners.
#[derive(Debug, Default)]
pub(super) struct Waves(BTreeMap<SiloAddress, Wave>);

/// The requests for one owner.
#[derive(Debug, Default)]
struct Wave {
    /// Messages with requests that the owner has not answered, as far as this silo knows.
    unanswered: u32,
    /// Requests that wait, in order. None while a message may be sent.
    asks: Vec<Ask>,
}

impl Wave {
    fn send(&mut self, facts: &Facts, out: &mut Out, to: SiloAddress) {
        if !self.asks.is_empty() {
            self.unanswered += 1;
            let asks = std::mem::take(&mut self.asks);
            out.send(to, Message::Requests { view: facts.version(), asks });
        }
    }
}

impl Waves {
    /// Sends `ask` to `to`, with others if it has to wait.
    pub(super) fn send(&mut self, facts: &Facts, out: &mut Out, to: SiloAddress, ask: Ask) {
        let wave = self.0.entry(to).or_default();
        wave.asks.push(ask);
        let asks_max = ASKS_MAX.min(facts.config().report_batch_max);
        if wave.unanswered < UNANSWERED_MAX || wave.asks.len() >= asks_max {
            wave.send(facts, out, to);
        }
    }

    /// `from` has answered a message: those that waited for that go.
    pub(super) fn answered(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress) {
        let Some(wave) = self.0.get_mut(&from) else { return };
        wave.unanswered = wave.unanswered.saturating_sub(1);
        wave.send(facts, out, from);
        if wave.unanswered == 0 {
            self.0.remove(&from);
        }
    }

    /// Answers of `from` may be lost: no request waits for them.
    pub(super) fn lost(&mut self, facts: &Facts, out: &mut Out, from: SiloAddress) {
        if let Some(mut wave) = self.0.remove(&from) {
            wave.unanswered = 0;
            wave.send(facts, out, from);
        }
    }

    /// Sends all that wait: the view that they were made in is about to end.
    pub(super) fn send_all(&mut self, facts: &Facts, out: &mut Out) {
        for (to, mut wave) in std::mem::take(&mut self.0) {
            wave.send(facts, out, to);
        }
    }
}
