//! The network: who can reach whom, how long it takes, and who listens where.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use emmer_core::rng::SeededRng;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::clock::nanos;
use crate::host::{Host, State};
use crate::listener::{BACKLOG, Listener};
use crate::stream::{Link, Stream};
use crate::trace::Trace;

/// The first of the ports that are given for port 0.
const FREE_PORTS_FROM: u16 = 40_000;

/// Model of the way that bytes take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetModel {
    /// The shortest way from one host to another. Timers of the world are exact to a millisecond.
    pub delay_min: Duration,
    /// The longest.
    pub delay_max: Duration,
    /// Probability that a piece is lost and comes after [`resend`](Self::resend) (0 to 1).
    pub loss: f64,
    /// Delay of a lost piece.
    pub resend: Duration,
    /// Probability that a write takes only a part of its bytes (0 to 1).
    pub split: f64,
}

impl Default for NetModel {
    /// A quiet local network: a millisecond each way, nothing is lost.
    fn default() -> Self {
        let ms = Duration::from_millis(1);
        Self {
            delay_min: ms,
            delay_max: ms,
            loss: 0.0,
            resend: Duration::from_millis(200),
            split: 0.0,
        }
    }
}

/// The network of a world.
#[derive(Debug)]
pub struct Net {
    start: Instant,
    state: Mutex<NetState>,
    /// A cut has healed.
    healed: Notify,
    trace: Arc<Trace>,
}

#[derive(Debug)]
struct NetState {
    model: NetModel,
    rng: SeededRng,
    machines: BTreeSet<IpAddr>,
    silent: BTreeSet<IpAddr>,
    /// From whom nothing reaches whom.
    cut: BTreeSet<(IpAddr, IpAddr)>,
    /// Pairs of machines: new connections from the first to the second are refused.
    refused: BTreeSet<(IpAddr, IpAddr)>,
    listeners: BTreeMap<SocketAddr, mpsc::Sender<(Stream, SocketAddr)>>,
    links: Vec<Weak<Link>>,
    next_port: u16,
}

impl NetState {
    fn is_cut(&self, from: IpAddr, to: IpAddr) -> bool {
        from != to
            && (self.cut.contains(&(from, to))
                || self.silent.contains(&from)
                || self.silent.contains(&to))
    }

    fn port(&mut self) -> u16 {
        self.next_port = self.next_port.checked_add(1).unwrap_or(FREE_PORTS_FROM);
        self.next_port
    }

    fn delay(&mut self, from: IpAddr, to: IpAddr) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        let span = self.model.delay_max.saturating_sub(self.model.delay_min);
        let lost = self.model.loss > 0.0 && self.rng.chance(self.model.loss);
        let again = if lost { self.model.resend } else { Duration::ZERO };
        self.model.delay_min + self.rng.duration_below(span) + again
    }
}

impl Net {
    pub(crate) fn new(seed: u64, trace: Arc<Trace>, start: Instant) -> Self {
        let state = NetState {
            model: NetModel::default(),
            rng: SeededRng::new(seed),
            machines: BTreeSet::new(),
            silent: BTreeSet::new(),
            cut: BTreeSet::new(),
            refused: BTreeSet::new(),
            listeners: BTreeMap::new(),
            links: Vec::new(),
            next_port: FREE_PORTS_FROM,
        };
        Self { start, state: Mutex::new(state), healed: Notify::new(), trace }
    }

    /// Changes how bytes travel from now on.
    pub fn set_model(&self, model: NetModel) {
        self.state.lock().model = model;
    }

    pub(crate) fn add_machine(&self, ip: IpAddr) {
        let mut state = self.state.lock();
        state.machines.insert(ip);
        state.silent.remove(&ip);
    }

    /// Lets nothing from `from` reach `to` from now on. Bytes are held back, as by TCP, until
    /// [`heal`](Self::heal).
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        self.state.lock().cut.insert((from, to));
        self.event("cut", &[]);
        self.apply();
    }

    /// Takes a machine off the network without a word, as a loss of power does.
    pub fn silence(&self, ip: IpAddr) {
        self.state.lock().silent.insert(ip);
        self.event("silence", ip.to_string().as_bytes());
        self.apply();
    }

    /// Ends every cut, every silence and every refusal.
    pub fn heal(&self) {
        {
            let mut state = self.state.lock();
            state.cut.clear();
            state.refused.clear();
            state.silent.clear();
        }
        self.event("heal", &[]);
        self.apply();
        self.healed.notify_waiters();
    }

    /// Refuses new connections from `from` to `to`, as a firewall does, until
    /// [`heal`](Self::heal).
    pub fn refuse(&self, from: IpAddr, to: IpAddr) {
        self.state.lock().refused.insert((from, to));
        self.event("refuse", &[]);
    }

    /// Breaks every connection between two machines, as a firewall that forgets them does.
    pub fn reset(&self, a: IpAddr, b: IpAddr) {
        let links = self.links();
        self.event("reset", &[]);
        for link in links.iter().filter(|link| link.joins(a, b)) {
            link.break_now();
        }
    }

    /// Loses all bytes on the present connections between two machines, like a firewall that has
    /// forgotten them: neither end notices. New connections work.
    pub fn forget(&self, a: IpAddr, b: IpAddr) {
        let links = self.links();
        self.event("forget", &[]);
        links.iter().filter(|link| link.joins(a, b)).for_each(|link| link.forget());
    }

    /// Forgets every connection there is.
    pub fn forget_all(&self) {
        let links = self.links();
        self.event("forget all", &[]);
        links.iter().for_each(|link| link.forget());
    }

    /// Holds back bytes on cut links, and releases the others.
    fn apply(&self) {
        for link in self.links() {
            let [one, other] = link.ips();
            for (side, from, to) in [(0, one, other), (1, other, one)] {
                let (is_cut, due) = {
                    let mut state = self.state.lock();
                    (state.is_cut(from, to), Instant::now() + state.delay(from, to))
                };
                let mut pipe = link.pipe(side).lock();
                if is_cut { pipe.hold() } else { pipe.release(due) }
            }
        }
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let mut state = self.state.lock();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.iter().filter_map(Weak::upgrade).collect()
    }

    /// The connections that are open: who dialled whom.
    pub fn connections(&self) -> Vec<(SocketAddr, SocketAddr)> {
        self.links().iter().filter(|link| link.is_open()).map(|link| link.ends().into()).collect()
    }

    /// The kernel of a machine closes every connection and every port of its process.
    pub(crate) fn close_all(&self, ip: IpAddr) {
        self.state.lock().listeners.retain(|address, _| address.ip() != ip);
        for link in self.links() {
            for side in link.sides_of(ip) {
                link.close(side, self.arrives(&link, side));
            }
        }
    }

    /// Time at which bytes arrive that `side` sends now.
    pub(crate) fn arrives(&self, link: &Link, side: usize) -> Instant {
        let ips = link.ips();
        Instant::now() + self.state.lock().delay(ips[side], ips[1 - side])
    }

    /// Number of the `len` bytes that a write takes.
    pub(crate) fn taken(&self, len: usize) -> usize {
        let mut state = self.state.lock();
        let split = state.model.split;
        if len > 1 && split > 0.0 && state.rng.chance(split) {
            1 + state.rng.index(len - 1)
        } else {
            len
        }
    }

    /// Listens at `address`, whose port may be 0 for any.
    ///
    /// # Errors
    /// The address is taken.
    pub fn listen(self: &Arc<Self>, host: &Arc<Host>, address: SocketAddr) -> io::Result<Listener> {
        let mut state = self.state.lock();
        let port = if address.port() == 0 { state.port() } else { address.port() };
        let address = SocketAddr::new(host.ip(), port);
        if state.listeners.contains_key(&address) || host.state() == State::Dead {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let (tell, accepted) = mpsc::channel(BACKLOG);
        state.listeners.insert(address, tell);
        Ok(Listener::new(address, accepted, self.clone()))
    }

    pub(crate) fn unlisten(&self, address: SocketAddr) {
        let mut state = self.state.lock();
        if state.listeners.get(&address).is_some_and(mpsc::Sender::is_closed) {
            state.listeners.remove(&address);
        }
    }

    /// Connects from `host` to `to`.
    ///
    /// # Errors
    /// Nothing listens there. A machine that is not there, or is cut off, never answers.
    pub async fn connect(self: &Arc<Self>, host: &Arc<Host>, to: SocketAddr) -> io::Result<Stream> {
        let from = host.ip();
        self.travel(from, to.ip()).await;
        let found = {
            let state = self.state.lock();
            let is_refused = state.refused.contains(&(from, to.ip()));
            state.listeners.get(&to).filter(|_| !is_refused).cloned()
        };
        let Some(listener) = found else {
            if !self.state.lock().machines.contains(&to.ip()) {
                return std::future::pending().await;
            }
            self.travel(to.ip(), from).await;
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let mine = SocketAddr::new(from, self.state.lock().port());
        let link = Arc::new(Link::new([mine, to]));
        self.event("connect", link.to_string().as_bytes());
        {
            let mut state = self.state.lock();
            state.links.push(Arc::downgrade(&link));
            for (side, from, to) in [(0, from, to.ip()), (1, to.ip(), from)] {
                if state.is_cut(from, to) {
                    link.pipe(side).lock().hold();
                }
            }
        }
        let (here, there) =
            (Stream::new(link.clone(), 0, self.clone()), Stream::new(link, 1, self.clone()));
        if listener.try_send((there, mine)).is_err() {
            // The queue of connections that wait to be accepted is full, or the port was closed
            // just now.
            return std::future::pending().await;
        }
        self.travel(to.ip(), from).await;
        Ok(here)
    }

    /// Waits as long as a piece travels, and while the link is cut.
    async fn travel(&self, from: IpAddr, to: IpAddr) {
        loop {
            let mut healed = pin!(self.healed.notified());
            healed.as_mut().enable();
            let (is_cut, delay) = {
                let mut state = self.state.lock();
                (state.is_cut(from, to), state.delay(from, to))
            };
            if !is_cut {
                return tokio::time::sleep(delay).await;
            }
            healed.await;
        }
    }

    pub(crate) fn event(&self, what: &str, detail: &[u8]) {
        self.trace.event(what, nanos(Instant::now() - self.start), detail);
    }
}
