//! The world around a silo or a client: tasks, sockets, clocks and chance. Everything else in this
//! crate asks here, never the operating system or tokio itself.
//!
//! With the feature `virtual` the world may be one of `emmer-virtual`: then whatever the code of a
//! virtual host starts, connects to, reads from a clock or draws belongs to that host. Without the
//! feature the types of `elsewhere` have no values, and the compiler leaves out all that is done
//! with one.

mod own_thread;
#[cfg(feature = "tls")]
mod secured;
mod signals;
mod socket;
mod watched;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::elsewhere;
pub use crate::elsewhere::{CallFate, CallFault};

pub use self::own_thread::OwnThread;
#[cfg(feature = "tls")]
pub(crate) use self::secured::Secured;
pub use self::signals::StopRequests;
pub use self::socket::TcpListener;
pub(crate) use self::socket::{ReadHalf, TcpStream, WriteHalf};
pub use self::watched::Watched;

/// The future of a task.
type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts tasks for one silo or client, from whatever thread.
#[derive(Clone, Debug)]
pub struct Spawner {
    handle: tokio::runtime::Handle,
    /// The virtual host of the tasks; none in the kernel's world.
    host: Option<elsewhere::Host>,
}

impl Spawner {
    /// For the silo or client whose code runs now.
    pub fn current() -> Self {
        Self { handle: tokio::runtime::Handle::current(), host: elsewhere::host() }
    }

    /// Starts a task. Its future is boxed: otherwise every method of every grain would compile
    /// copies of tokio's whole task, a third of an application's code.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.spawn_boxed(Box::pin(future))
    }

    fn spawn_boxed(&self, future: Boxed) -> JoinHandle<()> {
        if let Some(host) = &self.host {
            return host.spawn(&self.handle, future);
        }
        self.handle.spawn(future)
    }

    /// Runs `work` here, and whatever it spawns on the runtime of these tasks.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _within = self.handle.enter();
        work()
    }

    /// Returns true if the code that runs now is on the runtime of these tasks. A turn that waits
    /// may not begin elsewhere: its timers and sockets would belong to a runtime that may have
    /// none, or end before the turn.
    pub fn is_here(&self) -> bool {
        tokio::runtime::Handle::try_current().is_ok_and(|here| here.id() == self.handle.id())
    }

    /// Runs `future` as a task of this runtime and waits for it. Dropping this drops the future.
    /// None when the runtime is gone.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, wait) = oneshot::channel();
        let task = self.spawn(async move {
            // An error means that the waiting task is gone.
            let _ = done.send(future.await);
        });
        let _task = Abort(task);
        wait.await.ok()
    }
}

/// Ends a task when it is dropped.
#[derive(Debug)]
pub struct Abort(JoinHandle<()>);

impl From<JoinHandle<()>> for Abort {
    fn from(task: JoinHandle<()>) -> Self {
        Self(task)
    }
}

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task of the silo or client whose code runs now, boxed as by [`Spawner::spawn`].
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    spawn_boxed(Box::pin(future))
}

#[allow(clippy::disallowed_methods, reason = "this is the one place")]
fn spawn_boxed(future: Boxed) -> JoinHandle<()> {
    if let Some(host) = elsewhere::host() {
        return host.spawn(&tokio::runtime::Handle::current(), future);
    }
    tokio::spawn(future)
}

/// Period of a silo's looks at itself. In a virtual world nothing is ever late, except where a host
/// was paused.
pub fn seldom(period: Duration) -> Duration {
    if elsewhere::host().is_some() {
        return period * 10;
    }
    period
}

/// Returns true if the code that runs now is of a virtual host, which has no sockets outside.
pub fn is_virtual() -> bool {
    elsewhere::host().is_some()
}

/// The number of the virtual host whose code runs now, for values that are otherwise counted per
/// process: several hosts share one process, and one process runs several worlds.
#[inline]
pub fn number_of_host() -> Option<u64> {
    elsewhere::host().map(|host| host.next_number())
}

/// The kernel's name of this host (of this container, where it has one of its own). Never the
/// environment's: two rows with one name and one `ip:port` are taken for two processes of one host.
#[cfg(target_os = "linux")]
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().trim().to_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// The host's name as the environment tells it.
#[cfg(not(target_os = "linux"))]
pub fn host_name() -> String {
    let named = ["HOSTNAME", "COMPUTERNAME"].into_iter().filter_map(|key| std::env::var(key).ok());
    let mut named = named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    named.next().unwrap_or_else(|| "localhost".to_owned())
}

/// The addresses of `host:port`: an IP address is one, a name may have several.
pub async fn resolve(host: &str) -> std::io::Result<Vec<std::net::SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    Ok(tokio::net::lookup_host(host).await?.collect())
}

/// Any 64 bits.
#[allow(clippy::disallowed_methods, reason = "this is the one place")]
pub fn random_bits() -> u64 {
    if let Some(host) = elsewhere::host() {
        return host.bits();
    }
    rand::random()
}
