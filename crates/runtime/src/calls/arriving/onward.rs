//! Calls that do not end at once: they wait here, are placed, or are passed on.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use emmer_core::SiloAddress;
use emmer_net::clock::Due;
use emmer_net::transport::{Answer, Expected, SendError};
use emmer_wire::{FailureCode, PeerKind, ResponseHeader, ResponseStatus};

use super::arrived::{Arrived, given_up};
use crate::calls::invoke::dropped;
use crate::calls::outset::{failure_of, overdue, send_failure};
use crate::calls::path::{Asker, Met, Next, Path, Tried, unreachable_silo};
use crate::calls::remote::{read_failed, timed_out};
use crate::calls::{Calls, Place};
use crate::cluster::{Shut, Sought};
use crate::hosting::{
    Begun, BoxTurn, FollowPlace, Progress, Sink, StartError, TurnEnd, run_to_end, until_begun,
};
use crate::trace;
use crate::turn::Failure;

impl Calls {
    /// Continues a turn that suspended in the read loop.
    pub(super) async fn finish(self: Arc<Self>, arrived: Arrived, turn: BoxTurn) {
        match self.run_there(&arrived, turn).await {
            Ok(()) => {}
            // Rare, and larger than all that a turn needs.
            Err(Tried::Met(met)) => Box::pin(self.serve(arrived, met)).await,
            Err(Tried::Failed(failure)) => self.fail(&arrived, failure),
        }
    }

    /// Drives a turn to its end and answers.
    async fn run_there(&self, arrived: &Arrived, mut turn: BoxTurn) -> Result<(), Tried> {
        let correlation = arrived.header.correlation;
        let is_begin_enough = arrived.is_until_begun();
        if turn.has_caller() || (correlation != 0 && !is_begin_enough) {
            turn.as_mut().asked_by(arrived.asker.clone());
        }
        let mut body = BytesMut::new();
        let mut sink =
            if correlation == 0 || is_begin_enough { Sink::Discard } else { Sink::Wire(&mut body) };
        // A call can be given up while it waits for admission. Once begun it runs to its end. It
        // may have begun in the read loop, and its caller may be gone since.
        let begun = match turn.progress() {
            Progress::Running => Begun::Running,
            _ => arrived.unless_given_up(until_begun(&mut turn, &self.clock, &mut sink)).await?,
        };
        let end = match begun {
            Begun::Over(end) => end,
            Begun::Running => {
                let mut tell = || arrived.tell_begun();
                let settled = is_begin_enough.then_some(&mut tell as &mut (dyn FnMut() + Send));
                match run_to_end(turn, &self.host, &mut sink, settled).await {
                    Ok(end) => end,
                    Err(Shut) => return Err(dropped().into()),
                }
            }
            Begun::Overdue => return Err(overdue().into()),
            Begun::Ended => return Err(Failure::shutting_down().into()),
        };
        match end {
            TurnEnd::Done => {
                let header =
                    ResponseHeader { correlation, status: ResponseStatus::Ok, location: None };
                arrived.answer(&self.clock, &header, &body).await;
                Ok(())
            }
            TurnEnd::Closed(elsewhere) => Err(Met::Closed(elsewhere).into()),
            end => Err(failure_of(end).into()),
        }
    }

    /// Finds the grain of a call that cannot be run at once, here or elsewhere, and answers. `met`:
    /// what its first try came to.
    ///
    /// Not an `async fn`, which would hold each argument twice: a storm has a hundred thousand of
    /// these at once.
    #[allow(clippy::manual_async_fn, reason = "an `async fn` holds each argument twice")]
    pub(super) fn serve(
        self: Arc<Self>,
        arrived: Arrived,
        mut met: Met,
    ) -> impl Future<Output = ()> + Send {
        async move {
            let mut path = Path::new(match arrived.connection.peer {
                PeerKind::Silo(_) => Asker::Silo,
                _ => Asker::Own,
            });
            let failure = loop {
                let pause = match self.pause_after(met, &mut path, &arrived) {
                    Ok(pause) => pause,
                    Err(failure) => break failure,
                };
                if let Some(pause) = pause
                    && let Err(given_up) = arrived.unless_given_up(tokio::time::sleep(pause)).await
                {
                    break given_up;
                }
                met = match self.try_once(&arrived, &mut path).await {
                    Ok(()) => return,
                    Err(Tried::Met(met)) => met,
                    Err(Tried::Failed(failure)) => break failure,
                };
            };
            self.fail(&arrived, failure);
        }
    }

    /// Ends a call that has failed.
    fn fail(&self, arrived: &Arrived, failure: Failure) {
        if arrived.header.correlation == 0 {
            self.host.metrics.one_way_failed();
        }
        arrived.fail(&self.told(arrived, failure));
    }

    /// The pause before a call is tried again, if there is one.
    fn pause_after(
        &self,
        met: Met,
        path: &mut Path,
        arrived: &Arrived,
    ) -> Result<Option<Duration>, Failure> {
        let (hint, next) = path.met(met, arrived.deadline.left(self.clock.now()));
        hint.tell(&self.cluster.locations, &arrived.header.target);
        match next {
            Next::Fail(failure) => Err(failure),
            Next::Again(Duration::ZERO) => Ok(None),
            // A client has other gateways.
            Next::Again(_) if !self.accepts_activations() => Err(Failure::shutting_down()),
            Next::Again(pause) => Ok(Some(pause)),
        }
    }

    /// Finds the grain, and runs the call or passes it on.
    async fn try_once(self: &Arc<Self>, arrived: &Arrived, path: &mut Path) -> Result<(), Tried> {
        let (room, place) = self.find(arrived, path).await?;
        let before = path.take_place();
        room.during(std::pin::pin!(self.run_at(arrived, place, before))).await
    }

    /// Waits for the peer's room for an answer, and finds the grain.
    async fn find<'a>(
        &self,
        arrived: &'a Arrived,
        path: &mut Path,
    ) -> Result<(Expected<'a>, Place), Tried> {
        let found = std::pin::pin!(async {
            let room = arrived.connection.until_room().await;
            self.place_arrived(arrived, path).await.map(|place| (room, place))
        });
        let found = self.in_time(arrived, found).await?;
        found.map_err(|failure| self.not_found(arrived, failure).into())
    }

    /// Runs the call at its place, or passes it on. `before`: its place before later calls that
    /// follow the grain.
    async fn run_at(
        self: &Arc<Self>,
        arrived: &Arrived,
        place: Place,
        before: Option<FollowPlace>,
    ) -> Result<(), Tried> {
        match place {
            Place::Here(activation) => {
                drop(before);
                let turn = match arrived.start(activation.clone()) {
                    Ok(turn) => turn,
                    Err(StartError::NoSuchMethod) => {
                        let due = Due::at(arrived.deadline);
                        let aside = self.step_aside(activation, arrived.seeks(), due);
                        let aside = std::pin::pin!(aside);
                        let aside = self.in_time(arrived, aside).await?;
                        let mut turn = aside.map_err(|failure| self.not_found(arrived, failure))?;
                        turn.as_mut().set_driven();
                        turn
                    }
                    Err(why) => return Err(why.into_failure().into()),
                };
                self.run_there(arrived, turn).await
            }
            Place::There { peer, placed } => self.forward(arrived, peer, placed, before).await,
        }
    }

    /// Waits for a call's place until its deadline, as long as a caller waits for the call.
    async fn in_time<T>(
        &self,
        arrived: &Arrived,
        place: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Failure> {
        let due = tokio::time::sleep_until(self.clock.tokio_at_coarse(arrived.deadline));
        tokio::select! {
            biased;
            () = arrived.asker.gone() => Err(given_up()),
            place = place => Ok(place),
            () = due => {
                let detail = "looking for the grain".to_owned();
                Err(Failure::timeout(false, detail))
            }
        }
    }

    /// The grain of a call was not found.
    fn not_found(&self, arrived: &Arrived, failure: Failure) -> Met {
        let asker_knows_more = arrived.header.expect_view > self.cluster.view_version();
        Met::not_found(failure, asker_knows_more)
    }

    /// A silo that asks believes that the grain is here. A client asks its gateway, which places
    /// the grain like any caller.
    ///
    /// This silo's memory of the grain's location does not count against a silo that asks: two
    /// silos with stale memories would send the call to and fro. The directory decides when the
    /// activation registers. One memory counts for a second: the grain left for a silo that serves
    /// the call.
    async fn place_arrived(&self, arrived: &Arrived, path: &mut Path) -> Result<Place, Failure> {
        let sought = arrived.seeks();
        let Sought { grain: target, method, .. } = sought;
        if let Some(peer) = path.take_elsewhere().filter(|peer| *peer != self.address) {
            return Ok(Place::There { peer, placed: false });
        }
        if let PeerKind::Silo(asker) = arrived.connection.peer {
            if let Some(door) = self.door(target, method, Some(asker), path.avoid()) {
                return Ok(Place::Here(door));
            }
            let left_for = self.follow(&arrived.header, asker);
            let left_for = left_for.filter(|peer| !path.avoid().contains(peer));
            if let Some(peer) = left_for.filter(|_| self.host.catalog.get(target).is_none()) {
                return Ok(Place::There { peer, placed: true });
            }
            // The asker may have sent it to this silo because it answers for the grain.
            let elsewhere = self.registered_elsewhere(target);
            let elsewhere = elsewhere.filter(|peer| !path.avoid().contains(peer));
            if let Some(peer) = elsewhere.filter(|_| self.host.catalog.get(target).is_none()) {
                return Ok(Place::There { peer, placed: false });
            }
            let open = self.host.fence.opened(&self.clock).await.is_ok();
            if open && self.takes(target, method) {
                return match self.host.create_here(target)? {
                    Some(activation) => Ok(Place::Here(activation)),
                    None => self.placed(sought, path.avoid()).await,
                };
            }
            // The sender knows no better, and this silo's memory may be stale too.
            self.cluster.locations.forget_grain(target);
        }
        let is_awaited = arrived.header.correlation != 0 && !arrived.is_until_begun();
        self.locate(sought, path.avoid(), is_awaited).await
    }

    async fn forward(
        self: &Arc<Self>,
        arrived: &Arrived,
        peer: SiloAddress,
        placed: bool,
        before: Option<FollowPlace>,
    ) -> Result<(), Tried> {
        let mut header = arrived.header.clone();
        if header.forwards >= self.limits.forwards_max {
            let detail = "the call was passed on too often".to_owned();
            return Err(unreachable_silo(Some(peer), false, detail).into());
        }
        let unsent = |why| Tried::Met(Met::Unsent { peer: Some(peer), placed, why });
        let connection =
            self.cluster.peers.connect(peer).await.map_err(|e| unsent(e.to_string()))?;
        header.forwards += 1;
        self.mark_unlooked(arrived.connection.peer, &mut header)?;
        header.trace = trace::carried().or(header.trace);
        header.expect_view = self.cluster.view_version();
        header.deadline_ms = arrived.deadline.left_on_wire(self.clock.now());
        self.host.metrics.call_forwarded();
        let body = |out: &mut BytesMut| {
            out.put_slice(&arrived.body);
            Ok(())
        };
        let refused = |error| match error {
            SendError::Lost(why) => unsent(why.to_string()),
            error => Tried::Failed(send_failure(Some(peer), error)),
        };
        if header.correlation == 0 {
            connection.one_way(header.head(), body, || true).map_err(refused)?;
            if let PeerKind::Silo(asker) = arrived.connection.peer
                && !self.is_worker(&header.target)
            {
                self.host.moves.tell_moved(asker, header.target, peer);
            }
            arrived.over();
            return Ok(());
        }
        let ticket = connection.call(header.head(), arrived.deadline, body).map_err(refused)?;
        drop(before);
        let answered = arrived.unless_given_up(ticket).await?;
        let answered = answered.map_err(|why| Met::Lost { peer: Some(peer), why })?;
        let (Answer::Response { status, location }, body) = answered else {
            return Err(timed_out(Some(peer)).into());
        };
        let at = location.map_or(peer, |at| *at);
        let is_worker = self.is_worker(&header.target);
        match status {
            ResponseStatus::Ok if is_worker => {}
            ResponseStatus::Ok => self.learn(&header.target, at),
            ResponseStatus::Failed(
                FailureCode::Unreachable | FailureCode::Moved | FailureCode::ShuttingDown,
            ) => {
                let failure = read_failed(Some(at), status, &body);
                return Err(Met::Answered { peer: Some(peer), failure }.into());
            }
            ResponseStatus::Failed(FailureCode::NoSuchGrainType | FailureCode::NoSuchMethod)
                if arrived.is_of_client() =>
            {
                return Err(read_failed(Some(at), status, &body).into());
            }
            ResponseStatus::Failed(_) => {}
        }
        let correlation = arrived.header.correlation;
        let location = (!is_worker).then_some(at);
        let header = ResponseHeader { correlation, status, location };
        arrived.answer(&self.clock, &header, &body).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn size_of_output<A, B, C, F>(_: &impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// A storm has a hundred thousand of them at once.
    #[test]
    fn a_call_that_waits_takes_less_than_two_kilobytes() {
        assert!(size_of_output(&Calls::serve) <= 1_800);
        assert!(size_of_output(&Calls::finish) <= 1_300);
    }
}
