//! The ports of a cluster's silos, as they look to a peer without a certificate.

use std::time::Duration;

use emmer::access::{PortSecurity, port_security};
use emmer::tables::{ClusterId, SiloEntry, SiloStatus};

/// A silo answers within this time, or is not reached.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most silos that are asked at once.
const AT_ONCE: usize = 64;

/// Asks the port of each Active silo. Each row has its place in the result: none if its silo is not
/// Active, or cannot be reached from here.
pub(super) async fn look(silos: &[SiloEntry], cluster: &ClusterId) -> Vec<Option<PortSecurity>> {
    let mut found = Vec::with_capacity(silos.len());
    for some in silos.chunks(AT_ONCE) {
        let asked = some.iter().map(|silo| {
            let (address, cluster) = (silo.address.endpoint(), cluster.clone());
            let is_active = silo.status == SiloStatus::Active;
            is_active.then(|| {
                tokio::spawn(async move { port_security(address, &cluster, PATIENCE).await })
            })
        });
        for task in asked.collect::<Vec<_>>() {
            found.push(match task {
                Some(task) => task.await.ok().flatten(),
                None => None,
            });
        }
    }
    found
}

/// The word for people and programs.
pub(super) const fn word(security: PortSecurity) -> &'static str {
    match security {
        PortSecurity::Encrypted => "tls",
        PortSecurity::Plain => "plain",
    }
}
