//! The two ports of a silo: one for silos, one (the gateway) for clients.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use emmer_core::SiloAddress;
use emmer_wire::{GoodbyeCode, Hello, PeerKind, RefuseCode};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::driver::{Handler, drive};
use super::handshake::{Greeting, Verdict, accept, until};
use super::{Connection, Lost, Pool};
use crate::warn_seldom;
use crate::world::{self, TcpListener, TcpStream};

/// One of the two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The port for silos.
    Silo,
    /// The port for clients.
    Gateway,
}

/// Pause after the operating system refused to accept (out of file descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum handshakes under way on one port. One more ends the oldest: an honest one takes
/// milliseconds, and a silent one must not keep others waiting.
const HANDSHAKES_MAX: usize = 1024;

/// The calls of a client whose identity has ended have this time to be answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// The pause before such calls are looked for again.
const ANSWERED_CHECK: Duration = Duration::from_millis(5);

/// Connections at once of silos that the view does not name. A silo that starts is one of them for
/// a moment.
const STRANGERS_MAX: usize = 1024;

/// Maximum connections of one silo: one for its calls, sometimes another while both sides dial, its
/// lifeline, and ending connections.
const CONNECTIONS_PER_SILO_MAX: usize = 16;

/// The silos that are connected, each with the number of its connections. So the port has at most
/// `CONNECTIONS_PER_SILO_MAX` for each silo of the view, and `STRANGERS_MAX` besides.
#[derive(Default)]
pub struct Callers(Mutex<BTreeMap<SiloAddress, usize>>);

impl Callers {
    /// Counts one more connection of `silo`; none where there is no room.
    fn enter(&self, silo: SiloAddress, knows: impl Fn(SiloAddress) -> bool) -> Option<Caller<'_>> {
        let mut callers = self.0.lock();
        Self::has_room(&callers, silo, knows).then(|| {
            *callers.entry(silo).or_default() += 1;
            Caller { of: self, silo }
        })
    }

    /// Returns true if there is room for one more connection of `silo`. A stranger that is in the
    /// view by now counts as a member.
    fn has_room(
        callers: &BTreeMap<SiloAddress, usize>,
        silo: SiloAddress,
        knows: impl Fn(SiloAddress) -> bool,
    ) -> bool {
        if callers.get(&silo).is_some_and(|open| *open >= CONNECTIONS_PER_SILO_MAX) {
            return false;
        }
        let strangers = || callers.iter().filter(|(silo, _)| !knows(**silo)).map(|(_, open)| open);
        knows(silo) || strangers().sum::<usize>() < STRANGERS_MAX
    }
}

/// One connection of a silo.
struct Caller<'a> {
    of: &'a Callers,
    silo: SiloAddress,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let mut callers = self.of.0.lock();
        if let Some(open) = callers.get_mut(&self.silo) {
            *open -= 1;
            if *open == 0 {
                callers.remove(&self.silo);
            }
        }
    }
}

/// Maximum handshakes under way of one host. One more ends that host's oldest, so a host that
/// begins many takes no room from others.
const HANDSHAKES_PER_HOST_MAX: usize = 256;

/// The handshakes under way, oldest first, and the hosts that they come from. Each ends when its
/// sender is dropped, and tells that it is over by dropping the receiver.
#[derive(Default)]
struct Handshakes(VecDeque<(IpAddr, oneshot::Sender<()>)>);

impl Handshakes {
    fn begin(&mut self, from: IpAddr, max: usize) -> oneshot::Receiver<()> {
        let per_host = HANDSHAKES_PER_HOST_MAX.min(max);
        if self.0.len() >= per_host {
            self.0.retain(|(_, handshake)| !handshake.is_closed());
        }
        let of_host = || self.0.iter().enumerate().filter(|(_, (host, _))| *host == from);
        if self.0.len() >= per_host && of_host().count() >= per_host {
            let oldest = of_host().next().map(|(at, _)| at);
            oldest.and_then(|at| self.0.remove(at));
        } else if self.0.len() >= max {
            self.0.pop_front();
        }
        let (end, ended) = oneshot::channel();
        self.0.push_back((from, end));
        ended
    }
}

/// Acceptor of connections on one port.
pub struct Listener<H> {
    /// The kind of port.
    pub port: Port,
    /// The silo that listens.
    pub me: SiloAddress,
    /// Handshake of this side.
    pub greeting: Greeting,
    /// The handler of arriving frames.
    pub handler: Arc<H>,
    /// The pool that takes connections of silos.
    pub pool: Arc<Pool>,
    /// The end of listening.
    pub stop: CancellationToken,
    /// Connections open, handshakes included.
    pub open: AtomicUsize,
    /// Callers of silos.
    pub callers: Callers,
    /// The pool of connections of the membership, which are driven on their own thread.
    pub pulse: Arc<Pool>,
}

impl<H: Handler> Listener<H> {
    /// Accepts until told to stop.
    pub async fn run(self, mut socket: TcpListener) {
        let this = Arc::new(self);
        let mut handshakes = Handshakes::default();
        let handshakes_max = match this.port {
            Port::Silo => HANDSHAKES_MAX,
            // Silent clients take only as many descriptors as others may.
            Port::Gateway => HANDSHAKES_MAX.min(this.greeting.limits.gateway_connections_max),
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = this.stop.cancelled() => return,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => {
                    let (this, given_up) =
                        (this.clone(), handshakes.begin(from.ip(), handshakes_max));
                    world::spawn(async move { this.serve(stream, from, given_up).await });
                }
                Err(e) => {
                    warn_seldom!(port = ?this.port, error = %e, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, from: SocketAddr, given_up: oneshot::Receiver<()>) {
        let _counted = Counted::new(&self.open);
        let accepted = tokio::select! {
            biased;
            accepted = accept((stream, from), self.port, self.me, &self.greeting, |hello| self.judge(hello)) => accepted,
            _ = given_up => Err("its handshake took longer than that of many others".to_owned()),
        };
        match accepted {
            Ok((connection, input)) => self.drive(Arc::new(connection), input).await,
            Err(reason) => {
                tracing::debug!(port = ?self.port, %from, reason, "refused a connection");
            }
        }
    }

    async fn drive(&self, connection: Arc<Connection>, input: bytes::BytesMut) {
        if let PeerKind::Probe(_) = connection.peer {
            return;
        }
        let knows = |silo| self.handler.knows(silo);
        // Many may have been judged at the same moment.
        let caller = match connection.peer {
            PeerKind::Silo(silo) | PeerKind::Watch(silo) | PeerKind::Pulse(silo) => {
                Some(self.callers.enter(silo, knows))
            }
            _ => None,
        };
        if let Some(None) = caller {
            // Never in good order: the dialer would take it for the end of this process.
            connection.reset(Lost::Closed);
            return;
        }
        if let PeerKind::Pulse(_) = connection.peer {
            if let Some(thread) = &self.greeting.pulse
                && !self.stop.is_cancelled()
            {
                thread.run(self.pulse.clone().drive_accepted(connection, input)).await;
            }
            return;
        }
        self.pool.adopt(&connection);
        if self.stop.is_cancelled() {
            // It came while the silo ended, behind the goodbyes to all others.
            connection.goodbye(GoodbyeCode::Stopping, "this silo is stopping");
        }
        let driven = drive(connection.clone(), self.handler.clone(), input);
        match connection.admitted.as_ref().and_then(|admitted| admitted.until) {
            None => driven.await,
            Some(end) => {
                tokio::select! {
                    biased;
                    () = driven => {}
                    () = end_with_identity(&connection, end) => {}
                }
            }
        }
        self.pool.forget(&connection);
    }

    fn judge(&self, hello: &Hello) -> Verdict {
        let full = self.open.load(Ordering::Relaxed) > self.greeting.limits.gateway_connections_max;
        if hello.cluster != self.greeting.cluster {
            let reason = format!(
                "this is cluster {:?}, not {:?}",
                self.greeting.cluster.as_str(),
                hello.cluster.as_str()
            );
            return Verdict::Refuse(RefuseCode::ClusterMismatch, reason);
        }
        if let Some(wanted) = hello.expects
            && wanted != self.me
        {
            return Verdict::Refuse(
                RefuseCode::WrongSilo,
                format!("this is {}, not {wanted}", self.me),
            );
        }
        if self.stop.is_cancelled() {
            return Verdict::Refuse(RefuseCode::Stopping, "this silo is stopping".to_owned());
        }
        match (self.port, hello.peer) {
            (Port::Silo, PeerKind::Client(_)) => Verdict::Refuse(
                RefuseCode::NotAGateway,
                "this is a silo's port; clients connect to its gateway".to_owned(),
            ),
            (Port::Gateway, PeerKind::Silo(_) | PeerKind::Watch(_) | PeerKind::Pulse(_)) => {
                Verdict::Refuse(
                    RefuseCode::NotAGateway,
                    "this is a gateway's port, not a silo's".to_owned(),
                )
            }
            (Port::Gateway, _) if full => Verdict::Refuse(
                RefuseCode::Overloaded,
                "this gateway has too many connections".to_owned(),
            ),
            (Port::Silo, PeerKind::Silo(silo) | PeerKind::Watch(silo) | PeerKind::Pulse(silo))
                if !Callers::has_room(&self.callers.0.lock(), silo, |silo| {
                    self.handler.knows(silo)
                }) =>
            {
                let reason = "too many connections of this silo, or of silos in no view".to_owned();
                Verdict::Refuse(RefuseCode::Overloaded, reason)
            }
            // One connection is accepted for a while: over it the dead silo hears of its death.
            (Port::Silo, PeerKind::Silo(silo)) if self.pool.has_farewell(silo) => {
                Verdict::Refuse(RefuseCode::WrongSilo, format!("{silo} was declared dead"))
            }
            _ => Verdict::Accept,
        }
    }
}

/// Ends the connection of a client when its identity ends, once its calls are answered. Never
/// ready: what drives the connection sees its end.
async fn end_with_identity(connection: &Connection, end: SystemTime) {
    // Longer than timers go.
    tokio::time::sleep(until(end).min(Duration::from_hours(24 * 365))).await;
    connection.stop_serving();
    let answered = async {
        while !(connection.has_stopped_serving() && connection.knows_of_the_end()) {
            tokio::time::sleep(ANSWERED_CHECK).await;
        }
    };
    let _ = tokio::time::timeout(ANSWERED_WITHIN, answered).await;
    connection.goodbye(GoodbyeCode::Idle, "the identity of this client has ended");
    std::future::pending::<()>().await;
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError::{Closed, Empty};

    use super::*;

    fn silo(port: u16) -> SiloAddress {
        SiloAddress::new(([127, 0, 0, 1], port).into(), 1)
    }

    #[test]
    fn each_silo_has_few_connections_and_all_strangers_together_have_a_limit() {
        let callers = Callers::default();
        let knows = |known: SiloAddress| known.endpoint().port() >= 10_000;
        let many: Vec<_> =
            (0..CONNECTIONS_PER_SILO_MAX).map(|_| callers.enter(silo(10_000), knows)).collect();
        assert!(many.iter().all(Option::is_some));
        assert!(callers.enter(silo(10_000), knows).is_none(), "one silo too often");
        let count = u16::try_from(STRANGERS_MAX).unwrap();
        let strangers: Vec<_> = (0..count).map(|port| callers.enter(silo(port), knows)).collect();
        assert!(strangers.iter().all(Option::is_some));
        assert!(callers.enter(silo(count), knows).is_none(), "one stranger too many");
        assert!(
            callers.enter(silo(10_001), knows).is_some(),
            "strangers take no room from members"
        );
        // Half of them have joined: there is room for others.
        assert!(callers.enter(silo(count), |silo| silo.endpoint().port() >= count / 2).is_some());
        drop((many, strangers));
        assert!(callers.0.lock().is_empty());
    }

    #[test]
    fn silent_handshakes_make_way_for_new_ones_oldest_first() {
        let mut handshakes = Handshakes::default();
        // The handshakes come from as many hosts, so no host has too many.
        let host = |n: usize| IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
        let mut begin = |n| handshakes.begin(host(n), HANDSHAKES_MAX);
        let mut silent: Vec<_> = (0..HANDSHAKES_MAX).map(&mut begin).collect();
        assert!(silent.iter_mut().all(|handshake| handshake.try_recv().is_err_and(|e| e == Empty)));
        // Two are over: there is room for two more.
        silent.truncate(HANDSHAKES_MAX - 2);
        let mut fresh: Vec<_> = (0..5).map(begin).collect();
        let given_up = |handshake: &mut oneshot::Receiver<()>| handshake.try_recv() == Err(Closed);
        let gone: Vec<_> = silent.iter_mut().map(given_up).take(5).collect();
        assert_eq!(gone, [true, true, true, false, false]);
        assert!(!fresh.iter_mut().any(given_up));
        assert_eq!(handshakes.0.len(), HANDSHAKES_MAX);
    }

    #[test]
    fn a_host_that_begins_many_handshakes_gives_up_its_own() {
        let mut handshakes = Handshakes::default();
        let [loud, honest] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let mut first = handshakes.begin(loud, HANDSHAKES_MAX);
        let mut other = handshakes.begin(honest, HANDSHAKES_MAX);
        let mut many: Vec<_> = (0..5_000).map(|_| handshakes.begin(loud, HANDSHAKES_MAX)).collect();
        assert_eq!(first.try_recv(), Err(Closed));
        assert_eq!(other.try_recv(), Err(Empty));
        let open = many.iter_mut().filter_map(|one| (one.try_recv() == Err(Empty)).then_some(()));
        assert_eq!(open.count(), HANDSHAKES_PER_HOST_MAX);
        assert_eq!(handshakes.0.len(), HANDSHAKES_PER_HOST_MAX + 1);
    }
}
