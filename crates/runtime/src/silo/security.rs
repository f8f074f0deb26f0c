//! The security of a silo's connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use emmer_core::SiloStatus;
#[cfg(feature = "tls")]
use emmer_net::tls::{Role, Tls};
use emmer_net::transport::Security;
use emmer_net::world;
use emmer_store::silos::SiloTable;
use tokio::task::JoinSet;

use super::builder::SiloBuilder;
use super::core::SiloCore;
use super::start_error::StartError;
use crate::options::SiloOptions;

impl SiloBuilder {
    /// Lets the silo listen without TLS where other hosts reach it. Every process that reaches its
    /// ports is then believed. Use it in a network that only the cluster reaches, or that encrypts
    /// by itself.
    #[must_use]
    pub fn insecure(mut self) -> Self {
        self.options.insecure = true;
        self
    }
}

/// A silo with these options may listen.
///
/// # Errors
/// Returns an error if other hosts would reach the silo, it has no TLS, and `insecure` is not set.
pub(super) fn check_reach(options: &SiloOptions, security: &Security) -> Result<(), StartError> {
    if security.is_set_up() || options.insecure || world::is_virtual() {
        return Ok(());
    }
    let ports = [Some((options.listen, "silos")), options.gateway.map(|at| (at, "clients"))];
    let mut reached = ports.into_iter().flatten().filter(|(address, _)| !is_of_host(*address));
    match reached.next() {
        Some((address, purpose)) => Err(StartError::Insecure { address, purpose }),
        None => Ok(()),
    }
}

/// Returns true if only processes of this host reach the address.
fn is_of_host(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Number of silos that a starting silo dials first: those that were alive last.
const ASKED_MAX: usize = 3;

/// Maximum wait for their answers. The cluster itself finds out which silos live.
const ASKED_FOR: Duration = Duration::from_secs(2);

/// Dials silos of the cluster before the silo joins it.
///
/// # Errors
/// Returns an error if the silos that answer do not agree with this one on the security of their
/// connections: it would be declared dead, or wait without end. One silo that agrees is enough,
/// because an address may have another owner by now.
pub(super) async fn check_agreement(
    core: &Arc<SiloCore>,
    table: &SiloTable,
) -> Result<(), StartError> {
    if world::is_virtual() {
        return Ok(());
    }
    // A store that is away is the affair of the join.
    let Ok((_, mut rows)) = table.read_all().await else { return Ok(()) };
    rows.retain(|row| {
        row.status == SiloStatus::Active && !row.address.same_endpoint(&core.address)
    });
    rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.i_am_alive_time));
    let mut dials = JoinSet::new();
    for row in rows.into_iter().take(ASKED_MAX) {
        let core = core.clone();
        dials.spawn(async move { core.cluster.peers.connect(row.address).await.map(|_| ()) });
    }
    let mut refused = None;
    let asked = async {
        while let Some(dialed) = dials.join_next().await {
            match dialed {
                Ok(Ok(())) => return true,
                Ok(Err(error)) if error.is_insecure() => refused = Some(error.to_string()),
                _ => {}
            }
        }
        false
    };
    let agrees = tokio::time::timeout(ASKED_FOR, asked).await.unwrap_or(false);
    match refused.filter(|_| !agrees) {
        Some(why) => Err(StartError::Disagreement { silo: core.address, why }),
        None => Ok(()),
    }
}

#[cfg(feature = "tls")]
impl SiloBuilder {
    /// Encrypts the connections to other silos and to clients, and refuses every peer without a
    /// certificate or key of this cluster.
    ///
    /// In the virtual time of tests nothing is encrypted.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) fn security(&self) -> Result<Security, StartError> {
        let cluster = &self.options.cluster_id;
        Ok(Security::new(self.tls.clone(), cluster, Role::Silo)?)
    }
}

/// The silo tells others this address.
///
/// # Errors
/// Its certificate is for others.
#[cfg(feature = "tls")]
pub(super) fn check_address(security: &Security, address: IpAddr) -> Result<(), StartError> {
    Ok(security.check_address(address)?)
}

#[cfg(not(feature = "tls"))]
impl SiloBuilder {
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "with TLS files are read")]
    pub(super) fn security(&self) -> Result<Security, StartError> {
        Ok(Security::default())
    }
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "with TLS a certificate may name addresses")]
pub(super) fn check_address(_: &Security, _: IpAddr) -> Result<(), StartError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silo_that_others_reach_is_secured_or_says_that_it_is_not() {
        let reach = |listen: &str, gateway: Option<&str>, insecure| {
            let listen = listen.parse().unwrap();
            let gateway = gateway.map(|gateway| gateway.parse().unwrap());
            let options = SiloOptions { listen, gateway, insecure, ..SiloOptions::default() };
            check_reach(&options, &Security::default())
        };
        for own in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:0", "[::ffff:127.0.0.1]:1"] {
            reach(own, Some(own), false).unwrap();
        }
        for (listen, gateway, named) in [
            ("0.0.0.0:0", None, "0.0.0.0:0, for silos"),
            ("[::]:7", None, "[::]:7, for silos"),
            ("127.0.0.1:0", Some("10.0.0.7:30000"), "10.0.0.7:30000, for clients"),
            ("192.168.0.1:1", Some("127.0.0.1:0"), "192.168.0.1:1, for silos"),
        ] {
            let refused = reach(listen, gateway, false).unwrap_err();
            assert!(refused.to_string().starts_with(named), "{refused}");
            reach(listen, gateway, true).unwrap();
        }
    }
}
