//! Planted bugs: known deviations from the protocol, each at its place in the code, so that the simulator can prove that its
//! invariants bite.
//!
//! Without the cargo feature `planted-bugs` nothing can plant one, and the compiler removes every branch.

use crate::membership::Membership;

/// A deviation. Each names the invariant that it breaks; those without one break the liveness of I10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// Votes count for ever (I6).
    VoteExpiryIgnored,
    /// A voter that votes again counts again (I6).
    VoterCountedTwice,
    /// Votes of silos that are not Active count (I6).
    AnybodyVotes,
    /// One vote is enough, whatever the size of the cluster (I6).
    OneVoteKills,
    /// A commit with an unknown outcome is taken for a failure and written again on top of whatever is there, without
    /// evaluating its intents anew (I3, I4).
    UnknownAppliedTwice,
    /// A commit with an unknown outcome is taken for a success (I2).
    UnknownTakenForSuccess,
    /// A silo does not notice that its row was cleaned up (I7).
    OwnCleanedDeathMissed,
    /// A silo goes on after it has seen itself Dead (I7).
    OwnDeathIgnored,
    /// Dead rows are cleaned up at once, and a silo that misses its row writes itself in again (I3).
    ResurrectedAfterCleanup,
    /// A leaving silo's statuses are written whatever its row says, also over Dead (I3).
    DeadNotFinal,
    /// A read of the table that mixes two versions is installed (I2).
    TornReadInstalled,
    /// A read of the table that is older than the view replaces it (I2).
    StaleReadInstalled,
    /// A joining silo does not kill the earlier incarnations of its `ip:port` (I4).
    PredecessorNotKilled,
    /// An earlier incarnation joins although a later one is in the table (I3, I4).
    SuccessorOverlooked,
    /// A silo becomes Active without round trips (connectivity of joins).
    ActiveWithoutConnectivity,
    /// Suspicions gathered while the store was away are written with a fresh date when it is back, also against silos that
    /// have answered since (I5).
    OldEvidence,
    /// A delta is applied although the one before it is missing (I2).
    DeltaOverGap,
    /// The fence never closes (I8).
    FenceIgnored,
    /// Any answer counts for the fence, also one that lay in a socket while the process was frozen (I8).
    FenceTrustsOldEchoes,
    /// The vote window ends at the writer's own clock, in both directions: a clock that is off expires every vote.
    ClockJumpExpiresVotes,
    /// Newer views are neither pulled nor looked for in the table.
    NoAntiEntropy,
    /// A commit that was lost is never tried again.
    LostCommitForgotten,
    /// Rows are deleted without a new version being needed: two views of one version differ (I2).
    DeleteLeftOutOfDelta,
}

impl Bug {
    /// Every planted bug.
    pub const ALL: [Self; 23] = [
        Self::VoteExpiryIgnored,
        Self::VoterCountedTwice,
        Self::AnybodyVotes,
        Self::OneVoteKills,
        Self::UnknownAppliedTwice,
        Self::UnknownTakenForSuccess,
        Self::OwnCleanedDeathMissed,
        Self::OwnDeathIgnored,
        Self::ResurrectedAfterCleanup,
        Self::DeadNotFinal,
        Self::TornReadInstalled,
        Self::StaleReadInstalled,
        Self::PredecessorNotKilled,
        Self::SuccessorOverlooked,
        Self::ActiveWithoutConnectivity,
        Self::OldEvidence,
        Self::DeltaOverGap,
        Self::FenceIgnored,
        Self::FenceTrustsOldEchoes,
        Self::ClockJumpExpiresVotes,
        Self::NoAntiEntropy,
        Self::LostCommitForgotten,
        Self::DeleteLeftOutOfDelta,
    ];
}

impl Membership {
    /// Plants `bug`, for tests of the simulator.
    #[cfg(feature = "planted-bugs")]
    pub const fn plant(&mut self, bug: Bug) {
        self.planted = Some(bug);
    }

    /// Whether `bug` is planted here.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.planted == Some(bug)
    }

    /// Whether `bug` is planted here: never.
    #[cfg(not(feature = "planted-bugs"))]
    #[expect(clippy::unused_self, reason = "the signature of the other half")]
    pub(crate) const fn has(&self, _bug: Bug) -> bool {
        false
    }
}
