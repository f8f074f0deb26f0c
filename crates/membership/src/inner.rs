//! Events that one part of the machine sends to the others.

use emmer_core::{Instant, SiloAddress};

use crate::api::TerminateReason;
use crate::intent::{Evidence, Intent, Key};

/// Part of the table that may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    /// Every row.
    All,
    /// The version row.
    Version,
    /// The version row and some Active rows (joining).
    Sample,
}

/// An event between parts. The machine hands it to the part that it concerns, in order, and depth
/// first: what an event leads to comes before the next one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Inner {
    /// A probe of this silo is due.
    Probe(SiloAddress),
    /// There is evidence that `target` is dead.
    Suspect {
        /// The suspect.
        target: SiloAddress,
        /// Evidence of the suspicion.
        evidence: Evidence,
    },
    /// A suspect lives.
    Answered {
        /// The suspect.
        silo: SiloAddress,
        /// True if it answered this silo itself.
        directly: bool,
    },
    /// The rows are wanted, unless they were read lately: some may be stale.
    ReadRows,
    /// This silo gives a wish up.
    Unwish(Key),
    /// A read is wanted as soon as no other request is on its way.
    Want(Read),
    /// A sample is enough; nothing needs every row.
    WantOnlyASample,
    /// Silos whose rows stand still may live: this silo could not touch its row either.
    ForgiveRows,
    /// The table showed the view in force to be the latest when it was asked at this moment.
    Confirmed(Instant),
    /// A view of this version exists.
    CatchUp(u64),
    /// This silo wants something written.
    Wish(Intent),
    /// This silo writes these itself.
    Write(Vec<Intent>),
    /// This silo writes a wish in these words, if it is its own writer.
    Rewrite(Intent),
    /// The writer of a wish is to be chosen again.
    Reroute(Key),
    /// This silo gives a wish up, and tells no other.
    Forget(Key),
    /// This silo does not write a wish itself.
    Unwrite(Key),
    /// An activation of this silo cannot be judged.
    Recheck(SiloAddress),
    /// A commit that is over at `until` may declare `silo` dead with the word of this one.
    Doubt {
        /// The silo that may die.
        silo: SiloAddress,
        /// Time at which the commit is over at the latest.
        until: Instant,
    },
    /// This silo ends.
    End(TerminateReason),
}
