//! Events that one part of the directory sends to the others.

use emmer_core::{GrainId, SiloAddress};

use crate::list::Body;
use crate::ranges::RangeSet;
use crate::registration::Registration;

/// A new owner's question.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    to: SiloAddress,
    recovery: u64,
    view: u64,
    ranges: RangeSet,
}

impl Question {
    /// The question of `to` (this silo itself when it recovers): the entries in `ranges`, by the
    /// view `view`. `recovery` is the asker's number, or `Message::UNASKED`.
    pub(crate) const fn new(to: SiloAddress, recovery: u64, view: u64, ranges: RangeSet) -> Self {
        Self { to, recovery, view, ranges }
    }

    /// The silo that asks.
    pub(crate) const fn to(&self) -> SiloAddress {
        self.to
    }

    /// The asker's number.
    pub(crate) const fn recovery(&self) -> u64 {
        self.recovery
    }

    /// The view that it names; once it is being answered, the view of the answer.
    pub(crate) const fn view(&self) -> u64 {
        self.view
    }

    /// Ranges that it asks for.
    pub(crate) const fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Copies the question, answered at the view `view`.
    pub(crate) fn answered_at(self, view: u64) -> Self {
        Self { view, ..self }
    }
}

/// The place of a batch in a list: the view, the number of the list, the number of the batch, and
/// whether it is the last one.
pub(crate) type Place = (u64, u64, u32, bool);

/// One batch of a host's answer.
pub(crate) type Batch = (Place, Vec<(GrainId, u64)>);

/// An event between parts. The machine hands it to the part that it concerns, in order, and depth
/// first: what an event leads to comes before the next one.
#[derive(Debug)]
pub(crate) enum Inner {
    /// A question to this silo itself, or one that need not be asked.
    Answer(Question),
    /// This silo reports to its own recovery of this number.
    Report(u64, Batch),
    /// Registrations that this silo collected for itself. Hosts told them up to the view `at`, but
    /// for the `missing` ones.
    Collected {
        view: u64,
        at: u64,
        missing: Vec<SiloAddress>,
        entries: Vec<(GrainId, Registration)>,
    },
    /// Registrations that are known again.
    Enter(Vec<(GrainId, Registration)>),
    /// Nothing outside of these ranges is registered here from now on.
    Keep(RangeSet),
    /// Something was unlocked: the own commands that waited for it are served.
    Settle,
    /// A list sets off.
    Open(SiloAddress, Body),
}
