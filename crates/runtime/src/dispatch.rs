//! What a silo does with calls that arrive over connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use emmer_core::SiloAddress;
use emmer_membership::ConnectionEvent;
use emmer_wire::{
    FailureCode, PeerKind, RequestFlags, RequestHeader, ResponseHeader, ResponseStatus, channel, codec,
    encode_failure, encode_response,
};

use crate::activation::{
    Begun, BoxTurn, Input, Progress, RunActivation, Sink, TurnEnd, run_to_end, until_begun,
};
use crate::clock::{Clock, CoarseInstant, Due};
use crate::grain::{CallError, Failure};
use crate::invoke::{InlineDepth, dropped, failure_of, overdue, send_failure};
use crate::membership::Input as MembershipInput;
use crate::net::{Answer, Connection, Handler, Lost, SendError};
use crate::path::{Asker, Met, Next, Path, Tried, unreachable_silo};
use crate::remote::{failure_parts, read_failed, timed_out};
use crate::silo::{Place, Shut, SiloCore};
use crate::waits;
use crate::world;

/// A call that came over a connection and is not answered yet.
struct Arrived {
    connection: Arc<Connection>,
    header: RequestHeader,
    body: Bytes,
    /// The size of the whole frame, to be given back as credit.
    cost: u64,
    deadline: CoarseInstant,
    /// Whether anybody waits for it.
    asker: Arc<waits::Asker>,
    _room: Serving,
}

/// Room for one call of others that is not answered at once.
struct Serving(Arc<SiloCore>);

impl Serving {
    /// None when as many are under way as may be; `surely`: one more all the same.
    fn begin(silo: &Arc<SiloCore>, surely: bool) -> Option<Self> {
        let under_way = silo.serving.fetch_add(1, Ordering::Relaxed);
        let room = Self(silo.clone());
        (surely || under_way < silo.options.limits.silo_calls_in_flight_max).then_some(room)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Handler for SiloCore {
    fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: RequestHeader,
        body: &[u8],
        cost: u64,
        replies: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> u64 {
        self.metrics.call_received();
        let found = self.catalog.get(&header.target).or_else(|| self.create_arrived(connection, &header));
        // Of a peer that does not read its answers no call is begun.
        let room = connection.has_room(replies.len());
        let inline = match (found, InlineDepth::enter()) {
            (Some(activation), Some(_depth)) if room => {
                self.run_here(connection, &header, body, activation, replies, cx)
            }
            _ => Inline::Closed(None),
        };
        if let Inline::Over = inline {
            return cost;
        }
        // What has begun runs to its end, whatever the limits.
        let running = matches!(&inline, Inline::Suspended(turn) if turn.progress() == Progress::Running);
        let Some(room) = Serving::begin(self, running) else {
            let max = self.options.limits.silo_calls_in_flight_max;
            self.metrics.refused();
            let text = format!("{max} calls of others wait on this silo (silo_calls_in_flight_max)");
            put_failure(replies, header.correlation, &CallError::Overloaded(text));
            return cost;
        };
        // From here on the call lives longer than the buffer it came in.
        let deadline = self.due_of(&header).settle(self.clock.now());
        let body = Bytes::copy_from_slice(body);
        let connection = connection.clone();
        let asker = connection.begin_serving(header.correlation);
        let arrived = Arrived { connection, header, body, cost, deadline, asker, _room: room };
        match inline {
            Inline::Suspended(turn) => world::spawn(self.clone().finish(arrived, turn)),
            Inline::Closed(elsewhere) => world::spawn(self.clone().serve(arrived, Met::Closed(elsewhere))),
            Inline::Over => return cost,
        };
        0
    }

    fn system(self: &Arc<Self>, connection: &Arc<Connection>, channel: u8, payload: Bytes) {
        match (channel, connection.peer) {
            (channel::MEMBERSHIP, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) if self.knows(from) => {
                    self.membership.send(MembershipInput::Message(from, message));
                }
                // The machine takes from it what a join needs.
                Ok(message) => self.membership.send_of_stranger(MembershipInput::Message(from, message)),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable membership message"),
            },
            // Nobody asks a dead silo's directory any more, and nobody answers it.
            (channel::DIRECTORY, PeerKind::Silo(_)) if connection.is_parting() => {}
            (channel::DIRECTORY, PeerKind::Silo(from)) if !self.knows(from) => {
                tracing::debug!(%from, "a directory message of a silo that the view does not name");
            }
            (channel::DIRECTORY, PeerKind::Silo(from)) => match codec::decode(&payload) {
                Ok(message) => self.directory.receive(self, from, message),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable directory message"),
            },
            (channel::WAITS, PeerKind::Silo(from)) if self.knows(from) => match codec::decode(&payload) {
                Ok(message) => self.waits.receive(message),
                Err(e) => tracing::warn!(%from, error = %e, "an unreadable message about waiting calls"),
            },
            // The connection has taken it up.
            (channel::CALLS, _) => {}
            (channel::GATEWAY, PeerKind::Client(_)) => self.gateway_message(connection, &payload),
            (channel, peer) => tracing::debug!(channel, ?peer, "a message on a channel nobody reads here"),
        }
    }

    fn heard(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let PeerKind::Silo(silo) = connection.peer {
            let now = self.clock.now();
            if connection.note_heard(now) && self.knows(silo) {
                self.membership.heard(silo, now);
            }
        }
    }

    fn knows(&self, silo: SiloAddress) -> bool {
        self.views.borrow().status_of(&silo).is_some()
    }

    fn lost(self: &Arc<Self>, connection: &Arc<Connection>, why: &Lost) {
        tracing::debug!(peer = ?connection.peer, %why, "a connection ended");
        let PeerKind::Silo(silo) = connection.peer else { return };
        let event = match why {
            Lost::Ended => ConnectionEvent::Closed,
            Lost::Broken(_) => ConnectionEvent::Broken,
            Lost::Goodbye(_) => ConnectionEvent::Goodbye,
            Lost::PeerDead | Lost::Drained | Lost::Protocol(_) | Lost::Closed => return,
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
    /// The new activation of a grain that a silo believes to be here, or to come here. Made at once, so that the calls that
    /// follow find it and keep their order.
    #[cold]
    fn create_arrived(
        self: &Arc<Self>,
        connection: &Connection,
        header: &RequestHeader,
    ) -> Option<Arc<dyn RunActivation>> {
        let of_silo = matches!(connection.peer, PeerKind::Silo(_));
        let may = of_silo && !self.is_fenced() && self.accepts_activations();
        may.then(|| self.create_here(&header.target).ok()).flatten()
    }

    fn due_of(&self, header: &RequestHeader) -> Due {
        Due::after(match header.deadline_ms {
            0 => self.options.response_timeout,
            ms => Duration::from_millis(u64::from(ms)),
        })
    }

    /// Starts the turn and polls it once, answering into `replies` if it ends.
    fn run_here(
        &self,
        connection: &Connection,
        header: &RequestHeader,
        body: &[u8],
        activation: Arc<dyn RunActivation>,
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

    /// Goes on with a turn that suspended in the read loop.
    async fn finish(self: Arc<Self>, arrived: Arrived, turn: BoxTurn) {
        match self.run_there(&arrived, turn).await {
            Ok(()) => {}
            Err(Tried::Met(met)) => self.serve(arrived, met).await,
            Err(Tried::Failed(failure)) => arrived.fail(&failure),
        }
    }

    /// Drives a turn to its end and answers.
    async fn run_there(&self, arrived: &Arrived, mut turn: BoxTurn) -> Result<(), Tried> {
        let correlation = arrived.header.correlation;
        if turn.has_caller() {
            turn.as_mut().asked_by(arrived.asker.clone());
        }
        let mut body = BytesMut::new();
        let mut sink = if correlation == 0 { Sink::Discard } else { Sink::Wire(&mut body) };
        // While it waits for admission it can still be given up; once begun it runs to its end. It may have begun in the
        // read loop, and its caller may be gone since.
        let begun = match turn.progress() {
            Progress::Running => Begun::Running,
            _ => arrived.unless_given_up(until_begun(&mut turn, &self.clock, &mut sink)).await?,
        };
        let end = match begun {
            Begun::Over(end) => end,
            Begun::Running => match run_to_end(turn, &self.fence, &mut sink).await {
                Ok(end) => end,
                Err(Shut) => return Err(dropped().into()),
            },
            Begun::Overdue => return Err(overdue().into()),
            Begun::Ended => return Err(CallError::ShuttingDown.into()),
        };
        match end {
            TurnEnd::Done => {
                let header = ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
                arrived.answer(&self.clock, &header, &body).await;
                Ok(())
            }
            TurnEnd::Closed(elsewhere) => Err(Met::Closed(elsewhere).into()),
            end => Err(failure_of(end).into()),
        }
    }

    /// Finds the grain of a call that cannot be run at once, here or elsewhere, and answers. `met`: what its first try came
    /// to.
    async fn serve(self: Arc<Self>, arrived: Arrived, mut met: Met) {
        let mut path = Path::new(match arrived.connection.peer {
            PeerKind::Silo(_) => Asker::Silo,
            _ => Asker::Own,
        });
        let failure = loop {
            let (hint, next) = path.met(met, arrived.deadline.left(self.clock.now()));
            self.locations.take_hint(&arrived.header.target, hint);
            match next {
                Next::Fail(failure) => break failure,
                Next::Again(Duration::ZERO) => {}
                // A client has other gateways.
                Next::Again(_) if !self.accepts_activations() => break CallError::ShuttingDown,
                Next::Again(pause) => {
                    if let Err(given_up) = arrived.unless_given_up(tokio::time::sleep(pause)).await {
                        break given_up;
                    }
                }
            }
            met = match self.try_once(&arrived, &mut path).await {
                Ok(()) => return,
                Err(Tried::Met(met)) => met,
                Err(Tried::Failed(failure)) => break failure,
            };
        };
        arrived.fail(&failure);
    }

    /// Finds the grain, and runs the call or passes it on.
    async fn try_once(self: &Arc<Self>, arrived: &Arrived, path: &mut Path) -> Result<(), Tried> {
        let due = tokio::time::sleep_until(self.clock.tokio_at_coarse(arrived.deadline));
        let place = tokio::select! {
            biased;
            () = arrived.asker.gone() => return Err(given_up().into()),
            place = async {
                arrived.connection.until_room().await;
                self.place_arrived(arrived, path).await
            } => place.map_err(Met::NotFound)?,
            () = due => {
                let detail = "looking for the grain".to_owned();
                return Err(Failure::Timeout { maybe_executed: false, detail }.into());
            }
        };
        match place {
            Place::Here(activation) => self.run_there(arrived, arrived.start(activation)?).await,
            Place::There { peer, placed } => self.forward(arrived, peer, placed).await,
        }
    }

    /// A silo asked this one, so it believes the grain is (or shall be) here; a client asked its gateway, which
    /// places like any caller.
    ///
    /// What this silo remembers of the grain's location counts for nothing against a silo that asks: two silos with
    /// stale memories would send the call to and fro. The directory decides when the activation registers.
    async fn place_arrived(self: &Arc<Self>, arrived: &Arrived, path: &mut Path) -> Result<Place, Failure> {
        let target = &arrived.header.target;
        if let Some(peer) = path.take_elsewhere().filter(|peer| *peer != self.address) {
            return Ok(Place::There { peer, placed: false });
        }
        if matches!(arrived.connection.peer, PeerKind::Silo(_)) {
            let open = self.fence.opened(&self.clock).await.is_ok();
            if open && self.accepts_activations() {
                return self.create_here(target).map(Place::Here);
            }
            // Leaving: the sender's memory is stale, and so may be this one's.
            self.locations.forget_grain(target);
        }
        self.locate(target, path.avoid()).await
    }

    async fn forward(
        self: &Arc<Self>,
        arrived: &Arrived,
        peer: SiloAddress,
        placed: bool,
    ) -> Result<(), Tried> {
        let mut header = arrived.header.clone();
        if header.forwards >= self.options.limits.forwards_max {
            let detail = "the call was passed on too often".to_owned();
            return Err(unreachable_silo(Some(peer), false, detail).into());
        }
        let unsent = |why| Tried::Met(Met::Unsent { peer: Some(peer), placed, why });
        let connection = self.connect(peer).await.map_err(|e| unsent(e.to_string()))?;
        header.forwards += 1;
        header.expect_view = self.view_version();
        header.deadline_ms = arrived.deadline.left_on_wire(self.clock.now());
        self.metrics.call_forwarded();
        let body = |out: &mut BytesMut| {
            out.put_slice(&arrived.body);
            Ok(())
        };
        let refused = |error| match error {
            SendError::Lost(why) => unsent(why.to_string()),
            error => Tried::Failed(send_failure(Some(peer), error)),
        };
        if header.flags.contains(RequestFlags::ONE_WAY) {
            connection.one_way(header.head(), body).map_err(refused)?;
            arrived.over();
            return Ok(());
        }
        let ticket = connection.call(header.head(), arrived.deadline, body).map_err(refused)?;
        let answered = arrived.unless_given_up(ticket).await?;
        let answered = answered.map_err(|why| Met::Lost { peer: Some(peer), why })?;
        let (Answer::Response { status, location }, body) = answered else {
            return Err(timed_out(Some(peer)).into());
        };
        let at = location.map_or(peer, |at| *at);
        match status {
            ResponseStatus::Ok => self.locations.set(&header.target, at),
            ResponseStatus::Failed(
                FailureCode::Unreachable | FailureCode::Moved | FailureCode::ShuttingDown,
            ) => {
                let failure = read_failed(Some(at), status, &body);
                return Err(Met::Answered { peer: Some(peer), failure }.into());
            }
            ResponseStatus::Failed(_) => {}
        }
        let correlation = arrived.header.correlation;
        let header = ResponseHeader { correlation, status, location: Some(at) };
        arrived.answer(&self.clock, &header, &body).await;
        Ok(())
    }
}

/// Runs the turn in place and answers, if it is one that cannot suspend and nothing stands in its way.
fn answer_instantly(
    connection: &Connection,
    header: &RequestHeader,
    body: &[u8],
    activation: &Arc<dyn RunActivation>,
    due: Due,
    replies: &mut BytesMut,
) -> bool {
    let correlation = header.correlation;
    let run = |sink: &mut Sink<'_>| {
        activation.run_instant(activation, header.method, Input::Wire(body), due, &header.chain, sink)
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
            put_failure(replies, correlation, &e.into_failure(format_args!("{:08x}", header.method)));
        }
    }
    true
}

fn start(
    activation: Arc<dyn RunActivation>,
    header: &RequestHeader,
    body: &[u8],
    due: Due,
) -> Result<BoxTurn, Failure> {
    activation
        .start(header.method, Input::Wire(body), due, header.chain.clone())
        .map_err(|e| e.into_failure(format_args!("{:08x}", header.method)))
}

/// Nobody waits for the call any more; nobody hears of this.
const fn given_up() -> Failure {
    CallError::Cancelled { maybe_executed: false }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.connection.forget(self.header.correlation);
    }
}

impl Arrived {
    /// Waits for `work` as long as somebody waits for the call. It is not polled once nobody does.
    async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.asker.gone() => Err(given_up()),
            done = work => Ok(done),
        }
    }

    fn start(&self, activation: Arc<dyn RunActivation>) -> Result<BoxTurn, Failure> {
        start(activation, &self.header, &self.body, Due::at(self.deadline))
    }

    /// Answers, when the peer reads its answers; within the call's time.
    async fn answer(&self, clock: &Clock, header: &ResponseHeader, body: &[u8]) {
        let write = |out: &mut BytesMut| {
            let put = |out: &mut BytesMut| {
                out.put_slice(body);
                Ok::<(), std::convert::Infallible>(())
            };
            encode_response(out, header, put).unwrap_or_else(|never| match never {})
        };
        if header.correlation != 0 && !self.asker.waits() {
            return self.over();
        }
        while !self.connection.try_reply(header.correlation, self.cost, write) {
            let due = clock.tokio_at_coarse(self.deadline);
            if tokio::time::timeout_at(due, self.connection.until_room()).await.is_err() {
                let detail = "the caller does not read its answers".to_owned();
                self.fail(&CallError::Timeout { maybe_executed: true, detail });
                return;
            }
        }
    }

    fn fail(&self, failure: &Failure) {
        if !self.asker.waits() {
            return self.over();
        }
        let (code, maybe, detail) = failure_parts(failure);
        let correlation = self.header.correlation;
        self.connection
            .reply(correlation, self.cost, |out| encode_failure(out, correlation, code, maybe, &detail));
    }

    /// A call that nobody waits for is out of this silo's hands.
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
