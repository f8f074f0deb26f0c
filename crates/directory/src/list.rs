//! Long lists of registrations, which travel in batches.

use emmer_core::{GrainId, Instant, SiloAddress};

use crate::message::Message;
use crate::registration::Registration;

/// Content of a list.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// The answer to a recovery question: over when it is sent.
    Report { recovery: u64, view: u64, entries: Vec<(GrainId, u64)> },
    /// Words of hosts to a collector for a new owner: over when it has arrived.
    Collected {
        view: u64,
        at: u64,
        missing: Vec<SiloAddress>,
        entries: Vec<(GrainId, Registration)>,
    },
    /// Registrations of a living owner for the next one, and the silos in it that fade: over when
    /// it has arrived.
    Handed { view: u64, fading: Vec<(SiloAddress, Instant)>, entries: Vec<(GrainId, Registration)> },
}

impl Body {
    /// Number of batches of this `size`.
    pub(crate) fn batches(&self, size: usize) -> u32 {
        let len = match self {
            Self::Report { entries, .. } => entries.len(),
            Self::Collected { entries, .. } | Self::Handed { entries, .. } => entries.len(),
        };
        u32::try_from(len.div_ceil(size).max(1)).unwrap_or(u32::MAX)
    }

    /// The message that carries one `batch` of this `size`.
    pub(crate) fn message(&self, now: Instant, series: u64, batch: u32, size: usize) -> Message {
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

    /// Returns true if `other` replaces this one.
    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
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

/// Progress of a list at its receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    series: u64,
    next: u32,
    /// Something came since the last check.
    fresh: bool,
}

impl Progress {
    /// Returns true if this batch is the next one. Batches count in sequence only: after a loss the
    /// whole list is asked for again.
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

    /// Returns true if something came since the last call.
    pub(crate) const fn has_moved(&mut self) -> bool {
        std::mem::replace(&mut self.fresh, false)
    }
}
