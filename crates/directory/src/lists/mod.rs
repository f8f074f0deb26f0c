//! Lists on their way to other silos, with few batches of each in flight: the receiver gives credit
//! as it takes them.

use std::collections::{BTreeMap, BTreeSet};

use emmer_core::{Instant, SiloAddress};

use crate::facts::Facts;
use crate::list::Body;
use crate::out::{Out, Timer};

/// Number of batches that are on their way before the receiver has said anything.
const WINDOW: u32 = 4;

/// The most lists being sent. One more ends the oldest: who waits for that one asks again.
const STREAMS_MAX: usize = 4096;

/// The lists being sent, by their number.
#[derive(Debug, Default)]
pub(crate) struct Lists(BTreeMap<u64, Stream>);

/// A list on its way to another silo.
#[derive(Clone, Debug)]
struct Stream {
    to: SiloAddress,
    body: Body,
    sent: u32,
    /// The time at which the list is given up, if the receiver stays silent.
    due: Instant,
}

impl Lists {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if another silo has yet to take what this one handed over.
    pub(crate) fn hands_over(&self) -> bool {
        self.0.values().any(|stream| matches!(stream.body, Body::Handed { .. }))
    }

    /// Begins to send a list. An earlier one for the same purpose ends.
    pub(crate) fn open(&mut self, facts: &Facts, out: &mut Out, to: SiloAddress, body: Body) {
        self.keep_those_that(out, |stream| stream.to != to || !stream.body.is_for_the_same(&body));
        if self.0.len() >= STREAMS_MAX
            && let Some(oldest) = self.0.keys().next().copied()
        {
            self.close(out, oldest);
        }
        let series = out.next_number();
        self.0.insert(series, Stream { to, body, sent: 0, due: facts.now() });
        self.advance(facts, out, to, series, 0);
    }

    /// The list was silent for long: a silo that still needs it has asked again.
    pub(crate) fn on_due(&mut self, series: u64) {
        self.0.remove(&series);
    }

    /// Ends a list, and returns it.
    fn close(&mut self, out: &mut Out, series: u64) -> Option<Stream> {
        let stream = self.0.remove(&series)?;
        out.clear(stream.due, Timer::Stream(series));
        Some(stream)
    }

    /// The receiver has the first `taken` batches: more may follow.
    pub(crate) fn advance(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        to: SiloAddress,
        series: u64,
        taken: u32,
    ) {
        let Some(stream) = self.0.get_mut(&series).filter(|stream| stream.to == to) else {
            return;
        };
        let (now, size) = (facts.now(), facts.config().report_batch_max.max(1));
        let batches = stream.body.batches(size);
        let until = batches.min(taken.saturating_add(WINDOW));
        let messages: Vec<_> = (stream.sent..until)
            .map(|batch| stream.body.message(now, series, batch, size))
            .collect();
        stream.sent = stream.sent.max(until);
        let over = match stream.body {
            Body::Report { .. } => stream.sent == batches,
            Body::Collected { .. } | Body::Handed { .. } => taken >= batches,
        };
        out.clear(stream.due, Timer::Stream(series));
        if over {
            self.0.remove(&series);
        } else {
            stream.due = now + facts.config().op_timeout;
            out.set(stream.due, Timer::Stream(series));
        }
        for message in messages {
            out.send(to, message);
        }
    }

    /// Sends again the entries that were collected for `to`, or `handed` to it. Returns false if
    /// they are gone.
    pub(crate) fn repeat(
        &mut self,
        facts: &Facts,
        out: &mut Out,
        to: SiloAddress,
        view: u64,
        handed: bool,
    ) -> bool {
        let is_it = |stream: &Stream| match stream.body {
            Body::Report { .. } => false,
            Body::Collected { view: v, .. } => !handed && v == view && stream.to == to,
            Body::Handed { view: v, .. } => handed && v == view && stream.to == to,
        };
        let found = self.0.iter().find(|(_, stream)| is_it(stream)).map(|(series, _)| *series);
        let Some(stream) = found.and_then(|series| self.close(out, series)) else { return false };
        self.open(facts, out, to, stream.body);
        true
    }

    /// A view was installed: a silo that can no longer own anything needs nothing.
    pub(crate) fn view_changed(&mut self, facts: &Facts, out: &mut Out) {
        let active: BTreeSet<SiloAddress> = self
            .0
            .values()
            .map(|stream| stream.to)
            .filter(|to| facts.silos().is_active(to))
            .collect();
        self.keep_those_that(out, |stream| active.contains(&stream.to));
    }

    fn keep_those_that(&mut self, out: &mut Out, keep: impl Fn(&Stream) -> bool) {
        self.0.retain(|series, stream| {
            let keeps = keep(stream);
            if !keeps {
                out.clear(stream.due, Timer::Stream(*series));
            }
            keeps
        });
    }
}
