//! A cluster of real silos in a world.

use std::net::SocketAddr;
use std::sync::Arc;

use emmer_core::{Duty, SiloAddress, SiloStatus};
use emmer_membership::TerminateReason;
use emmer_runtime::{
    Client, ClientBuilder, ClientOptions, GrainQueue, RecordOptions, Silo, SiloBuilder,
    SiloStatistics, SiloWatch, StoreSource, Terminated,
};
use emmer_store::SystemStore;
use emmer_store::operator::DutyError;
use emmer_virtual::{Host, HostClock, Net};

use crate::store::TestStore;
use crate::world::World;

/// Description of a silo: its classes and its options.
pub(crate) type Describe = Box<dyn Fn(SiloBuilder) -> SiloBuilder>;

/// The port of a silo.
const SILO_PORT: u16 = 11_111;
/// The port of its gateway.
const GATEWAY_PORT: u16 = 30_000;

/// A silo of a test: a process on a machine of its own. Silos are counted from 0, in the order in
/// which they were added.
pub struct Node {
    host: Arc<Host>,
    silo: Silo,
}

impl Node {
    /// The silo's identity.
    pub fn address(&self) -> SiloAddress {
        self.silo.address()
    }

    /// Its clocks: let them drift, jump or stand still.
    pub fn clock(&self) -> &HostClock {
        self.host.clock()
    }

    /// Its counters.
    pub fn statistics(&self) -> SiloStatistics {
        self.silo.statistics()
    }

    /// Has the silo take no new grains: see `Silo::cordon`.
    pub async fn cordon(&self) -> Result<(), DutyError> {
        self.silo.cordon().await
    }

    /// Its duty, as its own view shows it.
    pub fn duty(&self) -> Duty {
        self.silo.duty()
    }

    /// Ends what [`cordon`](Self::cordon) or [`drain`](Self::drain) began.
    pub async fn uncordon(&self) -> Result<(), DutyError> {
        self.silo.uncordon().await
    }

    /// Empties the silo: see `Silo::drain`.
    pub async fn drain(&self) -> Result<u64, DutyError> {
        self.silo.drain().await
    }

    /// Looks at the silo: its metrics, and if it is ready.
    pub fn watch(&self) -> SiloWatch {
        self.silo.watch()
    }

    /// The grains for which most calls wait, at most `n`.
    pub fn longest_queues(&self, n: usize) -> Vec<GrainQueue> {
        self.silo.longest_queues(n)
    }

    /// The status of every silo in the view that it has.
    pub fn view(&self) -> Vec<(SiloAddress, SiloStatus)> {
        self.silo.view().members().iter().map(|m| (m.address, m.status)).collect()
    }

    /// Why it ended; waits until it has.
    pub async fn terminated(&self) -> TerminateReason {
        self.silo.terminated().await
    }

    /// Runs it as a process does that is nothing but a silo: see `Silo::run_until_stopped`. Returns
    /// none if the process ended first.
    pub async fn run_until_stopped(&self) -> Option<Result<(), Terminated>> {
        self.host.run(async { self.silo.run_until_stopped().await }).await
    }

    /// Returns true if it was declared dead, or has left.
    pub fn has_ended(&self) -> bool {
        self.silo.has_ended()
    }

    /// Number of its tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.host.tasks()
    }

    /// Runs a future as code of this silo's process, with a client of the silo itself.
    pub async fn run<T>(
        &self,
        code: impl AsyncFnOnce(emmer_runtime::grain::GrainFactory) -> T,
    ) -> Option<T> {
        let client = self.silo.grains();
        self.host.run(async { code(client).await }).await
    }
}

/// A cluster of real silos.
pub struct Cluster {
    world: emmer_virtual::World,
    store: TestStore,
    describe: Describe,
    nodes: Vec<Node>,
}

impl Cluster {
    pub(crate) fn new(world: &World, describe: Describe) -> Self {
        Self { world: world.inner.clone(), store: world.store.clone(), describe, nodes: Vec::new() }
    }

    /// The silos, dead ones too.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The silo `n`.
    ///
    /// # Panics
    /// There is no such silo.
    pub fn node(&self, n: usize) -> &Node {
        &self.nodes[n]
    }

    /// Describes silos that are started from now on: those of an upgrade, or of another kind.
    pub fn describe(&mut self, describe: impl Fn(SiloBuilder) -> SiloBuilder + 'static) {
        self.describe = Box::new(describe);
    }

    fn source(&self) -> StoreSource {
        let store: Arc<dyn SystemStore> = Arc::new(self.store.clone());
        StoreSource::Opened(store)
    }

    /// Starts a silo on `host`; a failure names it as `who`.
    #[expect(clippy::panic, reason = "that is how a test fails")]
    async fn start_on(&self, host: &Arc<Host>, who: &str) -> Silo {
        // Tests that want records turn them on: other tests count the requests to the store.
        let bare = Silo::builder().configure(|options| options.records = RecordOptions::OFF);
        let builder = (self.describe)(bare)
            .store(self.source())
            .listen(SocketAddr::new(host.ip(), SILO_PORT))
            .gateway(SocketAddr::new(host.ip(), GATEWAY_PORT));
        match host.run(builder.start()).await {
            Some(Ok(silo)) => silo,
            Some(Err(e)) => panic!("{who} did not start: {e}"),
            None => panic!("{who} was killed while it started"),
        }
    }

    /// Starts one more silo on a new machine, and waits until it is Active. Its number.
    ///
    /// # Panics
    /// It does not start.
    pub async fn add(&mut self) -> usize {
        let host = self.world.host();
        let silo = self.start_on(&host, "the silo").await;
        self.nodes.push(Node { host, silo });
        self.nodes.len() - 1
    }

    /// Starts the silo `n` again, on the same machine and address, after it was killed or has left.
    ///
    /// # Panics
    /// It does not start, or there is no silo `n`.
    pub async fn restart(&mut self, n: usize) {
        let host = self.world.restart(&self.nodes[n].host);
        let silo = self.start_on(&host, &format!("silo {n}")).await;
        self.nodes[n] = Node { host, silo };
    }

    /// Kills the silo `n` as `kill -9` does.
    ///
    /// # Panics
    /// There is no silo `n`; so with all others here.
    pub fn kill(&self, n: usize) {
        self.nodes[n].host.kill();
    }

    /// Takes the power from the machine of the silo `n`: its connections do not end, it is only
    /// silent.
    pub fn unplug(&self, n: usize) {
        self.net().silence(self.ip(n));
        self.nodes[n].host.kill();
    }

    /// Lets the process of the silo `n` stand still, as SIGSTOP does.
    pub fn pause(&self, n: usize) {
        self.nodes[n].host.pause();
    }

    /// Lets it continue.
    pub fn resume(&self, n: usize) {
        self.nodes[n].host.resume();
    }

    /// Lets the silo `n` leave in good order, and ends its process.
    pub async fn stop(&self, n: usize) {
        let node = &self.nodes[n];
        let _ = node.host.run(node.silo.stop()).await;
        node.host.kill();
    }

    /// Cuts the silo `n` off from every other silo. Clients and the store still reach it.
    pub fn isolate(&self, n: usize) {
        for other in (0..self.nodes.len()).filter(|other| *other != n) {
            self.cut(n, other);
            self.cut(other, n);
        }
    }

    /// Lets nothing from the silo `from` reach the silo `to`.
    pub fn cut(&self, from: usize, to: usize) {
        self.net().cut(self.ip(from), self.ip(to));
    }

    /// Resets the connections between two silos that are open, and refuses new ones of `from` to
    /// `to`, as a firewall does with other rules than yesterday's, until [`heal`](Self::heal).
    pub fn refuse(&self, from: usize, to: usize) {
        let (from, to) = (self.ip(from), self.ip(to));
        self.net().refuse(from, to);
        self.net().reset(from, to);
    }

    /// Loses all bytes on the present connections between two silos, like a firewall that has
    /// forgotten them: neither side notices, and new connections work.
    pub fn forget_connections(&self, one: usize, other: usize) {
        self.net().forget(self.ip(one), self.ip(other));
    }

    /// Forgets every connection there is, those of clients included.
    pub fn forget_all_connections(&self) {
        self.net().forget_all();
    }

    /// Cuts the silo `n` off from the store.
    pub fn cut_from_store(&self, n: usize) {
        self.store.cut_off(self.ip(n));
    }

    /// Ends every cut, from other silos and from the store.
    pub fn heal(&self) {
        self.net().heal();
        self.nodes.iter().for_each(|node| self.store.let_back(node.host.ip()));
    }

    /// A client outside the cluster, on a machine of its own.
    ///
    /// # Panics
    /// It cannot connect.
    pub async fn client(&self) -> Client {
        self.client_with(|_| {}).await
    }

    /// As [`client`](Self::client), with options of its own.
    ///
    /// # Panics
    /// It does not connect.
    pub async fn client_with(&self, configure: impl FnOnce(&mut ClientOptions)) -> Client {
        self.client_of(|client| client.configure(configure)).await
    }

    /// As [`client`](Self::client), described by a function, as silos are.
    ///
    /// # Panics
    /// It does not connect.
    #[expect(clippy::panic, reason = "that is how a test fails")]
    pub async fn client_of(&self, describe: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        let host = self.world.host();
        let builder = describe(Client::builder().store(self.source()));
        let client = host.run(builder.connect()).await;
        match client {
            Some(Ok(client)) => client,
            Some(Err(e)) => panic!("the client did not connect: {e}"),
            None => panic!("the client's process was killed"),
        }
    }

    /// Number of activations on all silos that run.
    pub fn activations(&self) -> u64 {
        let running =
            self.nodes.iter().filter(|node| node.host.state() != emmer_virtual::State::Dead);
        running.map(|node| node.statistics().activations).sum()
    }

    fn net(&self) -> &Net {
        self.world.net()
    }

    fn ip(&self, n: usize) -> std::net::IpAddr {
        self.nodes[n].host.ip()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.iter().for_each(|node| node.host.kill());
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("silos", &self.nodes.len()).finish_non_exhaustive()
    }
}
