//! Calls made in this process that need more than a turn on an idle grain: the shell of their
//! [`Path`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use emmer_net::clock::{Clock, CoarseInstant, Due};
use emmer_net::transport::{Answer, Connection, SendError};
use emmer_wire::{RequestFlags, ResponseStatus};
use tokio_util::sync::CancellationToken;

use crate::calls::invoke::{Finished, LocalEnd, bounded, interrupted, run_apart, run_local};
use crate::calls::lanes::Handed;
use crate::calls::outset::{Caller, LocalTurn, no_output, send_failure, unbound};
use crate::calls::path::{Asker, Met, Next, Path, Tried, unreachable_silo};
use crate::calls::{AnyCall, CallHead, Calls, Lane, Node, Place, Route, Target, remote};
use crate::gateways::ClientCore;
use crate::hosting::{FollowPlace, Slot, StartError};
use crate::trace;
use crate::turn::{Failure, MethodInfo, contain, contained};

/// Makes a call: finds the grain, here or elsewhere, placing it if it is nowhere, and tries again
/// as long as the call certainly did not run. `met`: what its first try came to.
pub(crate) async fn travel(call: AnyCall, caller: Caller, met: Option<Met>) -> Finished {
    let (reference, method) = (call.head.target.share(), call.head.method);
    let trip = travel_in_line(call, caller, met, None);
    let node = &reference.0.node;
    let Some(spawner) = node.spawner() else {
        return Err(Box::new(unbound(&reference).of(&*reference.0, method.name)));
    };
    // A worker goes to a call that is polled: not to a call that its caller keeps unpolled.
    let may_be_kept = node.workers_max(&reference.0.id).is_none();
    if may_be_kept && spawner.is_here() {
        return trip.await;
    }
    // Turns, connections and timers belong to the runtime of the silo or client, wherever the
    // caller is.
    spawner.run(trace::along(trip)).await.unwrap_or_else(|| {
        let why = "the runtime that the silo or client was started on has ended".to_owned();
        Err(Box::new(unreachable_silo(None, true, why).of(&*reference.0, method.name)))
    })
}

/// As [`travel`]; lets `handed` go when the call has its place in the queue of its grain, has begun
/// there, or was sent there.
pub(crate) async fn travel_in_line(
    call: AnyCall,
    caller: Caller,
    met: Option<Met>,
    handed: Option<Handed>,
) -> Finished {
    let (target, method) = (call.head.target.share(), call.head.method);
    // Its arguments are dropped here, if no turn on this silo has them.
    let finished = contained(follow_path(call, caller, met, handed)).await;
    let finished = finished.unwrap_or_else(|panic| Err(Failure::panicked(panic)));
    let without_args = finished.and_then(|mut slot| {
        contain(|| slot.drop_args()).map_err(Failure::panicked)?;
        Ok(slot)
    });
    without_args.map_err(|failure| Box::new(failure.of(&*target.0, method.name)))
}

async fn follow_path(
    call: AnyCall,
    mut caller: Caller,
    mut met: Option<Met>,
    handed: Option<Handed>,
) -> Result<Box<dyn Slot>, Failure> {
    let AnyCall { head: CallHead { target: reference, method, cancel, .. }, slot } = call;
    let target = &*reference.0;
    let deadline = caller.due.settle(target.node.clock().now());
    caller.due = Due::at(deadline);
    let bounds = Bounds { clock: target.node.clock(), deadline, cancel: cancel.as_ref() };
    let path = Path::new(Asker::Own);
    let (slot, one_way) = (Some(slot), handed.is_some());
    let mut trip = Trip { target, method, slot, caller, bounds, path, one_way, handed };
    loop {
        if let Some(met) = met.take() {
            trip.turn(met).await?;
        }
        let tried = match &target.node {
            Node::Silo(silo) => trip.within_cluster(silo).await,
            Node::Client(client) => trip.through_gateway(client).await,
            Node::Nowhere => return Err(unbound(&reference)),
        };
        match tried {
            Ok(slot) => return Ok(slot),
            Err(Tried::Failed(failure)) => return Err(failure),
            Err(Tried::Met(other)) => met = Some(other),
        }
    }
}

type Try = Result<Box<dyn Slot>, Tried>;

/// A call under way.
struct Trip<'a> {
    target: &'a Target,
    method: &'static MethodInfo,
    /// None while a turn on this silo has it.
    slot: Option<Box<dyn Slot>>,
    caller: Caller,
    bounds: Bounds<'a>,
    path: Path,
    /// True for a one-way call of a lane.
    one_way: bool,
    /// The next call in the lane waits for it.
    handed: Option<Handed>,
}

/// Bounds of the time for which a caller waits for its call.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    clock: &'a Clock,
    deadline: CoarseInstant,
    cancel: Option<&'a CancellationToken>,
}

impl Bounds<'_> {
    /// Waits for `work` until the deadline or the cancellation. Nothing has run. The caller pins
    /// `work`: a future that is passed by value would be stored once in each function.
    async fn keep<T>(
        self,
        whiling: &str,
        work: impl Future<Output = T> + Unpin,
    ) -> Result<T, Failure> {
        let done = bounded(self.clock, self.deadline, self.cancel, work).await;
        done.map_err(|by| interrupted(&by, false, whiling))
    }

    fn left(self) -> Duration {
        self.deadline.left(self.clock.now())
    }
}

impl Trip<'_> {
    /// Executes the path's decision about a result.
    async fn turn(&mut self, met: Met) -> Result<(), Failure> {
        let (hint, next) = self.path.met(met, self.bounds.left());
        self.target.take_hint(hint);
        match next {
            Next::Fail(failure) => Err(failure),
            Next::Again(Duration::ZERO) => Ok(()),
            Next::Again(pause) => {
                let pause = pin!(tokio::time::sleep(pause));
                self.bounds.keep("waiting to try again", pause).await
            }
        }
    }

    async fn within_cluster(&mut self, silo: &Arc<Calls>) -> Try {
        let known = self.path.take_elsewhere().filter(|peer| *peer != silo.address);
        let placed = self.path.take_placed();
        let before = self.path.take_place();
        if !self.one_way && before.is_none() {
            let turn = pin!(silo.turn_in_lane(&self.target.id));
            self.handed = self.bounds.keep("waiting for calls before it", turn).await?;
        }
        let is_located = known.is_none() && placed.is_none();
        let place = if let Some(peer) = known {
            Place::There { peer, placed: false }
        } else if let Some(peer) = placed {
            Place::There { peer, placed: true }
        } else {
            let sought = self.caller.seeks(self.method, self.target);
            let located = pin!(silo.locate(sought, self.path.avoid(), !self.one_way));
            self.bounds.keep("looking for the grain", located).await?.map_err(Met::NotFound)?
        };
        match place {
            Place::Here(activation) => {
                drop(before);
                if silo.host.moves.followers.has(&self.target.id) {
                    let followed = pin!(silo.host.moves.followers.over(&self.target.id));
                    self.bounds.keep("waiting for calls that follow the grain", followed).await?;
                }
                // Calls of the reference that find it here go past those in the lane.
                if self.handed.is_none() {
                    self.target.note_here(&activation);
                }
                let Some(mut slot) = self.slot.take() else {
                    return Err(no_output(self.method).into());
                };
                let mut turn =
                    match self.caller.start_turn(self.method, activation.clone(), &mut *slot) {
                        Ok(turn) => turn,
                        Err(StartError::NoSuchMethod) => {
                            let sought = self.caller.seeks(self.method, self.target);
                            let turn = pin!(silo.step_aside(activation, sought, self.caller.due));
                            let turn = self.bounds.keep("looking for the grain", turn).await;
                            match turn.flatten() {
                                Ok(turn) => turn,
                                Err(failure) => {
                                    self.slot = Some(slot);
                                    return Err(Met::NotFound(failure).into());
                                }
                            }
                        }
                        Err(why) => return Err(why.into_failure().into()),
                    };
                if self.one_way {
                    // A task of the lane polls it. It keeps its place while the fence is closed.
                    turn.as_mut().set_driven();
                }
                // The registration may fail, and the call then runs elsewhere: later calls of the
                // lane wait for it.
                let (cancel, handed) = (self.bounds.cancel, &mut self.handed);
                match run_local(silo, turn, slot, &self.caller, cancel, handed).await {
                    LocalEnd::Done(slot) => Ok(slot),
                    LocalEnd::Failed(failure) => Err(failure.into()),
                    LocalEnd::Closed(back, elsewhere) => {
                        self.slot = Some(back);
                        Err(Met::Closed(elsewhere).into())
                    }
                }
            }
            Place::There { peer, placed } => {
                let connecting = pin!(silo.cluster.peers.connect(peer));
                let connected = self.bounds.keep("connecting", connecting).await?;
                // It may have come meanwhile.
                if is_located && !placed && silo.host.catalog.get(&self.target.id).is_some() {
                    return Err(Met::Closed(None).into());
                }
                let unsent = |e| Met::Unsent { peer: Some(peer), placed, why: format!("{e}") };
                // Another silo may be faster to activate the grain where placement puts it.
                self.send(&connected.map_err(unsent)?, (0, placed), before).await
            }
        }
    }

    async fn through_gateway(&mut self, client: &Arc<ClientCore>) -> Try {
        let listed = client.generation();
        let gateway = pin!(client.gateway_for(&self.target.id));
        let connection = self.bounds.keep("waiting for a gateway", gateway).await??;
        self.send(&connection, (listed, false), None).await
    }

    /// Sends the call over a connection and waits for the answer.
    /// `before`: the call's place before later calls that follow the grain.
    async fn send(
        &mut self,
        connection: &Arc<Connection>,
        (listed, placed): (u64, bool),
        before: Option<FollowPlace>,
    ) -> Try {
        let (target, peer) = (self.target, connection.silo());
        let Some(mut slot) = self.slot.take() else {
            return Err(no_output(self.method).into());
        };
        let (now, view) = (target.node.clock().now(), target.node.view_version());
        let mut head = self.caller.head(self.method, target, now, view);
        // The peer may refuse a grain that is placed there. Later calls of the lane wait until this
        // one has begun, not for its end.
        let until_begun = placed && self.one_way;
        if until_begun {
            head.flags = head.flags | RequestFlags::ONE_WAY;
        }
        let sent = connection.call(head, self.bounds.deadline, |out| {
            if self.method.streams {
                return target.node.encode_streams(peer, &*slot, out);
            }
            slot.encode_args(out)
        });
        let ticket = match sent {
            Ok(ticket) => ticket,
            Err(SendError::Lost(why)) => {
                self.slot = Some(slot);
                return Err(Met::Unsent { peer, placed: false, why: why.to_string() }.into());
            }
            Err(error) => return Err(send_failure(peer, error).into()),
        };
        drop(before);
        if !placed || !self.one_way {
            self.handed = None;
        }
        let answered = match self.bounds.cancel {
            None => ticket.await,
            Some(token) => tokio::select! {
                biased;
                answered = ticket => answered,
                () = token.cancelled() => {
                    return Err(Failure::cancelled(true).into());
                }
            },
        };
        let read = match answered {
            Ok((Answer::Response { status: ResponseStatus::Ok, location }, _)) if until_begun => {
                Ok(location.map(|at| *at))
            }
            Ok((answer, body)) => {
                remote::read_answer(&target.node, peer, answer, &body, &mut *slot)
                    .map_err(|failure| Met::Answered { peer, failure })
            }
            Err(why) => Err(Met::Lost { peer, why }),
        };
        let location = match read {
            Ok(location) => location,
            Err(met) => {
                self.slot = Some(slot);
                return Err(met.into());
            }
        };
        let at = location.or(peer);
        let lane = || Route::There(Lane::new(connection.clone(), listed));
        match &target.node {
            // Its next call may find a worker here.
            Node::Silo(silo) if silo.is_worker(&target.id) => {}
            Node::Silo(silo) => {
                if at == peer {
                    target.set_route(lane());
                }
                if let Some(at) = at {
                    silo.learn(&target.id, at);
                }
            }
            Node::Client(_) | Node::Nowhere => {
                target.set_route(lane());
                if let Some(at) = at.filter(|at| Some(*at) != peer) {
                    target.learn(at);
                }
            }
        }
        Ok(slot)
    }
}

/// Continues a local turn: one that waits and may be cancelled, or one that has begun and suspends.
/// When the activation closes under it, the call is resolved again.
pub(crate) async fn finish_local(local: LocalTurn, slot: Box<dyn Slot>, begun: bool) -> Finished {
    let LocalTurn { head, mut turn, mut caller } = local;
    let Node::Silo(silo) = &head.target.0.node else {
        return Err(head.failed(Failure::shutting_down()));
    };
    let deadline = turn.as_mut().settle(silo.clock.now().as_millis());
    let deadline = CoarseInstant::from_millis(deadline);
    caller.due = Due::at(deadline);
    let end = if begun {
        run_apart(silo, turn, slot, deadline, head.cancel.as_ref(), &mut None).await
    } else {
        let mut none = None;
        let ran = run_local(silo, turn, slot, &caller, head.cancel.as_ref(), &mut none);
        contained(ran).await.unwrap_or_else(|panic| LocalEnd::Failed(Failure::panicked(panic)))
    };
    match end {
        LocalEnd::Done(slot) => Ok(slot),
        LocalEnd::Failed(failure) => Err(head.failed(failure)),
        LocalEnd::Closed(slot, elsewhere) => {
            travel(AnyCall { head, slot }, caller, Some(Met::Closed(elsewhere))).await
        }
    }
}
