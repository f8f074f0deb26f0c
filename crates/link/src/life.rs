//! The life of a connection, from its handshake to its end.

use crate::lost::Lost;

/// Phase of a connection, as its calls see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Calls go both ways.
    Open,
    /// One of the two sides serves no further calls, or soon will.
    Draining,
    /// The peer is dead in the view: calls neither go out nor wait. Messages of the runtimes still
    /// travel.
    Parting,
    /// Another connection has taken its place. Calls that wait may still be answered.
    Retired,
    /// This side has said goodbye, or the connection has ended.
    Closed,
}

/// Knowledge about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Serves,
    /// It has said that it serves no further calls.
    Drained,
    /// It is dead in the view.
    Dead {
        /// It had said so before, or has since.
        drained: bool,
    },
}

/// Progress of this side towards serving no further calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    Yes,
    /// It shall stop when every call that it has begun is answered.
    Finishing,
    /// The peer was told, together with a question for its word number `asked`.
    Stopped {
        asked: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Open,
    /// A goodbye is queued.
    Said,
    Lost(Lost),
}

/// Facts about a connection that change once each.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    peer: Peer,
    replaced: bool,
    serving: Serving,
    end: End,
}

impl Life {
    pub(crate) const fn new() -> Self {
        Self { peer: Peer::Serves, replaced: false, serving: Serving::Yes, end: End::Open }
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.end != End::Open {
            Phase::Closed
        } else if self.replaced {
            Phase::Retired
        } else if matches!(self.peer, Peer::Dead { .. }) {
            Phase::Parting
        } else if self.peer == Peer::Drained || self.serving != Serving::Yes {
            Phase::Draining
        } else {
            Phase::Open
        }
    }

    /// The reason why calls that wait get no answer, while the connection lives. "It was not begun"
    /// is known for certain, so it stays when the peer dies.
    pub(crate) const fn refusal(&self) -> Option<Lost> {
        match self.peer {
            Peer::Serves => None,
            Peer::Drained | Peer::Dead { drained: true } => Some(Lost::Drained),
            Peer::Dead { drained: false } => Some(Lost::PeerDead),
        }
    }

    /// The end, if it has come.
    pub(crate) const fn lost(&self) -> Option<&Lost> {
        match &self.end {
            End::Lost(why) => Some(why),
            End::Open | End::Said => None,
        }
    }

    /// Checks that a call may go out.
    ///
    /// # Errors
    /// The reason why no call may.
    pub(crate) fn admit(&self) -> Result<(), Lost> {
        if let Some(lost) = self.lost() {
            return Err(lost.clone());
        }
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        match self.phase() {
            Phase::Closed => Err(Lost::Closed),
            Phase::Retired => Err(Lost::Replaced),
            Phase::Open | Phase::Draining | Phase::Parting => Ok(()),
        }
    }

    pub(crate) const fn is_replaced(&self) -> bool {
        self.replaced
    }

    pub(crate) const fn is_dead(&self) -> bool {
        matches!(self.peer, Peer::Dead { .. })
    }

    pub(crate) fn has_said_goodbye(&self) -> bool {
        self.end == End::Said
    }

    pub(crate) const fn serving(&self) -> Serving {
        self.serving
    }

    pub(crate) const fn set_serving(&mut self, serving: Serving) {
        self.serving = serving;
    }

    /// The peer has said that it serves no further calls.
    pub(crate) const fn drain(&mut self) {
        self.peer = match self.peer {
            Peer::Serves | Peer::Drained => Peer::Drained,
            Peer::Dead { .. } => Peer::Dead { drained: true },
        };
    }

    /// The view says that the peer is dead.
    pub(crate) const fn part(&mut self) {
        self.peer = match self.peer {
            Peer::Serves => Peer::Dead { drained: false },
            Peer::Drained => Peer::Dead { drained: true },
            dead @ Peer::Dead { .. } => dead,
        };
    }

    pub(crate) const fn replace(&mut self) {
        self.replaced = true;
    }

    pub(crate) fn say_goodbye(&mut self) {
        if self.end == End::Open {
            self.end = End::Said;
        }
    }

    /// The connection ends; the first reason stays. Returns true if this is the first.
    pub(crate) fn end(&mut self, why: Lost) -> bool {
        let first = self.lost().is_none();
        if first {
            self.end = End::Lost(why);
        }
        first
    }
}
