//! What a silo does with calls that arrive over connections.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_wire::{
    PeerKind, RequestFlags, RequestHeader, ResponseHeader, ResponseStatus, channel, codec, encode_failure,
    encode_response,
};

use crate::activation::{BoxTurn, Input, RunActivation, Sink, TurnEnd, run_to_end, until_begun};
use crate::clock::CoarseInstant;
use crate::grain::{CallError, Failure};
use crate::invoke::{InlineDepth, failure_of, send_failure, unreachable_silo};
use crate::membership::Input as MembershipInput;
use crate::net::{Answer, Connection, Handler, Lost};
use crate::remote::failure_parts;
use crate::silo::{Place, SiloCore};

/// A call that came over a connection and is not answered yet.
struct Arrived {
    connection: Arc<Connection>,
    header: RequestHeader,
    body: Bytes,
    /// The size of the whole frame, to be given back as credit.
    cost: u64,
    deadline: CoarseInstant,
}

impl Handler for SiloCore {
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: RequestHeader,
        body: Bytes,
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64 {
        self.metrics.call_received();
        let deadline = self.deadline_of(&header);
        let arrived = Arrived { connection: connection.clone(), header, body, cost, deadline };
        connection.begin_serving();
        let found = self.catalog.get(&arrived.header.target);
        let (Some(activation), Some(_depth)) = (found, InlineDepth::enter()) else {
            tokio::spawn(self.clone().serve(arrived, None));
            return 0;
        };
        match self.run_here(&arrived, activation, replies, cx) {
            Inline::Over => {
                connection.end_serving();
                cost
            }
            Inline::Suspended(turn) => {
                tokio::spawn(self.clone().finish(arrived, turn));
                0
            }
            Inline::Closed(elsewhere) => {
                tokio::spawn(self.clone().serve(arrived, elsewhere));
                0
            }
        }
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        match (channel, connection.peer) {
            (channel::MEMBERSHIP, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) => self.membership.send(MembershipInput::Message(from, message)),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable membership message"),
            },
            (channel::DIRECTORY, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) => self.directory.receive(self, from, message),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable directory message"),
            },
            (channel::GATEWAY, PeerKind::Client(_)) => self.gateway_message(connection, &payload),
            (channel, peer) => tracing::debug!(channel, ?peer, "a message on a channel nobody reads here"),
        }
    }

    fn heard(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            self.membership.heard(silo, self.clock.now());
        }
    }

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a connection ended");
        let PeerKind::Silo(silo) = connection.peer else { return };
        let event = match why {
            Lost::Broken(_) => ConnectionEvent::Broken,
            Lost::Goodbye(_) => ConnectionEvent::Goodbye,
            Lost::PeerDead | Lost::Protocol(_) | Lost::Closed => return,
        };
        self.membership.send(MembershipInput::Connection(silo, event));
    }
}

/// How a turn polled in the read loop stands.
enum Inline {
    /// It is answered (or was one-way).
    Over,
    Suspended(BoxTurn),
    Closed(Option<SiloAddress>),
}

impl SiloCore {
    fn deadline_of(&self, header: &RequestHeader) -> CoarseInstant {
        let left = match header.deadline_ms {
            0 => self.options.response_timeout,
            ms => std::time::Duration::from_millis(u64::from(ms)),
        };
        self.clock.now().after(left)
    }

    /// Starts the turn and polls it once, answering into `replies` if it ends.
    fn run_here(
        &self,
        arrived: &Arrived,
        activation: Arc<dyn RunActivation>,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Inline {
        let correlation = arrived.header.correlation;
        let mut turn = match self.start(arrived, activation) {
            Ok(turn) => turn,
            Err(failure) => {
                put_failure(replies, correlation, &failure);
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
                    arrived.connection.fit_reply(replies, correlation, appended);
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

    fn start(&self, arrived: &Arrived, activation: Arc<dyn RunActivation>) -> Result<BoxTurn, Failure> {
        let header = &arrived.header;
        activation
            .start(header.method, Input::Wire(&arrived.body), Some(arrived.deadline), header.chain.clone())
            .map_err(|e| e.into_failure(format_args!("{:08x}", header.method)))
    }

    /// Goes on with a turn that suspended in the read loop.
    async fn finish(self: Arc<Self>, arrived: Arrived, turn: BoxTurn) {
        match self.run_there(&arrived, turn).await {
            Ok(None) => {}
            Ok(Some(elsewhere)) => self.serve(arrived, elsewhere).await,
            Err(failure) => arrived.fail(&failure),
        }
    }

    /// Drives a turn to its end and answers. `Ok(Some(_))`: the activation closed first.
    async fn run_there(
        &self,
        arrived: &Arrived,
        mut turn: BoxTurn,
    ) -> Result<Option<Option<SiloAddress>>, Failure> {
        let correlation = arrived.header.correlation;
        let mut body = BytesMut::new();
        let mut sink = if correlation == 0 { Sink::Discard } else { Sink::Wire(&mut body) };
        // While it waits for admission it can still be given up; once begun it runs to its end.
        let due = tokio::time::sleep_until(self.clock.tokio_at_coarse(arrived.deadline));
        let first = tokio::select! {
            biased;
            first = until_begun(&mut turn, &mut sink) => first,
            () = due => {
                let detail = "waiting for its turn".to_owned();
                return Err(CallError::Timeout { maybe_executed: false, detail });
            }
        };
        let end = match first {
            Some(end) => end,
            None => run_to_end(turn, &mut sink).await,
        };
        match end {
            TurnEnd::Done => {
                let header = ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
                arrived.answer(&header, &body);
                Ok(None)
            }
            TurnEnd::Closed(elsewhere) => Ok(Some(elsewhere)),
            end => Err(failure_of(end)),
        }
    }

    /// Finds the grain of a call that cannot be run at once, here or elsewhere, and answers. `elsewhere`: where the
    /// directory has just said that it is.
    async fn serve(self: Arc<Self>, arrived: Arrived, mut elsewhere: Option<SiloAddress>) {
        let due = tokio::time::sleep_until(self.clock.tokio_at_coarse(arrived.deadline));
        tokio::pin!(due);
        let mut avoid = Vec::new();
        let mut attempts = 0..=self.options.limits.forwards_max;
        let failure = loop {
            if attempts.next().is_none() {
                break CallError::Unreachable {
                    silo: None,
                    maybe_executed: false,
                    detail: "the grain moved or its silo failed at every attempt".to_owned(),
                };
            }
            let place = tokio::select! {
                biased;
                place = self.place_arrived(&arrived, &avoid, elsewhere.take()) => place,
                () = &mut due => {
                    Err(CallError::Timeout { maybe_executed: false, detail: "looking for the grain".to_owned() })
                }
            };
            match place {
                Err(failure) => break failure,
                Ok(Place::Here(activation)) => match self.start(&arrived, activation) {
                    Err(failure) => break failure,
                    Ok(turn) => match self.run_there(&arrived, turn).await {
                        Ok(None) => return,
                        Ok(Some(moved)) => elsewhere = moved,
                        Err(failure) => break failure,
                    },
                },
                Ok(Place::There { peer, placed }) => match self.forward(&arrived, peer).await {
                    Forwarded::Answered => return,
                    Forwarded::Unreachable(_) if placed => avoid.push(peer),
                    Forwarded::Unreachable(failure) | Forwarded::Failed(failure) => break failure,
                },
            }
        };
        arrived.fail(&failure);
    }

    /// A silo asked this one, so it believes the grain is (or shall be) here; a client asked its gateway, which
    /// places like any caller.
    ///
    /// What this silo remembers of the grain's location counts for nothing against a silo that asks: two silos with
    /// stale memories would send the call to and fro. The directory decides when the activation registers.
    async fn place_arrived(
        self: &Arc<Self>,
        arrived: &Arrived,
        avoid: &[SiloAddress],
        elsewhere: Option<SiloAddress>,
    ) -> Result<Place, Failure> {
        let target = &arrived.header.target;
        if let Some(peer) = elsewhere.filter(|peer| *peer != self.address) {
            self.locations.set(target, peer);
            return Ok(Place::There { peer, placed: false });
        }
        if matches!(arrived.connection.peer, PeerKind::Silo(_)) {
            self.wait_unfenced().await;
            if self.accepts_activations() {
                return self.create_here(target).map(Place::Here);
            }
            // Leaving: the sender's memory is stale, and so may be this one's.
            self.locations.forget_grain(target);
        }
        self.locate(target, avoid).await
    }

    async fn forward(self: &Arc<Self>, arrived: &Arrived, peer: SiloAddress) -> Forwarded {
        let mut header = arrived.header.clone();
        if header.forwards >= self.options.limits.forwards_max {
            let detail = "the call was passed on too often".to_owned();
            return Forwarded::Failed(unreachable_silo(peer, false, detail));
        }
        let connection = match self.connect(peer).await {
            Ok(connection) => connection,
            Err(e) => {
                self.locations.forget(&header.target, peer);
                return Forwarded::Unreachable(unreachable_silo(peer, false, e.to_string()));
            }
        };
        header.forwards += 1;
        header.expect_view = self.view_version();
        header.deadline_ms = arrived.deadline.left_on_wire(self.clock.now());
        self.metrics.call_forwarded();
        let body = |out: &mut BytesMut| {
            out.put_slice(&arrived.body);
            Ok(())
        };
        if header.flags.contains(RequestFlags::ONE_WAY) {
            return match connection.one_way(header, body) {
                Ok(()) => {
                    arrived.over();
                    Forwarded::Answered
                }
                Err(e) => Forwarded::Failed(send_failure(Some(peer), e)),
            };
        }
        let target = header.target.clone();
        let ticket = match connection.call(Waker::noop(), header, Some(arrived.deadline), body) {
            Ok(ticket) => ticket,
            Err(e) => return Forwarded::Failed(send_failure(Some(peer), e)),
        };
        match ticket.await {
            Ok(Answer::Response(answer, body)) => {
                let at = answer.location.unwrap_or(peer);
                if answer.status == ResponseStatus::Ok {
                    self.locations.set(&target, at);
                }
                let header = ResponseHeader {
                    correlation: arrived.header.correlation,
                    status: answer.status,
                    location: Some(at),
                };
                arrived.answer(&header, &body);
                Forwarded::Answered
            }
            Ok(Answer::TimedOut) => Forwarded::Failed(CallError::Timeout {
                maybe_executed: true,
                detail: format!("waiting for {peer}"),
            }),
            Err(lost) => {
                self.locations.forget(&target, peer);
                Forwarded::Failed(unreachable_silo(peer, true, lost.to_string()))
            }
        }
    }
}

enum Forwarded {
    Answered,
    /// Nothing was sent.
    Unreachable(Failure),
    Failed(Failure),
}

impl Arrived {
    fn answer(&self, header: &ResponseHeader, body: &[u8]) {
        self.connection.reply(self.header.correlation, self.cost, |out| {
            let put = |out: &mut BytesMut| {
                out.put_slice(body);
                Ok::<(), std::convert::Infallible>(())
            };
            encode_response(out, header, put).unwrap_or_else(|never| match never {})
        });
    }

    fn fail(&self, failure: &Failure) {
        let (code, maybe, detail) = failure_parts(failure);
        let correlation = self.header.correlation;
        self.connection
            .reply(correlation, self.cost, |out| encode_failure(out, correlation, code, maybe, &detail));
    }

    /// A one-way call is out of this silo's hands.
    fn over(&self) {
        self.connection.reply(0, self.cost, |_| 0);
    }
}

fn put_failure(replies: &mut BytesMut, correlation: u64, failure: &Failure) {
    if correlation != 0 {
        let (code, maybe, detail) = failure_parts(failure);
        encode_failure(replies, correlation, code, maybe, &detail);
    }
}
