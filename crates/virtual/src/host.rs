//! A process on a machine of its own.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use emmer_core::rng::SeededRng;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::calls::Calls;
use crate::clock::HostClock;
use crate::net::Net;
use crate::task::{Entered, Task, current};
use crate::trace::Trace;

/// State of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// It stands still, as after SIGSTOP; its machine still takes bytes in.
    Paused,
    /// It was killed.
    Dead,
}

/// A process: its tasks, its clocks, its chance, its place in the network.
#[derive(Debug)]
pub struct Host {
    ip: IpAddr,
    clock: HostClock,
    net: Arc<Net>,
    calls: Arc<Calls>,
    trace: Arc<Trace>,
    rng: Mutex<SeededRng>,
    /// The last number that was given out.
    numbers: AtomicU64,
    life: Mutex<Life>,
    tasks: Mutex<Vec<AbortHandle>>,
}

#[derive(Debug)]
struct Life {
    state: State,
    /// Tasks that wanted to run while the host was paused.
    stashed: Vec<Waker>,
}

impl Host {
    pub(crate) fn new(
        ip: IpAddr,
        seed: u64,
        start: Instant,
        (net, calls, trace): (Arc<Net>, Arc<Calls>, Arc<Trace>),
    ) -> Arc<Self> {
        net.add_machine(ip);
        Arc::new(Self {
            ip,
            clock: HostClock::new(start),
            net,
            calls,
            trace,
            rng: Mutex::new(SeededRng::new(seed)),
            numbers: AtomicU64::new(seed),
            life: Mutex::new(Life { state: State::Running, stashed: Vec::new() }),
            tasks: Mutex::default(),
        })
    }

    /// The host whose code runs now; none in code of the test itself, and in every program that is
    /// no test.
    pub fn current() -> Option<Arc<Self>> {
        current()
    }

    /// The address of its machine.
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Its clocks.
    pub const fn clock(&self) -> &HostClock {
        &self.clock
    }

    /// The network that it is part of.
    pub const fn net(&self) -> &Arc<Net> {
        &self.net
    }

    /// Calls of its world, and the acts of the test on them.
    pub const fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Any 64 bits, by its own chance.
    pub fn bits(&self) -> u64 {
        self.rng.lock().bits()
    }

    /// A number that this host has not given out before, and hardly any other host either.
    pub fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Returns true if it runs.
    pub fn state(&self) -> State {
        self.life.lock().state
    }

    /// Runs a future as code of this host. None when the host died first.
    pub fn run<F: Future>(self: &Arc<Self>, future: F) -> impl Future<Output = Option<F::Output>> {
        Task { host: self.clone(), future }
    }

    /// Runs a piece of code as code of this host.
    pub fn enter<T>(self: &Arc<Self>, code: impl FnOnce() -> T) -> T {
        let _entered = Entered::new(self.clone());
        code()
    }

    /// Starts a task of this host. On a dead host it does nothing.
    pub fn spawn(
        self: &Arc<Self>,
        handle: &Handle,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.event("spawn");
        let task = Task { host: self.clone(), future };
        let started = handle.spawn(async move { task.await.unwrap_or_default() });
        let mut tasks = self.tasks.lock();
        if tasks.len() == tasks.capacity() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(started.abort_handle());
        started
    }

    /// Number of its tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.tasks.lock().iter().filter(|task| !task.is_finished()).count()
    }

    /// Ends it like `kill -9`: its tasks are dropped, and its kernel closes its connections.
    /// Effects of dropped tasks stay inside.
    pub fn kill(&self) {
        let stashed = {
            let mut life = self.life.lock();
            life.state = State::Dead;
            std::mem::take(&mut life.stashed)
        };
        self.event("kill");
        self.net.close_all(self.ip);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        stashed.into_iter().for_each(Waker::wake);
    }

    /// Lets it stand still, as SIGSTOP does.
    pub fn pause(&self) {
        let mut life = self.life.lock();
        if life.state == State::Running {
            life.state = State::Paused;
            drop(life);
            self.event("pause");
        }
    }

    /// Lets it continue after a [`pause`](Self::pause).
    pub fn resume(&self) {
        let mut life = self.life.lock();
        if life.state == State::Paused {
            life.state = State::Running;
            let stashed = std::mem::take(&mut life.stashed);
            drop(life);
            self.event("resume");
            stashed.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns true if a task may run now. A task that may not is woken when the host continues or
    /// dies.
    pub(crate) fn may_run(&self, waker: &Waker) -> State {
        let mut life = self.life.lock();
        if life.state == State::Paused && !life.stashed.iter().any(|w| w.will_wake(waker)) {
            life.stashed.push(waker.clone());
        }
        life.state
    }

    fn event(&self, what: &str) {
        self.trace.event(what, self.clock.world_nanos(), self.ip.to_string().as_bytes());
    }
}
