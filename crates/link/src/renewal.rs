//! Two connections between the same silos, of which one takes the other's place.
//!
//! Both sides may find at the same moment that nothing comes, and both dial. If each followed the
//! other, each would talk over a connection that the other no longer reads. And words on two
//! connections come in no common order. So every connection has a [`Rank`]: the dialer of a new one
//! gives it a higher number than that of the connection it replaces. Both sides take the highest
//! rank that they have heard of.

use crate::link::Link;
use crate::words::CallsMessage;

/// Rank of a connection among those between two silos. The higher one is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// 0 for one that replaces none.
    number: u64,
    /// The silo with the lower address has dialled it.
    by_lower: bool,
}

/// Result of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The connection takes the place of the earlier one.
    Takes,
    /// It is retired: the earlier one is kept.
    Yields,
}

/// Knowledge about the place of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Renewal {
    rank: Rank,
    /// Number in the peer's proposal.
    pub(crate) heard: u64,
    /// One side has dialled it to replace another connection, and this side has said or heard so.
    is_proposed: bool,
}

impl Link {
    /// The connection's rank.
    pub const fn rank(&self) -> Rank {
        self.renewal.rank
    }

    /// This side has dialled the connection to take the place of one with the rank `before`, and
    /// tells the peer. `is_lower`: this silo has the lower address of the two.
    pub fn propose(&mut self, before: Rank, is_lower: bool) {
        self.renewal.is_proposed = true;
        self.renewal.rank = Rank { number: before.number + 1, by_lower: is_lower };
        if self.lost().is_none() {
            self.say(CallsMessage::Instead(self.renewal.rank.number));
        }
    }

    /// The peer has [dialled it](crate::Event::Instead) to take the place of an earlier one.
    /// `current` is the rank of the connection that this side uses, if it has another one.
    ///
    /// Returns none if the peer has said so before, or if another connection has taken its place.
    pub fn hear_proposal(&mut self, current: Option<Rank>, is_lower: bool) -> Option<Place> {
        // Once: each word of the peer's would be answered.
        if self.is_retired() || self.renewal.is_proposed {
            return None;
        }
        self.renewal.is_proposed = true;
        self.renewal.rank = Rank { number: self.renewal.heard, by_lower: !is_lower };
        if current.is_some_and(|current| current >= self.renewal.rank) {
            self.retire();
            return Some(Place::Yields);
        }
        // The peer hears over this connection that it was heard.
        if self.lost().is_none() && !self.is_closing() {
            self.ask();
        }
        Some(Place::Takes)
    }
}
