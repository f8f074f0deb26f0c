//! A world in one thread and virtual time: hosts, each with its own tasks, clocks and chance, and a
//! network between them. The real runtime runs in it unchanged, because it takes these four things
//! from one place.
//!
//! Time is tokio's paused clock: nothing waits, and when no task can run the clock jumps to the
//! next timer. Every choice comes from the seed of the world. So the same program with the same
//! seed does the same things in the same order, and [`World::trace`] says so in one number.
//!
//! A [`Host`] is a process on a machine of its own. Its tasks belong to it: a paused host runs none
//! of them, and a killed host loses them. The [`Net`] carries bytes in order, with a delay, and may
//! hold them back or lose the connection, as TCP does.

mod calls;
mod clock;
mod host;
mod listener;
mod net;
mod pipe;
mod stream;
mod task;
mod trace;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use emmer_core::rng::SeededRng;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use self::calls::{CallFate, CallFault, Calls};
pub use self::clock::HostClock;
pub use self::host::{Host, State};
pub use self::listener::Listener;
pub use self::net::{Net, NetModel};
pub use self::stream::{ReadHalf, Stream, WriteHalf};
use self::trace::Trace;

/// Time that the wall clocks of a world show when it begins: 1 January 2026, in milliseconds since
/// 1970.
pub const WALL_START_MS: i64 = 1_767_225_600_000;

/// A world. Cheap to clone; all clones are the same one.
#[derive(Clone)]
pub struct World {
    seed: u64,
    start: Instant,
    net: Arc<Net>,
    calls: Arc<Calls>,
    trace: Arc<Trace>,
    hosts: Arc<Mutex<BTreeMap<IpAddr, Arc<Host>>>>,
    rng: Arc<Mutex<SeededRng>>,
}

impl World {
    /// A world without hosts. Call it within a single-threaded tokio runtime whose clock is paused.
    pub fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let trace = Arc::new(Trace::default());
        let start = Instant::now();
        let net = Arc::new(Net::new(rng.bits(), trace.clone(), start));
        let (calls, hosts) = Default::default();
        Self { seed, start, net, calls, trace, hosts, rng: Arc::new(Mutex::new(rng)) }
    }

    /// Seed of everything in this world.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The network.
    pub const fn net(&self) -> &Arc<Net> {
        &self.net
    }

    /// Calls, and the acts of the test on them.
    pub const fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// A machine with a process on it, at the next free address: 10.0.0.1, 10.0.0.2, and so on.
    pub fn host(&self) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        let at = hosts.len() as u32 + 1;
        let ip = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + at));
        let host = self.process(ip);
        hosts.insert(ip, host.clone());
        host
    }

    /// A new process on the machine of `before`, which is killed if it still runs.
    pub fn restart(&self, before: &Arc<Host>) -> Arc<Host> {
        before.kill();
        let host = self.process(before.ip());
        self.hosts.lock().insert(before.ip(), host.clone());
        host
    }

    fn process(&self, ip: IpAddr) -> Arc<Host> {
        let bits = self.rng.lock().bits();
        let around = (self.net.clone(), self.calls.clone(), self.trace.clone());
        Host::new(ip, bits, self.start, around)
    }

    /// A number that depends on everything that happened so far, in order: connections, bytes,
    /// tasks, deaths.
    pub fn trace(&self) -> u64 {
        self.trace.hash()
    }

    /// Number of events so far.
    pub fn events(&self) -> u64 {
        self.trace.events()
    }

    /// Virtual time since the world began.
    pub fn elapsed(&self) -> std::time::Duration {
        Instant::now() - self.start
    }

    /// A choice of the world's own, for a test that wants to act at random: any 64 bits.
    pub fn bits(&self) -> u64 {
        self.rng.lock().bits()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}
