//! A look at a silo's port from outside: is it encrypted?

use std::net::SocketAddr;
use std::time::Duration;

use emmer_core::ClusterId;
use emmer_net::transport::{DialError, Security, dial};
use emmer_wire::RefuseCode;

use crate::gateways::greeting;
use crate::options::ClientOptions;

/// The security of a silo's port, as it looks to a peer without a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSecurity {
    /// It accepts encrypted connections only (TLS).
    Encrypted,
    /// The port accepts plain connections, perhaps encrypted ones too. Every process that reaches
    /// it is believed.
    Plain,
}

/// Connects to a port of a silo of `cluster`, says plainly that it is a client, and hangs up. None
/// if no silo answers within `timeout`.
pub async fn port_security(
    port: SocketAddr,
    cluster: &ClusterId,
    timeout: Duration,
) -> Option<PortSecurity> {
    let options = ClientOptions {
        cluster_id: cluster.clone(),
        connect_timeout: timeout,
        ..ClientOptions::default()
    };
    match dial(port, None, &greeting(&options, Security::default(), None)).await {
        Err(DialError::Refused(_, refuse)) if refuse.code == RefuseCode::Insecure => {
            Some(PortSecurity::Encrypted)
        }
        Ok(_) | Err(DialError::Refused(..)) => Some(PortSecurity::Plain),
        Err(_) => None,
    }
}
