//! Turns that the read loop of a connection runs itself.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::{GrainId, SiloAddress};
use emmer_net::clock::Due;
use emmer_net::transport::Connection;
use emmer_wire::{
    PeerKind, RequestHeader, ResponseHeader, ResponseStatus, encode_failure, encode_response,
};

use crate::calls::Calls;
use crate::calls::outset::failure_of;
use crate::calls::remote::failure_parts;
use crate::cluster::directory::Whereabouts;
use crate::hosting::{BoxTurn, Elsewhere, Ends, Held, Input, Sink, StartError, TurnEnd};
use crate::turn::Failure;

/// State of a turn that was polled in the read loop.
pub(super) enum Inline {
    /// It is answered (or was one-way).
    Over,
    Suspended(BoxTurn),
    Closed(Option<Elsewhere>),
}

impl Calls {
    /// The new activation of a grain that another silo expects here. It is made at once, so that
    /// later calls find it and keep their order.
    #[cold]
    pub(super) fn create_arrived(
        &self,
        connection: &Connection,
        header: &RequestHeader,
    ) -> Option<Held> {
        let PeerKind::Silo(asker) = connection.peer else { return None };
        let may = !self.host.is_fenced()
            && self.takes(&header.target, header.method)
            && self.follow(header, asker).is_none()
            && self.registered_elsewhere(&header.target).is_none();
        may.then(|| self.host.create_here(&header.target).ok().flatten()).flatten()
    }

    /// The silo that has the grain, if this silo answers for it in the directory.
    pub(super) fn registered_elsewhere(&self, grain: &GrainId) -> Option<SiloAddress> {
        match self.cluster.directory.lookup_now(grain) {
            Whereabouts::At(silo) if silo != self.address => Some(silo),
            _ => None,
        }
    }

    /// Silo that a grain moved to a moment ago, for a call of another silo that can be served
    /// there.
    pub(super) fn follow(&self, header: &RequestHeader, asker: SiloAddress) -> Option<SiloAddress> {
        let (target, method) = (&header.target, header.method);
        let to = self.host.departures.follow(target, asker)?;
        let serves = self.cluster.placing.load.serves(&to, target.grain_type(), method);
        (serves && !self.cluster.peers.pool.is_dead(to)).then_some(to)
    }

    /// As [`door`](Self::door), for a call that has come over a connection.
    #[inline]
    pub(super) fn door_for(&self, connection: &Connection, header: &RequestHeader) -> Option<Held> {
        let asker = match connection.peer {
            PeerKind::Silo(asker) => Some(asker),
            _ => None,
        };
        self.door(&header.target, header.method, asker, &[])
    }

    pub(super) fn due_of(&self, header: &RequestHeader) -> Due {
        match header.deadline_ms {
            0 => Due::after(self.response_timeout),
            u32::MAX => Due::NEVER,
            ms => Due::after(Duration::from_millis(u64::from(ms))),
        }
    }

    /// Starts the turn and polls it once, answering into `replies` if it ends.
    pub(super) fn run_here(
        &self,
        connection: &Connection,
        header: &RequestHeader,
        body: &[u8],
        activation: Held,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Inline {
        let correlation = header.correlation;
        let due = self.due_of(header);
        if answer_instantly(connection, header, body, &activation, due, replies) {
            return Inline::Over;
        }
        let mut turn = match start(activation, header, body, due) {
            Ok(turn) => turn,
            // Another silo may have a version of the class that has it.
            Err(StartError::NoSuchMethod) => return Inline::Closed(None),
            Err(why) => {
                put_failure(replies, correlation, &why.into_failure());
                return Inline::Over;
            }
        };
        let end = if correlation == 0 {
            turn.as_mut().poll_turn(cx, &mut Sink::Discard)
        } else {
            let header = ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
            let written = encode_response(replies, &header, |out| {
                match turn.as_mut().poll_turn(cx, &mut Sink::Wire(out)) {
                    Poll::Ready(TurnEnd::Done) => Ok(()),
                    other => Err(other),
                }
            });
            match written {
                Ok(appended) => {
                    connection.fit_reply(replies, correlation, appended);
                    return Inline::Over;
                }
                Err(end) => end,
            }
        };
        match end {
            Poll::Pending => Inline::Suspended(turn),
            Poll::Ready(TurnEnd::Done) => Inline::Over,
            Poll::Ready(TurnEnd::Closed(elsewhere)) => Inline::Closed(elsewhere),
            Poll::Ready(end) => {
                put_failure(replies, correlation, &failure_of(end));
                Inline::Over
            }
        }
    }
}

/// Runs the turn in place and answers, if the turn cannot suspend and the grain is free.
fn answer_instantly(
    connection: &Connection,
    header: &RequestHeader,
    body: &[u8],
    activation: &Held,
    due: Due,
    replies: &mut BytesMut,
) -> bool {
    let correlation = header.correlation;
    let run = |sink: &mut Sink<'_>| {
        let mut ends = Ends::Wire(body, sink.lend());
        activation.run_instant(header.method, &mut ends, due, &header.chain)
    };
    let ended = if correlation == 0 {
        run(&mut Sink::Discard)
    } else {
        let answer = ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
        let written = encode_response(replies, &answer, |out| match run(&mut Sink::Wire(out)) {
            Some(Ok(TurnEnd::Done)) => Ok(()),
            other => Err(other),
        });
        match written {
            Ok(appended) => {
                connection.fit_reply(replies, correlation, appended);
                return true;
            }
            Err(ended) => ended,
        }
    };
    match ended {
        None => return false,
        Some(Ok(TurnEnd::Done)) => {}
        Some(Ok(end)) => put_failure(replies, correlation, &failure_of(end)),
        Some(Err(e)) => {
            put_failure(replies, correlation, &e.into_failure());
        }
    }
    true
}

pub(super) fn start(
    activation: Held,
    header: &RequestHeader,
    body: &[u8],
    due: Due,
) -> Result<BoxTurn, StartError> {
    activation.start(header.method, Input::Wire(body), due, header.chain.clone())
}

/// Answers a call with a failure, unless it is one-way.
pub(crate) fn put_failure(replies: &mut BytesMut, correlation: u64, failure: &Failure) {
    if correlation != 0 {
        let (code, maybe, detail) = failure_parts(failure);
        encode_failure(replies, correlation, code, maybe, &detail);
    }
}
