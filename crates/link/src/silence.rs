//! Connections on which calls or questions wait and nothing comes.
//!
//! A firewall or a translator of addresses may forget a connection. Bytes sent over it are then
//! lost without an error, while a new connection works. If something was sent that the peer has
//! to hear, and no byte comes for a second, this side asks the peer for a word. A peer that says
//! nothing for three seconds more is silent. The silence is measured from the moment at which
//! something was sent, whether or not its caller still waits. Silos and clients then dial the
//! peer again. If it answers there, they close the silent connection. A gateway cannot dial its
//! client, and closes the connection at once.
//!
//! A peer that reads nothing is different: frames that wait for it fill memory.

use std::time::Duration;

use emmer_core::CoarseInstant;

use crate::lost::Lost;

/// Time after which a peer that reads nothing is lost.
const READS_WITHIN: Duration = Duration::from_secs(30);
/// After this time without a byte the peer is asked for a word.
const ASKED_AFTER: Duration = Duration::from_secs(1);
/// The peer may take this long to say it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// A connection that stays silent is reported again after this time.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Remembers since when a connection has been silent, and the steps taken.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    since: Option<CoarseInstant>,
    asked: Option<CoarseInstant>,
    told: Option<CoarseInstant>,
    /// The peer is to be asked at once, whatever waits.
    doubted: bool,
    /// Something was sent that the peer has to hear, and that no call waits for.
    expects: bool,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing is to be done.
    Calm,
    /// The peer is to be asked for a word.
    Ask,
    /// The connection is silent.
    Silent,
}

impl Silence {
    /// Returns what to do now. `came`: bytes have come since the last look; `calls`: calls wait for
    /// answers. A silence that has begun ends only with a byte.
    pub(crate) fn look(&mut self, now: CoarseInstant, came: bool, calls: bool) -> Look {
        if came {
            *self = Self { since: calls.then_some(now), ..Self::default() };
            return Look::Calm;
        }
        if !calls && !self.waits() {
            return Look::Calm;
        }
        let since = *self.since.get_or_insert(now);
        match self.asked {
            None if self.doubted || now >= since.after(ASKED_AFTER) => {
                self.asked = Some(now);
                Look::Ask
            }
            Some(asked)
                if now >= asked.after(ANSWERED_WITHIN)
                    && self.told.is_none_or(|told| now >= told.after(TOLD_EVERY)) =>
            {
                self.told = Some(now);
                Look::Silent
            }
            _ => Look::Calm,
        }
    }

    /// The peer shall be asked for a word with the next look, whatever waits.
    pub(crate) const fn doubt(&mut self) {
        self.doubted = true;
    }

    /// Returns true if the peer was, or is to be, asked for the sake of another connection.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.doubted
    }

    /// Something was sent that the peer has to hear, and that no call waits for.
    pub(crate) const fn expect(&mut self) {
        self.expects = true;
    }

    /// Returns true if a word of the peer is waited for, also when no call waits any longer.
    pub(crate) const fn waits(&self) -> bool {
        self.doubted || self.expects || self.since.is_some()
    }

    /// The next moment at which there is something to do, unless bytes come.
    pub(crate) fn due(&self) -> CoarseInstant {
        let Some(since) = self.since else { return CoarseInstant::from_millis(0) };
        match (self.asked, self.told) {
            (None, _) if self.doubted => CoarseInstant::from_millis(0),
            (None, _) => since.after(ASKED_AFTER),
            (Some(asked), None) => asked.after(ANSWERED_WITHIN),
            (Some(_), Some(told)) => told.after(TOLD_EVERY),
        }
    }

    /// Returns true if the connection was silent at the last look.
    pub(crate) const fn is_silent(&self) -> bool {
        self.told.is_some()
    }
}

/// Notes since when the socket has taken nothing.
#[derive(Debug)]
pub(crate) struct Stuck {
    /// The first look after it took something last.
    since: Option<CoarseInstant>,
}

impl Stuck {
    /// The socket is full.
    pub(crate) const fn begin() -> Self {
        Self { since: None }
    }

    /// The peer has taken something, and the socket is full again.
    pub(crate) const fn moves(&mut self) {
        self.since = None;
    }

    /// Looks at the time.
    ///
    /// # Errors
    /// The peer has read nothing for too long.
    pub(crate) fn look(&mut self, now: CoarseInstant) -> Result<(), Lost> {
        if now < self.since.get_or_insert(now).after(READS_WITHIN) {
            return Ok(());
        }
        Err(Lost::Broken(format!("the peer has read nothing for {READS_WITHIN:?}")))
    }

    /// The next moment at which it has to be looked at.
    pub(crate) fn due(&self) -> CoarseInstant {
        self.since.map_or(CoarseInstant::from_millis(0), |since| since.after(READS_WITHIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_after_a_second_and_silent_three_seconds_later() {
        let mut silence = Silence::default();
        let mut looks = Vec::new();
        for ms in (10_000..16_200).step_by(5) {
            let look = silence.look(CoarseInstant::from_millis(ms), false, true);
            assert_eq!(silence.is_silent(), ms >= 14_000, "{ms}");
            if look != Look::Calm {
                looks.push((ms, look));
            }
        }
        let expected = [
            (11_000, Look::Ask),
            (14_000, Look::Silent),
            (15_000, Look::Silent),
            (16_000, Look::Silent),
        ];
        assert_eq!(looks, expected);
        // It speaks again.
        assert_eq!(silence.look(CoarseInstant::from_millis(16_200), true, true), Look::Calm);
        assert!(!silence.is_silent());
        assert_eq!(silence.look(CoarseInstant::from_millis(17_199), false, true), Look::Calm);
        assert_eq!(silence.look(CoarseInstant::from_millis(17_200), false, true), Look::Ask);
    }

    /// Calls whose deadlines pass before the peer is asked.
    #[test]
    fn a_silence_goes_on_when_its_calls_have_timed_out() {
        let mut silence = Silence::default();
        let mut looks = Vec::new();
        for ms in (10_000..15_000).step_by(5) {
            let calls = ms < 10_100;
            match silence.look(CoarseInstant::from_millis(ms), false, calls) {
                Look::Calm => {}
                look => looks.push((ms, look)),
            }
            assert!(silence.waits());
        }
        assert_eq!(looks, [(11_000, Look::Ask), (14_000, Look::Silent)]);
        // Nothing is checked after a byte, unless calls wait.
        assert_eq!(silence.look(CoarseInstant::from_millis(15_000), true, false), Look::Calm);
        assert!(!silence.waits() && !silence.is_silent());
        assert_eq!(silence.look(CoarseInstant::from_millis(60_000), false, false), Look::Calm);
        assert!(!silence.waits());
    }

    /// This process stood still: the peer's bytes of that time lie unread.
    #[test]
    fn a_pause_of_this_process_makes_nobody_silent_who_was_not_asked() {
        let mut silence = Silence::default();
        assert_eq!(silence.look(CoarseInstant::from_millis(0), false, true), Look::Calm);
        assert_eq!(silence.look(CoarseInstant::from_millis(60_000), false, true), Look::Ask);
        assert_eq!(silence.look(CoarseInstant::from_millis(60_005), false, true), Look::Calm);
        assert_eq!(silence.look(CoarseInstant::from_millis(60_010), true, true), Look::Calm);
    }
}
