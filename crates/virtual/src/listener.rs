//! The acceptor of connections at an address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::net::Net;
use crate::stream::Stream;

/// Maximum connections that wait to be accepted; later ones are not answered.
pub(crate) const BACKLOG: usize = 1_024;

/// An open port. Dropping it closes the port.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    accepted: mpsc::Receiver<(Stream, SocketAddr)>,
    net: Arc<Net>,
}

impl Listener {
    pub(crate) const fn new(
        address: SocketAddr,
        accepted: mpsc::Receiver<(Stream, SocketAddr)>,
        net: Arc<Net>,
    ) -> Self {
        Self { address, accepted, net }
    }

    /// Address where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, and who made it.
    ///
    /// # Errors
    /// The process was killed.
    pub async fn accept(&mut self) -> io::Result<(Stream, SocketAddr)> {
        self.accepted.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.accepted.close();
        self.net.unlisten(self.address);
    }
}
