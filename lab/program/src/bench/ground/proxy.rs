//! Proxies: a silo advertises the address of a proxy, which forwards to the silo. A proxy knows the
//! silo that opened a connection by the process at its other end.
//!
//! A cut proxy neither reads nor writes nor ends a connection. It accepts new ones and leaves them
//! alone: a dial succeeds then, and its handshake gets no answer.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use emmer_cli::commands::child::Place;
use emmer_cli::exit::{Failure, Result};

/// Where proxies listen.
const NEAR: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Where silos listen, at the same port.
const FAR: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Maximum bytes that are forwarded at once.
const CHUNK: usize = 16 * 1_024;

/// Number of times the opener of a new connection is looked for, ...
const OPENER_TRIES: u32 = 50;
/// ... and the pause between two looks.
const OPENER_PAUSE: Duration = Duration::from_millis(20);

/// State that all proxies share.
struct Known {
    /// The silo that is cut from the others.
    cut: watch::Sender<Option<usize>>,
    /// The processes of the silos.
    pids: Mutex<Vec<Option<u32>>>,
}

/// See the module. They end with it.
pub(super) struct Proxies {
    ports: Vec<u16>,
    known: Arc<Known>,
    _running: JoinSet<()>,
}

impl Proxies {
    /// Opens a port for each silo.
    pub(super) async fn set(silos: usize) -> Result<Self> {
        let known = Known { cut: watch::Sender::new(None), pids: Mutex::new(vec![None; silos]) };
        let known = Arc::new(known);
        let (mut ports, mut running) = (Vec::new(), JoinSet::new());
        for slot in 0..silos {
            let listener = TcpListener::bind((NEAR, 0)).await;
            let listener =
                listener.map_err(|e| Failure::other(format!("no port for a proxy: {e}")))?;
            let port = listener.local_addr().map_err(Failure::other)?.port();
            ports.push(port);
            running.spawn(serve(listener, slot, (FAR, port).into(), known.clone()));
        }
        Ok(Self { ports, known, _running: running })
    }

    /// Address that a silo listens on, and address that it advertises.
    pub(super) fn place(&self, slot: usize) -> Place {
        let port = self.ports.get(slot).copied().unwrap_or_default();
        Place {
            listen: (FAR, port).into(),
            advertise: Some((NEAR, port).into()),
            ..Place::default()
        }
    }

    /// Notes which process is the silo's.
    pub(super) fn started(&self, slot: usize, pid: u32) {
        let mut pids = self.known.pids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pids.get_mut(slot) {
            *known = Some(pid);
        }
    }

    /// Cuts one silo from the others, or none.
    pub(super) fn cut(&self, slot: Option<usize>) {
        self.known.cut.send_replace(slot);
    }
}

async fn serve(listener: TcpListener, slot: usize, silo: SocketAddr, known: Arc<Known>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, peer)) = accepted else { return };
                connections.spawn(connection(near, peer, slot, silo, known.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(
    near: TcpStream,
    peer: SocketAddr,
    slot: usize,
    silo: SocketAddr,
    known: Arc<Known>,
) {
    // A connection that is let through without a known opener would not be cut when its opener is.
    // Only silos dial here, and they dial again.
    let Some(opener) = opener_in_time(peer, &known).await else { return };
    let gate = Gate { cut: known.cut.subscribe(), ends: [slot, opener] };
    let mut first = gate.clone();
    first.pass().await;
    let Ok(far) = TcpStream::connect(silo).await else { return };
    // Without it small messages would wait. A failure changes nothing else.
    let _ = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::join!(pump(near_in, far_out, gate.clone()), pump(far_in, near_out, gate));
}

/// Lets through while neither end is cut.
#[derive(Clone)]
struct Gate {
    cut: watch::Receiver<Option<usize>>,
    ends: [usize; 2],
}

impl Gate {
    async fn pass(&mut self) {
        let ends = self.ends;
        // The sender lives as long as the proxies.
        let _ = self.cut.wait_for(|cut| cut.is_none_or(|cut| !ends.contains(&cut))).await;
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: Gate) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = from.read(&mut chunk).await;
        gate.pass().await;
        let whole = match read {
            Ok(0) | Err(_) => break,
            Ok(length) => to.write_all(&chunk[..length]).await,
        };
        if whole.is_err() {
            break;
        }
    }
    // The other side is gone as well then.
    let _ = to.shutdown().await;
}

/// Repeats [`opener`] until it finds the process: a silo may dial before its process is noted, and
/// the kernel's table of a busy machine may lack a row while it is read.
async fn opener_in_time(peer: SocketAddr, known: &Known) -> Option<usize> {
    for _ in 0..OPENER_TRIES {
        let pids = known.pids.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let found = opener(peer, &pids);
        if found.is_some() {
            return found;
        }
        sleep(OPENER_PAUSE).await;
    }
    None
}

/// The silo whose process opened the connection that comes from `peer`.
fn opener(peer: SocketAddr, pids: &[Option<u32>]) -> Option<usize> {
    let sockets = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = inode(&sockets, peer)?;
    let link = format!("socket:[{inode}]");
    pids.iter().position(|pid| pid.is_some_and(|pid| holds(pid, &link)))
}

/// The number of the socket at `address` in the kernel's table.
fn inode(sockets: &str, address: SocketAddr) -> Option<&str> {
    let SocketAddr::V4(address) = address else { return None };
    let ip = u32::from_ne_bytes(address.ip().octets());
    let local = format!("{ip:08X}:{:04X}", address.port());
    let row = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    row.into_iter()
        .find(|row| row.get(1) == Some(&local.as_str()))
        .and_then(|row| row.get(9).copied())
}

fn holds(pid: u32, link: &str) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|to| to.as_os_str() == link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_sockets_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 0200007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 20 4 0 10 -1\n";
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8_080));
        if cfg!(target_endian = "little") {
            assert_eq!(inode(table, address), Some("4711"));
        }
        assert_eq!(inode(table, SocketAddr::from((Ipv4Addr::LOCALHOST, 8_081))), None);
        assert_eq!(inode("", address), None);
    }

    #[tokio::test]
    async fn knows_whose_a_connection_is() {
        if !fs::exists("/proc/net/tcp").unwrap() {
            return;
        }
        let listener = TcpListener::bind((NEAR, 0)).await.unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_far, peer) = listener.accept().await.unwrap();
        assert_eq!(opener(peer, &[None, Some(std::process::id())]), Some(1));
        assert_eq!(opener(peer, &[Some(1)]), None);
    }
}
