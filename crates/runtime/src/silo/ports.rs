//! The ports of a silo: for other silos, and for clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use emmer_net::transport::{Callers, Listener, Port, descriptors};
use emmer_net::world::{self, TcpListener};

use super::core::SiloCore;
use super::start_error::StartError;
use crate::options::SiloOptions;

pub(super) async fn listen(
    address: SocketAddr,
    purpose: &'static str,
) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen {
        address,
        purpose,
        source,
    })
}

/// The most connections of clients, so that descriptors are left for others.
pub(super) fn leave_room(wanted: usize, descriptors: Option<u64>) -> usize {
    let clients = descriptors::for_clients(wanted, descriptors);
    if clients < wanted {
        tracing::warn!(
            descriptors,
            clients,
            "the gateway takes fewer clients than gateway_connections_max: the process has few \
             descriptors (raise its limit, LimitNOFILE or ulimit -n)"
        );
    }
    clients
}

/// Address that other silos connect to: the advertised address, or the bound one.
pub(super) fn advertised(
    options: &SiloOptions,
    socket: &TcpListener,
) -> Result<SocketAddr, StartError> {
    let bound = socket.local_addr().map_err(|source| StartError::Listen {
        address: options.listen,
        purpose: "silos",
        source,
    })?;
    let mut endpoint = options.advertise.unwrap_or(bound);
    if endpoint.port() == 0 {
        endpoint.set_port(bound.port());
    }
    if endpoint.ip().is_unspecified() { Err(StartError::Wildcard(endpoint)) } else { Ok(endpoint) }
}

pub(super) fn open_ports(core: &Arc<SiloCore>, silos: TcpListener, clients: Option<TcpListener>) {
    let ports = [Some((Port::Silo, silos)), clients.map(|socket| (Port::Gateway, socket))];
    for (port, socket) in ports.into_iter().flatten() {
        let listener = Listener {
            port,
            me: core.address,
            greeting: core.pool.greeting().clone(),
            handler: core.clone(),
            pool: core.pool.clone(),
            stop: core.stopped.clone(),
            open: AtomicUsize::new(0),
            callers: Callers::default(),
            pulse: core.cluster.pulse.pool().clone(),
        };
        world::spawn(listener.run(socket));
    }
}
