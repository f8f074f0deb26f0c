//! Deadlines, silence, and peers that take too long.

use std::time::Duration;

use emmer_core::CoarseInstant;
use emmer_wire::PeerKind;

use crate::account::{self, Room};
use crate::link::Link;
use crate::lost::Lost;
use crate::silence::{Look, Stuck};

/// A client that has ended its half of the connection is asked for a word this often.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Result of [`handle_timeout`](Link::handle_timeout), as far as others act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// The peer was asked for a word for the first time since it was heard: calls or messages wait
    /// for it.
    pub asked: bool,
    /// The peer is silent although it was asked. Reported about once a second.
    pub silent: bool,
    /// Something was queued.
    pub queued: bool,
    /// The owner of the socket has to give memory back, or to end the connection.
    pub wake: bool,
}

/// Waits of the connection for its peer, but those for answers.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    /// The socket takes nothing.
    stuck: Option<Stuck>,
    /// The peer has ended its half, and waits for answers: when it is asked for a word next.
    half_closed: Option<Option<CoarseInstant>>,
    /// Its buffers are large.
    roomy: bool,
    /// They are to be given back.
    rest: bool,
    /// Why the owner of the socket has to end the connection.
    fault: Option<Lost>,
}

impl Waits {
    pub(crate) const fn is_half_closed(&self) -> bool {
        self.half_closed.is_some()
    }
}

impl Link {
    /// Ends calls whose deadline has passed, asks a silent peer for a word while calls wait, and
    /// finds what takes too long.
    pub fn handle_timeout(&mut self, now: CoarseInstant) -> Ticked {
        let mut over = Vec::new();
        self.pending.expire(now, &mut self.wakers, &mut over);
        over.iter().for_each(|call| self.cancel(*call));
        let came = std::mem::take(&mut self.frames.came);
        let mut ticked = Ticked { queued: !over.is_empty(), ..Ticked::default() };
        if !came && std::mem::take(&mut self.waits.roomy) {
            self.waits.rest = true;
            ticked.wake = true;
        }
        let doubted = self.silence.is_doubted();
        let look = self.silence.look(now, came, self.pending.live() > 0);
        let asks_half_closed = self.waits.half_closed.as_mut().is_some_and(|at| {
            let due = at.is_some_and(|at| now >= at);
            if due || at.is_none() {
                *at = Some(now.after(ASK_EVERY));
            }
            due
        });
        if self.lost().is_none()
            && (look == Look::Ask || self.unread.is_due(now) || asks_half_closed)
        {
            self.ask();
            ticked.queued = true;
        }
        let lives = self.lost().is_none();
        ticked.asked = lives && look == Look::Ask && !doubted;
        ticked.silent = lives && look == Look::Silent;
        let fault = self.overdue(now);
        if fault.is_some() && self.waits.fault.is_none() {
            self.waits.fault = fault;
            ticked.wake = true;
        }
        ticked
    }

    /// Something that takes too long.
    fn overdue(&mut self, now: CoarseInstant) -> Option<Lost> {
        if let Some(stuck) = &mut self.waits.stuck
            && let Err(why) = stuck.look(now)
        {
            return Some(why);
        }
        let room = self.frames.room.as_mut()?;
        room.is_overdue(now).then(|| Lost::Protocol(account::overdue()))
    }

    /// The moment of the next [`handle_timeout`](Self::handle_timeout); none while the connection
    /// waits for nothing. A moment that has passed says that there was a cause since the last one.
    pub fn poll_timeout(&self) -> Option<CoarseInstant> {
        if self.lost().is_some() {
            return None;
        }
        let calls = self.pending.live() > 0;
        let now = CoarseInstant::from_millis(0);
        [
            calls.then(|| self.pending.due()),
            (calls || self.silence.waits()).then(|| self.silence.due()),
            self.unread.due(),
            self.waits.stuck.as_ref().map(Stuck::due),
            self.waits.half_closed.map(|at| at.unwrap_or(now)),
            self.waits.roomy.then_some(now),
            self.frames.room.as_ref().map(Room::due),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Asks the peer for a word with the next look: a connection that goes the same way says
    /// nothing.
    pub const fn doubt(&mut self) {
        if self.lost().is_none() {
            self.silence.doubt();
        }
    }

    /// Why the owner of the socket has to end the connection, once it has to.
    pub(crate) const fn fault(&self) -> Option<&Lost> {
        self.waits.fault.as_ref()
    }

    /// Why the connection ends, or has ended.
    pub fn verdict(&self) -> Option<Lost> {
        self.lost().or_else(|| self.fault()).cloned()
    }

    /// Notes that the socket is full. `moved` says that it has taken something since the last such
    /// note.
    pub fn note_stuck(&mut self, moved: bool) {
        let stuck = self.waits.stuck.get_or_insert(Stuck::begin());
        if moved {
            stuck.moves();
        }
    }

    /// The socket has taken everything.
    pub fn note_all_written(&mut self) {
        self.waits.stuck = None;
    }

    /// The buffers around the connection are large. They are to be given back when no byte comes
    /// for a while: [`takes_rest`](Self::takes_rest).
    pub const fn note_roomy(&mut self) {
        self.waits.roomy = true;
    }

    /// Returns true, once, if large buffers are to be given back. Those of this link are.
    pub fn takes_rest(&mut self) -> bool {
        let rests = std::mem::take(&mut self.waits.rest);
        if rests && self.out.is_empty() {
            self.out.clear();
        }
        rests
    }

    /// The peer has ended its half of the stream; `rest` are the bytes of a frame that has begun.
    /// A client may wait for its answers. A client that was killed looks the same, but its host
    /// answers further bytes with a reset: so it is asked for a word now and then.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn handle_end(&mut self, rest: usize) -> Result<(), Lost> {
        // Half a frame will never be a whole one, and holds room.
        if rest == 0 && matches!(self.peer, PeerKind::Client(_)) && self.serving() > 0 {
            self.waits.half_closed = Some(None);
            self.ask();
            return Ok(());
        }
        // A peer that has been silent since the handshake may have given up its dial, which says
        // nothing about its process.
        Err(if self.counts.bytes_received > 0 {
            Lost::Ended
        } else {
            Lost::Broken("the peer closed it before it said anything".to_owned())
        })
    }

    /// Returns true if the peer has ended its half, and every call is answered and its answer
    /// taken by the socket's owner.
    pub fn is_half_closed_and_done(&self) -> bool {
        self.waits.is_half_closed() && self.serving() == 0 && self.out.is_empty()
    }
}
