//! One-way calls that the peer has perhaps not read when the connection breaks.
//!
//! No answer says that a one-way call has arrived. A word that the peer is asked for does: it comes
//! after the peer has read all that was sent before.

use std::time::Duration;

use emmer_core::CoarseInstant;

/// Time between two words that the peer is asked for while one-way calls are sent.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// Counts of the one-way calls of one connection.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    sent: u64,
    /// Number of calls that the peer has certainly read.
    read: u64,
    asked: Option<Asked>,
    next_at: Option<CoarseInstant>,
    /// Number of calls that the peer may not have read when the connection broke.
    lost: u64,
}

/// A word that the peer was asked for.
#[derive(Debug)]
struct Asked {
    /// Its number among all words.
    word: u64,
    /// Number of calls that were sent before.
    sent: u64,
}

impl Unread {
    /// A one-way call was sent.
    pub(crate) const fn send(&mut self) {
        self.sent += 1;
    }

    /// Returns true if the peer is to be asked for a word now.
    pub(crate) fn is_due(&mut self, now: CoarseInstant) -> bool {
        let waits = self.asked.is_none() && self.waits();
        if !waits {
            self.next_at = None;
            return false;
        }
        now >= *self.next_at.get_or_insert_with(|| now.after(ASK_EVERY))
    }

    /// The next moment at which the peer may have to be asked; none while its word is waited for.
    pub(crate) fn due(&self) -> Option<CoarseInstant> {
        (self.asked.is_none() && self.waits())
            .then(|| self.next_at.unwrap_or(CoarseInstant::from_millis(0)))
    }

    /// Returns true if calls were sent that the peer has perhaps not read.
    pub(crate) const fn waits(&self) -> bool {
        self.sent > self.read
    }

    /// The peer was asked for word number `word`.
    pub(crate) fn asked(&mut self, word: u64) {
        self.next_at = None;
        self.asked.get_or_insert(Asked { word, sent: self.sent });
    }

    /// The peer has said `said` words.
    pub(crate) fn said(&mut self, said: u64) {
        if let Some(asked) = self.asked.take_if(|asked| said >= asked.word) {
            self.read = asked.sent;
        }
    }

    /// The connection broke.
    pub(crate) const fn end(&mut self) {
        self.lost = self.sent - self.read;
        self.read = self.sent;
    }

    /// Number of calls that the peer may not have read when the connection broke.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_before_a_word_of_the_peer_are_read_and_later_ones_may_be_lost() {
        let at = CoarseInstant::from_millis;
        let mut unread = Unread::default();
        assert!(!unread.is_due(at(0)) && !unread.waits());
        (0..3).for_each(|_| unread.send());
        assert!(!unread.is_due(at(10)) && !unread.is_due(at(259)));
        assert!(unread.is_due(at(260)));
        unread.asked(7);
        unread.send();
        assert!(!unread.is_due(at(900)), "one word at a time");
        unread.said(6);
        assert_eq!(unread.read, 0);
        unread.said(7);
        assert_eq!(unread.read, 3);
        unread.end();
        assert_eq!((unread.lost(), unread.waits()), (1, false));
    }
}
