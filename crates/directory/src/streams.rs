//! Long lists of registrations in batches, few of them in flight: the receiver gives credit as it
//! takes them.

use std::collections::BTreeSet;

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::api::Registration;
use crate::directory::Directory;
use crate::message::Message;
use crate::pending::Timer;

/// How many batches are on their way before the receiver has said anything.
const WINDOW: u32 = 4;

/// The most lists being sent. One more ends the oldest: who waits for that one asks again.
const STREAMS_MAX: usize = 4096;

/// A list on its way to another silo.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    to: SiloAddress,
    body: Body,
    sent: u32,
    /// When it is given up: the receiver has said nothing for so long.
    due: Instant,
}

/// What is in it.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// The answer to a recovery question: over when it is sent.
    Report { recovery: u64, view: u64, entries: Vec<(GrainId, u64)> },
    /// What a collector was told for a new owner: over when it has arrived.
    Collected {
        view: u64,
        at: u64,
        missing: Vec<SiloAddress>,
        entries: Vec<(GrainId, Registration)>,
    },
    /// What a living owner had for the next one, and who of the silos in it fades: over when it has
    /// arrived.
    Handed { view: u64, fading: Vec<(SiloAddress, Instant)>, entries: Vec<(GrainId, Registration)> },
}

/// How far a list has come at its receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    series: u64,
    next: u32,
    /// Something came since this was last looked at.
    fresh: bool,
}

impl Progress {
    /// Whether this batch is the next one. Batches count in sequence only: after a loss the whole
    /// list is asked for again.
    pub(crate) const fn takes(&mut self, series: u64, batch: u32) -> bool {
        if batch == 0 {
            *self = Self { series, next: 0, fresh: false };
        }
        let next = self.series == series && self.next == batch;
        if next {
            self.next += 1;
            self.fresh = true;
        }
        next
    }

    /// Whether something came since the last call.
    pub(crate) const fn has_moved(&mut self) -> bool {
        std::mem::replace(&mut self.fresh, false)
    }
}

impl Stream {
    /// Whether this is a hand-over.
    pub(crate) const fn hands_over(&self) -> bool {
        matches!(self.body, Body::Handed { .. })
    }
}

impl Body {
    fn batches(&self, size: usize) -> u32 {
        let len = match self {
            Self::Report { entries, .. } => entries.len(),
            Self::Collected { entries, .. } | Self::Handed { entries, .. } => entries.len(),
        };
        u32::try_from(len.div_ceil(size).max(1)).unwrap_or(u32::MAX)
    }

    fn message(&self, now: Instant, series: u64, batch: u32, size: usize) -> Message {
        let last = batch + 1 == self.batches(size);
        match self {
            Self::Report { recovery, view, entries } => Message::Report {
                recovery: *recovery,
                view: *view,
                series,
                batch,
                last,
                entries: entries.chunks(size).nth(batch as usize).unwrap_or_default().to_vec(),
            },
            Self::Collected { view, at, missing, entries } => Message::Collected {
                view: *view,
                at: *at,
                series,
                batch,
                last,
                missing: if last { missing.clone() } else { Vec::new() },
                entries: entries.chunks(size).nth(batch as usize).unwrap_or_default().to_vec(),
            },
            Self::Handed { view, fading, entries } => Message::Handed {
                view: *view,
                series,
                batch,
                last,
                fading: fading
                    .iter()
                    .map(|(silo, until)| (*silo, millis_until(now, *until)))
                    .collect(),
                entries: entries.chunks(size).nth(batch as usize).unwrap_or_default().to_vec(),
            },
        }
    }

    /// Whether the other one replaces this one.
    fn is_for_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Report { recovery: a, view: x, .. },
                Self::Report { recovery: b, view: y, .. },
            ) => a == b && (*a != Message::UNASKED || x == y),
            (Self::Collected { view: x, .. }, Self::Collected { view: y, .. })
            | (Self::Handed { view: x, .. }, Self::Handed { view: y, .. }) => x == y,
            _ => false,
        }
    }
}

/// Rounded up.
fn millis_until(now: Instant, until: Instant) -> u64 {
    u64::try_from(until.saturating_since(now).as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Directory {
    /// Begins to send a list. An earlier one for the same purpose ends.
    pub(crate) fn open_stream(&mut self, now: Instant, to: SiloAddress, body: Body) {
        self.keep_streams_that(|stream| stream.to != to || !stream.body.is_for_the_same(&body));
        if self.streams.len() >= STREAMS_MAX
            && let Some(oldest) = self.streams.keys().next().copied()
        {
            self.close_stream(oldest);
        }
        let series = self.next_number();
        self.streams.insert(series, Stream { to, body, sent: 0, due: now });
        self.advance_stream(now, to, series, 0);
    }

    /// Nothing was heard of the list for long: whoever still needs it has asked for another one.
    pub(crate) fn stream_due(&mut self, series: u64) {
        self.streams.remove(&series);
    }

    /// Ends a list, and returns it.
    fn close_stream(&mut self, series: u64) -> Option<Stream> {
        let stream = self.streams.remove(&series)?;
        self.timers.remove(&(stream.due, Timer::Stream(series)));
        Some(stream)
    }

    /// The receiver has the first `taken` batches: more may follow.
    pub(crate) fn advance_stream(
        &mut self,
        now: Instant,
        to: SiloAddress,
        series: u64,
        taken: u32,
    ) {
        let Some(stream) = self.streams.get_mut(&series).filter(|stream| stream.to == to) else {
            return;
        };
        let size = self.config.report_batch_max.max(1);
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
        self.timers.remove(&(stream.due, Timer::Stream(series)));
        if over {
            self.streams.remove(&series);
        } else {
            stream.due = now + self.config.op_timeout;
            self.timers.insert((stream.due, Timer::Stream(series)));
        }
        for message in messages {
            self.send(to, message);
        }
    }

    /// Sends once more what was collected for `to`, or what is handed to it, if it is still here.
    pub(crate) fn repeat(
        &mut self,
        now: Instant,
        to: SiloAddress,
        view: u64,
        handed: bool,
    ) -> bool {
        let is_it = |stream: &Stream| match stream.body {
            Body::Report { .. } => false,
            Body::Collected { view: v, .. } => !handed && v == view && stream.to == to,
            Body::Handed { view: v, .. } => handed && v == view && stream.to == to,
        };
        let found =
            self.streams.iter().find(|(_, stream)| is_it(stream)).map(|(series, _)| *series);
        let Some(stream) = found.and_then(|series| self.close_stream(series)) else { return false };
        self.open_stream(now, to, stream.body);
        true
    }

    /// A view was installed: who cannot own anything any more needs nothing.
    pub(crate) fn keep_streams(&mut self) {
        let active: BTreeSet<SiloAddress> = self
            .streams
            .values()
            .map(|stream| stream.to)
            .filter(|to| self.silos.is_active(to))
            .collect();
        self.keep_streams_that(|stream| active.contains(&stream.to));
    }

    fn keep_streams_that(&mut self, keep: impl Fn(&Stream) -> bool) {
        let timers = &mut self.timers;
        self.streams.retain(|series, stream| {
            let keeps = keep(stream);
            if !keeps {
                timers.remove(&(stream.due, Timer::Stream(*series)));
            }
            keeps
        });
    }
}
