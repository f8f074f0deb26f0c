//! Calls made in this process: on this silo, from it to another one, or from an outside client.

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::BytesMut;
use emmer_core::SiloAddress;
use emmer_wire::{CallChain, RequestFlags, RequestHeader, codec};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::activation::{BoxTurn, Input, LocalSlot, RunActivation, Sink, TurnEnd, run_to_end, until_begun};
use crate::clock::{Clock, CoarseInstant};
use crate::grain::{Call, CallError, Failure, Method, NoError, Node, RawRef};
use crate::net::{Answer, Connection, Lost, SendError, Ticket};
use crate::remote;
use crate::silo::{Place, SiloCore};

/// What a call comes to before the method's own error is told apart.
pub(crate) type Finished<M> = Result<<M as Method>::Output, Failure>;

/// How deep turns may run on one task's stack, one calling the next; deeper ones get a task of their own.
const INLINE_DEPTH_MAX: u32 = 8;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Permission to run one more turn on this stack.
pub(crate) struct InlineDepth(());

impl InlineDepth {
    pub(crate) fn enter() -> Option<Self> {
        let depth = DEPTH.get();
        (depth < INLINE_DEPTH_MAX).then(|| {
            DEPTH.set(depth + 1);
            Self(())
        })
    }
}

impl Drop for InlineDepth {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}

/// Who makes a call: the turns that wait for it, and until when.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) chain: CallChain,
    pub(crate) deadline: CoarseInstant,
}

impl Caller {
    /// Checks what can be checked before anything moves: the key's length, a cycle of turns.
    pub(crate) fn check<M: Method>(
        call: &Call<M>,
        chain: CallChain,
        inherited: Option<CoarseInstant>,
    ) -> Result<Self, Failure> {
        if !call.target.key_fits() {
            let max = emmer_core::limits::GRAIN_KEY_BYTES_MAX;
            return Err(CallError::Rejected(format!("the grain key is longer than {max} bytes")));
        }
        let needs_exclusive = M::EXCLUSIVE;
        let cycle = chain.iter().any(|l| l.grain == call.target.id && (l.exclusive || needs_exclusive));
        if cycle {
            return Err(CallError::Deadlock(describe_cycle(&chain, &call.target)));
        }
        let (now, default) = match &call.target.node {
            Node::Silo(silo) => (silo.clock.now(), silo.options.response_timeout),
            Node::Client(client) => (client.clock.now(), client.options.response_timeout),
        };
        let deadline = match (call.timeout, inherited) {
            (Some(timeout), Some(inherited)) => now.after(timeout).min(inherited),
            (Some(timeout), None) => now.after(timeout),
            (None, Some(inherited)) => inherited,
            (None, None) => now.after(default),
        };
        Ok(Self { chain, deadline })
    }

    /// Starts the call's turn on an activation of this silo.
    pub(crate) fn start<M: Method>(
        &self,
        activation: Arc<dyn RunActivation>,
        slot: &mut LocalSlot<M>,
    ) -> Result<BoxTurn, Failure> {
        activation
            .start(M::ID, Input::Local(slot), Some(self.deadline), self.chain.clone())
            .map_err(|e| e.into_failure(M::NAME))
    }

    fn header<M: Method>(&self, target: &RawRef, now: CoarseInstant, view: u64) -> RequestHeader {
        RequestHeader {
            correlation: 0,
            target: target.id.clone(),
            method: M::ID,
            flags: if M::EXCLUSIVE { RequestFlags::NONE } else { RequestFlags::READ_ONLY },
            deadline_ms: self.deadline.left_on_wire(now),
            forwards: 0,
            expect_view: view,
            chain: self.chain.clone(),
        }
    }
}

fn describe_cycle(chain: &CallChain, target: &RawRef) -> String {
    let links: Vec<String> = chain.iter().map(|l| l.grain.to_string()).collect();
    format!("{} calls {target:?}, which waits for it", links.join(" calls "))
}

/// The failure that a turn's end stands for.
pub(crate) fn failure_of(end: TurnEnd) -> Failure {
    match end {
        TurnEnd::ActivationFailed(why) => CallError::Rejected(why),
        TurnEnd::Panicked(text) => CallError::Panicked(text),
        TurnEnd::Unencodable(detail) => CallError::Codec { maybe_executed: true, detail },
        TurnEnd::Done | TurnEnd::Closed(_) => {
            CallError::Codec { maybe_executed: true, detail: "the turn ended without a result".to_owned() }
        }
    }
}

/// A turn on this silo that did not end in its first poll.
pub(crate) struct LocalTurn<M: Method> {
    pub(crate) target: RawRef,
    pub(crate) turn: BoxTurn,
    pub(crate) slot: LocalSlot<M>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) cancel: Option<CancellationToken>,
}

enum LocalEnd<M: Method> {
    Output(M::Output),
    Closed(M, Option<SiloAddress>),
    Failed(Failure),
}

/// What ended a wait before the work did.
enum Interrupted {
    Deadline,
    Cancelled,
}

/// Waits for `work` until the deadline or the cancellation.
async fn bounded<T>(
    clock: &Clock,
    deadline: CoarseInstant,
    cancel: Option<&CancellationToken>,
    work: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let cancelled = async {
        match cancel {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = cancelled => Err(Interrupted::Cancelled),
        () = tokio::time::sleep_until(clock.tokio_at_coarse(deadline)) => Err(Interrupted::Deadline),
    }
}

fn interrupted(by: &Interrupted, maybe_executed: bool, whiling: &str) -> Failure {
    match by {
        Interrupted::Deadline => CallError::Timeout { maybe_executed, detail: whiling.to_owned() },
        Interrupted::Cancelled => CallError::Cancelled { maybe_executed },
    }
}

/// Waits in the caller's task while the turn waits for admission; once it has begun, it gets a task of its own,
/// so that a caller who gives up does not leave the grain half way.
async fn run_local<M: Method>(
    silo: &SiloCore,
    mut turn: BoxTurn,
    mut slot: LocalSlot<M>,
    caller: &Caller,
    cancel: Option<&CancellationToken>,
) -> LocalEnd<M> {
    let mut sink = Sink::Local(&mut slot);
    let begun = until_begun(&mut turn, &mut sink);
    match bounded(&silo.clock, caller.deadline, cancel, begun).await {
        Ok(Some(end)) => return local_end(end, slot),
        Ok(None) => {}
        Err(by) => return LocalEnd::Failed(interrupted(&by, false, "waiting for its turn")),
    }
    let (done, wait) = oneshot::channel();
    tokio::spawn(async move {
        let end = run_to_end(turn, &mut Sink::Local(&mut slot)).await;
        let _ = done.send((end, slot));
    });
    match bounded(&silo.clock, caller.deadline, cancel, wait).await {
        Ok(Ok((end, slot))) => local_end(end, slot),
        Ok(Err(_)) => LocalEnd::Failed(CallError::ShuttingDown),
        Err(by) => LocalEnd::Failed(interrupted(&by, true, "the turn was running")),
    }
}

fn local_end<M: Method>(end: TurnEnd, slot: LocalSlot<M>) -> LocalEnd<M> {
    match (end, slot) {
        (TurnEnd::Done, LocalSlot { output: Some(output), .. }) => LocalEnd::Output(output),
        (TurnEnd::Closed(elsewhere), LocalSlot { args: Some(args), .. }) => LocalEnd::Closed(args, elsewhere),
        (end, _) => LocalEnd::Failed(failure_of(end)),
    }
}

/// Goes on with a local turn; when the activation closes under it, the call is resolved anew.
pub(crate) async fn finish_local_or_retry<M: Method>(local: LocalTurn<M>, caller: Caller) -> Finished<M> {
    let LocalTurn { target, turn, slot, timeout, cancel } = local;
    let Node::Silo(silo) = target.node.clone() else { return Err(CallError::ShuttingDown) };
    match run_local(&silo, turn, slot, &caller, cancel.as_ref()).await {
        LocalEnd::Output(output) => Ok(output),
        LocalEnd::Failed(failure) => Err(failure),
        LocalEnd::Closed(args, elsewhere) => {
            if let Some(elsewhere) = elsewhere {
                silo.locations.set(&target.id, elsewhere);
            }
            from_silo(Call { target, args, timeout, cancel }, caller).await
        }
    }
}

/// Makes a call from a silo: finds the grain, here or elsewhere, placing it if it is nowhere.
pub(crate) async fn from_silo<M: Method>(call: Call<M>, caller: Caller) -> Finished<M> {
    let Call { target, mut args, cancel, .. } = call;
    let cancel = cancel.as_ref();
    let Node::Silo(silo) = target.node.clone() else { return Err(CallError::ShuttingDown) };
    let mut avoid = Vec::new();
    for _ in 0..=silo.options.limits.forwards_max {
        let place = match bounded(&silo.clock, caller.deadline, cancel, silo.locate(&target.id, &avoid)).await
        {
            Ok(place) => place?,
            Err(by) => return Err(interrupted(&by, false, "looking for the grain")),
        };
        match place {
            Place::Here(activation) => {
                let mut slot = LocalSlot { args: Some(args), output: None };
                let turn = caller.start::<M>(activation, &mut slot)?;
                match run_local(&silo, turn, slot, &caller, cancel).await {
                    LocalEnd::Output(output) => return Ok(output),
                    LocalEnd::Failed(failure) => return Err(failure),
                    LocalEnd::Closed(back, elsewhere) => {
                        if let Some(elsewhere) = elsewhere {
                            silo.locations.set(&target.id, elsewhere);
                        }
                        args = back;
                    }
                }
            }
            Place::There { peer, placed } => {
                let connected = bounded(&silo.clock, caller.deadline, cancel, silo.connect(peer)).await;
                let connection = match connected {
                    Ok(Ok(connection)) => connection,
                    Ok(Err(e)) => {
                        silo.locations.forget(&target.id, peer);
                        if placed {
                            avoid.push(peer);
                            continue;
                        }
                        return Err(unreachable_silo(peer, false, e.to_string()));
                    }
                    Err(by) => return Err(interrupted(&by, false, "connecting")),
                };
                let header = caller.header::<M>(&target, silo.clock.now(), silo.view_version());
                let ticket = send(&connection, header, &caller, &args)?;
                let answer = answer_of(ticket, cancel).await?;
                let (output, location) = remote::read_answer::<M>(peer, answer)?;
                silo.locations.set(&target.id, location.unwrap_or(peer));
                return Ok(output);
            }
        }
    }
    Err(CallError::Unreachable {
        silo: None,
        maybe_executed: false,
        detail: "the grain moved or its silo failed at every attempt".to_owned(),
    })
}

/// Makes a call from outside, through a gateway.
pub(crate) async fn through_gateway<M: Method>(call: Call<M>, caller: Caller) -> Finished<M> {
    let Call { target, args, cancel, .. } = call;
    let cancel = cancel.as_ref();
    let Node::Client(client) = target.node.clone() else { return Err(CallError::ShuttingDown) };
    let gateway = bounded(&client.clock, caller.deadline, cancel, client.gateway_for(&target.id)).await;
    let connection = match gateway {
        Ok(connection) => connection?,
        Err(by) => return Err(interrupted(&by, false, "waiting for a gateway")),
    };
    let header = caller.header::<M>(&target, client.clock.now(), 0);
    let ticket = send(&connection, header, &caller, &args)?;
    let answer = answer_of(ticket, cancel).await?;
    let peer = connection.silo();
    let (output, _) = remote::read_answer_from::<M>(peer, answer)?;
    Ok(output)
}

/// Encodes the call into the connection's outgoing buffer.
fn send<M: Method>(
    connection: &Arc<Connection>,
    header: RequestHeader,
    caller: &Caller,
    args: &M,
) -> Result<Ticket, Failure> {
    let body = |out: &mut BytesMut| codec::encode_into(out, args);
    connection
        .call(Waker::noop(), header, Some(caller.deadline), body)
        .map_err(|e| send_failure(connection.silo(), e))
}

async fn answer_of(
    ticket: Ticket,
    cancel: Option<&CancellationToken>,
) -> Result<Result<Answer, Lost>, Failure> {
    match cancel {
        None => Ok(ticket.await),
        Some(token) => tokio::select! {
            biased;
            answer = ticket => Ok(answer),
            () = token.cancelled() => Err(CallError::Cancelled { maybe_executed: true }),
        },
    }
}

pub(crate) fn send_failure(silo: Option<SiloAddress>, error: SendError) -> Failure {
    match error {
        SendError::Lost(lost) => {
            CallError::Unreachable { silo, maybe_executed: false, detail: lost.to_string() }
        }
        SendError::Overloaded(what) => CallError::Overloaded(what.to_owned()),
        SendError::TooLarge(bytes) => CallError::Codec {
            maybe_executed: false,
            detail: format!("the call is {bytes} bytes, more than the largest frame"),
        },
        SendError::Codec(detail) => CallError::Codec { maybe_executed: false, detail },
    }
}

pub(crate) const fn unreachable_silo(silo: SiloAddress, maybe_executed: bool, detail: String) -> Failure {
    CallError::Unreachable { silo: Some(silo), maybe_executed, detail }
}

/// Hands a one-way call over.
pub(crate) fn send_one_way<M: Method>(call: Call<M>) -> Result<(), CallError<NoError>> {
    // A one-way call belongs to no chain: nobody waits for it.
    let caller = Caller::check(&call, CallChain::EMPTY, None)?;
    match call.target.node.clone() {
        Node::Silo(silo) => {
            let permit = silo.one_way_permit()?;
            tokio::spawn(async move {
                let id = call.target.id.clone();
                if let Err(failure) = from_silo(call, caller).await {
                    tracing::debug!(grain = %id, method = M::NAME, %failure, "a one-way call failed");
                }
                drop(permit);
            });
            Ok(())
        }
        Node::Client(client) => {
            let connection = client.gateway_now(&call.target.id)?;
            let header = caller.header::<M>(&call.target, client.clock.now(), 0);
            connection
                .one_way(header, |out| codec::encode_into(out, &call.args))
                .map_err(|e| send_failure(connection.silo(), e))
        }
    }
}
